"""Grep and Glob against the `rg` they are made of, on a tree of 31,000 real files and on one of 100."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import SCRATCH, Harness

FILES = 31_000
LARGE = SCRATCH / "checkout"
RARE, COMMON = "zq_never_there_qz", "import"
Call = Callable[..., Any]


def rows(harness: Harness) -> None:
    from surehand.search.ripgrep import program

    large = make_tree(LARGE, FILES)
    small = make_tree(SCRATCH / "search-hundred", 100)
    loop = asyncio.new_event_loop()
    full = run_rg(program(), large, "-n", RARE)
    harness.compare(
        "Grep, 31k files, full scan", [("rg", full), ("ours", _ours(loop, large, "Grep", pattern=RARE))], goal="<= 1.15"
    )
    whole = run_rg(program(), large, "-n", COMMON)
    capped = _ours(loop, large, "Grep", pattern=COMMON)
    harness.compare("Grep, common pattern, 250 lines", [("rg, all of it", whole), ("ours", capped)], goal="<= 0.10")
    for pattern in (RARE, r"def \w+_\w+\("):
        spawned = run_rg(program(), small, "-n", pattern)
        ours = _ours(loop, small, "Grep", pattern=pattern)
        harness.compare(f"Grep, 100 files, {pattern[:12]}", [("rg", spawned), ("ours", ours)], goal="<= 1.3")
    listed = run_rg(program(), large, "--files")
    found = _ours(loop, large, "Glob", pattern="**/*.{py,pyi,h,md}")
    harness.compare("Glob, newest first, 20k hits", [("rg --files", listed), ("ours", found)], goal="<= 1.5")
    listed = run_rg(program(), small, "--files")
    harness.compare(
        "Glob, 100 files", [("rg --files", listed), ("ours", _ours(loop, small, "Glob", pattern="**/*"))], goal="<= 0.3"
    )
    gap = loop.run_until_complete(_gap(large))
    harness.fact("event loop gap while searching", "ours", gap * 1000, "<= 20", "ms")
    loop.close()


def run_rg(program: str, folder: Path, *options: str) -> Call:
    command = [program, "--no-config", "--hidden", "--glob=!.git", *options, "."]
    return lambda: subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=False)


def _context(folder: Path) -> Any:
    from surehand.core.call import ToolCall
    from surehand.core.context import ToolContext
    from surehand.core.session import Session
    from surehand.core.settings import Settings

    return ToolContext(ToolCall("bench"), Session(str(folder), settings=Settings()), lambda progress: None, {})


def _ours(loop: asyncio.AbstractEventLoop, folder: Path, name: str, **args: Any) -> Call:
    from surehand.tools import glob, grep

    (tool,) = (grep if name == "Grep" else glob).TOOLS
    ctx, parsed = _context(folder), tool.arguments.parse(args)
    return lambda: loop.run_until_complete(tool.run(parsed, ctx))


async def _gap(folder: Path) -> float:
    """Return the longest time the event loop was not served while searches and a listing ran."""
    from surehand.tools import glob, grep

    widest = 0.0

    async def beat() -> None:
        nonlocal widest
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            widest = max(widest, time.perf_counter() - before - 0.001)

    beating = asyncio.create_task(beat())
    ctx = _context(folder)
    for tool, args in ((grep, {"pattern": RARE}), (grep, {"pattern": COMMON}), (glob, {"pattern": "**/*.py"})):
        (record,) = tool.TOOLS
        await record.run(record.arguments.parse(args), ctx)
    beating.cancel()
    return widest


def make_tree(folder: Path, files: int) -> Path:
    """Make (once) a tree of real source files: the packages of this environment, copied as often as it takes."""
    ready = folder.with_suffix(".ready")
    if ready.exists():
        return folder
    SCRATCH.mkdir(exist_ok=True)
    left = files
    for copy in range(100):
        for source, name in _sources():
            if left == 0:
                break
            place = folder / f"copy{copy}" / name
            place.parent.mkdir(parents=True, exist_ok=True)
            if not place.exists():
                shutil.copyfile(source, place)  # no link: a file with several names is looked at twice
            left -= 1
    for part in ("objects", "refs"):
        (folder / ".git" / part).mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    (folder / ".gitignore").write_text("*.log\n/out/\n__pycache__/\n")
    ready.touch()
    return folder


def _sources() -> Iterator[tuple[Path, Path]]:
    for key in ("purelib", "stdlib"):
        base = Path(sysconfig.get_paths()[key])
        for place, folders, names in os.walk(base):
            folders[:] = sorted(each for each in folders if each not in ("__pycache__", "site-packages"))
            for name in sorted(names):
                path = Path(place, name)
                if not path.is_symlink() and path.is_file():
                    yield path, Path(key) / path.relative_to(base)


if __name__ == "__main__":
    made = Harness()
    rows(made)
    print(made.table())
