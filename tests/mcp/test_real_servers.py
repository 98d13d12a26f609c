"""Real servers from the registries through our client and through the SDK's: the same tools, the same answers.

They are installed under `.bench/` on first use, so this runs with the slow tests only.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from benchmarks.harness import SCRATCH, peers
from mcp.client.stdio import stdio_client

from mcp import Client, StdioServerParameters
from surehand import Settings, Surehand
from surehand.core.settings import McpServerSettings
from surehand.core.shapes import result_to_mcp
from surehand.testing import Says

pytestmark = pytest.mark.slow
PYTHON = ["mcp-server-time", "mcp-server-git", "mcp-server-fetch"]
NODE = ["@modelcontextprotocol/server-everything", "@modelcontextprotocol/server-filesystem"]


def python_program(name: str) -> str:
    python = peers("mcp-servers", PYTHON)
    if python is None:
        pytest.skip("the registry cannot be reached")
    return str(python.with_name(name))


def node_program(package: str) -> list[str]:
    folder = SCRATCH / "npm-servers"
    place = folder / "node_modules" / package
    if not place.exists():
        if shutil.which("npm") is None:
            pytest.skip("there is no npm")
        folder.mkdir(parents=True, exist_ok=True)
        made = subprocess.run(["npm", "install", "--prefix", str(folder), *NODE], capture_output=True, check=False)
        if made.returncode:
            pytest.skip("the registry cannot be reached")
    return ["node", str(place / "dist" / "index.js")]


def git_repository(folder: Path) -> None:
    for words in (["init", "-q"], ["config", "user.email", "a@b.c"], ["config", "user.name", "A"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    (folder / "a.txt").write_text("one\n")
    subprocess.run(["git", "add", "a.txt"], cwd=folder, check=True)
    subprocess.run(["git", "commit", "-q", "-m", "first"], cwd=folder, check=True)


CASES: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "time": [
        ("convert_time", {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}),
        ("convert_time", {"source_timezone": "Nowhere", "time": "12:00", "target_timezone": "UTC"}),
    ],
    "git": [
        ("git_status", {"repo_path": "{ws}"}),
        ("git_log", {"repo_path": "{ws}"}),
        ("git_show", {"repo_path": "{ws}", "revision": "nope"}),
    ],
    "fetch": [("fetch", {"url": "http://127.0.0.1:9/nothing"})],
    "everything": [
        ("echo", {"message": "hello"}),
        ("get-sum", {"a": 2, "b": 3}),
        ("get-tiny-image", {}),
        ("get-structured-content", {"location": "New York"}),
        ("get-resource-links", {"count": 3}),
        ("get-annotated-message", {"messageType": "error", "includeImage": True}),
    ],
    "filesystem": [
        ("read_text_file", {"path": "{ws}/a.txt"}),
        ("list_directory", {"path": "{ws}"}),
        ("read_text_file", {"path": "/etc/passwd"}),
    ],
}


def command(name: str, workspace: Path) -> list[str]:
    match name:
        case "everything":
            return [*node_program(NODE[0]), "stdio"]
        case "filesystem":
            return [*node_program(NODE[1]), str(workspace)]
        case _:
            return [python_program(f"mcp-server-{name}")]


@pytest.mark.parametrize("name", CASES)
async def test_a_real_server_answers_us_as_it_answers_the_sdk(name: str, tmp_path: Path) -> None:
    git_repository(tmp_path)
    words = command(name, tmp_path)
    servers = {name: McpServerSettings(command=words[0], args=tuple(words[1:]))}
    parameters = StdioServerParameters(command=words[0], args=words[1:])
    async with (
        Client(stdio_client(parameters), cache=None) as theirs,
        Surehand(tmp_path, settings=Settings(), approver=Says("once"), mcp_servers=servers) as ours,
    ):
        await ours.servers.ready(name)
        listed = [f"mcp__{name}__{tool.name}" for tool in (await theirs.list_tools()).tools]
        assert ours.servers.tools_of(name) == listed
        for tool, raw in CASES[name]:
            args = {
                key: value.replace("{ws}", str(tmp_path)) if isinstance(value, str) else value
                for key, value in raw.items()
            }
            expected = await theirs.call_tool(tool, args)
            result = await ours.call(f"{name}:{tool}", args)
            got = types.CallToolResult.model_validate({**result_to_mcp(result), "_meta": None})
            assert got.content == expected.content, tool
            assert got.is_error == bool(expected.is_error)
            if isinstance(expected.structured_content, dict):
                assert got.structured_content == expected.structured_content
