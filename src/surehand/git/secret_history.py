"""Secrets in git's history: whether a tree that a command can reach holds a path that is secret by its name.

git itself finds that out, but never in the repository: it is run on a folder of our own that has the repository's
objects and references and settings of ours alone. Nothing of the repository's is obeyed, no program of it can run, and
nothing is fetched. What was looked through once is remembered as long as the process lives.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from typing import Final

from surehand.git.calls import GitCall, prints
from surehand.git.config import read_plain, settings_of
from surehand.git.index import read_tracked
from surehand.git.repositories import Repository, is_repository, repositories_around

_TIMEOUT_S: Final = 10.0
_MOST: Final = 64 << 20
"""Bytes of names that are looked at."""
_clean: dict[tuple[str, tuple[str, ...]], str] = {}
"""Folder of objects and commits → the secret that was found from there, or nothing."""


def find_secret_reached(call: GitCall, folder: str, is_secret: Callable[[str], bool], *, diffs: bool = False) -> str:
    """Return the path of a secret whose committed content a command may print, or nothing.

    Where that cannot be found out, `?` is returned: whoever asks has to be told.
    """
    printed = prints(call, diffs=diffs)
    repository = next((each for each in repositories_around(folder) if is_repository(each)), None)
    if printed is None or repository is None:
        return ""
    if printed.staged and (found := next((x.path for x in read_tracked(repository.git_dir) if is_secret(x.path)), "")):
        return found
    try:
        with _bare_view(repository) as view:
            if printed.reach == "blobs":
                return _secret_blob(view, list(printed.revisions), is_secret)
            commits, paths = _resolve_names(view, printed.revisions, folder)
            if not commits and not printed.staged and not all(map(os.path.isfile, paths)):
                commits = _resolve_names(view, ("HEAD",), folder)[0]
            if not commits:
                return ""
            key = (repository.common, (printed.reach, str(printed.most), *sorted(commits)))
            if key not in _clean:
                _clean[key] = _secret_in(view, commits, printed.reach, printed.most, is_secret)
            return _clean[key]
    except (OSError, subprocess.SubprocessError, ValueError):
        return "?"


def _secret_in(view: str, commits: list[str], reach: str, most: int | None, is_secret: Callable[[str], bool]) -> str:
    """Look through the trees of the commits, and the names that were changed on the way to them."""
    for commit in [each for each in commits if not each.startswith("^")][:50]:
        if found := _first(_git(view, "ls-tree", "-r", "--name-only", "-z", "--full-tree", commit), is_secret):
            return found
    walked = [each for each in commits if _git(view, "cat-file", "-t", each.lstrip("^")).strip() == b"commit"]
    if reach == "trees" or not walked:
        return ""
    limit = [f"--max-count={most}"] if most is not None else []
    if reach == "commits" and not any(each.startswith("^") for each in walked):
        limit.append("--no-walk")
    words = ("log", "--format=", "--name-only", "-z", "--no-renames", "-m", "--root", *limit, *walked)
    return _first(_git(view, *words), is_secret)


def _secret_blob(view: str, names: list[str], is_secret: Callable[[str], bool]) -> str:
    """Return the path of a secret that one of these objects is the content of, in the history of any reference."""
    # After a colon all is a path, braces too.
    asked = [name if ":" in name else f"{name}^{{object}}" for name in names]
    every = _git(view, "rev-parse", *asked).decode().split() if names else []
    kinds = {each: _git(view, "cat-file", "-t", each).strip() for each in every}
    blobs = {each for each, kind in kinds.items() if kind == b"blob"}
    if names and not blobs:
        return ""
    words = ("log", "--all", "--format=", "--raw", "--no-abbrev", "-z", "--no-renames", "-m", "--root")
    parts = _git(view, *words).split(b"\0")
    for told, path in zip(parts[::2], parts[1::2], strict=False):
        ids = told.decode("ascii", "replace").split()[2:4]
        if (not names or blobs.intersection(ids)) and is_secret(os.fsdecode(path)):
            return os.fsdecode(path)
    return ""


def _first(names: bytes, is_secret: Callable[[str], bool]) -> str:
    for name in dict.fromkeys(names.split(b"\0")):
        path = os.fsdecode(name.strip(b"\n"))
        if path and is_secret(path):
            return path
    return ""


def _resolve_names(view: str, names: Iterable[str], folder: str) -> tuple[list[str], list[str]]:
    """Return the commits and trees that words stand for, those that are left out with `^`, and the paths among them.

    Raises ValueError for a word that is neither: what it stands for is not known here.
    """
    found: list[str] = []
    paths: list[str] = []
    for name in names:
        if name == "--reflog":
            found += _git(view, "rev-list", "--no-walk", "--reflog").decode("ascii", "replace").split()
            continue
        revision, colon, _ = name.partition(":")
        word = name if name.startswith(":/") else revision if colon else name
        if not word:  # `:path` is one in the index, of which the policy knows; `:!path` a pattern
            paths += [name] if name[1:2] in ("!", "^", "(") else []
            continue
        single = ".." not in word and not word.startswith(("^", "--"))
        for asked in (f"{word}^{{commit}}", f"{word}^{{tree}}") if single and word == revision else (word,):
            done = _run(view, "rev-parse", "--revs-only", "--quiet", asked)
            if done.returncode == 0 and done.stdout:
                found += done.stdout.decode("ascii", "replace").split()
                break
        else:
            if word != "--all":  # there may be no reference yet
                paths.append(_find_path(folder, name))
    return list(dict.fromkeys(found)), paths


def _find_path(folder: str, name: str) -> str:
    """Return the file a word names in a folder or one above it, wherever git is run; raise ValueError for none."""
    while not os.path.lexists(path := os.path.join(folder, name)):
        above = os.path.dirname(folder)
        if above == folder:
            raise ValueError(name)
        folder = above
    return path


@contextmanager
def _bare_view(repository: Repository) -> Generator[str]:
    """Make a folder of git with the repository's objects and references, and no setting of its."""
    with tempfile.TemporaryDirectory(prefix="surehand-git-") as view:
        settings = settings_of(os.fsencode(repository.git_dir), os.fsencode(repository.common))
        form = settings.get(b"extensions.objectformat", b"sha1")
        extension = "[extensions]\n\tobjectFormat = sha256\n" if form == b"sha256" else ""
        with open(os.path.join(view, "config"), "w", encoding="utf-8") as file:
            file.write(f"[core]\n\trepositoryformatversion = {1 if extension else 0}\n\tbare = true\n{extension}")
        for name in ("objects", "refs", "packed-refs", "logs", "shallow"):
            if os.path.exists(path := os.path.join(repository.common, name)):
                os.symlink(path, os.path.join(view, name))
        for name in ("HEAD", *(each for each in os.listdir(repository.git_dir) if each.endswith("_HEAD"))):
            head = read_plain(os.fsencode(os.path.join(repository.git_dir, name)), 1 << 20)
            with open(os.path.join(view, name), "wb") as own:
                own.write(head or b"")
        yield view


def _git(view: str, *words: str) -> bytes:
    done = _run(view, *words)
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr.decode("utf-8", "replace"))
    return done.stdout[:_MOST]


def _run(view: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": view,
        "GIT_DIR": view,
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_ATTR_NOSYSTEM": "1",
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "none",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }
    return subprocess.run(
        ["git", "--no-pager", *words],
        cwd=view,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
