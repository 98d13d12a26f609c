"""Convert between Surehand's records and messages of the Agent Client Protocol."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel
from pydantic_core import PydanticSerializationError

from acp import schema
from surehand.core.call import Block, Image, Text, ToolCall, ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.model import Message
from surehand.core.settings import McpServerSettings
from surehand.core.tool import Kind
from surehand.mcp.convert import clean_json
from surehand.policy.approval import one_line

Update: TypeAlias = (
    schema.UserMessageChunk
    | schema.AgentMessageChunk
    | schema.AgentThoughtChunk
    | schema.ToolCallStart
    | schema.ToolCallProgress
    | schema.AgentPlanUpdate
    | schema.AvailableCommandsUpdate
    | schema.CurrentModeUpdate
    | schema.SessionInfoUpdate
)
"""An update of a session for a client."""
ContentBlock: TypeAlias = (
    schema.TextContentBlock
    | schema.ImageContentBlock
    | schema.AudioContentBlock
    | schema.ResourceContentBlock
    | schema.EmbeddedResourceContentBlock
)
Content: TypeAlias = schema.ContentToolCallContent | schema.FileEditToolCallContent | schema.TerminalToolCallContent
Server: TypeAlias = schema.HttpMcpServer | schema.SseMcpServer | schema.AcpMcpServer | schema.McpServerStdio

_PATHS: Final = ("file_path", "notebook_path", "path")
TITLE_CHARACTERS: Final = 200
_HUNK: Final = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")


# -- calls -------------------------------------------------------------------------------------------------------------


def title(call: ToolCall, agent: str = "") -> str:
    """Return a call in one line: its tool and its main argument."""
    text = one_line(f"{call.name} {call.args.get(call.subject, '')}".strip())
    if len(text) > TITLE_CHARACTERS:
        text = f"{text[:TITLE_CHARACTERS]}…"
    return f"{agent}: {text}" if agent else text


def locations(call: ToolCall, cwd: str) -> list[schema.ToolCallLocation]:
    """Return the files in a call's arguments, which an editor may open to follow the agent."""
    args = call.shown_args
    found: list[schema.ToolCallLocation] = []
    for name in _PATHS:
        if isinstance(path := args.get(name), str) and path:
            offset: Any = args.get("offset")
            line = offset + 1 if call.name == "Read" and type(offset) is int and offset >= 0 else None
            found.append(schema.ToolCallLocation(path=os.path.join(cwd, os.path.expanduser(path)), line=line))
    return found


def call_start(
    call: ToolCall,
    cwd: str,
    kind: Kind,
    *,
    status: schema.ToolCallStatus = "pending",
    agent: str = "",
    terminal: bool = False,
) -> schema.ToolCallStart:
    """Return the announcement of a call; with `terminal`, its output follows in a terminal."""
    return schema.ToolCallStart(
        session_update="tool_call",
        tool_call_id=call.id,
        title=title(call, agent),
        kind=kind,
        status=status,
        locations=locations(call, cwd),
        raw_input=call.shown_args,
        content=[schema.TerminalToolCallContent(type="terminal", terminal_id=call.id)] if terminal else None,
        field_meta={"terminal_info": {"terminal_id": call.id, "cwd": cwd}} if terminal else None,
    )


def call_update(
    call_id: str,
    *,
    status: schema.ToolCallStatus | None = None,
    content: Sequence[Content] | None = None,
    locations: Sequence[schema.ToolCallLocation] | None = None,
    raw_output: Any = None,
    meta: dict[str, Any] | None = None,
) -> schema.ToolCallProgress:
    """Return an update of a call."""
    return schema.ToolCallProgress(
        session_update="tool_call_update",
        tool_call_id=call_id,
        status=status,
        content=None if content is None else list(content),
        locations=list(locations) if locations else None,
        raw_output=raw_output,
        field_meta=meta,
    )


def call_end(call: ToolCall, result: ToolResult, cwd: str, *, terminal: bool = False) -> schema.ToolCallProgress:
    """Return the end of a call: its diffs if it changed files, else its text and pictures."""
    given: Any = result.data
    data = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    diffs = diff_contents(str(data.get("diff") or ""), cwd) if result.ok else []
    content: list[Content] = [each for each, _ in diffs] or [_content(block) for block in result.blocks]
    meta: dict[str, Any] | None = None
    if terminal:
        content = [schema.TerminalToolCallContent(type="terminal", terminal_id=call.id)]
        exit_code = data.get("exit_code")
        code = exit_code if isinstance(exit_code, int) else 0 if result.ok else 1
        meta = {"terminal_exit": {"terminal_id": call.id, "exit_code": code, "signal": None}}
    return call_update(
        call.id,
        status="completed" if result.ok else "failed",
        content=content,
        locations=[schema.ToolCallLocation(path=each.path, line=line) for each, line in diffs],
        raw_output=_plain(result),
        meta=meta,
    )


def _plain(result: ToolResult) -> dict[str, Any]:
    """Return the result for a detailed view, without images, which the content has."""
    shown: dict[str, Any] = {"ok": result.ok, "output": result.output}
    if result.error is not None:
        shown["error"] = result.error.to_dict()
    if result.undo is not None:
        shown["undo"] = result.undo.to_dict()
    return shown


def _content(block: Block) -> schema.ContentToolCallContent:
    return schema.ContentToolCallContent(type="content", content=to_block(block))


def text_content(text: str) -> schema.ContentToolCallContent:
    """Wrap text as the content of a call."""
    return _content(Text(text))


