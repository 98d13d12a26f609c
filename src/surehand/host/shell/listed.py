"""File names that one command of a pipeline prints for the next: `find . -name '*.py' | xargs wc -l`.

What lies below known folders may be read as `grep -r` may, so that such a line is as plain as the recursive read it
stands for. Only listings whose every line is a path below the folders in their words count.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from surehand.host.shell import find, options, readonly
from surehand.host.shell.found import Found
from surehand.host.shell.readonly_checks import CHECKS
from surehand.host.shell.readonly_table import READ_ONLY
from surehand.host.shell.word import Word

_FILES = ("-l", "-L", "--files-with-matches", "--files-without-match")


def _has(found: Found, *wanted: str) -> bool:
    return options.parse(found.words[1:], options.flags(READ_ONLY[found.name])).has(*wanted)


_LISTERS: dict[str, Callable[[Found], bool]] = {
    "find": lambda found: not any(word.text in ("-printf", "-ls", "-exec") for word in found.words),
    "fd": lambda found: True,
    "fdfind": lambda found: True,
    "rg": lambda found: _has(found, "-l", "--files", *_FILES[2:]) and not _has(found, "--path-separator", "--json"),
    "grep": lambda found: _has(found, *_FILES) and not _has(found, "--label"),
    "git": lambda found: (
        found.words[1:2] == (Word("ls-files"),) and not any(word.text.startswith("--f") for word in found.words)
    ),
}
# Filters that leave a line out or as it is.
_FILTERS: dict[str, Callable[[Found], bool]] = {
    "head": lambda found: not _has(found, "-c", "--bytes"),
    "tail": lambda found: not _has(found, "-c", "--bytes"),
    "sort": lambda found: True,
    "uniq": lambda found: not _has(found, "-c", "--count"),
    "grep": lambda found: not _has(found, "-o", "--only-matching", "--label"),
}


def listed(found: Found) -> tuple[Word, ...]:
    """Return patterns of the paths a command prints, nothing when it may print anything else."""
    verdict = readonly.judge(found)
    if verdict.problem or found.place.nested or found.wraps is not None or found.function:
        return ()
    if found.name in _LISTERS and _LISTERS[found.name](found):
        words = [*verdict.reads, *(find.named(found.words[1:]) if found.name == "find" else ())]
        return tuple(_below(word) for word in words) if all(word.kind != "opaque" for word in words) else ()
    passes = found.name in _FILTERS and not verdict.reads and _FILTERS[found.name](found)
    return found.place.listed if passes else ()


def _below(word: Word) -> Word:
    if not word.literal:
        return word
    return Word(word.text, "glob", "", word.text.rstrip("/") + "/**")


def completed(words: tuple[Word, ...], before: Sequence[Word], names: tuple[Word, ...]) -> tuple[Word, ...] | None:
    """Return the words of a read with the names `xargs` adds to them, None where what it adds must stay unknown.

    A name may hold blanks, and begin with a dash after one: only a command that no option makes dangerous will do.
    """
    name = words[0].text.rpartition("/")[2]
    line = options.flags(READ_ONLY.get(name, ""))
    if not names or name in CHECKS or not line.all_harmless or line.operands not in ("read", "pattern", "list", "walk"):
        return None
    options_of_xargs = [word.text for word in before[: len(before) - len(words)]]
    marks = [text for text in options_of_xargs if re.match(r"-[iI]|--replace", text)]
    if not marks:
        return (*words, *names)
    if marks not in (["-I{}"], ["-i"], ["-I"]) or (marks == ["-I"] and "{}" not in options_of_xargs):
        return None
    if any("{}" in word.text and word.text != "{}" for word in words):
        return None
    return tuple(each for word in words for each in (names if word.text == "{}" else (word,)))
