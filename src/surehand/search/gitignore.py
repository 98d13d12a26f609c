"""The rules of `.gitignore`: what a line of an ignore file means, and which line decides about a path.

    rules = Rules(b"*.log\\n!keep.log\\n", ".gitignore")
    rules.decide(b"keep.log", b"keep.log", is_dir=False)     # Rule(line=2, pattern=b"!keep.log", negated=True, ...)

Within one file the last line that fits decides; `search/ignore_files.py` puts the files of a tree together.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.git.wildmatch import literal_length, translate

_BOM: Final = b"\xef\xbb\xbf"
KNOWN_LIMIT: Final = 1 << 14
"""Names of which a file of rules remembers what it says about them."""


@frozen
class Rule:
    """One line of an ignore file that means something."""

    source: str
    line: int
    text: bytes
    """The line as written, without its end and without blanks that do not count."""
    pattern: bytes
    """What is compared: without `!`, without the slash that makes it a rule for folders."""
    negated: bool
    only_folders: bool
    by_name: bool
    """No slash inside: compared with the last name, at any depth."""


def parse(data: bytes, source: str) -> list[Rule]:
    """Return the rules of an ignore file, in order."""
    lines = data.removeprefix(_BOM).split(b"\n")
    parsed = (_rule(line, source, number) for number, line in enumerate(lines, 1))
    return [rule for rule in parsed if rule is not None]


def _rule(line: bytes, source: str, number: int) -> Rule | None:
    text = parse_line(line)
    if not text or text.startswith(b"#"):
        return None
    negated = text.startswith(b"!")
    pattern = text[negated:]
    only_folders = pattern.endswith(b"/")
    pattern = pattern[: len(pattern) - only_folders]
    if not pattern.strip(b"/"):
        # git keeps such a rule, and so a blank line with a CR says that any `name/` asked about is ignored; the
        # listing, the status and `name` itself know nothing of it.
        return None
    return Rule(source, number, text, pattern, negated, only_folders, b"/" not in pattern)


def parse_line(line: bytes) -> bytes:
    """Return what counts of a line: without its end, and without blanks after it."""
    return _without_blanks(line.removesuffix(b"\r").partition(b"\0")[0])


def _without_blanks(text: bytes) -> bytes:
    """Drop spaces at the end unless a backslash keeps them; tabs stay, as git has it."""
    end, at = 0, 0
    while at < len(text):
        if text[at] == 0x5C:
            if at + 1 >= len(text):
                return text
            at += 1
            end = at + 1
        elif text[at] != 0x20:
            end = at + 1
        at += 1
    return text[:end]


def name_expression(rule: Rule, fold: bool) -> bytes | None:
    """Return the expression of a rule for names."""
    return translate(rule.pattern, pathname=False, fold=fold)


def path_expression(rule: Rule, fold: bool) -> bytes | None:
    """Return the expression of a rule for paths, relative to the folder of its file."""
    pattern = rule.pattern.removeprefix(b"/")
    literal = literal_length(pattern)
    # git compares the plain beginning first and matches the rest alone, so `a**/b` finds `ab` too.
    rest = translate(pattern[literal:], pathname=True, fold=fold)
    plain = translate(re.sub(rb"([*?\[\\])", rb"\\\1", pattern[:literal]), pathname=True, fold=fold)
    return None if rest is None or plain is None else plain + rest


class Rules:
    """The rules of one ignore file, ready to decide fast.

    Most rules are a plain name or `*.ending`: those are looked up. The others become one expression, the last rule
    first, so that the first alternative that fits is the rule that decides.
    """

    __slots__ = ("_for_files", "_for_folders", "last_names", "rg_agrees", "rules", "source")

    def __init__(self, data: bytes, source: str, *, fold: bool = False) -> None:
        self.source = source
        self.rg_agrees = all(map(rg_agrees, data.removeprefix(_BOM).split(b"\n")))
        """Whether `rg` reads every line of this file as git does."""
        self.rules = parse(data, source)
        self.last_names = _last_names(self.rules, fold)
        """The names whose path matters too; None when that can be any name's."""
        self._for_folders = _Table(self.rules, fold)
        self._for_files = _Table([rule for rule in self.rules if not rule.only_folders], fold)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def decide(self, name: bytes, path: bytes, is_dir: bool) -> Rule | None:
        """Return the rule that decides about an entry, if any; `path` is relative to the folder of this file."""
        return (self._for_folders if is_dir else self._for_files).find(name, path)


def _last_names(rules: list[Rule], fold: bool) -> frozenset[bytes] | None:
    """Return the last names of rules for paths; None when one of them has a wildcard there, or just before it."""
    patterns = [rule.pattern for rule in rules if not rule.by_name]
    names = [pattern.rpartition(b"/")[2] for pattern in patterns]
    # A pattern that ends with a slash (`**//`) would fit the empty path that stands for one that does not matter.
    open_ended = fold or any(not name or literal_length(name) < len(name) for name in names)
    # `a**/b` finds `ab` too.
    return None if open_ended or any(map(_UNBOUNDED.search, patterns)) else frozenset(names)


