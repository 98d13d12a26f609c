"""Subagents: each has a child session with a narrowed selection of tools, in the parent's workspace or a worktree.

A child has no more rights than its parent: its selection is within the parent's, the same executor judges its calls
with the same policy, mode and grants, and its roots are the parent's or a worktree.

Profiles are Markdown files with front matter: `.surehand/agents/*.md` of a trusted workspace, and the user's.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Final, TypeVar

from surehand.agent.loop import Limits, Loop, Outcome, Spent
from surehand.agent.prompt import system_prompt
from surehand.commands import worktrees
from surehand.commands.session import SHELLS
from surehand.commands.worktrees import OwnGit, Worktree
from surehand.core.call import ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import SettingsError, ToolFailure
from surehand.core.events import Event
from surehand.core.model import Model, ModelError
from surehand.core.session import AgentOrder, Kept, Profile, Session
from surehand.core.tasks import Status, TaskBoard
from surehand.core.text import format_count
from surehand.core.view import Selection
from surehand.engine.executor import Executor
from surehand.state import locations

OpenModel = Callable[[str | None], Model]
ACTIVITY_LIMIT: Final = 500
"""Entries of an agent's activity that are kept; older ones are dropped."""
_ENTRY_CHARS: Final = 2000


@dataclass(slots=True)
class Agent:
    """One running (or ended) sub-agent."""

    id: str
    profile: str
    description: str
    depth: int
    state: Status = "in_progress"
    tool_calls: int = 0
    tokens: int = 0
    last_activity: float = field(default_factory=time)
    call_id: str = ""
    """The call that waits for it; empty for one in the background."""
    task: asyncio.Task[ToolResult] | None = None
    _activity: deque[str] = field(default_factory=lambda: deque[str](maxlen=ACTIVITY_LIMIT))
    _unread: int = 0

    def on_event(self, event: Event) -> None:
        """Count an event of its session, and record it as activity."""
        self.last_activity = event.at
        if event.kind == "call_started":
            self.tool_calls += 1
            call: ToolCall = event.data["call"]
            subject = str(call.args.get(call.subject, "")).split("\n", 1)[0][:200]
            self.add_activity(f"[{event.tool}] {subject}".rstrip())
        elif event.kind == "message" and event.data.get("usage") is not None:
            self.tokens += event.data["usage"].total
            self.add_activity(event.data["message"].text)

    def add_activity(self, text: str) -> None:
        """Record an entry of its activity."""
        if text.strip():
            self._activity.append(text.strip()[:_ENTRY_CHARS])
            self._unread = min(self._unread + 1, ACTIVITY_LIMIT)

    def output(self) -> str:
        """Return the activity since the last call of this method."""
        entries = list(self._activity)[len(self._activity) - self._unread :]
        self._unread = 0
        return "\n".join(entries)

    def show_output(self) -> str:
        """Return all of its recorded activity."""
        return "\n".join(self._activity)

    async def stop(self) -> None:
        """Cancel the agent and wait until it has ended, with its clean-up."""
        if self.task is None or self.task.done():
            return
        if not self.task.cancelling():  # only once: a second cancel would interrupt its clean-up
            self.task.cancel()
        await asyncio.wait({self.task})

    def facts(self) -> dict[str, Any]:
        """Return its state and figures as plain data."""
        names = ("id", "profile", "description", "depth", "state", "tool_calls", "tokens", "last_activity")
        return {name: getattr(self, name) for name in names}


async def wait_for_agent(agent: Agent) -> ToolResult:
    """Wait for an agent's answer; cancelling the wait stops the agent."""
    assert agent.task is not None
    try:
        return await asyncio.shield(agent.task)
    except asyncio.CancelledError:
        waiting = asyncio.current_task()
        if waiting is None or waiting.cancelling():
            await agent.stop()
            raise
        raise ToolFailure(f"{agent.id} was stopped", code="cancelled", hint="What it did so far stays.") from None


