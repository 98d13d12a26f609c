"""The settings tree with its defaults. `surehand.config` overlays files, environment and flags.

At the end: what is wrong with settings, in words (which key, which value, and what may stand there).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, Self, Union, cast, get_args, get_origin

from surehand.core.errors import SettingsError
from surehand.core.frozen import frozen
from surehand.core.names import did_you_mean
from surehand.core.record import Field, Record
from surehand.core.schema import path_text, truncate_text

Mode = Literal["default", "accept-edits", "plan", "bypass"]
MODES: Final[tuple[Mode, ...]] = ("default", "accept-edits", "plan", "bypass")
DEFAULT_TIMEOUT_S: Final = 30.0


class Table(Record):
    """One table of settings. Invalid keys and values raise a `SettingsError` that names them and what is allowed."""

    def __init__(self, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValueError as error:
            raise explain_error(type(self), error) from None

    @classmethod
    def parse(cls, raw: Mapping[str, Any], *, strict: bool = False) -> Self:
        """Build the settings from plain data."""
        try:
            return super().parse(raw, strict=strict)
        except ValueError as error:
            raise explain_error(cls, error) from None


class ConcurrencySettings(Table):
    """How many calls of one tool may run and wait."""

    is_concurrency_safe: bool | None = Field(default=None, description="Override what the tool says of itself.")
    max_concurrent_calls: int | None = Field(
        ge=1, le=1000, default=None, description="Calls that run at once; 10, and tuning may move it, when not set."
    )
    queue_size: int = Field(ge=0, le=1_000_000, default=1000, description="Calls that may wait.")


class ToolPermissionSettings(Table):
    """What one tool may access, in addition to the rules."""

    allowed_paths: tuple[str, ...] = Field(default=(), description="When set, the only paths this tool may touch.")
    forbidden_paths: tuple[str, ...] = Field(default=(), description="Paths this tool may never touch.")
    required_capabilities: tuple[Literal["dry_run", "undo"], ...] = Field(
        default=(), description="What the tool must be able to do, or its calls are refused."
    )
    security_level: int = Field(ge=0, le=2, default=0, description="The least level (0 to 2) the tool must have.")


class MonitoringSettings(Table):
    """Which metrics and logs of one tool are kept."""

    enable_metrics: bool = True
    enable_tracing: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class ToolSettings(Table):
    """Settings of one tool, `[tools.NAME]`."""

    enabled: bool = True
    priority: int = Field(default=0, description="Higher runs first among calls that wait.")
    timeout: float | None = Field(gt=0, default=None, description="Seconds; the tool's own when not set.")
    retry_attempts: int = Field(ge=0, le=10, default=0, description="Only for read-only or idempotent calls.")
    concurrency: ConcurrencySettings = Field(default_factory=ConcurrencySettings)
    permissions: ToolPermissionSettings = Field(default_factory=ToolPermissionSettings)
    monitoring: MonitoringSettings = Field(default_factory=MonitoringSettings)
    custom: dict[str, Any] = Field(default_factory=dict, description="Settings the tool itself reads.")


class RuleSettings(Table):
    """One rule with its reason and examples, `[[permissions.rules]]`: exactly one of allow, ask, deny."""

    allow: str | tuple[str, ...] = ()
    ask: str | tuple[str, ...] = ()
    deny: str | tuple[str, ...] = ()
    reason: str = Field(default="", description="Shown whenever the rule decides.")
    match: tuple[str, ...] = Field(default=(), description="Examples the rule must match; checked at load.")
    not_match: tuple[str, ...] = Field(default=(), description="Examples the rule must not match; checked at load.")
    after_untrusted: bool = Field(
        default=False, description="Count only once text from the web, a remote tool or outside has entered."
    )


class PermissionSettings(Table):
    """Permission rules and mode."""

    mode: Mode = Field(default="default", description="default, accept-edits, plan or bypass.")
    confirm_bypass: bool = Field(
        default=False,
        description="Say yes to mode bypass, which runs everything without asking; it needs the sandbox too.",
    )
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    rules: tuple[RuleSettings, ...] = Field(default=(), description="Rules with a reason and examples.")
    approvals: Literal["terminal", "mailbox"] = Field(
        default="terminal",
        description="Who answers: the terminal, or `surehand approvals` from any other process as well.",
    )
    approval_timeout: float = Field(gt=0, default=300.0, description="Seconds an approval may stay open.")


class EngineSettings(Table):
    """How calls run."""

    timeout: float | None = Field(
        gt=0,
        default=None,
        description="Seconds, for tools that do not say; 30, and tuning may move it, when not set.",
    )
    max_parallel: int = Field(ge=1, le=1000, default=10, description="Calls of one batch at once.")
    output_limit: int = Field(ge=1000, default=400_000, description="Characters of output a model may get.")
    cache: bool | None = Field(
        default=None,
        description="Reuse results of read-only calls within a session. When not set: in conversations, and where "
        "tuning advises it.",
    )
    tuning: bool = Field(default=False, description="Let limits adapt to what is measured.")
    repeat_limit: int = Field(
        ge=0, default=5, description="Identical failing calls in a row before they are stopped; 0 never stops."
    )
    trip_after: int = Field(
        ge=0, default=5, description="Exceptions and timeouts in a row that disable a tool; 0 never disables."
    )
    health_interval: float | None = Field(
        gt=0, default=None, description="Seconds between health checks of all tools; none when not set."
    )

    @property
    def timeout_s(self) -> float:
        """Timeout (s) of tools that set none themselves."""
        return DEFAULT_TIMEOUT_S if self.timeout is None else self.timeout


class SandboxSettings(Table):
    """How commands are contained."""

    mode: Literal["required", "preferred", "off"] = "preferred"
    network: bool = Field(default=False, description="Let sandboxed commands use the network.")
    writable: tuple[str, ...] = Field(default=(), description="Folders outside the workspace that commands may write.")
    readable: tuple[str, ...] = Field(
        default=(), description="Folders and files outside the workspace that commands may read, toolchains apart."
    )
    project_hooks: bool = Field(default=True, description="Run the hooks of a project's own file in the sandbox.")
    project_servers: bool = Field(
        default=True, description="Run MCP servers of a project in a sandbox, with network and a cache of their own."
    )
    process_tools: bool = Field(default=True, description='Run tools marked `where="process"` in the sandbox.')
    memory_mb: int = Field(default=4096, ge=64)
    processes: int = Field(default=512, ge=16)
    file_size_mb: int = Field(default=2048, ge=1)


class HistorySettings(Table):
    """How much history is kept."""

    limit_mb: int = Field(ge=1, default=1024, description="Oldest changes are dropped above this size.")
    command_mb: int = Field(
        ge=1, default=1024, description="How much of what one command overwrites is copied for undo; links are free."
    )
    session_mb: int = Field(
        ge=1, default=256, description="The older half of a session's journal is dropped above this size."
    )


class FileSettings(Table):
    """How files are changed."""

    merge: Literal["off", "agents", "on"] = Field(
        default="agents",
        description="Merge an edit with what others changed in other lines since the file was read: never, "
        "in sub-agents, or always. Where both touch the same lines, the edit is refused with the difference.",
    )


class WebSettings(Table):
    """What the web tools may reach."""

    allowed_hosts: tuple[str, ...] = Field(default=(), description="Hosts or addresses allowed though not public.")
    proxy: str | None = None
    search_backend: Literal["searxng", "brave", "google", "keyless"] | None = None
    searxng_url: str | None = None
    google_engine: str | None = None

    @property
    def opened_hosts(self) -> tuple[str, ...]:
        """Hosts that may be reached though not public: those allowed, and the user's own SearXNG."""
        if not self.searxng_url:
            return self.allowed_hosts
        from urllib.parse import urlsplit

        own = urlsplit(self.searxng_url).hostname
        return (*self.allowed_hosts, own) if own else self.allowed_hosts


class ToolsetSettings(Table):
    """Which tools a model session sees."""

    tool_allow: tuple[str, ...] = Field(default=(), description="Names, aliases or globs; empty means all.")
    keep_tasks: bool = Field(default=False, description="Keep the task list on disk for later sessions.")
    deferred_threshold: int = Field(ge=0, default=15, description="Above it only the core is shown.")


class LogSettings(Table):
    """The English log on stderr."""

    level: Literal["debug", "info", "warning", "error", "off"] = "warning"
    json_lines: bool = False


ProviderName = Literal[
    "anthropic",
    "openai",
    "gemini",
    "mistral",
    "deepseek",
    "xai",
    "openrouter",
    "ollama",
    "azure",
    "bedrock",
    "vertex",
    "local",
    "offline",
]
"""The rows of `providers.table`."""
Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh"]


class ModelSettings(Table):
    """Which model `ask` uses."""

    provider: ProviderName | None = None
    name: str | None = None
    base_url: str | None = None
    path: str | None = Field(default=None, description="A GGUF file, for the local provider.")
    context_tokens: int | None = Field(default=None, ge=1000, description="How much the model can hold.")
    api: Literal["chat", "responses"] = Field(default="chat", description="Which of OpenAI's protocols is spoken.")
    effort: Effort | None = Field(default=None, description="How much the model thinks before it answers.")
    thinking_tokens: int | None = Field(
        default=None, ge=1024, description="The budget of thinking, where one is taken."
    )
    max_turns: int = Field(default=50, ge=1)
    max_tokens: int = Field(default=8192, ge=1)
    max_seconds: float | None = Field(default=None, gt=0)
    max_total_tokens: int | None = Field(default=None, ge=1)
    max_cost: float | None = Field(default=None, gt=0, description="Needs the two prices below.")
    input_price: float | None = Field(default=None, ge=0, description="Price per million tokens, in your currency.")
    output_price: float | None = Field(default=None, ge=0, description="Per million tokens.")