_UNBOUNDED: Final = lazy_pattern(rb"[^/*]\*\*+/[^/]*\Z")


class _Table:
    """Rules by the way they are found; a rule's place in the file ranks it."""

    __slots__ = ("_endings", "_fold", "_names", "_paths", "_patterns", "_rules", "known")

    def __init__(self, rules: list[Rule], fold: bool) -> None:
        self._rules = rules
        self._fold = fold
        self.known: dict[bytes, int] = {}
        """The ranks of names met before: the same names come again and again."""
        self._names: dict[bytes, int] = {}
        self._endings: dict[bytes, int] = {}
        patterns: list[tuple[int, bytes | None]] = []
        paths: list[tuple[int, bytes | None]] = []
        for rank, rule in enumerate(rules):
            pattern = rule.pattern.lower() if fold else rule.pattern
            if not rule.by_name:
                paths.append((rank, path_expression(rule, fold)))
            elif literal_length(pattern) == len(pattern):
                self._names[pattern] = rank
            elif pattern.startswith(b"*.") and literal_length(pattern[1:]) == len(pattern) - 1:
                self._endings[pattern[1:]] = rank
            else:
                patterns.append((rank, name_expression(rule, fold)))
        self._patterns = _Ranked(patterns) if patterns else None
        self._paths = _Ranked(paths) if paths else None

    def find(self, name: bytes, path: bytes) -> Rule | None:
        # Every entry of a walk comes through here: what cannot apply is not even called.
        best = self.known.get(name)
        if best is None:
            best = self._by_name(name)
        if self._paths is not None and (rank := self._paths.find(path)) > best:
            best = rank
        return self._rules[best] if best >= 0 else None

    def _by_name(self, name: bytes) -> int:
        key = name.lower() if self._fold else name
        best = self._names.get(key, -1)
        dot = key.find(b".") if self._endings else -1
        while dot >= 0:
            best = max(best, self._endings.get(key[dot:], -1))
            dot = key.find(b".", dot + 1)
        if self._patterns is not None:
            best = max(best, self._patterns.find(name))
        if len(self.known) >= KNOWN_LIMIT:
            self.known.clear()
        self.known[name] = best
        return best


class _Ranked:
    """Several expressions in one; finds the highest rank that fits."""

    __slots__ = ("_expression", "_ranks")

    def __init__(self, expressions: Iterable[tuple[int, bytes | None]]) -> None:
        known = [(rank, each) for rank, each in reversed(list(expressions)) if each is not None]
        self._ranks = [rank for rank, _ in known]
        joined = b"|".join(b"(" + each + b")" for _, each in known)
        self._expression = re.compile(joined, re.DOTALL) if known else None

    def find(self, text: bytes) -> int:
        if self._expression is None:
            return -1
        found = self._expression.fullmatch(text)
        return -1 if found is None or found.lastindex is None else self._ranks[found.lastindex - 1]


# Braces, POSIX and unclosed classes, brackets, backslashes and second ranges in a class, stars that touch other
# letters, blanks other than a space, escapes of letters, anything that is not ASCII, a line with nothing to compare.
_OTHERWISE: Final = lazy_pattern(
    rb"[{}\t\r\f\v\x80-\xff]|\\[^#! *?.]|\\\Z|\[:|\[[^\]]*(?:\Z|[\\\[])|\[[^\]]*-[^\]]*-|\[[!^]?\]"
    rb"|[^/]\*\*|\*\*[^/]|//|\A!?/?(?:\*\*)?/?\Z"
)
_RANGE: Final = lazy_pattern(rb"\[[^\]]*?(.)-([^\]])")
_CLASS: Final = lazy_pattern(rb"\[([!^]?)([^\]]+)\]")


def rg_agrees(line: bytes) -> bool:
    """Return whether `rg` reads a line as git does; it knows braces, for one, and reads lines as UTF-8."""
    text = parse_line(line)
    if not text or text.startswith(b"#"):
        return b"\0" not in line
    # A NUL ends the line to git alone, and it alone tells a space that is kept from those after it.
    if b"\0" in line or (text.endswith(b" ") and text != line.removesuffix(b"\r")):
        return False
    ordered = all(low <= high for low, high in _RANGE.findall(text))
    return ordered and _OTHERWISE.search(text) is None and not any(map(_takes_a_slash, _CLASS.finditer(text)))


def _takes_a_slash(found: re.Match[bytes]) -> bool:
    """Return whether a class matches `/` in `rg`: one that holds it, and a negated one between other letters."""
    if not found[1]:
        ranges = _RANGE.findall(found[0])
        return b"/" in found[2] or any(low <= b"/" <= high for low, high in ranges)
    begins = found.string[: found.start()].lstrip(b"!").endswith(b"/") or not found.string[: found.start()].strip(b"!")
    ends = found.string[found.end() : found.end() + 1] in (b"", b"/")
    return not (begins or ends)
