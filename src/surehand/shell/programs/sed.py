"""The program `sed`: whether a script only reads (no `e`, `w`, `r`, and no such flag), what it touches and runs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.programs.record import Program, by_words, judge_files
from surehand.shell.touches import Touch, loosely
from surehand.shell.verdict import Verdict
from surehand.shell.word import Word
from surehand.shell.wrappers import Started

_ADDRESS = lazy_pattern(r"\s*(?:\d+(?:~\d+)?|\$|\+\d+|~\d+)")
_SIMPLE = lazy_pattern(r"[=dDgGhHnNpPxzlF]|[qQlL]\s*\d*")
# A label ends at a blank, and the next command follows it: `:a w file` writes. A `#` belongs to the label.
_LABEL = lazy_pattern(r"[:btT][ \t]*[\w.-]*[ \t]*(?=[;}\n]|\Z)", re.ASCII)
# Text begins on the line of its command or after `\\` on the next one. On neither, the next line is a command.
_TEXT = lazy_pattern(r"[aic][ \t]*(?:\\\n|\\?(?=[^\s\\]))(?:[^\n\\]|\\.)*", re.DOTALL)
_BRACKET = lazy_pattern(r"\[\^?\]?(?:\[:[a-z]+:\]|[^\]\n])*\]")
_ODD_IN_BRACKET = lazy_pattern(r"\\(?![tnrsSwW])")  # `[\t]` ends at the same place however it is read, `[\]]` does not
_SUBSTITUTION_FLAGS = lazy_pattern(r"[gpiIm0-9]*")


def reads_only(script: str) -> bool:
    """Return whether every command of the script is known to change and run nothing."""
    position, depth = 0, 0
    while position < len(script):
        character = script[position]
        if character in " \t\n;":
            position += 1
        elif character == "}":
            depth -= 1
            position += 1
        elif character == "#":
            position = _end_of_line(script, position)
        else:
            after = _command(script, position)
            if after is None:
                return False
            depth += script[after - 1] == "{"
            position = after
    return depth == 0


def _command(script: str, position: int) -> int | None:
    """Return where the command at `position` ends, `None` when it is not one that is known to read."""
    at = _addresses(script, position)
    if at is None or at >= len(script):
        return None
    letter = script[at]
    if letter == "{":
        return at + 1
    if letter == "s":
        return _substitution(script, at + 1)
    if letter == "y":
        end = _end_of_delimited(script, at + 1, 2, pattern=False)
        return end if end is not None and _ends(script, end) else None
    for pattern, closes in ((_TEXT, False), (_LABEL, False), (_SIMPLE, True)):
        hit = pattern.match(script, at)
        if hit is not None:
            return hit.end() if not closes or _ends(script, hit.end()) else None
    return None


def _addresses(script: str, position: int) -> int | None:
    at = position
    for part in range(2):
        at = _blank(script, at)
        if at < len(script) and script[at] in "/\\":
            start = at + 1 if script[at] == "\\" else at
            end = _end_of_delimited(script, start, 1)
            if end is None:
                return None
            while end < len(script) and script[end] in "IM":
                end += 1
            at = end
        elif hit := _ADDRESS.match(script, at):
            at = hit.end()
        at = _blank(script, at)
        if part == 0 and at < len(script) and script[at] == ",":
            at += 1
        else:
            break
    at = _blank(script, at)
    while at < len(script) and script[at] in "! ":
        at += 1
    return at


def _substitution(script: str, at: int) -> int | None:
    end = _end_of_delimited(script, at, 2)
    if end is None:
        return None
    hit = _SUBSTITUTION_FLAGS.match(script, end)
    after = hit.end() if hit else end
    return after if _ends(script, after) else None


def _end_of_delimited(script: str, at: int, parts: int, *, pattern: bool = True) -> int | None:
    """Return the position after `parts` texts that the character at `at` delimits.

    A delimiter or a backslash inside a bracket expression reads differently from one `sed` to the next: `None`.
    """
    if at >= len(script) or script[at] in "\\\n;":
        return None
    delimiter, position = script[at], at + 1
    while position < len(script) and parts:
        character = script[position]
        if character == "\n":
            return None
        if character == "\\":
            position += 1
        elif character == "[" and pattern:
            end = _after_bracket(script, position)
            if end is None or delimiter in script[position:end] or _ODD_IN_BRACKET.search(script[position:end]):
                return None
            position = end - 1
        elif character == delimiter:
            parts -= 1
            pattern = False
        position += 1
    return position if not parts else None


def _after_bracket(script: str, position: int) -> int | None:
    hit = _BRACKET.match(script, position)
    return hit.end() if hit else None


def _ends(script: str, position: int) -> bool:
    """Whether a command may end here: anything else glued to it would be read as something else."""
    at = _blank(script, position)
    return at >= len(script) or script[at] in ";\n}#"


def _blank(script: str, at: int) -> int:
    while at < len(script) and script[at] in " \t":
        at += 1
    return at


def _end_of_line(script: str, position: int) -> int:
    end = script.find("\n", position)
    return len(script) if end < 0 else end


_SED = options.flags(
    "-nrEsuz -e: --quiet --silent --expression: --regexp-extended --separate --unbuffered --null-data --posix "
    "--sandbox --debug @filter"
)


def _judge_sed(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, _SED)
    if parsed.unknown:
        return Verdict(f"`sed {parsed.unknown[0].text}` is not known to be read-only")
    scripts = parsed.values("-e", "--expression")
    files = parsed.operands if scripts else parsed.operands[1:]
    given = scripts or parsed.operands[:1]
    if opaque := next((script for script in given if not script.literal), None):
        return Verdict(f"the script of `sed` is not literal: {opaque.text}", unreadable=True)
    # Each `-e` is a line of one script: `-e '/a/{' -e p -e '}'`.
    if not parsed.has("--sandbox") and not reads_only("\n".join(script.text for script in given)):
        return Verdict("the script of `sed` is not known to be read-only")
    return judge_files("sed", files)


def _sed_touches(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = loosely(words, "-nrEsuzi? -e: -f:r -l: --expression: --file:r --in-place? --quiet --silent --line-length:")
    files = parsed.operands if parsed.has("-e", "--expression", "-f", "--file") else parsed.operands[1:]
    for word in [*parsed.read, *files]:
        yield Touch("read", word)
        if parsed.has("-i", "--in-place"):
            yield Touch("write", word)
    scripts = parsed.values("-e", "--expression") or parsed.operands[:1]
    for script in scripts:
        for hit in re.finditer(r"(?:^|[;{\n/$\d!gpI\s])w\s+([^\n;}]+)", script.text):
            yield Touch("write", Word(hit[1].strip(), script.kind))
        for hit in re.finditer(r"(?:^|[;{\n/$\d])[rR]\s+([^\n;}]+)", script.text):
            yield Touch("read", Word(hit[1].strip(), script.kind))


def _sed_starts(words: Sequence[Word]) -> Iterator[Started]:
    """Yield what the command `e` of a script runs."""
    for word in words:
        if word.literal and not reads_only(word.text):
            for hit in re.finditer(r"(?:^|[\s;{}\d$/!,])e[ \t]+([^\n]+)", word.text):
                yield Started(script=Word(hit[1]))


PROGRAMS: tuple[Program, ...] = (
    Program("sed", heeds="own",
            kind="read", version="--version --help", check=by_words(_judge_sed), touches=_sed_touches,
            starts=_sed_starts, run_by_others=True, runs=("sed 5q f", "sed '/^#/d' f"),
            asks=("sed -i.bak '1d' data.csv", "sed -l 'w x' p f")),  # to a BSD, `-l` has no value
    Program("gsed", kind="read", check=by_words(_judge_sed), touches=_sed_touches, starts=_sed_starts,
            runs=("gsed -n 1,5p a.txt",), asks=("gsed -i p README.md",)),
)  # fmt: skip
