"""The names of settings that are judged are all names that a program looks for: traced at the real programs."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from surehand.policy import projects

STRACE = shutil.which("strace")
SOURCES = {
    "Cargo.toml": '[package]\nname = "x"\nversion = "0.1.0"\n',
    "src/main.rs": "fn main() {}\n",
    "m.py": "x = 1\n",
}
# What a program may look for beside its settings: its sources, and files that only leave paths out.
HARMLESS = {
    "ruff": r"(src/)?m\.py|src|\.git|\.jj|\.git/info/exclude|\.(git)?ignore|(src/)?__init__\.py",
    "cargo": r"src/.*|\.cargo|tests|examples|benches|build\.rs|README(\.txt|\.md)?",
    "rustc": r"(?!)",
    "npm": r"node_modules(/\.package-lock\.json)?|yarn\.lock",
}
COMMANDS = [
    "ruff check --no-cache .",
    "ruff format --check --no-cache .",
    "cargo metadata --no-deps --format-version 1 --offline",
    "rustc --version",
    "npm --version",
    "npm config get registry",
]


@pytest.mark.skipif(STRACE is None, reason="strace is not installed")
@pytest.mark.parametrize("command", COMMANDS)
def test_a_program_looks_for_no_file_of_its_folder_that_is_not_judged(command: str, tmp_path: Path) -> None:
    program = command.split()[0]
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not installed")
    folder = tmp_path / "above" / "project"
    for name, text in SOURCES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    log = tmp_path / "log"
    traced = [str(STRACE), "-f", "-qq", "-e", "trace=file", "-o", str(log), *command.split()]
    if subprocess.run(traced, cwd=folder, capture_output=True, timeout=120, check=False).returncode not in (0, 1):
        pytest.skip(f"{program} cannot be traced here")
    pins = {name for name, (programs, _) in projects._PINS.items() if re.fullmatch(programs, program)}  # pyright: ignore[reportPrivateUsage]
    judged = {*projects._SETTINGS.get(program, ()), *pins}  # pyright: ignore[reportPrivateUsage]
    lines = [line for line in log.read_text().splitlines() if "execve(" not in line]
    paths = [found[1] for line in lines if (found := re.search(r'"([^"]+)"', line))]
    looked_for = {_below(path, tmp_path) for path in paths} - {""}
    assert looked_for & judged  # the trace shows something
    unknown = {
        name
        for name in looked_for
        if not re.fullmatch(HARMLESS[program], name) and name.removeprefix("src/") not in judged
    }
    assert unknown == set()


def _below(path: str, top: Path) -> str:
    """Return the part of a path that is below the project or a directory above it; nothing for other paths."""
    for folder in (top / "above" / "project", top / "above"):
        if path.startswith(f"{folder}/"):
            name = path.removeprefix(f"{folder}/").removeprefix("./")
            return "" if name in (".", "project") else name
    return "" if path.startswith("/") or path in (".", "..") else path.removeprefix("./")
