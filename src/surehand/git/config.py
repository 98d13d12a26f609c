"""git's configuration as git reads it; git itself is never run.

A repository's own configuration can name programs. Here it is only read: sections, quotes, comments, continued lines,
`include.path`, `includeIf` for a repository's place (`gitdir:`), branch (`onbranch:`) or remotes (`hasconfig:`), and
what the environment adds (`GIT_CONFIG_COUNT`).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.git.wildmatch import translate

READ_LIMIT: Final = 100 << 20
"""Bytes of an ignore or configuration file; git stops at the same size."""
_CONFIG_LIMIT: Final = 1 << 20
_INCLUDES: Final = 10
_NUMBERED: Final = 1000
"""Settings taken from the environment."""
_BLANKS: Final = b" \t\r\n"
"""What git takes for blanks; `\\s` means more."""
_SECTION: Final = lazy_pattern(rb'[ \t\r\n]*\[\s*([A-Za-z0-9.-]+)\s*(?:"((?:[^"\\\n]|\\[^\n])*)")?\s*\]')
_ENTRY: Final = lazy_pattern(
    rb"[ \t\r\n]*([A-Za-z][A-Za-z0-9-]*)[ \t]*"
    rb'(?:=[ \t]*((?:[^\\\n"#;]|\\\r?\n|\\[^\n]|"(?:[^"\\\n]|\\\r?\n|\\[^\n])*")*))?[^\n]*(?:\n|\Z)'
)
_CONDITION: Final = lazy_pattern(
    rb"includeif\.(gitdir|gitdir/i|onbranch|hasconfig:remote\.\*\.url):(.*)\.path", re.DOTALL
)
_TRUE: Final = frozenset({b"true", b"yes", b"on"})


def read_plain(path: bytes, limit: int = READ_LIMIT, *, follow: bool = True, beginning: bool = False) -> bytes | None:
    """Return the bytes of a regular file, or None for anything else: missing, a FIFO, a link not to follow.

    Of a file beyond the limit that is nothing, or its `beginning`.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    try:
        fd = os.open(path, flags)
    except (OSError, ValueError):
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or (status.st_size > limit and not beginning):
            return None
        return os.read(fd, min(status.st_size, limit))
    except OSError:
        return None
    finally:
        os.close(fd)


def is_true(value: bytes) -> bool:
    """Return whether a value says yes: a word for it, or a number other than zero."""
    return value.lower() in _TRUE or (value.isdigit() and int(value) != 0)


def config_home() -> bytes:
    """Return the folder of the user's configuration files."""
    return os.environb.get(b"XDG_CONFIG_HOME") or os.path.expanduser(b"~/.config")


def settings_of(git_dir: bytes | None, shared: bytes = b"") -> dict[bytes, bytes]:
    """Return `section.key` → value as they hold in a repository (outside one: None), by git's order of files."""
    return dict(_Reading(git_dir, shared).entries())


def user_files() -> list[bytes]:
    """Return the system's and the user's configuration files: what comes later counts."""
    environment = os.environb
    files: list[bytes] = []
    if not is_true(environment.get(b"GIT_CONFIG_NOSYSTEM", b"")):
        files.append(environment.get(b"GIT_CONFIG_SYSTEM") or b"/etc/gitconfig")
    if (chosen := environment.get(b"GIT_CONFIG_GLOBAL")) is not None:
        files.append(chosen)
    else:
        files += [os.path.join(config_home(), b"git", b"config"), os.path.expanduser(b"~/.gitconfig")]
    return files


