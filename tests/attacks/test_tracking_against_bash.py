"""Scripts with variables, loops, functions and `cd`, run by bash for real: every file it opens was foreseen.

The only program the scripts find is a `cat` that writes down what it was given.
"""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import pytest

from surehand.core.effects import ReadPath, RunCommand, Unreadable
from surehand.shell import understand

VALUES = ("a", "b", "c", "d/a", "./a", "../a", "$x", "$y", '"$z"', "${x}", "a$x", "'c'", "{a,b}", "?/a", "*")
WORDS = ("$x", "$y", '"$x"', "${z}", "a", "b", "d/$x", "./$y", "{a,b}", "[ab]", '"$y"')
LISTS = ("a b", "a", "$x b", "[ab]", "*", "$(echo a b)", "d .", "{a,b}")
PLACES = ("d", "..", "e", "d/e", ".", "$x", "-", "../e")


class Maker:
    """Makes scripts by chance, always the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def script(self) -> str:
        return "; ".join(self._statement(2) for _ in range(self._chance.randint(2, 7)))

    def _block(self, depth: int) -> str:
        return "; ".join(self._statement(depth) for _ in range(self._chance.randint(1, 3)))

    def _statement(self, depth: int) -> str:
        pick = self._chance.choice
        if depth <= 0 or self._chance.random() < 0.6:
            name = pick("xyz")
            plain = ("cat", "cat", "cat", "set", "set", "cd", "read", "unset", "f", "g", "stdin")
            return {
                "cat": f"cat {pick(WORDS)}",
                "set": f"{name}={pick(VALUES)}",
                "cd": f"cd {pick(PLACES)}",
                "read": f"read {name} <<< {pick(VALUES)}",
                "unset": f"unset {name}",
                "stdin": f"read -r {name} y",
                "f": "f",
                "g": "g",
            }[pick(plain)]
        return self._construct(depth - 1)

    def _construct(self, depth: int) -> str:
        pick, block = self._chance.choice, self._block
        forms = (
            lambda: f"for {pick('xyz')} in {pick(LISTS)}; do {block(depth)}; done",
            lambda: f"n=; while [ ${{#n}} -lt 3 ]; do n=x$n; {block(depth)}; done",
            lambda: f"while read {pick('xyz')}; do {block(depth)}; done <<< $'a\\nb\\nc'",
            lambda: f"if {self._statement(0)}; then {block(depth)}; else {block(depth)}; fi",
            lambda: f"( {block(depth)} )",
            lambda: f"{self._statement(0)} | {{ {block(depth)}; }}",
            lambda: f"{self._statement(depth)} && {self._statement(depth)}",
            lambda: f"{self._statement(depth)} || {self._statement(depth)}",
            lambda: f"case $x in {pick('abc')}) {block(depth)};; *) {block(depth)};; esac",
            lambda: f"f() {{ {block(depth)}; }}",
            lambda: f"g() {{ x=b; {block(depth)}; }}",
        )
        return pick(forms)()


def _foreseen(script: str, folder: Path) -> set[str] | None:
    """Return the files the script may open, None where it would be asked about anyway."""
    report = understand(script, str(folder), home="/nonexistent")
    found: set[str] = set()
    for effect in report.effects:
        if isinstance(effect, Unreadable) or (isinstance(effect, RunCommand) and not effect.read_only):
            return None
        implied = effect.implies if isinstance(effect, RunCommand) else (effect,)
        found |= {os.path.normpath(each.path) for each in implied if isinstance(each, ReadPath)}
    return found


def _opened(script: str, folder: Path, programs: Path, log: Path) -> set[str]:
    log.write_text("")
    subprocess.run(
        ["/bin/bash", "-c", script],
        cwd=folder,
        env={"PATH": str(programs)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=300,
    )
    return {os.path.normpath(line) for line in log.read_text().splitlines() if os.path.isfile(line)}


def _run(tmp_path: Path, checks: int, seed: int) -> None:
    folder, programs, log = tmp_path / "ws", tmp_path / "programs", tmp_path / "log"
    programs.mkdir()
    for name in ("", "d", "d/e", "e"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        for file in "abc":
            (folder / name / file).write_text("a\nb\n")
    cat = programs / "cat"
    named = 'case $a in /*) echo "$a";; *) echo "$PWD/$a";; esac'
    cat.write_text(f"#!/bin/sh\nfor a; do {named}; done >> {log}\n")
    cat.chmod(0o755)
    maker = Maker(seed)
    checked = opened = 0
    while checked < checks:
        script = maker.script()
        foreseen = _foreseen(script, folder)
        if foreseen is None:
            continue
        checked += 1
        seen = _opened(script, folder, programs, log)
        opened += len(seen)
        assert seen <= foreseen, script
    assert opened


def test_every_file_a_script_opens_was_foreseen(tmp_path: Path) -> None:
    _run(tmp_path, 12, 21)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(22, 38))
def test_every_file_many_scripts_open_was_foreseen(tmp_path: Path, seed: int) -> None:
    _run(tmp_path, 50, seed)
