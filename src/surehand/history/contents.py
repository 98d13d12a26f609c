"""Contents by digest: each is stored once, however many changes refer to it.

Five forms: `raw` and `zlib` in the database row (small contents), `file` and `zfile` in a file named by the digest,
and `delta`, a list of splices on another content, so that edits of a large file cost only their differences. New
contents are stored uncompressed, since compressing takes longer than the edit; `compress` runs when the session closes.

A large file about to be replaced is hard-linked into the store, not copied. Every content is checked against its digest
when it is read, so that damage is noticed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
import struct
import time
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import FileIO
from typing import Final

from surehand.core.errors import ToolFailure
from surehand.core.session import digest_of
from surehand.files.atomic import write_all
from surehand.files.streamed import Bytes, Part, join_parts, part_blocks
from surehand.files.text import Splice, splice_bytes

SMALL_BYTES: Final = 64 * 1024
LINK_BYTES: Final = 128 * 1024
DELTA_DEPTH: Final = 40
BLOCK_BYTES: Final = 1 << 20
_HEAD: Final = struct.Struct("<QQQ")
_KNOWN: Final = 4096
"""The most digests in the cache of contents known to be in the database."""

SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS content(
    digest TEXT PRIMARY KEY, form TEXT NOT NULL, size INTEGER NOT NULL, stored INTEGER NOT NULL,
    base TEXT, depth INTEGER NOT NULL DEFAULT 0, body BLOB) WITHOUT ROWID;
"""
SCHEMA_3: Final = """
DROP INDEX IF EXISTS content_fresh;
CREATE INDEX content_plain ON content(size) WHERE form IN ('raw', 'file') AND size > 256;
CREATE TABLE total(bytes INTEGER NOT NULL);
INSERT INTO total SELECT COALESCE(SUM(stored), 0) FROM content;
CREATE TRIGGER content_added AFTER INSERT ON content BEGIN UPDATE total SET bytes = bytes + NEW.stored; END;
CREATE TRIGGER content_removed AFTER DELETE ON content BEGIN UPDATE total SET bytes = bytes - OLD.stored; END;
CREATE TRIGGER content_packed AFTER UPDATE OF stored ON content
    BEGIN UPDATE total SET bytes = bytes + NEW.stored - OLD.stored; END;
"""
"""The total size, kept by triggers instead of being summed up at every look; an index of what is worth compressing."""
_INSERT: Final = "INSERT OR IGNORE INTO content(digest, form, size, stored, base, depth, body) VALUES(?,?,?,?,?,?,?)"


