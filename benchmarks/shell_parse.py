"""Understanding shell commands: plain ones in process, others through the parser, a batch of everyday ones.

Anchors: one start of the parser process. Goals: 100 µs for a plain command, 500 judgements a second.
"""

from __future__ import annotations

import itertools
import statistics
import subprocess
import time

from benchmarks.harness import Harness
from surehand.shell import understand
from surehand.shell.syntax import parser_path

PLAIN = (
    "ls -la",
    "git status --short",
    "cat README.md | head -20",
    "rg -n 'TODO|FIXME' src",
    "npm test 2>&1 | tail -40",
    "git commit -m 'fix: a thing'",
    "find . -name '*.py'",
    "cd src && ls",
    "python3 -m pytest tests -k 'not slow'",
    "sed -n '10,40p' src/app.py",
    "rm -rf build",
    "git log --oneline -5",
    "sudo systemctl restart nginx",
)
OTHERS = (
    'for f in src/*.py; do wc -l "$f"; done',
    "echo $((1 + 2)) > out.txt",
    "cat <<'EOF'\ntext\nEOF",
    'git log --since="$(date -d yesterday)"',
)


def rows(harness: Harness) -> None:
    """Add the rows to the table of all benchmarks."""
    fresh = itertools.count()  # a tree is remembered: a number in the command makes it a new one
    plain = statistics.median(_microseconds(command, 20 if harness.quick else 200) for command in PLAIN)
    harness.fact("parse and judge a plain command", "surehand", plain, "≤ 100", "µs")
    harness.compare(
        "parse and judge any other command",
        [
            ("the parser process alone", _parser),
            ("surehand", lambda: understand(f"echo $x {next(fresh)}", "/work", home="/home/user")),
        ],
        goal="≤ 1.3",
    )
    started = time.perf_counter()
    count = _everyday(fresh)
    harness.fact(
        "everyday mix, one in twenty not plain",
        "surehand",
        count / (time.perf_counter() - started),
        "≥ 500",
        "a second",
    )


def _microseconds(command: str, rounds: int) -> float:
    walls: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        understand(command, "/work", home="/home/user")
        walls.append(time.perf_counter() - started)
    return statistics.median(walls) * 1e6


def _parser() -> None:
    subprocess.run([parser_path(), "--to-json", "-ln", "bash"], input=b"ls", capture_output=True, check=True)


def _everyday(fresh: itertools.count[int]) -> int:
    commands = [*PLAIN * 6, *(f"{command} # {next(fresh)}" for command in OTHERS)]
    for command in commands:
        understand(command, "/work", home="/home/user")
    return len(commands)
