"""`Surehand`, the application: the one place where registry, policy, engine and session meet."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import cached_property, partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, NoReturn, ParamSpec, Self

from surehand import config, wiring
from surehand.catalog import builtin_tool
from surehand.core.call import Source, ToolCall, ToolResult
from surehand.core.events import Event
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.core.tool import Tool
from surehand.core.view import Selection
from surehand.engine.ask import Permissions
from surehand.engine.bus import Sinks
from surehand.engine.executor import Executor
from surehand.engine.extensions import Extension, Extensions
from surehand.engine.health import HealthMonitor
from surehand.engine.journal import MemoryJournal
from surehand.engine.middleware import Layers
from surehand.policy.approval import AnswerFunction, Approver, Nobody, approver_of
from surehand.policy.policy import Policy
from surehand.policy.rule_files import remember
from surehand.policy.trust import changed_since_trusted, is_trusted
from surehand.registry.loading import FOLDER, Loaded, Loader, import_by_source
from surehand.registry.registry import Registry
from surehand.state import locations

if TYPE_CHECKING:
    from surehand.agent.loop import Limits, Loop, Outcome
    from surehand.agent.rewind import SessionRewinder
    from surehand.batch.batch import Runner
    from surehand.batch.tasks import Task, TaskResult
    from surehand.core.model import Model, Prompt
    from surehand.core.session import Checkpoint
    from surehand.core.settings import McpServerSettings, Mode
    from surehand.engine.journal import Journal
    from surehand.engine.tuning import Tuner
    from surehand.mcp.client.servers import Servers
    from surehand.registry.lifecycle import Transition
    from surehand.registry.search import SearchIndex
    from surehand.sync import SyncSurehand

__all__ = ["Surehand", "builtin_tool"]

P = ParamSpec("P")


class Surehand:
    """Tools, a policy and a session over one workspace.

        async with Surehand("path/to/project") as app:
            result = await app.call("Read", {"file_path": "README.md"})

    `approver` answers questions; it may be a function that takes the question and returns a bool or an `Answer`.
    Without one, calls that need permission are refused. `allow` adds allow rules, `session` names a session that
    continues in later processes, `tool_allow` limits which tools exist, `record` names a file that every call is
    written to, for replay, `mcp_servers` adds to the servers of the settings, and `audit_dir` is where the audit is
    kept (default: with the rest of the workspace's state).
    """

    def __init__(
        self,
        workspace: str | os.PathLike[str] = ".",
        *,
        settings: Settings | None = None,
        approver: Approver | AnswerFunction | None = None,
        tools: Iterable[Tool] = (),
        modules: Mapping[str, Iterable[Tool]] | None = None,
        allow: Sequence[str] = (),
        mode: Mode | None = None,
        timeout: tuple[str, float] | None = None,
        tool_allow: Sequence[str] = (),
        session: str | None = None,
        builtin: bool = True,
        interactive: bool = True,
        keep_state: bool = True,
        plugins: bool = True,
        record: str | None = None,
        mcp_servers: Mapping[str, McpServerSettings] | None = None,
        audit_dir: str | None = None,
        **unknown: Never,
    ) -> None:
        wiring.check_keywords(Surehand.__init__.__kwdefaults__ or (), unknown)
        wiring.check_lists(tools=tools, allow=allow, tool_allow=tool_allow)
        root = wiring.check_workspace(workspace, session)
        self.allow = tuple(allow)
        """Allow rules passed as arguments, in addition to those of the settings."""
        self.trusted = is_trusted(root)
        flags = config.flags(mode=mode, timeout=timeout)
        self._load_settings = lambda: wiring.load_settings(root, settings, flags, trusted=self.trusted)
        self.settings, self.warnings = self._load_settings()
        self.bus = wiring.make_bus(self.settings)
        self.registry = wiring.make_registry(self.bus, tools, modules or {}, builtin=builtin)
        self.policy = self._make_policy(root, allow)
        self.metrics = wiring.make_metrics(self.settings)
        self.extensions = Extensions(self.bus, self.registry)
        self.layers = Layers(self.settings, self.extensions, self.metrics)
        self.executor = self._make_executor(approver_of(approver) if approver else Nobody())
        self._mcp_servers = self._merge_servers(mcp_servers or {})
        state_dir = locations.workspace_state(root) if keep_state else None
        self.session = self._make_session(root, session, state_dir, interactive=interactive)
        self.selection = self.session.selection = self._make_selection(tool_allow)
        self.tuner: Tuner | None = None
        self._stack = AsyncExitStack()
        self.journal: Journal | None = None
        """The journal of a named session; None if the session has no name or keeps no state."""
        self._add_listeners(session, state_dir, record, audit_dir)
        if plugins:
            self._load_plugins()
        self.warnings += wiring.warn_of_misnamed_rules(self.policy, self.registry)
        self.warnings += wiring.warn_of_misnamed_tools(self.settings, tool_allow, self.registry)

    @classmethod  # pyright: ignore[reportArgumentType]  # `cls` as a callable keeps the types of its arguments
    def sync(cls: Callable[P, Surehand], *args: P.args, **options: P.kwargs) -> SyncSurehand:
        """Open the application for synchronous code, with the same arguments: `with Surehand.sync(".") as app: ...`."""
        from surehand.sync import SyncSurehand  # lazy: sync, 3 ms; only for synchronous code

        return SyncSurehand(lambda: cls(*args, **options))

    def _make_policy(self, root: str, allow: Sequence[str]) -> Policy:
        if self.settings.permissions.mode == "bypass":
            wiring.refuse_bypass(self.settings)
        rules = [f"allow {rule}" for rule in allow]
        return Policy.from_settings(self.settings, root, command_line=rules, capable=self._capable)

    def _make_executor(self, approver: Approver) -> Executor:
        executor = Executor(
            policy=self.policy,
            asking=Permissions(self.policy, approver, remember),
            lifecycle=self.registry.lifecycle,
            bus=self.bus,
            meter=self.metrics,
            middleware=self.layers,
            extensions=self.extensions,
        )
        executor.seek = self._seek
        executor.readiness.revive = lambda tool: self.health.revive(tool)
        self.registry.lifecycle.trip_after = self.settings.engine.trip_after
        self.registry.lifecycle.is_heard = partial(self.bus.hears, "tool_state")
        self.registry.lifecycle.listen(self._tell_state, calls=False)
        return executor

    def _merge_servers(self, given: Mapping[str, McpServerSettings]) -> dict[str, McpServerSettings]:
        for name in self.settings.mcp_servers.keys() & given.keys():
            self.warnings.append(f"the MCP server {name} of the settings gives way to the one of the program")
        return {**self.settings.mcp_servers, **given}

    def _make_session(self, root: str, name: str | None, state_dir: str | None, *, interactive: bool) -> Session:
        session = Session(
            root,
            settings=self.settings,
            id=f"session_{name}" if name else None,
            name=name,
            state_dir=state_dir,
            emit=self.bus.emit,
            hears=self.bus.hears,
            interactive=interactive,
        )
        self.policy.bind(session)
        return session

    def _make_selection(self, tool_allow: Sequence[str]) -> Selection:
        toolset = self.settings.toolset
        return Selection(
            self.registry,
            self.session,
            allow=tool_allow or toolset.tool_allow,
            threshold=toolset.deferred_threshold,
            search=self._search,
            hide=self._is_off,
        )

    def _add_listeners(
        self, session: str | None, state_dir: str | None, record: str | None, audit_dir: str | None
    ) -> None:
        """Attach what observes calls, as settings and arguments ask: journal, metrics, recording, audit, tracing..."""
        listeners = wiring.Listeners(self.bus, self.session, self._stack)
        if session and state_dir:
            self.journal = listeners.keep_journal(os.path.join(state_dir, "sessions", f"{session}.jsonl"))
            if self.journal.problem:
                self.warnings.append(f"{self.journal.problem}; what happens in it is forgotten at its end")
            listeners.keep_metrics(os.path.join(state_dir, "metrics.sqlite"), self.metrics)
        if record:
            listeners.keep_recording(record)
        if state_dir:
            self.executor.ledger = audit = listeners.keep_audit(audit_dir or os.path.join(state_dir, "audit"))
            if audit.problem:
                self.warnings.append(f"calls are not audited, and what changes something is refused: {audit.problem}")
        self.executor.tracing = listeners.find_tracing()
        listeners.add_hooks(self.extensions)
        if self.settings.engine.tuning:
            self.tuner = listeners.add_tuner(self.executor, self.metrics, self.layers, self.registry)

    def _capable(self, level: int) -> list[str]:
        return [info.name for info in self.registry.infos() if info.level >= level]

    def _load_plugins(self) -> None:
        """Load the tools of installed packages, those made with ToolCreate, and a trusted workspace's own."""
        self.loader.load_entry_points()
        if self.session.state_dir is not None and os.path.isdir(os.path.join(self.session.state_dir, "made_tools")):
            from surehand.tools.made_tools import register_kept  # lazy: made_tools, 6 ms; only where some were made

            self.warnings += register_kept(self.registry, self.session.state_dir)
        if self.trusted:
            import_by_source(os.path.realpath(self.session.workspace))
            self.loader.load_folder(os.path.join(self.session.workspace, FOLDER))

    def _tell_state(self, move: Transition) -> None:
        if self.bus.hears("tool_state"):
            self.bus.emit(Event("tool_state", self.session.id, tool=move.tool, data=move.to_dict()))

    @cached_property
    def loader(self) -> Loader:
        """Loads tools from module paths and folders, and watches folders for change."""
        return Loader(self.registry, self._take_loaded)

    def _take_loaded(self, loaded: Loaded) -> None:
        if loaded.problem:
            self.warnings.append(loaded.problem)
            self.session.emit("note", message=f"tools were not loaded: {loaded.problem}", **loaded.to_dict())

    async def watch_tools(self) -> None:
        """Reload the workspace's own tools when their files change, until cancelled; only trusted files are loaded."""
        workspace = self.session.workspace

        def is_allowed() -> bool:
            return is_trusted(workspace)

        def tell_waiting() -> None:
            self.session.emit("note", message=wiring.format_awaiting_trust(changed_since_trusted(workspace)))

        await self.loader.watch(os.path.join(workspace, FOLDER), is_allowed, tell_waiting)

    @cached_property
    def health(self) -> HealthMonitor:
        """Checks tools, on demand or on an interval."""
        return HealthMonitor(self.registry, self.registry.lifecycle)

    @cached_property
    def servers(self) -> Servers:
        """The MCP servers of this workspace. Each is connected when one of its tools is first called."""
        from surehand.mcp.client.config import all_servers  # lazy: config, 5 ms
        from surehand.mcp.client.servers import Servers  # lazy: servers, 19 ms

        workspace = self.session.workspace
        configured = all_servers(self._mcp_servers, workspace, trusted=self.trusted, warn=self.warnings)
        return Servers(configured, self.registry, self.session)

    async def connect_servers(self, *, patience_s: float | None = None) -> dict[str, str]:
        """Connect to all MCP servers concurrently; return the problems by name, timeouts of `patience_s` included."""
        return await self.servers.connect_all(patience_s=patience_s)

    async def _seek(self, name: str) -> None:
        """Connect to the server that a tool's name contains (`mcp__server__tool`, `server:tool`)."""
        if name.startswith("mcp__") or ":" in name:
            await self.servers.seek(name)

    def extend(self, extension: Extension) -> None:
        """Add an extension, with its settings from `[extensions.NAME]`."""
        self.extensions.register(extension, self.settings.extensions.get(extension.name))

    @cached_property
    def _index(self) -> SearchIndex:
        from surehand.registry.search import SearchIndex  # lazy: search, 10 ms

        return SearchIndex(self.registry)

    def _search(self, query: str, limit: int, keep: Callable[[str], bool]) -> list[str]:
        return self._index.names(query, limit, keep)

    def _is_off(self, name: str) -> bool:
        own = self.settings.tools.get(name)
        if (own is not None and not own.enabled) or self.registry.lifecycle.state(name) in ("disabled", "failed"):
            return True
        tool = self.registry.card(name)
        enabled = tool.enabled if isinstance(tool, Tool) else True
        return not (enabled if isinstance(enabled, bool) else enabled(self.session))

    @cached_property
    def events(self) -> Sinks:
        """Your own functions that receive every event: `app.events.add(print)`."""
        sinks = Sinks(self.bus)
        self._stack.push_async_callback(sinks.close)
        return sinks

    def reload_settings(self) -> None:
        """Reload the permission rules and the tools' switches from the settings; they hold from the next call on.

        All other settings stay as they were when the application was created.
        """
        settings, _ = self._load_settings()
        self.settings = wiring.with_switches(self.settings.replace_values(permissions=settings.permissions), settings)
        self.session.settings = self.settings
        policy = self._make_policy(self.session.workspace, self.allow)
        self.policy = self.executor.policy = self.executor.permissions.policy = policy
        policy.bind(self.session)

    if not TYPE_CHECKING:  # type checkers report the missing `with` support themselves

        def __enter__(self) -> NoReturn:
            raise TypeError("open Surehand with `async with`; in plain code, use `with Surehand.sync(...) as app`")

        __exit__ = __enter__

    async def __aenter__(self) -> Self:
        if self.session.state_dir is not None:
            wiring.open_channel(self, self._stack)
        if interval := self.settings.engine.health_interval:
            wiring.run_beside(self._stack, self.health.watch(interval))
        folder = os.path.join(self.session.workspace, FOLDER)
        if self.session.interactive and self.trusted and wiring.is_folder(folder):
            wiring.run_beside(self._stack, self.watch_tools())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Cancel the running calls, then close everything this application started; later calls are refused."""
        await self.executor.underway.close()  # a close from inside a call is cancelled here, with that call
        async with AsyncExitStack() as ending:  # closed in reverse order; if one fails, the rest is still closed
            ending.callback(self.bus.close)
            ending.push_async_callback(self._stack.aclose)
            ending.push_async_callback(self._close_tools)
            ending.push_async_callback(self.session.close)
            if "servers" in vars(self):  # before the sandbox that some of them run in
                ending.push_async_callback(self.servers.close)

    async def _close_tools(self) -> None:
        cards = (self.registry.card(name) for name in self.registry)
        await self.executor.readiness.close_all([card for card in cards if isinstance(card, Tool)])

    @property
    def approver(self) -> Approver:
        """Who answers questions. May be set after opening, for approvers that depend on the settings."""
        return self.executor.permissions.approver

    @approver.setter
    def approver(self, approver: Approver | AnswerFunction) -> None:
        """Set who answers questions."""
        self.executor.permissions.approver = approver_of(approver)

    def register(self, tool: Tool) -> Tool:
        """Add a tool of your own."""
        return self.registry.register(tool)

    async def call(
        self,
        name: str,
        args: Mapping[str, Any] | None = None,
        *,
        source: Source = "user",
        id: str | None = None,
        shown_first: bool = False,
    ) -> ToolResult:
        """Make one call and return its result; failures are results, not exceptions.

        With `shown_first` the call is first made as a dry run, and the approver is asked with its outcome even if a
        rule allows the call; a yes applies exactly that. Without an approver the rules decide.
        """
        wiring.check_arguments(name, args)
        call = ToolCall(name, args or {}, source=source) if id is None else ToolCall(name, args or {}, id, source)
        return await self.executor.run(call, self.session, self.selection, shown_first=shown_first)

    async def dry_run(self, name: str, args: Mapping[str, Any] | None = None) -> ToolResult:
        """Return what a call would do, with its diff and the verdict; nothing is changed."""
        wiring.check_arguments(name, args)
        return await self.executor.dry_run(ToolCall(name, args or {}), self.session, self.selection)

    async def undo(
        self,
        change_id: str | None = None,
        *,
        last: int | None = None,
        turn: str | None = None,
        since: str | None = None,
        to: str | None = None,
        session: str | None = None,
        file: str | None = None,
        all: bool = False,
        all_sessions: bool = False,
        merge: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> ToolResult:
        """Undo changes of files, by default this session's last one; judged like any call (`allow=["Undo"]`).

        How much: one change (`change_id`), the `last` few, a `turn` ("last" or an id), everything `since` a time
        ("10 min"), or everything after a change (`to`). Of what: `session`, `file`, `all` (ignored files too) and
        `all_sessions`. `merge` keeps what others have changed in other lines since; `force` undoes a file although
        others have changed it. `dry_run` shows what would happen, and whose changes they are.
        """
        turns = None if turn is None else [turn]
        given = {"change_id": change_id, "last": last, "turns": turns, "since": since, "to": to}
        given |= {"session": session, "file": file, "all": all, "all_sessions": all_sessions}
        given |= {"merge": merge, "force": force}
        return await self._history_call("Undo", given, dry_run=dry_run)

    async def redo(
        self,
        change_id: str | None = None,
        *,
        all_sessions: bool = False,
        merge: bool = False,
        force: bool = False,
        dry_run: bool = False,
    ) -> ToolResult:
        """Reapply what this session's latest undo took back, or the undo named; judged like any call."""
        given = {"change_id": change_id, "all_sessions": all_sessions, "merge": merge, "force": force}
        return await self._history_call("Redo", given, dry_run=dry_run)

    async def changes(
        self,
        *,
        limit: int = 30,
        session: str | None = None,
        turn: str | None = None,
        file: str | None = None,
    ) -> ToolResult:
        """List changes of this workspace, newest first (`data["changes"]`); judged like any call."""
        given = {"limit": limit, "session": session, "turn": turn, "file": file}
        return await self._history_call("Changes", given, dry_run=False)

    async def _history_call(self, tool: str, given: Mapping[str, Any], *, dry_run: bool) -> ToolResult:
        args = {name: value for name, value in given.items() if value is not None and value is not False}
        return await self.dry_run(tool, args) if dry_run else await self.call(tool, args)

    async def apply_patch(self, patch: str, *, description: str = "", dry_run: bool = False) -> ToolResult:
        """Apply a patch in git's format, all or nothing; judged like any call, and undone like any edit.

        If a file's content is not what the patch was made from, that is a conflict and nothing is changed.
        """
        call = ToolCall("ApplyPatch", {"patch": patch, "description": description})
        run = self.executor.dry_run if dry_run else self.executor.run
        return await run(call, self.session, self._own_selection)

    @cached_property
    def _own_selection(self) -> Selection:
        """Tools that only the application calls; no model sees them."""
        from surehand.tools.apply_patch import TOOL  # lazy: apply_patch, 95 ms; few sessions apply patches

        registry = Registry(self.bus.emit, self.bus.hears)
        registry.register(TOOL)
        return Selection(registry, self.session)

    def checkpoints(self) -> list[Checkpoint]:
        """Return the turns of this session's conversation, oldest first; each can be rewound to."""
        return self.rewinder.checkpoints()

    async def rewind(
        self,
        to: int | str,
        *,
        files: bool = True,
        transcript: bool = True,
        force: bool = False,
        branch: str | None = None,
        dry_run: bool = False,
    ) -> ToolResult:
        """Bring files and transcript back to just before a turn (its number or id); judged like every call.

        A file that somebody else has changed since is refused with the difference, unless `force` is set. With
        `branch` this session keeps its transcript, and a new session of that name continues from the turn; with
        `dry_run` nothing is changed.
        """
        return await self.rewinder.rewind(
            to, files=files, transcript=transcript, force=force, branch=branch, dry_run=dry_run
        )

    async def undo_rewind(self, *, force: bool = False) -> ToolResult:
        """Undo the latest rewind, unless a turn has followed it."""
        return await self.rewinder.undo_rewind(force=force)

    def conversation(
        self,
        model: Model,
        *,
        system: str | None = None,
        limits: Limits | None = None,
        with_tools: bool = True,
        on_text: Callable[[str], None] | None = None,
        on_thought: Callable[[str], None] | None = None,
    ) -> Loop:
        """Return the agent loop of this session, which continues where the journal ends."""
        from surehand.agent.loop import Loop  # lazy: loop, 80 ms; only if a model is used
        from surehand.agent.prompt import find_instructions, system_prompt  # lazy: prompt, 8 ms

        if system is None:
            found, _ = find_instructions(self.session.workspace)
            system = system_prompt(self.session, found, trusted=self.trusted)
        if with_tools:
            self.session.agents = wiring.make_subagents(self, model, limits, system)
            self.layers.reuse_results()
            self.executor.forget_all()
        loop = Loop(
            model,
            self.executor,
            self.session,
            self.selection if with_tools else None,
            system=system,
            limits=limits,
            transcript=self.rewinder.transcript(),
            on_text=on_text,
            on_thought=on_thought,
        )
        self.rewinder.conversations.add(loop)
        return loop

    async def ask(
        self,
        prompt: Prompt,
        *,
        model: Model | str | None = None,
        output: Mapping[str, Any] | type[Any] | None = None,
        limits: Limits | None = None,
        with_tools: bool = True,
        on_text: Callable[[str], None] | None = None,
    ) -> Outcome:
        """Ask a model, which may use the tools, and return the outcome; the next question continues the conversation.

        `model` is a model, a model's name, or None for the configured one. With `output`, a JSON Schema or a pydantic
        model, the answer is data of that shape in `Outcome.value`: validated, and requested again a few times if it
        does not fit; `stop` is `invalid_output` if it never does. Raises ModelError.
        """
        return await wiring.ask_model(self, prompt, model, output, limits, with_tools=with_tools, on_text=on_text)

    @property
    def rewinder(self) -> SessionRewinder:
        """Rewinds this session to earlier turns; created on first use."""
        from surehand.agent.rewind import SessionRewinder  # lazy: rewind, 60 ms; only if a model is used
        from surehand.tools.tasks import BOARD  # lazy: tasks, 9 ms

        if isinstance(self.session.rewinder, SessionRewinder):
            return self.session.rewinder
        journal = self.journal
        if journal is None:  # no journal on disk: the turns are kept in memory while the session lives
            journal = MemoryJournal(self.session.id)
            self.bus.subscribe(journal)
        made = SessionRewinder(self.session, call=self.call, dry_run=self.dry_run, journal=journal, board=BOARD)
        self.session.rewinder = made
        return made

    def batch(
        self,
        tasks: Iterable[Task | Mapping[str, Any] | str],
        *,
        parallel: int = 4,
        retries: int = 0,
        timeout: float | None = None,
        out: str | os.PathLike[str] | None = None,
        resume: bool = False,
        model: str | Model | Callable[[Task], Model] | None = None,
        approver: Approver | AnswerFunction | None = None,
        keep_workspaces: bool = False,
        runner: Runner | None = None,
    ) -> AsyncGenerator[TaskResult]:
        """Run tasks (prompts, or task lines as for `surehand batch`), `parallel` at a time, and yield their results.

        Each task runs in a workspace of its own, with these settings and tools; without an `approver` nobody answers
        its questions. With `out` the results are also written to a file, which `resume` continues after a crash. A
        `runner` of `surehand.batch.work` runs the tasks on a cluster.
        """
        from surehand.batch.batch import run_batch  # lazy: batch, 120 ms; only used here

        answers = approver_of(approver) if approver else None
        return run_batch(
            self,
            tasks,
            parallel=parallel,
            retries=retries,
            timeout=timeout,
            out=out,
            resume=resume,
            model=model,
            make_approver=(lambda app: answers) if answers else None,
            keep_workspaces=keep_workspaces,
            runner=runner,
        )

    async def run_calls(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make many calls, concurrently where that is safe, and return their results in the order of the calls."""
        from surehand.engine.orchestrator import run_list  # lazy: orchestrator, 13 ms

        return await run_list(calls, self.executor, self.session, self.selection)

    async def stream(self, calls: Sequence[ToolCall]) -> AsyncIterator[tuple[int, ToolResult]]:
        """Make many calls and yield (position, result) as they finish."""
        from surehand.engine.orchestrator import run_all  # lazy: orchestrator, 13 ms

        async for position, result in run_all(calls, self.executor, self.session, self.selection):
            yield position, result
