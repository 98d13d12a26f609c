"""The MCP server over stdio: round trips against a bare server on the SDK, start against fastmcp, memory when idle.

The bare server has three tools: return a text, read a file, replace a text in a file by writing another and renaming
it. Ours has all its tools, policy, metrics, history and audit.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.harness import FILESYSTEM_SERVER, Harness, npm_package, peers

CALLS = 200
FILE_CALLS = 50

BARE = """
import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.stdio import stdio_server
import os
def echo(text):
    return text
def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()
def edit(path, old, new):
    text = read(path)
    assert text.count(old) == 1
    with open(path + ".tmp", "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
    os.replace(path + ".tmp", path)
    return "edited"
offered = {"echo": (echo, ["text"]), "read": (read, ["path"]), "edit": (edit, ["path", "old", "new"])}
def described(name, words):
    schema = {"type": "object", "properties": {word: {"type": "string"} for word in words}, "required": words}
    return types.Tool(name=name, description=name, input_schema=schema)
async def tools(ctx, params):
    return types.ListToolsResult(tools=[described(name, words) for name, (_, words) in offered.items()])
async def call(ctx, params):
    text = offered[params.name][0](**params.arguments)
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])
server = Server("bare", on_list_tools=tools, on_call_tool=call)
async def main():
    async with stdio_server() as (reading, writing):
        await server.run(reading, writing, server.create_initialization_options())
anyio.run(main)
"""
FASTMCP = """
from fastmcp import FastMCP
server = FastMCP("peer")
@server.tool
def echo(text: str) -> str:
    return text
server.run(show_banner=False)
"""


class Client:
    """A minimal client: it writes one line and reads one."""

    def __init__(self, argv: list[str]) -> None:
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=clean
        )
        self.count = 0
        info = {"name": "bench", "version": "1"}
        self.ask("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        self.send({"method": "notifications/initialized"})

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> Any:
        self.count += 1
        self.send({"id": self.count, "method": method, "params": params})
        assert self.process.stdout is not None
        while True:
            answer = json.loads(self.process.stdout.readline())
            if answer.get("id") == self.count:
                return answer["result"]

    def call(self, name: str) -> None:
        assert "hello" in json.dumps(self.ask("tools/call", {"name": name, "arguments": {"text": "hello"}}))

    def use(self, name: str, **arguments: Any) -> None:
        """Call a tool; fail if it fails."""
        answer = self.ask("tools/call", {"name": name, "arguments": arguments})
        assert not answer.get("isError"), answer

    def many(self, name: str) -> None:
        for _ in range(CALLS):
            self.call(name)

    def resident_mb(self) -> float:
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(10)


def once(argv: list[str], name: str) -> None:
    """Start a server, make one call, and stop it."""
    client = Client(argv)
    client.call(name)
    client.close()


def idle_python_mb() -> float:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", "import time; print(1, flush=True); time.sleep(60)"], stdout=-1
    )
    assert process.stdout is not None
    process.stdout.readline()
    lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    process.kill()
    process.wait()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1]) / 1024


def rows(harness: Harness) -> None:
    """Measure the MCP server."""
    with tempfile.TemporaryDirectory() as workspace:
        os.environ["SUREHAND_HOME"] = os.path.join(workspace, "home")
        folder = os.path.join(workspace, "project")
        os.mkdir(folder)
        surehand = [os.path.join(os.path.dirname(sys.executable), "surehand"), "serve", "--stdio", "--cwd", folder]
        surehand += ["--allow", "Edit"]
        bare_argv = [sys.executable, "-c", BARE]
        bare, ours = Client(bare_argv), Client(surehand)
        bare.call("echo")
        ours.call("tools.echo")
        ours.ask("tools/list", {})
        base = idle_python_mb()
        harness.fact(
            "mcp idle memory / python",
            "bare mcp server",
            bare.resident_mb() / base,
            "",
            f"{bare.resident_mb():.0f} MiB",
        )
        harness.fact(
            "mcp idle memory / python", "surehand", ours.resident_mb() / base, "<= 10", f"{ours.resident_mb():.0f} MiB"
        )
        trips = [("bare mcp server", lambda: bare.many("echo")), ("surehand", lambda: ours.many("tools.echo"))]
        harness.compare(f"mcp stdio, {CALLS} calls", trips, goal="<= 1.2")
        _files(harness, bare, ours, Path(folder))
        bare.close()
        ours.close()
        starts = [
            ("bare mcp server", lambda: once(bare_argv, "echo")),
            ("surehand", lambda: once(surehand, "tools.echo")),
        ]
        goal = ""
        if (peer := peers("fastmcp", ["fastmcp"])) is not None:
            starts.insert(0, ("fastmcp", lambda: once([str(peer), "-c", FASTMCP], "echo")))
            goal = "<= 0.8"
        harness.compare("mcp start to first answer", starts, goal=goal, rounds=7, warm=1)


def _files(harness: Harness, bare: Client, ours: Client, folder: Path) -> None:
    """Read and Edit over MCP."""
    package = npm_package(FILESYSTEM_SERVER)
    server = Client(["node", str(package / "dist" / "index.js"), str(folder)]) if package else None
    body = "".join(f"    line {number} of a small source file\n" for number in range(80))
    for name in ("bare", "ours", "npm"):
        (folder / f"{name}.txt").write_text("value 0 end\n" + body)
    turns = {"bare": 0, "ours": 0, "npm": 0}

    def read(client: Client, name: str, **arguments: str) -> None:
        for _ in range(FILE_CALLS):
            client.use(name, **arguments)

    def edit(client: Client, tool: str, name: str, keys: tuple[str, str, str]) -> None:
        for _ in range(FILE_CALLS):
            turn = turns[name]
            values = (str(folder / f"{name}.txt"), f"value {turn} end", f"value {turn + 1} end")
            client.use(tool, **dict(zip(keys, values, strict=True)))
            turns[name] += 1

    theirs = str(folder / "npm.txt")

    def edit_theirs(peer: Client) -> None:
        for turn in range(turns["npm"], turns["npm"] + FILE_CALLS):
            change = {"oldText": f"value {turn} end", "newText": f"value {turn + 1} end"}
            peer.use("edit_file", path=theirs, edits=[change])
        turns["npm"] += FILE_CALLS

    harness.compare(
        f"mcp stdio, {FILE_CALLS} Reads",
        [
            ("bare mcp server", lambda: read(bare, "read", path=str(folder / "bare.txt"))),
            *([("npm filesystem server", partial(read, server, "read_text_file", path=theirs))] if server else []),
            ("surehand", lambda: read(ours, "Read", file_path=str(folder / "ours.txt"))),
        ],
        goal="<= 0.86",
    )
    harness.compare(
        f"mcp stdio, {FILE_CALLS} Edits",
        [
            ("bare mcp server", lambda: edit(bare, "edit", "bare", ("path", "old", "new"))),
            *([("npm filesystem server", partial(edit_theirs, server))] if server else []),
            ("surehand", lambda: edit(ours, "Edit", "ours", ("file_path", "old_string", "new_string"))),
        ],
        goal="<= 1.3",
    )
    if server:
        server.close()


if __name__ == "__main__":
    measured = Harness("--quick" in sys.argv)
    rows(measured)
    print(measured.table())
