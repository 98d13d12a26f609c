"""Effects of a command, found in its words: files read, written and deleted, hosts reached.

Words are turned into *touches* first (a kind and a word); `locate` then makes paths of them in every directory the
command may run in. A path that cannot be known is `Unreadable`, never left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from surehand.core.effects import Connect, DeletePath, Effect, ReadPath, Unreadable, WritePath
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern
from surehand.shell import globs
from surehand.shell.programs import program_of
from surehand.shell.programs.record import Program
from surehand.shell.scope import Directories
from surehand.shell.touches import Touch
from surehand.shell.word import Word

_MAKERS: dict[str, Callable[[str, bool], Effect]] = {"read": ReadPath, "write": WritePath, "delete": DeletePath}

# Descriptors and sinks: writing to them leaves nothing behind, reading from them is reading what is at hand.
# A process substitution stands for `/dev/fd/63`; what else is open beyond the first three is some file.
STREAMS = lazy_pattern(
    r"/dev/(?:null|stdin|stdout|stderr|fd/(?:[012]|63)|zero|full|random|urandom)|/proc/self/fd/[012]"
)


def known_words(command: str) -> bool:
    """Tell whether the words of a command are understood to the last one, so that what they reach is all stated."""
    return _record_of(command.rpartition("/")[2]).touches is not None


def touches(name: str, words: Sequence[Word]) -> Iterator[Touch]:
    """Yield what the command with this name does to files and hosts, as far as its words tell."""
    known = _record_of(name).touches
    if known is not None:
        yield from known(words)


def _record_of(name: str) -> Program:
    return program_of("mkfs" if name.startswith("mkfs.") else name)


def locate(touch: Touch, directories: Directories) -> Iterator[Effect]:
    """Yield the effects of one touch in each directory the command may run in."""
    word = touch.word
    if touch.kind == "connect":
        yield from _connection(word)
        return
    if word.kind == "opaque":
        yield Unreadable(f"a path is not literal: {word.text}")
        return
    make = _MAKERS[touch.kind]
    absolute = (word.path or word.text).startswith("/")
    for directory in directories[:1] if absolute else directories:
        if directory is None and not absolute:
            yield Unreadable(f"the directory that {word.text!r} is relative to is not known")
            continue
        paths = list(_paths(word, directory or "/", touch))
        if word.kind == "glob" and word.many == "split" and any(_BLANK.search(path) for path, _ in paths):
            yield Unreadable(f"names that {word.text!r} finds hold blanks, at which they would be split")
        for path, below in paths:
            if not STREAMS.fullmatch(path) and not (touch.if_there and not os.path.lexists(path)):
                yield make(path, touch.recursive or below)
                yield from (make(link, False) for link in (globs.links_out_of(path) if touch.follows else ()))


def _paths(word: Word, directory: str, touch: Touch) -> Iterator[tuple[str, bool]]:
    text = word.path or word.text
    if word.literal:
        yield os.path.join(directory, text) if text not in (".", "") else directory, False
        return
    if "/**" in text:
        root = text.partition("/**")[0]
        yield directory if root == "." else os.path.join(directory, root or "/"), True
        return
    yield from globs.matches(directory, text, everything=touch.kind == "delete" and touch.recursive)


def _connection(word: Word) -> Iterator[Effect]:
    if word.kind != "literal":
        yield Unreadable(f"a host is not literal: {word.text}")
        return
    host, port, url = host_of(word.text)
    if host:
        yield Connect(host, port, url)
    authority = _authority(word.text)
    if not host or _DOUBTFUL_HOST.search(authority):
        other = host_of(authority.rpartition("@")[2])[0]
        yield from [Connect(other)] if other not in ("", host) else ()
        yield Unreadable(f"programs may read another host out of {word.text!r}")


# `http:/host` and `http:///host` reach that host as well. Without a known name before the colon it is `host:path`.
_SCHEME = lazy_pattern(r"(?:[A-Za-z][\w+.-]*://+|(?:https?|ftps?|wss?):/*|//+)", re.IGNORECASE)
# Escapes, lists and ranges are undone by some programs; what stands before an `@` may be read as the host or as a name.
_DOUBTFUL_HOST = lazy_pattern(r"[\\%{}]|[?#].*@|.\[|\A\[(?![0-9a-fA-F:.]+(?:%\w+)?\])")


def _authority(text: str) -> str:
    scheme = _SCHEME.match(text)
    return text[scheme.end() if scheme else 0 :].partition("/")[0]


def host_of(text: str) -> tuple[str, int | None, str]:
    """Return host, port and URL of `https://host:8/x`, `user@host`, `host:path` or `host`."""
    url = text if text.lower().startswith(("http://", "https://")) else ""
    authority = re.split(r"[?#\\]", _authority(text), maxsplit=1)[0].rpartition("@")[2]
    bracketed = re.match(r"\[([^\]]+)\](?::(\d+))?", authority)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    else:
        host, _, port = authority.partition(":")
    return host.lower().rstrip("."), int(port) if port and port.isdigit() else None, url


def guess_touches(words: Sequence[Word]) -> Iterator[Touch]:
    """Yield reads of the words that look like paths, for a program nobody knows."""
    for word in words:
        text = word.text.partition("=")[2] if word.text.startswith("--") and "=" in word.text else word.text
        if word.literal and _PATH_LIKE.match(text) and "\n" not in text:
            yield Touch("read", Word(text))
        elif word.kind == "glob" and "/" in text:
            yield Touch("read", word)


def secrets_named(words: Sequence[Word], known: Sequence[Touch]) -> Iterator[Touch]:
    """Yield reads of secret files that stand anywhere among the words of a command that is no plain read.

    `-b .env`, `--from-file=id_rsa`, `x@server.key`, `/srv/.env:/x`: which option takes a file is not known of every
    program. A name that no file has may be meant otherwise (`make server.key`).
    """
    taken = {touch.word.text for touch in known if touch.kind != "connect"}
    for word in words:
        if word.literal and word.text not in taken and not _BLANK.search(word.text):
            for part in dict.fromkeys((word.text, *_PART_ENDS.split(word.text))):
                if part and is_secret(part):
                    yield Touch("read", Word(part), if_there=True)


_BLANK = lazy_pattern(r"\s")
_PART_ENDS = lazy_pattern(r"[=@:,<]")
_PATH_LIKE = lazy_pattern(r"(?:\.{0,2}/|\.[A-Za-z])[^\s:;|&<>(){}'\"$*]*$|[\w.-]+/[^\s:;|&<>(){}'\"$*]*$")
