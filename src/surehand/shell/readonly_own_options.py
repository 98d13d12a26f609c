"""Reads by programs that take their options apart in a way of their own, so that a word may mean more than it seems to.

`xxd` heeds the first letter of an option alone (`-ps in out` is `-p`, and writes `out`), `tree` goes on with options
after one whose value is the next word (`-Po x out` writes `out`), `less` after a digit or a dollar sign.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from surehand.shell import options
from surehand.shell.readonly_table import READ_ONLY
from surehand.shell.verdict import Check, Verdict, by_table
from surehand.shell.word import Word


def _by_pattern(name: str, options_known: str) -> Check:
    """Return a check for a program whose options must be written in one of the ways a pattern knows."""
    pattern = re.compile(options_known)

    def check(words: Sequence[Word]) -> Verdict:
        for word in words:
            if word.literal and word.text == "--":
                break
            if word.text.startswith("-") and not (word.text.startswith("--") or pattern.fullmatch(word.text)):
                return Verdict(f"`{name} {word.text}` is not known to only read")
        return by_table(name, words, options.flags(READ_ONLY[name]))

    return check


_XXD_NAMES = {"-ps": "-p", "-plain": "-p", "-postscript": "-p", "-include": "-i", "-bits": "-b", "-autoskip": "-a"}
_xxd_letters = _by_pattern("xxd", r"-|-[abeEipuC]|-[cglnosR](?:[0-9x+-].*)?")


def _xxd(words: Sequence[Word]) -> Verdict:
    return _xxd_letters([Word(_XXD_NAMES.get(word.text, word.text)) if word.literal else word for word in words])


def _pager(name: str) -> Check:
    """Return a check for a program that runs a command given as `+!command`, or typed after a pattern's end."""
    options_of = _by_pattern(name, r"-[A-WYZa-wyz~]*(?:x?\d+(?:,\d+)*|x)?|-p[^$]*")

    def check(words: Sequence[Word]) -> Verdict:
        if any(word.text.startswith("+") or not word.text.isprintable() for word in words):
            return Verdict(f"`{name} +command` runs a command")
        if any(re.match(r"-[A-Za-z~]*[px][A-Za-z]*", word.text) and "$" in word.text for word in words):
            return Verdict(f"`{name}` takes what follows a dollar sign for further options")
        return options_of(words)

    return check


def _ps(words: Sequence[Word]) -> Verdict:
    """Judge `ps`, whose `e` without a dash shows the environment of every process."""
    known = options.flags(READ_ONLY["ps"])
    parsed = options.parse(words, known)
    before = ""
    for word in parsed.operands:
        value = re.fullmatch(r"[A-Za-z]*[oOpqtUkN]", before) is not None
        if not word.literal or (not value and "e" in word.text.lower()):
            return Verdict("`ps e` shows the environment of processes", unreadable=not word.literal)
        before = "" if value else word.text
    if any("env" in word.text.lower() for word in words):
        return Verdict("`ps` may show the environment of processes")
    # The number of a process that is not certain (`ps -p $$`) is one word, and never an option.
    certain = [Word("0") if word.kind == "opaque" and not word.many else word for word in words]
    return by_table("ps", certain, known)


def _without_hosts(name: str, host: str) -> Check:
    """Return a check for a program that looks up the host names in its words."""
    pattern = re.compile(host)

    def check(words: Sequence[Word]) -> Verdict:
        if any(pattern.search(word.text) for word in words):
            return Verdict(f"`{name}` looks a host up")
        return by_table(name, words, options.flags(READ_ONLY[name]))

    return check


def _getfacl(words: Sequence[Word]) -> Verdict:
    if any(word.text == "-" for word in words):
        return Verdict("`getfacl -` takes the names of files from its input")
    return by_table("getfacl", words, options.flags(READ_ONLY["getfacl"]))


OWN_OPTIONS: dict[str, Check] = {
    "xxd": _xxd,
    "tree": _by_pattern("tree", r"-[A-HJKM-OQ-Za-z]*(?:[LPI]|L\d+)?"),
    "less": _pager("less"),
    "more": _pager("more"),
    "getfacl": _getfacl,
    "ps": _ps,
    "ss": _without_hosts("ss", r"[A-Za-z_-]\w*\.|\.[A-Za-z_]"),
    "lsof": _without_hosts("lsof", r"@.*[A-Za-z]"),
}
