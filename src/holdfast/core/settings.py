"""The one settings tree. Defaults here; files, environment and flags are laid over it by `holdfast.config`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Mode = Literal["default", "accept-edits", "plan", "bypass"]


class Group(BaseModel):
    """Base of every part of the tree: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class ConcurrencySettings(Group):
    """How many calls of one tool may run and wait."""

    is_concurrency_safe: bool | None = Field(default=None, description="Override what the tool says of itself.")
    max_concurrent_calls: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=10, description="Calls that run at once."
    )
    queue_size: Annotated[int, Field(ge=0, le=1_000_000)] = Field(default=1000, description="Calls that may wait.")


class ToolPermissionSettings(Group):
    """What one tool may touch, on top of the rules."""

    allowed_paths: tuple[str, ...] = Field(default=(), description="When set, the only paths this tool may touch.")
    forbidden_paths: tuple[str, ...] = Field(default=(), description="Paths this tool may never touch.")
    required_capabilities: tuple[Literal["dry_run", "undo"], ...] = Field(
        default=(), description="What the tool must be able to do, or its calls are refused."
    )
    security_level: Annotated[int, Field(ge=0, le=2)] = Field(
        default=0, description="The least level (0 to 2) the tool must have."
    )


class MonitoringSettings(Group):
    """What is measured and logged of one tool."""

    enable_metrics: bool = True
    enable_tracing: bool = True
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class ToolSettings(Group):
    """Settings of one tool, `[tools.NAME]`."""

    enabled: bool = True
    priority: int = Field(default=0, description="Higher runs first among calls that wait.")
    timeout: Annotated[float, Field(gt=0)] | None = Field(
        default=None, description="Seconds; the tool's own when not set."
    )
    retry_attempts: Annotated[int, Field(ge=0, le=10)] = Field(
        default=0, description="Only for read-only or idempotent calls."
    )
    concurrency: ConcurrencySettings = ConcurrencySettings()
    permissions: ToolPermissionSettings = ToolPermissionSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    custom: dict[str, Any] = Field(default_factory=dict, description="Settings the tool itself reads.")


class RuleSettings(Group):
    """One rule with what explains it, `[[permissions.rules]]`: exactly one of allow, ask, deny."""

    allow: str | tuple[str, ...] = ()
    ask: str | tuple[str, ...] = ()
    deny: str | tuple[str, ...] = ()
    reason: str = Field(default="", description="Shown whenever the rule decides.")
    match: tuple[str, ...] = Field(default=(), description="Examples the rule must match; checked at load.")
    not_match: tuple[str, ...] = Field(default=(), description="Examples the rule must not match; checked at load.")
    after_untrusted: bool = Field(
        default=False, description="Count only once text from the web, a remote tool or outside has entered."
    )


class PermissionSettings(Group):
    """Rules and mode."""

    mode: Mode = Field(default="default", description="default, accept-edits, plan or bypass.")
    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    rules: tuple[RuleSettings, ...] = Field(default=(), description="Rules with a reason and examples.")
    approval_timeout: Annotated[float, Field(gt=0)] = Field(
        default=300.0, description="Seconds an approval may stay open."
    )


class EngineSettings(Group):
    """How calls run."""

    timeout: Annotated[float, Field(gt=0)] = Field(default=30.0, description="Seconds, for tools that do not say.")
    max_parallel: Annotated[int, Field(ge=1, le=1000)] = Field(default=10, description="Calls of one batch at once.")
    output_limit: Annotated[int, Field(ge=1000)] = Field(
        default=400_000, description="Characters of output a model may get."
    )
    cache: bool = Field(default=False, description="Reuse results of read-only calls within a session.")
    tuning: bool = Field(default=False, description="Let limits adapt to what is measured.")
    repeat_limit: Annotated[int, Field(ge=0)] = Field(
        default=5, description="Identical failing calls in a row before they are stopped; 0 never stops."
    )


class SandboxSettings(Group):
    """How commands are contained."""

    mode: Literal["required", "preferred", "off"] = "preferred"
    network: bool = Field(default=False, description="Let sandboxed commands use the network.")
    writable: tuple[str, ...] = Field(default=(), description="Folders outside the workspace that commands may write.")
    memory_mb: Annotated[int, Field(ge=64)] = 4096
    processes: Annotated[int, Field(ge=16)] = 512
    file_size_mb: Annotated[int, Field(ge=1)] = 2048


class HistorySettings(Group):
    """How much of the past is kept."""

    limit_mb: Annotated[int, Field(ge=1)] = Field(
        default=1024, description="Oldest changes are dropped above this size."
    )


class WebSettings(Group):
    """What the web tools may reach."""

    allowed_hosts: tuple[str, ...] = Field(default=(), description="Hosts or addresses allowed though not public.")
    proxy: str | None = None
    search_backend: Literal["searxng", "brave", "google", "keyless"] | None = None
    searxng_url: str | None = None
    google_engine: str | None = None


class ToolsetSettings(Group):
    """Which tools a model session sees."""

    tool_allow: tuple[str, ...] = Field(default=(), description="Names, aliases or globs; empty means all.")
    deferred_threshold: Annotated[int, Field(ge=0)] = Field(default=15, description="Above it only the core is shown.")


class LogSettings(Group):
    """The English log on stderr."""

    level: Literal["debug", "info", "warning", "error", "off"] = "warning"
    json_lines: bool = False


class ModelSettings(Group):
    """Which model `ask` speaks with."""

    provider: Literal["anthropic", "openai", "local", "offline"] | None = None
    name: str | None = None
    base_url: str | None = None
    path: str | None = Field(default=None, description="A GGUF file, for the local provider.")
    max_turns: Annotated[int, Field(ge=1)] = 50
    max_tokens: Annotated[int, Field(ge=1)] = 8192
    max_seconds: Annotated[float, Field(gt=0)] | None = None
    max_total_tokens: Annotated[int, Field(ge=1)] | None = None


class AgentSettings(Group):
    """Limits of sub-agents."""

    max_depth: Annotated[int, Field(ge=0)] = 3
    max_running: Annotated[int, Field(ge=1)] = 50


class McpServerSettings(Group):
    """One MCP server: a command (stdio) or a URL (streamable HTTP)."""

    command: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    url: str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    timeout: Annotated[float, Field(gt=0)] = 60.0
    sandbox: bool = False
    enabled: bool = True


class Settings(Group):
    """Everything that can be set."""

    permissions: PermissionSettings = PermissionSettings()
    engine: EngineSettings = EngineSettings()
    sandbox: SandboxSettings = SandboxSettings()
    history: HistorySettings = HistorySettings()
    web: WebSettings = WebSettings()
    toolset: ToolsetSettings = ToolsetSettings()
    log: LogSettings = LogSettings()
    model: ModelSettings = ModelSettings()
    agents: AgentSettings = AgentSettings()
    tools: dict[str, ToolSettings] = Field(default_factory=dict)
    mcp_servers: dict[str, McpServerSettings] = Field(default_factory=dict)
