"""The rules of `.gitignore`: parsing the lines of an ignore file, and deciding which of them applies to a path.

    rules = Rules(b"*.log\\n!keep.log\\n", ".gitignore")
    rules.decide(b"keep.log", b"keep.log", is_dir=False)     # Rule(line=2, pattern=b"!keep.log", negated=True, ...)

Within one file the last matching line decides; `search/ignore_files.py` combines the files of a tree. A `Sieve` finds
among all names of a folder, in one step, those that a rule may leave out.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final, TypeAlias

from surehand.core.frozen import frozen
from surehand.core.secrets import SECRET_BEGINNINGS, SECRET_ENDINGS, SECRET_NAMES
from surehand.core.text import lazy_pattern
from surehand.git.wildmatch import literal_length, translate

if TYPE_CHECKING:
    from surehand.search.ignore_files import Chain, Folder

_BOM: Final = b"\xef\xbb\xbf"
KNOWN_LIMIT: Final = 1 << 14
"""Names for which an ignore file caches the rule that decides."""


@frozen
class Rule:
    """A line of an ignore file, other than blank lines and comments."""

    source: str
    line: int
    text: bytes
    """The line as written, without its end and without trailing blanks that git ignores."""
    pattern: bytes
    """The pattern to match, without `!` and without the slash that limits it to folders."""
    negated: bool
    only_folders: bool
    by_name: bool
    """Without a slash inside: matched against the last name of a path, at any depth."""


def parse(data: bytes, source: str) -> list[Rule]:
    """Parse an ignore file to rules, in order."""
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
        # git keeps such a rule: `git check-ignore name/` then reports a blank line with a CR as ignoring it, while
        # `git status`, `git ls-files` and `git check-ignore name` do not.
        return None
    return Rule(source, number, text, pattern, negated, only_folders, b"/" not in pattern)


def parse_line(line: bytes) -> bytes:
    """Return a line without its end and without trailing blanks that git ignores."""
    return _without_blanks(line.removesuffix(b"\r").partition(b"\0")[0])


def _without_blanks(text: bytes) -> bytes:
    """Strip trailing spaces unless escaped by a backslash; as in git, tabs stay."""
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
    """Return the regular expression of a rule without a slash, which matches names."""
    return translate(rule.pattern, pathname=False, fold=fold)


def path_expression(rule: Rule, fold: bool) -> bytes | None:
    """Return the regular expression of a rule with a slash, which matches paths relative to the folder of its file."""
    pattern = rule.pattern.removeprefix(b"/")
    literal = literal_length(pattern)
    # git compares the literal prefix first and matches the rest alone, so `a**/b` matches `ab` too.
    rest = translate(pattern[literal:], pathname=True, fold=fold)
    plain = translate(re.sub(rb"([*?\[\\])", rb"\\\1", pattern[:literal]), pathname=True, fold=fold)
    return None if rest is None or plain is None else plain + rest


class Rules:
    """The compiled rules of one ignore file.

    Most rules are a plain name or `*.ending`: those are looked up in a dict. The others become one regular expression,
    the last rule first, so that the first alternative that matches is the rule that decides.
    """

    __slots__ = ("_for_files", "_for_folders", "last_names", "rg_agrees", "rules", "source")

    def __init__(self, data: bytes, source: str, *, fold: bool = False) -> None:
        self.source = source
        self.rg_agrees = all(map(rg_agrees, data.removeprefix(_BOM).split(b"\n")))
        """Whether `rg` reads every line of this file as git does."""
        self.rules = parse(data, source)
        self.last_names = _last_names(self.rules, fold)
        """The names of entries for which `decide` needs the path; None if it may need it for any."""
        self._for_folders = _Table(self.rules, fold)
        self._for_files = _Table([rule for rule in self.rules if not rule.only_folders], fold)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def decide(self, name: bytes, path: bytes, is_dir: bool) -> Rule | None:
        """Return the rule that applies to an entry, if any; `path` is relative to the folder of this file."""
        return (self._for_folders if is_dir else self._for_files).find(name, path)


def _last_names(rules: list[Rule], fold: bool) -> frozenset[bytes] | None:
    """Return the last names of rules with a slash; None if one of them has a wildcard there, or just before it."""
    patterns = [rule.pattern for rule in rules if not rule.by_name]
    names = [pattern.rpartition(b"/")[2] for pattern in patterns]
    # A pattern that ends with a slash (`**//`) would match the empty path, which stands for one that is not needed.
    open_ended = fold or any(not name or literal_length(name) < len(name) for name in names)
    # `a**/b` matches `ab` too.
    return None if open_ended or any(map(_UNBOUNDED.search, patterns)) else frozenset(names)


_UNBOUNDED: Final = lazy_pattern(rb"[^/*]\*\*+/[^/]*\Z")


class _Table:
    """Rules grouped by how they are matched; the rank of a rule is its index in the file."""

    __slots__ = ("_endings", "_fold", "_names", "_paths", "_patterns", "_rules", "known")

    def __init__(self, rules: list[Rule], fold: bool) -> None:
        self._rules = rules
        self._fold = fold
        self.known: dict[bytes, int] = {}
        """A cache of the ranks of names, many of which occur again and again."""
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
        # Called for every entry of a walk, so it avoids each call that cannot match.
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
    """Several regular expressions combined into one; finds the highest rank that matches."""

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


# Read otherwise by `rg`: braces, POSIX and unclosed classes, brackets, backslashes and second ranges in a class, `**`
# that touches other letters, whitespace other than a space, escaped letters, anything not ASCII, empty patterns.
_OTHERWISE: Final = lazy_pattern(
    rb"[{}\t\r\f\v\x80-\xff]|\\[^#! *?.]|\\\Z|\[:|\[[^\]]*(?:\Z|[\\\[])|\[[^\]]*-[^\]]*-|\[[!^]?\]"
    rb"|[^/]\*\*|\*\*[^/]|//|\A!?/?(?:\*\*)?/?\Z"
)
_RANGE: Final = lazy_pattern(rb"\[[^\]]*?(.)-([^\]])")
_CLASS: Final = lazy_pattern(rb"\[([!^]?)([^\]]+)\]")


def rg_agrees(line: bytes) -> bool:
    """Whether `rg` reads a line as git does; for one, it expands braces and decodes lines as UTF-8."""
    text = parse_line(line)
    if not text or text.startswith(b"#"):
        return b"\0" not in line
    # Only for git a NUL ends the line, and only git tells an escaped space from those after it.
    if b"\0" in line or (text.endswith(b" ") and text != line.removesuffix(b"\r")):
        return False
    ordered = all(low <= high for low, high in _RANGE.findall(text))
    return ordered and _OTHERWISE.search(text) is None and not any(map(_takes_a_slash, _CLASS.finditer(text)))


def _takes_a_slash(found: re.Match[bytes]) -> bool:
    """Whether a class matches `/` in `rg`: one that contains it, or a negated one between other characters."""
    if not found[1]:
        ranges = _RANGE.findall(found[0])
        return b"/" in found[2] or any(low <= b"/" <= high for low, high in ranges)
    begins = found.string[: found.start()].lstrip(b"!").endswith(b"/") or not found.string[: found.start()].strip(b"!")
    ends = found.string[found.end() : found.end() + 1] in (b"", b"/")
    return not (begins or ends)


WORTHWHILE: Final = 700
"""Names judged one by one before expressions are compiled: compiling those of secrets takes as long."""
_FOR_A_RULE: Final = 6
"""The same, for each ignore rule."""
CLEAN_LIMIT: Final = 1 << 15
"""Names remembered as clean. In larger trees most names occur once, and remembering costs more than searching."""
_TOKENS: Final = lazy_pattern(rb"\\(.)|(\[[\w.]+\])|(\?|\[[\w.-]+\])|(\*+)|(\[.*)|(.)", re.DOTALL)
_ANY: Final = b"[^/]"
_END: Final = b"(?=/)"
Tokens: TypeAlias = tuple[bytes, ...]


class Sieve:
    """Finds the files that may be left out: by a chain of rules, by names and endings, or because they are secret.

    Most files match no ignore rule and are no secret, and asking every rule about each takes longer than reading their
    names. So the rules are compiled to expressions that match at least what the rules match. These search all names of
    a folder as one text; only what they find is judged by the rules themselves. Names are searched in lower case, and
    of a rule only the part before its first star or after its last star is used.
    """

    __slots__ = ("_chain", "_clean", "_expressions", "_left", "_names_and_endings", "_open")

    def __init__(self, chain: Chain, names: Sequence[bytes] = (), endings: Sequence[bytes] = ()) -> None:
        self._chain = chain
        self._names_and_endings = names, endings
        rules = sum(len(rules.rules) for rules, _ in chain)
        self._left = rules * _FOR_A_RULE + (0 if _for_secrets.cache_info().currsize else WORTHWHILE)
        self._expressions: tuple[_Expressions, ...] = ()
        self._clean: set[bytes] = set()
        """Names in which nothing was found; many occur again and again."""
        self._open: list[tuple[int, bytes]] = []
        """Folders below which a rule may match any name: the length of the rule's own folder, and the path from it."""

    def find(self, names: Collection[bytes], folder: Folder) -> Collection[bytes]:
        """Return the files of a folder that must be judged one by one."""
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
                continue  # leaves out no file
            if not rule.by_name and (lead := _open_below(rule)) is not None:
                opened.append((skip, lead))
                continue
            head, tail, middle = _parts(rule.pattern if rule.by_name else rule.pattern.rpartition(b"/")[2])
            if tail is None:
                whole.add((*head, _END))
            elif _has_literal(head):
                begin.add(head)
            elif _has_literal(tail):
                end.add(tail)
            elif middle:
                inside.add(middle)
            else:
                opened.append((skip, b""))
        self._open = opened
        self._expressions = _Expressions(whole | begin, end, inside), _for_secrets()


