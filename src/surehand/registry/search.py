"""Search for a tool by what it does: ranked, forgiving of typos, in any language.

The index is built with the first search and again when tools changed. It keeps, for each word and each field, the
tools that have it; a search walks the shortest of these lists and never more than a few thousand entries, so ten
thousand tools are searched in well under a millisecond.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterator
from math import log
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from surehand.core.tool import Tool, ToolInfo

NAME, ALIAS, HINT, TEXT = range(4)
FIELD_WEIGHTS: Final = (3.0, 3.0, 2.5, 1.0)
MATCHED: Final = 2.0**20
"""Added to a sum for each word of the query that was found, so that one number holds both."""
WHOLE_NAME: Final = 1000.0
"""What a query that is a tool's very name is worth."""
WALK_LIMIT: Final = 1000
"""Entries of one word's list that are walked; more of them tell nothing apart."""
QUERY_WORDS: Final = 24
FAINT: Final = 0.06
"""Matches below this share of the best one are left out."""
FAINT_ALONE: Final = 0.4
"""The same for a query of one word: where it stands in names and hints, descriptions that mention it are left out."""
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORDS: Final = re.compile(r"[^\W_]+")
# Scripts written without blanks between words (and Korean, whose words carry endings): pairs of characters stand in.
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003134f]+"
)
_TO_BLANKS: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
_BETWEEN_LINES: Final = "\0"
_TO_BLANKS_IN_LINES: Final = {code: blank for code, blank in _TO_BLANKS.items() if code}
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

    def __iter__(self) -> Iterator[str]: ...
    def card(self, name: str) -> Tool | ToolInfo | None:
        """Return a tool, or what is known of it before it is loaded."""
        ...


class Match(NamedTuple):
    """One tool found, and how well it fits (only the order means something)."""

    name: str
    score: float


class SearchIndex:
    """Search over name, aliases, hint and description of all tools of a registry."""

    def __init__(self, source: Cards) -> None:
        self._source = source
        self._version = -1
        self._built = _Index([])

    def search(self, query: str, limit: int = 10, keep: Callable[[str], bool] | None = None) -> list[Match]:
        """Return the best matches, best first; equal ones in the order of registration."""
        if self._version != self._source.version:
            cards = [card for name in self._source if (card := self._source.card(name)) is not None]
            self._built, self._version = _Index(cards), self._source.version
        return self._built.search(query, limit, keep)

    def names(self, query: str, limit: int = 10, keep: Callable[[str], bool] | None = None) -> list[str]:
        """Return only the names of the best matches; the form a `Selection` takes."""
        return [match.name for match in self.search(query, limit, keep)]


