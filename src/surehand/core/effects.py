"""Effects: what a call does to the world, stated as facts before it runs.

A tool states effects; the policy judges them. Paths are absolute but not yet resolved: the policy follows links and
`..`, so that both the given path and its target are judged.

`None` instead of a list means "not declared"; `[]` means "touches nothing".
"""

from __future__ import annotations

from typing import TypeAlias

from surehand.core.frozen import frozen


@frozen
class ReadPath:
    """The file or listing at `path` is read; `recursive`: with everything below it."""

    path: str
    recursive: bool = False


@frozen
class WritePath:
    """`path` is created or changed; `recursive` may change anything below it."""

    path: str
    recursive: bool = False


@frozen
class DeletePath:
    """`path` is removed (or moved away); `recursive` removes everything below it."""

    path: str
    recursive: bool = False


@frozen
class Connect:
    """A connection to `host` (lower case, no brackets). `url` is set when the tool speaks HTTP to it."""

    host: str
    port: int | None = None
    url: str = ""


@frozen
class RunCommand:
    """One simple command of a shell line, its words decoded as the shell would decode them.

    `read_only` is true if name and options are known to change nothing. `implies` holds the effects that follow from
    the words (paths, hosts); redirections belong to the line and are effects beside the command. `fed` is its standard
    input where the line states it (`<<EOF`); `kind` is its class.
    """

    words: tuple[str, ...]
    read_only: bool
    reason: str = ""
    implies: tuple[Effect, ...] = ()
    fed: str = ""
    kind: str = ""


@frozen
class Unreadable:
    """A part of the call whose effects cannot be determined. It asks even under an allow rule."""

    reason: str


@frozen
class RemoteCall:
    """A tool of an MCP server is called; its effects there are unknown."""

    server: str
    tool: str


@frozen
class StartAgent:
    """A sub-agent is started; each of its own calls is judged again."""

    profile: str


Effect: TypeAlias = ReadPath | WritePath | DeletePath | Connect | RunCommand | Unreadable | RemoteCall | StartAgent


def describe(effect: Effect) -> dict[str, object]:
    """Return the effect as plain data, as `policy check` and the audit log show it."""
    match effect:
        case ReadPath(path, recursive):
            return _path_effect("read", path, recursive)
        case WritePath(path, recursive):
            return _path_effect("write", path, recursive)
        case DeletePath(path, recursive):
            return _path_effect("delete", path, recursive)
        case Connect(host, port, url):
            shown: dict[str, object] = {"kind": "connect", "host": host}
            return shown | ({"port": port} if port is not None else {}) | ({"url": url} if url else {})
        case RunCommand(words, read_only, reason, implies):
            shown = {"kind": "run", "words": list(words), "read_only": read_only}
            shown |= {"reason": reason} if reason else {}
            return shown | ({"implies": [describe(each) for each in implies]} if implies else {})
        case Unreadable(reason):
            return {"kind": "unreadable", "reason": reason}
        case RemoteCall(server, tool):
            return {"kind": "remote", "server": server, "tool": tool}
        case StartAgent(profile):
            return {"kind": "agent", "profile": profile}


def _path_effect(kind: str, path: str, recursive: bool) -> dict[str, object]:
    shown: dict[str, object] = {"kind": kind, "path": path}
    return shown | ({"recursive": True} if recursive else {})