def diff_contents(diff: str, cwd: str) -> list[tuple[schema.FileEditToolCallContent, int]]:
    """Return each hunk of a unified diff as a diff of the protocol (old and new text), with its line."""
    found: list[tuple[schema.FileEditToolCallContent, int]] = []
    lines = diff.split("\n")
    path, created, at = "", False, 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if line.startswith("--- ") and at < len(lines) and lines[at].startswith("+++ "):
            created, path = line == "--- /dev/null", os.path.join(cwd, lines[at][4:])
            at += 1
        elif path and (hunk := _HUNK.match(line)):
            before, after, at = _read_hunk(lines, at, int(hunk[2] or 1), int(hunk[4] or 1))
            # The protocol has no old text for a new file, and an empty one for an empty file.
            old = None if created or (not before and hunk[1] == "0") else before
            edit = schema.FileEditToolCallContent(type="diff", path=path, old_text=old, new_text=after)
            found.append((edit, max(1, int(hunk[3]))))
    return found


def _read_hunk(lines: Sequence[str], at: int, removed: int, added: int) -> tuple[str, str, int]:
    """Read the lines of a hunk by the counts in its header, since a line of it may look like a header."""
    before: list[str] = []
    after: list[str] = []
    ended: list[list[str]] = []
    while at < len(lines) and (removed > 0 or added > 0 or lines[at].startswith("\\")):
        sign, text = lines[at][:1], lines[at][1:] + "\n"
        if sign == "\\":  # "No newline at end of file"
            for side in ended:
                side[-1] = side[-1].removesuffix("\n")
        elif sign in (" ", "-", "+"):
            ended = [side for side, others in ((before, "+"), (after, "-")) if sign != others]
            for side in ended:
                side.append(text)
            removed, added = removed - (sign != "+"), added - (sign != "-")
        else:  # the diff was truncated
            break
        at += 1
    return "".join(before), "".join(after), at


# -- messages ----------------------------------------------------------------------------------------------------------


def to_block(block: Block) -> ContentBlock:
    """Return a content block for the protocol; other kinds than text and image become a note."""
    match block:
        case Text(text):
            return schema.TextContentBlock(type="text", text=text)
        case Image(data, mime_type):
            return schema.ImageContentBlock(type="image", data=data, mime_type=mime_type)
        case _:
            return schema.TextContentBlock(type="text", text=f"[{block.block.get('type', 'content')}]")


def agent_text(text: str) -> schema.AgentMessageChunk:
    """Return a piece of the answer."""
    return schema.AgentMessageChunk(session_update="agent_message_chunk", content=to_block(Text(text)))


def agent_thought(text: str) -> schema.AgentThoughtChunk:
    """Return a piece of the model's thoughts."""
    return schema.AgentThoughtChunk(session_update="agent_thought_chunk", content=to_block(Text(text)))


def prompt_message(blocks: Iterable[ContentBlock]) -> Message:
    """Return a prompt's blocks as the user's message; raise ToolFailure for audio."""
    texts: list[str] = []
    images: list[Image] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                texts.append(block.text)
            case schema.ImageContentBlock():
                images.append(Image(block.data, block.mime_type))
            case schema.ResourceContentBlock():
                texts.append(f"@{local_path(block.uri) or block.uri}")
            case schema.EmbeddedResourceContentBlock():
                texts.append(_read_embedded(block.resource))
            case schema.AudioContentBlock():
                raise ToolFailure("sound cannot be asked about; text, files and images can", code="invalid_args")
    return Message("user", "".join(texts).strip(), images=tuple(images))


def _read_embedded(resource: schema.TextResourceContents | schema.BlobResourceContents) -> str:
    where = local_path(resource.uri) or resource.uri
    if isinstance(resource, schema.BlobResourceContents):
        return f"@{where}"
    return f"\n<file path={where!r}>\n{resource.text}\n</file>\n"


def local_path(uri: str) -> str:
    """Return the path of a `file:` URI; empty for any other."""
    parts = urlsplit(uri)
    return unquote(parts.path) if parts.scheme == "file" else ""


def replay(messages: Sequence[Message], cwd: str, kind_of: Callable[[str], Kind]) -> Iterator[Update]:
    """Yield the updates that replay a conversation: messages, calls and results."""
    calls: tuple[ToolCall, ...] = ()
    for message in messages:
        for image in message.images:
            yield schema.UserMessageChunk(session_update="user_message_chunk", content=to_block(image))
        if message.text and message.role == "user":
            yield schema.UserMessageChunk(session_update="user_message_chunk", content=to_block(Text(message.text)))
        elif message.text and message.role == "assistant":
            yield agent_text(message.text)
        for call, result in zip(calls, message.results, strict=False):
            yield call_start(call, cwd, kind_of(call.name))
            yield call_end(call, result, cwd)
        calls = message.calls


UpdateT = TypeVar("UpdateT", bound=BaseModel)


def encodable(message: UpdateT) -> UpdateT:
    """Return a message without lone surrogates: editors disconnect from an agent whose JSON has one."""
    try:
        message.model_dump_json()
    except PydanticSerializationError:
        return type(message).model_validate(clean_json(message.model_dump(by_alias=True)))
    return message


# -- MCP servers of a client -------------------------------------------------------------------------------------------


def server_settings(servers: Iterable[Server]) -> tuple[dict[str, McpServerSettings], list[str]]:
    """Return the MCP servers of an editor as settings, and the problems of those left out."""
    found: dict[str, McpServerSettings] = {}
    problems: list[str] = []
    for server in servers:
        match server:
            case schema.McpServerStdio():
                env = {each.name: each.value for each in server.env}
                settings = McpServerSettings(command=server.command, args=tuple(server.args), env=env)
            case schema.HttpMcpServer():
                headers = {each.name: each.value for each in server.headers}
                settings = McpServerSettings(url=server.url, headers=headers)
            case _:
                problems.append(f"the MCP server {server.name} was left out: only stdio and HTTP are spoken")
                continue
        found[server.name] = settings
    return found, problems
