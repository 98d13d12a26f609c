"""The sandbox profile: what is enforced on a session's commands. Plain data, decided here, enforced by the launcher."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Final

from surehand.core.frozen import field, frozen
from surehand.core.secrets import is_secret
from surehand.core.settings import SandboxSettings
from surehand.files.protected_paths import Says, homes, inside, look, mark, sockets_outside
from surehand.files.trees import remove_tree
from surehand.git.protected_files import git_dirs_near, git_dirs_of_worktree, kept_paths, leftovers, with_inner
from surehand.git.repositories import repositories_around
from surehand.git.tracked_secrets import make_info
from surehand.sandbox.view import (
    closed_trees,
    enclosing_repository,
    secrets_shown,
    shown_in,
)

GIT_INFO: Final = ".git-info"
"""Where in the private folder lies what commands see of repositories; it is out of their reach."""
_OWN: Final = (".surehand", "surehand.toml")
_START_FILES: Final = (
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".bash_logout",
    ".bash_aliases",
    ".profile",
    ".zshrc",
    ".zshenv",
    ".zprofile",
    ".zlogin",
    ".zlogout",
    ".kshrc",
    ".inputrc",
    ".gitconfig",
    ".config/fish",
    ".config/git",
    ".config/autostart",
    ".ssh",
)
"""What a login or a shell of the user's reads; in a writable home it stays as it is."""


@frozen
class SandboxProfile:
    """Everything the launcher enforces; paths are real and exist."""

    workspace: str
    roots: tuple[str, ...]
    private_dir: str
    contained: bool
    private_view: bool
    network: bool
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    """Folders that stay where they are, so that what is read-only in them cannot be moved away with them."""
    forbidden: tuple[str, ...] = ()
    """Paths no command may create: missing when the profile was made, or links (which cannot be mounted over)."""
    masked: tuple[str, ...] = ()
    marks: Mapping[str, tuple[int, int] | None] = field(default_factory=dict[str, "tuple[int, int] | None"])
    """Which files the writable, the covered and the read-only paths were when the profile was made."""
    folders: Mapping[str, int] = field(default_factory=dict[str, int])
    """The folders that were looked through for secrets, and when each had changed last."""
    sockets: tuple[str, ...] = ()
    """Sockets of the machine that no private layer puts out of reach."""
    hidden: tuple[str, ...] = ()
    """Folders of ours that commands have no part in, though they lie where commands may write."""
    closed: tuple[str, ...] = ()
    """Folders of the disk that commands find empty, but for what is shown in them."""
    shown: tuple[str, ...] = ()
    """What can be read in the closed folders, where it is: toolchains, what the user added."""
    limits: dict[str, int] = field(default_factory=dict[str, int])
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    """Folders that commands see another one in the place of, read-only."""

    @property
    def refused(self) -> tuple[str, ...]:
        """What is put back when a command changed it: what none may make, and what no mount keeps as it is."""
        return self.forbidden if self.private_view else (*self.forbidden, *self.read_only)

    def still_absent(self) -> list[str]:
        """Return the forbidden paths nobody has made yet."""
        return [path for path in self.forbidden if not os.path.lexists(path)]

    def holds(self) -> bool:
        """Tell whether its mounts still cover the right files: replacing a file from outside removes the mount on it.

        Editors and git replace a file to save it, and the new one would lie open; a workspace that was made anew is not
        the one that commands would see.
        """
        return not self.contained or all(mark(path) == known for path, known in self.marks.items())


def open_profile(workspace: str, roots: Sequence[str], private_dir: str) -> SandboxProfile:
    """Return the profile of a session whose sandbox is off: commands run as the user, and still end together."""
    real = _real([workspace, *roots])
    return SandboxProfile(real[0], real, private_dir, False, False, True, real, limits=_limits(SandboxSettings()))


