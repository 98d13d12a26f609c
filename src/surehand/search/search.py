"""Searching the files of a tree: the results of `rg`, in one stable order, stopped as soon as there are enough.

How a search goes depends on how large the tree turns out to be:

- A small one is walked here to its end, and its files are named to `rg`. Where the pattern is plain text, files
  without it are skipped; if none has it, `rg` is not started.
- Of a large one the first files are tried: a common pattern fills its result from them. Otherwise one `rg` counts the
  lines of every file on all cores, which is as much work as finding them; sorted by path the counts say which few
  files hold the lines asked for, and only those are searched again for their text.

So a cut result is always the beginning of the same list. What `rg` finds is judged again by our own ignore rules,
which are git's; where a rule means something else to `rg`, the tree is walked here and the files are named to it.

Files are opened beneath the root, following no link on the way, and `rg` is given the descriptors (`N`, started in
`/proc/self/fd`) instead of names, so that it reads exactly what was opened, whatever happens to the names meanwhile.
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
from surehand.search.ignore_files import hold_open
from surehand.search.ripgrep import Line, lines_in
from surehand.search.survey import Judge, last_rules, survey, walk_options
from surehand.search.walk import Walk, order

MAX_OPEN_FILES: Final = 400
"""Files open for one run of `rg`; a process often gets only 1,024 descriptors."""
LARGE: Final = 1 << 20
"""Bytes from which on it pays to look closer at a file's beginning before it is searched."""
CHUNK: Final = 1 << 16
GLANCE: Final = 1 << 10
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Root:
    """The open root of a search, from which its files are opened."""

    def __init__(self, fd: int, hides: Callable[[os.stat_result, bytes], bool] | None = None) -> None:
        self._fd = fd
        self._hides = hides
        """Says of a file with several names whether one of them keeps it from being searched."""
        self._folder = b""
        self._folder_fd = fd
        """The folder the last file was in: the next one is mostly in the same."""

    def close(self) -> None:
        """Close the directory."""
        self._leave()
        os.close(self._fd)

    def open(self, path: bytes) -> tuple[int, int] | None:
        """Open a regular file, following no link on the way; return it and its size, None for anything else."""
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
    """Say whether a large file seems to have lines of megabytes: `rg` would keep every match in one of them."""
    if size < LARGE:
        return False
    places = {0, size // 2, max(0, size - LARGE)}
    return any(b"\n" not in os.pread(fd, LARGE, place) for place in places)


class OpenFiles:
    """Regular files opened beneath the search root, passed to `rg` by their descriptors; no large binary ones.

    Files that lack the bytes every match has (`needed`) are left out, as far as little has to be read to know it.
    """

    def __init__(self, root: Root, files: Sequence[bytes], needed: bytes = b"") -> None:
        self.files: dict[bytes, bytes] = {}
        """The name `rg` is given → the path."""
        self.fds: dict[bytes, int] = {}
        self.bytes = self.largest = 0
        """The size of all, and of the largest."""
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
        """Return the names `rg` is given of files with lines of megabytes, each with its size."""
        if self.largest < LARGE:
            return {}
        sizes = ((name, fd, os.fstat(fd).st_size) for name, fd in zip(self.files, self.fds.values(), strict=True))
        return {name: size for name, fd, size in sizes if has_monstrous_line(fd, size)}

    def is_binary(self, path: bytes) -> bool:
        """Whether an open file is binary."""
        return is_binary(self.fds[path])

    def _add(self, path: bytes, fd: int, size: int) -> None:
        # A file that is named `rg` reads to its end, binary or not. Most binary files have a NUL soon.
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
            # `rg` translates UTF-16, and reads what is added meanwhile.
            return len(content) <= size and self._needed not in content and not is_utf16(content)
        return False


def _name(path: bytes, fd: int) -> bytes:
    return b"./" + path if _descriptors() is None else b"%d" % fd


@cache
def _descriptors() -> bytes | None:
    """Return where a process finds its own descriptors by name; None in a container that shows them nowhere."""
    return next((place for place in (b"/proc/self/fd", b"/dev/fd") if os.path.isdir(place)), None)


def begins_binary(fd: int, within: int = CHUNK) -> bool:
    """Return whether there is a NUL near the beginning of a file that is not UTF-16."""
    try:
        beginning = os.pread(fd, within, 0)
    except OSError:
        return False
    return b"\0" in beginning and not is_utf16(beginning)


def is_binary(fd: int) -> bool:
    """Return whether a file has a NUL anywhere and is not UTF-16 with its mark; what cannot be read counts as such."""
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
    """Return whether data begins with a mark of UTF-16."""
    return data.startswith((b"\xff\xfe", b"\xfe\xff"))


T = TypeVar("T")

SMALL: Final = 600
"""Files up to which a tree is walked here."""
FEW: Final = 24
"""Up to this many files are read at once. With more, matches are counted first: most files have none."""
PROBE: Final = 48
"""Files of a large tree that are tried first."""
DEADLINE_S: Final = 20.0
LITTLE: Final = 4 << 20
"""Bytes of files up to which their lines are read in one run, without counting first where they are."""
COUNTING: Final = ("--count", "--null", "--with-filename")
COUNTING_MATCHES: Final = ("--count-matches", "--null", "--with-filename")
MATCHES_LISTED: Final = 100_000
"""Matches in a file with lines of megabytes up to which their places are asked for; each costs `rg` memory."""
MATCHES_COUNTED: Final = 64 << 20
"""Bytes of such a file up to which its matches are counted, to know that."""


def everything(path: bytes) -> bool:
    """Keep every file."""
    del path
    return True


class Search:
    """One search below `walk.root`; its methods block, and end early when `stop` is set."""

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
        """Which files (paths from the root) are wanted at all."""
        self.narrow = narrow
        """Options that tell `rg` to leave out early what `keeps` would refuse."""
        self.stop = stop or ripgrep.Stop()
        self.hides = hides
        """Says of a file with several names whether one of them keeps it from being searched."""
        self.pcre2 = False
        self.asked = False
        """Whether `rg` was run: it has read the pattern then, and would have refused a bad one."""
        self.wanted = 0
        """Files that are wanted, as far as they were looked for: all of them in a small tree."""
        self.deadline = time.monotonic() + DEADLINE_S if deadline is None else deadline
        self._root: Root
        """The root, while a search runs."""

    def lines(self, need: int) -> list[Line]:
        """Return the first `need` lines in order (all of them when there are fewer)."""
        return self._from_root(lambda: self._lines(need))

    def counts(self, need: int) -> list[tuple[bytes, int]]:
        """Return the first `need` files with a match and their numbers of matching lines, in order."""
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
        counted = self._counted_by_rg()
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
        counted = self._counted_by_rg()
        if counted is None:
            return self._count_files([*first, *walker])[:need]
        return list(islice(filter(self._is_there, counted), need))

    def _is_there(self, counted: tuple[bytes, int]) -> bool:
        """Return whether what `rg` counted lies in the tree, and not behind a link put there meanwhile."""
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
        """Try the first files of a large tree; None unless they fill the result."""
        found = find(first[:PROBE], need)
        tried = PROBE
        # A pattern found in every few files is worth a second and a third try.
        while len(found) < need and len(found) * 8 >= tried and tried < 4 * SMALL:
            more = min(max(tried, tried * need // len(found)), 4 * SMALL) * 5 // 4
            first += islice(walker, max(0, tried + more - len(first)))
            found += find(first[tried : tried + more], need - len(found))
            tried += more
        return found if len(found) >= need else None

    def _lines_of(self, files: Sequence[bytes], need: int, expected: Sequence[int] = ()) -> list[Line]:
        """Return the first `need` lines of files given in order, searched in parts that grow."""
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
        """Return the first lines of files with little in them, which one thread of `rg` searches one after the other.

        It is stopped as soon as there are enough. None where that will not do.
        """
        if self.pattern.multiline:
            return None
        with OpenFiles(self._root, files, self.pattern.literal) as held:
            if held.bytes > LITTLE or held.largest >= LARGE:
                return None
            messages = ripgrep.messages(self._run_on(held.files, held, [*self.line_options(need), "--threads=1"]))
            try:
                by_file = _by_file(held, messages, need, enough=need)
            finally:
                messages.close()
            last = next(reversed(by_file), None)  # left before its end it may turn out to be binary
            if last is not None and sum(map(len, by_file.values())) >= need and held.is_binary(last):
                return None
        return [line for lines in by_file.values() for line in lines]

    def _lines_of_batch(self, files: Sequence[bytes], need: int) -> list[Line]:
        with OpenFiles(self._root, files, self.pattern.literal) as held:
            long = self._with_too_many_matches(held)
            others = [name for name in held.files if name not in long]
            try:
                by_file = _by_file(held, ripgrep.messages(self._run_on(others, held, self.line_options(need))), need)
                # A file left before its end may turn out to be binary.
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
        """Return the names of files with lines of megabytes that hold more matches than `rg` can list."""
        long = held.monstrous()
        few = [name for name, size in long.items() if size <= MATCHES_COUNTED]
        matches = dict(ripgrep.counts(self._run_on(few, held, COUNTING_MATCHES)))
        return [name for name in long if name not in few or matches.get(name, 0) > MATCHES_LISTED]

    def _count_files(self, files: Sequence[bytes]) -> list[tuple[bytes, int]]:
        found: dict[bytes, int] = {}
        for begin in range(0, len(files), MAX_OPEN_FILES):
            with OpenFiles(self._root, files[begin : begin + MAX_OPEN_FILES], self.pattern.literal) as held:
                run = self._run_on(held.files, held, COUNTING)
                counted = ((held.files[name], number) for name, number in ripgrep.counts(run))
                found |= {path: number for path, number in counted if not held.is_binary(path)}
        return [(path, found[path]) for path in files if path in found]

    def _run_on(self, names: Collection[bytes], held: OpenFiles, options: Sequence[str]) -> Iterator[bytes]:
        # Whoever is named is searched; without `--no-ignore` `rg` looks for rule files above each of them all the same.
        # It asks what a descriptor is six times: half as often where it follows links, and from its own folder each
        # time takes half as long, so that it starts there.
        arguments = [*options, "--no-ignore", "--follow", "--", *names]
        return self.run(arguments, held=tuple(held.fds.values()), folder=_descriptors()) if names else iter(())

    def _counted_by_rg(self) -> list[tuple[bytes, int]] | None:
        """Count with a walk of `rg`'s own and drop what our rules leave out; None where it would leave out too much.

        It begins by the rules that held last, while it is found out whether they still do.
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
        """Count with a walk of `rg`'s own by the rules given to it, or by the rule files it meets."""
        given = hold_open(rules) if rules else None
        options = [*walk_options(self.walk, given), *self.narrow, *COUNTING]
        try:
            yield from self.run([*options, "--", b"."], held=() if given is None else (given,))
        finally:
            if given is not None:
                os.close(given)

    def _count_kept(self, run: Iterator[bytes]) -> list[tuple[bytes, int]]:
        judge = Judge(self.walk)
        found = ((path.removeprefix(b"./"), number) for path, number in ripgrep.counts(run))
        kept = [each for each in found if self.keeps(each[0]) and judge.keeps(each[0])]
        return sorted(kept, key=lambda each: order(each[0]))

    def line_options(self, need: int, form: Sequence[str] = ("--json",)) -> list[str]:
        """Return the options for lines, no more of each file than are needed."""
        context = [f"--context={self.pattern.context}"] if self.pattern.context else []
        # Across lines `rg` counts matches, and any number of them may lie in one line. Some matches that end with a
        # line make it break off when it writes JSON, and several threads then wait for each other.
        return [*form, *context, "--threads=1" if self.pattern.multiline else f"--max-count={need}"]

    def run(
        self,
        arguments: Sequence[str | bytes],
        stdin: int | None = None,
        held: tuple[int, ...] = (),
        folder: bytes | None = None,
    ) -> Iterator[bytes]:
        """Run `rg` in a folder (else the root); a pattern only its other engine understands is given to that.

        A bad one is explained.
        """
        self.asked = True
        try:
            yield from self._in_time(arguments, stdin, held, folder or self.walk.root)
        except ripgrep.BadPatternError as problem:
            if self.pcre2 and "PCRE2" not in str(problem):
                return  # a file that could not be read; the other engine must not be silent about the pattern
            if "match limit" in str(problem) or "recursion" in str(problem):
                raise ripgrep.too_costly(self.pattern.text) from None
            if self.pcre2 or not ripgrep.NEEDS_PCRE2.search(self.pattern.text):
                raise ripgrep.bad_pattern(self.pattern.text, str(problem)) from None
            if stdin is not None:
                os.lseek(stdin, 0, os.SEEK_SET)
            self.pcre2 = True
            yield from self.run(arguments, stdin, held, folder)

    def _in_time(
        self, arguments: Sequence[str | bytes], stdin: int | None, held: tuple[int, ...], folder: bytes
    ) -> Iterator[bytes]:
        arguments = [*self.pattern.options(pcre2=self.pcre2), *arguments]
        try:
            yield from ripgrep.output(arguments, folder, self.stop, stdin=stdin, held=held, deadline=self.deadline)
        except ripgrep.TooSlowError:
            raise ripgrep.too_slow(DEADLINE_S) from None


def _files_for(expected: Sequence[int], need: int) -> int:
    """Return how many of the first files hold `need` lines, when their numbers are known."""
    total = 0
    for at, number in enumerate(expected, 1):
        total += number
        if total >= need:
            return at
    return len(expected)


def _by_file(
    held: OpenFiles, messages: Iterator[tuple[str, dict[str, Any]]], need: int, *, enough: int | None = None
) -> dict[bytes, list[Line]]:
    """Return the lines of each file, until there are `enough`; files that turn out to be binary are left out."""
    by_file: dict[bytes, list[Line]] = {}
    path = b""
    done = 0
    for kind, data in messages:
        if kind == "begin":
            path = held.files[ripgrep.text_bytes(data["path"])]
            by_file[path] = []
        elif kind in ("match", "context") and len(by_file[path]) < need:
            by_file[path] += lines_in(path, kind, data)
            if enough is not None and done + len(by_file[path]) >= enough:
                break
        elif kind == "end":
            if data["binary_offset"] is not None:
                del by_file[path]
            else:
                done += len(by_file[path])
    return by_file


def search_open_file(fd: int, pattern: ripgrep.Pattern, need: int, stop: ripgrep.Stop) -> list[Line] | None:
    """Return the first lines with matches of one open file, or None when it is binary."""
    if begins_binary(fd):
        return None
    search = Search(Walk(b"/"), pattern, stop=stop)
    size = os.fstat(fd).st_size
    if has_monstrous_line(fd, size) and (size > MATCHES_COUNTED or _count_matches(search, fd) > MATCHES_LISTED):
        run = search.run([*search.line_options(need, ripgrep.SHORTENED), "--", "-"], stdin=fd)
        shortened = _lines_read(ripgrep.parse_printed(run), need)
        return None if is_binary(fd) or shortened is None else shortened[:need]
    try:
        lines = _lines_read(ripgrep.messages(search.run([*search.line_options(need), "--", "-"], stdin=fd)), need)
        unsure = lines is not None and len(lines) >= need  # left before its end it may turn out to be binary
    except ripgrep.BrokeOffError:
        if not pattern.multiline:
            raise
        os.lseek(fd, 0, os.SEEK_SET)
        lines = _lines_read(
            ripgrep.parse_printed(search.run([*search.line_options(need, ripgrep.PRINTING), "--", "-"], stdin=fd)), need
        )
        unsure = True
    return None if lines is None or (unsure and is_binary(fd)) else lines[:need]


def _count_matches(search: Search, fd: int) -> int:
    number = sum(number for _, number in ripgrep.counts(search.run([*COUNTING_MATCHES, "--", "-"], stdin=fd)))
    os.lseek(fd, 0, os.SEEK_SET)
    return number


def _lines_read(messages: Iterator[tuple[str, dict[str, Any]]], need: int) -> list[Line] | None:
    lines: list[Line] = []
    for kind, data in messages:
        if kind in ("match", "context"):
            lines += lines_in(b"", kind, data)
            if len(lines) >= need:
                break
        elif kind == "end" and data["binary_offset"] is not None:
            return None
    return lines


def count_open_file(fd: int, pattern: ripgrep.Pattern, stop: ripgrep.Stop) -> int | None:
    """Return what `rg --count` says of one open file, or None when it is binary."""
    if begins_binary(fd):
        return None
    run = Search(Walk(b"/"), pattern, stop=stop).run([*COUNTING, "--", "-"], stdin=fd)
    number = sum(number for _, number in ripgrep.counts(run))
    return None if number and is_binary(fd) else number


def refuse_bad(pattern: ripgrep.Pattern, stop: ripgrep.Stop) -> None:
    """Raise for a pattern that cannot be read, which nobody has noticed where there was no file to search."""
    if pattern.literal:
        return
    with open(os.devnull, "rb") as nothing:
        count_open_file(nothing.fileno(), pattern, stop)
