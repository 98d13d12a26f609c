"""Packages that are installed in a workspace: in `node_modules`, and in the site-packages of virtual environments.

Trust takes a package that trusted code runs as one directory, with a digest of its contents, and adds the packages it
declares as dependencies. Nothing is imported or run to find them.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterable, Iterator
from typing import Any, Final, cast

from surehand.core.errors import StateError
from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern

_SITES: Final = ("site-packages", "dist-packages")
_AT_START: Final = ("sitecustomize.py", "usercustomize.py")
"""What Python runs from site-packages at every start, beside the `.pth` files."""
_NODE_DEPENDENCIES: Final = ("dependencies", "optionalDependencies", "peerDependencies")
_REQUIREMENT: Final = lazy_pattern(r"Requires-Dist:\s*([\w.-]+)\s*(?:\[([^\]]*)\])?(.*)")
_EXTRA: Final = lazy_pattern(r"extra\s*==\s*[\"']([\w.-]+)[\"']")
_PTH_IMPORT: Final = lazy_pattern(r"\bimport[ \t]+(\w+)")
_QUOTED_PATH: Final = lazy_pattern(r"[\"'](/[^\"'\n]+)[\"']")
_ALL: Final = "*"
"""Stands for all extras of a distribution."""


MOST_FILES: Final = 2_000
MOST_BYTES: Final = 256 * 1024 * 1024
"""Total size of the files a folder is trusted with."""
MOST_TEXT: Final = 16 * 1024 * 1024
"""Total size of the scripts among them, which are searched for names of others."""
_MOST_LOOKS: Final = 5_000_000
"""Names looked for: those in all scripts, times the directories where each may be."""
_MOST_PACKAGE_FILES: Final = 50_000
_MOST_PACKAGE_BYTES: Final = 2 * 1024 * 1024 * 1024
"""Total size of the packages that run."""


class TrustError(StateError):
    """Why a folder cannot be trusted."""


class Budget:
    """Counts what a folder leads to. Above a limit the folder is refused: leaving files out would be unsafe."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._most = {
            "files": MOST_FILES,
            "bytes in them": MOST_BYTES,
            "bytes of scripts": MOST_TEXT,
            "names in scripts": _MOST_LOOKS,
            "files in packages": _MOST_PACKAGE_FILES,
            "bytes in packages": _MOST_PACKAGE_BYTES,
        }
        self._left = dict(self._most)

    def spend(self, what: str, number: int = 1) -> None:
        """Count `number` more; raise TrustError above the limit."""
        self._left[what] -= number
        if self._left[what] < 0:
            raise TrustError(
                f"{self._root} cannot be trusted: its own files and what they lead to have more than"
                f" {self._most[what]:,} {what}"
            )


@frozen
class _Distribution:
    """What a distribution installs (the names at the top of site-packages), and which others it requires."""

    tops: tuple[str, ...]
    requires: tuple[tuple[str, tuple[str, ...], str], ...]
    """Name, extras wanted of it, and the extra for which it is required ('' for always)."""


