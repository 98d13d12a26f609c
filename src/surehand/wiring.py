"""The wiring of an application, step by step: settings, registry, listeners, and requests from other processes."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, cast

from surehand import config
from surehand.catalog import register_builtin
from surehand.core.errors import SettingsError, StateError, ToolFailure
from surehand.core.installation import install_hint
from surehand.core.names import did_you_mean
from surehand.core.session import name_problem
from surehand.core.settings import ToolSettings
from surehand.core.tool import Tool
from surehand.engine.bus import LOGGED, Bus, at_levels, is_logged
from surehand.engine.journal import Journal, read_past
from surehand.engine.metrics import Metrics, MetricsStore
from surehand.policy.policy import bypass_problem
from surehand.policy.rule_files import find_misnamed
from surehand.policy.trust import changed_since_trusted
from surehand.registry.loading import FOLDER
from surehand.registry.registry import Registry
from surehand.state.locations import note_workspace

if TYPE_CHECKING:
    from surehand.agent.loop import Limits, Outcome
    from surehand.agent.subagents import Subagents
    from surehand.app import Surehand
    from surehand.core.model import Model, Prompt
    from surehand.core.session import Session
    from surehand.core.settings import Settings
    from surehand.engine.audit import Audit
    from surehand.engine.executor import Executor
    from surehand.engine.extensions import Extensions
    from surehand.engine.middleware import Layers
    from surehand.engine.tuning import Tuner
    from surehand.policy.policy import Policy


_log = logging.getLogger("surehand")


def check_workspace(workspace: str | os.PathLike[str], session: str | None) -> str:
    """Return the real path of a workspace; raise SettingsError if it is no folder, or the session's name is invalid."""
    root = os.path.realpath(workspace)
    if not os.path.isdir(root):
        raise SettingsError(f"the workspace {os.fspath(workspace)} is not a folder")
    if session is not None and (problem := name_problem(session)):
        raise SettingsError(problem)
    return root


def check_keywords(known: Iterable[str], unknown: Iterable[str]) -> None:
    """Raise TypeError for unknown keyword arguments, with the one that was probably meant."""
    if said := ", ".join(f"{name!r}{did_you_mean(name, known)}" for name in unknown):
        raise TypeError(f"Surehand takes no {said}")


def check_lists(**given: object) -> None:
    """Raise TypeError if a list argument is a single string or tool; a string would be read as a list of letters."""
    for name, value in given.items():
        if isinstance(value, str | Tool):
            one = value.name if isinstance(value, Tool) else repr(value)
            raise TypeError(f"{name} is a list; write {name}=[{one}]")


def check_arguments(tool: str, args: object) -> None:
    """Raise TypeError unless the arguments of a call are a dictionary."""
    if args is not None and not isinstance(args, (dict, Mapping)):  # `dict` first: the check of Mapping is slow
        raise TypeError(f"the arguments of {tool} are a dictionary, such as {{'name': 'value'}}, not {args!r}")


def load_settings(
    root: str, given: Settings | None, flags: Mapping[config.Path, Any], *, trusted: bool
) -> tuple[Settings, list[str]]:
    """Return the settings, given or loaded from the workspace, with the flags applied; and the warnings."""
    warnings: list[str] = []
    if given is None:
        loaded = config.load(root, flags=flags, trusted=trusted)
        settings, warnings = loaded.settings, loaded.warnings
    else:
        settings = config.with_flags(given, flags)
    if not trusted and (waiting := changed_since_trusted(root)):
        warnings.append(format_awaiting_trust(waiting))
    elif not trusted and os.path.isdir(os.path.join(root, FOLDER)):
        warnings.append(f"{FOLDER} was ignored: this folder is not trusted (see `surehand trust`)")
    return settings, warnings


def with_switches(settings: Settings, now: Settings) -> Settings:
    """Return settings in which each tool is enabled or disabled as in `now`."""
    names = settings.tools.keys() | now.tools.keys()
    tools = {
        name: settings.tools.get(name, ToolSettings()).replace_values(
            enabled=now.tools.get(name, ToolSettings()).enabled
        )
        for name in names
    }
    return settings.replace_values(tools=tools)


def make_bus(settings: Settings) -> Bus:
    """Return the event bus, which logs at the levels of the settings."""
    bus = Bus()
    levels = {name: own.monitoring.log_level for name, own in settings.tools.items()}
    bus.subscribe(at_levels(levels), kinds=LOGGED, wants=is_logged)
    return bus


def make_registry(bus: Bus, tools: Iterable[Tool], modules: Mapping[str, Iterable[Tool]], *, builtin: bool) -> Registry:
    """Return the registry with the built-in tools, if wanted, and those the program passed."""
    registry = Registry(bus.emit, bus.hears)
    if builtin:
        register_builtin(registry)
    for tool in tools:
        registry.register(tool)
    for module, members in modules.items():
        registry.register_module(module, members)
    return registry


def make_metrics(settings: Settings) -> Metrics:
    """Return the metrics, without the tools whose settings disable them."""
    return Metrics(without=[name for name, own in settings.tools.items() if not own.monitoring.enable_metrics])