class AgentSettings(Table):
    """Limits of sub-agents."""

    max_depth: int = Field(default=3, ge=0)
    max_running: int = Field(default=50, ge=1)


class McpServerSettings(Table):
    """One MCP server: a command (stdio) or a URL (streamable HTTP)."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    client_id: str | None = Field(default=None, description="How this program is registered for logging in (OAuth).")
    client_secret: str | None = None
    client_metadata_url: str | None = Field(default=None, description="Where this program describes itself, by https.")
    timeout: float = Field(default=60.0, gt=0)
    sandbox: bool = False
    enabled: bool = True
    project: bool = Field(default=False, description="Whether a project's own file sets it; said by Surehand.")


class ServeSettings(Table):
    """Who may use `serve --http` with OAuth tokens; nobody if no issuer is set."""

    issuers: tuple[str, ...] = Field(default=(), description="Authorization servers whose access tokens are taken.")
    resource: str | None = Field(
        default=None, description="The address by which clients reach this server; tokens must be for it."
    )
    audience: tuple[str, ...] = Field(
        default=(), description="Whom tokens must be for instead, where an issuer has its own names for servers."
    )
    scopes: tuple[str, ...] = Field(default=(), description="Scopes a token must have, all of them.")


class HookSettings(Table):
    """A command run before or after calls; one table `[[hooks]]` each."""

    event: Literal["before", "after"]
    command: str = Field(min_length=1)
    tools: tuple[str, ...] = Field(default=("*",), description="Names, aliases or globs.")
    timeout: float = Field(gt=0, le=600, default=10.0, description="Seconds.")
    required: bool = Field(default=False, description="Fail the call when the hook fails.")
    project: bool = Field(default=False, description="Whether a project's own file sets it; said by Surehand.")


class Settings(Table):
    """All settings."""

    permissions: PermissionSettings = Field(default_factory=PermissionSettings)
    engine: EngineSettings = Field(default_factory=EngineSettings)
    sandbox: SandboxSettings = Field(default_factory=SandboxSettings)
    history: HistorySettings = Field(default_factory=HistorySettings)
    files: FileSettings = Field(default_factory=FileSettings)
    web: WebSettings = Field(default_factory=WebSettings)
    toolset: ToolsetSettings = Field(default_factory=ToolsetSettings)
    log: LogSettings = Field(default_factory=LogSettings)
    model: ModelSettings = Field(default_factory=ModelSettings)
    agents: AgentSettings = Field(default_factory=AgentSettings)
    tools: dict[str, ToolSettings] = Field(default_factory=dict)
    hooks: tuple[HookSettings, ...] = ()
    extensions: dict[str, dict[str, Any]] = Field(
        default_factory=dict, description="What each extension reads, by its name."
    )
    mcp_servers: dict[str, McpServerSettings] = Field(default_factory=dict)
    serve: ServeSettings = Field(default_factory=ServeSettings)


Path = tuple[str | int, ...]

_PRIVATE: Final = ("env", "headers", "client_secret")
"""Settings whose values may be secrets, so that error messages do not quote them."""


@frozen
class SettingsFault:
    """One invalid key or value: its path in the tree, and the complete message."""

    path: Path
    message: str


class WrongSettings(SettingsError, ValueError):
    """Invalid settings; `faults` lists every fault with its path."""

    def __init__(self, faults: list[SettingsFault]) -> None:
        self.faults = faults
        super().__init__("\n".join(fault.message for fault in faults))


def explain_error(record: type[Record], error: ValueError) -> Exception:
    """Convert pydantic's ValidationError to WrongSettings; return any other error unchanged."""
    complaints: Any = getattr(error, "errors", None)
    if complaints is None:
        return error
    found = [_fault(record, each) for each in complaints(include_url=False, include_context=False)]
    # Each branch of a union reports its own error; one message per path is enough.
    return WrongSettings(list({fault.path: fault for fault in found}.values()))


