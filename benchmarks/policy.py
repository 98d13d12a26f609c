"""The policy: a judgement against resolving one path, the least it can cost, and `policy check --batch`."""

from __future__ import annotations

import json
import os
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.harness import Harness, process

CALLS = 2000
EVERYDAY = (
    "ls -la",
    "git status --short",
    "git log --oneline -5",
    "cat README.md | head -20",
    "rg -n 'TODO|FIXME' src",
    "find . -name '*.py'",
    "npm test",
    "git commit -m 'fix'",
    "cd src && ls",
    "python3 -m pytest tests -k 'not slow'",
    "sed -n '10,40p' src/app.py",
    'for d in src docs; do ls "$d"; done',
    "make -j2 2>&1 | tail -40",
    "grep -q main src/app.py && echo found || echo missing",
)


def rows(harness: Harness) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        _judging(harness, scratch)
        _batch(harness, scratch)


def _request(workspace: str, effects: Any, **facts: Any) -> Any:
    from surehand.policy.policy import Request

    return Request(
        tool="Tool",
        aliases=(),
        module="",
        needs_permission=True,
        level=0,
        effects=effects,
        workspace=workspace,
        roots=(workspace,),
        cwd=workspace,
        mode="default",
        **facts,
    )


def _judging(harness: Harness, workspace: str) -> None:
    from surehand.core.effects import ReadPath, RunCommand, WritePath
    from surehand.policy.policy import Policy

    policy = Policy()
    path = os.path.join(workspace, "src", "a.py")
    kinds = {
        "a read-only tool": _request(workspace, [], read_only=True),
        "a read": _request(workspace, [ReadPath(path)], read_only=True),
        "a write": _request(workspace, [WritePath(path)], read_only=False),
        "a command": _request(workspace, [RunCommand(("git", "status"), True)], read_only=True),
    }

    def resolve() -> None:
        for _ in range(CALLS):
            os.path.realpath(path)

    def judging(request: Any) -> Any:
        def run() -> None:
            for _ in range(CALLS):
                policy.judge(request)

        return run

    ours = [(f"judge {name}", judging(request)) for name, request in kinds.items()]
    harness.compare("policy: 2,000 judgements", [("os.path.realpath of one path", resolve), *ours])


def _batch(harness: Harness, workspace: str) -> None:
    """Judge everyday commands in one process, its start included."""
    lines = [json.dumps({"tool": "Bash", "args": {"command": command}, "cwd": workspace}) for command in EVERYDAY * 70]
    file = Path(workspace, "batch.jsonl")
    file.write_text("\n".join(lines))
    run = process(str(Path(sys.executable).parent / "surehand"), "policy", "check", "--batch", str(file))
    run()
    started, spent = time.perf_counter(), _children_cpu()
    run()
    wall, cpu = time.perf_counter() - started, _children_cpu() - spent
    note = f"{len(lines)} calls"
    harness.fact("policy check --batch", "calls a second", len(lines) / wall, ">= 500", note)
    harness.fact("policy check --batch", "calls a second of CPU", len(lines) / cpu, "", note)


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
