"""Surehand's tools in the Claude Agent SDK (extra `claude`): modules as servers, its policy as permission system.

    async with Surehand(".", modules={"calculator": TOOLS}) as app:
        application = Application(app, tools=["Read", "Edit", "Grep", "Bash", "Undo"])
        async for message in application.query(["What is 6 * 7?", "And half of it?"]):
            ...

`tools` names tools of the application that replace the SDK's own of the same name; without it, the modules alone are
served. Their calls are judged when Surehand runs them. Calls of all other tools, the SDK's and those of external
servers, are judged by the same rules before the SDK runs them, and asked about with the same approver. Without an
approver, a callback of the SDK is asked: `application.query(prompts, can_use_tool=callback)`.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final, Literal, Protocol, TypeAlias, Unpack, cast

from surehand.core.call import Text, ToolCall, ToolResult
from surehand.core.context import ToolContext
from surehand.core.errors import SettingsError, SurehandError, ToolFailure
from surehand.core.model import Prompt, user_message
from surehand.core.names import full_name, provider_safe
from surehand.core.settings import McpServerSettings
from surehand.core.shapes import block_to_anthropic, result_from_mcp
from surehand.core.tool import Tool, ToolOptions
from surehand.engine.checking import Checker
from surehand.integrations.toolbox import CHANGED, AsyncApp, Toolbox, bind_approval, wrap_tool
from surehand.mcp.client.config import Configured, expand_variables
from surehand.mcp.client.servers import Servers
from surehand.mcp.server.serving import AppWithRegistry, ModuleServer, create_mcp_servers, create_tools_server
from surehand.policy.approval import Answer, Question, ask_approver, digest
from surehand.policy.policy import Decision, Policy

Verdict = tuple[Literal["allow", "deny", "ask"], str]
Callback: TypeAlias = Callable[[str, dict[str, Any], Any], Awaitable[Any]]
"""A `can_use_tool` of the SDK."""
OWN_SERVER: Final = "surehand"
"""The server of the application's own tools (`tools`)."""
SDK_TOOLS: Final = frozenset(
    [
        "Agent",
        "Bash",
        "Edit",
        "Glob",
        "Grep",
        "MultiEdit",
        "NotebookEdit",
        "Read",
        "Skill",
        "Task",
        "TaskOutput",
        "TaskStop",
        "TodoWrite",
        "WebFetch",
        "WebSearch",
        "Write",
    ]
)
"""The SDK's own tools; one is disabled if a tool of `tools` has its name."""
_log = logging.getLogger("surehand")
Prompts: TypeAlias = Iterable[Prompt] | AsyncIterable[Prompt]
"""Prompts to ask one after the other; a string is one prompt."""


class SdkApp(AppWithRegistry, AsyncApp, Protocol):
    """The part of an application (`surehand.app.Surehand`) that is used here."""

    @property
    def policy(self) -> Policy:
        """What judges calls."""
        ...

    @cached_property
    def servers(self) -> Servers:
        """The MCP servers of the workspace."""
        ...