class _Expressions:
    """Regular expressions that find names in a text of many, separated by slashes: by prefix, by ending, by a part."""

    __slots__ = ("_backward", "_forward", "_inside")

    def __init__(self, begin: Iterable[Tokens], end: Iterable[Tokens], inside: Iterable[bytes] = ()) -> None:
        self._forward = _compile(begin)
        self._backward = _compile(tuple(reversed(each)) for each in end)
        parts = sorted(map(re.escape, inside))
        self._inside = re.compile(b"|".join(parts)) if parts else None

    def fit(self, text: bytes, backwards: bytes) -> bool:
        """Whether any name matches; mostly none does."""
        return (
            (self._forward is not None and self._forward.search(text) is not None)
            or (self._backward is not None and self._backward.search(backwards) is not None)
            or (self._inside is not None and self._inside.search(text) is not None)
        )

    def find(self, written: bytes, text: bytes, backwards: bytes) -> Iterator[bytes]:
        """Yield the names, as `written`, that match in the text in lower case or in its reverse."""
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
    """Return the folder below which a rule with a slash may match any name; None if it spells out the last name."""
    pattern = rule.pattern.removeprefix(b"/")
    last = pattern.rpartition(b"/")[2]
    # `a**/b` matches `ab` too.
    if last and literal_length(last) == len(last) and _UNBOUNDED.search(pattern) is None:
        return None
    return pattern[: literal_length(pattern)].rpartition(b"/")[0]


