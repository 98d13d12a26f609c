"""Protects files that decide what git later runs as the user: commands may neither change nor create them.

In existing repositories these files stay as they are. A repository that a command creates has to be set up, so its
files are checked when the command has ended: settings not known to be harmless are removed, and so are hooks and
pointers to other settings.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from surehand.core.frozen import frozen, replace_values
from surehand.core.secrets import is_secret
from surehand.core.session import SETTLED_NS
from surehand.core.text import lazy_pattern
from surehand.git.config import entries, read_plain, settings_of, user_files
from surehand.git.model import CONFIGS, is_harmless, names_file
from surehand.git.repositories import (
    Repository,
    common_of,
    follow_pointer,
    is_repository,
    module_folders,
    repositories_at,
    repository_at,
    seems_bare,
    text_of,
    worktree_of,
)

KEPT: Final = ("hooks", *CONFIGS, "info", "commondir")
"""What in a git directory decides which programs run and where settings come from."""
_KEPT_OF_WORKTREE: Final = ("commondir", "gitdir", "config.worktree", "config", "hooks")
_CONFIG: Final = 1 << 20
_TODO: Final = 64 << 20
_MOST_INCLUDED: Final = 100
_MOST_LINKS: Final = 40
"""The kernel's limit on symbolic links in one path."""
_FILE_NAME: Final = lazy_pattern(r"\A[^-%$][^=:]*?(?:/|\.\w+\Z)")
"""Recognizes a file name (with a directory or an extension) among words of a command."""
_EXECUTES: Final = lazy_pattern(rb"\s*(?:x|exec)(?:\s|$)")
_STRATEGIES: Final = (b"", b"recursive", b"ort", b"resolve", b"octopus", b"ours", b"subtree")
"""Built-in merge strategies; any other is a program, `git-merge-NAME`."""
_UNFINISHED: Final = ("rebase-merge/git-rebase-todo", "rebase-merge/strategy", "sequencer/opts")
"""State of unfinished operations, which git continues later."""
_OF_BARE: Final = frozenset(("HEAD", "objects", "refs", "commondir", *CONFIGS))
"""Names that suggest a bare repository."""


def is_set_up(folder: str) -> bool:
    """Tell whether a `.git` directory is a repository, or still to be set up."""
    return os.path.lexists(os.path.join(folder, "HEAD"))


def git_dirs_near(root: str) -> list[str]:
    """Return the `.git` directories in a root and in its subdirectories."""
    repositories = [root]
    try:
        with os.scandir(root) as found:
            repositories += [entry.path for entry in found if entry.is_dir(follow_symlinks=False)][:200]
    except OSError:
        pass
    folders = [os.path.join(repository, ".git") for repository in repositories]
    return [path for path in folders if is_set_up(path) and os.path.isdir(path) and not os.path.islink(path)]


def git_dirs_of_worktree(workspace: str) -> tuple[str, ...]:
    """Return the git directory a worktree commits to, if that directory points back at the worktree."""
    repository = repository_at(workspace)
    if (
        repository is None
        or not repository.pointer
        or repository.git_dir == repository.common
        or not repository.is_linked
    ):
        return ()
    return (repository.common,)


def with_inner(git_dirs: Iterable[str]) -> list[str]:
    """Return git directories and those of their submodules."""
    return list(dict.fromkeys(inner for folder in git_dirs for inner in (folder, *module_folders(folder))))


def kept_paths(git_dir: str, *, young: bool = False) -> list[str]:
    """Return the paths that must not change for a git directory, whether they exist or not.

    In a `young` one, created by a command of this session, settings may still be written; they are checked later.
    """
    names = ("hooks", "commondir") if young else KEPT
    kept = [os.path.join(git_dir, name) for name in names]
    kept += [path for tree in _worktrees(git_dir) for path in _kept_of_worktree(tree)]
    if not young:
        kept += _named_by_settings(git_dir)
    kept += [link for folder in kept for link in _links_in(folder)]
    return list(dict.fromkeys(each for path in kept for each in _resolve_step_by_step(path)))


def _links_in(folder: str) -> Iterator[str]:
    """Yield the symbolic links in a directory: a hook may be one."""
    if os.path.isdir(folder):
        with os.scandir(folder) as found:
            yield from (entry.path for entry in found if entry.is_symlink())


