"""The programs `sed` and `awk`: whether a script only reads, and what it touches and runs otherwise.

A script reads if it has no command or flag that runs or writes (`e`, `w`, `r` of sed; `system`, pipes, output files and
input from commands of awk). An ambiguous script is not a read: a `/` in awk divides or opens a pattern depending on
what precedes it, and a quote in a pattern opens no string.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from surehand.core.text import lazy_pattern
from surehand.shell import options
from surehand.shell.options import Verdict
from surehand.shell.programs.record import Program, by_words, judge_files
from surehand.shell.touches import Touch, parse_leniently
from surehand.shell.word import Word
from surehand.shell.wrappers import Started

_ADDRESS = lazy_pattern(r"\s*(?:\d+(?:~\d+)?|\$|\+\d+|~\d+)")
_SIMPLE = lazy_pattern(r"[=dDgGhHnNpPxzlF]|[qQlL]\s*\d*")
# A label ends at a blank, after which a command may follow: `:a w file` writes. A `#` belongs to the label.
_LABEL = lazy_pattern(r"[:btT][ \t]*[\w.-]*[ \t]*(?=[;}\n]|\Z)", re.ASCII)
# Text begins on the line of its command, or on the next one after `\\`; otherwise the next line is a command.
_TEXT = lazy_pattern(r"[aic][ \t]*(?:\\\n|\\?(?=[^\s\\]))(?:[^\n\\]|\\.)*", re.DOTALL)
_BRACKET = lazy_pattern(r"\[\^?\]?(?:\[:[a-z]+:\]|[^\]\n])*\]")
_ODD_IN_BRACKET = lazy_pattern(r"\\(?![tnrsSwW])")  # `[\t]` ends at the same place in every sed, `[\]]` does not
_SUBSTITUTION_FLAGS = lazy_pattern(r"[gpiIm0-9]*")


def sed_reads_only(script: str) -> bool:
    """Return whether every command of the script is known to only read."""
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
    """Return where the command at `position` ends; `None` if it is not known to only read."""
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
    """Return the position after `parts` texts delimited by the character at `at`.

    `None` for a delimiter or a backslash inside a bracket expression: versions of `sed` read these differently.
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
    """Whether a command ends here; other characters would change its meaning."""
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
    # All `-e` values together are one script: `-e '/a/{' -e p -e '}'`.
    if not parsed.has("--sandbox") and not sed_reads_only("\n".join(script.text for script in given)):
        return Verdict("the script of `sed` is not known to be read-only")
    return judge_files("sed", files)


def _sed_touches(words: Sequence[Word]) -> Iterator[Touch]:
    parsed = parse_leniently(
        words, "-nrEsuzi? -e: -f:r -l: --expression: --file:r --in-place? --quiet --silent --line-length:"
    )
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
    """Yield the commands that `e` in a script runs."""
    for word in words:
        if word.literal and not sed_reads_only(word.text):
            for hit in re.finditer(r"(?:^|[\s;{}\d$/!,])e[ \t]+([^\n]+)", word.text):
                yield Started(script=Word(hit[1]))


# Runs a program, opens files that are not among the words of the command (`ARGV[1] = "x"`), or shows the whole
# environment.
_RUNS = lazy_pattern(
    r"\b(?:system|getline|fflush|close|include|load|namespace|ARGV|ARGC|SYMTAB)\b|@|\bENVIRON\b(?!\s*\[\s*0\s*\])"
)
# Refused even in strings: the marks used below, and calls.
_NEVER = lazy_pattern(r"[\x01\x02]|\bsystem\s*\(|@\s*[A-Za-z_]\w*\s*\(")
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
# After these, versions of awk disagree whether `/` divides; also after a `)` that may end a condition.
_EITHER = frozenset(("length", "next", "nextfile", "break", "continue", "delete", "getline", "case"))
_CONDITION = lazy_pattern(r"\b(?:if|while|for|switch)\b")
_CONTINUED = lazy_pattern(r"(,|&&|\|\||\?|:)\s*\n")  # the statement continues on the next line
_STREAM = "\x01"  # mark for the strings `/dev/stdout` and `/dev/stderr`: printing there writes no file
_FILTER = "\x02"  # mark for a command that only filters what is printed to it
_FILTERS = lazy_pattern(
    r'"(?:sort(?: +-(?:[bdfghnrRuVs]+|k ?\d[\d.,bdfghnrV]*|t ?[^\s"\\\'$`;&|<>()*?]))*'
    r'|uniq(?: +-[cdiu]+)?|wc(?: +-[lwcm]+)?|(?:head|tail)(?: +-n ?\d+| +-\d+)?|column +-t)"'
)
_TO_FILTER = lazy_pattern(rf"(?<!\|)\|\s*{_FILTER}\s*(?=[;}}\n]|\Z)")
_TO_STREAM = lazy_pattern(rf">>?\s*{_STREAM}\s*(?=[;}}\n]|\Z)")
_PRINT = lazy_pattern(r"\b(?:print|printf)\b([^;}\n]*)")