class _Index:
    """One built index: per field, word → tools (by number, ascending)."""

    def __init__(self, cards: list[Tool | ToolInfo]) -> None:
        self.names = [card.name for card in cards]
        self.fields = (
            _postings([_name_line(card.name) for card in cards]),
            _postings([" ".join(map(_name_line, card.aliases)) for card in cards]),
            _postings([f"{card.search_hint} {_name_line(card.module)}" for card in cards]),
            _postings([card.description if isinstance(card.description, str) else "" for card in cards]),
        )
        self._members: dict[tuple[int, str], frozenset[int]] = {}
        self._near: dict[str, list[tuple[str, float]]] = {}
        self._by_length: dict[int, list[str]] | None = None
        self._name_vocabulary = "\n".join((*self.fields[NAME], *self.fields[ALIAS]))
        self._whole_names: dict[str, list[int]] | None = None

    def search(self, query: str, limit: int, keep: Callable[[str], bool] | None) -> list[Match]:
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
        return [Match(self.names[number], -score) for score, number in ranked[:limit]]

    def _terms(self, query: str) -> list[list[tuple[str, float]]]:
        """Return for each word of the query the words of the index that stand for it, with how much each counts."""
        found = list(dict.fromkeys(_stem(word) for word in words(_name_line(query))))
        telling = [word for word in found if word not in _STOP] or found
        return [variants for word in telling[:QUERY_WORDS] if (variants := self._variants(word))]

    def _variants(self, word: str) -> list[tuple[str, float]]:
        known = self._near.get(word)
        if known is None:
            if len(self._near) > 10_000:
                self._near.clear()
            known = self._near[word] = self._look_for(word)
        return known

    def _look_for(self, word: str) -> list[tuple[str, float]]:
        found = [(word, 1.0)] if any(word in field for field in self.fields) else []
        if word not in self.fields[NAME] and len(word) > 2:
            found += [(other, 0.7) for other in self._name_words_with(word)]
        if not found and len(word) > 3:  # a part of a long word, as other languages make them (Wettervorhersage)
            found = [(other, 0.6) for other in self.fields[HINT] if word in other][:30]
        return found or [(other, 0.6) for other in self._typos(word)]

    def _name_words_with(self, part: str) -> list[str]:
        """Return words of names that contain `part`, a few dozen at most."""
        found: dict[str, None] = {}
        position = self._name_vocabulary.find(part)
        while position >= 0 and len(found) < 30:
            end = self._name_vocabulary.find("\n", position)
            end = len(self._name_vocabulary) if end < 0 else end
            found[self._name_vocabulary[self._name_vocabulary.rfind("\n", 0, position) + 1 : end]] = None
            position = self._name_vocabulary.find(part, end)
        return list(found)

    def _typos(self, word: str) -> list[str]:
        """Return the known words at most one slip away (two for long words), nearest first."""
        allowed = 0 if len(word) < 4 else 1 if len(word) < 8 else 2
        if not allowed:
            return []
        from rapidfuzz.distance import OSA
        from rapidfuzz.process import extract

        if self._by_length is None:
            self._by_length = {}
            for known in dict.fromkeys(known for field in self.fields for known in field):
                self._by_length.setdefault(len(known), []).append(known)
        near = range(len(word) - allowed, len(word) + allowed + 1)
        choices = [known for length in near for known in self._by_length.get(length, ())]
        return [found[0] for found in extract(word, choices, scorer=OSA.distance, score_cutoff=allowed, limit=5)]

    def _frequency(self, word: str) -> int:
        return sum(len(field.get(word, ())) for field in self.fields)

    def _score_word(self, variants: list[tuple[str, float]], found: dict[int, float] | None) -> dict[int, float]:
        """Return what one word of the query is worth to each tool that has it, in its best field only.

        `found` holds the tools that rarer words have brought up, once they are enough.
        """
        worths: list[tuple[float, int, str]] = []
        for word, share in variants:
            rarity = share * log(1.0 + len(self.names) / (1 + self._frequency(word)))
            worths += [(MATCHED + rarity * weight, field, word) for field, weight in enumerate(FIELD_WEIGHTS)]
        gained: dict[int, float] = {}
        for worth, field, word in sorted(worths):
            if entries := self.fields[field].get(word):
                gained.update(dict.fromkeys(self._entries_to_walk(field, word, entries, found), worth))
        return gained

    def _entries_to_walk(self, field: int, word: str, entries: list[int], found: dict[int, float] | None) -> list[int]:
        if len(entries) <= WALK_LIMIT:
            return entries
        if found is None:
            return entries[:WALK_LIMIT]
        # A word this common cannot bring up a tool; it only tells those apart that rarer words have found.
        members = self._members.get((field, word))
        if members is None:
            members = self._members[field, word] = frozenset(entries)
        return [number for number in found if number in members]

    def _find_by_whole_name(self, query: str) -> list[int]:
        """Return the tools whose whole name or alias the query is, however it is written (`web_fetch`, `WebFetch`)."""
        if self._whole_names is None:
            self._whole_names = {}
            for number, name in enumerate(self.names):
                self._whole_names.setdefault("".join(words(name)), []).append(number)
        return self._whole_names.get("".join(words(query)), [])

    def _best(
        self, scores: dict[int, float], terms: int, limit: int, keep: Callable[[str], bool] | None
    ) -> dict[int, float]:
        """Return the best tools that `keep` lets pass; only those that come into question are put to it."""
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
    """Return what a sum is worth: much more when all words of the query were found than when one was."""
    matched, worth = divmod(packed, MATCHED)
    return worth * (matched / terms) ** 1.5


def _postings(lines: list[str]) -> dict[str, list[int]]:
    """Return word → numbers of the lines that have it. Endings come off per distinct word, not per occurrence."""
    raw: defaultdict[str, list[int]] = defaultdict(list)
    for number, found in enumerate(_words_of_all(lines)):
        for word in found:
            raw[word].append(number)
    merged: dict[str, list[int]] = {}
    for word, numbers in raw.items():
        stem = _stem(word)
        known = merged.get(stem)
        merged[stem] = numbers if known is None else sorted({*known, *numbers})
    return merged


def _words_of_all(lines: list[str]) -> Iterator[set[str]]:
    """Yield the words of each line; all at once where that can be done, which is three times as fast."""
    text = _BETWEEN_LINES.join(lines)
    if not text.isascii() or text.count(_BETWEEN_LINES) != len(lines) - 1:
        yield from (set(words(line)) for line in lines)
        return
    for line in text.lower().translate(_TO_BLANKS_IN_LINES).split(_BETWEEN_LINES):
        yield set(line.split())


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


def _name_line(name: str) -> str:
    """Return a name with blanks where a capital begins a word: `WebFetch` → `Web Fetch`."""
    return name if name.islower() or name.isupper() else _HUMP.sub(" ", name)


def _stem(word: str) -> str:
    """Take plain English endings off, so that `files` finds `file`; short and foreign words stay as they are."""
    if len(word) < 4 or not word.isascii() or word.endswith("ss"):
        return word
    for ending, instead in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + instead
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] in "bdgmnprt":
        return word[:-1]
    return word[:-1] if len(word) > 4 and word[-1] == "e" else word
