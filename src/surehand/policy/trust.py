"""Trust: a folder's own settings, tools, agents, hooks and MCP servers count only once the user trusts them.

Trust is given to one folder with the content those files have now, and the files of the folder that they name: scripts
of hooks and servers, modules of tools. A change in any of them asks again. It is kept under Surehand's home, never in
the folder.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, Literal, cast

from surehand.core.errors import StateError
from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.state import locations
from surehand.state.files import write_private_json

TrustState = Literal["trusted", "untrusted", "changed", "nothing"]

OWN_FILES = ("surehand.toml", ".mcp.json")
OWN_FOLDERS = (".surehand",)
MOST_FILES: Final = 2_000
MOST_BYTES: Final = 256 * 1024 * 1024
"""Size of the files a folder is trusted with, together."""
_MOST_TEXT: Final = 16 * 1024 * 1024
"""Size of the scripts among them, which are looked through for names of others."""
_MOST_LOOKS: Final = 5_000_000
"""Names looked for: those in all scripts, times the places where each may lie."""


@frozen
class Trust:
    """How a folder stands: its state, the files that would count, and which of them changed since it was trusted."""

    workspace: str
    state: TrustState
    files: tuple[str, ...]
    changed: tuple[str, ...] = ()
    since: float | None = None
    problem: str = ""
    """Why the folder cannot be trusted as it is: it leads to too much, or through a link to a folder."""

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "workspace": self.workspace,
            "state": self.state,
            "files": list(self.files),
            "changed": list(self.changed),
            "since": self.since,
            "problem": self.problem,
        }


class TrustError(StateError):
    """Why a folder cannot be trusted."""


class _Count:
    """Counts what a folder leads to; too much is refused, never left out."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._left = {"files": MOST_FILES, "bytes in them": MOST_BYTES, "bytes of scripts": _MOST_TEXT}
        self._left["names in scripts"] = _MOST_LOOKS
        self._most = dict(self._left)

    def add(self, what: str, number: int = 1) -> None:
        """Count so much more; raise TrustError where that is too much."""
        self._left[what] -= number
        if self._left[what] < 0:
            raise TrustError(
                f"{self._root} cannot be trusted: its own files and what they lead to have more than"
                f" {self._most[what]:,} {what}"
            )


def is_trusted(workspace: str) -> bool:
    """Return whether the folder's own files count: the user trusted exactly these."""
    return os.path.realpath(workspace) in _load() and state_of(workspace).state == "trusted"


def state_of(workspace: str) -> Trust:
    """Return how a folder stands."""
    root = os.path.realpath(workspace)
    known = _load().get(root)
    try:
        files = fingerprints(root)
    except TrustError as problem:
        return Trust(root, "untrusted" if known is None else "changed", (), problem=str(problem))
    if known is None:
        return Trust(root, "untrusted" if files else "nothing", tuple(files))
    before = cast("dict[str, str]", known.get("files", {}))
    changed = sorted(name for name in {*before, *files} if before.get(name) != files.get(name))
    return Trust(root, "changed" if changed else "trusted", tuple(files), tuple(changed), known.get("at"))


def changed_since_trusted(workspace: str) -> tuple[str, ...]:
    """Return the files that changed since the folder was trusted; none for one that is, or never was."""
    if os.path.realpath(workspace) not in _load():
        return ()
    found = state_of(workspace)
    return found.changed or ((found.problem,) if found.problem else ())


def add_trust(workspace: str) -> Trust:
    """Trust a folder as it is now."""
    root = os.path.realpath(workspace)
    entry = {"files": fingerprints(root), "at": time.time()}
    _change(lambda known: known.update({root: entry}))
    return state_of(root)


def remove_trust(workspace: str) -> bool:
    """Trust a folder no more; False when it was not trusted."""
    root = os.path.realpath(workspace)
    was = root in _load()
    _change(lambda known: known.pop(root, None))
    return was


def trusted_folders() -> list[str]:
    """Return every folder that is trusted."""
    return sorted(_load())


