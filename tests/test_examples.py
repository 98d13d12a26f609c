"""The programs of `examples/`: each runs in a demo folder and prints what it is there to show."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from surehand.cli.tour import FILES, write_demo

EXAMPLES = Path(__file__).parents[1] / "examples"
PRINTED = {
    "word_count.py": "True 3",
    "own_tools.py": "counting 3 of 3\ncounted to 3\nshelf: {'Moby-Dick': 'Melville'}\nafter undo: {}",
    "approvals.py": "+one step\n\nwritten: True\nrefused: permission_denied",
    "reviewer.py": "app.py has an open TODO",
    "policy/check_policy.py": "ok   ask Write",
    "replay.py": "Grep differs\nRead differs",
    "best_of_n.py": "applied way-1 True",
    "batch_evaluation.py": "{'failed': 1, 'passed': 2}",
    "gateway.py": "alpha alpha greets you\nbeta beta greets you\ngamma permission_denied",
}


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    workspace = tmp_path / "demo"
    workspace.mkdir()
    write_demo(str(workspace))
    return workspace


def run(command: list[str], demo: Path) -> str:
    environment = os.environ | {"SUREHAND_HOME": str(demo.parent / "state")}
    done = subprocess.run(command, cwd=demo, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_runs_prints_what_it_shows_and_leaves_the_folder_as_it_was(name: str, demo: Path) -> None:
    printed = run([sys.executable, str(EXAMPLES / name)], demo)
    assert PRINTED[name] in printed
    assert "WRONG" not in printed
    assert {path.name: path.read_bytes().decode() for path in demo.iterdir()} == FILES


def test_the_cells_of_the_notebook_run_also_where_a_loop_runs_already(demo: Path) -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    program = f"async def main():\n    for cell in {code!r}:\n        exec(cell, globals())\n"
    program += "import asyncio; asyncio.run(main())"
    assert "TODO" in run([sys.executable, "-c", program], demo)
    assert not (demo / "notes").exists()