class Packages:
    """The packages below one workspace; directories are read once."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._inner = root.rstrip("/") + "/"
        self._sites: dict[str, list[str]] = {}
        """Virtual environment → its site-packages."""
        self._distributions: dict[str, dict[str, _Distribution]] = {}
        self.editable: list[str] = []
        """Directories of the workspace that `.pth` files add to the module path."""

    @property
    def module_folders(self) -> list[str]:
        """The directories from which Python imports in the environments that are used."""
        return [*(site for sites in self._sites.values() for site in sites), *self.editable]

    def use_environments(self, folders: Iterable[str]) -> Iterator[str]:
        """Note the virtual environments that these paths are, or whose `bin` they name; yield what each start runs."""
        for folder in folders:
            for above in (folder, os.path.dirname(folder), os.path.dirname(os.path.dirname(folder))):
                known = above in self._sites or not above.startswith(self._inner)
                if not known and os.path.isfile(os.path.join(above, "pyvenv.cfg")):
                    yield os.path.join(above, "pyvenv.cfg")
                    yield from self._use(above)

    def _use(self, environment: str) -> Iterator[str]:
        libraries = (os.path.join(environment, name) for name in ("lib", "lib64"))
        pythons = {os.path.realpath(os.path.join(each, name)) for each in libraries for name in _names_in(each)}
        sites = [path for each in sorted(pythons) for name in _SITES if os.path.isdir(path := os.path.join(each, name))]
        self._sites[environment] = sites
        for site in sites:
            for name in _names_in(site):
                path = os.path.join(site, name)
                if name in _AT_START or name.endswith(".pth"):
                    yield path
                if name.endswith(".pth"):
                    lines = [line.strip() for line in _read(path).splitlines() if line.strip()]
                    self.editable += [each for line in lines if self._is_source(each := os.path.join(site, line))]
                    modules = {module for line in lines for module in _PTH_IMPORT.findall(line)}
                    yield from (os.path.join(site, each) for each in _names_in(site) if each.split(".")[0] in modules)
                elif name.startswith("__editable__") and name.endswith(".py"):
                    yield path
                    found = [os.path.dirname(each) for each in _QUOTED_PATH.findall(_read(path))]
                    self.editable += [each for each in found if self._is_source(each)]

    def _is_source(self, path: str) -> bool:
        return f"{os.path.realpath(path)}/".startswith(self._inner) and os.path.isdir(path)

    def package_of(self, path: str) -> str:
        """Return the package a path lies in (a directory, or a module right in site-packages), or nothing."""
        parts = path[len(self._inner) :].split("/") if path.startswith(self._inner) else []
        for number in range(len(parts) - 2, -1, -1):
            if parts[number] == "node_modules":
                length = 2 if parts[number + 1].startswith("@") else 1
                end = number + 1 + length
                whole = not parts[number + 1].startswith(".") and len(parts) >= end
                return self._inner + "/".join(parts[:end]) if whole else ""
            if parts[number] in _SITES:
                return self._inner + "/".join(parts[: number + 2])
        return ""

    def find_node_package(self, name: str, folder: str) -> str:
        """Return the package that code in a directory imports by this name, or nothing."""
        while f"{folder}/".startswith(self._inner):
            path = os.path.join(folder, "node_modules", name)
            if os.path.isdir(path):
                return path
            folder = os.path.dirname(folder)
        return ""

    def with_dependencies(self, package: str) -> Iterator[str]:
        """Yield a package and all that it declares to need and is installed, each once."""
        site = os.path.dirname(package)
        if package.endswith(".pth"):  # a line of settings, whichever distribution brought it
            yield package
            return
        if os.path.basename(site) in _SITES:
            yield from self._with_python_dependencies(package, site)
            return
        waiting = {package: None}
        for each in (pending := [package]):  # grows while it is walked
            yield each
            real = os.path.realpath(each)
            for name in _node_dependencies(os.path.join(real, "package.json")):
                if (found := self.find_node_package(name, real)) and found not in waiting:
                    waiting[found] = None
                    pending.append(found)

    def _with_python_dependencies(self, package: str, site: str) -> Iterator[str]:
        yield package
        known = self._distributions.get(site)
        if known is None:
            known = self._distributions[site] = _read_distributions(site)
        top = os.path.basename(package)
        pending = [(name, _ALL) for name, each in known.items() if top in each.tops]
        for name, extra in pending:  # grows while it is walked
            for needed, extras, condition in known[name].requires:
                if needed in known and (not condition or extra in (condition, _ALL)):
                    pending += [each for one in ("", *extras) if (each := (needed, one)) not in pending]
        for name in dict.fromkeys(name for name, _ in pending):
            yield from (path for each in known[name].tops if (path := os.path.join(site, each)) != package)


def _read_distributions(site: str) -> dict[str, _Distribution]:
    found: dict[str, _Distribution] = {}
    for folder in _names_in(site):
        name, ending = os.path.splitext(folder)
        if ending != ".dist-info":
            continue
        lines = _read(os.path.join(site, folder, "RECORD")).splitlines()
        tops = dict.fromkeys(line.partition(",")[0].strip('"').partition("/")[0] for line in lines)
        header = _read(os.path.join(site, folder, "METADATA")).partition("\n\n")[0]
        requires = [
            (_normalize(match[1]), tuple(map(_normalize, re.findall(r"[\w.-]+", match[2] or ""))), _condition(match[3]))
            for match in map(_REQUIREMENT.match, header.splitlines())
            if match
        ]
        own = [each for each in tops if each and not each.endswith(".dist-info") and each not in ("..", "__pycache__")]
        found[_normalize(name.partition("-")[0])] = _Distribution(tuple(own), tuple(requires))
    return found


def _condition(marker: str) -> str:
    found = _EXTRA.search(marker)
    return _normalize(found[1]) if found else ""


def _normalize(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _node_dependencies(path: str) -> list[str]:
    try:
        content: Any = json.loads(_read(path) or "{}")
    except (ValueError, RecursionError):
        return []
    if not isinstance(content, dict):
        return []
    tables = [cast("dict[str, Any]", content).get(key) for key in _NODE_DEPENDENCIES]
    return [name for table in tables if isinstance(table, dict) for name in cast("dict[str, Any]", table)]


def _names_in(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _read(path: str) -> str:
    try:
        with open(
            os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), encoding="utf-8", errors="replace"
        ) as file:
            return file.read() if stat.S_ISREG(os.fstat(file.fileno()).st_mode) else ""
    except OSError:
        return ""


# -- digests ---------------------------------------------------------------------------------------------------------


@frozen
class Digest:
    """A package's contents, and the status of its files when they were read."""

    contents: str
    status: str
    """Digest of size, times and inode of every file: while it is the same, so are the contents."""
    newest: float
    """The latest change of any of them."""