def closed_profile(
    workspace: str,
    roots: Sequence[str],
    settings: SandboxSettings,
    private_dir: str,
    *,
    private_view: bool = True,
    own: Iterable[str] = (),
    opened: Iterable[str] = (),
    readable: Iterable[str] = (),
    added: Iterable[str] = (),
    keeps_out: Says = is_secret,
    keeps_as_is: Says | None = None,
    young: Container[str] = (),
    uncovered: Container[str] = (),
) -> SandboxProfile:
    """Return the profile of a contained session.

    `own` are Surehand's folders, which stay read-only even inside a writable root. `opened` are folders beside the
    roots that commands may write in. `readable` are allow rules: a secret that one of the form `Read(path)` names
    stays readable, and what one names outside the roots is shown. `added` are other paths that are shown. `keeps_out`
    says of a path whether the rules keep it from being read, `keeps_as_is` whether they keep it from being changed; a
    folder's ends in `/`. `young` are repositories that commands of this session made: they may still set them up,
    without hooks. `uncovered` are secrets that stay readable, for a line of git alone.
    """
    real = _real([workspace, *roots])
    writable = _real([*real, *settings.writable, *opened, private_dir])
    beside = [path for path in _real([*settings.writable, *opened]) if not inside(path, real)]
    found = look(real, keeps_out, keeps_as_is, beside)
    git_dirs = git_dirs_of_worktree(real[0])
    near = [folder for root in writable for folder in git_dirs_near(root)]
    repositories = with_inner([*git_dirs, *near, *found.repositories])
    kept = [*(path for root in writable for path in kept_in(root)), *found.pointers]
    for folder in repositories:
        kept += [path for path in kept_paths(folder, young=folder in young) if inside(path, (*writable, *git_dirs))]
    kept += [path for path in _real(own) if inside(path, writable)]
    closed = closed_trees(writable)
    around = [path for root in real for path in enclosing_repository(root)]
    asked_for = _real([*settings.readable, *added, *_list_named_paths(readable), *around])
    asked_for = tuple(path for path in asked_for if not inside(path, real))
    tools = shown_in(closed, real, os.environ)
    shown = (*tools, *asked_for)
    beyond = [*secrets_shown(tools), *secrets_shown(("/etc", "/opt"), 4), *secrets_shown(asked_for, 32, 20_000)]
    covered = [path for path in (*found.hidden, *beyond) if path not in uncovered]
    masked = [path for path in covered if not _readable(path, real[0], readable)]
    sockets = sockets_outside(closed, (*shown, *writable), found.sockets)
    seen = (*writable, *git_dirs, *shown)
    by_rule = [path for path in found.kept if inside(path, writable)]
    read_only = [path for path in dict.fromkeys(kept) if os.path.exists(path) and not os.path.islink(path)]
    read_only += [path for path in by_rule if not inside(path, read_only)]
    return SandboxProfile(
        workspace=real[0],
        roots=real,
        private_dir=private_dir,
        contained=True,
        private_view=private_view,
        network=settings.network,
        writable=(*writable, *git_dirs),
        read_only=tuple(read_only),
        pinned=(*repositories, *_between([*real, *beside], by_rule)),
        forbidden=tuple(path for path in dict.fromkeys(kept) if not os.path.lexists(path) or os.path.islink(path)),
        masked=tuple(masked),
        marks={path: mark(path) for path in (*writable, *masked, *read_only, *sockets)},
        folders=found.folders,
        sockets=tuple(sockets),
        closed=closed,
        shown=shown,
        limits=_limits(settings),
        instead=_shown_info(real[0], repositories, private_dir, seen) if private_view else {},
    )


def _shown_info(workspace: str, repositories: Iterable[str], private_dir: str, seen: Sequence[str]) -> dict[str, str]:
    """Make what commands see as `info` of each repository: with it, git prints no change of a secret.

    One that lies outside what commands see (a `.git` file that nothing names back) has no place to lay it over.
    """
    base = os.path.join(private_dir, GIT_INFO)
    around = (place.common for place in repositories_around(workspace) if inside(place.common, seen))
    shown: dict[str, str] = {}
    for at, folder in enumerate(dict.fromkeys((*repositories, *around))):
        own = os.path.join(folder, "info")
        try:
            if not os.path.lexists(own):
                os.mkdir(own)
            if os.path.isdir(own) and not os.path.islink(own):
                make_info(folder, os.path.join(base, str(at)))
                shown[own] = os.path.join(base, str(at))
        except OSError:
            continue  # a repository of somebody else's
    return shown


