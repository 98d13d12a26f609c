"""Run one task in its workspace: the calls or the conversation, then the diff, then the check.

A task runs in an ordinary application with a session of its own. It is closed before the diff is taken, so that none of
its processes still runs. The check runs in a new session, whose shell the task cannot have prepared. `FleetRunner` runs
the same code in a remote session on a node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from surehand.agent.prompt import system_prompt
from surehand.config import load
from surehand.core.call import ToolCall, ToolResult, new_id
from surehand.core.errors import SettingsError, StateError, SurehandError, ToolFailure
from surehand.core.events import Listener
from surehand.core.frozen import frozen, replace_values
from surehand.core.model import ModelError
from surehand.files.sanitize import mask_data
from surehand.models import Choice, choose, make_limits, open_model
from surehand.policy.approval import Answer, Nobody
from surehand.registry.loading import load_tool, refer_to
from surehand.workspaces.patch import format_patch
from surehand.workspaces.snapshot import compare, take_snapshot

if TYPE_CHECKING:
    from surehand.agent.loop import Limits, Outcome
    from surehand.app import Surehand
    from surehand.batch.tasks import Task
    from surehand.batch.workspaces import Workspaces
    from surehand.core.model import Model
    from surehand.core.session import Profile
    from surehand.core.settings import Settings
    from surehand.core.tool import Tool
    from surehand.policy.approval import Approver, Question
    from surehand.workspaces.snapshot import Pieces, Snapshot


ModelOf: TypeAlias = Callable[["Task"], "Model"]
MakeApprover: TypeAlias = "Callable[[Surehand], Approver]"
TEXT_LIMIT: Final = 4000
"""Maximum characters of one argument, output or message in a result."""
DIFF_BYTES: Final = 64 << 20
"""A larger diff is not written into a result; the workspace is kept instead."""
_CHECK_MS: Final = 600_000


@frozen
class Setting:
    """The settings that all tasks of a batch share."""

    settings: Settings
    app_class: type[Surehand]
    """The class of a task's application. Passed in, because `surehand.app` imports this package."""
    model_of: ModelOf | None = None
    """Returns the model of a task; if None, the model named by the task, the batch or the settings."""
    model: str | None = None
    profiles: tuple[Profile, ...] = ()
    tools: tuple[Tool, ...] = ()
    allow: tuple[str, ...] = ()
    make_approver: MakeApprover | None = None
    """Makes the approver of a task; if None, every question is refused."""
    listener: Listener | None = None
    """Receives every event of every task."""

    def find_profile(self, name: str) -> Profile:
        """Return a profile by its name; raise SettingsError that lists the known ones."""
        for profile in self.profiles:
            if profile.name == name:
                return profile
        known = ", ".join(profile.name for profile in self.profiles)
        raise SettingsError(f"there is no profile {name!r}; there are {known}")

    def check_profiles(self, tasks: Iterable[Task]) -> None:
        """Raise SettingsError for the first task whose profile does not exist."""
        for number, task in enumerate(tasks, 1):
            if task.profile is not None:
                try:
                    self.find_profile(task.profile)
                except SettingsError as problem:
                    raise SettingsError(f"task {number}: {problem}") from None


