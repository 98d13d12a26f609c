"""Folders whose own files choose the program that runs, also in commands that only look.

A repository's settings make git run programs; a pinned tool chain makes `cargo --version` run a program of the folder.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from surehand.core.effects import ReadPath, RunCommand

if TYPE_CHECKING:
    from surehand.policy.policy import Request

# File that pins a version → the programs that heed it, and what in it is a place rather than a version.
_PINS: dict[str, tuple[str, str]] = {
    "rust-toolchain": (r"cargo|rustc|rustup", r"(?m)^\s*path\s*=|/"),
    "rust-toolchain.toml": (r"cargo|rustc|rustup", r"\bpath\b"),
    ".python-version": (r"python[0-9.]*|pip[0-9.]*|black|mypy|ruff", "/"),
    ".ruby-version": (r"ruby|gem", "/"),
    ".node-version": (r"node|npm|npx|tsc", "/"),
    ".tool-versions": (r".*", r"\bpath:"),
}
_LIMIT = 64 * 1024


def repository_problem(effect: RunCommand, request: Request) -> str:
    """Return why a command that looks must be asked about here, or nothing."""
    if not effect.words:
        return ""
    name = posixpath.basename(effect.words[0])
    if name != "git":
        return _pinned(name, request) if any(re.fullmatch(programs, name) for programs, _ in _PROGRAMS) else ""
    from surehand.host.git_programs import configured_programs

    folders = dict.fromkeys(os.path.normpath(folder) for folder in _folders(effect, request))
    found = dict.fromkeys(name for folder in folders for name in configured_programs(folder))
    return f"this repository's own git settings run programs ({', '.join(found)})" if found else ""


def _folders(effect: RunCommand, request: Request) -> Iterator[str]:
    """Yield the folders git may be in: those it reads, wherever the line moved to, and those named by `-C` and `cd`."""
    yield request.cwd
    yield from (each.path for each in effect.implies if isinstance(each, ReadPath))
    named = [word for option, word in itertools.pairwise(effect.words) if option == "-C"]
    for folder in (*named, *_moves(request)):
        yield os.path.join(request.cwd, folder)


def _moves(request: Request) -> list[str]:
    """Return where each `cd` of the line leads: from the folder of the call, and from where the one before it led."""
    words = [each.words for each in request.effects or () if isinstance(each, RunCommand)]
    named = [each[-1] for each in words if len(each) > 1 and each[0] in ("cd", "pushd")]
    return [*named, *itertools.accumulate(named, os.path.join)]


_PROGRAMS = [pin for name, pin in _PINS.items() if name != ".tool-versions"]


def _pinned(program: str, request: Request) -> str:
    """Say which file at or above the folders of the line chooses the program by a path."""
    starts = [request.cwd, *(os.path.join(request.cwd, folder) for folder in _moves(request))]
    for folder in dict.fromkeys(above for start in starts for above in _upwards(os.path.normpath(start))):
        for name, (programs, place) in _PINS.items():
            if re.fullmatch(programs, program) and re.search(place, _beginning(os.path.join(folder, name))):
                return f"{name} in {folder} chooses the {program} that runs by a path"
    return ""


def _upwards(folder: str) -> Iterator[str]:
    yield folder
    while (above := os.path.dirname(folder)) != folder:
        yield (folder := above)


def _beginning(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _LIMIT).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
