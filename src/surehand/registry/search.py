"""Search for a tool by what it does: ranked, tolerant of typos, in any language.

The text of all tools is normalized at the first search, and again after tools changed. Which tools contain a word is
looked up when a query first has it, and cached. A search walks the shortest of these lists and at most a few thousand
entries, so ten thousand tools are searched in well under a millisecond once the words are cached.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import cached_property
from math import log
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from surehand.core.tool import Tool, ToolInfo

NAME, ALIAS, HINT, TEXT = range(4)
FIELD_WEIGHTS: Final = (3.0, 3.0, 2.5, 1.0)
MATCHED: Final = 2.0**20
"""Added to a score for each matched word of the query, so that one number holds their count and their weight."""
WHOLE_NAME: Final = 1000.0
"""Score of a query that is exactly a tool's name."""
WALK_LIMIT: Final = 1000
"""Most tools with a word that are scored for it; a more frequent word tells little."""
QUERY_WORDS: Final = 24
NEAR_LIMIT: Final = 30
"""Most known words tried for an unknown one."""
KNOWN_LIMIT: Final = 10_000
"""Size of the cache of query words."""
LONG_LINE: Final = 50
"""Average length of a line (as in descriptions) above which scanning lines is faster than splitting at matches."""
LOOK_UPS: Final = 20
"""Look-ups of single words after which all words are indexed, which costs about as much."""
FAINT: Final = 0.06
"""Tools below this share of the best score are dropped."""
FAINT_ALONE: Final = 0.4
"""The same for a query of one word: if names or hints contain it, mere mentions in descriptions are dropped."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS: Final = re.compile(r"[^\W_]+")
# Scripts without blanks between words (and Korean, whose words have endings): indexed as pairs of characters.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
_TO_BLANKS: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
_BETWEEN_LINES: Final = "\0"
_NOWHERE: Final[list[int]] = []
_BETWEEN_WORDS: Final = f" {_BETWEEN_LINES} "
_TO_WORDS_IN_LINES: Final = (
    bytes(ord(chr(code).lower().translate(_TO_BLANKS)) if code else 0 for code in range(128)) * 2
)
"""For `bytes.translate`, five times as fast as that of text; its upper half (no ASCII) is never used."""
_ENDINGS: Final = (("ies", "y"), ("ing", ""), ("ed", ""), ("es", "e"), ("s", ""))
_STOP: Final = frozenset(
    (
        "a",
        "an",
        "and",
        "are",
        "as",
        "at",
        "by",
        "do",
        "for",
        "from",
        "i",
        "in",
        "is",
        "it",
        "of",
        "on",
        "or",
        "the",
        "to",
    )
)


class Cards(Protocol):
    """What the index reads; the registry is one."""

    version: int

    def cards(self) -> list[Tool | ToolInfo]:
        """Return every tool, or what is known of it before it is loaded."""
        ...


class SearchIndex:
    """Search over name, aliases, hint and description of all tools of a registry."""

    def __init__(self, source: Cards) -> None:
        self._source = source
        self._version = -1
        self._built = _Index([])

    def names(self, query: str, limit: int = 10, keep: Callable[[str], bool] | None = None) -> list[str]:
        """Return the names of the best matches, best first; those of equal score in order of registration."""
        if self._version != self._source.version:
            self._built, self._version = _Index(self._source.cards()), self._source.version
        return self._built.search(query, limit, keep)


class _Field:
    """One field (such as the name) of all tools, one line of words for each tool.

    Which lines have a word is looked up when it is first asked for, at a tenth of the cost of indexing all words. After
    LOOK_UPS words all are indexed.
    """

    def __init__(self, lines: list[str]) -> None:
        self.text = _text_of_words(lines) if any(lines) else ""
        """All lines, one after the other."""
        self._count = len(lines)
        self._known: dict[str, list[int]] = {}
        self._complete = not self.text

    def find(self, stem: str) -> list[int]:
        """Return the numbers of the lines that have a word of this stem, ascending."""
        known = self._known.get(stem)
        if known is not None:
            return known
        if len(self._known) >= LOOK_UPS and not self._complete:
            self._index_all()
        if self._complete:
            return self._known.get(stem, _NOWHERE)
        known = self._known[stem] = self._look_up(stem)
        return known

    def stems(self) -> Iterable[str]:
        """Return all stems there are."""
        if not self._complete:
            self._index_all()
        return self._known

    def _index_all(self) -> None:
        """Find the lines of all words at once, stemming each distinct word once."""
        raw: defaultdict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self._lines):
            for word in set(line.split()):
                raw[word].append(number)
        self._known, self._complete = {}, True
        for word, numbers in raw.items():
            stem = _stem(word)
            known = self._known.get(stem)
            self._known[stem] = numbers if known is None else sorted({*known, *numbers})

    def _look_up(self, stem: str) -> list[int]:
        beginning = f" {_beginning(stem)}"
        if len(self.text) > LONG_LINE * self._count:  # long lines: the word occurs in many, often more than once
            whole = f" {stem} " if _stem(stem) == stem else _BETWEEN_LINES  # which occurs in no line
            lines = enumerate(self._lines)
            return [number for number, line in lines if beginning in line and (whole in line or _has(line, stem))]
        first, *pieces = self.text.split(beginning)
        found: dict[int, None] = {}
        number = first.count(_BETWEEN_LINES)
        for piece in pieces:
            if _stem(beginning[1:] + piece.partition(" ")[0]) == stem:
                found[number] = None
            number += piece.count(_BETWEEN_LINES)
        return list(found)

    @cached_property
    def _lines(self) -> list[str]:
        return self.text.split(_BETWEEN_LINES)

    def words_with(self, part: str, limit: int) -> list[str]:
        """Return the stems that contain `part`, `limit` of them at most."""
        sought, text = _beginning(part), self.text
        found: dict[str, None] = {}
        position = text.find(sought)
        while position >= 0 and len(found) < limit:
            end = text.index(" ", position)
            stem = _stem(text[text.rindex(" ", 0, position) + 1 : end])
            if part in stem:
                found[stem] = None
            position = text.find(sought, end)
        return list(found)

    @cached_property
    def _unspaced(self) -> bytes:
        return f"{_BETWEEN_LINES}{self.text}{_BETWEEN_LINES}".encode().translate(None, b" ")

    def find_whole(self, letters: str) -> list[int]:
        """Return the numbers of the lines that equal these letters when blanks are ignored."""
        found: list[int] = []
        sought, text = f"{_BETWEEN_LINES}{letters}{_BETWEEN_LINES}".encode(), self._unspaced
        position = text.find(sought)
        while position >= 0:
            found.append(text.count(b"\0", 0, position))
            position = text.find(sought, position + 1)
        return found


class _Index:
    """The tools of one version of the registry, field by field."""

    def __init__(self, cards: list[Tool | ToolInfo]) -> None:
        self.names = [card.name for card in cards]
        self.fields = (
            _Field(_name_lines(self.names)),
            _Field([" ".join(map(_name_line, card.aliases)) if card.aliases else "" for card in cards]),
            _Field([_hint_line(card) for card in cards]),
            _Field([card.description if isinstance(card.description, str) else "" for card in cards]),
        )
        self._members: dict[tuple[int, str], frozenset[int]] = {}
        self._near: dict[str, list[tuple[str, float]]] = {}
        self._by_length: dict[int, list[str]] | None = None

    def search(self, query: str, limit: int, keep: Callable[[str], bool] | None) -> list[str]:
        asked = self._terms(query)
        if limit < 1 or not query.strip():
            return []
        scores: dict[int, float] = {}
        for variants in sorted(asked, key=lambda each: self._frequency(each[0][0])):
            gained = self._score_word(variants, scores if len(scores) >= limit else None)
            for number, worth in gained.items():
                scores[number] = scores.get(number, 0.0) + worth
        best = self._best(scores, len(asked), limit, keep)
        for number in self._find_by_whole_name(query):
            if keep is None or keep(self.names[number]):
                best[number] = best.get(number, 0.0) + WHOLE_NAME
        ranked = sorted((-score, number) for number, score in best.items())
        return [self.names[number] for _, number in ranked[:limit]]

    def _terms(self, query: str) -> list[list[tuple[str, float]]]:
        """Return for each word of the query the indexed words that match it, each with its weight."""
        found = list(dict.fromkeys(_stem(word) for word in words(_name_line(query))))
        telling = [word for word in found if word not in _STOP] or found
        return [variants for word in telling[:QUERY_WORDS] if (variants := self._variants(word))]

    def _variants(self, word: str) -> list[tuple[str, float]]:
        known = self._near.get(word)
        if known is None:
            if len(self._near) > KNOWN_LIMIT:
                self._near.clear()
            known = self._near[word] = self._look_for(word)
        return known

    def _look_for(self, word: str) -> list[tuple[str, float]]:
        found = [(word, 1.0)] if self._frequency(word) else []
        if len(word) > 2 and not self.fields[NAME].find(word):
            names, aliases = self.fields[NAME], self.fields[ALIAS]
            near = [*names.words_with(word, NEAR_LIMIT), *aliases.words_with(word, NEAR_LIMIT)]
            found += [(other, 0.7) for other in list(dict.fromkeys(near))[:NEAR_LIMIT]]
        if not found and len(word) > 3:  # a part of a compound, as in German (Wettervorhersage)
            found = [(other, 0.6) for other in self.fields[HINT].words_with(word, NEAR_LIMIT)]
        return found or [(other, 0.6) for other in self._typos(word)]

    def _typos(self, word: str) -> list[str]:
        """Return the indexed words at most one edit away (two for long words), nearest first."""
        allowed = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
        if not allowed:
            return []
        from rapidfuzz.distance import OSA
        from rapidfuzz.process import extract

        if self._by_length is None:
            self._by_length = {}
            for known in dict.fromkeys(known for field in self.fields for known in field.stems()):
                self._by_length.setdefault(len(known), []).append(known)
        near = range(len(word) - allowed, len(word) + allowed + 1)
        choices = [known for length in near for known in self._by_length.get(length, ())]
        return [found[0] for found in extract(word, choices, scorer=OSA.distance, score_cutoff=allowed, limit=5)]

    def _frequency(self, word: str) -> int:
        return sum(len(field.find(word)) for field in self.fields)

    def _score_word(self, variants: list[tuple[str, float]], found: dict[int, float] | None) -> dict[int, float]:
        """Return the score that one word of the query gives each tool that has it, in its best field only.

        `found` has the tools that rarer words matched, if those are enough; None if not.
        """
        worths: list[tuple[float, int, str]] = []
        for word, share in variants:
            rarity = share * log(1.0 + len(self.names) / (1 + self._frequency(word)))
            worths += [(MATCHED + rarity * weight, field, word) for field, weight in enumerate(FIELD_WEIGHTS)]
        gained: dict[int, float] = {}
        for worth, field, word in sorted(worths):
            if entries := self.fields[field].find(word):
                gained.update(dict.fromkeys(self._entries_to_walk(field, word, entries, found), worth))
        return gained

    def _entries_to_walk(self, field: int, word: str, entries: list[int], found: dict[int, float] | None) -> list[int]:
        if len(entries) <= WALK_LIMIT:
            return entries
        if found is None:
            return entries[:WALK_LIMIT]
        # A word this common adds no tools; it only ranks those that rarer words have found.
        members = self._members.get((field, word))
        if members is None:
            members = self._members[field, word] = frozenset(entries)
        return [number for number in found if number in members]

    def _find_by_whole_name(self, query: str) -> list[int]:
        """Return the tools whose whole name is the query, in any spelling (`web_fetch`, `WebFetch`)."""
        return self.fields[NAME].find_whole("".join(words(query)))

    def _best(
        self, scores: dict[int, float], terms: int, limit: int, keep: Callable[[str], bool] | None
    ) -> dict[int, float]:
        """Return the best tools for which `keep` holds; it is called only until there are enough."""
        groups: dict[float, list[int]] = {}
        for number, packed in scores.items():
            groups.setdefault(packed, []).append(number)
        best: dict[int, float] = {}
        least = 0.0
        for worth, packed in sorted(((_worth_of_sum(packed, terms), packed) for packed in groups), reverse=True):
            if worth < least or len(best) >= limit:
                break
            for number in sorted(groups[packed]):
                if keep is None or keep(self.names[number]):
                    best[number] = worth
                    least = least or worth * (FAINT_ALONE if terms == 1 else FAINT)
                    if len(best) >= limit:
                        break
        return best


def _worth_of_sum(packed: float, terms: int) -> float:
    """Return the score of a packed sum: much higher if all words of the query matched than if one did."""
    matched, worth = divmod(packed, MATCHED)
    return worth * (matched / terms) ** 1.5


def _text_of_words(lines: list[str]) -> str:
    """Return lines as their words with a blank before and after each; ASCII text is translated all at once."""
    text = f" {_BETWEEN_WORDS.join(lines)} "
    if not text.isascii() or text.count(_BETWEEN_LINES) != len(lines) - 1:
        return _BETWEEN_LINES.join(f" {' '.join(words(line))} " for line in lines)
    return text.encode().translate(_TO_WORDS_IN_LINES).decode()


def words(text: str) -> list[str]:
    """Return the words of a text: lower case, no accents; pairs of characters where a script has no blanks."""
    if text.isascii():
        return text.lower().translate(_TO_BLANKS).split()
    plain = unicodedata.normalize("NFKD", text.casefold())
    plain = unicodedata.normalize("NFC", "".join(each for each in plain if not unicodedata.combining(each)))
    found: list[str] = []
    for run in _UNSPACED.findall(plain):
        found.extend(run[at : at + 2] for at in range(max(1, len(run) - 1)))
        found.extend(run)
    found.extend(_WORDS.findall(_UNSPACED.sub(" ", plain)))
    return found


def _hint_line(card: Tool | ToolInfo) -> str:
    return f"{card.search_hint} {_name_line(card.module)}" if card.module else card.search_hint


def _name_line(name: str) -> str:
    """Return a name with blanks where a capital begins a word: `WebFetch` → `Web Fetch`."""
    return name if name.islower() or name.isupper() else _HUMP.sub(" ", name)


def _name_lines(names: list[str]) -> list[str]:
    return names if "".join(names).islower() else [_name_line(name) for name in names]


def _has(line: str, stem: str) -> bool:
    """Return whether a line contains a word of this stem."""
    return any(_stem(word) == stem for word in line.split())


def _beginning(stem: str) -> str:
    """Return the common beginning of all words of this stem: stemming adds at most a `y`."""
    return stem[:-1] if len(stem) > 3 and stem.endswith("y") else stem


def _stem(word: str) -> str:
    """Strip common English endings, so that `files` finds `file`; short and non-ASCII words are left alone."""
    if len(word) < 4 or not word.isascii() or word.endswith("ss"):
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] in "bdgmnprt":
        return word[:-1]
    return word[:-1] if len(word) > 4 and word[-1] == "e" else word
