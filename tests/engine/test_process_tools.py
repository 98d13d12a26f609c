"""Tools in processes: a child imports the function by its name and never runs the user's program."""

from __future__ import annotations

import asyncio
import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand import RegistrationError, Tool, tool
from surehand.core.settings import SandboxSettings, Settings
from surehand.sandbox import protocol
from surehand.testing import scratch_app

SCRIPT = """
import asyncio, os
from surehand import Surehand, tool
from surehand.testing import scratch_app


@tool(read_only=True, where="process")
def apart(n: int) -> int:
    "Says its process."
    return os.getpid()

async def main():
    with open("runs.txt", "a") as file:
        file.write("x")
    async with scratch_app(".", tools=[apart], builtin=False) as app:
        result = await app.call("apart", {{"n": 1}})
        print(result.ok, result.output if not result.ok else result.data != os.getpid())

{start}
"""


def run_script(folder: Path, start: str) -> tuple[str, int]:
    (folder / "program.py").write_text(SCRIPT.format(start=start))
    done = subprocess.run([sys.executable, "program.py"], cwd=folder, capture_output=True, text=True, timeout=100)
    runs = folder / "runs.txt"
    return done.stdout + done.stderr, len(runs.read_text()) if runs.exists() else 0


def test_a_script_without_a_guard_is_refused_at_registration_with_what_to_do(tmp_path: Path) -> None:
    said, runs = run_script(tmp_path, "asyncio.run(main())")
    assert "RegistrationError" in said
    assert '__name__ == "__main__"' in said
    assert runs == 1


def test_a_program_started_by_an_assignment_is_seen_too(tmp_path: Path) -> None:
    said, runs = run_script(tmp_path, "outcome = asyncio.run(main())")
    assert "RegistrationError" in said
    assert runs == 1


def test_a_script_with_a_guard_runs_its_tool_in_a_child_and_its_program_once(tmp_path: Path) -> None:
    said, runs = run_script(tmp_path, 'if __name__ == "__main__":\n    asyncio.run(main())')
    assert said.strip() == "True True"
    assert runs == 1


def test_a_module_that_starts_its_program_when_imported_ends_the_child(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text(SCRIPT.format(start="asyncio.run(main())"))
    done = subprocess.run(
        [sys.executable, "-c", "import module"], cwd=tmp_path, capture_output=True, text=True, timeout=100
    )
    assert "starts its program when it is imported" in done.stdout
    assert len((tmp_path / "runs.txt").read_text()) == 2  # once here, and once up to its first call in the child


def made(name: str) -> Tool:
    @tool(name=name, read_only=True, where="process")
    def inner() -> int:
        "Says its process."
        return os.getpid()

    return inner


def logged(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper() -> Any:
        return function()

    return wrapper


def plain() -> int:
    "Says its process."
    return os.getpid()


@pytest.mark.parametrize(
    "candidate", [made("made"), tool(name="wrapped", read_only=True, where="process")(logged(plain))]
)
async def test_what_cannot_be_imported_by_name_is_refused_at_registration(candidate: Tool) -> None:
    async with scratch_app(builtin=False) as app:
        with pytest.raises(RegistrationError, match="module of its own"):
            app.register(candidate)


contained = pytest.mark.skipif(not protocol.available(), reason="nothing contains a process here")


@tool(where="process", timeout_s=30)
def reaching(outside: str) -> dict[str, Any]:
    "Says what it can reach."
    import socket

    found: dict[str, Any] = {"cwd": os.getcwd(), "token": os.environ.get("MY_TOKEN", "")}
    Path("made").write_text("by a tool")
    for name, reach in {
        "read": lambda: Path(outside, "private").read_text(),
        "secret": lambda: Path(".env").read_text(),
        "write": lambda: Path(outside, "new").write_text("x"),
        "network": lambda: socket.create_connection(("192.0.2.1", 9), timeout=0.2),
    }.items():
        try:
            found[name] = str(reach())
        except OSError as problem:
            found[name] = type(problem).__name__
    return found


@contained
async def test_a_tool_in_a_process_is_held_to_what_commands_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside"
    workspace.mkdir()
    outside.mkdir()
    (outside / "private").write_text("another project")
    (workspace / ".env").write_text("TOKEN=x")
    monkeypatch.setenv("MY_TOKEN", "of the user")
    async with scratch_app(workspace, tools=[reaching]) as app:
        found = (await app.call("reaching", {"outside": str(outside)})).data
    assert found["cwd"] == str(workspace)
    assert (workspace / "made").read_text() == "by a tool"
    assert found["token"] == ""
    assert "another project" not in found["read"]
    assert not (outside / "new").exists()
    assert found["network"].endswith(("Error", "error"))
    if protocol.abilities().private_view:
        assert "TOKEN" not in found["secret"]


async def test_a_setting_has_tools_in_processes_run_as_the_user(tmp_path: Path) -> None:
    (tmp_path / "private").write_text("another project")
    settings = Settings(sandbox=SandboxSettings(process_tools=False))
    async with scratch_app(tools=[stumbling], settings=settings) as app:
        result = await app.call("stumbling", {"path": str(tmp_path / "private")})
    assert result.data == "another project"


@tool(where="process", timeout_s=20)
def stumbling(path: str) -> str:
    "Reads a file."
    return Path(path).read_text()


@contained
async def test_a_tool_that_meets_the_sandbox_says_so_and_what_lifts_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("text")
    async with scratch_app(tools=[stumbling]) as app:
        result = await app.call("stumbling", {"path": str(tmp_path / "file")})
    assert result.error is not None
    assert f"{tmp_path}/file is none of these" in result.error.message
    assert "process_tools = false lifts that" in result.error.message


@tool(where="process", timeout_s=4)
def spinning(seconds: str) -> None:
    "Never ends, and has a child."
    subprocess.Popen(["sleep", seconds])
    while True:
        pass


def sleepers(seconds: str) -> list[int]:
    """Return the processes that sleep for so long."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[:2] == [b"sleep", seconds.encode()]:
            found.append(int(name))
    return found


@pytest.mark.parametrize("process_tools", [True, False])
async def test_a_tool_in_a_process_is_killed_at_its_deadline_with_its_children(process_tools: bool) -> None:
    seconds = f"{600 + os.getpid() / 10_000_000:.7f}"
    settings = Settings(sandbox=SandboxSettings(process_tools=process_tools))
    async with scratch_app(tools=[spinning], settings=settings) as app:
        result = await app.call("spinning", {"seconds": seconds})
        assert result.error is not None
        assert result.error.code == "timeout"
        async with asyncio.timeout(120):  # the child does not outlive its tool
            while sleepers(seconds):
                await asyncio.sleep(0.02)
