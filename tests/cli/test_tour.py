"""The tour works on a fresh machine: it ends well, asks nobody, needs no network and leaves nothing behind."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

_NO_NETWORK = """
import socket, sys
def refuse(*args): raise AssertionError("the tour wants the network")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from surehand.cli.main import main
sys.exit(main(["tour"]))
"""


@pytest.fixture(scope="module")
def toured(tmp_path_factory: pytest.TempPathFactory) -> tuple[subprocess.CompletedProcess[str], Path]:
    place = tmp_path_factory.mktemp("tour")
    for name in ("home", "tmp", "cwd"):
        (place / name).mkdir()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SUREHAND_", "XDG_"))}
    environment |= {"HOME": str(place / "home"), "TMPDIR": str(place / "tmp")}
    done = subprocess.run(
        [sys.executable, "-c", _NO_NETWORK],
        cwd=place / "cwd",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done, place


def test_the_tour_ends_well(toured: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = toured
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr == ""


def test_the_tour_leaves_nothing_behind(toured: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    _, place = toured
    left = [str(path.relative_to(place)) for path in place.rglob("*") if path.parent != place]
    assert left == []


def test_the_tour_shows_what_it_says(toured: tuple[subprocess.CompletedProcess[str], Path]) -> None:
    done, _ = toured
    steps = re.findall(r"^(\d+)\. ", done.stdout, re.MULTILINE)
    assert steps == [str(number) for number in range(1, len(steps) + 1)]
    assert len(steps) >= 10
    for words in (
        "2 + 3 * 4 = 14.00",
        "tool_not_found",
        "invalid_args",
        "repaired:",
        "File has not been read yet.",
        r"b'first line\r\nsecond line\r\nthird line\r\n'",
        "permission_denied",
        "+    return 'Hi ' + name",
    ):
        assert words in done.stdout, words
    assert "do-not-show" not in done.stdout


def test_what_the_tour_says_to_try_next_can_be_typed(
    toured: tuple[subprocess.CompletedProcess[str], Path],
) -> None:
    done, place = toured
    told = re.search(r"^  (\S.*) tools list$", done.stdout, re.MULTILINE)
    assert told is not None
    again = subprocess.run(
        ["bash", "-c", f"{told[1]} --version"], cwd=place / "cwd", capture_output=True, timeout=300, check=False
    )
    assert again.stdout.startswith(b"surehand "), again.stderr
