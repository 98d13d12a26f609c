"""Edit and Read through the door: all checks, history and audit included."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import sqlite3
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.harness import VIBE_PACKAGES, Harness
from benchmarks.public_door import Door, Peer, contestants, door, scratch

SMALL = 100
VERY_LARGE = 200_000_000
READS = 1000
LINE = b"a line of text as it stands in a large file, number %09d\n"
DEEPAGENTS = """
import sys
from deepagents.backends import FilesystemBackend
backend = FilesystemBackend(root_dir=sys.argv[1], virtual_mode=False)
turn = 0
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(int(sys.argv[3])):
        backend.edit(sys.argv[2], f"value {turn} end", f"value {turn + 1} end")
        turn += 1
    print("done", flush=True)
"""

VIBE = """
import asyncio, sys
from vibe.core.tools.builtins.search_replace import SearchReplace, SearchReplaceConfig
tool = SearchReplace.from_config(SearchReplaceConfig())
loop, turn = asyncio.new_event_loop(), 0
block = "<<<<<<< SEARCH\\nvalue {} end\\n=======\\nvalue {} end\\n>>>>>>> REPLACE"
print("ready", flush=True)
for _ in sys.stdin:
    for _ in range(int(sys.argv[3])):
        loop.run_until_complete(tool.invoke(file_path=sys.argv[2], content=block.format(turn, turn + 1)))
        turn += 1
    print("done", flush=True)