def _between(roots: Sequence[str], paths: Iterable[str]) -> list[str]:
    """Return the folders between the roots and the paths, outermost first."""
    found: dict[str, None] = {}
    for path in paths:
        folder = os.path.dirname(path)
        while inside(folder, roots) and folder not in roots and folder not in found:
            found[folder] = None
            folder = os.path.dirname(folder)
    return sorted(found, key=len)


def _readable(path: str, workspace: str, rules: Iterable[str]) -> bool:
    """Tell whether an allow rule names this secret: by its path, from the workspace or the root, or by its name."""
    from fnmatch import fnmatchcase

    names = (path, os.path.relpath(path, workspace), os.path.basename(path))
    patterns = (rule[5:-1].removeprefix("./") for rule in rules if rule.startswith("Read(") and rule.endswith(")"))
    return any(fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _list_named_paths(rules: Iterable[str]) -> list[str]:
    """Return the paths that allow rules on reading name from the root or the home folder."""
    specs = (rule[5:-1] for rule in rules if rule.startswith("Read(") and rule.endswith(")"))
    plain = (spec.removesuffix("/**") for spec in specs if spec.startswith(("/", "~/")))
    return [spec for spec in plain if not any(letter in spec for letter in "*?[{") and spec not in ("/", "~")]


def _limits(settings: SandboxSettings) -> dict[str, int]:
    return {
        "memory": settings.memory_mb << 20,
        "processes": settings.processes,
        "file_size": settings.file_size_mb << 20,
    }


def _real(paths: Iterable[str]) -> tuple[str, ...]:
    real = (os.path.realpath(os.path.expanduser(path)) for path in paths)
    return tuple(dict.fromkeys(path for path in real if os.path.exists(path)))


def kept_in(root: str) -> list[str]:
    """Return what stays as it is in a writable root, there or not: what shells and Surehand itself would execute."""
    kept = [os.path.join(root, name) for name in _OWN]
    if os.path.lexists(marker := os.path.join(root, ".git")) and (os.path.isfile(marker) or os.path.islink(marker)):
        kept.append(marker)  # a worktree's, which says where its repository is
    for home in homes():
        if inside(home, [root]):
            kept += [os.path.join(home, name) for name in _START_FILES]
    return kept


def trespasses(paths: Iterable[str]) -> list[str]:
    """Remove what a command created where nothing may be, and return the paths."""
    made = [path for path in paths if os.path.lexists(path)]
    for path in made:
        remove_tree(path)
    return made


def take_out(git_dirs: Iterable[str], profile: SandboxProfile, since_ns: int = 0) -> list[str]:
    """Remove from repositories what a command made and would run as the user; return these files and settings.

    These are hooks, git's own examples apart, settings that are not known to be harmless, and what leads to others.
    With `since_ns`, those that came or changed since then.
    """
    found = leftovers(git_dirs, profile.roots, frozenset((*profile.read_only, *profile.forbidden)))
    found = [each for each in found if not since_ns or _changed_since(each.path, profile.roots, since_ns)]
    for each in found:
        remove_tree(each.path)
        if each.instead is not None:
            with open(os.open(each.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                file.write(each.instead)
    return [str(each) for each in found]


def _changed_since(path: str, roots: Sequence[str], since_ns: int) -> bool:
    """Tell whether a path, or a folder that it came with, has changed since; nobody can set back the time of that."""
    while inside(path, roots) and path not in roots:
        try:
            if os.lstat(path).st_ctime_ns >= since_ns:
                return True
        except OSError:
            return True
        path = os.path.dirname(path)
    return False
