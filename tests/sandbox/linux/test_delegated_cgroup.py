"""Limits kept by control groups, in a kernel of its own: Debian's `user-mode-linux` runs one as a process.

The machine of the tests need not have a delegated group, and its mounts stay as they are. The guest sees the host's
files read-only and one folder to write its findings to.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

KERNEL = shutil.which("linux.uml")
GUEST = Path(__file__).with_name("guest.py")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(KERNEL is None, reason="no kernel to start as a process (`apt-get install user-mode-linux`)"),
]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("machine")
    shared = folder / "shared"
    shared.mkdir()
    init = folder / "init"
    words = shlex.join([sys.executable, "-B", str(GUEST), str(shared)])
    init.write_text(f"#!/bin/sh\nexport PATH=/usr/sbin:/usr/bin:/sbin:/bin\nexec {words}\n")
    init.chmod(0o755)
    machine = ["mem=1500M", "rootfstype=hostfs", "rootflags=/", "ro", "con=null", "con0=null,fd:1", f"init={init}"]
    console = subprocess.run(
        [str(KERNEL), *machine],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    assert (shared / "found.json").is_file(), console.stdout.decode(errors="replace")[-4000:]
    assert (shared / "found.json").stat().st_size, (shared / "errors").read_text()
    return json.loads((shared / "found.json").read_text())


@pytest.mark.parametrize("how", ["heap of several", "memfd", "shared map", "/dev/shm", "/tmp"])
def test_the_kernel_keeps_memory_and_the_result_says_so(how: str, found: dict[str, Any]) -> None:
    case = found[how]
    assert "cgroup" in case["by"]
    assert not case["ok"]
    assert "more than 64 MB of memory" in case["output"]
    assert 0 < case["peak"] <= 64 << 20
    assert "still here" in case["after"]


def test_the_kernel_keeps_the_number_of_processes(found: dict[str, Any]) -> None:
    case = found["processes"]
    assert not case["ok"]
    assert set(case["bounds"]) == {"40"}  # for root and whoever else the limit of each user does not hold
    assert "still here" in case["after"]


def test_doctor_says_that_the_kernel_counts(found: dict[str, Any]) -> None:
    (sandbox,) = [each for each in json.loads(found["doctor"]) if each["section"] == "Sandbox"]
    assert sandbox["memory"] == "by the kernel, in a cgroup of each call"
    assert {"name": "memory is counted", "ok": True, "found": sandbox["memory"], "hint": ""} in sandbox["checks"]


def test_no_group_is_left_behind_not_even_by_a_program_that_is_killed(found: dict[str, Any]) -> None:
    assert found["killed"]
    assert found["left"] == []
