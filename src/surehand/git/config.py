"""Parses git's configuration without running git.

Supports sections, quotes, comments, continued lines, `include.path`, `includeIf` with `gitdir:`, `onbranch:` and
`hasconfig:`, and settings from the environment (`GIT_CONFIG_COUNT`).
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
"""Limit on the size of an ignore file in bytes, the same as git's."""
_CONFIG_LIMIT: Final = 1 << 20
_INCLUDES: Final = 10
_NUMBERED: Final = 1000
"""Limit on settings from the environment."""
_BLANKS: Final = b" \t\r\n"
"""git's whitespace; `\\s` matches more."""
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
    """Return the bytes of a regular file; None for anything else (missing, a FIFO, a link that is not followed).

    For a file larger than the limit, None, or with `beginning` its first bytes.
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
    """Return whether a value is true to git: `true`, `yes`, `on` or a number other than zero."""
    return value.lower() in _TRUE or (value.isdigit() and int(value) != 0)


def config_home() -> bytes:
    """Return the directory of the user's configuration files."""
    return os.environb.get(b"XDG_CONFIG_HOME") or os.path.expanduser(b"~/.config")


def settings_of(git_dir: bytes | None, shared: bytes = b"") -> dict[bytes, bytes]:
    """Return the effective settings, `section.key` → value, of a repository, or outside of one (None)."""
    return dict(_ConfigReader(git_dir, shared).entries())


def user_files() -> list[bytes]:
    """Return the system's and the user's configuration files; later ones override earlier ones."""
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
    """Yield the settings of `GIT_CONFIG_KEY_<n>`, which override all files."""
    number = os.environb.get(b"GIT_CONFIG_COUNT", b"")
    for at in range(min(int(number), _NUMBERED) if number.isdigit() else 0):
        section, _, rest = os.environb.get(b"GIT_CONFIG_KEY_%d" % at, b"").partition(b".")
        subsection, dot, key = rest.rpartition(b".")
        yield section.lower() + b"." + subsection + dot + key.lower(), os.environb.get(b"GIT_CONFIG_VALUE_%d" % at, b"")


class _ConfigReader:
    """One pass over the configuration, which evaluates the conditions of `includeIf`."""

    __slots__ = ("_git_dir", "_shared", "_urls")

    def __init__(self, git_dir: bytes | None, shared: bytes) -> None:
        self._git_dir = git_dir
        self._shared = shared
        self._urls: list[bytes] | None = None

    def entries(self) -> Iterator[tuple[bytes, bytes]]:
        """Yield every key and value; later ones override earlier ones."""
        git_dir, of_worktree = self._git_dir, b""
        for file in [*user_files(), *([] if git_dir is None else [os.path.join(self._shared, b"config")])]:
            for key, value in self._file_entries(file):
                of_worktree = value if key == b"extensions.worktreeconfig" else of_worktree
                yield key, value
        if git_dir is not None and is_true(of_worktree):
            yield from self._file_entries(os.path.join(git_dir, b"config.worktree"))
        yield from _from_environment()

    def _file_entries(self, file: bytes, depth: int = 0) -> Iterator[tuple[bytes, bytes]]:
        """Yield the settings of a file, with those of included files in their place."""
        for key, value in _parse_config(read_plain(file, _CONFIG_LIMIT) or b""):
            if key == b"include.path" or ((asked := _CONDITION.fullmatch(key)) and self._condition_holds(asked, file)):
                if depth < _INCLUDES:
                    named = os.path.join(os.path.dirname(file), os.path.expanduser(value))
                    yield from self._file_entries(named, depth + 1)
            else:
                yield key, value

    def _condition_holds(self, asked: re.Match[bytes], file: bytes) -> bool:
        """Return whether the condition of an `includeIf` holds."""
        kind, pattern, git_dir = asked[1], asked[2], self._git_dir
        if kind.startswith(b"hasconfig"):
            return any(_fits(pattern, url, False) for url in self._remote_urls())
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

    def _remote_urls(self) -> list[bytes]:
        """Return the URLs of all remotes; files included on that condition may not define remotes."""
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
    """A setting in a file: key, value and byte range."""

    key: bytes
    """Section and name in lower case; the subsection as written."""
    value: bytes
    begin: int
    end: int


@lru_cache(maxsize=64)
def entries(data: bytes) -> tuple[tuple[Entry, ...], bool]:
    """Return every setting in order, and whether git would parse the whole file without an error.

    Settings after an error are returned, too. A file with a NUL counts as erroneous: git goes on, but ends a key or
    value there.
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
        else:  # a comment, an empty line, or a syntax error
            end = data.find(b"\n", at) + 1 or len(data)
            whole = whole and data[at:end].lstrip(_BLANKS)[:1] in (b"", b"#", b";")
            at = end
    return tuple(found), whole


def _parse_config(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    return ((each.key, each.value) for each in entries(data)[0])


def _value(text: bytes) -> bytes:
    """Decode a value: undo quotes and escapes, strip trailing whitespace."""
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


# Variables for reading commands: with them git runs no program of the repository and opens no connection.
#
# They override those settings of a repository that can be overridden from outside. `git.model` asks about the others
# (filters, text conversions, settings of nested repositories).

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
    "GIT_ALLOW_PROTOCOL": "none",  # unlike settings, also applies in submodules
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
}


def number_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables that pass these settings to git."""
    numbered = {"GIT_CONFIG_COUNT": str(len(settings))}
    for at, (key, value) in enumerate(settings.items()):
        numbered |= {f"GIT_CONFIG_KEY_{at}": key, f"GIT_CONFIG_VALUE_{at}": value}
    return numbered


def only_reading(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables for reading commands, with additional settings."""
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
"""Options before the subcommand wherever Surehand runs git itself."""
OWN_VARIABLES: Final = {**_VARIABLES, "GIT_CONFIG_NOSYSTEM": "1", "LC_ALL": "C"}
