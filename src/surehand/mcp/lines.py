"""Lines that hold a message each, over a pair of byte streams: what both ends of a pipe speak.

Lines are read and written by the event loop itself; going through threads, as the SDK does, takes several times as
long. A line has a largest size, so that the other end cannot fill the memory: a longer one is skipped to its end, and
what waits for it, or who sent it, is told.
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
"""Values in a message; in memory each takes up to two hundred times its bytes."""
TOO_MANY: Final = f"a message of more than {VALUES_LIMIT:,} values was dropped"
SKIP_LIMIT: Final = 64 * LINE_LIMIT
"""Bytes of the longest line that is skipped; what sends more has no end."""
PIECE_BYTES: Final = 64 * 1024
"""What is read ahead; a longer line is put together from such pieces."""
PEEKED_LIMIT: Final = 8
"""Messages kept that come before the first request."""
AT_ONCE: Final = 4
"""Lines that are passed on before other work has its turn: each may start a task."""
UNREAD_LIMIT: Final = 500
"""Answers that the other end has not taken; while there are more, nothing else of it is read."""
TOO_LONG: Final = -32070
"""The code of the error that stands in for an answer too long to be read (of those a program may define)."""
UNREADABLE: Final = -32071
"""The code of the error that stands in for an answer that is no message."""
GRACE_S: Final = 1.5
"""How long requests may go on after the other end has closed its side and still listens."""

Refuse = Callable[[int, str, "str | int | None"], Awaitable[None]]
"""Called for a line that is no message: a JSON-RPC error code, what is wrong, and the id if it has one."""
END_BYTES: Final = 1024
_VALUE: Final = rb'(?:"(?:[^"\\]|\\.){0,256}"|-?\d{1,20}|null)'
_MEMBER: Final = re.compile(rb'\s*"(jsonrpc|id|method)"\s*:\s*(' + _VALUE + rb")\s*,")
_FIRST: Final = re.compile(rb"\s*\{")
_LAST: Final = re.compile(rb'((?:,\s*"(?:jsonrpc|id|method)"\s*:\s*' + _VALUE + rb"\s*)+)\}\s*\Z")
_STRUCTURE: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[,\[{]', re.DOTALL)
_OF_LAST: Final = re.compile(rb',\s*"(jsonrpc|id|method)"\s*:\s*(' + _VALUE + rb")")


class Overlong:
    """What is kept of a line that is skipped while it comes in."""

    def __init__(self) -> None:
        self.size = 0
        self._head = b""
        self._tail = b""

    def add(self, piece: bytes) -> None:
        """Take the next piece of the line."""
        self.size += len(piece)
        if len(self._head) < END_BYTES:
            self._head += piece[: END_BYTES - len(self._head)]
        self._tail = (self._tail + piece[-END_BYTES:])[-END_BYTES:]

    def members(self) -> dict[str, Any]:
        """Return the id and the method of the message, where they stand before or after the part that is too long."""
        return {name.decode(): json.loads(value) for name, value in (*self._first(), *self._last())}

    def _first(self) -> Iterator[tuple[bytes, bytes]]:
        found = _FIRST.match(self._head)
        while found is not None and (found := _MEMBER.match(self._head, found.end())) is not None:
            yield found[1], found[2]

    def _last(self) -> list[tuple[bytes, bytes]]:
        found = _LAST.search(self._tail)
        return _OF_LAST.findall(found[1]) if found is not None else []


class Lines:
    """Messages as the SDK wants them: to iterate over and to send to."""

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
        """How long the other end may leave too many answers unread; None for as long as it likes."""
        self._peeked: deque[SessionMessage | Exception] = deque()
        self._passed = 0
        self._unread = 0
        self._taken = asyncio.Event()
        self._open: set[Any] = set()
        self._awaited: set[Any] = set()
        """The ids of our own requests that have no answer yet."""
        self._idle = asyncio.Event()
        self.ended = asyncio.Event()
        """Set when the other end will say nothing more."""
        self.fault = ""
        """What it did wrong, if that is why."""

    # What the other end says ---------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        return self._peeked.popleft() if self._peeked else await self._read_message()

    async def peek_request(self) -> types.JSONRPCRequest | None:
        """Return the first request of the other end and leave it to be read; None where it closes before one."""
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
            self._passed += 1
            if self._passed % AT_ONCE == 0:
                await asyncio.sleep(0)  # lines that are already there are read without waiting
            line = await self._line() if await self._are_answers_taken() else b""
            if not line:
                await self._let_finish()
                self.ended.set()
                raise StopAsyncIteration
            if isinstance(line, Overlong):
                text = f"a line of {line.size:,} bytes was dropped; at most {self._limit:,} are read"
                message = await self._instead_of(line.members(), text)
            else:
                message = await self._parse_line(line) if line.strip() else None
            if message is not None:
                return message

    async def _are_answers_taken(self) -> bool:
        """Wait until the other end has read what it was answered; False where it does not."""
        if self._unread < UNREAD_LIMIT:
            return not self.fault
        try:
            async with asyncio.timeout(self._patience_s):
                while self._unread >= UNREAD_LIMIT:
                    self._taken.clear()
                    await self._taken.wait()
        except TimeoutError:
            self.fault = "it does not read the answers to its requests"
        return not self.fault

    async def _line(self) -> bytes | Overlong:
        """Return the next line, what is kept of one that is too long, or nothing at the end."""
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
        """Read on to the end of a line that is too long, and keep next to nothing of it."""
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

    async def _instead_of(self, known: dict[str, Any], text: str) -> SessionMessage | None:
        """Return the error that stands in for an answer too large to be read; refuse anything else that is."""
        if "id" not in known or "method" in known:
            await self._refuse(types.INVALID_REQUEST, text, known.get("id"))
            return None
        return _stand_in(known["id"], TOO_LONG, text)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message; raise EndOfStream at the end."""
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _parse_line(self, line: bytes) -> SessionMessage | None:
        if has_too_many_values(line):
            return await self._instead_of(_ends_of(line), TOO_MANY)
        try:
            # Read first and checked then: from text, each of the four kinds of message builds all the values anew.
            message = types.jsonrpc_message_adapter.validate_python(from_json(line), by_name=False)
        except ValueError as problem:
            if (number := self._answers(line)) is not None:
                return _stand_in(number, UNREADABLE, "its answer is no JSON-RPC message")
            broken = not isinstance(problem, ValidationError)
            code, text = (types.PARSE_ERROR, "Parse error") if broken else (types.INVALID_REQUEST, "Invalid Request")
            await self._refuse(code, f"{text}: this line is no JSON-RPC message", None if broken else _id_in(line))
            return None
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            self._awaited.discard(message.id)
        elif isinstance(message, types.JSONRPCRequest):
            self._open.add(message.id)
        elif isinstance(message, types.JSONRPCNotification) and b'"id"' in line and _has_id(line):
            await self._refuse(types.INVALID_REQUEST, "Invalid Request: an id is a text or a whole number", None)
            return None
        return SessionMessage(message)

    def _answers(self, line: bytes) -> str | int | None:
        """Return the id of our request that an unreadable line is the answer to; None for noise.

        Where even the id cannot be read, it is the only request that waits, if the line was meant as a message.
        """
        if not self._awaited or not line.lstrip().startswith(b"{"):
            return None
        known: dict[str, Any] = _top(line) or _ends_of(line)
        if "method" in known:
            return None
        if "id" in known:
            found: Any = known["id"]
            return found if isinstance(found, str | int) and found in self._awaited else None
        return next(iter(self._awaited)) if len(self._awaited) == 1 and b'"jsonrpc"' in line else None

    async def _let_finish(self) -> None:
        """Give requests that still run a moment: the other end has closed its side, and may still listen."""
        self._idle.clear()
        if self._open and not self._writer.transport.is_closing():
            lost = asyncio.shield(self._writer.wait_closed())  # cancelled itself, it would never be waited for again
            idle = asyncio.ensure_future(self._idle.wait())
            await asyncio.wait({lost, idle}, timeout=GRACE_S, return_when=asyncio.FIRST_COMPLETED)
            lost.cancel()
            idle.cancel()

    # What it is told -----------------------------------------------------------------------------------------------

    async def send(self, item: SessionMessage) -> None:
        """Write a message as one line."""
        message = item.message
        if isinstance(message, types.JSONRPCRequest):
            self._awaited.add(message.id)
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
            await self._answer(line)
            self._open.discard(message.id)
            if not self._open:
                self._idle.set()
        else:
            # A call that is given up must not wait until the other end reads that it is.
            await self._write(line, wait=getattr(message, "method", "") != "notifications/cancelled")

    async def answer_refusing(self, code: int, text: str, number: str | int | None) -> None:
        """Answer a line that is no message, as a server does."""
        error = types.JSONRPCError(jsonrpc="2.0", id=number, error=types.ErrorData(code=code, message=text))
        await self._answer(error.model_dump_json(by_alias=True, exclude_unset=True).encode())

    async def _answer(self, line: bytes) -> None:
        self._unread += 1
        try:
            await self._write(line)
        finally:
            self._unread -= 1
            self._taken.set()

    async def _write(self, line: bytes, *, wait: bool = True) -> None:
        if self._writer.transport.is_closing():
            return  # the other end has gone; reading will tell
        try:
            self._writer.write(line + b"\n")
            if wait:
                await self._writer.drain()
        except (BrokenPipeError, ConnectionResetError, RuntimeError):
            pass

    # The end -------------------------------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Do nothing: the SDK closes each direction by itself, `finish` closes both."""

    async def finish(self) -> None:
        """Send what is left and close the streams."""
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
    """Say whether a message is made of more values than are read."""
    if line.count(b",") + line.count(b"[") + line.count(b"{") <= VALUES_LIMIT:
        return False  # texts count too, so that this settles it for all but a few
    values = (found for found in _STRUCTURE.finditer(line) if line[found.start()] != ord('"'))
    return next(islice(values, VALUES_LIMIT, None), None) is not None


