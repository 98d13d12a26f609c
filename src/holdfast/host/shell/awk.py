"""Whether an `awk` program only reads: no `system`, no pipe, no output file, no input from a command.

Whether a `/` divides or opens a pattern depends on what stands before it, and a quote in a pattern opens no string.
Where that leaves two readings, the program is not called a read.
"""

from __future__ import annotations

import re

# What runs a program, or names files that are not among the words of the command (`ARGV[1] = "x"`).
_RUNS = re.compile(r"\b(?:system|getline|fflush|close|include|load|namespace|ARGV|ARGC|SYMTAB)\b|@")
_TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<comment>\#[^\n]*)
  | (?P<slash>/)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<blank>[ \t]+|\\\n)
  | (?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PATTERN = re.compile(r"/(?:[^/\\\n\[\"]|\\[^\n\"]|\[\^?\]?[^\]\n\"/\\]*\])*/")
_BEFORE_A_PATTERN = frozenset("(,{;!~&|\n}")
_OPENS_OPERAND = frozenset(("print", "printf", "return", "in", "else", "do", "case"))
_CONTINUED = re.compile(r"(,|&&|\|\|)\s*\n")  # the statement goes on in the next line
_PRINT = re.compile(r"\b(?:print|printf)\b([^;}\n]*)")


def reads_only(program: str) -> bool:
    """Return whether the program is known to write to standard output alone."""
    if _RUNS.search(program):
        return False
    code = _code(program)
    if code is None or ">>" in code or re.search(r"(?<!\|)\|(?!\|)", code):
        return False
    return not any(_redirects(hit.group(1)) for hit in _PRINT.finditer(code))


def _code(program: str) -> str | None:
    """Return the program with strings and patterns put out of sight; `None` when it reads in two ways."""
    code: list[str] = []
    before = "\n"  # the last thing that is no blank
    position = 0
    while position < len(program):
        token = _TOKEN.match(program, position)
        if token is None:
            return None
        kind, text = token.lastgroup, token.group()
        if kind == "slash":
            hit = _PATTERN.match(program, position) if _opens_pattern(before) else None
            if hit is None and (_opens_pattern(before) or not _divides(program, position)):
                return None
            text = hit.group() if hit else "/"
            code.append(" 0 " if hit else text)
        elif text == '"':
            return None  # a string that does not end
        elif kind != "comment":
            code.append({"string": " 0 ", "blank": " "}.get(kind or "", text))
        if kind not in ("blank", "comment"):
            before = text
        position += len(text)
    return _CONTINUED.sub(r"\1 ", "".join(code))


def _opens_pattern(before: str) -> bool:
    return before in _BEFORE_A_PATTERN or before in _OPENS_OPERAND


def _divides(program: str, position: int) -> bool:
    """Whether reading the slash as a division cannot hide a string: no quote stands before the next slash."""
    end = program.find("/", position + 1)
    return '"' not in program[position : end if end > 0 else len(program)] or end < 0


def _redirects(statement: str) -> bool:
    """Whether a `>` stands outside parentheses, where awk takes it for a redirection."""
    depth = 0
    for character in statement:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == ">" and depth <= 0:
            return True
    return False
