"""Every line of the specification is shown by a test, and every mark names a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.seeds.table import marked_files, spec_lines

from surehand import Surehand
from surehand.testing import Says


def test_every_line_that_should_hold_has_a_test_and_no_mark_names_another() -> None:
    lines, marked = spec_lines(), marked_files().keys()
    assert marked - lines.keys() == set()
    assert {id for id, (state, _) in lines.items() if state == "holds"} - marked == set()


@pytest.mark.spec("CLI-5")
@pytest.mark.parametrize(
    ("words", "spared"),
    [
        (["--version"], ["asyncio", "argparse", "pydantic", "typing"]),
        (["--help"], ["asyncio", "pydantic", "mcp"]),
        (["tools", "list"], ["asyncio", "pydantic", "mcp", "httpx2", "anyio"]),
        (["tools", "invoke", "tools.echo", "--args", '{"text": "x"}'], ["mcp", "httpx2", "anyio", "starlette"]),
    ],
)
def test_a_cold_start_loads_only_what_the_command_needs(tmp_path: Path, words: list[str], spared: list[str]) -> None:
    _, loaded = run_cold(tmp_path, words)
    assert loaded.isdisjoint(spared)


@pytest.mark.spec("CLI-5")
async def test_tools_that_were_made_are_listed_without_the_application_or_anything_of_theirs(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    source = "import colorsys\ndef run(text):\n    return len(text.split())\n"
    async with Surehand(tmp_path, approver=Says("once")) as app:
        given = {"name": "count_words", "description": "Count words", "input_schema": schema, "source": source}
        made = await app.call("ToolCreate", given)
        assert made.ok, made.output
    printed, loaded = run_cold(tmp_path, ["tools", "list", "--json"])
    [row] = [row for row in json.loads(printed) if row["name"] == "count_words"]
    assert (row["module"], row["inputSchema"], row["deferred"]) == ("made", schema, False)
    assert loaded.isdisjoint(["asyncio", "pydantic", "mcp", "anyio", "colorsys", "surehand.app", "surehand.commands"])


OWN_TOOL = """
from surehand import tool
from counting import WORDS

@tool(read_only=True)
def count(text: str, least: int = 1) -> int:
    "Count WORDS."
    return len(text.split())
"""


@pytest.mark.spec("CLI-5")
def test_tools_of_a_trusted_folder_are_listed_without_importing_them_until_a_file_of_theirs_changes(
    tmp_path: Path,
) -> None:
    folder = tmp_path / ".surehand" / "tools"
    folder.mkdir(parents=True)
    (folder / "own.py").write_text(OWN_TOOL)
    (folder / "broken_later.py").write_text(OWN_TOOL.replace("def count(", "def other("))
    (tmp_path / "counting.py").write_text("WORDS = 1\n")
    own = {**os.environ, "PYTHONPATH": str(tmp_path)}

    def trusted() -> None:
        subprocess.run([sys.executable, "-m", "surehand", "trust", "--yes"], cwd=tmp_path, check=True, timeout=300)

    def listed() -> tuple[dict[str, object], set[str]]:
        printed, loaded = run_cold(tmp_path, ["tools", "list", "--json"], own)
        return {row["name"]: row for row in json.loads(printed)}, loaded

    trusted()
    first, _ = listed()
    again, loaded = listed()
    assert again == first
    assert {"count", "other"} <= again.keys()
    assert loaded.isdisjoint(["asyncio", "pydantic", "anyio", "counting", "surehand.app"])
    (folder / "own.py").write_text(OWN_TOOL.replace("least: int", "most: int"))
    assert "count" not in listed()[0]  # changed, and not trusted as it is now
    trusted()
    for _ in range(2):
        changed, _ = listed()
        assert "most" in str(changed["count"])
    (folder / "broken_later.py").unlink()
    trusted()
    for _ in range(2):
        assert "other" not in listed()[0]


def run_cold(folder: Path, words: list[str], environment: Mapping[str, str] = os.environ) -> tuple[str, set[str]]:
    """Run a command in a new process; return what it printed, and the modules it loaded."""
    code = (
        "import json, sys\n"
        "from surehand.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))\n"
    )
    command = [sys.executable, "-S", "-c", f"import site; site.main()\n{code}", *words]
    env = {
        name: value for name, value in environment.items() if not name.startswith("COVERAGE")
    }  # it loads modules too
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=True)
    return done.stdout, set(json.loads(done.stderr.splitlines()[-1]))
