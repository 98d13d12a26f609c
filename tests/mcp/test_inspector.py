"""The MCP Inspector's command line as a client: run by `make test-integrations`, since it is installed for the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.npm import install

VERSION = "2.12.0"


@pytest.fixture(scope="module")
def inspector(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    node, package = install("@modelcontextprotocol/inspector", VERSION, tmp_path_factory.mktemp("inspector"))
    return [node, str(package / "clients" / "launcher" / "build" / "index.js"), "--cli"]


def inspect(inspector: list[str], *words: str) -> Any:
    path = f"{os.path.dirname(inspector[0])}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path}
    done = subprocess.run([*inspector, *words], env=env, capture_output=True, text=True, timeout=100, check=False)
    assert done.stdout.startswith("{"), done.stdout + done.stderr
    return json.loads(done.stdout)


def test_the_inspector_lists_tools_and_gets_text_and_structure(inspector: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    server = [sys.executable, "-m", "surehand", "serve", "--cwd", str(tmp_path)]
    listed = {each["name"]: each for each in inspect(inspector, *server, "--method", "tools/list")["tools"]}
    assert {"Bash", "Read", "Edit", "Undo"} <= listed.keys()
    assert listed["Glob"]["outputSchema"]["type"] == "object"
    call = ("--method", "tools/call", "--tool-name")
    read = inspect(inspector, *server, *call, "Read", "--tool-arg", "file_path=a.txt")
    assert "hello" in read["content"][0]["text"]
    found = inspect(inspector, *server, *call, "Glob", "--tool-arg", "pattern=*.txt")
    assert found["structuredContent"]["files"][0]["path"] == "a.txt"
    refused = inspect(inspector, *server, *call, "Write", "--tool-arg", "file_path=b.txt", "--tool-arg", "content=x")
    assert refused["isError"] is True
    assert not (tmp_path / "b.txt").exists()


def test_the_inspector_calls_over_http_with_the_servers_token(inspector: list[str], tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    token = tmp_path / "token"
    token.write_text("correct-horse-battery\n")
    words = [sys.executable, "-m", "surehand", "serve", "--http", "0", "--token-file", str(token)]
    with subprocess.Popen([*words, "--cwd", str(tmp_path)], stderr=subprocess.PIPE, text=True) as server:
        try:
            assert server.stderr is not None
            url = server.stderr.readline().split()[-1]
            options = ("--transport", "http", "--header", "Authorization: Bearer correct-horse-battery")
            call = ("--method", "tools/call", "--tool-name", "Glob", "--tool-arg", "pattern=*.txt")
            found = inspect(inspector, url, *options, *call)
            assert [each["path"] for each in found["structuredContent"]["files"]] == ["a.txt"]
        finally:
            server.terminate()
