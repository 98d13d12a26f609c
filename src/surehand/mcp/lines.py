"""Lines of one JSON-RPC message each, over a pair of byte streams: the stdio transport of both sides.

Lines are read and written by the event loop itself; threads, which the SDK uses, take several times as long. A line has
a maximum length, so that the other end cannot fill the memory: a longer one is skipped to its end, and answered with an
error, or the request that it answers fails.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from itertools import islice
from types import TracebackType
from typing import Any, Final, Self, cast

import anyio
import mcp_types as types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError
from pydantic_core import from_json

LINE_LIMIT: Final = 16 * 1024 * 1024
"""Bytes of the longest line that is read."""
VALUES_LIMIT: Final = 200_000
"""Values in a message; in memory each may take two hundred times its bytes."""
TOO_MANY: Final = f"a message of more than {VALUES_LIMIT:,} values was dropped"
SKIP_LIMIT: Final = 64 * LINE_LIMIT
"""Bytes of the longest line that is skipped; a longer one ends the connection."""
PIECE_BYTES: Final = 64 * 1024
"""Limit of the stream reader's buffer; a longer line is joined from pieces of this size."""
PEEKED_LIMIT: Final = 8
"""How many messages before the first request are kept."""
AT_ONCE: Final = 4
"""Lines passed on before other tasks get a turn: each may start a task."""
UNREAD_LIMIT: Final = 500
"""Answers that the other end has not read yet; at the limit, nothing more is read from it."""
TOO_LONG: Final = -32070
"""Error code that replaces an answer too long to be read (in the range for applications)."""
UNREADABLE: Final = -32071
"""Error code that replaces an answer that is no message."""
GRACE_S: Final = 1.5
"""How long requests may still run after the other end has closed its output; it may still read answers."""

