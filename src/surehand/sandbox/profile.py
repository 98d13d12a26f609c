"""The sandbox profile: what is enforced on a session's commands, and which part of the disk they see.

It is plain data, made here and enforced by the sandbox.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from surehand.core.frozen import field, frozen
from surehand.core.secrets import is_secret, may_be_secret
from surehand.core.settings import SandboxSettings
from surehand.files.protected_paths import (
    PRIVATE,
    Says,
    changed_at,
    find_other_names,
    homes,
    inside,
    look,
    mark,
    sockets_outside,
    within,
)
from surehand.files.trees import remove_tree
from surehand.git.protected_files import (
    git_dirs_near,
    git_dirs_of_worktree,
    kept_paths,
    leftovers,
    list_unfinished,
    with_inner,
)
from surehand.git.repositories import repositories_around
from surehand.git.tracked_secrets import make_info

GIT_INFO: Final = ".git-info"
"""Folder in the private temp with the `info` folders that commands see instead of the repositories'; hidden itself."""
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
"""What the user's logins, shells and git read; read-only in a writable home."""


@frozen
class SandboxProfile:
    """Everything the launcher enforces; paths are resolved and exist."""

    workspace: str
    roots: tuple[str, ...]
    private_dir: str
    contained: bool
    private_view: bool
    network: bool
    writable: tuple[str, ...]
    read_only: tuple[str, ...] = ()
    pinned: tuple[str, ...] = ()
    """Folders that cannot be renamed, so that read-only paths in them cannot be moved away with them."""
    forbidden: tuple[str, ...] = ()
    """Paths no command may create or change and no mount covers: missing when the profile was made, or links."""
    masked: tuple[str, ...] = ()
    marks: Mapping[str, tuple[int, int] | None] = field(default_factory=dict[str, "tuple[int, int] | None"])
    """Path → identity of the file there when the profile was made, of all paths that are mounted or mounted over."""
    folders: Mapping[str, int] = field(default_factory=dict[str, int])
    """The folders that were searched for secrets → when each had changed last."""
    sockets: tuple[str, ...] = ()
    """Sockets of the machine that would be reachable, and are covered."""
    hidden: tuple[str, ...] = ()
    """Surehand's folders in writable places, which are hidden from commands."""
    closed: tuple[str, ...] = ()
    """Folders that commands find empty, except for what is shown in them."""
    shown: tuple[str, ...] = ()
    """What can be read in the closed folders: toolchains, and what the user added."""
    limits: dict[str, int] = field(default_factory=dict[str, int])
    instead: Mapping[str, str] = field(default_factory=dict[str, str])
    """Folder → the one that commands see in its place, read-only."""

    @property
    def refused(self) -> tuple[str, ...]:
        """What is reverted when a command changes it: forbidden paths, and read-only ones that no mount protects.

        A mount moves with the folder around it, and the supervisor only refuses to move folders of git.
        """
        loose = (path for path in self.read_only if not self.private_view or "/.git/" not in path)
        return (*self.forbidden, *loose)

    def already_there(self) -> frozenset[str]:
        """Return the forbidden paths that exist before a command, and the lines that unfinished rebases will run."""
        there = [path for path in self.forbidden if os.path.lexists(path)]
        return frozenset((*there, *list_unfinished(self.pinned)))

    def holds(self) -> bool:
        """Tell whether its mounts still cover the right files.

        Editors and git replace a file to save it, which removes the mount on it: the new file would be readable. A
        workspace that was recreated is not the one that commands would see.
        """
        return not self.contained or all(mark(path) == known for path, known in self.marks.items())

    def encode(self) -> dict[str, Any]:
        """Return it as plain data for the launcher."""
        return {
            "workspace": self.workspace,
            "roots": list(self.roots),
            "contained": self.contained,
            "limited": self.contained,
            "namespaces": self.private_view,
            "network": self.network,
            "writable": list(self.writable),
            "closed": [path for path in self.closed if path not in _EMPTY],
            "empty": [path for path in _EMPTY if path in self.closed],
            "homes": [path for path in homes() if os.path.isdir(path)],
            "shown": [path for path in self.shown if not inside(path, self.writable)],
            "private": [path for path in PRIVATE if path not in _EMPTY and _is_plain_folder(path)],
            "read_only": list(self.read_only),
            "instead": dict(self.instead),
            "pinned": list(self.pinned),
            "masked": [*self.masked, *self.sockets, *self.hidden],
            "forbidden": list(self.refused),
            "landlock": self._list_writable(),
            "landlock_reads": self._list_readable(),
            "limits": self.limits,
            "scratch": os.path.join(self.private_dir, ".scratch"),
            "capabilities": 0,
        }

    def _list_writable(self) -> list[str]:
        """Return the folders that Landlock lets commands write."""
        if not self.contained:
            return []
        return [*self.writable, *((*PRIVATE, "/dev") if self.private_view else _HARMLESS_DEVICES)]

    def _list_readable(self) -> list[str] | None:
        """Return what Landlock lets commands read if no mounts hide the rest; None for everything."""
        if not self.contained or self.private_view:
            return None
        return readable_by_rules(self.closed, self.shown, self.masked) + list(self.writable)


