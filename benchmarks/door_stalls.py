"""How long the event loop is held: every tool with arguments of 1 MB, a thousand calls at once, ten thousand files."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from benchmarks.door_shell import fill_folder
from benchmarks.harness import Harness
from benchmarks.public_door import Door, door, scratch

LARGE = 1_000_000
WORST = 5
"""Tools shown: those that held it longest."""
AT_ONCE = 1000
FILES = 10_000
TOOLS = 10_000
SERVER = """
import json, sys
count = int(sys.argv[1])
tools = [{"name": f"t{n}", "description": "Does it.", "inputSchema": {"type": "object"}} for n in range(count)]
for message in map(json.loads, sys.stdin):
    version = message.get("params", {}).get("protocolVersion")
    about = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    results = {"initialize": about, "tools/list": {"tools": tools}}
    error = {"error": {"code": -32601, "message": "Method not found"}}
    answer = {"result": results[message["method"]]} if message["method"] in results else error
    if "id" in message:
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)
"""
"""Lists all its tools in one page."""
LEFT_OUT = ("Agent", "AskUserQuestion", "WebSearch")
"""They wait for a model, a person or a network."""


def rows(harness: Harness) -> None:
    """Add the rows of this job."""
    with scratch() as folder, door(folder) as app:
        (folder / "there.txt").write_text("a line\n" * 1000)
        app.call("Read", file_path=str(folder / "there.txt"))
        found: list[tuple[float, float, str]] = []
        names = [info.name for info in app.app.registry.infos() if info.name not in LEFT_OUT]
        for name in names:
            found += [_measure(app, name, args) for args in _large_arguments(app, name, str(folder / "there.txt"))]
        longest: dict[str, tuple[float, float]] = {}
        for wall, cpu, name in sorted(found, reverse=True):
            longest.setdefault(name, (wall, cpu))
        worst = list(longest.items())
        for name, (wall, cpu) in worst[:WORST]:
            harness.fact("loop held, arguments of 1 MB", name, wall * 1000, "<= 50", f"ms, {cpu * 1000:.0f} of CPU")
        harness.fact("loop held, arguments of 1 MB", f"each of the other {len(worst) - WORST} tools less", 0.0)
        _at_once(harness, app, str(folder))
        _many_files(harness, app, folder)
    _many_tools(harness)


def _large_arguments(app: Door, name: str, path: str) -> list[dict[str, Any]]:
    """Return arguments of a tool with 1 MB in each of its texts in turn, the others as its example has them."""
    info = app.app.registry.info(name)
    assert info is not None
    properties: dict[str, Any] = info.input_schema.get("properties", {})
    plain = dict(info.examples[0]) if info.examples else {}
    plain |= {key: path for key in ("file_path", "path", "notebook_path") if key in properties}
    texts = [key for key, schema in properties.items() if schema.get("type") == "string" and "enum" not in schema]
    return [plain | {key: "word and " * (LARGE // 9)} for key in texts]


def _measure(app: Door, name: str, args: dict[str, Any]) -> tuple[float, float, str]:
    """Make one call, whatever comes of it (a path of 1 MB is refused); that the loop goes on is what counts."""
    app.stall(lambda: app.app.call(name, args))  # the first imports what it needs, whatever its size
    gap = app.stall(lambda: app.app.call(name, args))
    return gap, app.held_cpu_s, name


def _at_once(harness: Harness, app: Door, folder: str) -> None:
    count = 100 if harness.quick else AT_ONCE
    jobs: dict[str, list[dict[str, Any]]] = {
        "Read": [{"file_path": f"{folder}/there.txt", "offset": number % 100} for number in range(count)],
        "Write": [{"file_path": f"{folder}/new/{number}.txt", "content": "x\n"} for number in range(count)],
        "tools.echo": [{"text": f"{number}"} for number in range(count)],
        "Glob": [{"pattern": f"*{number}.txt"} for number in range(count // 10)],
    }
    for name, many in jobs.items():

        async def all_at_once(name: str = name, many: list[dict[str, Any]] = many) -> None:
            await asyncio.gather(*(app.app.call(name, args) for args in many))

        gap = app.stall(all_at_once)
        label = f"{len(many):,} x {name}"
        harness.fact("loop held, calls at once", label, gap * 1000, "<= 50", f"ms, {app.held_cpu_s * 1000:.0f} of CPU")


def _many_files(harness: Harness, app: Door, folder: Path) -> None:
    """Commands that change many files, while what they changed is recorded, and the undo of one."""
    count = FILES // 10 if harness.quick else FILES
    app.call("Bash", command="echo first > first.txt")  # the first of each imports what it needs
    app.call("Undo")
    fill_folder(folder / "many", count)
    jobs: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("append", "Bash", {"command": "for f in many/*/*; do echo more >> $f; done"}),
        ("rm -rf", "Bash", {"command": "rm -rf many"}),
        ("Undo of it", "Undo", {}),
    )
    for label, name, args in jobs:
        gap = app.stall(lambda name=name, args=args: app.app.call(name, args))
        note = f"ms, {app.held_cpu_s * 1000:.0f} of CPU"
        harness.fact(f"loop held, {count:,} files", label, gap * 1000, "<= 50", note)
    assert len(list((folder / "many").glob("*/*"))) == count, "the undo brought back all"


def _many_tools(harness: Harness) -> None:
    """Connect to a server with a long list, once the first connection has imported what all need."""
    from surehand.core.settings import McpServerSettings

    names = {"first": 1, "many": TOOLS}
    servers = {
        name: McpServerSettings(command=sys.executable, args=("-c", SERVER, str(count)))
        for name, count in names.items()
    }
    with scratch() as folder, door(folder, mcp_servers=servers) as app:
        app.stall(lambda: app.app.servers.ready("first"))
        gap = app.stall(lambda: app.app.servers.ready("many"))
        assert len(app.app.servers.tools_of("many")) == TOOLS
    note = f"ms, {app.held_cpu_s * 1000:.0f} of CPU"
    harness.fact("loop held", f"{TOOLS:,} tools of an MCP server in one page", gap * 1000, "<= 50", note)