class Work:
    """One attempt at a task. `outcome` is filled step by step, so that it also holds what was done before a timeout."""

    def __init__(self, task: Task, folder: str, setting: Setting) -> None:
        self.task = task
        self.folder = folder
        self.setting = setting
        self.outcome: dict[str, Any] = {}

    async def run(self, base: Snapshot, pieces: Pieces, timeout_s: float | None = None) -> dict[str, Any]:
        """Run the attempt and return the fields of its result. Failures of the task are reported there, not raised."""
        timer = asyncio.timeout(timeout_s)
        try:
            async with timer:
                await self._run(base, pieces)
        except TimeoutError:
            if not timer.expired():
                raise
            await asyncio.to_thread(self._note_timeout, base, pieces, f"{timeout_s:g} s")
        return self.outcome

    def _note_timeout(self, base: Snapshot, pieces: Pieces, limit: str) -> None:
        """Record that the work timed out, and what it had done so far."""
        message = f"the task took longer than {limit}, and was stopped"
        if "diff" not in self.outcome:
            try:
                self.take_diff(base, pieces)
            except (OSError, SurehandError) as problem:
                message += f"; what it changed is not known: {problem}"
        error = {"code": "timeout", "message": message, "hint": "Raise its timeout."}
        self.outcome |= {"status": "timeout", "error": error}

    async def _run(self, base: Snapshot, pieces: Pieces) -> None:
        try:
            await self._work()
            await asyncio.to_thread(self.take_diff, base, pieces)
            if self.task.check is not None and self.outcome["status"] != "error":
                await self._check(self.task.check)
        except ModelError as problem:
            self._fail("model_error", problem.message, problem.hint)
        except ToolFailure as problem:
            self._fail(problem.code, problem.message, problem.hint)
        except SurehandError as problem:
            self._fail("invalid_args" if isinstance(problem, SettingsError) else "execution_error", str(problem))

    def take_diff(self, base: Snapshot, pieces: Pieces) -> None:
        """Record what was changed, as a patch and by file."""
        after = take_snapshot(self.folder, pieces, base)
        found = compare(base, after)
        self.outcome["files"] = [{"path": each.path, "action": each.action} for each in found]
        if sum(side.size for each in found for side in (each.before, each.after) if side) > DIFF_BYTES:
            raise StateError(f"the task changed more than {DIFF_BYTES >> 20} MiB, more than a result can hold")
        self.outcome["diff"] = format_patch(found, pieces.read)

    def _fail(self, code: str, message: str, hint: str = "") -> None:
        error = {"code": code, "message": mask_data(message, limit=TEXT_LIMIT), "hint": hint}
        self.outcome |= {"status": "error", "error": error}

    # -- the work -------------------------------------------------------------------------------------------------

    async def _work(self) -> None:
        profile = self.setting.find_profile(self.task.profile) if self.task.profile is not None else None
        async with self._open(tool_allow=profile.tools if profile else ()) as app:
            if self.task.prompt is None:
                await self._call_all(app)
            else:
                await self._converse(app, self.task.prompt, profile)

    def _open(self, **more: Any) -> Surehand:
        setting, task = self.setting, self.task
        app = self.setting.app_class(
            self.folder,
            settings=settings_for(task, self.folder, setting.settings),
            allow=(*setting.allow, *task.rules_of("allow")),
            tools=setting.tools,
            interactive=False,
            **more,
        )
        if setting.make_approver is not None:
            app.approver = setting.make_approver(app)
        if setting.listener is not None:
            app.bus.subscribe(setting.listener)
        return app

    async def _call_all(self, app: Surehand) -> None:
        """Make the task's calls in order; stop at the first failure."""
        done: list[tuple[ToolCall, ToolResult]] = []
        for each in self.task.calls:
            call = ToolCall(each.tool, each.args)
            result = await app.call(call.name, call.args, id=call.id)
            done.append((call, result))
            self.outcome["calls"] = _list_calls(done)
            if not result.ok:
                break
        last = done[-1][1]
        passed = last.ok and len(done) == len(self.task.calls)
        self.outcome |= {"status": "passed" if passed else "failed", "answer": _shorten(last.output), "stop": "end"}

    async def _converse(self, app: Surehand, prompt: str, profile: Profile | None) -> None:
        model = self._open_model(app, profile)
        system = system_prompt(app.session) + (f"\n{profile.prompt}\n" if profile and profile.prompt else "")
        try:
            limits = limits_for(self.task, app.settings, model)
            if app.settings.mcp_servers:
                await app.connect_servers(patience_s=5.0)
            loop = app.conversation(model, system=system, limits=limits)
            self.outcome["model"] = f"{model.provider}/{model.name}"
            try:
                await loop.ask(prompt)
            finally:
                self._record_outcome(loop.outcome)
        finally:
            await model.close()

    def _record_outcome(self, outcome: Outcome) -> None:
        self.outcome |= {
            "status": "passed" if outcome.answered else "failed",
            "answer": outcome.text,
            "calls": _list_calls(zip(outcome.calls, outcome.results, strict=False)),
            "turns": outcome.turns,
            "usage": outcome.spent.usage.to_dict(),
            "cost": outcome.spent.cost,
            "stop": outcome.stop,
        }

    def _open_model(self, app: Surehand, profile: Profile | None) -> Model:
        if self.setting.model_of is not None:
            return self.setting.model_of(self.task)
        named = self.task.model or (profile.model if profile else None) or self.setting.model
        choice = choose(app.settings, named)
        if choice.provider == "offline" and not named and app.settings.model.provider is None:
            # The offline planner answers anything, so that no task could fail.
            raise ModelError("the task has a prompt, and no model is set up", f"Name one; {choice.why}")
        return open_model(app.settings, choice)

    # -- the check ------------------------------------------------------------------------------------------------

    async def _check(self, command: str) -> None:
        """Run the check as an ordinary Bash call; the author of the task has approved it by writing it."""
        call_id = new_id("check")
        async with self._open(timeout=("Bash", _CHECK_MS / 1000)) as app:
            app.approver = _OnlyThisCall(call_id)
            result = await app.call("Bash", {"command": command, "timeout": _CHECK_MS}, id=call_id)
        output = result.output or (result.error.message if result.error else "")
        said: Mapping[str, Any] = result.error.details if result.error is not None else result.data or {}
        exit_code = said.get("exit_code")
        self.outcome["check"] = {
            "command": command,
            "ok": exit_code == 0,  # not `result.ok`: where 1 only means no, as of grep, a check has failed all the same
            "exit_code": exit_code,
            "output": mask_data(output[-TEXT_LIMIT:]),
        }
        if exit_code != 0:
            self.outcome["status"] = "failed"


