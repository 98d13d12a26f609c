"""Resources, prompts and completions of a server, and those that `surehand serve` offers.

Its resources are the workspace's files and the session's log; its prompt is advice on using the tools.
"""

from __future__ import annotations

import base64
import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from surehand.core.call import Block, Text, block_to_dict, new_id
from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.mcp import convert
from surehand.mcp.convert import WORKSPACE
from surehand.mcp.server.clients import Client

if TYPE_CHECKING:
    from surehand.mcp.server.serving import Serving

Read = Callable[[str, Client], "str | bytes | Awaitable[str | bytes]"]
"""Returns the content at a URI for a client; raises ToolFailure if there is none."""
Message = tuple[str, "str | Block"]
"""The role (`user` or `assistant`) and the content."""
Render = Callable[[Mapping[str, str]], "Sequence[Message] | Awaitable[Sequence[Message]]"]
Complete = Callable[[str, str, str], Sequence[str]]
"""`complete(prompt name or resource template, argument, prefix)` returns the values that begin so."""
LOG: Final = "surehand://session/log"
MAX_SUBSCRIPTIONS: Final = 1000
"""Per client: a template has any number of URIs."""

INSTRUCTIONS: Final = (
    "Tools over one workspace. Read a file before you Edit or Write it; use Glob and Grep to find things, not Bash. "
    "Calls that need permission are put to the user; a refusal says which rule decided. Undo takes changes back."
)
_ADVICE: Final = """\
Work in this workspace with the tools you were given.

1. Find before you read: Glob for names, Grep for content. Both leave out secrets and ignored files.
2. Read before you change. Edit wants `old_string` exactly as the file has it, once, with enough context around it.
3. Several places in one file: MultiEdit, which changes all or nothing. New files: Write.
4. Bash runs in a sandbox without network. Prefer the file tools: their changes can be undone and are shown as diffs.
5. When a call is refused, do it another way or say what you need; asking the same again changes nothing.
"""


@frozen
class Resource:
    """A resource at `uri`, or a template with `{name}` parts (`{+name}` also matches `/`)."""

    uri: str
    name: str
    read: Read
    description: str = ""
    mime_type: str = "text/plain"

    @property
    def is_template(self) -> bool:
        """Whether the URI has `{name}` parts."""
        return "{" in self.uri

    def matches(self, uri: str) -> bool:
        """Return whether a URI is this one, or matches the template."""
        if not self.is_template:
            return uri == self.uri
        parts = re.split(r"(\{[^}]*\})", self.uri)
        pattern = "".join(
            (".+" if part.startswith("{+") else "[^/]+") if part.startswith("{") else re.escape(part) for part in parts
        )
        return re.fullmatch(pattern, uri) is not None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        key = "uriTemplate" if self.is_template else "uri"
        return {key: self.uri, "name": self.name, "description": self.description, "mimeType": self.mime_type}


@frozen
class Prompt:
    """A prompt that a person picks: `arguments` describes its arguments by name, `render` makes its messages."""

    name: str
    render: Render
    description: str = ""
    arguments: Mapping[str, str] | None = None
    required: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        arguments = [
            {"name": name, "description": text, "required": name in self.required}
            for name, text in (self.arguments or {}).items()
        ]
        return {"name": self.name, "description": self.description, "arguments": arguments}


@frozen
class Extras:
    """The resources, prompts and completions of a server."""

    resources: Sequence[Resource] = ()
    prompts: Sequence[Prompt] = ()
    complete: Complete | None = None

    def install(self, serving: Serving) -> None:
        """Register the handlers of what is offered; the SDK declares capabilities by handlers."""
        import mcp_types as types

        add = serving.add
        handlers = _Handlers(self, serving)
        if self.resources:
            add("resources/list", types.PaginatedRequestParams, handlers.list_resources)
            add("resources/templates/list", types.PaginatedRequestParams, handlers.list_templates)
            add("resources/read", types.ReadResourceRequestParams, handlers.read)
            add("resources/subscribe", types.SubscribeRequestParams, handlers.subscribe)
            add("resources/unsubscribe", types.UnsubscribeRequestParams, handlers.unsubscribe)
        if self.prompts:
            add("prompts/list", types.PaginatedRequestParams, handlers.list_prompts)
            add("prompts/get", types.GetPromptRequestParams, handlers.get_prompt)
        if self.complete is not None:
            add("completion/complete", types.CompleteRequestParams, handlers.completion)


