"""Cold start: whole processes against a bare interpreter."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Harness, process
from surehand import Surehand
from surehand.policy.trust import add_trust
from surehand.testing import Says

OWN_TOOL = """
from surehand import tool

@tool(read_only=True)
def {name}(text: str) -> int:
    "Count the words of a text."
    return len(text.split())
"""


def rows(harness: Harness) -> None:
    surehand = str(Path(sys.executable).parent / "surehand")
    bare = ("python -c pass", process(sys.executable, "-c", "pass"))
    goals = {
        "--version": (("--version",), "<= 2.5"),
        "--help": (("--help",), "<= 2.5"),
        "tools list": (("tools", "list"), "<= 8"),
        "tools invoke time.now": (("tools", "invoke", "time.now"), "<= 12"),
        "tools invoke Read": (("tools", "invoke", "Read", "--args", '{"file_path": "a.txt"}'), "<= 12"),
        "tools invoke Glob": (("tools", "invoke", "Glob", "--args", '{"pattern": "*.txt"}'), "<= 12"),
        "tools invoke Grep": (("tools", "invoke", "Grep", "--args", '{"pattern": "two"}'), "<= 12"),
        "tools invoke calculate": (("tools", "invoke", "calculate", "--args", '{"expression": "6 * 7"}'), "<= 12"),
    }
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "a.txt").write_text("one\ntwo\n")
        for name, (words, goal) in goals.items():
            ours = (f"surehand {name}", process(surehand, *words, cwd=scratch))
            harness.compare(f"cold start: {name}", [bare, ours], goal=goal, rounds=21)
        os.environ |= {"SUREHAND_HOME": f"{scratch}/home", "HOME": scratch}  # what is made and trusted is no user's
        asyncio.run(_make_tools(scratch))
        ours = ("surehand tools list", process(surehand, "tools", "list", cwd=scratch))
        harness.compare("cold start: tools list with made tools", [bare, ours], goal="<= 8", rounds=21)
        folder = Path(scratch, ".surehand", "tools")
        folder.mkdir(parents=True)
        for name in ("one", "two", "three"):
            (folder / f"{name}.py").write_text(OWN_TOOL.format(name=name))
        add_trust(scratch)
        harness.compare("cold start: tools list of a trusted folder", [bare, ours], goal="<= 8", rounds=21)


async def _make_tools(folder: str) -> None:
    """Make a few tools as a model does."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    async with Surehand(folder, approver=Says("once")) as app:
        for name in ("count_words", "count_lines", "count_letters"):
            given = {"name": name, "description": name.replace("_", " "), "input_schema": schema}
            made = await app.call("ToolCreate", {**given, "source": "def run(text):\n    return len(text)\n"})
            assert made.ok, made.output
