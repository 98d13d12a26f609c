"""Grep and Glob through the door, on a checkout with ignore files: warm, first, after an edit, with an odd rule."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import KIMI_PACKAGES, SCRATCH, VIBE_PACKAGES, Harness, process
from benchmarks.public_door import Door, Peer, checkout, contestants, door, odd_rule
from benchmarks.search import COMMON, RARE, make_tree, run_rg

PYTHON_RIPGREP = """
import sys
from python_ripgrep import files, search
print("ready", flush=True)
for _ in sys.stdin:
    search([sys.argv[2]], paths=[sys.argv[1]]) if sys.argv[3] == "grep" else files(["*"], paths=[sys.argv[1]])
    print("done", flush=True)
"""
DEEPAGENTS = """
import sys
from deepagents.backends import FilesystemBackend
backend = FilesystemBackend(root_dir=sys.argv[1])
print("ready", flush=True)
for _ in sys.stdin:
    grep = getattr(backend, "grep", None) or backend.grep_raw
    glob = getattr(backend, "glob", None) or backend.glob_info
    grep(sys.argv[2]) if sys.argv[3] == "grep" else glob("**/*")
    print("done", flush=True)
"""

VIBE = """
import asyncio, os, sys
from vibe.core.tools.builtins.grep import Grep, GrepToolConfig
os.chdir(sys.argv[1])
tool = Grep.from_config(GrepToolConfig())
print("ready", flush=True)
for _ in sys.stdin:
    asyncio.run(tool.invoke(pattern=sys.argv[2], path="."))
    print("done", flush=True)
"""
KIMI = """
import asyncio, sys
from kimi_cli.tools.file.grep_local import Grep, Params
tool = Grep()
print("ready", flush=True)
for _ in sys.stdin:
    assert not asyncio.run(tool(Params(pattern=sys.argv[2], path=sys.argv[1]))).is_error
    print("done", flush=True)
"""


FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
SKIPPED = frozenset({".git", "__pycache__"})
"""Folders that the checkout's own rules leave out."""
EXCLUDED = frozenset({"node_modules", "vendor", "dist", "build"})
"""Folders that listings leave out beside those."""
FIRST_FLOOR = "floor: rg, and read each folder"


def _peers(folder: Path, job: str) -> tuple[Peer, ...]:
    scripts = {"vibe": (VIBE_PACKAGES, VIBE), "kimi": (KIMI_PACKAGES, KIMI)} if job == "grep" else {}
    return (
        *(Peer(name, packages, script, str(folder), RARE) for name, (packages, script) in scripts.items()),
        Peer("python-ripgrep", ["python-ripgrep"], PYTHON_RIPGREP, str(folder), RARE, job),
        Peer("deepagents", ["deepagents"], DEEPAGENTS, str(folder), RARE, job),
    )


def rows(harness: Harness) -> None:
    """Add the rows of this job."""
    from surehand.search.ripgrep import program

    large = checkout()
    small = make_tree(SCRATCH / "search-hundred", 100)
    bare = run_rg(program(), large, "-n", RARE)
    with door(large) as app, contestants(*_peers(large, "grep")) as others:
        ours = app.calling("Grep", pattern=RARE)
        harness.compare("Grep 31k files, warm", [("rg", bare), *others, ("surehand", ours)], goal="<= 1.15")
        harness.compare(
            "Grep 31k files, after an edit",
            [("rg", bare), ("surehand", ours)],
            goal="<= 1.15",
            between=lambda: _edit(large),
        )
        whole = run_rg(program(), large, "-n", COMMON)
        capped = app.calling("Grep", pattern=COMMON)
        harness.compare("Grep capped at 250 lines", [("rg, all of it", whole), ("surehand", capped)], goal="<= 0.04")
    first = _First(large)
    harness.compare(
        "Grep 31k files, first call",
        [("rg", bare), (FIRST_FLOOR, lambda: _read_folders(large, program())), ("surehand", first)],
        goal="<= 1.15",
        between=first.open,
    )
    first.close()
    with odd_rule(large), door(large) as app:
        harness.compare(
            "Grep 31k files, an odd ignore rule",
            [("rg", bare), ("surehand", app.calling("Grep", pattern=RARE))],
            goal="<= 1.15",
        )
    command = str(Path(sys.executable).parent / "surehand")
    line = [command, "tools", "invoke", "Grep", "--args", f'{{"pattern": "{RARE}"}}']
    start = process(command, "tools", "invoke", "time.now", "--args", "{}", cwd=str(large))
    floor = (f"{FIRST_FLOOR}, after a start", lambda: (start(), _read_folders(large, program())))
    harness.compare(
        "Grep 31k files, command line",
        [("rg", bare), ("a cold start alone", start), floor, ("surehand", _run(line, large))],
        goal="1.15+start",
        rounds=7,
    )
    listed = run_rg(program(), large, "--files")
    with door(large) as app, contestants(*_peers(large, "glob")) as others:
        found = app.calling("Glob", pattern="**/*.{py,pyi,h,md}")
        harness.compare(
            "Glob, newest first, 20k hits",
            [
                ("rg --files", listed),
                *_glob_floors(large, program(), (".py", ".pyi", ".h", ".md")),
                *others,
                ("surehand, first call", lambda: (_forget_folders(), found())),
                ("surehand", found),
            ],
            goal="<= 2.0",
        )
        for name, args in (("Grep", {"pattern": RARE}), ("Grep", {"pattern": COMMON}), ("Glob", {"pattern": "**/*"})):
            gap = app.stall(lambda name=name, args=args: app.app.call(name, args))
            harness.fact("loop held", f"{name} {args['pattern'][:12]}", gap * 1000, "<= 50", "ms")
    _hundred_thousand(harness, program())
    with door(small) as app:
        bare = run_rg(program(), small, "--files")
        for pattern in (RARE, RARE + r"\b", r"def \w+_\w+\("):
            spawned, ours = run_rg(program(), small, "-n", pattern), app.calling("Grep", pattern=pattern)
            named = ("floor: rg, the files named", lambda pattern=pattern: _name_files(small, program(), pattern))
            harness.compare(
                f"Grep, 100 files, {pattern[-12:]}", [("rg", spawned), named, ("surehand", ours)], goal="<= 1.3"
            )
        harness.compare(
            "Glob, 100 files", [("rg --files", bare), ("surehand", app.calling("Glob", pattern="**/*"))], goal="<= 0.4"
        )