def _resolve_step_by_step(path: str) -> Iterator[str]:
    """Yield the symbolic links on the way to a path, then its real path: replacing a link replaces the file."""
    waiting, real, links = path.split("/")[::-1], "", 0
    while waiting:
        name = waiting.pop()
        if name in ("", "."):
            continue
        if name == "..":
            real = os.path.dirname(real)
            continue
        real = f"{real}/{name}"
        if links < _MOST_LINKS and os.path.islink(real):
            yield real
            links += 1
            target = os.readlink(real)
            real = "" if target.startswith("/") else os.path.dirname(real)
            waiting += target.split("/")[::-1]
    yield real or "/"


def _worktrees(git_dir: str) -> list[str]:
    folder = os.path.join(git_dir, "worktrees")
    try:
        return [os.path.join(folder, name) for name in os.listdir(folder)]
    except OSError:
        return []


def _kept_of_worktree(tree: str) -> list[str]:
    return [os.path.join(tree, name) for name in _KEPT_OF_WORKTREE]


def _named_by_settings(git_dir: str) -> Iterator[str]:
    """Yield the `core.hooksPath` directory, files that settings include, and files they make git run.

    The user's settings count, too: files they name inside the worktree belong to the project.
    """
    named = worktree_of(git_dir)
    outer = os.path.dirname(git_dir) if os.path.basename(git_dir) == ".git" else git_dir
    top = os.path.realpath(os.path.join(git_dir, named)) if named else outer
    hooks = os.fsdecode(settings_of(os.fsencode(git_dir), os.fsencode(git_dir)).get(b"core.hookspath", b""))
    if hooks and hooks != "/dev/null":
        yield os.path.join(top, os.path.expanduser(hooks))
    yield from (path for path, _ in _list_obeyed([os.path.join(git_dir, name) for name in CONFIGS], top))
    yield from (path for path, _ in _list_obeyed([*map(os.fsdecode, user_files())], top, of_user=True))


def _list_obeyed(files: list[str], top: str, *, of_user: bool = False) -> Iterator[tuple[str, str]]:
    """Yield files that settings include, or may make git run in the worktree at `top`, each with the setting.

    Words of the user's settings count only if they name an executable there: they are meant for other projects, too.
    """
    for path, key, value in _list_settings(files):
        if _includes(key):
            yield _included_path(path, value), key
        else:
            for word in _programs_named(key, value, top):
                if not of_user or (word.startswith(f"{top}/") and os.access(word, os.X_OK)):
                    yield word, key


def _list_settings(files: list[str]) -> Iterator[tuple[str, str, str]]:
    """Yield file, key and value of every setting in these files and those they include (appended to `files`)."""
    for path in files:
        for each in entries(read_plain(os.fsencode(path), _CONFIG) or b"")[0]:
            key, value = os.fsdecode(each.key), os.fsdecode(each.value)
            yield path, key, value
            if _includes(key) and len(files) < _MOST_INCLUDED and (named := _included_path(path, value)) not in files:
                files.append(named)


def _includes(key: str) -> bool:
    """Tell whether a setting includes a file, conditionally or not."""
    return key == "include.path" or (key.startswith("includeif.") and key.endswith(".path"))


def _included_path(path: str, value: str) -> str:
    """Return the file that a setting in `path` includes."""
    return os.path.join(os.path.dirname(path), os.path.expanduser(value))


def _programs_named(key: str, value: str, top: str) -> Iterator[str]:
    """Yield files that a setting may make git run in the worktree at `top`, unless it is known to be harmless.

    A missing file counts, too, if the word looks like a file name.
    """
    if is_harmless(key, value, inside=lambda path: True):
        return
    for word in re.split(r"[\s;&|<>()'\"`]+", value.lstrip("!")):
        path = os.path.normpath(os.path.join(top, os.path.expanduser(word)))
        is_name = _FILE_NAME.search(word) is not None and not os.path.isdir(path)
        if word and (os.path.isfile(path) or is_name):
            yield path


def is_hook(path: str) -> bool:
    """Tell whether git would run this file as a hook; git's samples do not count."""
    return "/.git/hooks/" in path and not path.endswith(".sample")


