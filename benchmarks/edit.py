"""Edit: against reading, writing and renaming the same bytes, with all checks and the history included."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from benchmarks.harness import Harness
from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.session import Seen, Session, digest_of
from surehand.core.settings import Settings
from surehand.tools.edit import TOOLS

SMALL_EDITS = 1000


class Bench:
    """A session over a scratch folder, and Edit called as the engine does: the checks, then the run."""

    def __init__(self, content: bytes) -> None:
        self.folder = Path(tempfile.mkdtemp())
        (self.folder / "ws").mkdir()
        self.path, self.twin = self.folder / "ws/file", self.folder / "twin"
        for path in (self.path, self.twin):
            path.write_bytes(content)
        self.session = Session(str(self.folder / "ws"), settings=Settings(), state_dir=str(self.folder / "state"))
        self.turn = 0
        self.see()

    def see(self) -> None:
        """Count the file as read, long enough ago that its status proves what it holds."""
        time.sleep(0.06)
        self.session.saw(str(self.path), Seen.of(digest_of(self.path.read_bytes()), self.path.stat()))

    def edit(self, old: str, new: str) -> None:
        tool = TOOLS[0]
        ctx = ToolContext(ToolCall("Edit"), self.session, lambda progress: None, {})
        args = tool.arguments.parse({"file_path": str(self.path), "old_string": old, "new_string": new})
        assert tool.check is not None
        tool.check(args, ctx)
        tool.run(args, ctx)

    def close(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


def plain_copy(path: Path) -> None:
    """Read, write, flush and rename the same bytes: what no atomic edit can do without."""
    data = path.read_bytes()
    _atomic(path, data)


def plain_edit(path: Path, old: bytes, new: bytes) -> None:
    """A bare replacement: unique, atomic, and nothing else."""
    data = path.read_bytes()
    assert data.count(old) == 1
    _atomic(path, data.replace(old, new))


def _atomic(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def large(harness: Harness, size: int, label: str, rounds: int) -> None:
    """One edit in the middle of a file of `size` bytes."""
    line = b"a line of text as it stands in a large file, number %09d\n"
    bench = Bench(b"".join(line % number for number in range(size // len(line % 0))))
    middle = size // len(line % 0) // 2
    spellings = (f"number {middle:09d}", f"NUMBER {middle:09d}")

    def ours() -> None:
        old, new = spellings[bench.turn % 2], spellings[1 - bench.turn % 2]
        bench.turn += 1
        bench.edit(old, new)

    bench.see()
    harness.compare(
        f"Edit, atomic, {label}",
        [("read + write + rename", lambda: plain_copy(bench.twin)), ("surehand Edit", ours)],
        goal="≤ 1.5",
        rounds=rounds,
    )
    bench.close()


def small(harness: Harness) -> None:
    """A thousand edits of a small file, one after another."""
    body = b"".join(b"    line %d of a small source file\n" % number for number in range(80))
    bench = Bench(b"value 0 end\n" + body)
    count = SMALL_EDITS // (10 if harness.quick else 1)
    twin_turn = 0

    def bare() -> None:
        nonlocal twin_turn
        for _ in range(count // 10):
            plain_edit(bench.twin, b"value %d end" % twin_turn, b"value %d end" % (twin_turn + 1))
            twin_turn += 1

    def ours() -> None:
        for _ in range(count // 10):
            bench.edit(f"value {bench.turn} end", f"value {bench.turn + 1} end")
            bench.turn += 1

    harness.compare(
        f"{count} small edits, nine layers and history",
        [("bare replace + atomic write", bare), ("surehand Edit", ours)],
        goal="≤ 2.0",
        rounds=10,
        warm=1,
    )
    bench.close()


def rows(harness: Harness) -> None:
    """Add the rows of this job."""
    large(harness, 1_000_000, "1 MB", rounds=25)
    large(harness, 50_000_000, "50 MB", rounds=7)
    small(harness)
