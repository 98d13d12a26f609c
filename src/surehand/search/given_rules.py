"""The ignore rules of a whole tree as one list for `rg`, where it would read one of its files otherwise than git.

`rg` then reads no `.gitignore` itself. The list may leave out too little, never too much: what `rg` finds is judged
again by git's rules. So a rule that ignores and that `rg` would misread is simply not given to it; one that takes
something back must be, and where it cannot there is no list.

Every rule counts from the folder of its file. In one list it is written from the root, weaker files first, so that as
in git the last rule that fits decides.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import Final

from surehand.core.patterns import lazy_pattern
from surehand.search.gitignore import Rule, Rules, rg_agrees
from surehand.search.ignore_files import Folder

RULES_LIMIT: Final = 1000
"""Rules in one list: `rg` compiles them all, and compares each path with all of them."""
_TITLE: Final = b"# the rules of the whole tree"
"""A list is never empty, not even one without rules: an empty one would mean that there is none."""
_PLAIN_FOLDER: Final = lazy_pattern(rb"[\w.@%+=:,~/-]*", re.ASCII)


def combine(top: Folder, files: Sequence[tuple[bytes, Rules]]) -> bytes | None:
    """Return the rules in force in `top` and those of files below it (by the path of their folder from there).

    None where no such list can be made.
    """
    above = [line for rules, skip in reversed(top.chain) for line in _from_above(rules, top.prefix[skip:])]
    below = [line for folder, rules in sorted(files, key=_depth) for line in _from_below(rules, folder)]
    lines = [*above, *below]
    if top.fold or len(lines) > RULES_LIMIT or None in lines or not hasattr(os, "memfd_create"):
        return None
    return b"\n".join([_TITLE, *filter(None, lines), b""])


def _depth(file: tuple[bytes, Rules]) -> int:
    return file[0].count(b"/")


def _from_above(rules: Rules, path: bytes) -> Iterator[bytes | None]:
    """Yield the rules of a file of this folder or of one above it, `path` folders higher."""
    for rule in rules.rules:
        anchored = bool(path) and not rule.by_name
        yield _write(rule, b"" if rule.by_name else b"/") if not anchored else _leave_out(rule)


def _from_below(rules: Rules, folder: bytes) -> Iterator[bytes | None]:
    """Yield the rules of a file in a folder below (its path with a slash at its end)."""
    plain = _PLAIN_FOLDER.fullmatch(folder) is not None
    for rule in rules.rules:
        yield _write(rule, b"/" + folder + (b"**/" if rule.by_name else b"")) if plain else _leave_out(rule)


def _write(rule: Rule, beginning: bytes) -> bytes | None:
    if not rg_agrees(rule.text):
        return _leave_out(rule)
    body = beginning + rule.pattern.removeprefix(b"/")
    return (b"!" if rule.negated else b"") + body + (b"/" if rule.only_folders else b"")


def _leave_out(rule: Rule) -> bytes | None:
    return None if rule.negated else b""


def hold_open(lines: bytes) -> int:
    """Return a descriptor that `rg` can read the list from."""
    fd = os.memfd_create("ignore-rules")
    try:
        os.write(fd, lines)
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd
