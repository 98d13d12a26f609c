"""Scripts with variables, lists, loops, functions and `cd`, run by bash for real: every file it opens was foreseen.

A script grows by statements with which it still runs unasked. The only program the scripts find is a `cat` that writes
down what it was given.
"""

from __future__ import annotations

import os
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from surehand.core.effects import ReadPath, RunCommand, Unreadable
from surehand.shell import understand

VALUES = ("a", "b", "c", "d/a", "./a", "../a", "$x", "$y", '"$z"', "${x}", "a$x", "'c'", "{a,b}", "?/a", "*")
# Lists and parameters, which functions have of their own.
LISTED = (
    '"$1"',
    "$2",
    '"$@"',
    "$@",
    '"${l[@]}"',
    '"${l[0]}"',
    "${l[1]}",
    'd/"$1"',
    '"${x:-a}"',
    '"${y%b}"',
    "$(wc -l < n)",
    '"${@:2}"',
    '"${l[@]:1}"',
    '"${m[k]}"',
    '"${m[$x]}"',
    '"${BASH_REMATCH[1]}"',
    '"${x/a/b}"',
    '"${y^^}"',
    "$*",
    "${l[-1]}",
    "$_",
    "$(basename d/$x)",
)
WORDS = ("$x", "$y", '"$x"', "${z}", "a", "b", "d/$x", "./$y", "{a,b}", "[ab]", '"$y"')
LISTS = ("a b", "a", "$x b", "[ab]", "*", "$(echo a b)", "d .", "{a,b}")
PLACES = ("d", "..", "e", "d/e", ".", "$x", "-", "../e")


class Maker:
    """Makes scripts by chance, always the same ones for a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)

    def script(self) -> str:
        return "; ".join(self._statement(2) for _ in range(self._chance.randint(2, 7)))

    def grown_script(self, runs: Callable[[str], bool]) -> str:
        """Return a script of which `runs` says that it would run, with functions that are called."""
        script = "x=a; y=b; z=c; l=(a b); declare -A m=([k]=a); set -- b c; f() { cat a; }; g() { cat b; }"
        for _ in range(16):
            kinds = (
                self._listing_statement,
                self._listing_statement,
                self._listing_function,
                lambda: self._statement(2),
            )
            longer = script + self._chance.choice(("; ", "; ", "\n")) + self._chance.choice(kinds)()
            script = longer if runs(longer) else script
        return f"{script}; cat a"

    def _listing_statement(self) -> str:
        pick, name = self._chance.choice, self._chance.choice("xyz")
        words = " ".join(pick((*LISTED, *"abcde")) for _ in range(self._chance.randint(0, 3)))
        forms = (
            f"cat {pick(LISTED)}", f"cat ${name}", f"f {words}", f"g {words}", f"set -- {words}", f"l=({words})",
            f"l[1]={pick(VALUES)}", f"l+=({words})", f"l={name}", "shift", "shift 2", f"{name}={pick(LISTED)}",
            f"declare {name}={pick(VALUES)} {pick('xyz')}={pick(VALUES)}", f"declare l=({words})", f"{name}=b < n",
            f"read -a{pick(('l', 'x', ' l'))} <<< {pick(VALUES)}", f"pushd -n d && cat {pick(LISTED)}", "cd -",
            f"cd d && cat {pick(LISTED)}", f"f {words} && cat {pick('abc')}", "set -e pipefail", "/bin/shift", "cd d",
            f"l=({words} $((1/0)))", f"{{ {name}=c; cd e; }} < n && cat a", f"for {name}; do cat ${name}; done",
            f"m[{pick(('k', '$x', 'b'))}]={pick(LISTED)}", f"declare -A m=([k]={pick(VALUES)})",
            f"[[ {name}b =~ (.) ]]",
            f"case ${name} in a) {name}=c;{pick((';', '&', ';&'))} *) cat ${name};; esac", f"{name}=b f {words}",
            f"{name}+={pick('abc')}",
            f"for {name} in {words} a; do cat ${name}; {pick(('break', 'continue', 'shift'))}; done",
            f"export {name}={pick(VALUES)}", f"mapfile -t l <<< {pick(VALUES)}", "popd", f"set -u; cat ${name}",
        )  # fmt: skip
        return pick(forms)

    def _listing_function(self) -> str:
        pick, inner = self._chance.choice, self._listing_statement
        first = pick(
            ("", "local x; ", "local x=$1; ", "local x=a y=$x; ", "local x=c & ", "local l; ", "cd d || return; ")
        )
        leaves = pick(
            ("", "return; ", "[ -f n ] || return; ", "[ -f n ] && return; ", "if [ -f a ]; then return 0; fi; ")
        )
        body = f"{first}{inner()}; {leaves}{inner()}"
        opened, closed = pick((("{", "}"), ("{", "}"), ("(", ")")))
        return f"{pick('fg')}() {opened} {body}; {closed}; {inner()}; {pick('fg')} {pick('abc')} && {inner()}"

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


def _run(tmp_path: Path, checks: int, seed: int, grown: bool = False) -> None:
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
        script = maker.grown_script(lambda each: _foreseen(each, folder) is not None) if grown else maker.script()
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


def test_every_file_a_script_with_lists_and_parameters_opens_was_foreseen(tmp_path: Path) -> None:
    _run(tmp_path, 12, 41, grown=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(42, 58))
def test_every_file_many_scripts_with_lists_and_parameters_open_was_foreseen(tmp_path: Path, seed: int) -> None:
    _run(tmp_path, 50, seed, grown=True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(22, 38))
def test_every_file_many_scripts_open_was_foreseen(tmp_path: Path, seed: int) -> None:
    _run(tmp_path, 50, seed)
