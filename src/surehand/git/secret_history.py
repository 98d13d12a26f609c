"""Finds secrets in git's history: whether a command can print a file whose path is secret by its name.

git itself does the search, but in a temporary git directory (a view) that has links to the repository's objects and
references and only our own settings. So no setting or program of the repository takes effect, and nothing is fetched.
Results are cached for the life of the process.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from typing import Final

from surehand.core.text import lazy_pattern
from surehand.git.calls import GitCall, PrintedRevisions, prints, prints_notes
from surehand.git.config import read_plain, settings_of
from surehand.git.repositories import (
    Repository,
    TrackedFile,
    inner_repositories,
    is_repository,
    read_tracked,
    repositories_around,
)
from surehand.git.tracked_secrets import is_left_out

_TIMEOUT_S: Final = 10.0
_MOST: Final = 64 << 20
"""Limit on git's output in bytes."""
_MOST_TREES: Final = 50
_MOST_NOTES: Final = 2_000
_LOGGED: Final = lazy_pattern(rb"^([0-9a-f]{40,64})(?: ([0-9a-f]{40,64}))?", re.MULTILINE)
_NAMED: Final = lazy_pattern(r"([\w./-]*\w)(@\{\d+\})?(?:[~^]\d*)*")
_PARENTS: Final = lazy_pattern(r"\^(?:[!@]|-\d*)\Z")
"""Suffixes for a commit without its parents (`^!`, `^-`), or for its parents (`^@`)."""
_UNKNOWN: Final = lazy_pattern(r"[$`]")
_KINDS_OF_REFERENCE: Final = ("refs", "refs/tags", "refs/heads", "refs/remotes")
_clean: dict[tuple[str, tuple[str, ...]], str] = {}
"""Cache: (common directory, what was searched) → path of the secret found, or empty."""


def find_secret_reached(call: GitCall, folder: str, is_secret: Callable[[str], bool], *, diffs: bool = False) -> str:
    """Return the path of a secret whose committed content a command may print; empty if there is none.

    Returns `?` if that cannot be determined: then the caller must ask.
    """
    printed = prints(call, diffs=diffs)
    repository = next((each for each in repositories_around(folder) if is_repository(each)), None)
    if repository is None:
        return ""
    try:
        if prints_notes(call) and _has_notes(repository.common) and (found := _secret_note(repository, is_secret)):
            return found
        if printed is None:
            return ""
        if any(_UNKNOWN.search(each) for each in call.words):  # a revision that only the running shell knows
            printed = PrintedRevisions("blobs", (), submodules=printed.submodules)
        if printed.submodules and (found := _secret_inside(repository, is_secret)):
            return found
        tracked = read_tracked(repository.git_dir)
        if printed.assumed and (found := next((e.path for e in tracked if e.assumed and is_secret(e.path)), "")):
            return found
        if printed.assumed and not printed.staged:
            return ""
        with _bare_view(repository) as view:
            if printed.reach == "blobs":
                return _secret_blob(view, list(printed.revisions), tracked, is_secret)
            revisions = printed.revisions
            if printed.contained and "--" not in call.words:  # git rejects words that are both file and revision
                revisions = tuple(each for each in revisions if not os.path.lexists(os.path.join(folder, each)))
            commits, paths, blobs = _resolve_names(view, repository, revisions, folder)
            if blobs and (found := _secret_blob(view, blobs, tracked, is_secret)):
                return found
            held = bool(paths) and all(map(os.path.isfile, paths))  # limited to files that the policy judges anyway
            staged = tracked if printed.staged and not held else ()
            if found := _secret_tracked(view, staged, is_secret):
                return found
            if not commits and paths and not held:
                commits = _resolve_names(view, repository, ("HEAD",), folder)[0]
            if not commits or printed.reach == "named":
                return ""
            key = (repository.common, (printed.reach, str(printed.most), str(printed.contained), *sorted(commits)))
            if key not in _clean:

                def counts(path: str) -> bool:
                    return is_secret(path) and not (printed.contained and is_left_out(path))

                _clean[key] = _secret_in(view, commits, printed.reach, printed.most, counts)
            return _clean[key]
    except (OSError, subprocess.SubprocessError, ValueError):
        return "?"


