"""`Tool`, the frozen record that describes a tool, and `@tool`, the decorator that makes one of a function.

    @tool(read_only=True)
    def word_count(text: str) -> int:
        "Count the words of a text."
        return len(text.split())

A tool states facts (effects, flags, preconditions); it never asks, prints or decides. That is the engine's work.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeAlias,
    TypeVar,
    Unpack,
    cast,
    get_args,
    get_type_hints,
    overload,
)
from weakref import WeakKeyDictionary

from surehand.core.context import ToolContext
from surehand.core.effects import Effect
from surehand.core.frozen import field, frozen, names_of
from surehand.core.names import did_you_mean, full_name
from surehand.core.record import Record, with_pydantic_fields
from surehand.core.schema import (
    Arguments,
    ForeignArguments,
    FunctionArguments,
    ModelArguments,
    RecordArguments,
    Schema,
    plain_schema,
)

if TYPE_CHECKING:
    from typing import TypedDict

    from pydantic import BaseModel

    from surehand.core.call import ToolCall, ToolResult, Undo
    from surehand.core.session import Session
else:

    class TypedDict:
        """Stands in for `typing.TypedDict`, which would compile the type of every option at import: 2 ms."""

        def __init_subclass__(cls, *, total: bool = True) -> None: ...


P = ParamSpec("P")
R = TypeVar("R")

Flag: TypeAlias = bool | Callable[[Any, ToolContext], bool]
Handler: TypeAlias = Callable[[Any, ToolContext], Any]
Where: TypeAlias = Literal["loop", "thread", "process"]
Kind: TypeAlias = Literal["read", "edit", "delete", "search", "execute", "fetch", "think", "other"]
"""The kind of action, for display only (editors show it by an icon)."""
KINDS: Final[tuple[str, ...]] = get_args(Kind)
ShowPreview: TypeAlias = Literal["offered", "asked", "always"]


class DryRun(Protocol):
    """A call that ran on a copy of the workspace; its changes are then applied, without a second run, or discarded."""

    @property
    def id(self) -> str:
        """The id by which an answer refers to the dry run."""
        ...

    def apply(self) -> Coroutine[Any, Any, ToolResult]:
        """Apply the changes and return the result of the call; raise ToolFailure if the files changed since."""
        ...

    async def discard(self) -> None:
        """Delete the copy. Idempotent, and allowed after `apply`."""
        ...


@frozen
class Preview:
    """What a call would do, without doing it: a text for people, and a diff where files change."""

    text: str
    diff: str = ""
    data: Mapping[str, Any] = field(default_factory=dict[str, Any])
    dry_run: DryRun | None = None
    """The dry run behind this preview, if there is one; the caller of `preview` discards it."""


@frozen
class Permission:
    """A tool's own verdict on a call: `allow` defers to the policy, `ask` and `deny` narrow the policy's verdict.

    `args` replace the arguments of the call; they are validated and judged from the start.
    """

    verdict: Literal["allow", "ask", "deny"] = "allow"
    reason: str = ""
    show: str = ""
    """Text for the approver."""
    args: Mapping[str, Any] | None = None


@frozen
class Health:
    """The result of a tool's own health check."""

    healthy: bool = True
    message: str = ""
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])


@frozen(kw_only=True)
class ToolInfo:
    """The description of a tool as plain data, for models, people and other processes."""

    name: str
    description: str
    input_schema: Schema
    output_schema: Schema | None = None
    read_only: bool = False
    concurrency_safe: bool = False
    destructive: bool = False
    requires_permission: bool = False
    idempotent: bool = False
    aliases: tuple[str, ...] = ()
    search_hint: str = ""
    kind: Kind = "other"
    module: str = ""
    version: str = "1.0.0"
    requires: tuple[str, ...] = ()
    timeout_s: float | None = None
    examples: tuple[Mapping[str, Any], ...] = ()
    level: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        shown = {name: getattr(self, name) for name in names_of(self) if name not in ("input_schema", "output_schema")}
        for name in ("aliases", "requires", "examples"):
            shown[name] = list(shown[name])
        return shown | {"inputSchema": self.input_schema, "outputSchema": self.output_schema}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolInfo:
        """Build a ToolInfo from the output of `to_dict`."""
        known = names_of(cls)
        values = {key: value for key, value in data.items() if key in known}
        for name in ("aliases", "requires", "examples"):
            values[name] = tuple(values.get(name, ()))
        return cls(input_schema=data["inputSchema"], output_schema=data.get("outputSchema"), **values)