def git_dirs_touched(paths: Iterable[str], roots: Iterable[str]) -> list[str]:
    """Return the git directories that changes at `paths` may have created, bare ones included."""
    inside = tuple(root.rstrip("/") + "/" for root in roots)
    found: dict[str, None] = {}
    told = list(dict.fromkeys(paths))
    for path in (*told, *_find_moved_repositories(told)):
        folder, _, name = path.rpartition("/")
        if name == ".git":
            led = follow_pointer(path)
            found.update({led: None} if led is not None else {})
        elif name in _OF_BARE or folder.endswith("/hooks"):
            top = folder.removesuffix("/hooks")
            if seems_bare(top):
                found[os.path.realpath(top)] = None
    every = [each for folder in found for each in (folder, common_of(folder))]
    return [folder for folder in with_inner(every) if f"{folder}/".startswith(inside)]


def _find_moved_repositories(paths: Iterable[str]) -> Iterator[str]:
    """Yield `.git` and `HEAD` in directories that changed without a recorded change of their contents.

    Such a directory was moved out of a `.git`, or became accessible.
    """
    parents = {path: path.rpartition("/")[0] for path in paths}
    filled = set(parents.values())
    there = {folder for folder in filled if os.path.isdir(folder or "/")}
    for path, parent in parents.items():  # one stat per directory, not per deleted file
        if parent not in there or path in filled or path.endswith("/.git") or not _is_folder(path):
            continue
        for folder, folders, files in os.walk(path):
            yield from (os.path.join(folder, name) for name in (".git", "HEAD") if name in folders or name in files)