def _secret_inside(repository: Repository, is_secret: Callable[[str], bool]) -> str:
    """Return the path of a secret in the history or index of any nested repository."""
    for inner in inner_repositories(repository):
        if is_repository(inner):
            with _bare_view(inner) as view:
                if found := _secret_blob(view, [], read_tracked(inner.git_dir), is_secret):
                    return f"{inner.top}/{found}"
    return ""


def _has_notes(common: str) -> bool:
    """Tell whether there may be notes. A reftable is not searched, so it counts as having some."""
    if os.path.lexists(os.path.join(common, "reftable")):
        return True
    folder = os.path.join(common, "refs", "notes")
    packed = read_plain(os.fsencode(os.path.join(common, "packed-refs")), _MOST) or b""
    return (os.path.isdir(folder) and bool(os.listdir(folder))) or b" refs/notes/" in packed


def _secret_note(repository: Repository, is_secret: Callable[[str], bool]) -> str:
    """Return the path of a secret whose content one of the notes is."""
    with _bare_view(repository) as view:
        notes: dict[str, None] = {}
        for reference in _git(view, "for-each-ref", "--format=%(objectname)", "refs/notes").decode().split():
            listed = _git(view, "ls-tree", "-r", "-z", reference).decode("utf-8", "replace").split("\0")
            notes.update(dict.fromkeys(line.split()[2] for line in listed if line))
        if len(notes) > _MOST_NOTES:
            return "?"
        return _secret_blob(view, list(notes), read_tracked(repository.git_dir), is_secret) if notes else ""


def _secret_tracked(view: str, tracked: Sequence[TrackedFile], is_secret: Callable[[str], bool]) -> str:
    """Return the path of a secret among index entries; entries of a sparse index may be whole directories."""
    if sum(each.is_folder for each in tracked) > _MOST_TREES:
        return "?"
    for each in tracked:
        listed = _git(view, "ls-tree", "-r", "--name-only", "-z", each.object) if each.is_folder else b""
        names = (each.path + os.fsdecode(name) for name in listed.split(b"\0"))
        if found := next(filter(is_secret, names), ""):
            return found
    return ""


def _secret_in(view: str, commits: list[str], reach: str, most: int | None, is_secret: Callable[[str], bool]) -> str:
    """Search the trees of the commits and, unless only trees are printed, all paths changed in their history."""
    # A diff of two trees shows both; commits excluded from a history are not shown.
    shown = [each.lstrip("^") for each in commits if reach == "trees" or not each.startswith("^")]
    if reach == "trees" and len(shown) > _MOST_TREES:
        return "?"
    for commit in shown[:_MOST_TREES]:  # the log below covers further commits
        if found := _first_secret(_git(view, "ls-tree", "-r", "--name-only", "-z", "--full-tree", commit), is_secret):
            return found
    kinds = _find_kinds(view, [each.lstrip("^") for each in commits])
    walked = [each for each, kind in zip(commits, kinds, strict=True) if kind == "commit"]
    if reach == "trees" or not walked:
        return ""
    limit = [f"--max-count={most}"] if most is not None else []
    if reach == "commits" and not any(each.startswith("^") for each in walked):
        limit.append("--no-walk")
    words = ("log", "--format=", "--name-only", "-z", "--no-renames", "-m", "--root", *limit, *walked)
    return _first_secret(_git(view, *words), is_secret)