@frozen(kw_only=True, eq=False)
class Tool:
    """A tool: name, text, arguments, metadata, and a few functions.

    `args` is a pydantic model or raw JSON Schema. `run(args, ctx)` may be sync (runs in a worker thread), async, or
    an async generator that yields `Progress` and ends with the result. All other functions are optional and cheap:

    - `effects(args, ctx)` states what this call touches. Without it the call asks, unless it is read-only.
    - `check(args, ctx)` raises ToolFailure if a precondition fails; it runs before anyone is asked. A sync `check` may
      read files (it runs in a thread), an async one must not block.
    - `preview(args, ctx)` describes what would happen and changes nothing.
    - `undo(args, result)` returns the call that reverts what this one changed other than files; it is stored in the
      history and made by Undo.
    - `check_permission(args, ctx)` returns the tool's own verdict (`Permission`), which can narrow the policy's, never
      widen it.
    - `resources(args, ctx)` names what two calls must not use at the same time (`file:/a/b`, `server:x`).
    - `depends_on(args, ctx)` returns a value that changes when a cached result is stale.
    - `at_once(args, ctx)` spares a sync handler the worker thread: it returns the result if it takes no waiting and
      well under a millisecond, and None if `run` is to do it.
    - `check_at_once(args, ctx)` does the same for a sync `check` and `preview`: True if they need not wait.
    """

    # What it is.
    name: str
    description: str | Callable[[Session], str]
    args: type[BaseModel] | type[Record] | Schema | Arguments
    output_schema: Schema | None = None
    examples: tuple[Mapping[str, Any], ...] = ()
    aliases: tuple[str, ...] = ()
    search_hint: str = ""
    kind: Kind = "other"
    module: str = ""
    version: str = "1.0.0"
    requires: tuple[str, ...] = ()
    enabled: bool | Callable[[Session], bool] = True
    origin: str | None = None

    # What a call does: facts for the policy, the scheduler and the cache.
    read_only: Flag = False
    concurrency_safe: Flag = False
    destructive: bool = False
    requires_permission: bool | None = None
    idempotent: bool = False
    pure: bool = False
    """Whether the arguments alone determine the result, which is then cached. A pure tool is read-only."""
    reversible: bool = False
    effects: Callable[[Any, ToolContext], Sequence[Effect] | None] | None = None
    resources: Callable[[Any, ToolContext], Iterable[str]] | None = None
    facts_block: bool = False
    """Whether `effects`, `read_only` and `concurrency_safe` start a process or read a disk. They then run in a thread,
    and share their work by `ctx.once`."""
    depends_on: Callable[[Any, ToolContext], object] | None = None

    # Before and after a call.
    check: Callable[[Any, ToolContext], Awaitable[None] | None] | None = None
    check_at_once: Callable[[Any, ToolContext], bool] | None = None
    check_permission: Callable[[Any, ToolContext], Permission | None] | None = None
    preview: Callable[[Any, ToolContext], Preview | Awaitable[Preview]] | None = None
    show_preview: ShowPreview | Callable[[Any, ToolContext], ShowPreview] = "asked"
    """When a preview is shown: `asked`, with every question; `offered`, on request, since it may take long; `always`,
    with a dry run and a question even if a rule allows the call."""
    undo: Callable[[Any, ToolResult], ToolCall | Undo | None] | None = None

    # How it runs.
    run: Handler
    at_once: Callable[[Any, ToolContext], ToolResult | None] | None = None
    where: Where | None = None
    timeout_s: float | Callable[[Any], float | None] | None = None
    grace_s: float = 2.0
    """Seconds a cancelled handler may take to clean up before it is abandoned."""
    cancel_safe: bool = False
    """Whether `run` calls `ctx.check_wanted()` before each change, so that a call given up changes nothing later."""

    # Its life.
    initialize: Callable[[Session], Awaitable[None]] | None = None
    health_check: Callable[[], Awaitable[Health]] | None = None
    close: Callable[[], Awaitable[None]] | None = None

    arguments: Arguments = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "arguments", _arguments(self.args))
        for name in ("aliases", "requires", "examples"):
            if not isinstance(value := getattr(self, name), tuple):
                if isinstance(value, str | Mapping):  # tuple() would split it into letters or keys
                    raise TypeError(f"{name} of tool {self.name!r} must be a list; write {name}=[{value!r}]")
                object.__setattr__(self, name, tuple(cast("list[Any]", value)))

    @property
    def full_name(self) -> str:
        """`mcp__{module}__{tool}` for a tool of a module, otherwise the name itself."""
        return full_name(self.module, self.name) if self.module and not self.name.startswith("mcp__") else self.name

    @property
    def level(self) -> int:
        """Capability level. 0: not reversible; 1: reversible; 2: reversible, and has a dry run."""
        return 0 if not self.reversible and self.undo is None else 2 if self.preview else 1

    @property
    def promise(self) -> Schema | None:
        """The schema of the result's `data`, if it is known."""
        return self.output_schema

    @property
    def needs_permission(self) -> bool:
        """Whether a call asks if no rule decides."""
        if self.requires_permission is not None:
            return self.requires_permission
        return self.read_only is not True

    def text(self, session: Session | None = None) -> str:
        """Return the description, which may depend on the session."""
        if isinstance(self.description, str):
            return self.description
        if session is None:
            raise ValueError(f"the description of {self.name} depends on a session; pass one")
        return self.description(session)

    def info(self, session: Session | None = None) -> ToolInfo:
        """Return the plain description. Flags that depend on the arguments count as false."""
        dynamic = not isinstance(self.description, str) and session is None
        return ToolInfo(
            name=self.name,
            description="" if dynamic else self.text(session),
            input_schema=self.arguments.schema(),
            output_schema=self.promise,
            read_only=self.read_only is True,
            concurrency_safe=self.concurrency_safe is True,
            destructive=self.destructive,
            requires_permission=self.needs_permission,
            idempotent=self.idempotent,
            aliases=self.aliases,
            search_hint=self.search_hint,
            kind=self.kind,
            module=self.module,
            version=self.version,
            requires=self.requires,
            timeout_s=self.timeout_s if isinstance(self.timeout_s, int | float) else None,
            examples=self.examples,
            level=self.level,
        )


