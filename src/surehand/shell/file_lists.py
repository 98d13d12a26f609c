"""Reads whose data names further files: `sha256sum -c SUMS` opens what stands in `SUMS`.

The list is read when the command is judged, and what it names is judged like any other file the command reads. A list
that cannot be read whole, or whose lines are not all understood, makes the command no known read.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator

from surehand.core.secrets import is_secret
from surehand.shell import options
from surehand.shell.found import Found
from surehand.shell.readonly_table import CHECKSUMS, READ_ONLY
from surehand.shell.verdict import Verdict
from surehand.shell.word import Word

_LARGEST = 1 << 20
_MOST_NAMES = 2_000
# `HASH  name` and `HASH *name` of GNU and of shasum, `SHA256 (name) = HASH` of the BSDs and of openssl.
_LINE = re.compile(r"[0-9a-fA-F]{8,} [ *?U^](?P<name>.+)|[A-Za-z][\w/-]* ?\((?P<tagged>.+)\) ?= [\w+/=]+")
_COMMENT = re.compile(r"\s*(?:#.*)?")


def with_listed_files(found: Found, verdict: Verdict) -> Verdict:
    """Return the verdict on a command with the files that its lists name, if it takes any."""
    if verdict.problem or found.name not in CHECKSUMS:
        return verdict
    parsed = options.parse(found.words[1:], options.flags(READ_ONLY[found.name]))
    if not parsed.has("-c", "--check"):
        return verdict
    problem = f"`{found.name} --check` opens what its list names, and that cannot be read beforehand"
    if not parsed.operands or any(not word.literal or word.text == "-" for word in parsed.operands):
        return Verdict(problem, unreadable=True)
    names: dict[str, None] = {}
    for place in found.places:
        for word in parsed.operands:
            listed = None if place is None else _names_in(os.path.join(place, os.path.expanduser(word.text)))
            if listed is None or len(names) + len(listed) > _MOST_NAMES:
                return Verdict(problem, unreadable=True)
            names |= dict.fromkeys(listed)
    verdict.reads = (*verdict.reads, *map(Word, names))
    return verdict


def _names_in(path: str) -> list[str] | None:
    """Return the files a list of checksums names, none where there is no list; None where that cannot be known."""
    if is_secret(path):
        return []  # the list itself is judged, and what is in it is not looked at before
    try:
        status = os.lstat(path)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
            return None
        with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            return list(_parse(file.read(_LARGEST + 1)))
    except FileNotFoundError:
        return []
    except (OSError, ValueError):
        return None


def _parse(text: str) -> Iterator[str]:
    for line in text.split("\n"):
        line = line.removesuffix("\r")
        if _COMMENT.fullmatch(line):
            continue
        found = _LINE.fullmatch(line)
        if found is None:
            raise ValueError(line)
        yield found["name"] or found["tagged"]