def _secret_blob(view: str, names: list[str], staged: Iterable[TrackedFile], is_secret: Callable[[str], bool]) -> str:
    """Return the path of a secret that has one of these objects as content, anywhere in the history or the index.

    Without `names`, of any secret. Returns `?` for a blob that no commit has a path for.
    """
    # After a colon everything is a path, including braces.
    asked = [name if ":" in name else f"{name}^{{object}}" for name in names]
    every = _git(view, "rev-parse", *asked).decode().split() if names else []
    blobs = {each for each, kind in zip(every, _find_kinds(view, every), strict=True) if kind == "blob"}
    if names and not blobs:
        return ""
    words = ("log", "--all", "--ignore-missing", "--format=", "--raw", "--no-abbrev", "-z", "--no-renames", "-m")
    parts = _git(view, *words, "--root", *_list_logged(view)).split(b"\0")
    unknown = set(blobs)
    changes = zip(parts[::2], map(os.fsdecode, parts[1::2]), strict=False)
    changed = ((told.decode("ascii", "replace").split()[2:4], path) for told, path in changes)
    for ids, path in itertools.chain(changed, (([each.object], each.path) for each in staged)):
        if (not names or blobs.intersection(ids)) and is_secret(path):
            return path
        unknown.difference_update(ids)
    return "?" if unknown else ""


def _find_kinds(view: str, objects: list[str]) -> list[str]:
    """Return the type of each object."""
    given = "".join(f"{each}\n" for each in objects).encode()
    return _git(view, "cat-file", "--batch-check=%(objecttype)", given=given).decode("ascii", "replace").splitlines()


def _list_logged(view: str) -> list[str]:
    """Return the commits in all reflogs and the HEAD commits of other worktrees."""
    found: dict[str, None] = {}
    for top in ("logs", "logs/refs", "worktrees"):
        for folder, _, names in os.walk(os.path.realpath(os.path.join(view, top))):
            for name in names if "logs" in folder.split("/") else {"HEAD"}.intersection(names):
                log = read_plain(os.fsencode(os.path.join(folder, name)), _MOST) or b""
                for pair in _LOGGED.finditer(log):
                    found.update(dict.fromkeys(each.decode() for each in pair.groups() if each and each.strip(b"0")))
    if not found:
        return []
    return _git(view, "rev-list", "--no-walk", "--ignore-missing", *found).decode("ascii", "replace").split()


def _first_secret(names: bytes, is_secret: Callable[[str], bool]) -> str:
    for name in dict.fromkeys(names.split(b"\0")):
        path = os.fsdecode(name.strip(b"\n"))
        if path and is_secret(path):
            return path
    return ""


def _resolve_names(
    view: str, repository: Repository, names: Iterable[str], folder: str
) -> tuple[list[str], list[str], list[str]]:
    """Resolve words to commits and trees (excluded ones with `^`), paths, and blobs.

    A word that git cannot resolve is skipped: the command fails on it. Raises ValueError for a word that may mean
    something in the real repository (`@{upstream}` depends on its settings).
    """
    found: list[str] = []
    paths: list[str] = []
    blobs: list[str] = []
    for name in names:
        if name == "--stdin":
            raise ValueError(name)
        if name == "--reflog":
            found += _list_logged(view)
            continue
        revision, colon, _ = name.partition(":")
        word = name if name.startswith(":/") else revision if colon else name
        if not word:  # `:path` is one in the index, of which the policy knows; `:!path` a pattern
            paths += [name] if name[1:2] in ("!", "^", "(") else []
            continue
        single = ".." not in word and not word.startswith(("^", "--")) and not _PARENTS.search(word)
        kinds = ("commit", "tree", "blob")
        for asked in [f"{word}^{{{kind}}}" for kind in kinds] if single and word == revision else [word]:
            done = _run(view, "rev-parse", "--revs-only", "--quiet", asked)
            if done.returncode == 0 and done.stdout:
                some = blobs if asked == f"{word}^{{blob}}" else found
                some += done.stdout.decode("ascii", "replace").split()
                break
        else:
            if word in ("--all", "HEAD"):  # there may be no commit yet
                continue
            path = _find_path(folder, name)
            if path is None and not _is_unresolvable(view, repository, word):
                raise ValueError(name)
            paths += [path] if path is not None else []
    found = list(dict.fromkeys(found))
    contents = {each for each, kind in zip(found, _find_kinds(view, found), strict=True) if kind == "blob"}
    return [each for each in found if each not in contents], paths, [*blobs, *contents]