class AgentRegistry:
    """All sub-agents of a session, and the limit of those that run."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.agents: dict[str, Agent] = {}
        self._count = 0
        self.git = asyncio.Lock()
        """Held while git adds or removes a worktree, which it cannot do concurrently in one repository."""

    def running(self) -> list[Agent]:
        """The agents that run now."""
        return [agent for agent in self.agents.values() if agent.state == "in_progress"]

    def add(self, profile: str, description: str, depth: int) -> Agent:
        """Register a new agent; raise ToolFailure at the limit."""
        if len(self.running()) >= self.limit:
            raise ToolFailure(f"{self.limit} sub-agents run already", hint="Wait for one to end, or stop one.")
        self._count += 1
        agent = Agent(f"agent_{self._count}", profile, description, depth)
        self.agents[agent.id] = agent
        ended = [id for id, each in self.agents.items() if each.state != "in_progress"]
        for id in ended[: max(0, len(self.agents) - 10 * self.limit)]:
            del self.agents[id]
        return agent

    async def close(self) -> None:
        """Stop all agents and wait for their clean-up."""
        await asyncio.gather(*(agent.stop() for agent in self.agents.values()))


def _make_registry(session: Session) -> AgentRegistry:
    session.keep(SHELLS)  # made first, so closed last: agents clean up with commands
    return AgentRegistry(session.settings.agents.max_running)


AGENTS: Final[Kept[AgentRegistry]] = Kept("agents", make=_make_registry, close=AgentRegistry.close)


class Subagents:
    """Runs sub-agents for one session; the session's `agents`."""

    def __init__(
        self,
        *,
        executor: Executor,
        session: Session,
        selection: Selection,
        open_model: OpenModel,
        profiles: Sequence[Profile],
        board: Kept[TaskBoard],
        limits: Limits | None = None,
        depth: int = 0,
        registry: AgentRegistry | None = None,
        system: str = "",
    ) -> None:
        self.executor = executor
        self.session = session
        self.selection = selection
        self.open_model = open_model
        self.board = board
        self.limits = limits or Limits()
        self.depth = depth
        self.system = system or system_prompt(session)
        """The system prompt of the parent conversation."""
        self.spent = Spent()
        """The cost of the question being answered so far; set by the loop."""
        self.registry = registry or session.keep(AGENTS)
        self._profiles = tuple(profiles)
        if depth == 0:  # call events are created only if somebody wants them, and agents count theirs
            executor.bus.subscribe(lambda event: None, wants=lambda kind: bool(self.registry.running()))

    def profiles(self) -> Sequence[Profile]:
        """Return the profiles."""
        return self._profiles

    async def run(self, order: AgentOrder, ctx: ToolContext) -> ToolResult:
        """Start a sub-agent, and return its answer; in mode background, only that it runs."""
        if self.depth >= self.session.settings.agents.max_depth:
            raise ToolFailure(
                f"sub-agents may be {self.session.settings.agents.max_depth} deep, not deeper", hint="Do it yourself."
            )
        profile = next((each for each in self._profiles if each.name == order.profile), self._profiles[0])
        agent = self.registry.add(profile.name, order.description or order.prompt[:80], self.depth + 1)
        agent.call_id = "" if order.mode == "background" else ctx.call.id
        work = self._in_worktree if order.mode == "worktree" else self._here
        # Owned by the registry, which ends it when the session closes.
        agent.task = asyncio.get_running_loop().create_task(work(agent, profile, order))
        agent.task.add_done_callback(lambda _: self._refresh(agent))
        self.session.keep(self.board).join(agent.id, agent.description, "agent", agent)
        return self._in_background(agent) if order.mode == "background" else await wait_for_agent(agent)

    async def _here(self, agent: Agent, profile: Profile, order: AgentOrder) -> ToolResult:
        return await self._converse(agent, profile, order, self._make_child(agent, self.session.workspace))

    def _refresh(self, agent: Agent) -> None:
        if agent.state == "in_progress":  # stopped before it began
            agent.state = "cancelled"
        if (board := self.session.peek(self.board)) is not None:
            board.refresh(agent.id)

    def _in_background(self, agent: Agent) -> ToolResult:
        assert agent.task is not None
        agent.task.add_done_callback(lambda task: self._report_end(agent, task))
        text = f"{agent.id} works in the background. You get a notice when it ends; TaskStop ends it."
        return ToolResult(data={"task_id": agent.id, "agent_id": agent.id, "status": "in_progress"}, output=text)

    def _report_end(self, agent: Agent, task: asyncio.Task[ToolResult]) -> None:
        if task.cancelled():
            agent.state = "cancelled"
            ending = "was stopped"
        else:
            problem = task.exception()
            ending = f"failed: {problem}" if problem else f"{agent.state}: {task.result().output}"
        agent.add_activity(ending)
        self.session.notices.append(f"[notice] Background agent {agent.id} ({agent.description}) {ending}")

    async def _in_worktree(self, agent: Agent, profile: Profile, order: AgentOrder) -> ToolResult:
        if rule := self.executor.policy.find_rule_by_full_path(self.session.workspace):
            agent.state = "failed"
            raise ToolFailure(
                f"the rule {rule} names files here by their full path, which are elsewhere in a worktree",
                code="permission_denied",
                hint="Use mode sync. The user can write the rule from the workspace, as ./folder/**.",
            )
        path = worktrees.new_worktree_path()
        git = OwnGit(self.session, (path,))
        try:
            return await self._with_git(git, agent, profile, order, path)
        finally:
            await git.close()
            if not os.listdir(path):
                os.rmdir(path)

    async def _with_git(self, git: OwnGit, agent: Agent, profile: Profile, order: AgentOrder, path: str) -> ToolResult:
        try:
            worktree = await self._add_worktree(git, agent, order, path)
        except ToolFailure:
            agent.state = "failed"
            raise
        failure: ToolFailure | None = None
        result = ToolResult()
        try:
            result = await self._converse(agent, profile, order, self._make_child(agent, worktree.path))
        except ToolFailure as problem:
            failure = problem
        finally:
            changed, commits = await worktrees.changes(git.run, worktree)
            if not changed and not commits:
                async with self.registry.git:
                    await worktrees.remove_worktree(git.run, worktree)
        if failure is not None:
            if changed or commits:
                failure.hint = (
                    f"{failure.hint} What it did so far is in {worktree.path}, branch {worktree.branch}.".strip()
                )
            raise failure
        return _with_worktree(result, worktree, changed, commits)

    async def _add_worktree(self, git: OwnGit, agent: Agent, order: AgentOrder, path: str) -> Worktree:
        """Add the worktree of an agent; if it is cancelled meanwhile, finish and remove the worktree."""
        name = f"{agent.id}-{int(time())}"
        async with self.registry.git:
            adding = asyncio.ensure_future(
                worktrees.add_worktree(git.run, self.session.workspace, path, order.branch_name, name)
            )
            try:
                return await asyncio.shield(adding)
            except asyncio.CancelledError:
                await asyncio.wait({adding})
                if adding.exception() is None:
                    await worktrees.remove_worktree(git.run, adding.result())
                raise

    def _make_child(self, agent: Agent, workspace: str) -> Session:
        """Return the session of a sub-agent; its events are also emitted by the parent, with the agent's id."""
        parent = self.session

        def forward(event: Event) -> None:
            agent.on_event(event)
            parent.forward(event)
            parent.emit("subagent_event", subagent_id=agent.id, event=event)

        shares_workspace = workspace == parent.workspace
        child = Session(
            workspace,
            settings=parent.settings,
            roots=parent.roots[1:] if shares_workspace else (),
            state_dir=parent.state_dir,
            emit=forward,
            parent=parent,
            interactive=parent.interactive,
        )
        child.agent, child.caller = agent.description or agent.id, agent.call_id
        child.mode, child.grants = parent.mode, list(parent.grants)
        # Shows the same tools as the parent, for the provider's prompt cache.
        child.activated = set(parent.activated)
        child.origins, child.environment = set(parent.origins), dict(parent.environment)
        self.executor.policy.bind(child)
        if not shares_workspace or parent.confined:
            child.confined, child.opens = True, tuple
        return child

    async def _converse(self, agent: Agent, profile: Profile, order: AgentOrder, child: Session) -> ToolResult:
        model_name = order.model or profile.model
        try:
            model = self.open_model(model_name)
        except ModelError as problem:
            agent.state = "failed"
            await child.close()
            raise ToolFailure(
                f"the sub-agent's model is not available: {problem.message}", hint=problem.hint
            ) from problem
        # A provider's prompt cache begins with the tools, then the system prompt: both are the parent's where they can.
        shares_cache = not model_name and model.caches_prompts
        selection = self.selection.narrow(
            profile.tools, session=child, shown_as=self.selection if shares_cache and profile.tools else None
        )
        system, prompt = _introduce(profile, order, child, selection, self.system if shares_cache else None)
        child.selection = selection
        child.agents = Subagents(
            executor=self.executor,
            session=child,
            selection=selection,
            open_model=self.open_model,
            profiles=self._profiles,
            board=self.board,
            limits=self.limits,
            depth=self.depth + 1,
            registry=self.registry,
            system=system,
        )
        facts = {"subagent_id": agent.id, "profile": profile.name, "description": agent.description}
        facts |= {"child_session_id": child.id, "caller": child.caller}  # for drawing the tree of agents
        self.session.emit("subagent_start", **facts, prompt=order.prompt, depth=agent.depth)
        outcome = Outcome(stop="failed")
        agent.state = "in_progress"
        ended: Status = "failed"
        try:
            loop = Loop(model, self.executor, child, selection, system=system, limits=self.limits, spent=self.spent)
            outcome = await loop.ask(prompt)
            ended = "done" if outcome.answered else "failed"
        except ModelError as problem:
            raise ToolFailure(f"the sub-agent's model failed: {problem.message}", hint=problem.hint) from problem
        except asyncio.CancelledError:
            ended = "cancelled"
            raise
        finally:
            agent.state = ended
            self.session.origins |= child.origins
            await child.close()
            figures: dict[str, Any] = {
                "tool_calls": agent.tool_calls,
                "tokens": agent.tokens,
                "usage": outcome.usage.to_dict(),
            }
            self.session.emit("subagent_end", **facts, state=ended, **figures)
        return _result(agent, outcome)