def digest_package(path: str, root: str, budget: Budget, known: tuple[str | None, str | None]) -> Digest:
    """Digest a package directory: each name with its contents, links by their targets.

    `known` is an earlier digest (status, contents): no file is read while the status is the same. Compiled modules
    (`__pycache__`) do not count, nor do the packages inside one that lies outside of `node_modules`.
    """
    import hashlib  # few workspaces have packages that trusted code runs

    real = os.path.realpath(path)
    if not f"{real}/".startswith(root.rstrip("/") + "/"):
        return Digest(f"elsewhere: {real}", "", 0.0)
    skipped = {"__pycache__"} if "/node_modules/" in real else {"__pycache__", "node_modules", ".git"}
    files = sorted(_walk(real, skipped))
    budget.spend("files in packages", len(files))
    budget.spend("bytes in packages", sum(status.st_size for _, status in files))
    status = hashlib.sha256()
    newest = 0.0
    for name, each in files:
        newest = max(newest, each.st_ctime, each.st_mtime)
        facts = (each.st_ino, each.st_mode, each.st_size, each.st_mtime_ns, each.st_ctime_ns)
        status.update(f"{name}\0{facts}\n".encode("utf-8", "surrogateescape"))
    before, contents = known
    if contents is None or before != status.hexdigest():
        contents = f"{os.path.relpath(real, root)}: {_digest_contents(real, files)}"
    return Digest(contents, status.hexdigest(), newest)


def _walk(folder: str, skipped: set[str]) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the relative name and the status of everything in a directory but its directories."""
    pending = [""]
    while pending:
        here = pending.pop()
        try:
            with os.scandir(os.path.join(folder, here)) as entries:
                for entry in entries:
                    name = f"{here}/{entry.name}" if here else entry.name
                    if not entry.is_dir(follow_symlinks=False):
                        yield name, entry.stat(follow_symlinks=False)
                    elif entry.name not in skipped:
                        pending.append(name)
        except OSError:  # removed meanwhile, or not readable: then no program of the user's runs it either
            continue


def _digest_contents(folder: str, files: list[tuple[str, os.stat_result]]) -> str:
    import hashlib

    whole = hashlib.sha256()
    for name, status in files:
        path = os.path.join(folder, name)
        try:
            if stat.S_ISLNK(status.st_mode):
                said = os.readlink(path)
            elif stat.S_ISREG(status.st_mode):
                with open(path, "rb") as file:
                    said = f"{status.st_mode & 0o111:o}:{hashlib.file_digest(file, 'sha256').hexdigest()}"
            else:
                said = "special"
        except OSError as problem:
            said = f"unreadable: {problem.errno}"
        whole.update(f"{name}\0{said}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()