def _find_path(folder: str, name: str) -> str | None:
    """Return the file a word names in a folder or one above it, wherever git is run; None where there is none."""
    while not os.path.lexists(path := os.path.join(folder, name)):
        above = os.path.dirname(folder)
        if above == folder:
            return None
        folder = above
    return path


def _is_unresolvable(view: str, repository: Repository, word: str) -> bool:
    """Tell whether a revision unknown in the view is unknown in the repository, too."""
    return any(_is_unknown(view, repository, end) for end in re.split(r"\.{2,3}", word.lstrip("^")))


def _is_unknown(view: str, repository: Repository, revision: str) -> bool:
    """Tell whether `name`, `name~3` or `name@{3}` does not exist: no such reference or object, or too few ancestors."""
    parts = _NAMED.fullmatch(revision)
    if parts is None:
        return False
    name, logged = parts.groups()
    # git first looks for a file of that name in the git directory; the view has copies of `*HEAD` only.
    tops = {repository.git_dir, repository.common}
    if not name.endswith("HEAD") and any(os.path.lexists(os.path.join(top, name)) for top in tops):
        return False
    if _run(view, "rev-parse", "--verify", "--quiet", name).returncode == 0:
        return not logged
    return not any(os.path.lexists(os.path.join(top, kind, name)) for top in tops for kind in _KINDS_OF_REFERENCE)


@contextmanager
def _bare_view(repository: Repository) -> Generator[str]:
    """Make a temporary git directory with the repository's objects and references but none of its settings."""
    with tempfile.TemporaryDirectory(prefix="surehand-git-") as view:
        settings = settings_of(os.fsencode(repository.git_dir), os.fsencode(repository.common))
        if settings.get(b"extensions.refstorage", b"files") != b"files":
            raise ValueError("references that are not kept in files")
        if _is_rewritten(repository.common):
            raise ValueError("replaced objects, which a setting or an option can switch off")
        form = settings.get(b"extensions.objectformat", b"sha1")
        extension = "[extensions]\n\tobjectFormat = sha256\n" if form == b"sha256" else ""
        with open(os.path.join(view, "config"), "w", encoding="utf-8") as file:
            file.write(f"[core]\n\trepositoryformatversion = {1 if extension else 0}\n\tbare = true\n{extension}")
        os.mkdir(os.path.join(view, "logs"))
        for name in ("objects", "refs", "packed-refs", "logs/refs", "worktrees", "shallow"):
            if os.path.exists(path := os.path.join(repository.common, name)):
                os.symlink(path, os.path.join(view, name))
        heads = (each for each in os.listdir(repository.git_dir) if each.endswith("_HEAD"))
        for name in ("HEAD", "logs/HEAD", *heads):  # copied: git does not accept a link as reflog
            head = read_plain(os.fsencode(os.path.join(repository.git_dir, name)), _MOST)
            with open(os.path.join(view, name), "wb") as own:
                own.write(head or b"")
        yield view


def _is_rewritten(common: str) -> bool:
    """Tell whether a repository has replace references or grafts, which change what commits contain."""
    packed = read_plain(os.fsencode(os.path.join(common, "packed-refs")), _MOST) or b""
    folder = os.path.join(common, "refs", "replace")
    grafts = os.path.join(common, "info", "grafts")
    return (
        b" refs/replace/" in packed or (os.path.isdir(folder) and bool(os.listdir(folder))) or os.path.lexists(grafts)
    )


def _git(view: str, *words: str, given: bytes = b"") -> bytes:
    done = _run(view, *words, given=given)
    if done.returncode:
        raise subprocess.SubprocessError(done.stderr.decode("utf-8", "replace"))
    return done.stdout[:_MOST]


def _run(view: str, *words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
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
        input=given,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