def _is_folder(path: str) -> bool:
    """Tell whether a path is a directory, not following links."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False


@frozen
class Leftover:
    """Something a command left that would run as the user: the file, what in it, and its replacement."""

    path: str
    what: str = ""
    instead: bytes | None = None
    """The content without it; None if the file is to be removed."""
    lines: tuple[str, ...] = ()
    """The lines concerned, if it is about lines."""

    def __str__(self) -> str:
        return f"{self.path} ({self.what})" if self.what else self.path


def leftovers(git_dirs: Iterable[str], roots: Sequence[str], known: Container[str] = ()) -> list[Leftover]:
    """Return what in repositories that a command created or added to would run as the user.

    `known` are paths that existed before and were protected.
    """
    found: dict[str, Leftover] = {}
    for folder in dict.fromkeys(git_dirs):
        for tree in _worktrees(folder):
            if os.path.join(tree, "commondir") not in known:
                found.update({each.path: each for each in _check_worktree(tree, folder, roots)})
        if os.path.join(folder, "config") not in known:
            found.update({each.path: each for each in _check_git_dir(folder, roots)})
        for each in _check_unfinished(folder, known):
            found[each.path] = each
    return list(found.values())


def list_unfinished(git_dirs: Iterable[str]) -> list[str]:
    """Return the lines of unfinished rebases and cherry-picks that will run programs, in the form of `known`."""
    return [
        f"{each.path} {line}" for folder in git_dirs for each in _check_unfinished(folder, ()) for line in each.lines
    ]


def _check_unfinished(git_dir: str, known: Container[str]) -> Iterator[Leftover]:
    """Yield state files of unfinished rebases and cherry-picks that run programs, with content without those lines."""
    for folder in (git_dir, *_worktrees(git_dir)):
        for name in _UNFINISHED:
            path = os.path.join(folder, name)
            data = read_plain(os.fsencode(path), _TODO)
            if data is None:
                yield from (Leftover(each) for each in (path,) if os.path.lexists(each))
                continue
            new = {each: line for each, line in _list_run(name, data).items() if f"{path} {line}" not in known}
            if new:
                rest = () if data in new else (each for each in data.splitlines(keepends=True) if each not in new)
                yield Leftover(path, ", ".join(new.values()), b"".join(rest), tuple(new.values()))


def _list_run(name: str, data: bytes) -> dict[bytes, str]:
    """Return the parts of a state file that run programs (lines, or all of it), each with a name to show."""
    if name.endswith("todo"):
        found = [line for line in data.splitlines(keepends=True) if _EXECUTES.match(line)]
    elif name.endswith("strategy"):
        found = [] if data.strip() in _STRATEGIES else [data]
    else:
        settings, whole = entries(data)
        named = all(each.key != b"options.strategy" or each.value in _STRATEGIES for each in settings)
        found = [] if whole and named else [data]
    return {each: os.fsdecode(each.strip()) for each in found}


def _check_git_dir(folder: str, roots: Sequence[str]) -> Iterator[Leftover]:
    commondir, hooks = os.path.join(folder, "commondir"), os.path.join(folder, "hooks")
    if os.path.lexists(commondir) and os.path.basename(os.path.dirname(folder)) != "worktrees":
        yield Leftover(commondir)
    if os.path.islink(hooks):
        yield Leftover(hooks)
    elif os.path.isdir(hooks):
        yield from (Leftover(f"{hooks}/{name}") for name in sorted(os.listdir(hooks)) if not name.endswith(".sample"))
    for name in CONFIGS:
        yield from _check_settings(os.path.join(folder, name), folder, roots)


def _check_worktree(tree: str, git_dir: str, roots: Sequence[str]) -> Iterator[Leftover]:
    """Yield what points a new worktree to settings of another repository, and its own harmful settings."""
    commondir = os.path.join(tree, "commondir")
    named = text_of(commondir)
    if os.path.islink(commondir) or (
        named and os.path.realpath(os.path.join(tree, named)) != os.path.realpath(git_dir)
    ):
        yield Leftover(commondir)
    for name in CONFIGS:
        yield from _check_settings(os.path.join(tree, name), tree, roots)


def _check_settings(path: str, git_dir: str, roots: Sequence[str]) -> Iterator[Leftover]:
    """Yield a configuration file if it has settings not known to be harmless; an unreadable one is removed."""
    if not os.path.lexists(path):
        return
    data = read_plain(os.fsencode(path), _CONFIG, follow=False)
    found, whole = entries(data) if data is not None else ((), False)
    if data is None or not whole:
        yield Leftover(path)
        return

    def inside(value: str) -> bool:
        named = os.path.realpath(os.path.join(os.path.dirname(git_dir), os.path.expanduser(value)))
        return any(named.startswith(root.rstrip("/") + "/") for root in roots) and not is_secret(named)

    def may_stay(key: str, value: str) -> bool:
        if key == "core.worktree":
            return inside(os.path.join(git_dir, value)) or os.path.realpath(os.path.join(git_dir, value)) in roots
        return is_harmless(key, value, inside=inside)

    bad = [each for each in found if not may_stay(os.fsdecode(each.key), os.fsdecode(each.value))]
    if bad:
        ends = [0, *(each.end for each in bad)]
        begins = [*(each.begin for each in bad), len(data)]
        rest = b"".join(data[begin:end] for begin, end in zip(ends, begins, strict=True))
        yield Leftover(path, ", ".join(dict.fromkeys(os.fsdecode(each.key) for each in bad)), rest)


# Files in a worktree that git obeys: those its settings include, read or run, and those that make a directory a
# repository. Writing one of them changes what git does, without a change in a git directory.

_FILES: Final = frozenset({"head", "commondir", *CONFIGS})
_FOLDERS: Final = frozenset({"objects", "refs", "hooks", "info"})
_MOST_REMEMBERED: Final = 64
_NEVER_NS: Final = 1 << 63
"""The time in a mark that never proves a file unchanged."""

_Dependency: TypeAlias = tuple[str, Literal["file", "folder", "itself", "nothing"]]
"""A path and what about it counts: the file it leads to, the identity of a directory, the entry itself, its absence."""
_Mark: TypeAlias = tuple[int, ...] | None


class ObeyedFiles:
    """Tells why git would obey files that one call writes `together`; each directory is looked up once."""

    def __init__(self, together: Collection[str] = ()) -> None:
        self._together = together
        self._written: dict[str, set[str]] = {}
        self._named: dict[tuple[str, bool], list[tuple[str, dict[str, str]]]] = {}

    def why(self, path: str, *, real: bool = False) -> str:
        """Return why git would obey a file at this path; empty if it would not.

        `real` says that the path has no symbolic links.
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
            found = self._named[folder, real] = list(_obeyed_around(folder if real else os.path.realpath(folder)))
        return found

    def _find_new_repositories(self, path: str) -> Iterator[str]:
        """Yield directories that writing the path would make look like a repository."""
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
        """Return the entries of a directory at or below which the call writes."""
        if folder not in self._written:
            begin = f"{folder}/"
            self._written[folder] = {
                each[len(begin) :].partition("/")[0].lower() for each in self._together if each.startswith(begin)
            }
        return self._written[folder]