def _arguments(args: object) -> Arguments:
    if isinstance(args, type) and issubclass(args, Record):
        return RecordArguments(args)
    if isinstance(args, type) and hasattr(args, "model_fields"):
        return ModelArguments(cast("type[BaseModel]", args))
    if isinstance(args, Mapping):
        return ForeignArguments(cast("Mapping[str, Any]", args))
    if hasattr(args, "parse") and hasattr(args, "schema"):
        return cast("Arguments", args)
    raise TypeError(f"args must be a pydantic model or a JSON Schema object, not {args!r}")


@frozen(kw_only=True, eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made by `@tool`; it can still be called as the function it was."""

    function: Callable[P, R]

    @property
    def promise(self) -> Schema | None:
        """The schema that was given, or that of the function's return type; worked out when it is asked for."""
        if self.output_schema is not None:
            return self.output_schema or None
        names = self.arguments.names if isinstance(self.arguments, FunctionArguments) else None
        return _return_schema(self.function, names)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.function(*args, **kwargs)


class ToolOptions(TypedDict, total=False):
    """The options of `@tool`: the fields of `Tool` that the function does not provide."""

    name: str
    description: str
    output_schema: Schema | None
    read_only: Flag
    concurrency_safe: Flag | None
    destructive: bool
    requires_permission: bool | None
    idempotent: bool
    pure: bool
    enabled: bool | Callable[[Session], bool]
    aliases: Sequence[str]
    search_hint: str
    kind: Kind
    module: str
    version: str
    requires: Sequence[str]
    timeout_s: float | Callable[[Any], float | None] | None
    grace_s: float
    examples: Sequence[Mapping[str, Any]]
    reversible: bool
    show_preview: ShowPreview | Callable[[Any, ToolContext], ShowPreview]
    cancel_safe: bool
    facts_block: bool
    where: Where | None
    origin: str | None
    effects: Callable[[Any, ToolContext], Sequence[Effect] | None] | None
    check: Callable[[Any, ToolContext], Awaitable[None] | None] | None
    check_at_once: Callable[[Any, ToolContext], bool] | None
    preview: Callable[[Any, ToolContext], Preview | Awaitable[Preview]] | None
    undo: Callable[[Any, ToolResult], ToolCall | Undo | None] | None
    check_permission: Callable[[Any, ToolContext], Permission | None] | None
    resources: Callable[[Any, ToolContext], Iterable[str]] | None
    depends_on: Callable[[Any, ToolContext], object] | None
    at_once: Callable[[Any, ToolContext], ToolResult | None] | None
    initialize: Callable[[Session], Awaitable[None]] | None
    health_check: Callable[[], Awaitable[Health]] | None
    close: Callable[[], Awaitable[None]] | None


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(**options: Unpack[ToolOptions]) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function, bare or with options.

    The schema comes from the signature and the docstring (`Annotated[..., Field(...)]` is honoured). A parameter
    annotated `ToolContext` is injected and hidden. A read-only tool is taken to be concurrency-safe unless it says
    otherwise. `where="process"` runs it in a process, which can be killed at its deadline.
    """
    names = sys._getframe(1).f_locals  # pyright: ignore[reportPrivateUsage]  # the names in scope where the function is defined
    if function is None:

        def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
            return _function_tool(function, options, names)

        return decorate
    return _function_tool(function, options, names)


_OPTIONS: Final = frozenset(ToolOptions.__annotations__)


def _function_tool(
    function: Callable[..., Any], options: dict[str, Any], names: Mapping[str, Any]
) -> FunctionTool[..., Any]:
    if not callable(function):
        raise TypeError(f"@tool goes on a function, not on {function!r}")
    if unknown := [name for name in options if name not in _OPTIONS]:
        said = ", ".join(f"{name!r}{did_you_mean(name, _OPTIONS)}" for name in unknown)
        raise TypeError(f"@tool has no option {said}")
    import inspect

    from surehand.core.docstrings import docstring_text  # lazy: docstrings, 3 ms

    nested = "<locals>" in getattr(function, "__qualname__", "")
    arguments = FunctionArguments(function, ToolContext, dict(names) if nested else None)
    values = dict(options)
    values.setdefault("name", function.__name__)
    values["description"] = values.get("description") or docstring_text(inspect.getdoc(function) or "")
    if values.get("pure"):
        values.setdefault("read_only", True)
    if values.get("concurrency_safe") is None:
        values["concurrency_safe"] = values.get("read_only", False)
    return FunctionTool(args=arguments, run=_runner(function, arguments), function=function, **values)


def _runner(function: Callable[..., Any], arguments: FunctionArguments) -> Handler:
    """Return the handler that calls `function` with its own parameters, of the same kind (sync, async, generator)."""
    import inspect

    def keywords(args: Any, ctx: ToolContext) -> dict[str, Any]:
        values = arguments.keywords(args)
        if arguments.context_parameter:
            values[arguments.context_parameter] = ctx
        return values

    if inspect.isasyncgenfunction(function):

        async def generate(args: Any, ctx: ToolContext) -> AsyncIterator[Any]:
            async for each in function(**keywords(args, ctx)):
                yield each

        return generate
    if inspect.iscoroutinefunction(function):

        async def run(args: Any, ctx: ToolContext) -> Any:
            return await function(**keywords(args, ctx))

        return run

    def call(args: Any, ctx: ToolContext) -> Any:
        return function(**keywords(args, ctx))

    return call


_RETURNED: Final[WeakKeyDictionary[Callable[..., Any], Schema | None]] = WeakKeyDictionary()
_NO_DATA: Final = frozenset({"ToolResult", "Text", "Image", "Foreign"})
"""Return types that describe what the model sees, not `data`."""


def _return_schema(function: Callable[..., Any], names: Mapping[str, Any] | None = None) -> Schema | None:
    """Return the JSON Schema of a function's return type; None if its annotation describes no data."""
    if function not in _RETURNED:
        _RETURNED[function] = _read_return_schema(function, names)
    return _RETURNED[function]


def _read_return_schema(function: Callable[..., Any], names: Mapping[str, Any] | None) -> Schema | None:
    import inspect

    if inspect.isasyncgenfunction(function):
        return None
    try:
        hint = get_type_hints(function, localns=dict(names) if names else None, include_extras=True).get("return")
    except Exception:  # an annotation that cannot be resolved is reported when the tool is validated
        return None
    if hint in (None, Any, type(None), object) or getattr(hint, "__name__", "") in _NO_DATA:
        return None
    if any(getattr(each, "__name__", "") in _NO_DATA for each in get_args(hint)):
        return None
    from pydantic import TypeAdapter

    try:
        return cast("Schema", plain_schema(TypeAdapter(with_pydantic_fields(hint)).json_schema(mode="serialization")))
    except Exception:  # pydantic raises many kinds of errors for types without a schema
        return None
