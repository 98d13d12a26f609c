"""Files of a worktree that git obeys: what its settings include, read or run, and what makes a folder a repository.

Whoever writes one of them decides what git does, without a word in a folder of git.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal, TypeAlias

from surehand.core.frozen import frozen, replace_values
from surehand.core.read_state import SETTLED_NS
from surehand.git.config import settings_of, user_files
from surehand.git.model import CONFIGS, names_file
from surehand.git.protected_files import included_path, includes, list_settings, programs_named
from surehand.git.repositories import Repository, is_repository, repositories_at, text_of

_FILES: Final = frozenset({"head", "commondir", *CONFIGS})
_FOLDERS: Final = frozenset({"objects", "refs", "hooks", "info"})
_MOST_REMEMBERED: Final = 64
_NEVER_NS: Final = 1 << 63
"""The time of what proves nothing."""

_Dependency: TypeAlias = tuple[str, Literal["file", "folder", "itself", "nothing"]]
"""A path and what counts there: the file it leads to, which folder that is, what stands there, or that nothing does."""
_Mark: TypeAlias = tuple[int, ...] | None


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
            found = self._named[folder, real] = list(_look_above(folder if real else os.path.realpath(folder)))
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


@frozen
class _Look:
    """What settings name at the top of a repository, and the marks of all files that this depends on."""

    named: tuple[dict[str, str], ...]
    """Path → setting, for each repository there may be."""
    is_last: bool
    """Whether git looks no further up."""
    marks: tuple[tuple[_Dependency, _Mark], ...]
    leads: tuple[tuple[str, str], ...]
    """What is named, and where that leads."""

    def holds(self) -> bool:
        """Say whether all of it is as it was."""
        for (path, what), mark in self.marks:  # a plain loop: every write waits for it
            if _mark(path, what) != mark:
                return False
        return not self.leads or all(os.path.realpath(path) == real for path, real in self.leads)


_remembered: dict[str, _Look] = {}


def _look_above(folder: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield top and named paths of every repository git may take for the one a folder (a real path) lies in."""
    while True:
        look = _look_at(folder)
        if look is not None:
            for named in look.named:
                yield folder, named
        above = os.path.dirname(folder)
        if above == folder or (look is not None and look.is_last):
            return
        folder = above


def _look_at(top: str) -> _Look | None:
    """Return what is named by the settings of what git may take for a repository at a folder; None: there is none.

    It is remembered as long as the status of all files that count proves that none has changed.
    """
    known = _remembered.get(top)
    if known is not None and known.holds():
        return known
    if known is None and not any(os.path.lexists(f"{top}/{name}") for name in (".git", "HEAD")):
        return None
    _remembered.pop(top, None)
    look, depends_on = _look_anew(top)
    marks = {each: _mark(*each) for each in depends_on}
    if _prove_unchanged(marks.values()):
        look, again = _look_anew(top)  # after the marks: whatever changes from then on changes one of them
        if again == depends_on:
            if len(_remembered) >= _MOST_REMEMBERED:
                _remembered.clear()
            look = _remembered[top] = replace_values(look, marks=tuple(marks.items()))
    return look


def _look_anew(top: str) -> tuple[_Look, dict[_Dependency, None]]:
    """Look, and return the depends_on that it depends on, too."""
    depends_on, leads = dict[_Dependency, None](), dict[str, str]()
    depends_on[f"{top}/.git", "folder"] = depends_on[f"{top}/HEAD", "nothing"] = None
    named: list[dict[str, str]] = []
    is_last = False
    for each in repositories_at(top):
        git_dir, common = each.git_dir, each.common
        depends_on[git_dir, "folder"] = depends_on[f"{git_dir}/commondir", "file"] = depends_on[
            f"{git_dir}/HEAD", "itself"
        ] = None
        if each.pointer:
            depends_on[os.path.join(top, text_of(each.pointer).removeprefix("gitdir: ")), "folder"] = None
        if common != git_dir:
            depends_on[common, "folder"] = depends_on[
                os.path.join(git_dir, text_of(f"{git_dir}/commondir")), "folder"
            ] = None
        depends_on[f"{common}/objects", "file"] = depends_on[f"{common}/refs", "file"] = None
        named.append(_list_named(each, depends_on, leads))
        if is_last := is_repository(each):
            break
    return _Look(tuple(named), is_last, (), tuple(leads.items())), depends_on


def _list_named(repository: Repository, depends_on: dict[_Dependency, None], leads: dict[str, str]) -> dict[str, str]:
    """Return path → setting of all that the settings of a repository, and the user's, name in its worktree."""
    files = [os.path.join(folder, name) for folder in repository.folders for name in CONFIGS]
    named: dict[str, str] = {}
    top = repository.top

    def add(path: str, key: str) -> None:
        leads[path] = os.path.realpath(path)
        named.setdefault(leads[path], key)
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
    of_user = [*map(os.fsdecode, user_files())]
    for _ in list_settings(of_user):  # which adds the files that they include
        pass
    depends_on.update(((path, "file"), None) for path in (*files, *of_user))
    return named


def _mark(path: str, what: str) -> _Mark:
    """Return which file is at a path now: one that was written since has another mark."""
    try:
        status = os.stat(path, follow_symlinks=what in ("file", "folder"))
    except (OSError, ValueError):
        return None
    if what == "folder" and stat.S_ISDIR(status.st_mode):
        return status.st_dev, status.st_ino
    proves = what != "nothing" and not stat.S_ISLNK(status.st_mode)  # a link is as good as what it leads to
    changed_ns = status.st_ctime_ns if proves else _NEVER_NS
    return status.st_dev, status.st_ino, status.st_size, changed_ns


def _prove_unchanged(marks: Iterable[_Mark]) -> bool:
    """Say whether these marks prove something: any later change gives a file another time."""
    now = time.time_ns() - SETTLED_NS
    return all(mark is None or len(mark) == 2 or mark[-1] < now for mark in marks)
