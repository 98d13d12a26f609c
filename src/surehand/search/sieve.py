"""A sieve for names: which files of a folder a rule may leave out, found in all of them at once.

Most files of a tree fit no ignore rule and are no secret, and asking every rule about every one of them takes longer
than reading their names. So the rules are made into expressions that fit at least what they fit. These look through
the names of a folder as one text; what they find is judged by the rules themselves, one by one.

A name is looked at in lower case, and of a rule only the part before its first star counts, or the one after its last.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import Final, TypeAlias

from surehand.core.secrets import SECRET_BEGINNINGS, SECRET_ENDINGS, SECRET_NAMES
from surehand.core.text import lazy_pattern
from surehand.git.wildmatch import literal_length
from surehand.search.gitignore import Rule
from surehand.search.ignore_files import Chain, Folder

WORTHWHILE: Final = 700
"""Names met before expressions are made: to compile those of secrets, once, takes as long as to judge so many."""
_FOR_A_RULE: Final = 6
"""The same for each rule."""
CLEAN_LIMIT: Final = 1 << 15
"""Names remembered. Where there are more, most come once, and to remember one takes longer than to look at it."""
_TOKENS: Final = lazy_pattern(rb"\\(.)|(\[[\w.]+\])|(\?|\[[\w.-]+\])|(\*+)|(\[.*)|(.)", re.DOTALL)
_ANY: Final = b"[^/]"
_END: Final = b"(?=/)"
_RUNS_ON: Final = lazy_pattern(rb"[^/*]\*\*+/[^/]*\Z")
Tokens: TypeAlias = tuple[bytes, ...]


class Sieve:
    """Finds the files that may be left out: by one chain of rules, by names and endings, or because they are secret."""

    __slots__ = ("_chain", "_clean", "_expressions", "_left", "_names_and_endings", "_open")

    def __init__(self, chain: Chain, names: Sequence[bytes] = (), endings: Sequence[bytes] = ()) -> None:
        self._chain = chain
        self._names_and_endings = names, endings
        rules = sum(len(rules.rules) for rules, _ in chain)
        self._left = rules * _FOR_A_RULE + (0 if _for_secrets.cache_info().currsize else WORTHWHILE)
        self._expressions: tuple[_Expressions, ...] = ()
        self._clean: set[bytes] = set()
        """Names in which nothing was found: the same ones come again and again."""
        self._open: list[tuple[int, bytes]] = []
        """Folders below which any name may fit a rule: the path from that of the rule, whose length comes first."""

    def find(self, names: Collection[bytes], folder: Folder) -> Collection[bytes]:
        """Return which files of a folder are to be judged one by one."""
        if not self._expressions:
            self._left -= len(names)
            if self._left > 0:
                return names
            self._compile()
        if folder.fold or (self._open and any(folder.prefix.startswith(lead, skip) for skip, lead in self._open)):
            return names
        remembers = len(self._clean) < CLEAN_LIMIT
        if remembers and self._clean.issuperset(names):
            return ()
        unknown = set(names) - self._clean if remembers else names
        written = b"/%b/" % b"/".join(unknown)
        text = written.lower()
        backwards = text[::-1]
        found: set[bytes] = set()
        for each in self._expressions:
            if each.fit(text, backwards):
                found.update(each.find(written, text, backwards))
        if remembers:
            self._clean |= set(unknown) - found
        return found

    def _compile(self) -> None:
        names, endings = self._names_and_endings
        whole, begin, end = {(*_letters(name), _END) for name in names}, set[Tokens](), set(map(_letters, endings))
        inside, opened = set[bytes](), list[tuple[int, bytes]]()
        for rule, skip in ((rule, skip) for rules, skip in self._chain for rule in rules.rules):
            if rule.negated or rule.only_folders:
                continue  # it leaves out no file
            if not rule.by_name and (lead := _open_below(rule)) is not None:
                opened.append((skip, lead))
                continue
            head, tail, middle = _parts(rule.pattern if rule.by_name else rule.pattern.rpartition(b"/")[2])
            if tail is None:
                whole.add((*head, _END))
            elif _is_telling(head):
                begin.add(head)
            elif _is_telling(tail):
                end.add(tail)
            elif middle:
                inside.add(middle)
            else:
                opened.append((skip, b""))
        self._open = opened
        self._expressions = _Expressions(whole | begin, end, inside), _for_secrets()


class _Expressions:
    """What finds names in a text of many, each between slashes: by how they begin, how they end, what is in them."""

    __slots__ = ("_backward", "_forward", "_inside")

    def __init__(self, begin: Iterable[Tokens], end: Iterable[Tokens], inside: Iterable[bytes] = ()) -> None:
        self._forward = _compile(begin)
        self._backward = _compile(tuple(reversed(each)) for each in end)
        parts = sorted(map(re.escape, inside))
        self._inside = re.compile(b"|".join(parts)) if parts else None

    def fit(self, text: bytes, backwards: bytes) -> bool:
        """Whether there is anything to find; mostly there is not."""
        return (
            (self._forward is not None and self._forward.search(text) is not None)
            or (self._backward is not None and self._backward.search(backwards) is not None)
            or (self._inside is not None and self._inside.search(text) is not None)
        )

    def find(self, written: bytes, text: bytes, backwards: bytes) -> Iterator[bytes]:
        """Yield the names, as written, that were found in the text in lower case, or in that read backwards."""
        if self._forward:
            for found in self._forward.finditer(text):
                begin = found.start() + 1
                yield written[begin : written.index(b"/", begin)]
        if self._backward:
            last = len(text) - 1
            for found in self._backward.finditer(backwards):
                end = last - found.start()
                yield written[written.rindex(b"/", 0, end) + 1 : end]
        if self._inside:
            for found in self._inside.finditer(text):
                yield written[written.rindex(b"/", 0, found.start()) + 1 : written.index(b"/", found.start())]


@cache
def _for_secrets() -> _Expressions:
    whole = {(*_letters(name), _END) for name in SECRET_NAMES}
    return _Expressions(whole | set(map(_letters, SECRET_BEGINNINGS)), set(map(_letters, SECRET_ENDINGS)))


def _letters(text: bytes) -> Tokens:
    return tuple(re.escape(text[at : at + 1]) for at in range(len(text)))


def _open_below(rule: Rule) -> bytes | None:
    """Return the folder below which a rule for paths may fit any name; None where it spells the last name out."""
    pattern = rule.pattern.removeprefix(b"/")
    last = pattern.rpartition(b"/")[2]
    # `a**/b` finds `ab` too.
    if last and literal_length(last) == len(last) and _RUNS_ON.search(pattern) is None:
        return None
    return pattern[: literal_length(pattern)].rpartition(b"/")[0]


def _parts(pattern: bytes) -> tuple[Tokens, Tokens | None, bytes]:
    """Return what comes before the first star, what after the last (None: there is no star), and a part between."""
    pieces = list(_pieces(pattern.lower()))
    middle = max((_plain(piece) for piece in pieces[1:-1]), key=len, default=b"")
    return pieces[0], pieces[-1] if len(pieces) > 1 else None, middle


def _pieces(pattern: bytes) -> Iterator[Tokens]:
    """Yield the parts between stars; a class that is not simple, with all that follows, counts as one."""
    piece: list[bytes] = []
    for escaped, plain_class, one, star, odd, letter in _TOKENS.findall(pattern):
        if star or odd:
            yield tuple(piece)
            piece = []
        else:
            piece.append(_ANY if one else plain_class or re.escape(escaped or letter))
    yield tuple(piece)


def _plain(piece: Tokens) -> bytes:
    """Return the letters of a part if it has nothing else."""
    return b"" if any(each.endswith(b"]") for each in piece) else b"".join(each[-1:] for each in piece)


def _is_telling(piece: Tokens) -> bool:
    return any(each != _ANY for each in piece)


def _compile(found: Iterable[Tokens]) -> re.Pattern[bytes] | None:
    expression = _tree(sorted(found))
    return re.compile(b"/" + expression, re.DOTALL) if expression else None


def _tree(found: Sequence[Tokens]) -> bytes:
    """Return one expression for all: what begins alike is compared once."""
    if not found or not all(found):
        return b""
    heads: dict[bytes, list[Tokens]] = {}
    for each in found:
        heads.setdefault(each[0], []).append(each[1:])
    branches = [head + _tree(rest) for head, rest in heads.items()]
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