def open_profile(workspace: str, roots: Sequence[str], private_dir: str) -> SandboxProfile:
    """Return the profile of a session without sandbox: commands run as the user, and are still killed together."""
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

    `own` are Surehand's folders, read-only even in a writable root. `opened` are writable folders outside the roots.
    `readable` are allow rules: a secret named by `Read(path)` stays readable, and a path outside the roots is shown.
    `added` are other paths that are shown. `keeps_out` tells whether the rules deny reading a path, `keeps_as_is`
    whether they deny changing it; paths of folders end in `/`. `young` are repositories that commands of this session
    made: they may still configure them, but not their hooks. `uncovered` are secrets that stay readable, for a line
    that has only git commands.
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
    kept += find_other_names(kept, writable)
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
    """Make an `info` folder for each repository with which git prints no diff of a secret; return own → replacement.

    A repository that commands do not see (a `.git` file to which nothing points back) has none to mount over.
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
            continue  # another user's repository
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
    """Return what is read-only in a writable root, existing or not: what shells and Surehand itself would execute."""
    kept = [os.path.join(root, name) for name in _OWN]
    if os.path.lexists(marker := os.path.join(root, ".git")) and (os.path.isfile(marker) or os.path.islink(marker)):
        kept.append(marker)  # a worktree's, which says where its repository is
    for home in homes():
        if inside(home, [root]):
            kept += [os.path.join(home, name) for name in _START_FILES]
    return kept


def trespasses(paths: Iterable[str]) -> list[str]:
    """Remove what a command created on forbidden paths; return these."""
    made = [path for path in paths if os.path.lexists(path)]
    for path in made:
        remove_tree(path)
    return made


def take_out(git_dirs: Iterable[str], profile: SandboxProfile, before: frozenset[str], since_ns: int = 0) -> list[str]:
    """Remove from repositories what a command added and git would run as the user; return these files and settings.

    These are hooks (except git's samples), settings not known to be harmless, links to other repositories, and what a
    rebase will run. With `since_ns`, only those that were added or changed since then.
    """
    found = leftovers(git_dirs, profile.roots, before.union(profile.read_only, profile.forbidden))
    found = [each for each in found if not since_ns or _changed_since(each.path, profile.roots, since_ns)]
    for each in found:
        remove_tree(each.path)
        if each.instead is not None:
            with open(os.open(each.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
                file.write(each.instead)
    return [str(each) for each in found]


def _changed_since(path: str, roots: Sequence[str], since_ns: int) -> bool:
    """Tell whether a path, or a folder above it, has a ctime from `since_ns` on; ctimes cannot be set back."""
    while inside(path, roots) and path not in roots:
        try:
            if os.lstat(path).st_ctime_ns >= since_ns:
                return True
        except OSError:
            return True
        path = os.path.dirname(path)
    return False


# The view of the disk that commands have: the system, toolchains, the workspace, and what the user adds.
#
# It is an allow list: another project's `.env`, a backup of a key or a shell's history is out of reach without being
# known. Secrets in folders of the system and of toolchains are covered.

_EMPTY: Final = ("/tmp", "/var/tmp")
"""Folders that are replaced by private ones, empty and bounded in size."""

_SYSTEM: Final = frozenset(
    ("bin", "boot", "dev", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "run", "sbin")
) | {"snap", "sys", "tmp", "usr", "var"}
_OF_VAR: Final = frozenset(["cache", "db", "empty", "lib", "lock", "log", "opt", "run", "tmp"])
_CLOSED: Final = ("/run/secrets", "/run/user", "/run/credentials", "/var/lib/docker", "/var/lib/containers")

# Tools in a home, and their settings. No file with credentials, no history, no start file.
# fmt: off
_OF_HOME: Final = (
    ".gitconfig", ".config/git", ".gitignore", ".gitignore_global", ".gitattributes", ".editorconfig", ".inputrc",
    ".clang-format", ".clang-tidy", ".prettierrc", ".pylintrc", ".flake8", ".tool-versions", ".python-version",
    ".node-version", ".nvmrc", ".ruby-version", ".config/ruff", ".config/black", ".config/flake8", ".config/mypy",
    ".config/yapf", ".config/pycodestyle", ".config/clangd", ".config/mise", ".config/rustfmt", ".config/fontconfig",
    ".fonts", ".local/share/fonts", "bin", ".local/bin", ".local/lib", ".local/include", ".local/share/man",
    ".local/share/bash-completion", ".pyenv", ".venv", ".venvs", ".virtualenvs", "venv", ".conda", "miniconda3",
    "anaconda3", "miniforge3", "mambaforge", "micromamba", ".local/share/uv", ".local/share/pipx",
    ".local/share/virtualenvs", ".local/share/virtualenv", ".local/share/pypoetry", ".local/share/hatch",
    ".local/share/mise", ".local/pipx", ".poetry", ".rye", ".pixi", ".nvm", ".fnm", ".local/share/fnm", ".nodenv",
    ".volta", ".bun", ".deno", ".npm", ".npm-global", ".npm-packages", ".node_modules", ".yarn",
    ".config/yarn/global", ".local/share/pnpm", ".pnpm-store", ".asdf", ".cargo", ".rustup", "go/bin", "go/pkg",
    ".goenv", ".rbenv", ".rvm", ".gem", ".bundle/cache", ".sdkman", ".jenv", ".jabba", ".m2/repository",
    ".m2/wrapper", ".gradle/wrapper", ".gradle/caches", ".gradle/jdks", ".ivy2", ".sbt", ".local/share/coursier",
    ".ghcup", ".cabal", ".stack", ".opam", ".elan", ".julia", ".juliaup", ".dotnet", ".nuget/packages",
    ".composer/vendor", ".config/composer/vendor", ".pub-cache", "flutter", "Android/Sdk", ".swiftpm", ".zvm",
    ".platformio", ".nix-profile", ".local/state/nix", ".nix-defexpr", ".linuxbrew", ".vscode/extensions",
    ".vscode-server/bin", ".vscode-server/extensions", ".cursor/extensions", ".cursor-server/extensions",
    ".local/share/nvim/mason", ".local/share/zed", ".cache/pip", ".cache/uv", ".cache/pypoetry", ".cache/pre-commit",
    ".cache/go-build", ".cache/ccache", ".ccache", ".cache/sccache", ".cache/yarn", ".cache/node", ".cache/deno",
    ".cache/typescript", ".cache/ms-playwright", ".cache/puppeteer", ".cache/Cypress", ".cache/huggingface/hub",
    ".cache/torch", ".cache/bazelisk", ".cache/zig", ".cache/electron", ".cache/matplotlib",
)
# fmt: on
_INSTALLED: Final = (
    *("VIRTUAL_ENV", "CONDA_PREFIX", "PYENV_ROOT", "NVM_DIR", "CARGO_HOME", "RUSTUP_HOME", "GOROOT", "JAVA_HOME"),
    *("SDKMAN_DIR", "VOLTA_HOME", "BUN_INSTALL", "DENO_INSTALL", "PNPM_HOME", "ANDROID_HOME", "DOTNET_ROOT"),
    *("RBENV_ROOT", "ASDF_DATA_DIR", "GEM_HOME", "NODE_PATH", "PYTHONHOME", "NIX_PROFILES", "UV_PYTHON_INSTALL_DIR"),
)
_PROGRAM_FOLDERS: Final = frozenset({"bin", "sbin", "shims", "Scripts", ".bin"})
_VENVS: Final = (".venv", "venv", "env", ".env")
_DEPTH: Final = 2
_MOST_ENTRIES: Final = 4_000
_MOST_LOOKS: Final = 50
_found: Final[dict[tuple[tuple[str, ...], int], tuple[tuple[int, ...], list[str]]]] = {}
# CA certificates are public, though they are `.pem` files.
_is_public: Final = within(("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki", "/etc/ca-certificates", "/usr"))


def closed_trees(roots: Sequence[str]) -> tuple[str, ...]:
    """Return the folders that commands find empty, except for what is shown in them; none is inside a root."""
    found = [path for path in _below("/") if os.path.basename(path) not in _SYSTEM]
    found += [path for path in _below("/var") if os.path.basename(path) not in _OF_VAR]
    found += [*homes(), *_CLOSED, *_EMPTY]
    there = [path for path in dict.fromkeys(found) if os.path.isdir(path) and not os.path.islink(path)]
    there = [path for path in there if not inside(path, roots)]
    return tuple(path for path in there if not any(path != each and inside(path, [each]) for each in there))


def _below(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.path for entry in entries if entry.is_dir(follow_symlinks=False))
    except OSError:
        return []


def shown_in(closed: Sequence[str], roots: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return the toolchains in the closed trees: resolved, existing, outermost only."""
    # Most folders that toolchains could have in a home do not exist, so that is checked before resolving them.
    there = filter(os.path.lexists, dict.fromkeys(_toolchains(roots, environment)))
    wanted = map(os.path.realpath, there)
    found = dict.fromkeys(path for path in wanted if inside(path, closed) and path not in closed)
    above = [path for path in found if os.path.exists(path) and not _holds_home(path) and not is_secret(path)]
    return tuple(path for path in above if not any(path != each and inside(path, [each]) for each in above))


def enclosing_repository(root: str) -> Iterator[str]:
    """Yield the repository around a workspace: if its other files were hidden, git would take them for deleted."""
    folder = root
    while (folder := os.path.dirname(folder)) != "/" and not _holds_home(folder):
        if os.path.lexists(os.path.join(folder, ".git")):
            yield folder
            return


def _holds_home(path: str) -> bool:
    return any(inside(home, [path]) for home in homes())


def _toolchains(roots: Sequence[str], environment: Mapping[str, str]) -> Iterator[str]:
    yield from (sys.prefix, sys.base_prefix, sys.exec_prefix, os.path.dirname(os.path.dirname(__file__)))
    yield from (path for path in sys.path if path.endswith(("site-packages", "dist-packages", ".zip")))
    for home in homes():
        yield from (os.path.join(home, name) for name in _OF_HOME)
    for name in _INSTALLED:
        yield from filter(os.path.isabs, environment.get(name, "").split(os.pathsep))
    for entry in environment.get("PATH", "").split(os.pathsep):
        if os.path.isabs(entry):
            yield from _installation(entry)
    for venv in (os.path.join(root, name) for root in roots for name in _VENVS):
        yield from _base_of(venv)


def _installation(programs: str) -> Iterator[str]:
    """Yield a folder of programs and the installation it belongs to, with `lib` and `share` beside `bin`."""
    yield programs
    real = os.path.realpath(programs)
    above = os.path.dirname(real)
    if os.path.basename(real) not in _PROGRAM_FOLDERS or os.path.lexists(os.path.join(above, ".git")):
        return  # a project: show its programs, not all of it
    if above != "/" and not _holds_home(above):
        yield above
        yield from _base_of(above)


def _base_of(venv: str) -> Iterator[str]:
    """Yield the installation that a virtual environment is made from."""
    try:
        with open(os.path.join(venv, "pyvenv.cfg"), encoding="utf-8", errors="replace") as file:
            lines = file.read(10_000).splitlines()
    except OSError:
        return
    for name, _, value in (line.partition("=") for line in lines):
        if name.strip() == "home" and os.path.isabs(value.strip()):
            programs = os.path.realpath(value.strip())
            yield programs
            if not _holds_home(os.path.dirname(programs)):
                yield os.path.dirname(programs)


def secrets_shown(folders: Iterable[str], depth: int = _DEPTH, most: int = _MOST_ENTRIES) -> list[str]:
    """Return the secrets in folders shown beside the workspace, by a bounded search, nearest first.

    A toolchain has very many published files; credentials are near its top. The result is cached until an entry of one
    of the folders themselves is created, removed or renamed.
    """
    given = tuple(os.path.abspath(folder) for folder in folders)
    key, changed = (given, depth), tuple(changed_at(folder) for folder in given)
    known = _found.get(key)
    if known is None or known[0] != changed:
        if len(_found) >= _MOST_LOOKS:
            _found.clear()
        known = _found[key] = (changed, _search(given, depth, most))
    return known[1]


def _search(given: Sequence[str], depth: int, most: int) -> list[str]:
    found = [path for path in given if is_secret(path)]
    waiting = [(folder, 0) for folder in given if folder not in found and os.path.isdir(folder)]
    left = most
    for folder, below in waiting:  # grows while it is walked
        if left <= 0 or below >= depth:
            break
        try:
            with os.scandir(
                os.fsencode(folder)
            ) as entries:  # bytes: of thousands of names hardly any has to be decoded
                for entry in entries:
                    left -= 1
                    is_folder = entry.is_dir(follow_symlinks=False)
                    if not is_folder and not may_be_secret(entry.name):
                        continue
                    path = os.fsdecode(entry.path)
                    if _is_public(path):
                        continue
                    if may_be_secret(entry.name) and is_secret(path + "/" * is_folder):
                        found.append(os.path.realpath(path))
                    elif is_folder:
                        waiting.append((path, below + 1))
        except OSError:
            continue
    return found


_HARMLESS_DEVICES: Final = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
)
"""Devices that commands may open where they cannot have a /dev of their own."""


def readable_by_rules(closed: Sequence[str], shown: Sequence[str], masked: Sequence[str]) -> list[str]:
    """Return paths at and below which everything may be read, with nothing closed or masked among it.

    For Landlock, whose rules can only allow: a folder with something hidden in it is replaced by its other entries.
    Writable folders are added whole by the caller.
    """
    hidden = [*closed, *masked, "/dev"]
    found = [path for top in _entries("/") for path in _without(top, hidden)]
    found += [path for top in shown for path in _without(top, masked)]
    return list(dict.fromkeys((*found, *_HARMLESS_DEVICES)))


def _without(path: str, hidden: Sequence[str]) -> Iterator[str]:
    if inside(path, hidden) or os.path.islink(path):  # a rule on a link would allow its target
        return
    if not any(inside(each, [path]) for each in hidden):
        yield path
        return
    for entry in _entries(path):
        yield from _without(entry, hidden)


def _entries(folder: str) -> list[str]:
    try:
        return sorted(os.path.join(folder, name) for name in os.listdir(folder))
    except OSError:
        return []


def _is_plain_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