class _OnlyThisCall:
    """Approves one call and refuses all others."""

    def __init__(self, call_id: str) -> None:
        self._call_id = call_id

    async def ask(self, question: Question) -> Answer:
        return Answer("once") if question.call.id == self._call_id else await Nobody().ask(question)


def settings_for(task: Task, folder: str, settings: Settings) -> Settings:
    """Return the settings of a task: the batch's, narrowed by the task's rules and by the workspace's own file.

    Edits need no permission in a workspace that is a copy: mode default becomes accept-edits.
    """
    own, rules = load(folder).settings.permissions, settings.permissions
    mode = task.mode or ("accept-edits" if rules.mode == "default" else rules.mode)
    narrowed = rules.replace_values(
        mode=mode,
        ask=_join_rules(rules.ask, own.ask, task.rules_of("ask")),
        deny=_join_rules(rules.deny, own.deny, task.rules_of("deny")),
        rules=_join_rules(rules.rules, own.rules),
    )
    return settings.replace_values(permissions=narrowed)


def _join_rules(*parts: Sequence[Any]) -> tuple[Any, ...]:
    found: list[Any] = []
    for part in parts:
        found += [each for each in part if each not in found]
    return tuple(found)


def limits_for(task: Task, settings: Settings, model: Model) -> Limits:
    """Return the limits of a task's conversation; raise SettingsError for a cost limit if no prices are known."""
    wanted = task.limits
    choice = Choice(model.provider, model.name, "the task uses it")
    return make_limits(
        settings, choice, turns=wanted.turns, tokens=wanted.tokens, seconds=wanted.seconds, cost=wanted.cost
    )


def _list_calls(pairs: Iterable[tuple[ToolCall, ToolResult]]) -> list[dict[str, Any]]:
    """Return the calls of a result, with secrets masked and long texts truncated."""
    return [
        {
            "tool": call.name,
            "args": mask_data(call.shown_args, limit=TEXT_LIMIT),
            "ok": result.ok,
            "error": None
            if result.error is None
            else {"code": result.error.code, "message": _shorten(result.error.message)},
            "output": _shorten(result.output),
            "duration_ms": result.meta.get("duration_ms"),
        }
        for call, result in pairs
    ]


def _shorten(text: str) -> str:
    return mask_data(text, limit=TEXT_LIMIT)


_Payload: TypeAlias = "tuple[Task, Setting, list[Any], float | None]"


class _Hosted(Protocol):
    """What `work` uses of a host's session."""

    work: str
    base: Any
    app: Surehand


class FleetRunner:
    """Runs attempts at tasks on a fleet (`surehand.cluster.Fleet`), on nodes that have what a task `needs`."""

    def __init__(self, fleet: Any, *, needs: Mapping[str, Any] | None = None) -> None:
        self._fleet = fleet
        self._needs = needs

    def begin(self, setting: Setting, workspaces: Workspaces) -> None:
        """Receive the shared settings of the tasks, and the maker of their workspaces; called once, first."""
        self._setting = replace_values(setting, listener=None, make_approver=None, tools=())  # only what can be pickled
        self._tools = [refer_to(each) for each in setting.tools]
        self._workspaces = workspaces

    async def run(self, task: Task, attempt: int, timeout_s: float | None) -> dict[str, Any]:
        """Run one attempt on a node. If the node dies, the result is an error, which a retry may replace."""
        try:
            snapshot = await self._workspaces.snapshot_of(task)
            session = await self._fleet.session(snapshot, pieces=self._workspaces.pieces, needs=self._needs)
        except (ToolFailure, StateError) as problem:
            hint = problem.hint if isinstance(problem, ToolFailure) else ""
            return {"status": "error", "error": {"code": "precondition_failed", "message": str(problem), "hint": hint}}
        try:
            payload = (task, self._setting, self._tools, timeout_s)
            found: dict[str, Any] = await session.run("surehand.batch.work:work", payload)
            return found | {"node": session.node}
        except SurehandError as problem:
            error = {"code": "execution_error", "message": str(problem), "hint": "It may have run in part."}
            return {"status": "error", "error": error}
        finally:
            with suppress(Exception):
                await asyncio.shield(asyncio.ensure_future(session.close()))

    async def close(self, *, finished: bool) -> None:
        """Release the snapshots of the tasks."""
        await self._workspaces.close(remove=finished)


async def work(hosted: _Hosted, pieces: Pieces, payload: _Payload) -> dict[str, Any]:
    """Run a task in the workspace of a remote session; called on the node."""
    task, setting, tools, timeout_s = payload

    def get_host_approver(app: Surehand) -> Approver:
        return hosted.app.approver

    setting = replace_values(
        setting,
        tools=tuple(load_tool(each) for each in tools),
        listener=hosted.app.bus.emit,  # from where the driver fetches events
        make_approver=get_host_approver,
    )
    return await Work(task, hosted.work, setting).run(hosted.base, pieces, timeout_s)