def fingerprints(root: str) -> dict[str, str]:
    """Return name → digest of every file of a folder that Surehand would act on, links by where they lead.

    Raise TrustError where they lead to too much.
    """
    count = _Count(root)
    own = [path for name in OWN_FILES if os.path.lexists(path := os.path.join(root, name))]
    for folder in OWN_FOLDERS:
        for path in _walk(os.path.join(root, folder)):
            count.add("files")
            own.append(path)
    named = _files_that_run(root, own, count) if own else []
    return {os.path.relpath(path, root): _fingerprint(path, count) for path in (*own, *named)}


def trusted_files(workspace: str) -> frozenset[str]:
    """Return the files, by their real paths, that a trusted folder was trusted with; none for any other folder."""
    try:
        changed = os.stat(_store()).st_mtime_ns
    except OSError:
        return frozenset()
    root = os.path.realpath(workspace)
    key = (_store(), changed, root)
    if _remembered.get("key") != key:
        files = cast("dict[str, str]", _load().get(root, {}).get("files", {}))
        _remembered.update(key=key, files=frozenset(os.path.realpath(os.path.join(root, name)) for name in files))
    return cast("frozenset[str]", _remembered["files"])


_remembered: dict[str, Any] = {}


def _walk(folder: str) -> Iterator[str]:
    for here, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        for each in (here, *(os.path.join(here, name) for name in folders)):
            if os.path.islink(each):
                raise TrustError(f"{each} is a link to a folder, which cannot be trusted; put the folder itself there")
        for name in sorted(names):
            yield os.path.join(here, name)


def _fingerprint(path: str, count: _Count) -> str:
    try:
        target = os.readlink(path) if os.path.islink(path) else ""
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as problem:
        return f"unreadable: {problem.errno}"
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        return f"not a plain file: {target}"
    import hashlib

    with os.fdopen(descriptor, "rb") as file:
        count.add("bytes in them", status.st_size)
        return f"{target}:{status.st_mode & 0o111:o}:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _store() -> str:
    return os.path.join(locations.home(), "trust.json")


def _load() -> dict[str, dict[str, Any]]:
    try:
        with open(_store(), encoding="utf-8") as file:
            known: Any = json.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise StateError(f"{_store()} cannot be read: {problem.strerror}; nothing is trusted until it can") from None
    except ValueError as problem:
        raise StateError(f"{_store()} cannot be used: {problem}; nothing is trusted until it is removed") from None
    if not isinstance(known, dict):
        raise StateError(f"{_store()} is not a table of folders; nothing is trusted until it is removed")
    return cast("dict[str, dict[str, Any]]", known)