def format_awaiting_trust(changed: Sequence[str]) -> str:
    """Format the warning that names the files changed since the workspace was trusted."""
    shown = ", ".join(changed[:5]) + (f" and {len(changed) - 5} more" if len(changed) > 5 else "")
    return f"changed since this folder was trusted: {shown}; its own files count again after `surehand trust`"


def is_folder(path: str) -> bool:
    """Return True if a path is a folder; one `stat`, which the event loop can afford."""
    return os.path.isdir(path)


def refuse_bypass(settings: Settings) -> None:
    """Raise ToolFailure unless bypass is confirmed and commands are sandboxed."""
    from surehand.sandbox.protocol import available  # lazy: protocol, 4 ms

    sandboxed = settings.sandbox.mode != "off" and available()
    if problem := bypass_problem(sandboxed=sandboxed, confirmed=settings.permissions.confirm_bypass):
        hint = "To confirm it for good, set `permissions.confirm_bypass = true` in your own settings."
        raise ToolFailure(problem, code="permission_denied", hint=hint)


class Listeners:
    """Attaches what observes calls: listeners of the bus, stored metrics, tracing, hooks. `stack` closes them."""

    def __init__(self, bus: Bus, session: Session, stack: AsyncExitStack) -> None:
        self._bus = bus
        self._session = session
        self._settings = session.settings
        self._stack = stack

    def keep_journal(self, path: str) -> Journal:
        """Resume a named session from its journal, and append to it."""
        try:
            read_past(path).resume(self._session)
        except OSError as problem:
            raise StateError(f"the session in {path} cannot be read: {problem.strerror}") from problem
        journal = Journal(path, self._session.id, self._settings.history.session_mb << 20)
        self._bus.subscribe(journal)
        self._stack.callback(journal.close)
        self._session.emit("session_started", workspace=self._session.workspace)
        return journal

    def keep_recording(self, path: str) -> None:
        """Record every call and its result in a file, for replay."""
        from surehand.engine.replay import Recorder  # lazy: replay, 5 ms

        recorder = Recorder(path, self._session)
        self._bus.subscribe(recorder)
        self._stack.callback(recorder.close)

    def keep_audit(self, folder: str) -> Audit:
        """Record every call and refusal in the audit; while that fails, calls that change something are refused."""
        from surehand.engine.audit import RECORDED, Audit  # lazy: audit, 7 ms

        audit = Audit(folder)
        self._bus.subscribe(audit, kinds=RECORDED)
        self._stack.callback(audit.close)
        return audit

    def keep_metrics(self, path: str, metrics: Metrics) -> None:
        """Add this process's metrics to those stored for the workspace, when the application closes."""
        store = MetricsStore(path)

        def save() -> None:
            try:
                store.save(metrics.records)
            except (OSError, StateError) as problem:  # a failure to save metrics must not fail calls that succeeded
                self._session.emit("note", message=f"what was measured is not kept: {problem}")

        self._stack.callback(save)

    def find_tracing(self) -> Callable[..., Any] | None:
        """Return the function that traces each call with OpenTelemetry, or None if it is not set up."""
        # A user of OpenTelemetry has imported the SDK or set its variables; otherwise it is not imported.
        if "opentelemetry.sdk" not in sys.modules and not any(name.startswith("OTEL_") for name in os.environ):
            return None
        from surehand.engine.otel import tracing  # lazy: otel, 3 ms

        try:
            return tracing(self._settings)
        except ModuleNotFoundError:  # variables of OpenTelemetry are often set for other programs
            self._session.emit("note", message=f"calls are not traced: {install_hint('otel')}")
            return None

    def add_hooks(self, extensions: Extensions) -> None:
        """Run the shell hooks of the settings around every call."""
        for number, hook in enumerate(self._settings.hooks, 1):
            from surehand.engine.shell_hooks import ShellHook  # lazy: shell_hooks, 50 ms

            extensions.register(ShellHook(number, hook, self._session))

    def add_tuner(self, executor: Executor, metrics: Metrics, layers: Layers, registry: Registry) -> Tuner:
        """Add the tuner, which adapts the engine's limits to the metrics."""
        from surehand.engine.cache import cacheable  # lazy: cache, 4 ms
        from surehand.engine.tuning import EngineLimits, Tuner  # lazy: tuning, 5 ms

        def can_cache(name: str) -> bool:
            tool = registry.card(name)
            return self._settings.engine.cache is None and isinstance(tool, Tool) and cacheable(tool)

        tuner = Tuner(
            metrics.all,
            EngineLimits(executor, self._settings),
            self._bus.emit,
            session_id=self._session.id,
            cached=layers.advised,
            can_cache=can_cache,
        )
        self._bus.subscribe(tuner, kinds=("call_finished",))
        return tuner


