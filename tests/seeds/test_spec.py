"""Every line of the specification is shown by a test, and every mark names a line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.seeds.table import marked_files, spec_lines


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
        (["tools", "list"], ["pydantic", "mcp", "httpx2", "anyio"]),
        (["tools", "invoke", "tools.echo", "--args", '{"text": "x"}'], ["mcp", "httpx2", "anyio", "starlette"]),
    ],
)
def test_a_cold_start_loads_only_what_the_command_needs(tmp_path: Path, words: list[str], spared: list[str]) -> None:
    code = (
        "import json, sys\n"
        "from surehand.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "sys.stderr.write(json.dumps(sorted(sys.modules)))\n"
    )
    command = [sys.executable, "-S", "-c", f"import site; site.main()\n{code}", *words]
    env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}  # it loads modules too
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=True)
    loaded = set(json.loads(done.stderr.splitlines()[-1]))
    assert loaded.isdisjoint(spared)
