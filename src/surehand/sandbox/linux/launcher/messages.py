"""Messages between the client, the launcher and its supervisors: marshalled values, with descriptors (SCM_RIGHTS)."""

from __future__ import annotations

import _socket
import marshal
import sys

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    from typing import Any

_LIMIT_BYTES = 65536
_MOST_DESCRIPTORS = 16


def pair() -> tuple[_socket.socket, _socket.socket]:
    """Return two connected sockets that preserve message boundaries."""
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)  # pyright: ignore[reportReturnType]


def open_socket(descriptor: int) -> _socket.socket:
    """Return a socket object for a received descriptor."""
    return _socket.socket(fileno=descriptor)


def send(socket: _socket.socket, message: Any, descriptors: list[int] | tuple[int, ...] = ()) -> None:
    """Send one message; content that may be large is passed as a descriptor of a memory file."""
    packed = b"".join(each.to_bytes(4, sys.byteorder) for each in descriptors)
    ancillary = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if packed else []
    socket.sendmsg([marshal.dumps(message)], ancillary)


def receive(socket: _socket.socket) -> tuple[Any, list[int]] | None:
    """Return the next message and its descriptors; None when the other end is closed."""
    try:
        data, ancillary, _, _ = socket.recvmsg(
            _LIMIT_BYTES, _socket.CMSG_SPACE(4 * _MOST_DESCRIPTORS), _socket.MSG_CMSG_CLOEXEC
        )
    except ConnectionError:
        return None
    descriptors: list[int] = []
    for level, kind, packed in ancillary:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            offsets = range(0, len(packed) - 3, 4)
            descriptors += [int.from_bytes(packed[at : at + 4], sys.byteorder) for at in offsets]
    return (marshal.loads(data), descriptors) if data else None