def _introduce(
    profile: Profile, order: AgentOrder, child: Session, selection: Selection, shared: str | None
) -> tuple[str, str]:
    """Return a sub-agent's system prompt and its first message.

    With a `shared` system prompt, its profile is in the first message instead.
    """
    if shared is None:
        own = system_prompt(child)
        return (f"{profile.prompt}\n\n{own}" if profile.prompt else own), order.prompt
    parts = [f"You are the sub-agent {profile.name}, and this is your task. Folder: {child.workspace}"]
    if profile.prompt:
        parts.append(profile.prompt)
    if profile.tools:
        parts.append(f"Only these tools answer you: {', '.join(selection.names())}.")
    return shared, "\n\n".join([*parts, order.prompt])


def _result(agent: Agent, outcome: Outcome) -> ToolResult:
    data = {
        "agent_id": agent.id,
        "state": agent.state,
        "stop": outcome.stop,
        "turns": outcome.turns,
        "tool_calls": len(outcome.calls),
        "usage": outcome.usage.to_dict(),
    }
    text = outcome.text or f"(the sub-agent ended without an answer: {outcome.stop})"
    return ToolResult(data=data | {"text": text}, output=text)


def _with_worktree(result: ToolResult, worktree: Worktree, changed: Sequence[str], commits: int) -> ToolResult:
    """Return a result with the location of the agent's changes, and whether the base lacks uncommitted changes."""
    location: dict[str, Any] = {"branch": worktree.branch, "worktree": worktree.path}
    where = f"branch {worktree.branch}, {format_count(commits, 'commit')}, in {worktree.path}"
    if not changed and not commits:
        location, where = dict.fromkeys(location), "no changes; the worktree was removed"
    lines = [f"[{where}]", *(f"  {line}" for line in changed[:50])]
    if worktree.uncommitted:
        without = format_count(worktree.uncommitted, "uncommitted change")
        lines.append(f"[it began at the last commit, without the {without} here]")
    data = {
        **result.data,
        **location,
        "changes": list(changed),
        "commits": commits,
        "uncommitted": worktree.uncommitted,
    }
    return ToolResult(data=data, output="\n".join([result.output, "", *lines]))