@frozen
class _ObeyedNames:
    """The paths named by the settings of repositories at a directory, with marks of all files this depends on."""

    named: tuple[dict[str, str], ...]
    """Path → setting, for each candidate repository."""
    is_last: bool
    """Whether git stops searching further up."""
    marks: tuple[tuple[_Dependency, _Mark], ...]
    leads: tuple[tuple[str, str], ...]
    """Named paths and their real paths."""

    def holds(self) -> bool:
        """Tell whether nothing it depends on has changed."""
        for (path, what), mark in self.marks:  # a plain loop: every write waits for it
            if _mark(path, what) != mark:
                return False
        return not self.leads or all(os.path.realpath(path) == real for path, real in self.leads)


_remembered: dict[str, _ObeyedNames] = {}


def _obeyed_around(folder: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield top and named paths of every repository that git may use in a directory (a real path)."""
    for top, names in _list_tops(folder):
        look = _obeyed_at(top, names)
        if look is not None:
            for named in look.named:
                yield top, named
            if look.is_last:
                return


@lru_cache(256)
def _list_tops(folder: str) -> tuple[tuple[str, tuple[str, str]], ...]:
    """Return a directory and its ancestors, each with the entries that would make it a repository."""
    found = [folder]
    while (above := os.path.dirname(folder)) != folder:
        found.append(folder := above)
    return tuple((top, (f"{top}/.git", f"{top}/HEAD")) for top in found)


def _obeyed_at(top: str, names: Iterable[str]) -> _ObeyedNames | None:
    """Return what settings of a candidate repository at a directory name; None if there is none.

    Cached while the status of all files it depends on proves them unchanged.
    """
    known = _remembered.get(top)
    if known is not None and known.holds():
        return known
    if known is None and not _any_exists(names):
        return None
    _remembered.pop(top, None)
    look, depends_on = _read_obeyed(top)
    marks = {each: _mark(*each) for each in depends_on}
    if _prove_unchanged(marks.values()):
        look, again = _read_obeyed(top)  # after the marks: whatever changes from then on changes one of them
        if again == depends_on:
            if len(_remembered) >= _MOST_REMEMBERED:
                _remembered.clear()
            look = _remembered[top] = replace_values(look, marks=tuple(marks.items()))
    return look


def _any_exists(names: Iterable[str]) -> bool:
    for name in names:  # a plain loop: every write waits for it, at every folder above
        try:
            os.lstat(name)
        except (OSError, ValueError):
            continue
        return True
    return False


def _read_obeyed(top: str) -> tuple[_ObeyedNames, dict[_Dependency, None]]:
    """Read the settings anew; also return the paths that the result depends on."""
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
    return _ObeyedNames(tuple(named), is_last, (), tuple(leads.items())), depends_on


def _list_named(repository: Repository, depends_on: dict[_Dependency, None], leads: dict[str, str]) -> dict[str, str]:
    """Return path → setting for all paths that a repository's and the user's settings name in its worktree."""
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

    of_user = [*map(os.fsdecode, user_files())]
    for path, key in (*_list_obeyed(files, top), *_list_obeyed(of_user, top, of_user=True)):
        add(path, key)
    for _, key, value in _list_settings(files):
        add_file(key, value)
    for key, value in settings_of(os.fsencode(repository.git_dir), os.fsencode(repository.common)).items():
        add_file(os.fsdecode(key), os.fsdecode(value))
    named.pop(top, None)
    depends_on.update(((path, "file"), None) for path in (*files, *of_user))
    return named


def _mark(path: str, what: str) -> _Mark:
    """Return the identity and state of the file at a path; it differs after every write."""
    try:
        status = os.stat(path, follow_symlinks=what in ("file", "folder"))
    except (OSError, ValueError):
        return None
    if what == "folder" and stat.S_ISDIR(status.st_mode):
        return status.st_dev, status.st_ino
    proves = what != "nothing" and not stat.S_ISLNK(status.st_mode)  # a link's own time says nothing about its target
    changed_ns = status.st_ctime_ns if proves else _NEVER_NS
    return status.st_dev, status.st_ino, status.st_size, changed_ns


def _prove_unchanged(marks: Iterable[_Mark]) -> bool:
    """Tell whether these marks are old enough that any later change would alter a file's time."""
    now = time.time_ns() - SETTLED_NS
    return all(mark is None or len(mark) == 2 or mark[-1] < now for mark in marks)
