"""A loopback server that speaks the streaming APIs of Anthropic and OpenAI from a script, and keeps what it got."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Stub:
    """`script` steps: {"text": ..., "calls": [(id, name, json text)], "status": ..., "cut": True, "hold": True}.

    A step with "hold" stays open after its first lines until `released` is set. One with "cut" ends after its text as
    if that were all; with "torn" the connection dies there. "raw" is sent as it is, as "kind" (a stream of events), and
    "whole" where no stream is wanted.
    """

    def __init__(self) -> None:
        self.script: list[dict[str, Any]] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.released = threading.Event()
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stub.requests.append(body)
                stub.headers.append({key.lower(): value for key, value in self.headers.items()})
                step = stub.answer(body)
                if status := step.get("status"):
                    return self._error(status, step.get("after"))
                claude = "chat" not in self.path and any(way in self.path for way in ("messages", "streamRawPredict"))
                if not body.get("stream"):
                    whole = step.get("whole") or (whole_anthropic(step) if claude else whole_openai(step))
                    return self._json(200, whole)
                self.send_response(200)
                self.send_header("content-type", step.get("kind", "text/event-stream"))
                if step.get("torn"):
                    self.send_header("content-length", "1000000")
                self.end_headers()
                lines = step.get("raw") or (anthropic(step) if claude else openai(step))
                with suppress(OSError):  # the client may leave in the middle
                    for number, line in enumerate(lines):
                        if number == 3 and step.get("hold"):
                            stub.released.wait(60)
                        self.wfile.write(line.encode())
                return None

            def _error(self, status: int, after: str | None) -> None:
                told = {"type": "error", "error": {"type": "stub", "message": f"status {status}"}}
                self._json(status, told, {"retry-after": after} if after else {})

            def _json(self, status: int, data: dict[str, Any], headers: dict[str, str] | None = None) -> None:
                text = json.dumps(data).encode()
                self.send_response(status)
                for name, value in (headers or {}).items():
                    self.send_header(name, value)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a command that is to speak with this server."""
        return {**os.environ, "OPENAI_BASE_URL": f"{self.address}/v1", "OPENAI_API_KEY": "none"}

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the next step; set another function here to answer by what was asked."""
        return self.script.pop(0) if self.script else {"text": "the script has ended"}

    def close(self) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()


def whole_anthropic(step: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": step["text"]}] if step.get("text") else []
    content += [
        {"type": "tool_use", "id": id, "name": name, "input": json.loads(arguments)}
        for id, name, arguments in step.get("calls", ())
    ]
    told = {"id": "m", "type": "message", "role": "assistant", "model": "x", "stop_sequence": None}
    usage = {"input_tokens": 11, "output_tokens": 5}
    return {**told, "content": content, "stop_reason": "tool_use" if step.get("calls") else "end_turn", "usage": usage}


def whole_openai(step: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": step.get("text")}
    if calls := step.get("calls"):
        message["tool_calls"] = [
            {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
            for id, name, arguments in calls
        ]
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if step.get("calls") else "stop"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "x", "choices": [choice]}


def anthropic(step: dict[str, Any]) -> Iterator[str]:
    def event(kind: str, **data: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, **data})}\n\n"

    usage = {"input_tokens": 11, "output_tokens": 1, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 3}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "x", "content": [], "stop_reason": None}
    yield event("message_start", message={**message, "stop_sequence": None, "usage": usage})
    index = 0
    if step.get("thinking"):
        block = {"type": "thinking", "thinking": "", "signature": ""}
        yield event("content_block_start", index=index, content_block=block)
        yield event("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": step["thinking"]})
        yield event("content_block_delta", index=index, delta={"type": "signature_delta", "signature": "signed"})
        yield event("content_block_stop", index=index)
        index += 1
    if text := step.get("text"):
        yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": half})
        yield event("content_block_stop", index=index)
        index += 1
    if step.get("cut") or step.get("torn"):
        return
    for id, name, arguments in step.get("calls", ()):
        block = {"type": "tool_use", "id": id, "name": name, "input": {}}
        yield event("content_block_start", index=index, content_block=block)
        for half in (arguments[:3], arguments[3:]):
            yield event("content_block_delta", index=index, delta={"type": "input_json_delta", "partial_json": half})
        yield event("content_block_stop", index=index)
        index += 1
    stop = step.get("stop") or ("tool_use" if step.get("calls") else "end_turn")
    yield event("message_delta", delta={"stop_reason": stop, "stop_sequence": None}, usage={"output_tokens": 5})
    yield event("message_stop")


def openai(step: dict[str, Any]) -> Iterator[str]:
    def chunk(delta: dict[str, Any], finish: str | None = None, usage: Any = None) -> str:
        choices = [] if usage else [{"index": 0, "delta": delta, "finish_reason": finish}]
        data = {
            "id": "c",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "x",
            "choices": choices,
            "usage": usage,
        }
        return f"data: {json.dumps(data)}\n\n"

    if step.get("thought"):
        yield chunk({"role": "assistant", "reasoning_content": step["thought"]})
    if text := step.get("text"):
        for half in (text[: len(text) // 2], text[len(text) // 2 :]):
            yield chunk({"role": "assistant", "content": half})
    if step.get("cut") or step.get("torn"):
        return
    for index, (id, name, arguments) in enumerate(step.get("calls", ())):
        yield chunk(
            {
                "tool_calls": [
                    {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
                ]
            }
        )
        for half in (arguments[:3], arguments[3:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": half}}]})
    yield chunk({}, step.get("stop") or ("tool_calls" if step.get("calls") else "stop"))
    yield chunk(
        {},
        usage={
            "prompt_tokens": 21,
            "completion_tokens": 5,
            "total_tokens": 26,
            "prompt_tokens_details": {"cached_tokens": 7},
        },
    )
    yield "data: [DONE]\n\n"