# Profiles: front matter with name, description, tools and model; the text below is the prompt.

T = TypeVar("T")
_KNOWN: Final = ("name", "description", "tools", "model")
BUILT_IN: Final = (
    Profile("general", "Works on anything with all the tools you have."),
    Profile(
        "explorer",
        "Looks around and reports; changes nothing.",
        "You explore and report. You change nothing. Answer with facts and where you found them.",
        ("Read", "Grep", "Glob", "fs.*", "WebFetch", "WebSearch", "ToolSearch"),
    ),
)


def load_profiles(workspace: str, *, trusted: bool) -> tuple[list[Profile], list[str]]:
    """Return the profiles of a workspace, later ones replacing earlier ones, and the problems of other files."""
    found, problems = load_definitions(workspace, "agents", _read_profile, trusted=trusted)
    return list({profile.name: profile for profile in (*BUILT_IN, *found)}.values()), problems


def load_definitions(
    workspace: str, kind: str, read: Callable[[str], T], *, trusted: bool
) -> tuple[list[T], list[str]]:
    """Read the Markdown files of a kind: the user's, then a trusted workspace's. Return them and the problems."""
    found: list[T] = []
    problems: list[str] = []
    folders = [os.path.join(locations.home(), kind)]
    own = os.path.join(workspace, ".surehand", kind)
    if trusted:
        folders.append(own)
    else:
        problems += [f"{path}: this folder is not trusted; `surehand trust` changes that" for path in _files(own)]
    for path in (path for folder in folders for path in _files(folder)):
        try:
            found.append(read(path))
        except (OSError, UnicodeDecodeError, SettingsError) as problem:
            problems.append(f"{path}: {problem}")
    return found, problems


