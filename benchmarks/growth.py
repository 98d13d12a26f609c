"""How cost grows: the same job on ten times as much. Files, changed files, the history, a journal, clients.

`make bench growth`. Each row is CPU time (helpers included) against the smallest size of its job: a cost that does not
depend on the size stays at 1, and one that grows with it shows by how much.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.door_shell import fill_folder
from benchmarks.harness import SCRATCH, Harness, cpu_of_all
from benchmarks.public_door import Door, door, scratch
from benchmarks.search import RARE, run_rg

ROUNDS = 5
FILES, CHANGED, ENTRIES, CALLS = (1_000, 100_000, 300_000), (100, 1_000, 10_000), (10, 5_000, 50_000), (100, 100_000)
CLIENTS = (1, 20)


def rows(harness: Harness) -> None:
    """Add the rows of this job."""
    small = harness.quick
    _files(harness, (1_000, 10_000) if small else FILES)
    _changed(harness, CHANGED[: 2 if small else 3])
    _entries(harness, ENTRIES[: 2 if small else 3])
    _journal(harness, CALLS if not small else (100, 5_000))
    _clients(harness, CLIENTS if not small else (1, 3))


def _cost(work: Callable[[], object], rounds: int = ROUNDS, between: Callable[[], object] = lambda: None) -> float:
    """Return the CPU seconds of a job, the median of some rounds."""
    found: list[float] = []
    for _ in range(rounds):
        before = cpu_of_all()
        work()
        found.append(cpu_of_all() - before)
        between()
    return statistics.median(found)


def _grow(harness: Harness, job: str, sizes: Sequence[int], costs: Sequence[float], goal: str) -> None:
    """Add a row for each size, against the smallest."""
    base = max(costs[0], 1e-9)
    for size, cost in zip(sizes, costs, strict=True):
        last = goal if size == sizes[-1] else ""
        harness.fact(job, f"{size:,}", cost / base, last, f"{cost * 1e3:.3g} ms of CPU")


def _files(harness: Harness, sizes: Sequence[int]) -> None:
    """Jobs on a few files in ever larger workspaces, and searches of all of them."""
    from surehand.search.ripgrep import program

    jobs: dict[str, list[float]] = {"Bash true": [], "Edit and Undo": [], "Read": []}
    searches: dict[str, list[float]] = {"Grep": [], "Glob": []}
    for size in sizes:
        folder = _make_workspace(size)
        (folder / "one.txt").write_text("one\n")
        with door(folder) as app:
            app.call("Read", file_path="one.txt")
            app.call("Bash", command="true")
            jobs["Bash true"].append(_cost(lambda app=app: [app.call("Bash", command="true") for _ in range(10)]))
            jobs["Edit and Undo"].append(_cost(lambda app=app: _edit_and_undo(app)))
            jobs["Read"].append(_cost(lambda app=app: [app.call("Read", file_path="one.txt") for _ in range(20)]))
            bare = {"Grep": ("rg", ["-n", RARE]), "Glob": ("rg --files", ["--files"])}
            for name, args in (("Grep", {"pattern": RARE}), ("Glob", {"pattern": "**/*"})):
                anchor, options = bare[name]
                once = _cost(run_rg(program(), folder, *options), 3)
                first = _cost(app.calling(name, **args), 1)
                searches[name].append(_cost(app.calling(name, **args), 3))
                harness.fact(f"{name} / {anchor}, first call", f"{size:,}", first / once, "", "CPU")
                harness.fact(f"{name} / {anchor}", f"{size:,}", searches[name][-1] / once, "", "CPU")
    for job, costs in jobs.items():
        _grow(harness, f"{job}, files in the workspace", sizes, costs, "<= 1.5")
    for job, costs in searches.items():
        each = [cost / size for cost, size in zip(costs, sizes, strict=True)]
        _grow(harness, f"{job}, a file in the workspace", sizes, each, "<= 1")


def _make_workspace(size: int) -> Path:
    """Make a workspace of so many files, once: hundreds of thousands take minutes."""
    folder = SCRATCH / f"growth-{size}"
    if not (ready := folder.with_suffix(".ready")).exists():
        fill_folder(folder / "many", size)
        ready.touch()
    return folder


def _edit_and_undo(app: Door) -> None:
    for _ in range(5):
        app.call("Edit", file_path="one.txt", old_string="one", new_string="two")
        app.call("Undo")


def _changed(harness: Harness, sizes: Sequence[int]) -> None:
    """One command that changes ever more files, and its undo; per file, and the longest time the loop was held."""
    removing, undoing = list[float](), list[float]()
    for size in sizes:
        with scratch() as folder, door(folder) as app:
            app.call("Bash", command="true")
            fill_folder(folder / "many", size)
            removing.append(_cost(lambda app=app: app.call("Bash", command="rm -rf many"), 1) / size)
            undoing.append(_cost(lambda app=app: app.call("Undo"), 1) / size)
            held = app.stall(lambda app=app: app.app.call("Bash", {"command": "rm -rf many"}))
            back = app.stall(lambda app=app: app.app.call("Undo", {}))
            harness.fact("loop held, changed files", f"{size:,}", held * 1e3, "<= 50", "ms")
            harness.fact("loop held, their undo", f"{size:,}", back * 1e3, "<= 50", "ms")
    _grow(harness, "rm -rf, a changed file", sizes, removing, "<= 1")
    _grow(harness, "its undo, a changed file", sizes, undoing, "<= 1")


def _entries(harness: Harness, sizes: Sequence[int]) -> None:
    """A change, an undo, a redo, a list and closing with ever more entries in the history."""
    jobs: dict[str, list[float]] = {"Edit and Undo": [], "Undo and Redo": [], "Changes": [], "closing": []}
    for size in sizes:
        with scratch() as folder:
            (folder / "one.txt").write_text("one\n")
            with door(folder) as app:
                for number in range(10):
                    app.call("Write", file_path=f"{number}.txt", content=f"{number}\n")
                _multiply_entries(folder, size)
                app.call("Read", file_path="one.txt")
                jobs["Edit and Undo"].append(_cost(lambda app=app: _edit_and_undo(app)))
                app.call("Edit", file_path="one.txt", old_string="one", new_string="two")
                jobs["Undo and Redo"].append(_cost(lambda app=app: [app.call("Undo"), app.call("Redo")]))
                jobs["Changes"].append(_cost(lambda app=app: [app.call("Changes") for _ in range(5)]))
                before = cpu_of_all()
            jobs["closing"].append(cpu_of_all() - before)
    for job, costs in jobs.items():
        _grow(harness, f"{job}, entries of the history", sizes, costs, "<= 1.5")


def _multiply_entries(folder: Path, size: int) -> None:
    """Fill the history of a workspace with copies of its entries, half of them taken back, and as many contents."""
    import sqlite3
    from contextlib import closing

    from surehand.state import locations

    path = Path(locations.workspace_state(str(folder)), "history", "history.db")
    with closing(sqlite3.connect(path)) as database:
        columns = [row[1] for row in database.execute("PRAGMA table_info(change)")][1:]
        names = ", ".join(columns)
        rows = database.execute(f"SELECT {names} FROM change").fetchall()
        more = [dict(zip(columns, rows[at % len(rows)], strict=True)) for at in range(size - len(rows))]
        for row in more[::2]:
            row["state"] = "undone"
        marks = ", ".join("?" * len(columns))
        database.executemany(f"INSERT INTO change({names}) VALUES({marks})", [tuple(row.values()) for row in more])
        contents = ((os.urandom(32).hex(), "raw", 200, 200, None, 0, os.urandom(200)) for _ in more)
        database.executemany("INSERT INTO content VALUES(?, ?, ?, ?, ?, ?, ?)", contents)
        database.commit()
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # or closing would pay for all this


def _journal(harness: Harness, sizes: Sequence[int]) -> None:
    """The command line in a session with ever more calls behind it."""
    from surehand.state import locations

    costs: dict[str, list[float]] = {"sessions list": [], "sessions show": [], "tools invoke --session": []}
    surehand = str(Path(sys.executable).parent / "surehand")
    for size in sizes:
        with scratch() as folder, door(folder):
            place = Path(locations.workspace_state(str(folder)), "sessions", "work.jsonl")
            place.parent.mkdir(parents=True, exist_ok=True)
            call = {"id": "call_1", "name": "calculate", "args": {"expression": "1 + 1"}}
            result = {"ok": True, "output": "2", "data": {"value": 2}, "meta": {"duration_ms": 1.0}}
            record = {"kind": "call_finished", "at": time.time(), "tool": "calculate"}
            line = json.dumps(record | {"data": {"call": call, "result": result}}) + "\n"
            with place.open("w") as file:
                file.writelines(line for _ in range(size))
            commands = {
                "sessions list": ["sessions", "list"],
                "sessions show": ["sessions", "show", "work", "--limit", "100"],
                "tools invoke --session": ["tools", "invoke", "time.now", "--session", "work"],
            }
            _run(surehand, commands["sessions list"], folder)  # leaves the checkpoint, as any call of the session does
            for name, words in commands.items():
                costs[name].append(_cost(lambda words=words, folder=folder: _run(surehand, words, folder)))
    for name, found in costs.items():
        _grow(harness, f"{name}, calls in its journal", sizes, found, "<= 2")


def _run(surehand: str, words: list[str], folder: Path) -> None:
    subprocess.run(
        [surehand, *words, "--cwd", str(folder)], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def _clients(harness: Harness, sizes: Sequence[int]) -> None:
    """The memory of `serve --http` with ever more connected clients."""
    import asyncio
    import socket

    from mcp.client.streamable_http import streamable_http_client

    from mcp import ClientSession

    async def connected(count: int, port: int, server: int) -> float:
        from contextlib import AsyncExitStack

        async with AsyncExitStack() as stack:
            for _ in range(count):
                url = f"http://127.0.0.1:{port}/mcp"
                read, write = await stack.enter_async_context(streamable_http_client(url))
                session = await stack.enter_async_context(ClientSession(read, write))
                await session.initialize()
            return _resident(server)

    surehand = str(Path(sys.executable).parent / "surehand")
    for size in sizes:
        with scratch() as folder, socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
            free.close()
            words = [surehand, "serve", "--http", str(port), "--no-token", "--cwd", str(folder)]
            nowhere = subprocess.DEVNULL
            child = subprocess.Popen(words, env=_environment(folder), stdout=nowhere, stderr=nowhere)
            try:
                _wait_for(port, child)
                taken = asyncio.run(connected(size, port, child.pid))
                harness.fact("memory of serve --http, clients", f"{size:,}", taken, "", "MiB")
            finally:
                child.terminate()
                child.wait()
                shutil.rmtree(folder, ignore_errors=True)


def _environment(folder: Path) -> dict[str, str]:
    return {**os.environ, "SUREHAND_HOME": str(folder / ".home")}


def _wait_for(port: int, child: Any) -> None:
    import socket

    for _ in range(200):
        if child.poll() is not None:
            raise RuntimeError("the server ended")
        try:
            socket.create_connection(("127.0.0.1", port), 0.1).close()
            return
        except OSError:
            time.sleep(0.05)


def _resident(pid: int) -> float:
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("VmRSS")) / 1024
