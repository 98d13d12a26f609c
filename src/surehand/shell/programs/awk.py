"""The program `awk`, and whether its script only reads: no `system`, no pipe, no output file, no input from a command.

Whether a `/` divides or opens a pattern depends on what stands before it, and a quote in a pattern opens no string.
Where that leaves two readings, the program is not called a read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.programs.record import Program, by_words, judge_files
from surehand.shell.verdict import Verdict
from surehand.shell.word import Word

# What runs a program, names files that are not among the words of the command (`ARGV[1] = "x"`), or shows the whole
# environment.
_RUNS = lazy_pattern(
    r"\b(?:system|getline|fflush|close|include|load|namespace|ARGV|ARGC|SYMTAB)\b|@|\bENVIRON\b(?!\s*\[\s*0\s*\])"
)
# Not even in what seems to be a string: the mark of some strings below, and calls.
_NEVER = lazy_pattern(r"\x01|\bsystem\s*\(|@\s*[A-Za-z_]\w*\s*\(")
_TOKEN = lazy_pattern(
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
_PATTERN = lazy_pattern(r"/(?:[^/\\\n\[\"]|\\[^\n\"]|\[\^?\]?[^\]\n\"/\\]*\])*/")
_BEFORE_A_PATTERN = frozenset("(,{;!~&|\n}=<>?:[*%^")
_OPENS_OPERAND = frozenset(("print", "printf", "return", "in", "else", "do", "exit"))
_AFTER_AN_OPERAND = lazy_pattern(r"[A-Za-z0-9_)\]\"]\Z")
# After these one awk divides and another opens a pattern; so does `)` where it may end the condition of a statement.
_EITHER = frozenset(("length", "next", "nextfile", "break", "continue", "delete", "getline", "case"))
_CONDITION = lazy_pattern(r"\b(?:if|while|for|switch)\b")
_CONTINUED = lazy_pattern(r"(,|&&|\|\||\?|:)\s*\n")  # the statement goes on in the next line
_STREAM = "\x01"  # where strings are out of sight, marks what a user sees: printing there writes no file
_TO_STREAM = lazy_pattern(rf">>?\s*{_STREAM}\s*(?=[;}}\n]|\Z)")
_PRINT = lazy_pattern(r"\b(?:print|printf)\b([^;}\n]*)")


def reads_only(program: str) -> bool:
    """Return whether the program is known to write to standard output alone."""
    code = None if _NEVER.search(program) else _code(program)
    if code is None or _RUNS.search(code):
        return False
    code = _TO_STREAM.sub("", code)
    if ">>" in code or re.search(r"(?<!\|)\|(?!\|)", code):
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
            if hit is None and not _divides(before, program, position):
                return None
            text = hit.group() if hit else "/"
            code.append(" 0 " if hit else text)
        elif text in ('"', "\\"):
            return None  # a string that does not end, a line that may go on after blanks or a comment
        elif kind == "string":
            code.append(_STREAM if text in ('"/dev/stderr"', '"/dev/stdout"') else " 0 ")
        elif kind != "comment":
            code.append(" " if kind == "blank" else text)
        if kind not in ("blank", "comment"):
            before = text
        position += len(text)
    return _CONTINUED.sub(r"\1 ", "".join(code))


def _opens_pattern(before: str) -> bool:
    return before in _BEFORE_A_PATTERN or before in _OPENS_OPERAND


def _divides(before: str, program: str, position: int) -> bool:
    """Whether the slash divides for certain: after an operand, with nothing hidden up to the next one of its line."""
    if not _AFTER_AN_OPERAND.search(before) or _opens_pattern(before):
        return False
    between, slash, _ = program[position + 1 :].partition("\n")[0].partition("/")
    if not slash:
        return True
    doubtful = before in _EITHER or (before == ")" and _CONDITION.search(program) is not None)
    return not doubtful and not re.search(r'["#]', between)


def _redirects(statement: str) -> bool:
    """Whether a `>` stands outside parentheses, where awk takes it for a redirection."""
    depth = 0
    for character in statement:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == ">" and depth <= 0:
            return True
    return False


_AWK = options.flags("-F: -v: --field-separator: --assign: --sandbox --posix --traditional --re-interval -S -P @filter")


def _judge_awk(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, _AWK, permute=False)
    rest = parsed.operands or list(words[parsed.used :])
    if parsed.unknown or not rest:
        return Verdict("`awk` with these options is not known to be read-only")
    if any(value.kind == "opaque" for _, value in parsed.options if value is not None):
        return Verdict("an option of `awk` is not literal", unreadable=True)
    if not rest[0].literal or not reads_only(rest[0].text):
        return Verdict("the program of `awk` is not known to be read-only", unreadable=not rest[0].literal)
    return judge_files("awk", [word for word in rest[1:] if not re.match(r"[A-Za-z_]\w*=", word.text)])


PROGRAMS: tuple[Program, ...] = (
    Program("awk", heeds="own", kind="read", version="--version --help", check=by_words(_judge_awk),
            runs=("awk 1 *.md", "awk '/foo/' f"), asks=("awk -D x",)),
    Program("gawk", kind="read", version="--version --help -V", check=by_words(_judge_awk),
            runs=("gawk '{print $1}' a.txt",), asks=("gawk --profile=out 'BEGIN{}'",)),
    Program("mawk", aliases=("nawk",), kind="read", check=by_words(_judge_awk), runs=("mawk '{print $1}' a.txt",),
            asks=("mawk -W exec x.awk",)),
)  # fmt: skip