def _read_profile(path: str) -> Profile:
    with open(path, encoding="utf-8") as file:
        return parse_profile(file.read(), path)


def _files(folder: str) -> Iterator[str]:
    if os.path.isdir(folder):
        yield from (os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".md"))


def parse_profile(text: str, source: str) -> Profile:
    """Parse a profile; raise SettingsError with what is missing or unknown."""
    front = read_front_matter(text, _KNOWN, lists=("tools",))
    if front is None:
        raise SettingsError("no front matter; begin the file with --- and name, description")
    values, body = front
    name, description = " ".join(values.get("name", [])), " ".join(values.get("description", []))
    if not name or not description:
        raise SettingsError("name and description must both be there")
    tools = tuple(filter(None, values.get("tools", [])))
    return Profile(name, description, body, tools, " ".join(values.get("model", [])) or None, source)


# Front matter: the lines between `---` at the top of a Markdown file that describes an agent or a command.

_FRONT: Final = re.compile(r"\A---[ \t]*\r?\n(.*?)\r?\n---[ \t]*\r?\n?(.*)\Z", re.DOTALL)


def read_front_matter(
    text: str, known: Sequence[str], *, lists: Sequence[str] = ()
) -> tuple[dict[str, list[str]], str] | None:
    """Parse front matter: return its values by key, and the text below; None if a file has none.

    Keys in `lists` have several values, separated by commas or on lines that begin with `- `. Raises SettingsError for
    a line with none of the `known` keys.
    """
    front = _FRONT.match(text.lstrip("\ufeff"))
    if front is None:
        return None
    values: dict[str, list[str]] = {}
    key = ""
    for number, line in enumerate(front[1].splitlines(), 2):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        if line.lstrip().startswith("- ") and key:
            values[key].append(_unquote(line.lstrip()[2:]))
            continue
        key, colon, value = line.partition(":")
        key = key.strip()
        if not colon or key not in known:
            raise SettingsError(f"line {number}: {line.strip()!r} is not one of {', '.join(known)}")
        values[key] = (
            [_unquote(part) for part in value.strip().strip("[]").split(",")] if key in lists else [_unquote(value)]
        )
    return values, front[2].strip()


def _unquote(text: str) -> str:
    return text.strip().strip("\"'").strip()
