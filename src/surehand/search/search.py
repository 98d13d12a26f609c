"""Searching the files of a tree with `rg`: results in one stable order, stopped as soon as there are enough.

How a search proceeds depends on the size of the tree:

- A small tree is walked here, and its files are passed to `rg`. If the pattern is plain text, files that do not contain
  it are skipped; if none does, `rg` is not started.
- In a large tree the first files are tried: a common pattern fills its result from them. Otherwise one `rg` counts the
  matching lines of every file on all cores, which takes as long as finding them. Sorted by path, the counts say which
  few files contain the lines asked for, and only those are searched again for their text.

So a truncated result is always the beginning of the same list. What `rg` finds is judged again by our own ignore rules,
which are git's. If `rg` reads a rule otherwise, the tree is walked here and its files are passed to `rg`.

Files are opened beneath the root, following no link on the way. `rg` gets the descriptors (as names `N`, started in
`/proc/self/fd`) instead of paths, so that it reads exactly what was opened even if paths change meanwhile.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from contextlib import suppress
from functools import cache
from itertools import islice
from types import TracebackType
from typing import Any, Final, TypeVar

from surehand.files.paths import open_strict
from surehand.search import ripgrep
from surehand.search.ignore_files import write_memory_file
from surehand.search.ripgrep import Line, parse_lines
from surehand.search.survey import Judge, last_rules, survey, walk_options
from surehand.search.walk import Walk, order

MAX_OPEN_FILES: Final = 400
"""Files open for one run of `rg`; a process often gets only 1,024 descriptors."""
LARGE: Final = 1 << 20
"""Size (bytes) from which on a file's beginning and its lines are examined before it is searched."""
CHUNK: Final = 1 << 16
GLANCE: Final = 1 << 10
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Root:
    """The open root of a search; opens files beneath it."""

    def __init__(self, fd: int, hides: Callable[[os.stat_result, bytes], bool] | None = None) -> None:
        self._fd = fd
        self._hides = hides
        """Whether a file with several names (hard links) must not be searched because of one of them."""
        self._folder = b""
        self._folder_fd = fd
        """The folder of the last file, kept open: the next file is mostly in the same one."""

    def close(self) -> None:
        """Close all descriptors."""
        self._leave()
        os.close(self._fd)

    def open(self, path: bytes) -> tuple[int, int] | None:
        """Open a regular file, following no link on the way; return descriptor and size, or None for anything else."""
        folder, _, name = path.rpartition(b"/")
        try:
            if folder != self._folder:
                self._enter(folder)
            fd = os.open(name, _READ, dir_fd=self._folder_fd)
        except OSError:
            return None
        status = os.fstat(fd)
        hidden = status.st_nlink > 1 and self._hides is not None and self._hides(status, path)
        if stat.S_ISREG(status.st_mode) and not hidden:
            return fd, status.st_size
        os.close(fd)
        return None

    def _enter(self, folder: bytes) -> None:
        self._leave()
        if folder:
            self._folder_fd = open_strict(self._fd, os.fsdecode(folder), _FOLDER, 0)
            self._folder = folder

    def _leave(self) -> None:
        if self._folder:
            os.close(self._folder_fd)
        self._folder, self._folder_fd = b"", self._fd


