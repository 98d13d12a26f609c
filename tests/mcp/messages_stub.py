"""A stand-in for the Messages API on this machine: it calls the tool a user message names, and reports what came.

A user message `CALL name {json}` becomes a tool call, one line each; the results of calls are repeated as text;
anything else is answered with `heard: ...`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any


class MessagesStub:
    """Remembers every request it was sent."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.count = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (head := await reader.readuntil(b"\r\n\r\n")) != b"":
                length = 0
                for line in head.decode("latin-1").split("\r\n"):
                    name, _, value = line.partition(":")
                    length = int(value) if name.lower() == "content-length" else length
                body = await reader.readexactly(length)
                await self.answer(head.split(b" ", 2)[1].decode(), body, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def answer(self, path: str, body: bytes, writer: asyncio.StreamWriter) -> None:
        if not path.startswith("/v1/messages") or "count_tokens" in path:
            content = b'{"input_tokens": 1}' if "count_tokens" in path else b"{}"
            head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
            writer.write(head.encode() + content)
            await writer.drain()
            return
        request = json.loads(body)
        self.requests.append(request)
        blocks = self.blocks(request)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
        for event in events(blocks, request.get("model", "stub"), len(self.requests)):
            writer.write(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        await writer.drain()
        writer.close()

    def blocks(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        content = request["messages"][-1]["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if results := [each for each in blocks if each["type"] == "tool_result"]:
            lines = [
                f"result ({'error' if each.get('is_error') else 'ok'}): {json.dumps(each['content'])}"
                for each in results
            ]
            return [{"type": "text", "text": "\n".join(lines)}]
        for each in reversed(blocks):  # the client may put what came before in front, and reminders behind
            text = each.get("text", "")
            if text.startswith("CALL ") and request.get("tools"):
                return [self.call(line) for line in text.splitlines()]
            if text and not text.startswith("<"):
                break
        said = next((each["text"] for each in reversed(blocks) if not each.get("text", "<").startswith("<")), "")
        return [{"type": "text", "text": f"heard: {said[:100]}"}]

    def call(self, line: str) -> dict[str, Any]:
        _, name, args = line.split(" ", 2)
        self.count += 1
        return {"type": "tool_use", "id": f"toolu_{self.count}", "name": name, "input": json.loads(args)}


def events(blocks: list[dict[str, Any]], model: str, number: int) -> list[dict[str, Any]]:
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {
        "id": f"msg_{number}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": [],
        "usage": usage,
    }
    sent: list[dict[str, Any]] = []
    for index, block in enumerate(blocks):
        if block["type"] == "text":
            empty: dict[str, Any] = {"type": "text", "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            empty = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        sent.append({"type": "content_block_start", "index": index, "content_block": empty})
        sent.append({"type": "content_block_delta", "index": index, "delta": delta})
        sent.append({"type": "content_block_stop", "index": index})
    stop = "end_turn" if blocks[-1]["type"] == "text" else "tool_use"
    return [
        {"type": "message_start", "message": message | {"stop_reason": None, "stop_sequence": None}},
        *sent,
        {"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"},
    ]


@asynccontextmanager
async def messages_stub() -> AsyncIterator[tuple[MessagesStub, str]]:
    """Run the stand-in; gives it and its URL."""
    stub = MessagesStub()
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0, limit=1 << 24)
    port = server.sockets[0].getsockname()[1]
    try:
        yield stub, f"http://127.0.0.1:{port}"
    finally:
        server.close()