def _top(line: bytes) -> dict[str, Any]:
    """Return the object a line holds; an empty one for anything else."""
    try:
        value: Any = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _ends_of(line: bytes) -> dict[str, Any]:
    """Return the id and the method of a line that is no JSON, as far as its ends show them."""
    ends = Overlong()
    ends.add(line)
    try:
        return ends.members()
    except ValueError:
        return {}


def id_of_request(line: bytes) -> str | int | None:
    """Return the id of a message that wants an answer; None for any other."""
    return _id_in(line) if "method" in _top(line) else None


def id_of_answer(line: bytes) -> str | int | None:
    """Return the id of a message that is an answer; None for any other. Of a long one, only the ends are read."""
    if len(line) > PIECE_BYTES:
        known = _ends_of(line.strip(b" "))
        return None if "method" in known else known.get("id")
    found = _top(line)
    return _id_in(line) if "method" not in found and ("result" in found or "error" in found) else None


def _stand_in(number: str | int | None, code: int, text: str) -> SessionMessage:
    """Return the error that stands in for an answer that cannot be used."""
    error = types.ErrorData(code=code, message=text)
    return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=number, error=error))


def _has_id(line: bytes) -> bool:
    return "id" in _top(line)


def _id_in(line: bytes) -> str | int | None:
    """Return the id of a message that is wrong otherwise, so that its sender knows which."""
    found = _top(line).get("id")
    return found if isinstance(found, str | int) and not isinstance(found, bool) else None
