"""The calls to Linux by ctypes, with every Python on this machine that can run us: its rules for a fork differ."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src"
PROGRAM = """
import os, sys
sys.path.insert(0, sys.argv[1])
from surehand.sandbox.linux import system
try:
    system.clone(0x10000)  # CLONE_THREAD alone: refused
except OSError as problem:
    print("refused", problem.errno)
pid = system.clone(0)
if pid == 0:
    import json  # the import lock is ours
    os._exit(7)
print("ended", os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
import decimal
"""


@pytest.mark.parametrize("version", ["", "3.11", "3.12", "3.13", "3.14"])
def test_a_clone_goes_on_as_a_python_of_its_own(version: str) -> None:
    python = shutil.which(f"python{version}") if version else sys.executable
    works = python is not None and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
    if python is None or not works:
        pytest.skip(f"there is no Python {version} here")
    command = [python, "-I", "-S", "-c", PROGRAM, str(SOURCE)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (ran.stdout.split("\n"), ran.stderr) == (["refused 22", "ended 7", ""], "")