def _parts(pattern: bytes) -> tuple[Tokens, Tokens | None, bytes]:
    """Return the parts of a pattern before its first star and after its last (None: no star), and one in between."""
    pieces = list(_pieces(pattern.lower()))
    middle = max((_plain(piece) for piece in pieces[1:-1]), key=len, default=b"")
    return pieces[0], pieces[-1] if len(pieces) > 1 else None, middle


def _pieces(pattern: bytes) -> Iterator[Tokens]:
    """Yield the parts between stars; a class that is not simple counts as a star, with all that follows it."""
    piece: list[bytes] = []
    for escaped, plain_class, one, star, odd, letter in _TOKENS.findall(pattern):
        if star or odd:
            yield tuple(piece)
            piece = []
        else:
            piece.append(_ANY if one else plain_class or re.escape(escaped or letter))
    yield tuple(piece)


def _plain(piece: Tokens) -> bytes:
    """Return the text of a part if it has no wildcards."""
    return b"" if any(each.endswith(b"]") for each in piece) else b"".join(each[-1:] for each in piece)


def _has_literal(piece: Tokens) -> bool:
    return any(each != _ANY for each in piece)


def _compile(found: Iterable[Tokens]) -> re.Pattern[bytes] | None:
    expression = _tree(sorted(found))
    return re.compile(b"/" + expression, re.DOTALL) if expression else None


def _tree(found: Sequence[Tokens]) -> bytes:
    """Combine sequences of tokens into one expression that shares common prefixes."""
    if not found or not all(found):
        return b""
    heads: dict[bytes, list[Tokens]] = {}
    for each in found:
        heads.setdefault(each[0], []).append(each[1:])
    branches = [head + _tree(rest) for head, rest in heads.items()]
    return branches[0] if len(branches) == 1 else b"(?:" + b"|".join(branches) + b")"