Refuse = Callable[[int, str, "str | int | None"], Awaitable[None]]
"""Called for a line that is no message, with a JSON-RPC error code, a text, and the message's id if it has one."""
END_BYTES: Final = 1024
_VALUE: Final = rb'(?:"(?:[^"\\]|\\.){0,256}"|-?\d{1,20}|null)'
_MEMBER: Final = re.compile(rb'\s*"(jsonrpc|id|method)"\s*:\s*(' + _VALUE + rb")\s*,")
_FIRST: Final = re.compile(rb"\s*\{")
_LAST: Final = re.compile(rb'((?:,\s*"(?:jsonrpc|id|method)"\s*:\s*' + _VALUE + rb"\s*)+)\}\s*\Z")
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[,\[{]', re.DOTALL)
_OF_LAST: Final = re.compile(rb',\s*"(jsonrpc|id|method)"\s*:\s*(' + _VALUE + rb")")


class Overlong:
    """The first and last kilobyte of a skipped line: a message's id stands before or behind its one long value."""

    def __init__(self) -> None:
        self.size = 0
        self._head = b""
        self._tail = b""

    def add(self, piece: bytes) -> None:
        """Add the next piece of the line."""
        self.size += len(piece)
        if len(self._head) < END_BYTES:
            self._head += piece[: END_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-END_BYTES:])[-END_BYTES:]

    def members(self) -> dict[str, Any]:
        """Return the id and the method of the message, if they stand in its first or last kilobyte."""
        return {name.decode(): json.loads(value) for name, value in (*self._first(), *self._last())}

    def _first(self) -> Iterator[tuple[bytes, bytes]]:
        found = _FIRST.match(self._head)
        while found is not None and (found := _MEMBER.match(self._head, found.end())) is not None:
            yield found[1], found[2]

    def _last(self) -> list[tuple[bytes, bytes]]:
        found = _LAST.search(self._tail)
        return _OF_LAST.findall(found[1]) if found is not None else []


class Lines:
    """Both streams that the SDK takes, of messages to read and to send."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        refuse: Refuse | None = None,
        *,
        limit: int = LINE_LIMIT,
        patience_s: float | None = None,
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._refuse = refuse or self.answer_refusing
        self._limit = limit
        self._patience_s = patience_s
        """How long the other end may leave too many answers unread; None for ever."""
        self._peeked: deque[SessionMessage | Exception] = deque()
        self._lines_read = 0
        self._unread = 0
        self._answer_read = asyncio.Event()
        self._unanswered: set[Any] = set()
        """Ids of the other end's requests that have no answer yet."""
        self._awaited: set[Any] = set()
        """Ids of our own requests that have no answer yet."""
        self._all_answered = asyncio.Event()
        self.ended = asyncio.Event()
        """Set when nothing more will be read."""
        self.fault = ""
        """What the other end did wrong, if that ended the connection."""

    # Reading -------------------------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._peeked.popleft() if self._peeked else await self._read_message()

    async def peek_request(self) -> types.JSONRPCRequest | None:
        """Return the other end's first request without consuming it; None if the connection ends before one."""
        try:
            while True:
                item = await self._read_message()
                found = item.message if isinstance(item, SessionMessage) else None
                if isinstance(found, types.JSONRPCRequest) or len(self._peeked) < PEEKED_LIMIT:
                    self._peeked.append(item)
                if isinstance(found, types.JSONRPCRequest):
                    return found
        except StopAsyncIteration:
            return None

    async def _read_message(self) -> SessionMessage | Exception:
        while True:
            self._lines_read += 1
            if self._lines_read % AT_ONCE == 0:
                await asyncio.sleep(0)  # reading a buffered line does not suspend
            line = await self._read_line() if await self._wait_for_reader() else b""
            if not line:
                await self._wait_for_requests()
                self.ended.set()
                raise StopAsyncIteration
            if isinstance(line, Overlong):
                text = f"a line of {line.size:,} bytes was dropped; at most {self._limit:,} are read"
                message = await self._replace_large(line.members(), text)
            else:
                message = await self._parse_line(line) if line.strip() else None
            if message is not None:
                return message

    async def _wait_for_reader(self) -> bool:
        """Wait until the other end has read enough of its answers; return False if it does not in time."""
        if self._unread < UNREAD_LIMIT:
            return not self.fault
        try:
            async with asyncio.timeout(self._patience_s):
                while self._unread >= UNREAD_LIMIT:
                    self._answer_read.clear()
                    await self._answer_read.wait()
        except TimeoutError:
            self.fault = "it does not read the answers to its requests"
        return not self.fault

    async def _read_line(self) -> bytes | Overlong:
        """Return the next line, the ends of one that is too long, or nothing at the end."""
        pieces, size = list[bytes](), 0
        while size <= self._limit:
            try:
                pieces.append(await self._reader.readuntil(b"\n"))
            except asyncio.IncompleteReadError as end:
                pieces.append(end.partial)
            except asyncio.LimitOverrunError as more:
                pieces.append(await self._reader.readexactly(more.consumed))
                size += more.consumed
                continue
            except OSError:
                return b""
            if size + len(pieces[-1]) <= self._limit:
                return b"".join(pieces)
            break
        return await self._skip_line(pieces)

    async def _skip_line(self, pieces: list[bytes]) -> bytes | Overlong:
        """Read to the end of a line that is too long, keeping its ends alone."""
        skipped = Overlong()
        for piece in pieces:
            skipped.add(piece)
        is_whole = pieces.pop().endswith(b"\n")
        pieces.clear()
        while not is_whole and skipped.size < SKIP_LIMIT:
            try:
                skipped.add(await self._reader.readuntil(b"\n"))
                is_whole = True
            except asyncio.LimitOverrunError as more:
                skipped.add(await self._reader.readexactly(more.consumed))
            except (asyncio.IncompleteReadError, OSError):
                return b""
        if not is_whole:
            self.fault = "it sent a line that never ended"
        return skipped if is_whole else b""

    async def _replace_large(self, members: dict[str, Any], text: str) -> SessionMessage | None:
        """Return an error in place of an answer that is too large; refuse any other message that is."""
        if "id" not in members or "method" in members:
            await self._refuse(types.INVALID_REQUEST, text, members.get("id"))
            return None
        return _make_error(members["id"], TOO_LONG, text)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raise EndOfStream at the end."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _parse_line(self, line: bytes) -> SessionMessage | None:
        if has_too_many_values(line):
            return await self._replace_large(_ends_of(line), TOO_MANY)
        try:
            # Parsed before it is validated: from text, the union would build all values once for each kind of message.
            message = types.jsonrpc_message_adapter.validate_python(from_json(line), by_name=False)
        except ValueError as problem:
            if (request_id := self._find_answered(line)) is not None:
                return _make_error(request_id, UNREADABLE, "its answer is no JSON-RPC message")
            is_json = isinstance(problem, ValidationError)
            code, text = (types.INVALID_REQUEST, "Invalid Request") if is_json else (types.PARSE_ERROR, "Parse error")
            await self._refuse(code, f"{text}: this line is no JSON-RPC message", _id_in(line) if is_json else None)
            return None
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._awaited.discard(message.id)
        elif isinstance(message, types.JSONRPCRequest):
            self._unanswered.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and b'"id"' in line and _has_id(line):
            await self._refuse(types.INVALID_REQUEST, "Invalid Request: an id is a text or a whole number", None)
            return None
        return SessionMessage(message)

    def _find_answered(self, line: bytes) -> str | int | None:
        """Return the id of our request that an unreadable line answers; None for noise.

        If even the id cannot be read, it is that of the only waiting request, provided the line looks like a message.
        """
        if not self._awaited or not line.lstrip().startswith(b"{"):
            return None
        known: dict[str, Any] = _parse_object(line) or _ends_of(line)
        if "method" in known:
            return None
        if "id" in known:
            found: Any = known["id"]
            return found if isinstance(found, str | int) and found in self._awaited else None
        return next(iter(self._awaited)) if len(self._awaited) == 1 and b'"jsonrpc"' in line else None

    async def _wait_for_requests(self) -> None:
        """Give running requests a moment: the other end has closed its output, and may still read answers."""
        self._all_answered.clear()
        if self._unanswered and not self._writer.transport.is_closing():
            closed = asyncio.shield(self._writer.wait_closed())  # cancelled itself, it could not be awaited again
            answered = asyncio.ensure_future(self._all_answered.wait())
            await asyncio.wait({closed, answered}, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            closed.cancel()
            answered.cancel()

    # Writing -------------------------------------------------------------------------------------------------------

    async def send(self, item: SessionMessage) -> None:
        """Write a message as one line."""
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            self._awaited.add(message.id)
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            await self._write_answer(line)
            self._unanswered.discard(message.id)
            if not self._unanswered:
                self._all_answered.set()
        else:
            # Cancelling a call must not wait until the other end reads the notification.
            await self._write(line, wait=getattr(message, "method", "") != "notifications/cancelled")

    async def answer_refusing(self, code: int, text: str, number: str | int | None) -> None:
        """Answer a line that is no message with an error, as a server does."""
        error = types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=text))
        await self._write_answer(error.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def _write_answer(self, line: bytes) -> None:
        self._unread += 1
        try:
            await self._write(line)
        finally:
            self._unread -= 1
            self._answer_read.set()

    async def _write(self, line: bytes, *, wait: bool = True) -> None:
        if self._writer.transport.is_closing():
            return  # reading ends the connection
        try:
            self._writer.write(line + b"\n")
            if wait:
                await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError, RuntimeError):
            pass

    # Closing -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Do nothing: the SDK closes each direction on its own; `finish` closes both."""

    async def finish(self) -> None:
        """Flush and close the streams."""
        self._writer.close()
        try:
            async with asyncio.timeout(1):
                await self._writer.wait_closed()
        except (OSError, TimeoutError):
            pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()