def known_keys(record: type[Record], above: str = "") -> list[str]:
    """Return all keys below a record, with dots."""
    found: list[str] = []
    for name in record.fields():
        found.append(f"{above}{name}")
        hint = record.hint(name)
        if _is_record(hint):
            found += known_keys(hint, f"{above}{name}.")
    return found


def is_text(record: type[Record], path: tuple[str, ...]) -> bool:
    """Whether a setting accepts a string."""
    place = _find_declaration(record, path)
    hint = _without_none(place.hint)
    return place.path == path and (hint is str or (get_origin(hint) in (Union, UnionType) and str in get_args(hint)))


@frozen
class _Declared:
    """The declaration of the field an error is about; `owner` is the record it belongs to."""

    path: Path
    hint: Any
    options: Mapping[str, Any]
    owner: type[Record] | None
    known: bool = True


def _fault(record: type[Record], complaint: Mapping[str, Any]) -> SettingsFault:
    place = _find_declaration(record, tuple(complaint["loc"]))
    name = path_text(map(_shown_key, place.path)) or "settings"
    if place.owner is None and not place.known:
        message = f"{name} is wrong: a key must be a text"
    elif not place.known:
        message = f"there is no setting {name}{_nearest(record, place)}"
    elif complaint["type"] == "missing":
        message = f"{name} is missing: it must be {_describe_allowed(place.hint, place.options)}"
    else:
        value = "" if set(place.path) & set(_PRIVATE) else f" = {_format_value(complaint['input'])}"
        message = f"{name}{value} is wrong: it must be {_describe_allowed(place.hint, place.options)}"
    return SettingsFault(place.path, message)


