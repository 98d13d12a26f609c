"""Tools in processes: a child imports the function by its name and never runs the user's program."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from surehand import RegistrationError, Tool, tool
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