def _change(edit: Callable[[dict[str, dict[str, Any]]], object]) -> None:
    import fcntl

    locations.private_dir(locations.home())
    path = _store()
    with open(f"{path}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = _load()
        edit(known)
        write_private_json(path, known)


# Which files of a workspace run because trusted ones name them: scripts of hooks and servers, modules of tools.
#
# Read without running anything, and rather too many than too few: a word of a command that is a file, a module that
# Python would import, a script that another one names. Folders of dependencies are not followed.

_OUT_OF_HERE: Final = frozenset({"node_modules", ".git", ".venv", "venv", "site-packages", "__pycache__"})
_WORDS: Final = lazy_pattern(r"[^\s'\"`;|&<>(){}\[\],=$]+")
_WITH_BLANKS: Final = lazy_pattern(r"\"([^\"\n]+)\"|'([^'\n]+)'|((?:[^\s\\]|\\.)*\\ (?:[^\s\\]|\\.)*)")
_RUNS: Final = r"(?:^|[\s;&|(])(?:\.|source|exec|(?:ba|da|k|z)?sh|python[0-9.]*|node|perl|ruby|php)(?: +-\S+)* +[\"']?"
_RUN: Final = lazy_pattern(_RUNS + r"([^\s'\"`;|&<>(){}\[\],=$]+)")
_RUN_FROM: Final = lazy_pattern(rf"(?:{_RUNS}|\bin +[\"']?)([^\s`;|&<>()=]*/)[\"']?[^/\s]*[$*?\[{{]")
"""A folder of which a script runs whatever a pattern or a variable stands for."""
_BINARIES: Final = (b"\x7fELF", b"PK\3\4", b"\xca\xfe\xba\xbe", b"\0asm", b"\xcf\xfa\xed\xfe", b"MZ", b"\x1f\x8b")
_MODULE: Final = lazy_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_ADDED: Final = tuple(
    f".{each}" for each in ("py", "sh", "bash", "zsh", "js", "mjs", "cjs", "ts", "rb", "pl", "php", "lua", "jar", "so")
)
"""Endings that programs add to a name by themselves."""
_CODE: Final = (
    *_ADDED,
    *(
        ".mk",
        ".make",
        ".cmake",
        ".gradle",
        ".groovy",
        ".kts",
        ".fish",
        ".nu",
        ".ps1",
        ".awk",
        ".sed",
        ".tcl",
        ".r",
        ".jl",
    ),
    *(".ex", ".exs", ".clj", ".scala", ".kt", ".swift", ".go", ".rs", ".java", ".class", ".wasm", ".dylib", ".node"),
    *(".jsx", ".tsx", ".mts", ".cts", ".pyw", ".pyc", ".pyz", ".nix", ".pm", ".inc", ".phar", ".rake", ".ru", ".env"),
)
_MODULES: Final = (".py", ".so", ".pyd", ".pyc")
_BY_RUNNER: Final = {
    "package.json": ("npm", "npx", "yarn", "pnpm", "bun", "node"),
    ".npmrc": ("npm", "npx", "pnpm", "bun"),
    **dict.fromkeys((".yarnrc", ".yarnrc.yml"), ("yarn",)),
    **dict.fromkeys((".pnpmfile.cjs", ".pnpmfile.mjs", "pnpm-workspace.yaml"), ("pnpm",)),
    "bunfig.toml": ("bun",),
    "pyproject.toml": ("uv", "uvx", "poetry", "hatch", "pdm", "rye"),
    "uv.toml": ("uv", "uvx"),
    **dict.fromkeys(("Makefile", "makefile", "GNUmakefile"), ("make", "gmake")),
    **dict.fromkeys(("justfile", "Justfile", ".justfile"), ("just",)),
    **dict.fromkeys(("Cargo.toml", ".cargo/config", ".cargo/config.toml", "build.rs"), ("cargo",)),
    **dict.fromkeys(("rust-toolchain", "rust-toolchain.toml"), ("cargo",)),
    **dict.fromkeys(("go.mod", "go.work"), ("go",)),
    **dict.fromkeys(("deno.json", "deno.jsonc"), ("deno",)),
    **dict.fromkeys(("compose.yaml", "compose.yml", "docker-compose.yml", "docker-compose.yaml"), ("docker", "podman")),
}
_MANIFESTS: Final = {
    runner: [name for name, runners in _BY_RUNNER.items() if runner in runners]
    for runner in dict.fromkeys(each for runners in _BY_RUNNER.values() for each in runners)
}
_OF_A_FOLDER: Final = (
    *("__main__.py", "__init__.py", "sitecustomize.py", "usercustomize.py", "index.js", "index.mjs", "main.js"),
    *_BY_RUNNER,
)
_INSTALLED: Final = ("node_modules/.bin", ".venv/bin", "venv/bin")
"""Where runners look for a program by its name alone."""
_BEFORE_MODULES: Final = lazy_pattern(r"-[A-Za-z]*m|import|from")


def _files_that_run(root: str, own: Sequence[str], count: _Count) -> list[str]:
    """Return the files of a workspace that its own (`surehand.toml`, `.mcp.json`, tools) lead to, without these."""
    found: dict[str, None] = {}
    first = set(own)
    finder = _Finder(root, count)
    waiting = [path for start in own for path in finder.named_by_own(start)]
    for path in waiting:  # grows while it is walked
        if path in found or path in first:
            continue
        count.add("files")
        found[path] = None
        if _OUT_OF_HERE.isdisjoint(os.path.relpath(path, root).split(os.sep)):
            waiting += finder.named_in(path)
    return list(found)


class _Finder:
    """Finds the files of a workspace that others name, each folder listed once."""

    def __init__(self, root: str, count: _Count) -> None:
        self._root = root
        self._count = count
        self._inner = root.rstrip("/") + "/"
        self._named: list[str] = []
        """Folders that commands name: `cd there`, `cwd`, `PYTHONPATH`."""
        self._listings: dict[str, dict[str, list[str]]] = {}

    def named_by_own(self, path: str) -> Iterator[str]:
        """Yield the files that one of the workspace's own names."""
        if path.endswith(".py"):
            yield from self.named_in(path)
            return
        commands = list(_commands(path, self._text(path)))
        words = [word for text in commands for each in (text, *_split_words(text)) for word in (each, *each.split(":"))]
        named = (os.path.join(self._root, word) for word in words)
        folders = list(dict.fromkeys(os.path.normpath(each) for each in named if self._is_folder(each)))
        self._named += folders
        places = [self._root, *(os.path.join(self._root, each) for each in _INSTALLED), *folders]
        yield from self._of_words(list(dict.fromkeys(places)), words, code_alone=False)
        yield from self._run_from([self._root, *folders], "\n".join(commands))

    def named_in(self, path: str) -> Iterator[str]:
        """Yield the files that a script or a manifest names."""
        text = self._text(path)
        # A script finds others beside its name or, if that is a link, beside the file it leads to.
        folders = list(dict.fromkeys((os.path.dirname(path), os.path.dirname(os.path.realpath(path)))))
        if path.endswith(".py") or (text.startswith("#!") and "python" in text.partition("\n")[0]):
            yield from self._named_in_python(folders, text)
            text = text.partition("\n")[0] if text.startswith("#!") else ""
        if text:
            places = [*folders, self._root]
            yield from self._of_words(places, _split_words(text), code_alone=True)
            yield from self._of_words(places, _RUN.findall(text), code_alone=False)
            yield from self._run_from(places, text)

    def _text(self, path: str) -> str:
        """Return what a script says; nothing for a program or a folder."""
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or os.pread(descriptor, 8, 0).startswith(_BINARIES):
                return ""
            self._count.add("bytes of scripts", status.st_size)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(_MOST_TEXT).replace(b"\0", b" ").decode("utf-8", "replace")
        finally:
            os.close(descriptor)

    def _run_from(self, places: Sequence[str], text: str) -> Iterator[str]:
        """Yield the files of the folders out of which a script runs what a pattern or a variable stands for."""
        for name in dict.fromkeys(_RUN_FROM.findall(text)):
            for each in dict.fromkeys((name.strip("\"'"), name.partition("/")[2])):
                for place in places:
                    folder = os.path.normpath(os.path.join(place, each))
                    if f"{folder}/".startswith(self._inner) and folder != self._root and folder not in places:
                        for inner in itertools.chain.from_iterable(self._list(folder).values()):
                            yield from self._inside(os.path.join(folder, inner))

    def _named_in_python(self, folders: list[str], text: str) -> Iterator[str]:
        import ast  # most processes find the trusted files as they were

        root = self._root
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            yield from self._of_words([*folders, root], _split_words(text), code_alone=True)
            return
        modules: list[tuple[int, str]] = []
        texts: list[str] = []
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules += [(0, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                modules.append((node.level, base))
                modules += [(node.level, f"{base}.{alias.name}".lstrip(".")) for alias in node.names]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and 0 < len(node.value) < 1000:
                texts.append(node.value)
        places = [*folders, root, os.path.join(root, "src"), *self._named]
        named = (os.path.join(beside, each) for each in dict.fromkeys(texts) for beside in (*folders, root))
        places = list(dict.fromkeys((*places, *(os.path.normpath(each) for each in named if self._is_folder(each)))))
        modules += [(0, each) for each in texts if _MODULE.fullmatch(each) and "." in each]  # `import_module("a.b")`
        for level, name in dict.fromkeys(modules):
            for place in [_above(each, level - 1) for each in folders] if level else places:
                yield from self._module(place, name)
        for place in (*folders, root):  # what stands in the place of a module of Python's own, whoever imports that
            for name in sorted(sys.stdlib_module_names.intersection(self._list(place))):
                yield from self._module(place, name)
        yield from self._of_words(
            [*folders, root], [word for each in texts for word in _split_words(each)], code_alone=True
        )

    def _list(self, folder: str) -> dict[str, list[str]]:
        """Return the names in a folder by what stands before their first dot."""
        if folder not in self._listings:
            names: dict[str, list[str]] = {}
            try:
                for name in os.listdir(folder):
                    names.setdefault(name.partition(".")[0], []).append(name)
            except (OSError, ValueError):  # a text need not be a path at all
                pass
            self._listings[folder] = names
        return self._listings[folder]

    def _is_folder(self, path: str) -> bool:
        path = os.path.normpath(path)
        folder, name = os.path.split(path)
        known = f"{path}/".startswith(self._inner) and path != self._root
        return (not known or name in self._list(folder).get(name.partition(".")[0], ())) and os.path.isdir(path)

    def _module(self, place: str, name: str) -> Iterator[str]:
        """Yield the files that importing a module from a folder runs: those of its packages as well."""
        for part in name.split("."):
            inner = os.path.join(place, part)
            begins = [(place, part), *((inner, each) for each in ("__init__", "__main__") if part in self._list(place))]
            for folder, stem in begins:
                for each in self._list(folder).get(stem, ()):
                    if each.endswith(_MODULES):
                        yield from self._inside(os.path.join(folder, each))
            place = inner

    def _of_words(self, places: Sequence[str], words: Sequence[str], *, code_alone: bool) -> Iterator[str]:
        """Yield the files that the words of a command or a script name; `code_alone`: only source code."""
        modules = [word for before, word in pairwise(words) if _BEFORE_MODULES.fullmatch(before)]
        known = set(itertools.chain.from_iterable(map(self._list, places)))
        for word in dict.fromkeys(modules if code_alone else words):
            if _MODULE.fullmatch(word):
                for place in (*places, os.path.join(self._root, "src")):
                    yield from self._module(place, word)
        distinct = dict.fromkeys(words)
        self._count.add("names in scripts", len(distinct) * len(places))
        for word in distinct:
            if "/" not in word and word.partition(".")[0] not in known and word not in _MANIFESTS:
                continue
            for name in _MANIFESTS.get(os.path.basename(word), ()):
                yield from (file for place in places for file in self._inside(os.path.join(place, name)))
            # What stands before the first slash may have been a variable.
            for name in dict.fromkeys((os.path.expanduser(word), word.partition("/")[2] or word)):
                for place in places:
                    yield from self._of_path(place, name, code_alone)

    def _of_path(self, place: str, name: str, code_alone: bool) -> Iterator[str]:
        path = os.path.normpath(os.path.join(place, name))
        folder, last = os.path.split(path)
        if not folder.startswith(self._inner.rstrip("/")):
            yield from self._inside(path)
            return
        for each in self._list(folder).get(last.partition(".")[0], ()):
            if each != last and (not each.startswith(last) or each[len(last) :] not in _ADDED):
                continue
            found = os.path.join(folder, each)
            if os.path.isdir(found):
                if not code_alone or name.startswith("."):
                    yield from (file for inner in _OF_A_FOLDER for file in self._inside(os.path.join(found, inner)))
            elif not code_alone or each.endswith(_CODE) or "." not in each or os.access(found, os.X_OK):
                yield from self._inside(found)

    def _inside(self, path: str) -> Iterator[str]:
        """Yield a path when it is a file of the workspace."""
        path = os.path.normpath(path)
        if os.path.isfile(path):
            if not path.startswith(self._inner):
                path = os.path.realpath(path)
            if path.startswith(self._inner):
                yield path


def _split_words(text: str) -> list[str]:
    """Return the words of a text, and what may be one word although it contains blanks."""
    text = text.removeprefix("#!")
    found = ("".join(each).replace("\\ ", " ") for each in _WITH_BLANKS.findall(text))
    return [*_WORDS.findall(text), *(each for each in found if " " in each and len(each) < 1000)]


def _above(folder: str, levels: int) -> str:
    for _ in range(levels):
        folder = os.path.dirname(folder)
    return folder


def _commands(path: str, text: str) -> Iterator[str]:
    """Yield every text in a file of settings: a command may stand in any."""
    try:
        if path.endswith(".toml"):
            import tomllib

            content: Any = tomllib.loads(text)
        elif path.endswith(".json"):
            content = json.loads(text)
        else:
            return
    except (ValueError, RecursionError):
        yield text
        return
    waiting: list[Any] = [content]
    while waiting:
        each = waiting.pop()
        if isinstance(each, str):
            yield each
        elif isinstance(each, dict):
            waiting += cast("dict[str, Any]", each).values()
        elif isinstance(each, list):
            waiting += cast("list[Any]", each)
