"""Extensions: named, versioned, ordered hooks on the registration of tools and on calls; they may change both.

An extension overrides what it needs. `before` runs ahead of validation and judgement, so that arguments it changed are
checked like any others. `around` wraps a permitted call. `after` may replace the result. An extension that raises or
hangs is reported and skipped; if it is `required`, the call fails. Calls made by an extension do not pass through it
again.
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
    """The registered tools (`registry.registry.Registry`)."""

    def __iter__(self) -> Iterator[str]: ...
    def card(self, name: str) -> Tool | ToolInfo | None:
        """Return a tool, or its info if it is not imported yet."""
        ...


class Extension:
    """Base class of extensions; hooks that are not overridden cost nothing."""

    name: str = ""
    version: str = "1.0.0"
    description: str = ""
    priority: int = 0
    """Extensions with a higher priority see calls earlier and results later."""
    required: bool = False
    """Whether a call fails if this extension does."""
    tools: tuple[str, ...] = ("*",)
    """Names, aliases or globs of the tools that the extension applies to."""
    timeout_s: float = HOOK_TIMEOUT_S

    def applies_to(self, tool: Tool | ToolInfo) -> bool:
        """Whether this extension applies to a tool; by `tools` unless overridden."""
        return any(fnmatchcase(name, glob) for glob in self.tools for name in (tool.name, *tool.aliases))

    def configure(self, config: Mapping[str, Any]) -> None:
        """Apply the settings of this extension; raise ValueError if they are invalid."""

    def extend(self, tool: Tool) -> Tool:
        """Return a changed tool to use instead, or the same one."""
        return tool

    def on_register(self, tool: Tool | ToolInfo) -> None:
        """Called when a tool is registered."""

    def on_unregister(self, tool: Tool | ToolInfo) -> None:
        """Called when a tool is unregistered."""

    async def before(self, tool: Tool, call: ToolCall) -> Mapping[str, Any] | None:
        """Called before a call is checked: return changed arguments, or raise ToolFailure to veto the call."""

    async def around(self, tool: Tool, call: ToolCall, proceed: Callable[[], Awaitable[ToolResult]]) -> ToolResult:
        """Wrap a call that is about to run: `await proceed()` runs it, once."""
        return await proceed()

    async def after(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult | None:
        """Called after a call: return another result to replace it."""


@frozen
class _Hooks:
    """The extensions of one tool, outermost first, by the hook they override."""

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
        """Whether there are any extensions; if not, calls skip this class."""
        self.changed: Callable[[], None] = lambda: None
        """Called when the extensions change, so that composed pipelines must be rebuilt."""
        self._unsubscribe: Callable[[], None] = lambda: None

    # Registration ----------------------------------------------------------------------------------------------------

    def register(self, extension: Extension, config: Mapping[str, Any] | None = None) -> None:
        """Add an extension with a new name. `on_register` is also called for tools registered before."""
        if not extension.name:
            raise SurehandError(f"an extension needs a name ({type(extension).__name__} has none)")
        if any(each.name == extension.name for each in self._all):
            raise SurehandError(f"an extension named {extension.name!r} is already registered")
        try:
            extension.configure(config or {})
        except ValueError as problem:
            raise SurehandError(f"extension {extension.name}: {problem}") from problem
        if not self._all:
            self._follow_registry()
        self._all.append(extension)
        self._all.sort(key=lambda each: -each.priority)
        self._renew()
        data = {"name": extension.name, "version": extension.version, "description": extension.description}
        self._emit(Event("extension_registered", data=data))
        for card in list(self._cards.values()):
            self._run_hook(extension, "on_register", card)

    def unregister(self, name: str) -> None:
        """Remove an extension; calls in progress finish with it."""
        remaining = [each for each in self._all if each.name != name]
        if len(remaining) == len(self._all):
            raise SurehandError(f"there is no extension named {name!r}")
        self._all = remaining
        self._renew()

    def order(self, tool: Tool | ToolInfo | None = None) -> list[Extension]:
        """Return the extensions (of one tool), outermost first."""
        return [each for each in self._all if tool is None or self._applies(each, tool)]

    # During a call ---------------------------------------------------------------------------------------------------

    def extend_tool(self, tool: Tool) -> Tool:
        """Return the tool as changed by its extensions; cached."""
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
        """Call the `before` hooks, which may change a call's arguments or veto it."""
        for extension in self._hooks_of(tool).before:
            changed = await self._call_hook(extension, tool, extension.before, tool, call)
            if changed is not None:
                call = replace_values(call, args=dict(changed))
        return call

    async def end(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult:
        """Call the `after` hooks, innermost first, which may replace the result."""
        for extension in reversed(self._hooks_of(tool).after):
            changed = await self._call_hook(extension, tool, extension.after, tool, call, result)
            result = result if changed is None else changed
        return result

    def layers(self, tool: Tool) -> list[Middleware]:
        """Return the middleware of the `around` hooks of a tool, outermost first."""
        return [self._layer(extension) for extension in self._hooks_of(tool).around]

    # Internals -------------------------------------------------------------------------------------------------------

    def _follow_registry(self) -> None:
        """Collect the registered tools and listen for changes; done for the first extension."""
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
            held = _Proceed(prepared, proceed, limit, extension.timeout_s)
            try:
                async with limit:
                    result = await extension.around(prepared.tool, prepared.call, held)
            except Exception as problem:
                # The call itself failed, or the hook vetoed it.
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
        """Call a hook under its time limit, unless the call was made by that extension."""
        if extension.name in _inside.get():
            return None
        token = _inside.set(_inside.get() | {extension.name})
        try:
            async with asyncio.timeout(extension.timeout_s):
                return await hook(*told)
        except ToolFailure:  # a veto
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
        except Exception as problem:  # these hooks cannot prevent the registration
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


class _Proceed:
    """The `proceed` of an `around` hook: runs the call once, however often it is awaited.

    The time limit of the hook does not include the call, which has a deadline of its own.
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
                outcome.exception()  # or asyncio logs that it was never retrieved
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
