"""Custom tools inside the Claude Agent SDK (extra `claude`): modules as servers, our policy as its permission system.

    async with Surehand(".", modules={"calculator": TOOLS}) as app:
        application = Application(app)
        application.initialize()
        async for message in application.query(["What is 6 * 7?", "And half of it?"]):
            ...

Custom tools are asked about at Surehand's own door, where they run. The SDK's other tools, its own and those of
external servers, are judged by the same rules before they run, and asked about with the same approver.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeAlias

from surehand.core.call import Text, ToolCall
from surehand.core.errors import SettingsError, SurehandError
from surehand.core.model import Prompt, user_message
from surehand.core.settings import McpServerSettings
from surehand.core.shapes import block_to_anthropic
from surehand.core.tool import Tool
from surehand.engine.checking import Checker
from surehand.engine.executor import Executor
from surehand.mcp.client.config import Configured, expanded
from surehand.mcp.client.servers import Servers
from surehand.mcp.modules import AppWithRegistry, ModuleServer, create_mcp_servers
from surehand.policy.approvals import Question, ask_approver, digest
from surehand.policy.policy import Decision, Policy

Verdict = tuple[Literal["allow", "deny", "ask"], str]
Prompts: TypeAlias = Iterable[Prompt] | AsyncIterable[Prompt]
"""What is asked, one prompt after the other; a plain text is one prompt."""


class SdkApp(AppWithRegistry, Protocol):
    """The application the SDK works for (`surehand.app.Surehand`)."""

    @property
    def policy(self) -> Policy:
        """What judges calls."""
        ...

    @property
    def executor(self) -> Executor:
        """What runs calls."""
        ...

    @property
    def servers(self) -> Servers:
        """The MCP servers of the workspace."""
        ...


class Application:
    """Everything the SDK needs, made from one Surehand application."""

    def __init__(
        self,
        app: SdkApp,
        *,
        modules: Mapping[str, Iterable[Tool]] | None = None,
        external: Mapping[str, McpServerSettings | Configured] | None = None,
    ) -> None:
        self.app = app
        self.servers: dict[str, ModuleServer] = {}
        self._modules = dict(modules or {})
        self._external: dict[str, McpServerSettings | Configured] = {**app.servers.configured(), **(external or {})}
        self._checker = Checker(app.policy, app.session, app.registry)

    def initialize(self) -> Application:
        """Register the modules and make their servers; safe to call twice."""
        for name, tools in self._modules.items():
            if name not in self.app.registry.modules():
                self.app.registry.register_module(name, tools)
        self.servers = create_mcp_servers(self.app)
        return self

    # -- what the SDK is given ---------------------------------------------------------------------------------------

    def mcp_servers(self) -> dict[str, Any]:
        """Return external and custom servers together, as the SDK takes them; raise where two have one name."""
        if both := sorted(self._external.keys() & self.servers.keys()):
            raise SettingsError(f"a module and an external MCP server have the same name: {', '.join(both)}")
        external = {name: _config(each) for name, each in self._external.items() if _settings(each).enabled}
        return {**external, **{name: server.sdk_config() for name, server in self.servers.items()}}

    def allowed_tools(self) -> list[str]:
        """Return the full names of all custom tools; the hook sees their calls all the same."""
        return [name for server in self.servers.values() for name in server.tools]

    def options(self, **more: Any) -> Any:
        """Return the SDK's options: servers, allowed tools, and our policy as its permission system."""
        sdk = _sdk()
        if not self.servers:
            self.initialize()
        chosen: dict[str, Any] = {
            "mcp_servers": self.mcp_servers(),
            "allowed_tools": self.allowed_tools(),
            "can_use_tool": self.can_use_tool,
            "hooks": {"PreToolUse": [sdk.HookMatcher(hooks=[self.before_tool])]},
            "cwd": self.app.session.workspace,
        }
        return sdk.ClaudeAgentOptions(**(chosen | more))

    async def query(self, prompts: Prompts, **more: Any) -> AsyncIterator[Any]:
        """Send user messages one after the other, and yield what the SDK sends back."""
        async with _sdk().ClaudeSDKClient(options=self.options(**more)) as client:
            async for prompt in _each(prompts):
                await client.query(stream_of([prompt]))
                async for message in client.receive_response():
                    yield message

    # -- permission --------------------------------------------------------------------------------------------------

    async def before_tool(self, given: Any, tool_use_id: str | None, context: Any) -> dict[str, Any]:
        """Judge a call before it runs (PreToolUse): allow, deny, or have it asked about."""
        del tool_use_id, context
        verdict, reason = self.judge(given["tool_name"], given.get("tool_input") or {})
        said = {"hookEventName": "PreToolUse", "permissionDecision": verdict, "permissionDecisionReason": reason}
        return {"hookSpecificOutput": said}

    async def can_use_tool(self, name: str, args: dict[str, Any], context: Any) -> Any:
        """Answer for a call that must be asked about: the approver of the application says."""
        del context
        sdk = _sdk()
        verdict, reason = self.judge(name, args)
        if verdict == "ask":
            verdict, reason = await self._asked(name, args, reason)
        if verdict == "allow":
            return sdk.PermissionResultAllow(updated_input=args)
        return sdk.PermissionResultDeny(message=reason)

    def judge(self, name: str, args: Mapping[str, Any]) -> Verdict:
        """Return the verdict on a call of any of the SDK's tools."""
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
        verdict, reason = app.executor.verdict(ToolCall(name, args, source="model"), app.session, app.selection)
        if verdict == "deny":
            return "deny", reason
        # What must be asked about is asked at the door, where it runs; wrong arguments are told there, too.
        return "allow", reason

    async def _asked(self, name: str, args: Mapping[str, Any], reason: str) -> Verdict:
        app, call = self.app, ToolCall(name, args, source="model")
        try:
            decision = self._checker.decide(name, args)
        except SurehandError:
            decision = Decision("ask", reason)
        cwd = app.session.cwd
        question = Question(call, name, decision, None, digest(name, "", args, cwd), cwd=cwd)
        limit_s = app.session.settings.permissions.approval_timeout
        answer = await ask_approver(app.executor.asking.approver, question, limit_s)
        if answer.kind == "no":
            return "deny", answer.reason or "the user said no"
        if answer.kind in ("session", "always"):
            app.session.grants.extend((answer.rule or decision.suggestion or "").splitlines())
        return "allow", "the user allowed it"


async def stream_of(prompts: Prompts) -> AsyncIterator[dict[str, Any]]:
    """Yield user messages (text, message objects, content blocks) as the SDK's streaming input takes them."""
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
    """Return the SDK, which is an extra: it brings its own command line of several hundred megabytes."""
    import importlib

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
        headers = {name: expanded(value, os.environ) for name, value in own.headers.items()}
        return {"type": "http", "url": expanded(own.url, os.environ), "headers": headers}
    return {
        "type": "stdio",
        "command": expanded(own.command or "", os.environ),
        "args": [expanded(word, os.environ) for word in own.args],
        "env": {name: expanded(value, os.environ) for name, value in own.env.items()},
    }