"""


def rows(harness: Harness) -> None:
    """Add the rows of this job."""
    _large(harness, 1_000_000, "1 MB", "<= 1.5", 25)
    _large(harness, 50_000_000, "50 MB", "<= 1.3", 7)
    _very_large(harness)
    _small(harness)
    _reads(harness)
    with scratch() as folder, door(folder) as app:
        whole = {"file_path": str(folder / "new.txt"), "content": "x" * 1_000_000}
        gap = app.stall(lambda: app.app.call("Write", whole))
        harness.fact("loop held", "Write of 1 MB", gap * 1000, "<= 50", "ms")


def _copy_and_rename(path: Path) -> None:
    """Read, write and rename the same bytes: what no atomic edit can do without."""
    _replace(path, path.read_bytes(), flush=True)


def _replace(path: Path, *parts: bytes | memoryview, flush: bool) -> None:
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        file.writelines(parts)
        if flush:
            file.flush()
            os.fsync(file.fileno())
    os.replace(temporary, path)


class _Editing:
    """One file, edited to and fro."""

    def __init__(self, app: Door, path: Path, old: str, new: str) -> None:
        self.app, self.path, self.words = app, path, (old, new)
        self.turn = 0
        app.call("Read", file_path=str(path), limit=1)

    def __call__(self) -> None:
        old, new = self.words[self.turn % 2], self.words[1 - self.turn % 2]
        self.turn += 1
        self.app.call("Edit", file_path=str(self.path), old_string=old, new_string=new)


def _large(harness: Harness, size: int, label: str, goal: str, rounds: int) -> None:
    count = size // len(LINE % 0)
    with scratch() as folder, door(folder) as app, _Floor(folder) as least:
        ours, twin, third = folder / "ours.txt", folder.parent / f"{folder.name}.twin", folder / "floor.txt"
        for path in (ours, twin, third):
            path.write_bytes(b"".join(LINE % number for number in range(count)))
        words = f"number {count // 2:09d}", f"NUMBER {count // 2:09d}"
        edit = _Editing(app, ours, *words)
        spelled = [word.encode() for word in words]

        def floor() -> None:
            least.edit(third, *spelled, large=True)
            spelled.reverse()

        cases = [
            ("read, write, flush, rename", lambda: _copy_and_rename(twin)),
            ("floor: found once, hashed, recorded", floor),
            ("surehand", edit),
        ]
        harness.compare(f"Edit, {label}", cases, goal=goal, rounds=rounds)
        twin.unlink()


def _very_large(harness: Harness) -> None:
    """Edit 200 MB: its CPU to copying the file, with the digests of the old and the new content as the floor."""
    count = VERY_LARGE // len(LINE % 0)
    with scratch() as folder, door(folder) as app:
        ours, twin = folder / "ours.txt", folder.parent / f"{folder.name}.twin"
        for path in (ours, twin):
            with path.open("wb") as file:
                file.writelines(LINE % number for number in range(count))
        edit = _Editing(app, ours, f"number {count // 2:09d}", f"NUMBER {count // 2:09d}")

        def floor() -> None:
            _copy_blocks(twin)
            for _ in range(2):
                with twin.open("rb") as file:
                    hashlib.file_digest(file, "sha256")

        cases = [
            ("copy, flushed", lambda: _copy_blocks(twin)),
            ("floor: copy and two digests", floor),
            ("surehand", edit),
        ]
        harness.compare("Edit, 200 MB", cases, goal="<= 3", rounds=3, warm=1)
        with _Memory() as memory:
            edit()
        harness.fact("Edit, 200 MB, anonymous memory", "surehand", memory.most_mib, "<= 64", "MiB")
        twin.unlink()


def _copy_blocks(path: Path) -> None:
    copied = path.with_suffix(".copied")
    with path.open("rb") as source, copied.open("wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
        target.flush()
        os.fsync(target.fileno())
    copied.unlink()


class _Memory:
    """The most anonymous memory that the process has while inside, above what it began with."""

    most_mib = 0.0

    def __enter__(self) -> _Memory:
        self._ended = threading.Event()
        self._watching = threading.Thread(target=self._watch)
        self._watching.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._watching.join()

    def _watch(self) -> None:
        began = _anonymous_mib()
        while not self._ended.wait(0.005):
            self.most_mib = max(self.most_mib, _anonymous_mib() - began)


def _anonymous_mib() -> float:
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) / 1024 for line in file if line.startswith("RssAnon"))


def _small(harness: Harness) -> None:
    body = b"".join(b"    line %d of a small source file\n" % number for number in range(80))
    with (
        scratch() as folder,
        door(folder) as app,
        door(folder, mode="accept-edits") as accepting,
        _Floor(folder) as floor,
    ):
        turns: dict[str, int] = dict.fromkeys(("bare", "flushed", "floor", "accepted", "ours"), 0)
        for name in (*turns, "peer", "vibe"):
            (folder / f"{name}.txt").write_bytes(b"value 0 end\n" + body)
        app.call("Read", file_path=str(folder / "ours.txt"))
        accepting.call("Read", file_path=str(folder / "accepted.txt"))

        def bare(name: str, flush: bool) -> None:
            path = folder / f"{name}.txt"
            for _ in range(SMALL):
                data, turn = path.read_bytes(), turns[name]
                assert data.count(b"value %d end" % turn) == 1
                _replace(path, data.replace(b"value %d end" % turn, b"value %d end" % (turn + 1)), flush=flush)
                turns[name] += 1

        def through(door: Door, name: str) -> None:
            for _ in range(SMALL):
                turn = turns[name]
                old, new = f"value {turn} end", f"value {turn + 1} end"
                door.call("Edit", file_path=str(folder / f"{name}.txt"), old_string=old, new_string=new)
                turns[name] += 1

        def least() -> None:
            for _ in range(SMALL):
                turn = turns["floor"]
                floor.edit(folder / "floor.txt", b"value %d end" % turn, b"value %d end" % (turn + 1))
                turns["floor"] += 1

        deepagents = Peer("deepagents", ["deepagents"], DEEPAGENTS, str(folder), str(folder / "peer.txt"), str(SMALL))
        vibe = Peer("vibe", VIBE_PACKAGES, VIBE, str(folder), str(folder / "vibe.txt"), str(SMALL))
        with contestants(deepagents, vibe) as others:
            found = harness.compare(
                f"small edits, {SMALL} a round",
                [
                    ("replace and rename", lambda: bare("bare", flush=False)),
                    ("the same, flushed", lambda: bare("flushed", flush=True)),
                    ("floor: flushed, in a thread, recorded", least),
                    *others,
                    ("surehand, edits accepted", lambda: through(accepting, "accepted")),
                    ("surehand", lambda: through(app, "ours")),
                ],
                goal="<= 3.7",
                rounds=10,
                warm=1,
            )
            for name in ("surehand, edits accepted", "surehand"):
                harness.fact("small edits, to flushed ones", name, found[name] / found["the same, flushed"], "<= 2.1")


class _Floor:
    """What an edit that is flushed, off the loop, recorded and can be undone cannot do without; nothing is checked."""

    def __init__(self, folder: Path) -> None:
        self._state = folder.parent / f"{folder.name}.floor"

    def __enter__(self) -> _Floor:
        self._state.mkdir()
        self._history = sqlite3.connect(self._state / "history.db", isolation_level=None, check_same_thread=False)
        self._history.execute("PRAGMA journal_mode=WAL")
        self._history.execute("PRAGMA synchronous=NORMAL")
        self._history.execute("CREATE TABLE change(path TEXT, old BLOB)")
        self._audit = (self._state / "audit").open("ab", buffering=0)
        self._runner = asyncio.Runner()
        self._beside = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *problem: object) -> None:
        self._beside.shutdown()
        self._runner.close()
        self._audit.close()
        self._history.close()
        shutil.rmtree(self._state)

    def edit(self, path: Path, old: bytes, new: bytes, *, large: bool = False) -> None:
        """Edit a file; of a large one the difference is kept, and the digest of what it makes, worked out beside."""
        loop = self._runner.get_loop()
        self._audit.write(hashlib.sha256(old).hexdigest().encode() + b"\n")
        loop.run_until_complete(loop.run_in_executor(None, self._edit, path, old, new, large))
        self._audit.write(hashlib.sha256(new).hexdigest().encode() + b"\n")

    def _edit(self, path: Path, old: bytes, new: bytes, large: bool) -> None:
        data = path.read_bytes()
        at = data.find(old)
        assert at >= 0 > data.find(old, at + 1)
        parts = [memoryview(data)[:at], new, memoryview(data)[at + len(old) :]]
        digest = self._beside.submit(_digest, parts) if large else None
        self._history.execute("INSERT INTO change VALUES(?, ?)", (str(path), old if large else data))
        _replace(path, *parts, flush=True)
        if digest is not None:
            self._history.execute("INSERT INTO change VALUES(?, ?)", (str(path), digest.result()))


def _digest(parts: Iterable[bytes | memoryview]) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    return digest.digest()


def _reads(harness: Harness) -> None:
    with scratch() as folder, door(folder) as app:
        paths = [folder / f"file{number}.py" for number in range(100)]
        for path in paths:
            path.write_bytes(b"".join(b"line %d of a source file\n" % number for number in range(50)))
        calls = [{"file_path": str(paths[number % 100]), "offset": number % 7} for number in range(READS)]

        def plain() -> None:
            for number in range(READS):
                paths[number % 100].read_text().splitlines()

        harness.compare(
            f"{READS:,} Reads, ten at once",
            [("read_text, one by one", plain), ("surehand", lambda: app.together("Read", calls, 10))],
            rounds=7,
        )
        ours = harness.rows[-1]
        harness.fact("Reads a second, ten at once", "surehand", READS / ours.seconds, ">= 10,000", "a second")

        async def batch() -> None:
            from surehand import ToolCall

            await app.app.run_calls([ToolCall("Read", args) for args in calls])

        harness.fact("loop held", "a batch of 1,000 Reads", app.stall(batch) * 1000, "<= 20", "ms")