def warn_of_misnamed_rules(policy: Policy, registry: Registry) -> list[str]:
    """Warn of rules that nearly name a tool; other unknown names may be tools of servers or registered later."""
    own = [rule for rule in policy.book.own if rule.kind == "name" and rule.name not in registry]
    if not own:
        return []
    names = [name for tool in registry.infos() for name in (tool.name, *tool.aliases)]
    found = find_misnamed(own, names)
    for warning in found:
        _log.warning("%s", warning)
    return found


def warn_of_misnamed_tools(settings: Settings, tool_allow: Sequence[str], registry: Registry) -> list[str]:
    """Warn of `[tools.NAME]` and allow-lists that nearly name a tool; they would have no effect."""
    named = {f"[tools.{name}]": name for name in settings.tools}
    named |= {f"tool_allow {name!r}": name for name in tool_allow or settings.toolset.tool_allow}
    unknown = {where: name for where, name in named.items() if name not in registry and not _is_pattern(name)}
    if not unknown:
        return []
    known = [name for tool in registry.infos() for name in (tool.name, *tool.aliases)]
    found = [
        f"{where} matches nothing: there is no tool {name!r}{hint}"
        for where, name in unknown.items()
        if (hint := did_you_mean(name, known))
    ]
    for warning in found:
        _log.warning("%s", warning)
    return found


def _is_pattern(name: str) -> bool:
    return name.startswith("mcp__") or not {"*", "?", "[", ":"}.isdisjoint(name)


def make_subagents(app: Surehand, model: Model, limits: Limits | None, system: str) -> Subagents:
    """Return what runs a conversation's sub-agents: with its model, unless a profile names another."""
    from surehand.agent.subagents import Subagents, load_profiles  # lazy: subagents, 110 ms
    from surehand.models import choose, open_model  # lazy: models, 7 ms
    from surehand.tools.tasks import BOARD  # lazy: tasks, 9 ms

    session, settings = app.session, app.settings
    known, problems = load_profiles(session.workspace, trusted=app.trusted)
    for problem in problems:
        session.emit("note", message=f"a sub-agent's profile was left out: {problem}")
    return Subagents(
        executor=app.executor,
        session=session,
        selection=app.selection,
        open_model=lambda name: open_model(settings, choose(settings, name)) if name else model,
        profiles=known,
        board=BOARD,
        limits=limits,
        system=system,
    )


async def ask_model(
    app: Surehand,
    prompt: Prompt,
    model: Model | str | None,
    output: Mapping[str, Any] | type[Any] | None,
    limits: Limits | None,
    *,
    with_tools: bool,
    on_text: Callable[[str], None] | None,
) -> Outcome:
    """Ask a model in the application's conversation; a model opened here is closed afterwards."""
    from surehand.agent.loop import OutputShape, ask_for  # lazy: loop, 90 ms; only if a model is used
    from surehand.models import choose, make_limits, open_model  # lazy: models, 7 ms

    app.session.refuse_while_answering()  # before `conversation` replaces the sub-agents of the one that is answering
    shape = OutputShape(output) if output is not None else None
    choice = choose(app.settings, model) if model is None or isinstance(model, str) else None
    speaker = open_model(app.settings, choice) if choice is not None else cast("Model", model)
    limits = limits or make_limits(app.settings, choice)
    try:
        loop = app.conversation(speaker, limits=limits, with_tools=with_tools, on_text=on_text)
        return await (loop.ask(prompt) if shape is None else ask_for(loop, prompt, shape))
    finally:
        if choice is not None:
            await speaker.close()


def run_beside(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine as a background task, cancelled when `stack` closes."""
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


# Remote requests: what the user's other processes can see of a running application, and ask it to do.


def open_channel(app: Surehand, stack: AsyncExitStack) -> None:
    """Let the user's other processes follow this session and send it requests, until `stack` is closed."""
    from surehand.engine.channel import Channel  # lazy: channel, 10 ms; only for a session that keeps state

    session, questions = app.session, app.executor.permissions.questions
    assert session.state_dir is not None

    async def stop_call(request: Mapping[str, Any]) -> Mapping[str, Any]:
        if app.executor.cancel(str(request.get("id"))):
            return {"ok": True}
        return {"error": "that call is no longer running", "hint": ""}

    async def reload_settings(request: Mapping[str, Any]) -> Mapping[str, Any]:
        del request
        app.reload_settings()
        return {"ok": True, "rules": len(app.policy.own_rules)}

    async def list_slots(request: Mapping[str, Any]) -> Mapping[str, Any]:
        del request
        return {"slots": [each.to_dict() for each in app.executor.slots() if each.running or each.waiting]}

    session.requests |= questions.requests
    session.requests |= {"stop_call": stop_call, "reload_settings": reload_settings, "slots": list_slots}
    try:
        note_workspace(session.state_dir, session.workspace)
        channel = Channel(session, app.bus, questions.lose_answerers)
    except OSError as problem:  # a state folder that cannot be written, or no descriptor left
        _log.info("other processes cannot follow this session: %s", problem)
        return
    questions.reachable, questions.has_answerers = True, lambda: channel.has_answerers
    stack.push_async_callback(channel.close)