class Contents:
    """The contents of one history. The caller holds the database's lock and transaction."""

    def __init__(self, database: sqlite3.Connection, folder: str | None) -> None:
        self._database = database
        self._folder = folder
        self.added = 0
        """Bytes stored since the limit was last checked."""
        self.known: dict[str, int] = {}
        """Digests known to be stored → the length of their chain of deltas."""
        self._placed: list[str] = []
        """Files of the store made in this transaction; deleted on rollback."""
        self._unneeded: dict[str, None] = {}
        """Files of the store to delete after the commit; until then they may be the only copy."""

    def has(self, digest: str) -> bool:
        """Return whether a content is stored."""
        return self._database.execute("SELECT 1 FROM content WHERE digest=?", (digest,)).fetchone() is not None

    def keep(self, digest: str, parts: Sequence[Part]) -> None:
        """Store a content given in parts."""
        if digest in self.known:
            return
        size = sum(len(part) for part in parts)
        if size <= SMALL_BYTES or self._folder is None:
            row = (digest, "raw", size, size, None, 0, join_parts(parts))
            self.added += size * (self._database.execute(_INSERT, row).rowcount == 1)
        elif not self.has(digest):
            self.added += size
            self._placed.append(self.path(digest))
            self._store_content(digest, parts)
            self._database.execute(_INSERT, (digest, "file", size, size, None, 0, None))

    def keep_small(self, contents: Mapping[str, bytes]) -> None:
        """Store many small contents, by their digests."""
        rows = [
            (digest, "raw", len(data), len(data), None, 0, data)
            for digest, data in contents.items()
            if digest not in self.known
        ]
        rows.sort()  # rows next to each other share pages
        before = self.total()
        self._database.executemany(_INSERT, rows)
        self.added += self.total() - before

    def keep_file(self, digest: str, size: int, path: str) -> None:
        """Store a large content from a file that nobody will write to: by a hard link, or else a copy."""
        if self.has(digest):
            return
        if self._folder is None:
            with open(path, "rb") as file:
                self.keep(digest, [file.read()])
            return
        self.added += size
        target = self.path(digest)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        self._unneeded.pop(target, None)
        self._placed.append(target)
        _remove(target)  # a stray: no row refers to it
        try:
            os.link(path, target, follow_symlinks=False)
        except OSError:
            _copy(path, target)
        self._database.execute(_INSERT, (digest, "file", size, size, None, 0, None))

    def keep_open(self, digest: str, size: int, file: int) -> None:
        """Store a large content by copying an open file."""
        if digest in self.known or self.has(digest):
            return
        self.added += size
        if self._folder is None:
            self._database.execute(_INSERT, (digest, "raw", size, size, None, 0, b"".join(read_blocks(file))))
            return
        target = self.path(digest)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        self._unneeded.pop(target, None)
        self._placed.append(target)
        _write(target, read_blocks(file))
        self._database.execute(_INSERT, (digest, "file", size, size, None, 0, None))

    def announce(self, digest: str, size: int) -> bool:
        """Insert the row of a file that `adopt` will bring in; return False if the content is stored already."""
        is_new = self._database.execute(_INSERT, (digest, "file", size, size, None, 0, None)).rowcount == 1
        self.added += size * is_new
        return is_new

    def adopt(self, digest: str, folder_fd: int, name: str, data: Bytes) -> None:
        """Bring in the file of an announced content: by a hard link, or else a copy."""
        target = self.path(digest)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        try:
            os.link(name, target, src_dir_fd=folder_fd, follow_symlinks=False)
        except OSError:
            self._store_content(digest, [data])

    def keep_after(self, digest: str, base: str, splices: Sequence[Splice], parts: Sequence[Part]) -> None:
        """Store a content that `splices` made of `base`: as a delta, unless the chain would be too long."""
        if not splices or not self._keep_delta(digest, base, splices, sum(len(part) for part in parts)):
            self.keep(digest, parts)

    def _keep_delta(self, digest: str, base: str, splices: Sequence[Splice], size: int) -> bool:
        depth = self._depth(base)
        if depth is None or depth >= DELTA_DEPTH or digest == base:
            return False
        body = b"".join(_HEAD.pack(each.start, each.end, len(each.new)) + each.new for each in splices)
        if len(body) > max(size // 2, 4096):
            return False
        if self._database.execute(_INSERT, (digest, "delta", size, len(body), base, depth + 1, body)).rowcount == 1:
            self._know(digest, depth + 1)
        return True

    def _know(self, digest: str, depth: int) -> None:
        if len(self.known) >= _KNOWN:
            self.known.clear()
        self.known[digest] = depth

    def _depth(self, digest: str) -> int | None:
        if digest in self.known:
            return self.known[digest]
        found = self._database.execute("SELECT depth FROM content WHERE digest=?", (digest,)).fetchone()
        if found is not None:
            self._know(digest, found[0])
        return found[0] if found else None

    def get(self, digest: str) -> bytes | None:
        """Return a content, or None if it is not there or does not match its digest."""
        data = self._read(digest)
        if data is None or digest_of(data) == digest:
            return data
        size = self._database.execute("SELECT size FROM content WHERE digest=?", (digest,)).fetchone()[0]
        # A program that still has the replaced file open may have appended to it: the beginning is intact.
        return data[:size] if digest_of(data[:size]) == digest else None

    def holds(self, digest: str) -> bool:
        """Return whether a content is there, without reading it or checking its digest."""
        while True:
            row = self._database.execute("SELECT form, base FROM content WHERE digest=?", (digest,)).fetchone()
            if row is None:
                return False
            form, base = row
            if form in ("file", "zfile"):
                return os.path.exists(self.path(digest) + (".z" if form == "zfile" else ""))
            if form != "delta":
                return True
            digest = base

    def stream(self, digest: str) -> Stream | None:
        """Return a content as blocks, for one too large to be held; None if it is not there."""
        chain: list[list[Splice]] = []
        size, current = None, digest
        while True:
            query = "SELECT form, base, size, body FROM content WHERE digest=?"
            row = self._database.execute(query, (current,)).fetchone()
            if row is None:
                return None
            form, base, stored, body = row
            size = stored if size is None else size
            if form != "delta":
                break
            chain.append(_splices(body))
            current = base
        if form in ("raw", "zlib"):
            data = self._plain(current, form, body)
            return None if data is None else Stream(digest, [data], stored, chain)
        try:
            file = open(self.path(current) + (".z" if form == "zfile" else ""), "rb", buffering=0)  # noqa: SIM115
        except OSError:
            return None
        return Stream(digest, _blocks(file, form == "zfile"), stored, chain)

    def path(self, digest: str) -> str:
        """Return the path of a large content's file."""
        assert self._folder is not None
        return os.path.join(self._folder, digest[:2], digest)

    def forget(self, digests: Iterable[str]) -> None:
        """Delete contents that nothing refers to."""
        self.known.clear()
        for digest in digests:
            self._database.execute("DELETE FROM content WHERE digest=?", (digest,))
            if self._folder is not None:
                self._unneeded.update(dict.fromkeys((self.path(digest), self.path(digest) + ".z")))

    def committed(self) -> bool:
        """Note the commit; return True if `remove_unneeded` has files to delete."""
        self._placed.clear()
        return bool(self._unneeded)

    def rolled_back(self) -> None:
        """Undo what the transaction did beside the database. Called while it still excludes others."""
        self.known.clear()
        self._unneeded.clear()
        for path in self._placed:
            _remove(path)
        self._placed.clear()

    def remove_unneeded(self) -> None:
        """Delete files that transactions no longer need, unless their content was stored again meanwhile."""
        while self._unneeded:
            path, _ = self._unneeded.popitem()
            if not self._is_needed(os.path.basename(path)):
                _remove(path)

    def remove_strays(self) -> None:
        """Delete files of the store that no row refers to: a killed process left them."""
        if self._folder is None:
            return
        for folder, _, names in os.walk(self._folder):
            for name in names:
                if not self._is_needed(name):
                    _remove(os.path.join(folder, name))

    def _is_needed(self, name: str) -> bool:
        digest, dot, ending = name.partition(".")
        row = self._database.execute("SELECT form FROM content WHERE digest=?", (digest,)).fetchone()
        return row is not None and (row[0], dot + ending) in (("file", ""), ("zfile", ".z"))

    def withdraw(self, digest: str, folder_fd: int, name: str) -> None:
        """Remove a linked file whose replacement did not happen: the store must not share it with the user."""
        form = self._database.execute("SELECT form FROM content WHERE digest=?", (digest,)).fetchone()
        if self._folder is None or form != ("file",):
            return
        try:
            stored, original = os.stat(self.path(digest)), os.stat(name, dir_fd=folder_fd, follow_symlinks=False)
            shared = (stored.st_dev, stored.st_ino) == (original.st_dev, original.st_ino)
        except OSError:
            shared = not os.path.exists(self.path(digest))  # announced, but not adopted
        if shared:
            self.forget([digest])

    def compress(self, budget_s: float) -> None:
        """Compress uncompressed contents, for at most `budget_s` seconds."""
        deadline = time.monotonic() + budget_s
        query = "SELECT digest, form, size FROM content WHERE form IN ('raw', 'file') AND size > 256 LIMIT 500"
        for digest, form, size in self._database.execute(query).fetchall():
            if time.monotonic() > deadline or size > 64 * 1024 * 1024:
                continue
            if size > 2 * BLOCK_BYTES and form == "file":
                self._compress_large(digest)
            elif (data := self.get(digest)) is not None:
                self._compress_one(digest, form, data)

    def _compress_large(self, digest: str) -> None:
        """Compress a file of the store block by block; one that does not match its digest is left alone."""
        blocks, target = self.stream(digest), self.path(digest) + ".z"
        if blocks is None:
            return
        try:
            _write(target, _compress_parts(blocks))
        except ToolFailure:
            return
        self._placed.append(target)
        row = (os.path.getsize(target), digest)
        self._database.execute("UPDATE content SET form='zfile', stored=? WHERE digest=?", row)
        self._unneeded[self.path(digest)] = None

    def _compress_one(self, digest: str, form: str, data: bytes) -> None:
        body = zlib.compress(data, 1)
        small = form == "raw" or len(body) <= SMALL_BYTES
        if not small:
            self._placed.append(self.path(digest) + ".z")
            _write(self.path(digest) + ".z", [body])
        self._database.execute(
            "UPDATE content SET form=?, stored=?, body=? WHERE digest=?",
            ("zlib" if small else "zfile", len(body), body if small else None, digest),
        )
        if form == "file":
            self._unneeded[self.path(digest)] = None

    def total(self) -> int:
        """Return the size of all contents as stored."""
        return self._database.execute("SELECT bytes FROM total").fetchone()[0]

    def digests(self) -> set[str]:
        """Return the digests of all contents."""
        return {row[0] for row in self._database.execute("SELECT digest FROM content")}

    def bases(self) -> dict[str, str]:
        """Return, by the digest of each delta, that of the content it is based on."""
        return dict(self._database.execute("SELECT digest, base FROM content WHERE base IS NOT NULL"))

    def _read(self, digest: str) -> bytes | None:
        chain: list[list[Splice]] = []
        current = digest
        while True:
            query = "SELECT form, base, body FROM content WHERE digest=?"
            row = self._database.execute(query, (current,)).fetchone()
            if row is None:
                return None
            form, base, body = row
            if form != "delta":
                break
            chain.append(_splices(body))
            current = base
        data = self._plain(current, form, body)
        for splices in reversed(chain):
            data = None if data is None else b"".join(splice_bytes(data, splices))
        return data

    def _plain(self, digest: str, form: str, body: bytes | None) -> bytes | None:
        try:
            if form in ("file", "zfile"):
                with open(self.path(digest) + (".z" if form == "zfile" else ""), "rb") as file:
                    body = file.read()
            return zlib.decompress(body or b"") if form in ("zlib", "zfile") else body
        except (OSError, zlib.error):
            return None

    def _store_content(self, digest: str, parts: Sequence[Part]) -> None:
        target = self.path(digest)
        os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
        self._unneeded.pop(target, None)
        _write(target, parts)


class Stream:
    """A content as blocks, to be read once; raises ToolFailure at the end if it does not match its digest.

    Bytes behind the content's size are left out: a program that still has the replaced file open may have appended.
    """

    def __init__(self, digest: str, blocks: Iterable[bytes], size: int, chain: Sequence[Sequence[Splice]]) -> None:
        self._digest = digest
        self._blocks = blocks
        self._size = size
        self._chain = chain

    def __iter__(self) -> Iterator[bytes]:
        blocks = _first_bytes(self._blocks, self._size)
        for splices in reversed(self._chain):
            blocks = _spliced_blocks(blocks, splices)
        hasher = hashlib.sha256()
        for block in blocks:
            hasher.update(block)
            yield block
        if hasher.hexdigest() != self._digest:
            raise ToolFailure("a content in the history was altered", hint="It was damaged or changed by hand.")


def _first_bytes(blocks: Iterable[bytes], size: int) -> Iterator[bytes]:
    for block in blocks:
        if size <= 0:
            return
        yield block[:size] if len(block) > size else block
        size -= len(block)


def _spliced_blocks(blocks: Iterable[bytes], splices: Sequence[Splice]) -> Iterator[bytes]:
    """Yield the blocks of a content with splices (in order, not overlapping) applied."""
    position, waiting = 0, deque(splices)
    for block in blocks:
        begin, end = 0, len(block)
        while waiting and waiting[0].start < position + end:
            splice = waiting[0]
            yield block[begin : max(splice.start - position, begin)]
            if splice.end > position + end:  # the rest of what it removes is in the following blocks
                yield splice.new
                waiting[0] = Splice(position + end, splice.end, b"")
                begin = end
                break
            yield splice.new
            begin = max(splice.end - position, begin)
            waiting.popleft()
        yield block[begin:]
        position += end
    yield from (splice.new for splice in waiting)


def _blocks(file: FileIO, compressed: bool) -> Iterator[bytes]:
    with file:
        if not compressed:
            yield from read_blocks(file.fileno())
            return
        reader = zlib.decompressobj()
        for block in read_blocks(file.fileno()):
            while block:  # a block may expand to a thousand times its size
                yield reader.decompress(block, BLOCK_BYTES)
                block = reader.unconsumed_tail
        yield reader.flush()


def _compress_parts(blocks: Iterable[bytes]) -> Iterator[bytes]:
    writer = zlib.compressobj(1)
    for block in blocks:
        yield writer.compress(block)
    yield writer.flush()


def read_blocks(file: int) -> Iterator[bytes]:
    """Yield an open file from its current position, block by block."""
    while block := os.read(file, BLOCK_BYTES):
        yield block


def _splices(body: bytes) -> list[Splice]:
    splices, position = list[Splice](), 0
    while position < len(body):
        start, end, length = _HEAD.unpack_from(body, position)
        position += _HEAD.size
        splices.append(Splice(start, end, body[position : position + length]))
        position += length
    return splices


def _write(path: str, parts: Iterable[Part]) -> None:
    """Write a file of the store atomically; a half-written one is overwritten by the next try."""
    unfinished = path + ".part"
    fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, parts)
    except BaseException:
        _remove(unfinished)
        raise
    finally:
        os.close(fd)
    os.rename(unfinished, path)


def _copy(source: str, target: str) -> None:
    unfinished = target + ".part"
    try:
        shutil.copyfile(source, unfinished)
        os.chmod(unfinished, 0o600)
    except BaseException:
        _remove(unfinished)
        raise
    os.rename(unfinished, target)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def digest_parts(parts: Sequence[Part]) -> str:
    """Return the digest of a content given in parts."""
    hasher = hashlib.sha256()
    for block in part_blocks(parts):
        hasher.update(block)
    return hasher.hexdigest()