def _hundred_thousand(harness: Harness, program: str) -> None:
    """Glob in a tree of 100,000 small files in 1,000 folders, made once."""
    folder, count = SCRATCH / "door-hundred-thousand", 10_000 if harness.quick else 100_000
    if not (ready := SCRATCH / f"door-{count}.ready").exists():
        for number in range(count):
            place = folder / f"part{number // 1000}" / str(number // 100)
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{number}.py").write_bytes(b"")
        (folder / ".gitignore").write_text("*.log\n")
        ready.touch()
    with door(folder) as app:
        ours = app.calling("Glob", pattern="**/*")
        harness.compare(
            f"Glob, newest first, {count:,} files",
            [
                ("rg --files", run_rg(program, folder, "--files")),
                *_glob_floors(folder, program, ("",)),
                ("surehand, first call", lambda: (_forget_folders(), ours())),
                ("surehand", ours),
            ],
            goal="<= 2.5",
            rounds=5,
            warm=1,
        )


def _forget_folders() -> None:
    """Make the next listing read each folder, as the first one does."""
    from surehand.search import globs

    memory = globs._LISTED  # pyright: ignore[reportPrivateUsage]
    memory._known.clear()  # pyright: ignore[reportPrivateUsage]
    memory._names = 0  # pyright: ignore[reportPrivateUsage]


def _edit(folder: Path) -> None:
    """Change a file in a place deep in the tree, as an agent at work does."""
    place = folder / "copy0" / "bench_edit.txt"
    place.write_text(os.urandom(8).hex())
    place.unlink()


class _First:
    """The first Grep of an application; another one is opened off the clock."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._app = Door(folder)

    def __call__(self) -> None:
        self._app.call("Grep", pattern=RARE)

    def open(self) -> None:
        """Forget everything, and open an application anew."""
        from surehand.search import survey

        self._app.close()
        survey._KNOWN.clear()  # pyright: ignore[reportPrivateUsage]
        self._app = Door(self._folder)

    def close(self) -> None:
        self._app.close()


def _read_folders(folder: Path, program: str) -> None:
    """The floor of a search that knows git's rules better than `rg`: it must have seen every folder meanwhile."""
    command = [program, "--no-config", "--hidden", "--glob=!.git", "-n", RARE, "."]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL):
        for _ in _folders(folder):
            pass


def _folders(folder: Path, skipped: frozenset[str] = SKIPPED) -> Iterator[tuple[int, list[str]]]:
    """Read every folder as a walk that follows no link must, and yield it, open, with its files."""
    waiting = [os.open(folder, os.O_RDONLY)]
    while waiting:
        opened = waiting.pop()
        entries = list(os.scandir(opened))
        names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        yield opened, [entry.name for entry in entries if entry.is_file(follow_symlinks=False)]
        waiting += [os.open(name, FOLDER, dir_fd=opened) for name in names if name not in skipped]
        os.close(opened)


def _name_files(folder: Path, program: str, pattern: str) -> None:
    """The floor of a search that reads exactly what was opened: a list, the files held open, `rg` among them."""
    places = [Path(place, name) for place, _, names in os.walk(folder) for name in names if ".git" not in place]
    held = [os.open(place, os.O_RDONLY) for place in places]
    command = [program, "--no-config", "--no-ignore", "--follow", "-n", pattern, "--", *map(str, held)]
    subprocess.run(command, cwd="/proc/self/fd", stdout=subprocess.PIPE, pass_fds=held, check=False)
    for fd in held:
        os.close(fd)


def _run(words: list[str], folder: Path) -> Any:
    return lambda: subprocess.run(words, cwd=folder, stdout=subprocess.DEVNULL, check=True)


def _glob_floors(folder: Path, program: str, ends: tuple[str, ...]) -> list[tuple[str, Any]]:
    """The floors of what Glob does (list, look at the time of each hit, sort): in Python, and `rg` alone."""
    command = [program, "--no-config", "--hidden", "--glob=!.git", "--files", "."]

    def stat_and_sort() -> list[tuple[int, bytes]]:
        listed = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, check=False).stdout.split(b"\n")[:-1]
        top = os.open(folder, os.O_RDONLY)
        found = [(os.stat(name, dir_fd=top).st_mtime_ns, name) for name in listed if os.fsdecode(name).endswith(ends)]
        os.close(top)
        return sorted(found, reverse=True)

    def walk_and_stat() -> list[int]:
        found: list[int] = []
        for opened, names in _folders(folder, SKIPPED | EXCLUDED):
            found += [
                os.stat(name, dir_fd=opened, follow_symlinks=False).st_mtime_ns for name in names if name.endswith(ends)
            ]
        return sorted(found, reverse=True)

    return [
        ("floor: read folders, stat, sort", walk_and_stat),
        ("floor: rg --files, stat, sort", stat_and_sort),
        ("floor: rg --files --sortr=modified", run_rg(program, folder, "--files", "--sortr=modified")),
    ]
