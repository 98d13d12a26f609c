"""Whether an `awk` program only reads: no `system`, no pipe, no output file, no input from a command."""

from __future__ import annotations

import re

_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"')
_REGEX = re.compile(r"(^|[(,{;!~&|\n}])(\s*)/(?:[^/\\\n\[]|\\.|\[\^?\]?(?:[^\]\\\n]|\\.)*\])+/")
_COMMENT = re.compile(r"#[^\n]*")
_RUNS = re.compile(r"\b(?:system|getline|fflush|close|include|load|namespace)\b|@|>>|(?<!\|)\|(?!\|)|\|&")
_PRINT = re.compile(r"\b(?:print|printf)\b([^;}\n]*)")


def reads_only(program: str) -> bool:
    """Return whether the program is known to write to standard output alone."""
    bare = _COMMENT.sub("", _REGEX.sub(r"\1\2 0 ", _STRING.sub(" 0 ", program)))
    if '"' in bare or _RUNS.search(bare):
        return False
    return not any(_redirects(hit.group(1)) for hit in _PRINT.finditer(bare))


def _redirects(statement: str) -> bool:
    """Whether a `>` stands outside parentheses, where awk takes it for a redirection."""
    depth = 0
    for character in statement:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == ">" and depth <= 0:
            return True
    return False
