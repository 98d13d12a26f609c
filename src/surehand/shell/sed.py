"""Whether a `sed` script only reads: no `e`, `w`, `W`, `r`, `R`, and no `e` or `w` flag on a substitution."""

from __future__ import annotations

import re

_ADDRESS = re.compile(r"\s*(?:\d+(?:~\d+)?|\$|\+\d+|~\d+)")
_SIMPLE = re.compile(r"[=dDgGhHnNpPxzlF]|[qQlL]\s*\d*")
# A label ends at a blank, and the next command follows it: `:a w file` writes. A `#` belongs to the label.
_LABEL = re.compile(r"[:btT][ \t]*[\w.-]*[ \t]*(?=[;}\n]|\Z)", re.ASCII)
# Text begins on the line of its command or after `\\` on the next one. On neither, the next line is a command.
_TEXT = re.compile(r"[aic][ \t]*(?:\\\n|\\?(?=[^\s\\]))(?:[^\n\\]|\\.)*", re.DOTALL)
_BRACKET = re.compile(r"\[\^?\]?(?:\[:[a-z]+:\]|[^\]\n])*\]")
_ODD_IN_BRACKET = re.compile(r"\\(?![tnrsSwW])")  # `[\t]` ends at the same place however it is read, `[\]]` does not
_SUBSTITUTION_FLAGS = re.compile(r"[gpiIm0-9]*")


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
        end = _delimited(script, at + 1, 2, pattern=False)
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
            end = _delimited(script, start, 1)
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
    end = _delimited(script, at, 2)
    if end is None:
        return None
    hit = _SUBSTITUTION_FLAGS.match(script, end)
    after = hit.end() if hit else end
    return after if _ends(script, after) else None


def _delimited(script: str, at: int, parts: int, *, pattern: bool = True) -> int | None:
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
