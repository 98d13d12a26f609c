"""Files of a worktree that git obeys: what its settings include, read or run, and what makes a folder a repository.

Whoever writes one of them decides what git does, without a word in a folder of git.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import Final

from surehand.git.config import settings_of, user_files
from surehand.git.model import CONFIGS, names_file
from surehand.git.protected_files import included_path, includes, list_settings, programs_named
from surehand.git.repositories import Repository, repositories_above, repositories_around

_FILES: Final = frozenset({"head", "commondir", *CONFIGS})
_FOLDERS: Final = frozenset({"objects", "refs", "hooks", "info"})
_MOST_REMEMBERED: Final = 64

_Marks = tuple[tuple[str, tuple[int, int, int] | None], ...]
_remembered: dict[Repository, tuple[_Marks, dict[str, str]]] = {}


class ObeyedFiles:
    """Says why git would obey files that one call writes, `together`; what a folder lies in is looked at once."""

    def __init__(self, together: Collection[str] = ()) -> None:
        self._together = together
        self._written: dict[str, set[str]] = {}
        self._named: dict[tuple[str, bool], list[tuple[str, dict[str, str]]]] = {}

    def why(self, path: str, *, real: bool = False) -> str:
        """Say why git would obey a file at this path; an empty text where it would not.

        `real` says that no link is on the way to it.
        """
        for folder in self._find_new_repositories(path):
            return f"it makes {folder} a repository to git, which obeys the settings and hooks there"
        for top, named in self._list_named_around(os.path.dirname(path), real):
            above = path
            while above != top and len(above) > 1:
                if above in named:
                    return f"git obeys it: {named[above]} names {above}"
                above = os.path.dirname(above)
        return ""

    def _list_named_around(self, folder: str, real: bool) -> list[tuple[str, dict[str, str]]]:
        found = self._named.get((folder, real))
        if found is None:
            around = repositories_above(folder) if real else repositories_around(folder)
            found = self._named[folder, real] = [(each.top, _list_named(each)) for each in around]
        return found

    def _find_new_repositories(self, path: str) -> Iterator[str]:
        """Yield the folders that look like a repository once the path is written, which is a part of it."""
        parts = path.split("/")
        for at, name in enumerate(parts):
            plain, last = name.lower(), at == len(parts) - 1
            if plain not in (_FILES if last else _FOLDERS):
                continue
            folder = "/".join(parts[:at])
            written = self._list_written(folder) | {plain}

            def holds(part: str, folder: str = folder, written: Collection[str] = written) -> bool:
                return part.lower() in written or os.path.lexists(f"{folder}/{part}")

            if holds("HEAD") and (holds("commondir") or (holds("objects") and holds("refs"))):
                yield folder

    def _list_written(self, folder: str) -> set[str]:
        """Return the names in a folder at which, or below which, the call writes."""
        if folder not in self._written:
            begin = f"{folder}/"
            self._written[folder] = {
                each[len(begin) :].partition("/")[0].lower() for each in self._together if each.startswith(begin)
            }
        return self._written[folder]


def _list_named(repository: Repository) -> dict[str, str]:
    """Return path → setting of all that the settings of a repository, and the user's, name in its worktree."""
    known = _remembered.get(repository)
    if known is not None and _mark_all(path for path, _ in known[0]) == known[0]:
        return known[1]
    files = [os.path.join(folder, name) for folder in repository.folders for name in CONFIGS]
    named: dict[str, str] = {}
    top = repository.top

    def add(path: str, key: str) -> None:
        named.setdefault(os.path.realpath(path), key)
        named.setdefault(os.path.normpath(path), key)

    def add_file(key: str, value: str) -> None:
        if value and names_file(key):
            add(os.path.join(top, os.path.expanduser(value)), key)

    for path, key, value in list_settings(files):
        if includes(key):
            add(included_path(path, value), key)
        else:
            add_file(key, value)
            for program in programs_named(key, value, top):
                add(program, key)
    for key, value in settings_of(os.fsencode(repository.git_dir), os.fsencode(repository.common)).items():
        add_file(os.fsdecode(key), os.fsdecode(value))
    named.pop(top, None)
    if len(_remembered) >= _MOST_REMEMBERED:
        _remembered.clear()
    _remembered[repository] = _mark_all((*files, *map(os.fsdecode, user_files()))), named
    return named


def _mark_all(paths: Iterator[str] | Collection[str]) -> _Marks:
    """Return which files these are now: one that was written since has another mark."""
    return tuple((path, _mark(path)) for path in paths)


def _mark(path: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_ctime_ns
