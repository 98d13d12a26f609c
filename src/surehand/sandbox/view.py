"""The view of the disk that commands have: the system, toolchains, the workspace, and what the user adds; nothing else.

A list of what may be seen, not of what may not: another project's `.env`, a backup of a key, a history of some shell
need not be known to be out of reach. A folder of the system or a toolchain that does hold secrets has these covered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from surehand.core.secrets import is_secret, may_be_secret
from surehand.files.protected_paths import changed_at, homes, inside, within

EMPTY: Final = ("/tmp", "/var/tmp")
"""Folders of the machine in whose place commands find private ones, empty and bounded in size."""

_SYSTEM: Final = frozenset(
    ("bin", "boot", "dev", "etc", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "run", "sbin")
) | {"snap", "sys", "tmp", "usr", "var"}
_OF_VAR: Final = frozenset(["cache", "db", "empty", "lib", "lock", "log", "opt", "run", "tmp"])
_CLOSED: Final = ("/run/secrets", "/run/user", "/run/credentials", "/var/lib/docker", "/var/lib/containers")

# What lies in a home and is a tool, or how one is to behave. No file that holds a log-in, no history, no start file.
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
# Certificates of authorities are public, though they are `.pem` files.
_is_public: Final = within(("/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/pki", "/etc/ca-certificates", "/usr"))


def closed_trees(roots: Sequence[str]) -> tuple[str, ...]:
    """Return the folders shown empty except for what is shown in them. A folder inside a root is never among them."""
    found = [path for path in _below("/") if os.path.basename(path) not in _SYSTEM]
    found += [path for path in _below("/var") if os.path.basename(path) not in _OF_VAR]
    found += [*homes(), *_CLOSED, *EMPTY]
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
    """Return what of toolchains lies in the closed trees, real and there, outermost alone."""
    # What is not there has no real path to look for: most of the folders that toolchains could have in a home.
    there = filter(os.path.lexists, dict.fromkeys(_toolchains(roots, environment)))
    wanted = map(os.path.realpath, there)
    found = dict.fromkeys(path for path in wanted if inside(path, closed) and path not in closed)
    above = [path for path in found if os.path.exists(path) and not _holds_home(path) and not is_secret(path)]
    return tuple(path for path in above if not any(path != each and inside(path, [each]) for each in above))


def enclosing_repository(root: str) -> Iterator[str]:
    """Yield the repository that a workspace is a part of: without its other files git would take them for deleted."""
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
    """Yield a folder of programs and what they belong to: `lib` and `share` lie beside `bin`."""
    yield programs
    real = os.path.realpath(programs)
    above = os.path.dirname(real)
    if os.path.basename(real) not in _PROGRAM_FOLDERS or os.path.lexists(os.path.join(above, ".git")):
        return  # somebody's project: its programs, not the project
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
    """Return the secrets in what is shown beside the workspace: nearest first, as far as a bounded look goes.

    A toolchain holds what was published, in very many files; log-ins lie near its top. What was found counts until
    something is made, removed or renamed right in one of the folders.
    """
    given = tuple(os.path.abspath(folder) for folder in folders)
    key, changed = (given, depth), tuple(changed_at(folder) for folder in given)
    known = _found.get(key)
    if known is None or known[0] != changed:
        if len(_found) >= _MOST_LOOKS:
            _found.clear()
        known = _found[key] = (changed, _look(given, depth, most))
    return known[1]


def _look(given: Sequence[str], depth: int, most: int) -> list[str]:
    found = [path for path in given if is_secret(path)]
    waiting = [(folder, 0) for folder in given if folder not in found and os.path.isdir(folder)]
    left = most
    for folder, below in waiting:  # grows while it is walked
        if left <= 0 or below >= depth:
            break
        try:
            with os.scandir(os.fsencode(folder)) as entries:  # thousands of names, hardly any of which is decoded
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


HARMLESS_DEVICES: Final = tuple(
    f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom", "tty", "ptmx", "pts", "shm")
)
"""What of `/dev` commands may open where they cannot be given one of their own."""


def readable_by_rules(closed: Sequence[str], shown: Sequence[str], masked: Sequence[str]) -> list[str]:
    """Return the paths at and below which everything may be read, so that nothing closed or masked is among it.

    For rules that only ever add: a folder with something hidden in it is named by what else it holds. Folders that
    commands may write are named whole, whatever lies in them.
    """
    hidden = [*closed, *masked, "/dev"]
    found = [path for top in _entries("/") for path in _without(top, hidden)]
    found += [path for top in shown for path in _without(top, masked)]
    return list(dict.fromkeys((*found, *HARMLESS_DEVICES)))


def _without(path: str, hidden: Sequence[str]) -> Iterator[str]:
    if inside(path, hidden) or os.path.islink(path):  # a rule on a link would open what it leads to
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
