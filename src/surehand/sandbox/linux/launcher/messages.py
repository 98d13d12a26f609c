"""Messages between the program, the launcher and its supervisors: marshalled records with descriptors beside them."""

from __future__ import annotations

import _socket
import marshal
import sys

TYPE_CHECKING = False  # `typing` itself would double the time the launcher takes to start
if TYPE_CHECKING:
    from typing import Any

_LIMIT = 65536


def pair() -> tuple[_socket.socket, _socket.socket]:
    """Return two connected ends that keep the borders of messages."""
    return _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)  # pyright: ignore[reportReturnType]


def end(descriptor: int) -> _socket.socket:
    """Return the end that a received descriptor stands for."""
    return _socket.socket(fileno=descriptor)


def send(end: _socket.socket, message: Any, descriptors: list[int] | tuple[int, ...] = ()) -> None:
    """Send one small record; large content goes into a descriptor."""
    packed = b"".join(each.to_bytes(4, sys.byteorder) for each in descriptors)
    beside = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, packed)] if packed else []
    end.sendmsg([marshal.dumps(message)], beside)


def receive(end: _socket.socket) -> tuple[Any, list[int]] | None:
    """Return the next record and its descriptors; None when the other end is gone."""
    try:
        data, beside, _, _ = end.recvmsg(_LIMIT, _socket.CMSG_SPACE(16 * 4), _socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    descriptors: list[int] = []
    for level, kind, content in beside:
        if level == _socket.SOL_SOCKET and kind == _socket.SCM_RIGHTS:
            places = range(0, len(content) - 3, 4)
            descriptors += [int.from_bytes(content[at : at + 4], sys.byteorder) for at in places]
    return (marshal.loads(data), descriptors) if data else None