def awk_reads_only(program: str) -> bool:
    """Return whether the program is known to write only to standard output."""
    code = None if _NEVER.search(program) else _code(program)
    if code is None or _RUNS.search(code):
        return False
    code = _TO_FILTER.sub("", _TO_STREAM.sub("", code)).replace(_FILTER, " 0 ")
    if ">>" in code or re.search(r"(?<!\|)\|(?!\|)", code):
        return False
    return not any(_redirects(hit.group(1)) for hit in _PRINT.finditer(code))


def _code(program: str) -> str | None:
    """Return the program with strings and patterns replaced; `None` if it is ambiguous."""
    code: list[str] = []
    before = "\n"  # the last token that is not a blank
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
            return None  # an unterminated string, or a line continued after blanks or a comment
        elif kind == "string":
            is_stream = text in ('"/dev/stderr"', '"/dev/stdout"')
            code.append(_STREAM if is_stream else _FILTER if _FILTERS.fullmatch(text) else " 0 ")
        elif kind != "comment":
            code.append(" " if kind == "blank" else text)
        if kind not in ("blank", "comment"):
            before = text
        position += len(text)
    return _CONTINUED.sub(r"\1 ", "".join(code))


def _opens_pattern(before: str) -> bool:
    return before in _BEFORE_A_PATTERN or before in _OPENS_OPERAND


def _divides(before: str, program: str, position: int) -> bool:
    """Whether the slash certainly divides: it follows an operand, and no string or comment precedes the next slash."""
    if not _AFTER_AN_OPERAND.search(before) or _opens_pattern(before):
        return False
    between, slash, _ = program[position + 1 :].partition("\n")[0].partition("/")
    if not slash:
        return True
    doubtful = before in _EITHER or (before == ")" and _CONDITION.search(program) is not None)
    return not doubtful and not re.search(r'["#]', between)


def _redirects(statement: str) -> bool:
    """Whether a `>` outside parentheses redirects the output of `print`."""
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
    if not rest[0].literal or not awk_reads_only(rest[0].text):
        return Verdict("the program of `awk` is not known to be read-only", unreadable=not rest[0].literal)
    return judge_files("awk", [word for word in rest[1:] if not re.match(r"[A-Za-z_]\w*=", word.text)])


PROGRAMS: tuple[Program, ...] = (
    Program("sed", heeds="own",
            kind="read", version="--version --help", check=by_words(_judge_sed), touches=_sed_touches,
            starts=_sed_starts, run_by_others=True, runs=("sed 5q f", "sed '/^#/d' f"),
            asks=("sed -i.bak '1d' data.csv", "sed -l 'w x' p f")),  # on BSD `-l` takes no value
    Program("gsed", kind="read", check=by_words(_judge_sed), touches=_sed_touches, starts=_sed_starts,
            runs=("gsed -n 1,5p a.txt",), asks=("gsed -i p README.md",)),
    Program("awk", heeds="own", kind="read", version="--version --help", check=by_words(_judge_awk),
            runs=("awk 1 *.md", "awk '/foo/' f", """awk '{print $1 | "sort -rn"}' f"""),
            asks=("awk -D x", """awk '{print $1 | "sort -o x"}' f""", """awk '{print | "sort"; print > "x"}' f""")),
    Program("gawk", kind="read", version="--version --help -V", check=by_words(_judge_awk),
            runs=("gawk '{print $1}' a.txt",), asks=("gawk --profile=out 'BEGIN{}'",)),
    Program("mawk", aliases=("nawk",), kind="read", check=by_words(_judge_awk), runs=("mawk '{print $1}' a.txt",),
            asks=("mawk -W exec x.awk",)),
)  # fmt: skip