def _find_declaration(record: type[Record], location: Path) -> _Declared:
    """Follow an error's location through the declaration as far as it matches (pydantic adds branches of unions)."""
    if location[-1:] == ("[key]",):  # a key that is no string
        return _Declared(location[:-1], None, {}, None, known=False)
    hint, options, owner, path = cast("Any", record), cast("Mapping[str, Any]", {}), None, ()
    for part in location:
        hint = _without_none(hint)
        inside = get_args(hint)
        if _is_record(hint):
            owner = cast("type[Record]", hint)
            if part not in owner.fields():
                return _Declared((*path, part), None, {}, owner, known=False)
            hint, options = owner.hint(str(part)), owner.fields()[str(part)].options
        elif get_origin(hint) in (tuple, dict):
            hint, options, owner = (inside[0] if get_origin(hint) is tuple else inside[1]), {}, None
        else:
            break
        path = (*path, part)
    return _Declared(path, hint, options, owner)


def _nearest(record: type[Record], place: _Declared) -> str:
    """Suggest valid names: the nearest in this table, the same word in others, or all of this table."""
    owner, word, above = place.owner or record, str(place.path[-1]), path_text(map(_shown_key, place.path[:-1]))
    beside = did_you_mean(word, owner.fields()).replace("'", f"'{above}." if above else "'", 1)
    every = known_keys(record)
    same = " or ".join(repr(key) for key in every if key.endswith(f".{word}"))
    elsewhere = f" (did you mean {same}?)" if same else ""
    # At the top, a key that lost its table is likelier than a misspelt table.
    near = beside or elsewhere if above else elsewhere or beside or did_you_mean(word, every)
    return near or f"; {above or 'the tree'} has {', '.join(owner.fields())}"


# -- what may stand there ---------------------------------------------------------------------------------------------

_PLAIN: Final[Mapping[Any, str]] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}
_BOUNDS: Final[Mapping[str, str]] = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}


def _describe_allowed(hint: Any, options: Mapping[str, Any]) -> str:
    hint = _without_none(hint)
    kind, inside = get_origin(hint), get_args(hint)
    if kind is Literal:
        return "one of " + ", ".join(map(repr, inside))
    if kind in (Union, UnionType):
        return " or ".join(_describe_allowed(each, {}) for each in inside)
    if kind is tuple:
        return (
            'a list of texts, such as ["..."]'
            if inside[0] is str
            else f"a list, each of it {_describe_allowed(inside[0], {})}"
        )
    if _is_record(hint):
        return f"a table with {', '.join(cast('type[Record]', hint).fields())}"
    if kind is dict:
        return "a table of texts" if inside[1] is str else "a table"
    return _PLAIN.get(hint, "another value") + _bounds(options)


def _bounds(options: Mapping[str, Any]) -> str:
    if options.get("min_length"):
        return " that is not empty"
    if options.keys() >= {"ge", "le"}:
        return f" from {options['ge']} to {options['le']}"
    said = [f"{word} {options[bound]}" for bound, word in _BOUNDS.items() if bound in options]
    return f", {' and '.join(said)}" if said else ""


def _without_none(hint: Any) -> Any:
    """Drop None from an optional type: omitting the key means the same."""
    if get_origin(hint) not in (Union, UnionType):
        return hint
    inside = [each for each in get_args(hint) if each is not NoneType]
    return inside[0] if len(inside) == 1 else hint


def _is_record(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Record)


# -- the value found -------------------------------------------------------------------------------------------------


def _format_value(value: Any) -> str:
    """Format a value as in a settings file; tables and lists only by their kind."""
    if isinstance(value, Mapping):
        return "{...}"
    if isinstance(value, list | tuple | set | frozenset):
        return "[...]"
    return truncate_text(json.dumps(value, ensure_ascii=True, default=str), 80)


def _shown_key(part: str | int) -> str | int:
    """Format a key for a message, quoted and escaped if it has unusual characters: it could control a terminal."""
    return part if isinstance(part, int) or re.fullmatch(r"[\w.:/-]+", part) else json.dumps(part)
