"""Where a git repository begins and what its configuration says about ignored files; git itself is never run.

A repository's own configuration can name programs. Only two plain values are read here, `core.excludesFile` and
`core.ignoreCase`, by a reader that knows sections, quotes, comments and `include.path`, and nothing that runs.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from holdfast.core.frozen import frozen
from holdfast.core.secrets import is_secret

READ_LIMIT: Final = 100 << 20
"""Bytes of an ignore or configuration file; git stops at the same size."""
_CONFIG_LIMIT: Final = 1 << 20
_INCLUDES: Final = 10
_SECTION: Final = re.compile(rb'\s*\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\]|\\.)*)")?\s*\]')
_ENTRY: Final = re.compile(rb"\s*([A-Za-z][A-Za-z0-9-]*)\s*(?:=\s*(.*))?$")
_TRUE: Final = frozenset({b"true", b"yes", b"on", b"1"})


@frozen
class Repository:
    """The parts of a repository that say what is ignored."""

    top: bytes
    git_dir: bytes
    exclude: bytes
    """`.git/info/exclude`; it need not exist."""
    excludes_file: bytes | None
    """The user's own ignore file, `core.excludesFile` or git's default; it need not exist."""
    ignore_case: bool


def find_repository(folder: bytes) -> Repository | None:
    """Return the repository `folder` (absolute) lies in, or None."""
    while True:
        git_dir = git_dir_of(folder)
        if git_dir is not None:
            return _repository(folder, git_dir)
        parent = os.path.dirname(folder)
        if parent == folder:
            return None
        folder = parent


def git_dir_of(folder: bytes) -> bytes | None:
    """Return the git folder when `folder` is the top of a repository or a worktree."""
    git = os.path.join(folder, b".git")
    try:
        status = os.stat(git)
    except OSError:
        return None
    if stat.S_ISDIR(status.st_mode):
        return git if os.path.exists(os.path.join(git, b"HEAD")) else None
    pointer = read_plain(git, 4096) or b""
    if not pointer.startswith(b"gitdir:"):
        return None
    return os.path.normpath(os.path.join(folder, pointer[7:].strip()))


def read_plain(path: bytes, limit: int = READ_LIMIT, *, follow: bool = True) -> bytes | None:
    """Return the bytes of a regular file, or None for anything else: missing, a FIFO, a link not to follow."""
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        with open(fd, "rb", closefd=False) as file:
            return file.read(limit)
    except OSError:
        return None
    finally:
        os.close(fd)


def user_excludes_file(settings: dict[bytes, bytes] | None = None) -> bytes | None:
    """Return the user's ignore file for places outside a repository, or for the `settings` of one."""
    settings = _user_settings() if settings is None else settings
    chosen = settings.get(b"core.excludesfile")
    if chosen is not None:
        path = os.path.expanduser(chosen)
        return None if not path or is_secret(os.fsdecode(path)) else path
    return os.path.join(_config_home(), b"git", b"ignore")


def _repository(top: bytes, git_dir: bytes) -> Repository:
    common = (read_plain(os.path.join(git_dir, b"commondir"), 4096) or b"").strip()
    shared = os.path.normpath(os.path.join(git_dir, common)) if common else git_dir
    settings = _user_settings() | dict(_entries(os.path.join(shared, b"config")))
    excludes_file = user_excludes_file(settings)
    return Repository(
        top=top,
        git_dir=git_dir,
        exclude=os.path.join(shared, b"info", b"exclude"),
        excludes_file=os.path.join(top, excludes_file) if excludes_file else None,
        ignore_case=settings.get(b"core.ignorecase", b"").lower() in _TRUE,
    )


def _config_home() -> bytes:
    return os.environb.get(b"XDG_CONFIG_HOME") or os.path.expanduser(b"~/.config")


def _user_settings() -> dict[bytes, bytes]:
    """Return the system's and the user's configuration, in git's order: what comes later counts."""
    environment = os.environb
    files: list[bytes] = []
    if environment.get(b"GIT_CONFIG_NOSYSTEM", b"").lower() not in _TRUE:
        files.append(environment.get(b"GIT_CONFIG_SYSTEM") or b"/etc/gitconfig")
    if (chosen := environment.get(b"GIT_CONFIG_GLOBAL")) is not None:
        files.append(chosen)
    else:
        files += [os.path.join(_config_home(), b"git", b"config"), os.path.expanduser(b"~/.gitconfig")]
    return {key: value for file in files for key, value in _entries(file)}


def _entries(file: bytes, depth: int = 0) -> Iterator[tuple[bytes, bytes]]:
    """Yield `section.key` and value of a configuration file, those of included files where they are named."""
    for key, value in _parsed(read_plain(file, _CONFIG_LIMIT) or b""):
        if key == b"include.path" and depth < _INCLUDES:
            yield from _entries(os.path.join(os.path.dirname(file), os.path.expanduser(value)), depth + 1)
        else:
            yield key, value


@lru_cache(maxsize=64)
def _parsed(data: bytes) -> tuple[tuple[bytes, bytes], ...]:
    """Return every `section.key` and value in order; read once as long as the bytes stay the same."""
    section = b""
    found: list[tuple[bytes, bytes]] = []
    for line in _logical_lines(data):
        header = _SECTION.match(line)
        if header:
            section = header[1].lower() + (b"." + header[2] if header[2] is not None else b"")
            line = line[header.end() :]
        entry = _ENTRY.match(line)
        if not entry:
            continue
        found.append((section + b"." + entry[1].lower(), _value(entry[2]) if entry[2] is not None else b"true"))
    return tuple(found)


def _logical_lines(data: bytes) -> Iterator[bytes]:
    pending = b""
    for line in data.removeprefix(b"\xef\xbb\xbf").replace(b"\r\n", b"\n").split(b"\n"):
        pending += line
        if pending.endswith(b"\\") and not pending.endswith(b"\\\\"):
            pending = pending[:-1]
            continue
        yield pending
        pending = b""
    if pending:
        yield pending


def _value(text: bytes) -> bytes:
    """Return a value without its quotes, escapes and comment."""
    result, quoted, at = bytearray(), False, 0
    end = 0
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b'"':
            quoted = not quoted
        elif byte == b"\\":
            at += 1
            result += {b"n": b"\n", b"t": b"\t", b"b": b"\b"}.get(text[at : at + 1], text[at : at + 1])
            end = len(result)
        elif byte in b"#;" and not quoted:
            break
        else:
            result += byte
            end = len(result) if quoted or not byte.isspace() else end
        at += 1
    return bytes(result[:end])
