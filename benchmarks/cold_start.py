"""Cold start: whole processes against a bare interpreter."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from benchmarks.harness import Harness, process


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