def has_monstrous_line(fd: int, size: int) -> bool:
    """Whether a large file seems to have lines of megabytes; `rg` would hold all matches of such a line in memory."""
    if size < LARGE:
        return False
    places = {0, size // 2, max(0, size - LARGE)}
    return any(b"\n" not in os.pread(fd, LARGE, place) for place in places)


class OpenFiles:
    """Regular files opened beneath the search root, passed to `rg` as descriptors; binary ones are mostly left out.

    Also left out are files that do not contain `needed`, the bytes of every match, if reading them costs little.
    """

    def __init__(self, root: Root, files: Sequence[bytes], needed: bytes = b"") -> None:
        self.files: dict[bytes, bytes] = {}
        """The name that `rg` gets → the path."""
        self.fds: dict[bytes, int] = {}
        self.bytes = self.largest = 0
        """The total size, and the size of the largest file."""
        self._needed = needed
        self._may_read = LITTLE if needed else 0
        try:
            for path in files:
                if opened := root.open(path):
                    self._add(path, *opened)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> OpenFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close every open file."""
        for fd in self.fds.values():
            os.close(fd)
        self.fds = {}

    def monstrous(self) -> dict[bytes, int]:
        """Return the files with lines of megabytes: the names that `rg` gets, with their sizes."""
        if self.largest < LARGE:
            return {}
        sizes = ((name, fd, os.fstat(fd).st_size) for name, fd in zip(self.files, self.fds.values(), strict=True))
        return {name: size for name, fd, size in sizes if has_monstrous_line(fd, size)}

    def is_binary(self, path: bytes) -> bool:
        """Whether an open file is binary."""
        return is_binary(self.fds[path])

    def _add(self, path: bytes, fd: int, size: int) -> None:
        # `rg` reads a file that it gets by name to its end, binary or not. Most binary files have a NUL early.
        if self._lacks_needed(fd, size) or begins_binary(fd, CHUNK if size > LARGE else GLANCE):
            os.close(fd)
            return
        self.fds[path] = fd
        self.bytes, self.largest = self.bytes + size, max(self.largest, size)
        self.files[_name(path, fd)] = path

    def _lacks_needed(self, fd: int, size: int) -> bool:
        if size >= self._may_read:
            return False
        with suppress(OSError):
            content = os.pread(fd, size + 1, 0)
            self._may_read -= len(content)
            # `rg` decodes UTF-16, so the bytes would differ; and it would read what was appended meanwhile.
            return len(content) <= size and self._needed not in content and not is_utf16(content)
        return False


def _name(path: bytes, fd: int) -> bytes:
    return b"./" + path if _descriptors() is None else b"%d" % fd


@cache
def _descriptors() -> bytes | None:
    """Return the directory where a process finds its own descriptors by name; None if a container hides it."""
    return next((place for place in (b"/proc/self/fd", b"/dev/fd") if os.path.isdir(place)), None)


def begins_binary(fd: int, within: int = CHUNK) -> bool:
    """Whether there is a NUL near the beginning of a file that is not UTF-16."""
    try:
        beginning = os.pread(fd, within, 0)
    except OSError:
        return False
    return b"\0" in beginning and not is_utf16(beginning)


def is_binary(fd: int) -> bool:
    """Whether a file has a NUL and no byte order mark of UTF-16; an unreadable file counts as binary."""
    at = 0
    with suppress(OSError):
        while chunk := os.pread(fd, 1 << 20, at):
            if at == 0 and is_utf16(chunk):
                return False
            if b"\0" in chunk:
                return True
            at += len(chunk)
        return False
    return True


def is_utf16(data: bytes) -> bool:
    """Whether data begins with a byte order mark of UTF-16."""
    return data.startswith((b"\xff\xfe", b"\xfe\xff"))


T = TypeVar("T")

SMALL: Final = 600
"""Number of files up to which a tree is walked here."""
FEW: Final = 24
"""Up to this many files are searched for lines at once. Of more, matches are counted first: most files have none."""
PROBE: Final = 48
"""Files of a large tree that are tried first."""
DEADLINE_S: Final = 20.0
LITTLE: Final = 4 << 20
"""Total size (bytes) up to which files are searched for lines in one run, without counting first."""
COUNTING: Final = ("--count", "--null", "--with-filename")
COUNTING_MATCHES: Final = ("--count-matches", "--null", "--with-filename")
MATCHES_LISTED: Final = 100_000
"""Matches in a file with lines of megabytes up to which their positions are requested; each costs `rg` memory."""
MATCHES_COUNTED: Final = 64 << 20
"""Size (bytes) of such a file up to which its matches are counted beforehand."""


def everything(path: bytes) -> bool:
    """Keep every file."""
    del path
    return True


class Search:
    """One search below `walk.root`. Its methods block, and return early if `stop` is set."""

    def __init__(
        self,
        walk: Walk,
        pattern: ripgrep.Pattern,
        keeps: Callable[[bytes], bool] = everything,
        narrow: Sequence[str] = (),
        stop: ripgrep.Stop | None = None,
        hides: Callable[[os.stat_result, bytes], bool] | None = None,
        deadline: float | None = None,
    ) -> None:
        self.walk = walk
        self.pattern = pattern
        self.keeps = keeps
        """Whether a file (path from the root) passes the filters of the call."""
        self.narrow = narrow
        """Options that make `rg` skip files that `keeps` would refuse."""
        self.stop = stop or ripgrep.Stop()
        self.hides = hides
        """Whether a file with several names (hard links) must not be searched because of one of them."""
        self.pcre2 = False
        self.asked = False
        """Whether `rg` was run, and so has accepted the pattern."""
        self.wanted = 0
        """Files found that pass the filters: all of them in a small tree, the first ones in a large tree."""
        self.deadline = time.monotonic() + DEADLINE_S if deadline is None else deadline
        self._root: Root
        """The root, while a search runs."""

    def lines(self, need: int) -> list[Line]:
        """Return the first `need` lines in order."""
        return self._from_root(lambda: self._lines(need))

    def counts(self, need: int) -> list[tuple[bytes, int]]:
        """Return the first `need` files with a match, in order, with their numbers of matching lines."""
        return self._from_root(lambda: self._counts(need))

    def _from_root(self, find: Callable[[], list[T]]) -> list[T]:
        try:
            self._root = Root(self.walk.open_root(), self.hides)
        except OSError:
            self.walk.tally.unreadable += 1
            return []
        try:
            return find()
        finally:
            self._root.close()

    def _lines(self, need: int) -> list[Line]:
        walker = self._list_wanted()
        first = list(islice(walker, SMALL + 1))
        if len(first) <= SMALL:
            return self._lines_of(first, need)
        found = self._probe(first, walker, need, self._lines_of)
        if found is not None:
            return found
        counted = self._count_by_rg()
        if counted is None:
            return self._lines_of([*first, *walker], need)
        return self._lines_of([path for path, _ in counted], need, [number for _, number in counted])

    def _counts(self, need: int) -> list[tuple[bytes, int]]:
        walker = self._list_wanted()
        first = list(islice(walker, SMALL + 1))
        if len(first) <= SMALL:
            return self._count_files(first)[:need]
        found = self._probe(first, walker, need, lambda files, _: self._count_files(files))
        if found is not None:
            return found[:need]
        counted = self._count_by_rg()
        if counted is None:
            return self._count_files([*first, *walker])[:need]
        return list(islice(filter(self._is_there, counted), need))

    def _is_there(self, counted: tuple[bytes, int]) -> bool:
        """Whether a file that `rg` counted is in the tree, and not behind a link created meanwhile."""
        opened = self._root.open(counted[0])
        if opened:
            os.close(opened[0])
        return opened is not None

    def _list_wanted(self) -> Iterator[bytes]:
        for path, is_file in self.walk.files():
            if self.stop.wanted:
                return
            if is_file and self.keeps(path):
                self.wanted += 1
                yield path

    def _probe(
        self,
        first: list[bytes],
        walker: Iterator[bytes],
        need: int,
        find: Callable[[list[bytes], int], list[T]],
    ) -> list[T] | None:
        """Search the first files of a large tree; None unless they fill the result."""
        found = find(first[:PROBE], need)
        tried = PROBE
        # If every few files have a match, trying more of them is cheaper than counting all.
        while len(found) < need and len(found) * 8 >= tried and tried < 4 * SMALL:
            more = min(max(tried, tried * need // len(found)), 4 * SMALL) * 5 // 4
            first += islice(walker, max(0, tried + more - len(first)))
            found += find(first[tried : tried + more], need - len(found))
            tried += more
        return found if len(found) >= need else None

    def _lines_of(self, files: Sequence[bytes], need: int, expected: Sequence[int] = ()) -> list[Line]:
        """Return the first `need` lines of files given in order, searched in growing batches.

        `expected` are the numbers of matching lines in the files, if they were counted.
        """
        found: list[Line] = []
        at, size = 0, max(FEW, _files_for(expected, need)) if expected else MAX_OPEN_FILES
        while at < len(files) and len(found) < need:
            part = files[at : at + size]
            if len(part) > FEW and not expected:
                if (lines := self._lines_in_one_run(part, need)) is not None:
                    found += lines
                    at, size = at + size, size * 4
                    continue
                counted = self._count_files(part)
                found += self._lines_of([path for path, _ in counted], need, [number for _, number in counted])
            else:
                for begin in range(0, len(part), MAX_OPEN_FILES):
                    found += self._lines_of_batch(part[begin : begin + MAX_OPEN_FILES], need)
            at, size = at + size, size * 4
        return found[:need]

    def _lines_in_one_run(self, files: Sequence[bytes], need: int) -> list[Line] | None:
        """Return the first lines of small files: one thread of `rg` searches them in order and is stopped early.

        None if the files are too large or the pattern is multiline.
        """
        if self.pattern.multiline:
            return None
        with OpenFiles(self._root, files, self.pattern.literal) as held:
            if held.bytes > LITTLE or held.largest >= LARGE:
                return None
            messages = ripgrep.parse_messages(self._run_on(held.files, held, [*self.line_options(need), "--threads=1"]))
            try:
                by_file = _by_file(held, messages, need, enough=need)
            finally:
                messages.close()
            last = next(reversed(by_file), None)  # not read to its end, so it may be binary
            if last is not None and sum(map(len, by_file.values())) >= need and held.is_binary(last):
                return None
        return [line for lines in by_file.values() for line in lines]

    def _lines_of_batch(self, files: Sequence[bytes], need: int) -> list[Line]:
        with OpenFiles(self._root, files, self.pattern.literal) as held:
            long = self._with_too_many_matches(held)
            others = [name for name in held.files if name not in long]
            try:
                by_file = _by_file(
                    held, ripgrep.parse_messages(self._run_on(others, held, self.line_options(need))), need
                )
                # A file that was not read to its end may be binary.
                unsure = [path for path, lines in by_file.items() if len(lines) >= need]
            except ripgrep.BrokeOffError:
                if not self.pattern.multiline:
                    raise
                run = self._run_on(others, held, self.line_options(need, ripgrep.PRINTING))
                by_file = _by_file(held, ripgrep.parse_printed(run), need)
                unsure = list(by_file)
            if long:
                run = self._run_on(long, held, self.line_options(need, ripgrep.SHORTENED))
                shortened = _by_file(held, ripgrep.parse_printed(run), need)
                by_file, unsure = by_file | shortened, [*unsure, *shortened]
            for path in filter(held.is_binary, unsure):
                del by_file[path]
        return [line for path in files for line in by_file.get(path, ())]

    def _with_too_many_matches(self, held: OpenFiles) -> list[bytes]:
        """Return the names of files with lines of megabytes that have too many matches for `rg` to list."""
        long = held.monstrous()
        few = [name for name, size in long.items() if size <= MATCHES_COUNTED]
        matches = dict(ripgrep.parse_counts(self._run_on(few, held, COUNTING_MATCHES)))
        return [name for name in long if name not in few or matches.get(name, 0) > MATCHES_LISTED]

    def _count_files(self, files: Sequence[bytes]) -> list[tuple[bytes, int]]:
        found: dict[bytes, int] = {}
        for begin in range(0, len(files), MAX_OPEN_FILES):
            with OpenFiles(self._root, files[begin : begin + MAX_OPEN_FILES], self.pattern.literal) as held:
                run = self._run_on(held.files, held, COUNTING)
                counted = ((held.files[name], number) for name, number in ripgrep.parse_counts(run))
                found |= {path: number for path, number in counted if not held.is_binary(path)}
        return [(path, found[path]) for path in files if path in found]

    def _run_on(self, names: Collection[bytes], held: OpenFiles, options: Sequence[str]) -> Iterator[bytes]:
        # Files passed by name are searched whatever the rules say; without `--no-ignore`, `rg` would still read rule
        # files above each. It calls stat on each name six times, with `--follow` three times, and started in the
        # folder of the descriptors each call takes half as long.
        arguments = [*options, "--no-ignore", "--follow", "--", *names]
        return self.run(arguments, held=tuple(held.fds.values()), folder=_descriptors()) if names else iter(())

    def _count_by_rg(self) -> list[tuple[bytes, int]] | None:
        """Let `rg` walk and count, and drop what our rules leave out; None if `rg` would leave out too much.

        It starts with the rules of the last search here while the survey checks whether they still hold.
        """
        rules = last_rules(self.walk)
        run = self._walk_by(rules)
        try:
            next(run, None)
            tree = survey(self.walk, self.stop)
            if tree is None:
                return None
            if tree.given != rules:
                run.close()
                run = self._walk_by(tree.given)
            counted = self._count_kept(run)
        finally:
            run.close()
        self.walk.tally.secret, self.walk.tally.unreadable = sum(tree.secrets.values()), tree.unreadable
        return counted

    def _walk_by(self, rules: bytes) -> Generator[bytes]:
        """Let `rg` walk and count, by a list of rules or by the rule files of the tree."""
        given = write_memory_file(rules) if rules else None
        options = [*walk_options(self.walk, given), *self.narrow, *COUNTING]
        try:
            yield from self.run([*options, "--", b"."], held=() if given is None else (given,))
        finally:
            if given is not None:
                os.close(given)

    def _count_kept(self, run: Iterator[bytes]) -> list[tuple[bytes, int]]:
        judge = Judge(self.walk)
        found = ((path.removeprefix(b"./"), number) for path, number in ripgrep.parse_counts(run))
        kept = [each for each in found if self.keeps(each[0]) and judge.keeps(each[0])]
        return sorted(kept, key=lambda each: order(each[0]))

    def line_options(self, need: int, form: Sequence[str] = ("--json",)) -> list[str]:
        """Return the options for printing lines, at most `need` of each file."""
        context = [f"--context={self.pattern.context}"] if self.pattern.context else []
        # For multiline patterns `--max-count` counts matches, of which a line may have many. Some of them make `rg`
        # panic when it writes JSON, and with several threads it would then deadlock.
        return [*form, *context, "--threads=1" if self.pattern.multiline else f"--max-count={need}"]

    def run(
        self,
        arguments: Sequence[str | bytes],
        stdin: int | None = None,
        held: tuple[int, ...] = (),
        folder: bytes | None = None,
    ) -> Iterator[bytes]:
        """Run `rg` in a folder (default: the root), with PCRE2 if only that understands the pattern.

        Raises ToolFailure with an explanation of a bad pattern.
        """
        self.asked = True
        try:
            yield from self._run_until_deadline(arguments, stdin, held, folder or self.walk.root)
        except ripgrep.BadPatternError as problem:
            if self.pcre2 and "PCRE2" not in str(problem):
                return  # with PCRE2 messages are on, and this one is about a file that could not be read
            if "match limit" in str(problem) or "recursion" in str(problem):
                raise ripgrep.too_costly(self.pattern.text) from None
            if self.pcre2 or not ripgrep.NEEDS_PCRE2.search(self.pattern.text):
                raise ripgrep.bad_pattern(self.pattern.text, str(problem)) from None
            if stdin is not None:
                os.lseek(stdin, 0, os.SEEK_SET)
            self.pcre2 = True
            yield from self.run(arguments, stdin, held, folder)

    def _run_until_deadline(
        self, arguments: Sequence[str | bytes], stdin: int | None, held: tuple[int, ...], folder: bytes
    ) -> Iterator[bytes]:
        arguments = [*self.pattern.options(pcre2=self.pcre2), *arguments]
        try:
            yield from ripgrep.stream_output(
                arguments, folder, self.stop, stdin=stdin, held=held, deadline=self.deadline
            )
        except ripgrep.TooSlowError:
            raise ripgrep.too_slow(DEADLINE_S) from None


def _files_for(expected: Sequence[int], need: int) -> int:
    """Return how many of the first files contain `need` lines, given the number of each."""
    total = 0
    for at, number in enumerate(expected, 1):
        total += number
        if total >= need:
            return at
    return len(expected)


def _by_file(
    held: OpenFiles, messages: Iterator[tuple[str, dict[str, Any]]], need: int, *, enough: int | None = None
) -> dict[bytes, list[Line]]:
    """Collect the lines of each file, until there are `enough`; drops binary files."""
    by_file: dict[bytes, list[Line]] = {}
    path = b""
    done = 0
    for kind, data in messages:
        if kind == "begin":
            path = held.files[ripgrep.text_bytes(data["path"])]
            by_file[path] = []
        elif kind in ("match", "context") and len(by_file[path]) < need:
            by_file[path] += parse_lines(path, kind, data)
            if enough is not None and done + len(by_file[path]) >= enough:
                break
        elif kind == "end":
            if data["binary_offset"] is not None:
                del by_file[path]
            else:
                done += len(by_file[path])
    return by_file


def search_open_file(fd: int, pattern: ripgrep.Pattern, need: int, stop: ripgrep.Stop) -> list[Line] | None:
    """Return the first matching lines of an open file; None if it is binary."""
    if begins_binary(fd):
        return None
    search = Search(Walk(b"/"), pattern, stop=stop)
    size = os.fstat(fd).st_size
    if has_monstrous_line(fd, size) and (size > MATCHES_COUNTED or _count_matches(search, fd) > MATCHES_LISTED):
        run = search.run([*search.line_options(need, ripgrep.SHORTENED), "--", "-"], stdin=fd)
        shortened = _collect_lines(ripgrep.parse_printed(run), need)
        return None if is_binary(fd) or shortened is None else shortened[:need]
    try:
        lines = _collect_lines(
            ripgrep.parse_messages(search.run([*search.line_options(need), "--", "-"], stdin=fd)), need
        )
        unsure = lines is not None and len(lines) >= need  # not read to its end, so it may be binary
    except ripgrep.BrokeOffError:
        if not pattern.multiline:
            raise
        os.lseek(fd, 0, os.SEEK_SET)
        lines = _collect_lines(
            ripgrep.parse_printed(search.run([*search.line_options(need, ripgrep.PRINTING), "--", "-"], stdin=fd)), need
        )
        unsure = True
    return None if lines is None or (unsure and is_binary(fd)) else lines[:need]


def _count_matches(search: Search, fd: int) -> int:
    number = sum(number for _, number in ripgrep.parse_counts(search.run([*COUNTING_MATCHES, "--", "-"], stdin=fd)))
    os.lseek(fd, 0, os.SEEK_SET)
    return number


def _collect_lines(messages: Iterator[tuple[str, dict[str, Any]]], need: int) -> list[Line] | None:
    lines: list[Line] = []
    for kind, data in messages:
        if kind in ("match", "context"):
            lines += parse_lines(b"", kind, data)
            if len(lines) >= need:
                break
        elif kind == "end" and data["binary_offset"] is not None:
            return None
    return lines


def count_open_file(fd: int, pattern: ripgrep.Pattern, stop: ripgrep.Stop) -> int | None:
    """Return the number of matching lines of an open file; None if it is binary."""
    if begins_binary(fd):
        return None
    run = Search(Walk(b"/"), pattern, stop=stop).run([*COUNTING, "--", "-"], stdin=fd)
    number = sum(number for _, number in ripgrep.parse_counts(run))
    return None if number and is_binary(fd) else number


def refuse_bad(pattern: ripgrep.Pattern, stop: ripgrep.Stop) -> None:
    """Raise ToolFailure for an invalid pattern that went unnoticed because there was no file to search."""
    if pattern.literal:
        return
    with open(os.devnull, "rb") as nothing:
        count_open_file(nothing.fileno(), pattern, stop)
