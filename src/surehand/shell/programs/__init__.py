"""One record per shell program, with examples that a test checks.

To add a program, write a `Program(...)` in the file of its family: the options with which it only reads (a call with
any other option asks, so leave out those that write, delete, run a program, open a connection or take file names from
a file), an example that runs unasked and one that asks. Nothing else needs to change, unless it obeys files of its
directory (`obeys_folder=True`, see `policy.projects`) or a variable (`_REMOVED_VARIABLES` in `commands.environment`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from threading import Lock

from surehand.core.text import lazy_pattern
from surehand.shell.programs.record import Program
from surehand.shell.wrappers import Wrapper

FAMILIES = (
    "builtins", "text", "search", "directories", "git", "sed_and_awk", "changes", "archives", "system", "development",
    "wrappers",
)  # fmt: skip
"""The modules with records, the most often needed first."""
PROGRAMS: dict[str, Program] = {}
"""The records loaded so far, by name and alias."""
_waiting = list(FAMILIES)
_loading = Lock()
UNKNOWN = Program("")
"""The record of any unknown program."""

_LOADER = lazy_pattern(r"ld-linux.*\.so\.\d+|ld-musl-.*\.so\.\d+|ld\.so(\.\d+)?|ld-\d.*\.so")
_LOADER_OPTIONS = "--library-path: --preload: --inhibit-cache --argv0: --inhibit-rpath: --audit:"


def program_of(name: str) -> Program:
    """Return the record of a program; `UNKNOWN` if it has none."""
    return _find(name) or UNKNOWN


def _find(name: str) -> Program | None:
    """Load families until one has the program: all of them take 10 ms, and most processes need one or two."""
    if name not in PROGRAMS and _waiting:
        with _loading:
            while name not in PROGRAMS and _waiting:
                load_families(1)
    return PROGRAMS.get(name)


def load_families(number: int = len(FAMILIES)) -> None:
    """Load the records of the next few families, or of all."""
    for family in _waiting[:number]:
        records: Sequence[Program] = import_module(f"{__name__}.{family}").PROGRAMS
        PROGRAMS.update({name: each for each in records for name in (each.name, *each.aliases)})
        _waiting.remove(family)  # last: those who find it empty, without the lock, find every program


def wrapper_of(name: str) -> Wrapper | None:
    """Return how a program wraps a command; `None` if it does not."""
    program = _find(name)
    if program is not None:
        return program.wraps
    loads = name.startswith("ld") and _LOADER.fullmatch(name)
    return Wrapper(_LOADER_OPTIONS, alters="runs through the loader") if loads else None


def quiet_variables(commands: Iterable[Sequence[str]]) -> dict[str, str]:
    """Return environment variables that keep these commands from writing caches and from fetching."""
    found: dict[str, str] = {}
    for words in commands:
        quiet = program_of(words[0]).quiet if words else None
        for first in (*words[1:2], "") if quiet else ():
            found |= (quiet or {}).get(first, {})
    return found


def exit_1_means_no(words: Sequence[str]) -> bool:
    """Return whether exit code 1 of a command is an answer (no match, a difference) and not a failure."""
    means = program_of(words[0].rpartition("/")[2]).exit_1_means_no if words else False
    return means if isinstance(means, bool) else not set(means).isdisjoint(words[1:])