class Application:
    """An application for the SDK: servers, options, permission callbacks."""

    def __init__(
        self,
        app: SdkApp,
        *,
        modules: Mapping[str, Iterable[Tool]] | None = None,
        external: Mapping[str, McpServerSettings | Configured] | None = None,
        tools: Iterable[str] = (),
    ) -> None:
        self.app = app
        self.servers: dict[str, ModuleServer] = {}
        self.warnings: list[str] = []
        """Warnings about tools of modules with the name of one of the SDK's."""
        self._own = tuple(tools)
        self._box = Toolbox(app, self._own)
        self._names: dict[str, str] = {}
        self._callback: Callback | None = None
        self._approved: set[str] = set()
        self._modules = dict(modules or {})
        self._external: dict[str, McpServerSettings | Configured] = {
            **app.servers.list_configured(),
            **(external or {}),
        }
        self._checker = Checker(app.policy, app.session, app.registry)

    def initialize(self) -> Application:
        """Register the modules and create their servers. Idempotent."""
        for name, tools in self._modules.items():
            if name not in self.app.registry.modules():
                self.app.registry.register_module(name, tools)
        self.servers = create_mcp_servers(self.app, call=self._run)
        if self._own:
            self.servers[OWN_SERVER] = create_tools_server(self.app, OWN_SERVER, self._box.list_all, call=self._run)
            self._names = {full_name(OWN_SERVER, provider_safe(info.name)): info.name for info in self._box.list_all()}
        self._warn_of_shadowed_tools()
        return self

    def _warn_of_shadowed_tools(self) -> None:
        """Warn about a module's tool with the name of one of the SDK's: a model may call either."""
        self.warnings = [
            f"{name} has the name of a tool of the SDK's own, and a model may take either: "
            f"rename it, or leave the other out with options(disallowed_tools=[{name.split('__')[-1]!r}])"
            for name in self.allowed_tools()
            if name not in self._names and name.split("__")[-1] in SDK_TOOLS
        ]
        for warning in self.warnings:
            _log.warning("%s", warning)

    async def _run(self, name: str, args: Mapping[str, Any]) -> ToolResult:
        """Make a call of the SDK's model; if its callback was asked, only calls that it allowed are approved."""
        app = self.app
        approver = None if self._callback is None or self._box.has_approver else _AllowedByCallback(self._approved)
        call = ToolCall(name, args, source="mcp")
        return await app.executor.run(call, app.session, app.selection, approver=approver)

    # -- what the SDK is given ---------------------------------------------------------------------------------------

    def mcp_servers(self) -> dict[str, Any]:
        """Return external servers and those of modules for the SDK; raise SettingsError if two have the same name."""
        if both := sorted(self._external.keys() & self.servers.keys()):
            raise SettingsError(f"a module and an external MCP server have the same name: {', '.join(both)}")
        external = {name: _config(each) for name, each in self._external.items() if _settings(each).enabled}
        return {**external, **{name: server.sdk_config() for name, server in self.servers.items()}}

    def allowed_tools(self) -> list[str]:
        """Return the full names of all custom tools."""
        return [name for server in self.servers.values() for name in server.tools]

    def options(self, **more: Any) -> Any:
        """Return the SDK's options, with the servers and the permission callbacks.

        Custom tools are allowed by the hook, not by `allowed_tools`, which would keep the SDK's callback from being
        asked. A `can_use_tool` in `more` is asked if the application has no approver.
        """
        sdk = _sdk()
        if not self.servers:
            self.initialize()
        self._callback = more.pop("can_use_tool", None)
        chosen: dict[str, Any] = {
            "mcp_servers": self.mcp_servers(),
            "can_use_tool": self.can_use_tool,
            "disallowed_tools": sorted(SDK_TOOLS.intersection(self._names.values())),
            "hooks": {"PreToolUse": [sdk.HookMatcher(hooks=[self.before_tool])]},
            "cwd": self.app.session.workspace,
        }
        return sdk.ClaudeAgentOptions(**(chosen | more))

    async def query(self, prompts: Prompts, **more: Any) -> AsyncIterator[Any]:
        """Send prompts one after the other, and yield the SDK's messages."""
        async with _sdk().ClaudeSDKClient(options=self.options(**more)) as client:
            async for prompt in _each(prompts):
                await client.query(stream_of([prompt]))
                async for message in client.receive_response():
                    yield message

    # -- permission --------------------------------------------------------------------------------------------------

    async def before_tool(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Judge a call before it runs (PreToolUse): allow, deny, or have it asked about."""
        del tool_use_id, context
        name: str = given["tool_name"]
        args: dict[str, Any] = given.get("tool_input") or {}
        verdict, reason = self.judge(name, args)
        if verdict == "allow" and (question := await self._find_question(name, args)) is not None:
            verdict, reason = "ask", question.text()
        output = {"hookEventName": "PreToolUse", "permissionDecision": verdict, "permissionDecisionReason": reason}
        return {"hookSpecificOutput": output}

    async def can_use_tool(self, name: str, args: dict[str, Any], context: Any) -> Any:
        """Decide a call that must be asked about: by the application's approver, or the callback if it has none."""
        sdk = _sdk()
        verdict, reason = self.judge(name, args)
        question = await self._find_question(name, args)
        if self._callback is not None and not self._box.has_approver and (verdict == "ask" or question is not None):
            return await self._ask_callback(self._callback, name, args, context)
        if verdict == "ask":
            verdict, reason = await self._ask_user(name, args, reason)
        if verdict == "allow":
            return sdk.PermissionResultAllow(updated_input=args)
        return sdk.PermissionResultDeny(message=reason)

    async def _find_question(self, name: str, args: Mapping[str, Any]) -> Question | None:
        """Return the question about a custom tool that the callback has to answer; None if there is none."""
        app = self.app
        if self._callback is None or self._box.has_approver or name not in self.allowed_tools():
            return None
        call = ToolCall(self._names.get(name, name), args, source="mcp")
        return await app.executor.find_question(call, app.session, app.selection)

    async def _ask_callback(self, callback: Callback, name: str, args: dict[str, Any], context: Any) -> Any:
        """Ask the SDK's callback; its yes to a custom tool is valid for exactly that call."""
        answer = await callback(name, args, context)
        if getattr(answer, "behavior", "deny") == "allow":
            changed: Any = getattr(answer, "updated_input", None)
            question = await self._find_question(name, args if changed is None else changed)
            if question is not None:
                self._approved.add(bind_approval(question))
        return answer

    def judge(self, name: str, args: Mapping[str, Any]) -> Verdict:
        """Return the verdict on a call of any tool in the SDK."""
        if name in self.allowed_tools():
            return self._judge_custom(name, args)
        if _is_custom(name, self.servers):
            return "deny", f"{name} is not among the tools of this application"
        try:
            decision = self._checker.decide(name, args)
        except SurehandError as problem:
            return "ask", f"{name} is not known here: {problem}"
        return decision.verdict, decision.reason

    def _judge_custom(self, name: str, args: Mapping[str, Any]) -> Verdict:
        app = self.app
        call = ToolCall(self._names.get(name, name), args, source="model")
        verdict, reason = app.executor.verdict(call, app.session, app.selection)
        if verdict == "deny":
            return "deny", reason
        # The executor asks, and reports wrong arguments, when it runs the call.
        return "allow", reason

    async def _ask_user(self, name: str, args: Mapping[str, Any], reason: str) -> Verdict:
        app, call = self.app, ToolCall(name, args, source="model")
        try:
            decision = self._checker.decide(name, args)
        except SurehandError:
            decision = Decision("ask", reason)
        cwd = app.session.cwd
        question = Question(call, name, decision, None, digest(name, "", args, cwd), cwd=cwd)
        limit_s = app.session.settings.permissions.approval_timeout
        answer = await ask_approver(app.executor.permissions.approver, question, limit_s)
        if answer.kind == "no":
            return "deny", answer.reason or "the user said no"
        if answer.kind in ("session", "always"):
            app.session.grants.extend((answer.rule or decision.suggestion or "").splitlines())
        return "allow", "the user allowed it"


class _AllowedByCallback:
    """The approver of calls that the SDK's callback has allowed, each once."""

    def __init__(self, digests: set[str]) -> None:
        self._digests = digests

    async def ask(self, question: Question) -> Answer:
        """Approve exactly what was allowed."""
        bound = bind_approval(question)
        if bound not in self._digests:
            return Answer("no", CHANGED)
        self._digests.discard(bound)
        return Answer("once")


def wrap(tool: Any, **options: Unpack[ToolOptions]) -> Tool:
    """Wrap an `SdkMcpTool` (made by the SDK's `@tool`) as a tool of ours: `app.register(wrap(tool))`."""

    async def invoke(args: Mapping[str, Any], ctx: ToolContext) -> Any:
        del ctx
        answer: dict[str, Any] = await tool.handler(dict(args))
        failed = bool(answer.get("is_error") or answer.get("isError"))
        result = result_from_mcp({"content": answer.get("content"), "isError": failed})
        if result.error is not None:
            raise ToolFailure(result.error.message)
        return result

    return wrap_tool(tool.name, tool.description, _find_schema(tool.input_schema), invoke, **options)


def _find_schema(given: Any) -> dict[str, Any]:
    """Return the JSON Schema of a tool's arguments: given as a schema, a type, or types by name, all required."""
    from pydantic import TypeAdapter, create_model

    if not isinstance(given, dict):
        return TypeAdapter(given).json_schema()
    schema = cast("dict[str, Any]", given)
    if schema.get("type") == "object":
        return schema
    fields: dict[str, Any] = {name: (kind, ...) for name, kind in schema.items()}
    return create_model("Arguments", **fields).model_json_schema()


async def stream_of(prompts: Prompts) -> AsyncIterator[dict[str, Any]]:
    """Yield prompts (text, message objects, content blocks) as messages of the SDK's streaming input."""
    async for prompt in _each(prompts):
        asked = user_message(prompt)
        blocks = [block_to_anthropic(block) for block in (*asked.images, *([Text(asked.text)] if asked.text else []))]
        message = {"role": "user", "content": blocks if asked.images else asked.text}
        yield {"type": "user", "message": message, "parent_tool_use_id": None, "session_id": "default"}


async def _each(prompts: Prompts) -> AsyncIterator[Prompt]:
    if isinstance(prompts, AsyncIterable):
        async for prompt in prompts:
            yield prompt
    else:
        for prompt in [prompts] if isinstance(prompts, str) else prompts:
            yield prompt


def _sdk() -> Any:
    """Import the SDK. It is an extra: its command line has several hundred megabytes."""
    try:
        return importlib.import_module("claude_agent_sdk")
    except ImportError as problem:
        raise SettingsError("the Claude Agent SDK is not installed: pip install 'surehand[claude]'") from problem


def _is_custom(name: str, servers: Mapping[str, ModuleServer]) -> bool:
    return any(name.startswith(f"mcp__{server}__") for server in servers)


def _settings(server: McpServerSettings | Configured) -> McpServerSettings:
    return server.settings if isinstance(server, Configured) else server


def _config(server: McpServerSettings | Configured) -> dict[str, Any]:
    own = _settings(server)
    if own.url:
        headers = {name: expand_variables(value, os.environ) for name, value in own.headers.items()}
        return {"type": "http", "url": expand_variables(own.url, os.environ), "headers": headers}
    return {
        "type": "stdio",
        "command": expand_variables(own.command or "", os.environ),
        "args": [expand_variables(word, os.environ) for word in own.args],
        "env": {name: expand_variables(value, os.environ) for name, value in own.env.items()},
    }