class _Handlers:
    """The request handlers of extras."""

    def __init__(self, extras: Extras, serving: Serving) -> None:
        self._extras = extras
        self._serving = serving

    async def list_resources(self, ctx: Any, params: Any) -> dict[str, Any]:
        del ctx
        return self._list_page("resources", [each for each in self._extras.resources if not each.is_template], params)

    async def list_templates(self, ctx: Any, params: Any) -> dict[str, Any]:
        del ctx
        return self._list_page(
            "resourceTemplates", [each for each in self._extras.resources if each.is_template], params
        )

    async def list_prompts(self, ctx: Any, params: Any) -> dict[str, Any]:
        del ctx
        return self._list_page("prompts", self._extras.prompts, params)

    def _list_page(self, key: str, entries: Sequence[Resource | Prompt], params: Any) -> dict[str, Any]:
        page, cursor = self._serving.take_page(entries, params)
        return {**cursor, key: [each.to_dict() for each in page]}

    def _resource(self, uri: str) -> Resource:
        found = next((each for each in self._extras.resources if each.matches(uri)), None)
        if found is None:
            raise convert.invalid(f"Resource not found: {uri}", uri=uri)
        return found

    async def read(self, ctx: Any, params: Any) -> dict[str, Any]:
        uri = str(params.uri)
        resource, client = self._resource(uri), await self._serving.client(ctx)

        async def work() -> dict[str, Any]:
            try:
                content = resource.read(uri, client)
                content = await content if inspect.isawaitable(content) else content
            except ToolFailure as failure:
                raise convert.invalid(f"{uri}: {failure.message}", uri=uri) from failure
            body = {"text": content} if isinstance(content, str) else {"blob": base64.b64encode(content).decode()}
            return {"contents": [{"uri": uri, "mimeType": resource.mime_type, **body}]}

        return await self._serving.answer(ctx, params, client, new_id("mcp"), work, uri, {})

    async def subscribe(self, ctx: Any, params: Any) -> dict[str, Any]:
        client = await self._serving.client(ctx)
        uri = str(params.uri)
        self._resource(uri)
        if uri not in client.subscribed and len(client.subscribed) >= MAX_SUBSCRIPTIONS:
            raise convert.invalid(f"a client may subscribe to {MAX_SUBSCRIPTIONS} resources; unsubscribe from some")
        client.subscribed[uri] = ctx.session
        return {}

    async def unsubscribe(self, ctx: Any, params: Any) -> dict[str, Any]:
        (await self._serving.client(ctx)).subscribed.pop(str(params.uri), None)
        return {}

    async def get_prompt(self, ctx: Any, params: Any) -> dict[str, Any]:
        prompt = next((each for each in self._extras.prompts if each.name == params.name), None)
        if prompt is None:
            names = [each.name for each in self._extras.prompts]
            raise convert.invalid(f"Unknown prompt: {params.name}{convert.nearest(params.name, names)}")
        given: dict[str, str] = params.arguments or {}
        if missing := [name for name in prompt.required if name not in given]:
            raise convert.invalid(f"the prompt {prompt.name} needs {', '.join(missing)}")

        async def work() -> dict[str, Any]:
            rendered = prompt.render(given)
            messages = await rendered if inspect.isawaitable(rendered) else rendered
            shapes = [{"role": role, "content": _content(content)} for role, content in messages]
            return {"description": prompt.description, "messages": shapes}

        client = await self._serving.client(ctx)
        return await self._serving.answer(ctx, params, client, new_id("mcp"), work, prompt.name, given)

    async def completion(self, ctx: Any, params: Any) -> dict[str, Any]:
        del ctx
        about = getattr(params.ref, "name", None) or getattr(params.ref, "uri", "")
        found = (
            self._extras.complete(about, params.argument.name, params.argument.value) if self._extras.complete else ()
        )
        return {"completion": {"values": list(found[:100]), "total": len(found), "hasMore": len(found) > 100}}


def _content(content: str | Block) -> dict[str, Any]:
    return block_to_dict(Text(content) if isinstance(content, str) else content)


def own_extras() -> Extras:
    """Return the resources and prompts of `surehand serve`."""
    return Extras(
        resources=(
            Resource(
                LOG,
                "session log",
                _log,
                "What happened in this session: calls, questions, answers, changed files. One JSON object a line.",
                "application/jsonl",
            ),
            Resource(WORKSPACE + "{+path}", "workspace file", _file, "A text file of the workspace, by relative path."),
        ),
        prompts=(
            Prompt("use-tools", _use_tools, "How to work with these tools well.", {"task": "What is to be done."}),
        ),
    )


async def _file(uri: str, client: Client) -> str:
    result = await client.app.call("fs.read_file", {"path": unquote(uri[len(WORKSPACE) :])}, source="mcp")
    if result.error is not None:
        raise ToolFailure(result.error.message, code=result.error.code)
    return result.output


def _log(uri: str, client: Client) -> str:
    del uri
    return "".join(json.dumps(event.to_dict(), ensure_ascii=False, default=str) + "\n" for event in client.log)


def _use_tools(given: Mapping[str, str]) -> Sequence[Message]:
    task = given.get("task", "").strip()
    return [("user", f"{_ADVICE}\nThe task: {task}" if task else _ADVICE)]
