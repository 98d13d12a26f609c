"""Extensions: named, versioned, ordered. They see tools come and go and calls begin and end, and may change both.

An extension overrides what it needs. `before` runs ahead of every check, so arguments it changed are validated and
judged like any others. `around` holds the call itself, once it may run. `after` sees the result and may replace it.
One that raises or hangs is reported and skipped; one marked `required` fails the call instead. Calls an extension
makes itself do not pass through it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextvars import ContextVar
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from surehand.core.call import ToolCall, ToolResult
from surehand.core.errors import SurehandError, ToolFailure
from surehand.core.events import Event
from surehand.core.frozen import frozen, replace_values
from surehand.core.tool import Tool, ToolInfo
from surehand.engine.bus import Bus

if TYPE_CHECKING:
    from surehand.engine.prepared import Middleware, Prepared, Proceed

T = TypeVar("T")
HOOK_TIMEOUT_S: Final = 10.0
_inside: ContextVar[frozenset[str]] = ContextVar("extensions_inside", default=frozenset())


class Cards(Protocol):
    """Which tools there are; the registry is one."""

    def __iter__(self) -> Iterator[str]: ...
    def card(self, name: str) -> Tool | ToolInfo | None:
        """Return a tool, or what is known of it before it is loaded."""
        ...


class Extension:
    """Override what you need; everything else costs nothing."""

    name: str = ""
    version: str = "1.0.0"
    description: str = ""
    priority: int = 0
    """Higher is further outside: first to see a call, last to see its result."""
    required: bool = False
    """Whether a call fails when this extension does."""
    tools: tuple[str, ...] = ("*",)
    """Names, aliases or globs of the tools it applies to."""
    timeout_s: float = HOOK_TIMEOUT_S

    def applies_to(self, tool: Tool | ToolInfo) -> bool:
        """Say whether this extension is for a tool; by `tools` unless overridden."""
        return any(fnmatchcase(name, glob) for glob in self.tools for name in (tool.name, *tool.aliases))

    def configure(self, config: Mapping[str, Any]) -> None:
        """Take this extension's own settings; raise ValueError for what is wrong with them."""

    def extend(self, tool: Tool) -> Tool:
        """Return the tool as it should be from now on, or the same one."""
        return tool

    def on_register(self, tool: Tool | ToolInfo) -> None:
        """A tool came."""

    def on_unregister(self, tool: Tool | ToolInfo) -> None:
        """A tool went."""

    async def before(self, tool: Tool, call: ToolCall) -> Mapping[str, Any] | None:
        """A call begins: return other arguments to change them, raise ToolFailure to veto it."""

    async def around(self, tool: Tool, call: ToolCall, proceed: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Hold the call that is about to run: `await proceed()` runs it, once."""
        return await proceed()

    async def after(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult | None:
        """A call ended: return another result to change it."""


@frozen
class _Hooks:
    """The extensions of one tool, outermost first, by what they override."""

    before: tuple[Extension, ...] = ()
    around: tuple[Extension, ...] = ()
    after: tuple[Extension, ...] = ()


class Extensions:
    """All extensions of one application, in order."""

    def __init__(self, bus: Bus, tools: Cards | None = None) -> None:
        self._bus = bus
        self._emit = bus.emit
        self._tools = tools
        self._all: list[Extension] = []
        self._cards: dict[str, Tool | ToolInfo] = {}
        self._hooks: dict[str, _Hooks] = {}
        self._extended: dict[Tool, Tool] = {}
        self.active = False
        """Whether there is any; the path of a call asks only this."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the middleware composed for tools is out of date."""
        self._unsubscribe: Callable[[], None] = lambda: None

    # Who is there ----------------------------------------------------------------------------------------------------

    def register(self, extension: Extension, config: Mapping[str, Any] | None = None) -> None:
        """Add an extension; its name must be new. `on_register` is called for the tools already registered."""
        if not extension.name:
            raise SurehandError(f"an extension needs a name ({type(extension).__name__} has none)")
        if any(each.name == extension.name for each in self._all):
            raise SurehandError(f"an extension named {extension.name!r} is already registered")
        try:
            extension.configure(config or {})
        except ValueError as problem:
            raise SurehandError(f"extension {extension.name}: {problem}") from problem
        if not self._all:
            self._look_around()
        self._all.append(extension)
        self._all.sort(key=lambda each: -each.priority)
        self._renew()
        data = {"name": extension.name, "version": extension.version, "description": extension.description}
        self._emit(Event("extension_registered", data=data))
        for card in list(self._cards.values()):
            self._run_hook(extension, "on_register", card)

    def unregister(self, name: str) -> None:
        """Take an extension out; calls under way finish with it."""
        remaining = [each for each in self._all if each.name != name]
        if len(remaining) == len(self._all):
            raise SurehandError(f"there is no extension named {name!r}")
        self._all = remaining
        self._renew()

    def order(self, tool: Tool | ToolInfo | None = None) -> list[Extension]:
        """Return the extensions (of one tool), outermost first."""
        return [each for each in self._all if tool is None or self._applies(each, tool)]

    # On the path of a call -------------------------------------------------------------------------------------------

    def extend_tool(self, tool: Tool) -> Tool:
        """Return the tool as its extensions want it, worked out once."""
        found = self._extended.get(tool)
        if found is None:
            if len(self._extended) > 20_000:
                self._extended.clear()
            found = tool
            for extension in reversed(self.order(tool)):
                if _overrides(extension, "extend"):
                    found = self._extend(extension, found)
            self._extended[tool] = found
        return found

    async def begin(self, tool: Tool, call: ToolCall) -> ToolCall:
        """Let extensions see a call before it is checked; they may change its arguments or veto it."""
        for extension in self._hooks_of(tool).before:
            changed = await self._call_hook(extension, tool, extension.before, tool, call)
            if changed is not None:
                call = replace_values(call, args=dict(changed))
        return call

    async def end(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult:
        """Let extensions see a result, innermost first; they may replace it."""
        for extension in reversed(self._hooks_of(tool).after):
            changed = await self._call_hook(extension, tool, extension.after, tool, call, result)
            result = result if changed is None else changed
        return result

    def layers(self, tool: Tool) -> list[Middleware]:
        """Return the layers of extensions that hold a call of this tool, outermost first."""
        return [self._layer(extension) for extension in self._hooks_of(tool).around]

    # Inside ----------------------------------------------------------------------------------------------------------

    def _look_around(self) -> None:
        """Learn which tools there are, and listen for those that come and go; done for the first extension."""
        if self._tools is not None:
            self._cards = {name: card for name in self._tools if (card := self._tools.card(name)) is not None}
            self._unsubscribe()
            self._unsubscribe = self._bus.subscribe(self._on_event, kinds=("tool_registered", "tool_unregistered"))

    def _on_event(self, event: Event) -> None:
        if event.kind == "tool_registered" and self._tools is not None:
            if (card := self._tools.card(event.tool)) is not None:
                self._cards[event.tool] = card
                self._run_hooks(card, "on_register")
        elif event.kind == "tool_unregistered":
            self._hooks.pop(event.tool, None)
            if (card := self._cards.pop(event.tool, None)) is not None:
                self._run_hooks(card, "on_unregister")

    def _run_hooks(self, card: Tool | ToolInfo, hook: str) -> None:
        for extension in self.order(card):
            self._run_hook(extension, hook, card)

    def _hooks_of(self, tool: Tool) -> _Hooks:
        hooks = self._hooks.get(tool.name)
        if hooks is None:
            mine = self.order(tool)
            hooks = self._hooks[tool.name] = _Hooks(
                *(tuple(each for each in mine if _overrides(each, hook)) for hook in ("before", "around", "after"))
            )
        return hooks

    def _layer(self, extension: Extension) -> Middleware:
        async def layer(prepared: Prepared, proceed: Proceed) -> ToolResult:
            if extension.name in _inside.get():
                return await proceed(prepared)
            token = _inside.set(_inside.get() | {extension.name})
            limit = asyncio.timeout(extension.timeout_s)
            held = _Held(prepared, proceed, limit, extension.timeout_s)
            try:
                async with limit:
                    result = await extension.around(prepared.tool, prepared.call, held)
            except Exception as problem:
                # The call's own failure, passed through, or a veto.
                if problem is held.problem or isinstance(problem, ToolFailure):
                    raise
                self._report_failure(extension, prepared.tool, problem)
                held.limit = None
                return await held()
            finally:
                _inside.reset(token)
            return ToolResult.of(result)

        return layer

    async def _call_hook(
        self, extension: Extension, tool: Tool, hook: Callable[..., Awaitable[T]], *told: Any
    ) -> T | None:
        """Call a hook under its time limit, unless the call comes from that very extension."""
        if extension.name in _inside.get():
            return None
        token = _inside.set(_inside.get() | {extension.name})
        try:
            async with asyncio.timeout(extension.timeout_s):
                return await hook(*told)
        except ToolFailure:  # a veto is meant
            raise
        except TimeoutError as problem:
            self._report_failure(
                extension, tool, problem if str(problem) else TimeoutError(f"{extension.timeout_s:g} s passed")
            )
        except Exception as problem:
            self._report_failure(extension, tool, problem)
        finally:
            _inside.reset(token)
        return None

    def _report_failure(self, extension: Extension, tool: Tool | ToolInfo, problem: Exception) -> None:
        """Report an extension that failed; a required one fails the call."""
        message = f"extension {extension.name} failed on {tool.name}: {type(problem).__name__}: {problem}"
        self._emit(Event("extension_failed", tool=tool.name, data={"message": message, "extension": extension.name}))
        if extension.required:
            raise ToolFailure(
                message,
                code="tool_unavailable",
                hint="The extension is marked required; fix or remove it.",
                details={"extension": extension.name},
            ) from problem

    def _extend(self, extension: Extension, tool: Tool) -> Tool:
        try:
            found = extension.extend(tool)
            if not isinstance(found, Tool) or found.name != tool.name:
                raise TypeError("extend must return a Tool of the same name")
        except Exception as problem:
            self._report_failure(extension, tool, problem)
            return tool
        return found

    def _run_hook(self, extension: Extension, hook: str, card: Tool | ToolInfo) -> None:
        if not self._applies(extension, card):
            return
        try:
            getattr(extension, hook)(card)
        except Exception as problem:  # who is only told cannot stop a tool from coming or going
            message = f"extension {extension.name} failed in {hook} of {card.name}: {problem!r}"
            self._emit(
                Event("extension_failed", tool=card.name, data={"message": message, "extension": extension.name})
            )

    def _applies(self, extension: Extension, tool: Tool | ToolInfo) -> bool:
        try:
            return extension.applies_to(tool)
        except Exception as problem:
            self._report_failure(extension, tool, problem)
            return False

    def _renew(self) -> None:
        self.active = bool(self._all)
        self._hooks.clear()
        self._extended.clear()
        self.changed()


class _Held:
    """What `around` is given to run the call: it runs once, however often it is awaited.

    The extension's own time is limited, before the call and after it; the call has a limit of its own.
    """

    __slots__ = ("_outcome", "_prepared", "_proceed", "_timeout_s", "limit", "problem")

    def __init__(self, prepared: Prepared, proceed: Proceed, limit: asyncio.Timeout, timeout_s: float) -> None:
        self._prepared = prepared
        self._proceed = proceed
        self.limit: asyncio.Timeout | None = limit
        self._timeout_s = timeout_s
        self._outcome: asyncio.Future[ToolResult] | None = None
        self.problem: BaseException | None = None

    async def __call__(self) -> ToolResult:
        if self._outcome is not None:
            return await asyncio.shield(self._outcome)
        loop = asyncio.get_running_loop()
        outcome = self._outcome = loop.create_future()
        self._limit_to(None)
        try:
            result = await self._proceed(self._prepared)
        except BaseException as problem:
            self.problem = problem
            if isinstance(problem, asyncio.CancelledError):
                outcome.cancel()
            else:
                outcome.set_exception(problem)
                outcome.exception()  # looked at, so that asyncio does not report it as forgotten
            raise
        finally:
            self._limit_to(loop.time() + self._timeout_s)
        outcome.set_result(result)
        return result

    def _limit_to(self, when: float | None) -> None:
        if self.limit is not None and not self.limit.expired():
            self.limit.reschedule(when)


def _overrides(extension: Extension, hook: str) -> bool:
    return getattr(type(extension), hook) is not getattr(Extension, hook) or hook in vars(extension)