def has_too_many_values(line: bytes) -> bool:
    """Return whether a message has more values than are read."""
    if line.count(b",") + line.count(b"[") + line.count(b"{") <= VALUES_LIMIT:
        return False  # an upper bound, since strings count too; enough for nearly every message
    marks = (found for found in _STRUCTURE.finditer(line) if line[found.start()] != ord('"'))
    return next(islice(marks, VALUES_LIMIT, None), None) is not None


def _parse_object(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; an empty one for anything else."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _ends_of(line: bytes) -> dict[str, Any]:
    """Return the id and the method of a message from its ends, without parsing it."""
    ends = Overlong()
    ends.add(line)
    try:
        return ends.members()
    except ValueError:
        return {}


def id_of_request(line: bytes) -> str | int | None:
    """Return the id of a request; None for any other message."""
    return _id_in(line) if "method" in _parse_object(line) else None


def id_of_answer(line: bytes) -> str | int | None:
    """Return the id of an answer; None for any other message. Of a long one, only the ends are read."""
    if len(line) > PIECE_BYTES:
        members = _ends_of(line.strip(b" "))
        return None if "method" in members else members.get("id")
    found = _parse_object(line)
    return _id_in(line) if "method" not in found and ("result" in found or "error" in found) else None


def _make_error(request_id: str | int | None, code: int, text: str) -> SessionMessage:
    """Return an error in place of an answer that cannot be used."""
    error = types.ErrorData(code=code, message=text)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=request_id, error=error))


def _has_id(line: bytes) -> bool:
    return "id" in _parse_object(line)


def _id_in(line: bytes) -> str | int | None:
    """Return the valid id of an invalid message, so that its sender can tell which one it is."""
    found = _parse_object(line).get("id")
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None