def _from_environment() -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values that the environment numbers; they count more than any file."""
    number = os.environb.get(b"GIT_CONFIG_COUNT", b"")
    for at in range(min(int(number), _NUMBERED) if number.isdigit() else 0):
        section, _, rest = os.environb.get(b"GIT_CONFIG_KEY_%d" % at, b"").partition(b".")
        subsection, dot, key = rest.rpartition(b".")
        yield section.lower() + b"." + subsection + dot + key.lower(), os.environb.get(b"GIT_CONFIG_VALUE_%d" % at, b"")


class _Reading:
    """One reading of the configuration, of which the conditions of `includeIf` are asked."""

    __slots__ = ("_git_dir", "_shared", "_urls")

    def __init__(self, git_dir: bytes | None, shared: bytes) -> None:
        self._git_dir = git_dir
        self._shared = shared
        self._urls: list[bytes] | None = None

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key and value; what comes later counts."""
        git_dir, of_worktree = self._git_dir, b""
        for file in [*user_files(), *([] if git_dir is None else [os.path.join(self._shared, b"config")])]:
            for key, value in self._of_file(file):
                of_worktree = value if key == b"extensions.worktreeconfig" else of_worktree
                yield key, value
        if git_dir is not None and is_true(of_worktree):
            yield from self._of_file(os.path.join(git_dir, b"config.worktree"))
        yield from _from_environment()

    def _of_file(self, file: bytes, depth: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """Yield what a file says, what included files say where they are named."""
        for key, value in _parse_config(read_plain(file, _CONFIG_LIMIT) or b""):
            if key == b"include.path" or ((asked := _CONDITION.fullmatch(key)) and self._holds(asked, file)):
                if depth < _INCLUDES:
                    named = os.path.join(os.path.dirname(file), os.path.expanduser(value))
                    yield from self._of_file(named, depth + 1)
            else:
                yield key, value

    def _holds(self, asked: re.Match[bytes], file: bytes) -> bool:
        """Return whether the condition of an `includeIf` holds."""
        kind, pattern, git_dir = asked[1], asked[2], self._git_dir
        if kind.startswith(b"hasconfig"):
            return any(_fits(pattern, url, False) for url in self._remotes())
        if git_dir is None:
            return False
        pattern += b"**" if pattern.endswith(b"/") else b""
        if kind == b"onbranch":
            head = read_plain(os.path.join(git_dir, b"HEAD"), 4096) or b""
            branch = re.match(rb"ref:\s*refs/heads/(.*?)\s*\Z", head, re.DOTALL)
            return branch is not None and _fits(pattern, branch[1], False)
        if pattern.startswith(b"./"):
            pattern = os.path.dirname(os.path.realpath(file)) + pattern[1:]
        pattern = os.path.expanduser(pattern)
        pattern = pattern if pattern.startswith(b"/") else b"**/" + pattern
        places = (os.path.realpath(git_dir), git_dir)
        return any(_fits(pattern, place, kind == b"gitdir/i") for place in places)

    def _remotes(self) -> list[bytes]:
        """Return the addresses of all remotes; a file that is included because of one may not name others."""
        if self._urls is None:
            self._urls = []
            self._urls = [
                value for key, value in self.entries() if key.startswith(b"remote.") and key.endswith(b".url")
            ]
        return self._urls


def _fits(pattern: bytes, text: bytes, fold: bool) -> bool:
    expression = translate(pattern, pathname=True, fold=fold)
    return expression is not None and re.fullmatch(expression, text, re.DOTALL) is not None


@frozen
class Entry:
    """One setting in a file: its key, its value, and the bytes it is written in."""

    key: bytes
    """Section and name in lower case, what stands between them as it is."""
    value: bytes
    begin: int
    end: int


@lru_cache(maxsize=64)
def entries(data: bytes) -> tuple[tuple[Entry, ...], bool]:
    """Return every setting in order, and whether git would read the file to its end without a fault.

    Where git would refuse, what can be read is returned all the same. With a NUL in it a file counts as one of these:
    git goes on reading, but takes a key or a value to end there.
    """
    found: list[Entry] = []
    section, at, whole = b"", 3 if data.startswith(b"\xef\xbb\xbf") else 0, b"\0" not in data
    while at < len(data):
        if header := _SECTION.match(data, at):
            inner = b"" if header[2] is None else b"." + re.sub(rb"\\(.)", rb"\1", header[2], flags=re.DOTALL)
            section = header[1].lower() + inner
            at = header.end()
        elif entry := _ENTRY.match(data, at):
            value = b"true" if entry[2] is None else _value(entry[2])
            found.append(Entry(section + b"." + entry[1].lower(), value, entry.start(1), entry.end()))
            at = entry.end()
        else:  # a comment, an empty line, or what git would refuse
            end = data.find(b"\n", at) + 1 or len(data)
            whole = whole and data[at:end].lstrip(_BLANKS)[:1] in (b"", b"#", b";")
            at = end
    return tuple(found), whole


def _parse_config(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    return ((each.key, each.value) for each in entries(data)[0])


def _value(text: bytes) -> bytes:
    """Return a value without its quotes, escapes and the blanks after it."""
    result, quoted, at = bytearray(), False, 0
    end = 0
    while at < len(text):
        byte = text[at : at + 1]
        if byte == b'"':
            quoted = not quoted
        elif byte == b"\\":
            at += 1
            letter = text[at : at + 1]
            if letter == b"\r" and text[at + 1 : at + 2] == b"\n":
                at += 1
                letter = b"\n"
            result += {b"n": b"\n", b"t": b"\t", b"b": b"\b", b"\n": b""}.get(letter, letter)
            end = len(result)
        else:
            result += byte
            end = len(result) if quoted or byte not in _BLANKS else end
        at += 1
    return bytes(result[:end])


# Variables for reads: under them git starts no program of the repository's and reaches nobody.
#
# They switch off what a repository can set for itself and what can be switched off from outside. What cannot (filters,
# text conversions, settings of repositories inside) is asked about by the model instead.

_SETTINGS: Final = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "protocol.allow": "never",
}
_VARIABLES: Final = {
    # `git diff` refreshes the index, locks or not, and runs `post-index-change` after it.
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",  # unlike settings, this holds in submodules too
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
}


def number_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that give git these settings."""
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (key, value) in enumerate(settings.items()):
        numbered |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return numbered


def only_reading(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the variables under which git only reads, with some settings more."""
    return {**_VARIABLES, **number_settings({**_SETTINGS, **settings})}


_OWN_SETTINGS: Final = {
    **_SETTINGS,
    "core.editor": "true",
    "core.sshCommand": "false",
    "commit.gpgSign": "false",
    "credential.helper": "",
    "submodule.recurse": "false",
    "status.submoduleSummary": "false",
    "diff.submodule": "short",
}
OWN_WORDS: Final = (
    "--no-pager",
    *(word for key, value in _OWN_SETTINGS.items() for word in ("-c", f"{key}={value}")),
)
"""What stands before the subcommand wherever Surehand runs git itself."""
OWN_VARIABLES: Final = {**_VARIABLES, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
