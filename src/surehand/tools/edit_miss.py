"""Explain an edit that missed: name the difference, and quote the nearest text of the file for the next try.

The likely causes are tried in turn. Most are ways to rewrite lines so that a difference vanishes: the first that makes
the text match names the difference, and the file's own text is quoted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from surehand.core.frozen import frozen

TEXT_LIMIT: Final = 4_000_000
"""Characters; in larger files the causes that rewrite lines are not tried."""
_SHOWN_LIMIT: Final = 4000
_LINE_LIMIT: Final = 200_000
"""Characters; nor in files with a longer line, which is rewritten in one step that holds the GIL."""
_FUZZY_LIMIT: Final = 400_000
_LIKENESS: Final = 55.0
_SAME_PLACE: Final = 60.0
"""How similar (%) old and new text must be for the new one to count as already applied."""
_COMPARED: Final = 2000
"""Characters of a text that are compared for similarity."""

_LOOK_ALIKES: Final = str.maketrans(
    {
        **dict.fromkeys("‘’‚‛′´`＇ʼ", "'"),
        **dict.fromkeys("“”„‟″＂«»", '"'),
        **dict.fromkeys("‐‑‒–—―−－﹣", "-"),
        **dict.fromkeys(
            "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
        **dict.fromkeys("\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f", None),
        **{chr(code): chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F) if chr(code) not in "＇＂－"},
        "…": "...",
    }
)
_NUMBERED: Final = re.compile(r"^ {0,6}\d+(?:\t|→)", re.MULTILINE)


@frozen
class Miss:
    """Why a text was not found, and the nearest text."""

    difference: str
    """The kind of difference, for programs: `whitespace`, `line_ends`, `applied`, `similar`, `absent`..."""
    message: str
    hint: str = ""
    nearest: str = ""
    line: int = 0


def explain_miss(text: str, old: str, new: str) -> Miss:
    """Return the likeliest reason why `old` is not in `text`."""
    for explain in (_line_numbers, _carriage_returns, _escapes, _by_lines, _edges):
        found = explain(text, old)
        if found is not None:
            return found
    return (
        _find_applied(text, old, new)
        or _similar(text, old)
        or Miss(
            "absent",
            "String to replace not found in file, and nothing in it is like it.",
            "Read the file again; it may be another file that you mean.",
        )
    )


def _describe_miss(difference: str, explanation: str, text: str, start: int, end: int) -> Miss:
    nearest, line = text[start:end], text.count("\n", 0, start) + 1
    shown = nearest if len(nearest) <= _SHOWN_LIMIT else nearest[:_SHOWN_LIMIT] + "…"
    last = line + nearest.rstrip("\n").count("\n")
    where = f"line {line}" if last == line else f"lines {line}-{last}"
    message = f"String to replace not found in file. {explanation}\n"
    message += f"The nearest text ({where}), exactly as in the file:\n{shown}"
    return Miss(difference, message, "Send exactly this text as old_string.", nearest, line)


def _find_applied(text: str, old: str, new: str) -> Miss | None:
    """Return a Miss if the change seems to be made already: `new` is where `old` should be.

    `new` must occur once, resemble `old`, and nothing else may resemble `old` as much: `pass` or `return x` somewhere
    in the file proves nothing.
    """
    at = text.find(new) if new.strip() else -1
    if at < 0 or text.find(new, at + 1) >= 0 or _goes_on(text, at, at + len(new)):
        return None
    from rapidfuzz.fuzz import ratio

    likeness = ratio(old[:_COMPARED], new[:_COMPARED], score_cutoff=_SAME_PLACE)
    if not likeness:
        return None
    elsewhere = text[:at] + "\0" * len(new) + text[at + len(new) :]
    if _nearest(elsewhere, old, likeness) is not None:
        return None
    miss = _describe_miss("applied", "new_string is already there.", text, at, at + len(new))
    return replace(miss, hint="The change seems to be made already; nothing more is needed.")


def _goes_on(text: str, start: int, end: int) -> bool:
    """Return whether a part of a text begins or ends inside a word."""
    edges = text[max(0, start - 1) : start + 1], text[end - 1 : end + 1]
    return any(len(edge) == 2 and _is_word(edge[0]) and _is_word(edge[1]) for edge in edges)


def _is_word(character: str) -> bool:
    return character.isalnum() or character == "_"


def _line_numbers(text: str, old: str) -> Miss | None:
    bare = _NUMBERED.sub("", old)
    if bare == old or (at := text.find(bare)) < 0:
        return None
    explanation = "old_string holds the line numbers that Read shows; they are not part of the file."
    return _describe_miss("line_numbers", explanation, text, at, at + len(bare))


def _carriage_returns(text: str, old: str) -> Miss | None:
    plain = old.replace("\r\n", "\n").replace("\r", "\n")
    if plain == old:
        return None
    at = text.replace("\r\n", "\n").find(plain)
    if at < 0:
        return None
    explanation = "old_string spells its line ends with CR (CRLF), the file does not have them there."
    miss = _describe_miss("line_ends", explanation, text.replace("\r\n", "\n"), at, at + len(plain))
    return Miss(miss.difference, miss.message, "Send the text with plain LF line ends.", miss.nearest, miss.line)


def _escapes(text: str, old: str) -> Miss | None:
    unescaped = old
    for spelled, meant in (("\\n", "\n"), ("\\t", "\t"), ('\\"', '"'), ("\\'", "'"), ("\\\\", "\\")):
        unescaped = unescaped.replace(spelled, meant)
    if unescaped != old and (at := text.find(unescaped)) >= 0:
        explanation = (
            "old_string holds escapes (a backslash and a letter) where the file has the characters themselves."
        )
        return _describe_miss("escapes", explanation, text, at, at + len(unescaped))
    plain = old.replace("\n", "\\n").replace("\t", "\\t")
    backslashes = old.replace("\\", "\\\\").replace("\n", "\\n").replace("\t", "\\t")
    for escaped in (plain, backslashes, backslashes.replace('"', '\\"')):
        if escaped != old and (at := text.find(escaped)) >= 0:
            explanation = "the file spells it with escapes (a backslash and a letter), old_string with the characters."
            return _describe_miss("escapes", explanation, text, at, at + len(escaped))
    return None


_Rewrite = Callable[[str], str]


def _tabs(line: str) -> str:
    return line.expandtabs(4)


def _wide_tabs(line: str) -> str:
    return line.expandtabs(8)


def _unify_look_alikes(line: str) -> str:
    return line.translate(_LOOK_ALIKES)


def _strip_quotes(line: str) -> str:
    return line.replace('"', "'").replace("`", "'")


def _compose_characters(line: str) -> str:
    import unicodedata

    return unicodedata.normalize("NFC", line)


def _squeeze_spaces(line: str) -> str:
    return " ".join(line.split())


def _forgiving(line: str) -> str:
    return _squeeze_spaces(_unify_look_alikes(line)).casefold()


_REWRITES: Final[tuple[tuple[str, str, _Rewrite], ...]] = (
    ("trailing_blanks", "It differs in blanks at the end of lines.", str.rstrip),
    ("tabs", "It differs in tabs and spaces.", _tabs),
    ("tabs", "It differs in tabs and spaces.", _wide_tabs),
    (
        "look_alikes",
        "It differs in characters that look alike (quotes, dashes, odd blanks, invisible ones).",
        _unify_look_alikes,
    ),
    ("look_alikes", "It differs in how accented characters are composed (Unicode NFC and NFD).", _compose_characters),
    ("quotes", "It differs in its quotes (' and \").", _strip_quotes),
    ("indentation", "It differs in indentation (blanks at the beginning of lines).", str.strip),
    ("whitespace", "It differs in white space.", _squeeze_spaces),
    ("case", "It differs in upper and lower case.", str.casefold),
    ("several", "It differs in white space, case and characters that look alike.", _forgiving),
)


def _by_lines(text: str, old: str) -> Miss | None:
    """Try the rewrites; the first that makes the lines match names the difference."""
    if len(text) > TEXT_LIMIT or not old.strip():
        return None
    lines, wanted = text.replace("\r\n", "\n").split("\n"), old.replace("\r\n", "\n").split("\n")
    if max(map(len, (*lines, *wanted))) > _LINE_LIMIT:
        return None
    starts = _offsets(text)
    for difference, explanation, rewrite in _REWRITES:
        found = _window([rewrite(line) for line in lines], [rewrite(line) for line in wanted])
        if found is None:
            continue
        first, last = found, found + len(wanted) - 1
        end = starts[last + 1] - 1 if last + 1 < len(starts) else len(text)
        if text[end - 1 : end] == "\r":
            end -= 1
        if wanted[-1] == "" and len(wanted) > 1:
            end = starts[last]
        return _describe_miss(
            difference, explanation + _detail(difference, lines[first], wanted[0]), text, starts[first], end
        )
    return None


def _offsets(text: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("\n", text))]


def _window(lines: list[str], wanted: list[str]) -> int | None:
    """Return the index of the first line where `wanted` matches; its first and last line may match part of a line."""
    if len(wanted) == 1:
        return next((index for index, line in enumerate(lines) if wanted[0] and wanted[0] in line), None)
    first, middle, last = wanted[0], wanted[1:-1], wanted[-1]
    for index in range(len(lines) - len(wanted) + 1):
        if (
            lines[index].endswith(first)
            and lines[index + 1 : index + 1 + len(middle)] == middle
            and lines[index + len(wanted) - 1].startswith(last)
        ):
            return index
    return None


def _detail(difference: str, line: str, wanted: str) -> str:
    if difference == "tabs":
        has_tabs = "\t" in line[: len(line) - len(line.lstrip())]
        return " The file indents with tabs, old_string with spaces." if has_tabs else (
            " The file indents with spaces, old_string with tabs." if "\t" in wanted else ""
        )  # fmt: skip
    if difference == "look_alikes":
        only_here, only_wanted = (set(line) - set(wanted), set(wanted) - set(line))
        for ours in sorted(only_wanted, key=wanted.index):
            for theirs in sorted(only_here, key=line.index):
                if _unify_look_alikes(theirs) == _unify_look_alikes(ours):
                    return f" The file has U+{ord(theirs):04X} where old_string has U+{ord(ours):04X}."
    return ""


def _edges(text: str, old: str) -> Miss | None:
    stripped = old.strip("\n")
    if stripped == old or not stripped or (at := text.find(stripped)) < 0:
        return None
    explanation = "It differs in empty lines at its beginning or end."
    return _describe_miss("blank_lines", explanation, text, at, at + len(stripped))


def _similar(text: str, old: str) -> Miss | None:
    """Return the part of the text most similar to `old`, if any is similar at all."""
    found = _nearest(text, old, _LIKENESS) if old.strip() else None
    if found is None:
        return None
    start, end, score = found
    start = text.rfind("\n", 0, start) + 1 if "\n" in old or start - text.rfind("\n", 0, start) < 200 else start
    stop = text.find("\n", max(start, end - 1))
    end = len(text) if stop < 0 else stop
    if end - start > max(2000, 4 * len(old)):
        end = start + max(2000, 4 * len(old))
    miss = _describe_miss("similar", f"The nearest text is {score:.0f}% alike.", text, start, end)
    return replace(miss, hint="If that is the text you mean, send it exactly so as old_string; if not, Read the file.")


def _nearest(text: str, old: str, least: float) -> tuple[int, int, float] | None:
    """Return start, end and similarity of the text most similar to `old`, if that is at least `least` percent.

    Compared window by window, first in wide steps: one comparison with the whole text would hold the GIL for seconds.
    """
    from rapidfuzz.fuzz import ratio

    old = old[:_COMPARED]
    window, base = _around(text, old)
    old = old[: len(window)]
    step, last = max(1, len(old) // 8), len(window) - len(old)

    def likeness(at: int) -> float:
        return ratio(old, window[at : at + len(old)])

    near = max(range(0, last + step, step), key=likeness)
    best = max(range(max(0, near - step), min(near + step, last) + 1), key=likeness)
    score = likeness(best)
    return None if score < least else (base + best, base + best + len(old), score)


def _around(text: str, old: str) -> tuple[str, int]:
    """Return the part of a large text worth comparing, around the longest word shared with `old`, and its offset."""
    if len(text) <= _FUZZY_LIMIT:
        return text, 0
    at = next((place for word in _rarest(old) if (place := text.find(word)) >= 0), 0)
    start = max(0, at - _FUZZY_LIMIT // 2)
    return text[start : start + _FUZZY_LIMIT], start


def _rarest(old: str) -> Sequence[str]:
    return sorted(set(re.findall(r"\w{4,}", old)), key=len, reverse=True)
