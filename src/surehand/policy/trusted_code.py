"""Which code of a workspace its trusted files run: scripts of hooks and servers, modules of tools, packages.

Found without running anything, and rather too many files than too few: a word of a command that is a file, a module
that Python would import, a script that another script names. An installed package (in `node_modules` or a virtual
environment) is taken as a whole directory, together with the packages it declares as its dependencies.
"""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, Final, cast

from surehand.core.frozen import frozen
from surehand.core.text import lazy_pattern
from surehand.policy.packages import MOST_TEXT, Budget, Packages


@frozen
class Code:
    """The code that trusted files run: single files, and packages by their directories."""

    files: tuple[str, ...]
    packages: tuple[str, ...]


_NOT_FOLLOWED: Final = frozenset({".git", "__pycache__"})
_WORDS: Final = lazy_pattern(r"[^\s'\"`;|&<>(){}\[\],=$]+")
_WITH_BLANKS: Final = lazy_pattern(r"\"([^\"\n]+)\"|'([^'\n]+)'|((?:[^\s\\]|\\.)*\\ (?:[^\s\\]|\\.)*)")
_RUNS: Final = r"(?:^|[\s;&|(])(?:\.|source|exec|(?:ba|da|k|z)?sh|python[0-9.]*|node|perl|ruby|php)(?: +-\S+)* +[\"']?"
_RUN: Final = lazy_pattern(_RUNS + r"([^\s'\"`;|&<>(){}\[\],=$]+)")
_RUN_FROM: Final = lazy_pattern(rf"(?:{_RUNS}|\bin +[\"']?)([^\s`;|&<>()=]*/)[\"']?[^/\s]*[$*?\[{{]")
"""A folder of which a script runs whatever a pattern or a variable stands for."""
_BINARIES: Final = (b"\x7fELF", b"PK\3\4", b"\xca\xfe\xba\xbe", b"\0asm", b"\xcf\xfa\xed\xfe", b"MZ", b"\x1f\x8b")
_MODULE: Final = lazy_pattern(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")
_ADDED: Final = tuple(
    f".{each}"
    for each in (
        "py",
        "sh",
        "bash",
        "zsh",
        "js",
        "mjs",
        "cjs",
        "ts",
        "rb",
        "pl",
        "pm",
        "php",
        "lua",
        "jar",
        "class",
        "so",
    )
)
"""Endings that programs add to a name by themselves."""
_CODE: Final = (
    *_ADDED,
    *(".mk", ".make", ".cmake", ".gradle", ".groovy", ".kts", ".fish", ".nu", ".ps1", ".awk", ".sed", ".tcl", ".r"),
    *(".jl", ".ex", ".exs", ".clj", ".scala", ".kt", ".swift", ".go", ".rs", ".java", ".wasm", ".dylib", ".node"),
    *(".just", ".jsx", ".tsx", ".mts", ".cts", ".pyw", ".pyc", ".pyz", ".nix", ".inc", ".phar", ".rake", ".ru", ".env"),
)  # fmt: skip
_MODULES: Final = (".py", ".so", ".pyd", ".pyc")
_RUNNERS: Final = {
    "npm npx": "package.json .npmrc",
    "node": "package.json",
    "yarn": "package.json .yarnrc .yarnrc.yml",
    "pnpm": "package.json .npmrc .pnpmfile.cjs .pnpmfile.mjs pnpm-workspace.yaml",
    "bun": "package.json .npmrc bunfig.toml tsconfig.json",
    "tsx ts-node": "tsconfig.json",
    "deno": "deno.json deno.jsonc",
    "gulp": "gulpfile.js gulpfile.mjs gulpfile.cjs",
    "grunt": "Gruntfile.js Gruntfile.cjs",
    "uv uvx": "pyproject.toml uv.toml",
    "poetry hatch pdm rye": "pyproject.toml",
    "tox": "tox.ini setup.cfg pyproject.toml",
    "pytest": "conftest.py pytest.ini tox.ini setup.cfg pyproject.toml",
    "nox": "noxfile.py",
    "inv invoke": "tasks.py",
    "fab": "fabfile.py",
    "pre-commit": ".pre-commit-config.yaml",
    "make gmake": "Makefile makefile GNUmakefile",
    "cmake": "CMakeLists.txt",
    "scons": "SConstruct",
    "just": "justfile Justfile .justfile",
    "task": "Taskfile.yml Taskfile.yaml taskfile.yml taskfile.yaml",
    "mise": "mise.toml .mise.toml .tool-versions",
    "cargo": "Cargo.toml .cargo/config .cargo/config.toml rust-toolchain rust-toolchain.toml"
    " build.rs src/main.rs src/lib.rs",
    "go": "go.mod go.work",
    "rake": "Rakefile rakefile Rakefile.rb rakefile.rb",
    "bundle": "Gemfile Gemfile.lock .bundle/config",
    "composer": "composer.json",
    "mix": "mix.exs",
    "gradle gradlew": "build.gradle build.gradle.kts settings.gradle settings.gradle.kts gradle.properties"
    " gradle/wrapper/gradle-wrapper.jar gradle/wrapper/gradle-wrapper.properties",
    "mvn mvnw": "pom.xml .mvn/maven.config .mvn/jvm.config .mvn/extensions.xml",
    "ant": "build.xml",
    "docker podman": "compose.yaml compose.yml docker-compose.yml docker-compose.yaml Dockerfile Containerfile",
    "honcho foreman": "Procfile .env",
    "direnv": ".envrc",
    "nix nix-shell": "flake.nix flake.lock shell.nix default.nix",
}
"""Programs → the files they take from their folder, without a name in the command."""
_MANIFESTS: Final = {runner: files.split() for runners, files in _RUNNERS.items() for runner in runners.split()}
_OF_A_FOLDER: Final = (
    *("__main__.py", "__init__.py", "sitecustomize.py", "usercustomize.py", "index.js", "index.mjs", "main.js"),
    *dict.fromkeys(itertools.chain.from_iterable(_MANIFESTS.values())),
)
_INSTALLED: Final = ("node_modules/.bin", ".venv/bin", "venv/bin")
"""Where runners look for a program by its name alone."""
_BEFORE_MODULES: Final = lazy_pattern(r"-[A-Za-z]*m|import|from")


_ENVIRONMENT_RUNNERS: Final = frozenset({"uv", "uvx", "poetry", "hatch", "pdm", "rye", "pipenv"})
"""Programs that run others in the virtual environment of the folder, without its name in the command."""
_SCRIPT_RUNNERS: Final = frozenset({"npm", "yarn", "pnpm", "bun"})
_SPECIFIER: Final = lazy_pattern(
    r"(?:\brequire|\bimport|\bfrom|\bresolve)\s*\(?\s*[\"'`]((?:@[\w.~-]+/)?[\w~-][\w.~-]*)(?:/[^\"'`]*)?[\"'`]"
)
"""A package that JavaScript imports by its name."""
_PACKAGE_WORD: Final = lazy_pattern(r"((?:@[\w.~-]+/)?[\w~-][\w.~-]*)(?:@[^/]*)?(?:/.*)?", re.DOTALL)
_PYTHON_SCRIPT: Final = lazy_pattern(r"#![^\n]*python|#!/bin/sh\n'''exec'")
_FOLDER_OPTION: Final = lazy_pattern(r"\A-[IL](.+)")
_ENTRY_POINT: Final = lazy_pattern(r"=\s*[\"']?([A-Za-z_][\w.]*)(?::[\w.]+)?\s*[\"']?\s*$", re.MULTILINE)
_RUNS_TEXT: Final = lazy_pattern(
    r"\beval\b|\bnew Function\b|\bvm\.|\binstance_eval\b|\b(?:ba|da|k|z)?sh(?: +-\S+)* *<"
    r"|\| *(?:\S*/)?(?:(?:ba|da|k|z)?sh|python[0-9.]*|node|perl|ruby|php)\b"
)
"""Where a script may run what a file of any name contains."""
_IMPORTED_FROM: Final = lazy_pattern(r"\b(?:require|import)\s*\(\s*[\"'`]([^\"'`$\n]*)/[^\"'`/\n]*(?:\$\{|[\"'`]\s*\+)")
"""A directory of which JavaScript imports what a variable names."""
_JOINED: Final = lazy_pattern(r"\b(?:join|resolve)\(\s*[\w.]+\s*((?:,\s*[\"'`][^\"'`\n]*[\"'`]\s*)+)\)")
_ANY_QUOTED: Final = lazy_pattern(r"[\"'`]([^\"'`\n]*)[\"'`]")
_RUST_MODULE: Final = lazy_pattern(r"\bmod\s+(\w+)\s*;")
_GO_MODULE: Final = lazy_pattern(r"^module\s+(\S+)", re.MULTILINE)
_QUOTED: Final = lazy_pattern(r"\"([^\"\n]+)\"")
_WITH_ENTRY_POINTS: Final = frozenset({"pyproject.toml", "setup.cfg"})


def find_code(root: str, own: Sequence[str], budget: Budget) -> Code:
    """Return the code that the workspace's own files (`surehand.toml`, `.mcp.json`, tools) lead to, without these."""
    files: dict[str, None] = {}
    packages: dict[str, None] = {}
    first = set(own)
    finder = _Finder(root, budget)
    waiting = [path for start in own for path in finder.named_by_own(start)]
    while waiting:
        for path in waiting:  # grows while it is walked
            if path in files or path in first:
                continue
            found = [each for each in dict.fromkeys((path, os.path.realpath(path))) if finder.packages.package_of(each)]
            for package in dict.fromkeys(map(finder.packages.package_of, found)):
                if package not in packages:
                    packages.update(dict.fromkeys(finder.packages.with_dependencies(package)))
            if path in found:
                continue
            budget.spend("files")
            files[path] = None
            if _NOT_FOLLOWED.isdisjoint(os.path.relpath(path, root).split(os.sep)):
                waiting += finder.named_in(path)
        waiting = finder.named_since()
    modules = [path for path in packages if os.path.isfile(path)]
    return Code((*files, *modules), tuple(path for path in packages if os.path.isdir(path)))


class _Finder:
    """Finds the files of a workspace that others name. Lists each folder and reads each file once."""

    def __init__(self, root: str, budget: Budget) -> None:
        self._root = root
        self._budget = budget
        self._inner = root.rstrip("/") + "/"
        self._named: list[str] = []
        """Folders that commands name: `cd there`, `cwd`, `PYTHONPATH`."""
        self._listings: dict[str, dict[str, list[str]]] = {}
        self._texts: dict[str, str] = {}
        """What each script searched so far says."""
        self.packages = Packages(root)
        self._script_names: set[str] = set()
        """Words beside `npm` and the like: some of them name scripts of package.json."""
        self._found = (0, 0)

    def named_by_own(self, path: str) -> Iterator[str]:
        """Yield the files that one of the workspace's own names."""
        if path.endswith(".py"):
            yield from self.named_in(path)
            return
        commands = list(_commands(path, self._text(path)))
        parts = (each for text in commands for each in (text, *_split_words(text)))
        words = [word for each in parts for word in (each, *each.split(":"), *_FOLDER_OPTION.findall(each))]
        named = (os.path.join(self._root, word) for word in words)
        folders = list(dict.fromkeys(os.path.normpath(each) for each in named if self._is_folder(each)))
        self._named += folders
        yield from self._note_runners(words, [self._root, *folders])
        yield from self.packages.use_environments(folders)
        places = [self._root, *(os.path.join(self._root, each) for each in _INSTALLED), *folders]
        yield from self._of_words(list(dict.fromkeys(places)), words, code_alone=False)
        yield from self._run_from([self._root, *folders], "\n".join(commands))
        yield from self._node_packages([self._root, *folders], _package_words(words))

    def named_in(self, path: str) -> Iterator[str]:
        """Yield the files that a script or a manifest names."""
        text = self._text(path)
        yield from self.packages.use_environments([path])
        # A script finds others beside its name or, if that is a link, beside the file it leads to.
        folders = list(dict.fromkeys((os.path.dirname(path), os.path.dirname(os.path.realpath(path)))))
        name = os.path.basename(path)
        if path.endswith(".py") or _PYTHON_SCRIPT.match(text):
            yield from self._named_in_python(folders, text)
            text = text.partition("\n")[0] if text.startswith("#!") else ""
        if not text:
            return
        places = [*folders, self._root, os.path.join(self._root, "lib"), *self._named]
        words = [each for word in _split_words(text) for each in (word, word.replace("::", "/"))]
        yield from self._note_runners(words, places)
        yield from self._of_words(places, words, code_alone=_RUNS_TEXT.search(text) is None)
        yield from self._of_words(places, _RUN.findall(text), code_alone=False)
        yield from self._run_from([*folders, self._root], text)
        yield from self._named_in_javascript(folders, text)
        if name == "package.json":
            yield from self._named_in_package_scripts(folders, text)
        elif name.endswith(".go"):
            yield from self._named_in_go(text)
        elif name.endswith(".rs"):
            stem = name.removesuffix(".rs")
            for module in _RUST_MODULE.findall(text):
                for each in (f"{module}.rs", f"{module}/mod.rs", f"{stem}/{module}.rs", f"{stem}/{module}/mod.rs"):
                    yield from self._inside(os.path.join(folders[-1], each))
        elif name in _WITH_ENTRY_POINTS:
            for module in _ENTRY_POINT.findall(text):
                for place in self._module_folders(folders):
                    yield from self._module(place, module)

    def _named_in_package_scripts(self, folders: Sequence[str], text: str) -> Iterator[str]:
        """Yield the programs of packages that the scripts of a package.json start, of those scripts that are run."""
        try:
            content: Any = json.loads(text)
            scripts = dict(content["scripts"])
        except (ValueError, TypeError, KeyError, RecursionError):
            return
        wanted = {each for name in self._script_names for each in (name, f"pre{name}", f"post{name}")}
        words = [word for name, said in scripts.items() if name in wanted for word in _split_words(str(said))]
        self._script_names.update(words)
        programs = [os.path.join(folder, "node_modules/.bin") for folder in (*folders, self._root)]
        yield from self._of_words(programs, words, code_alone=False)
        yield from self._node_packages(folders, _package_words(words))

    def _named_in_go(self, text: str) -> Iterator[str]:
        """Yield the source of the workspace's packages that a file of Go imports."""
        found = _GO_MODULE.search(self._text(os.path.join(self._root, "go.mod")))
        for path in _QUOTED.findall(text) if found else ():
            if found and path.startswith(f"{found[1]}/"):
                yield from self._go_package(os.path.join(self._root, path[len(found[1]) + 1 :]))

    def _go_package(self, folder: str) -> Iterator[str]:
        for name in itertools.chain.from_iterable(self._list(folder).values()):
            if name.endswith((".go", ".s", ".c", ".h")):
                yield from self._inside(os.path.join(folder, name))

    def _note_runners(self, words: Sequence[str], places: Sequence[str]) -> Iterator[str]:
        """Note what programs such as `uv` and `npm` take from their folder; yield what each start of Python runs."""
        runners = {os.path.basename(word) for word in words}
        if runners & _SCRIPT_RUNNERS:
            self._script_names.update(words)
        if runners & _ENVIRONMENT_RUNNERS:
            environments = [os.path.join(place, name) for place in places for name in (".venv", "venv")]
            yield from self.packages.use_environments(environments)

    def _node_packages(self, folders: Sequence[str], names: Iterable[str]) -> Iterator[str]:
        for name in dict.fromkeys(names):
            for folder in folders:
                if found := self.packages.find_node_package(name, folder):
                    yield os.path.join(found, "package.json")

    def _module_folders(self, folders: Sequence[str]) -> list[str]:
        sources = [os.path.join(folder, "src") for folder in (*folders, self._root)]
        return list(dict.fromkeys((*folders, self._root, *sources, *self._named, *self.packages.module_folders)))

    def named_since(self) -> list[str]:
        """Return what scripts name in environments, and by names of scripts, that were found after their search."""
        found = (len(self.packages.module_folders), len(self._script_names))
        if found == self._found:
            return []
        self._found = found
        return [named for path in list(self._texts) for named in self.named_in(path)]

    def _text(self, path: str) -> str:
        """Return what a script says; nothing for a program or a folder."""
        if path not in self._texts:
            self._texts[path] = self._read_text(path)
        return self._texts[path]

    def _read_text(self, path: str) -> str:
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return ""
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode) or os.pread(descriptor, 8, 0).startswith(_BINARIES):
                return ""
            self._budget.spend("bytes of scripts", status.st_size)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(MOST_TEXT).replace(b"\0", b" ").decode("utf-8", "replace")
        finally:
            os.close(descriptor)

    def _run_from(self, places: Sequence[str], text: str) -> Iterator[str]:
        """Yield the files of the folders out of which a script runs what a pattern or a variable stands for."""
        for name in dict.fromkeys(_RUN_FROM.findall(text)):
            for each in dict.fromkeys((name.strip("\"'"), name.partition("/")[2])):
                folders = [place for place in places if os.path.normpath(os.path.join(place, each)) not in places]
                yield from self._all_in(folders, each, code_alone=False)

    def _named_in_javascript(self, folders: Sequence[str], text: str) -> Iterator[str]:
        """Yield the packages that JavaScript imports, and its own files where it puts their names together."""
        yield from self._node_packages(folders, _SPECIFIER.findall(text))
        for name in _IMPORTED_FROM.findall(text):
            yield from self._all_in(folders, name, code_alone=True)
        joined = ["/".join(_ANY_QUOTED.findall(parts)) for parts in _JOINED.findall(text)]
        yield from self._of_words(folders, joined, code_alone=True)

    def _named_in_python(self, folders: list[str], text: str) -> Iterator[str]:
        root = self._root
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            yield from self._of_words([*folders, root], _split_words(text), code_alone=True)
            return
        modules: list[tuple[int, str]] = []
        texts: list[str] = []
        runs_data = False
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                modules += [(0, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                modules.append((node.level, base))
                modules += [(node.level, f"{base}.{alias.name}".lstrip(".")) for alias in node.names]
            elif isinstance(node, ast.Constant | ast.JoinedStr | ast.BinOp | ast.Call):
                texts.append(_evaluate(node))
                runs_data = runs_data or (isinstance(node, ast.Call) and _runs_data(node.func))
        texts = list(dict.fromkeys(each for each in texts if 0 < len(each.strip(_UNKNOWN)) < 1000))
        put_together = [each for each in texts if _UNKNOWN in each]
        texts = [each for each in texts if _UNKNOWN not in each]
        places = self._module_folders(folders)
        named = (os.path.join(beside, each) for each in texts for beside in (*folders, root))
        places = list(dict.fromkeys((*places, *(os.path.normpath(each) for each in named if self._is_folder(each)))))
        modules += [(0, each) for each in texts if _MODULE.fullmatch(each) and "." in each]  # `import_module("a.b")`
        for level, name in dict.fromkeys(modules):
            for place in [_above(each, level - 1) for each in folders] if level else places:
                yield from self._module(place, name)
        for place in (*folders, root):  # what stands in the place of a module of Python's own, whoever imports that
            for name in sorted(sys.stdlib_module_names.intersection(self._list(place))):
                yield from self._module(place, name)
        words = [word for each in texts for word in _split_words(each)]
        yield from self._of_words([*folders, root], words, code_alone=not runs_data)
        for each in put_together:
            yield from self._of_pattern([*folders, root], places, each, code_alone=not runs_data)

    def _of_pattern(
        self, folders: Sequence[str], places: Sequence[str], text: str, *, code_alone: bool
    ) -> Iterator[str]:
        """Yield all files that a text with unknown parts may name: of a path or of a module."""
        for word in text.split():
            known = word.lstrip(_UNKNOWN).lstrip("/")  # what stands before the first slash may be the workspace
            before = known.partition(_UNKNOWN)[0]
            if known == before:
                yield from self._of_words(folders, [known], code_alone=code_alone)
            elif "/" in before:
                yield from self._all_in(folders, before.rpartition("/")[0], code_alone=code_alone)
            elif before.endswith(".") and _MODULE.fullmatch(before[:-1]):
                for place in places:
                    for name in self._list(os.path.join(place, *before[:-1].split("."))):
                        yield from self._module(place, f"{before}{name}")

    def _all_in(self, folders: Sequence[str], name: str, *, code_alone: bool) -> Iterator[str]:
        """Yield all files right in a directory of the workspace that has this name from one of the folders."""
        for folder in folders:
            inner = os.path.normpath(os.path.join(folder, name))
            if f"{inner}/".startswith(self._inner) and inner != self._root:
                for each in itertools.chain.from_iterable(self._list(inner).values()):
                    yield from self._of_path(inner, each, code_alone)

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
                for place in self._module_folders(places):
                    yield from self._module(place, word)
        distinct = dict.fromkeys(words)
        self._budget.spend("names in scripts", len(distinct) * len(places))
        for word in distinct:
            if "/" not in word and word.partition(".")[0] not in known and word not in _MANIFESTS:
                continue
            for name in _MANIFESTS.get(os.path.basename(word), ()):
                yield from (file for place in places for file in self._inside(os.path.join(place, name)))
            if os.path.basename(word) == "go":
                yield from (file for place in places for file in self._go_package(place))
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
                    yield from self._go_package(found)
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


_UNKNOWN: Final = "\0"
"""Stands for the part of a text that is known only when a script runs."""
_JOINERS: Final = frozenset({"join", "joinpath", "Path", "PurePath", "PosixPath", "with_name"})
_RUNS_DATA: Final = frozenset({"exec", "eval", "pickle", "cloudpickle", "dill", "joblib", "marshal", "runpy"})
"""Functions and modules of Python that run what a file of any name contains."""


def _evaluate(node: ast.AST) -> str:
    """Return the text an expression of Python stands for, as far as it is known without running it."""
    match node:
        case ast.Constant(value=str() as text):
            return text.replace(_UNKNOWN, "")
        case ast.JoinedStr(values=parts):
            return "".join(map(_evaluate, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _evaluate(left) + _evaluate(right)
        case ast.BinOp(left=left, op=ast.Div(), right=right):
            return f"{_evaluate(left)}/{_evaluate(right)}"
        case ast.BinOp(left=left, op=ast.Mod()):
            return re.sub(r"%(?:\(\w*\))?[-+ #0-9.]*[a-zA-Z]", _UNKNOWN, _evaluate(left))
        case ast.Call(func=ast.Attribute(value=value, attr="format")):
            return re.sub(r"\{[^{}]*\}", _UNKNOWN, _evaluate(value))
        case ast.Call(func=ast.Attribute(value=value, attr="joinpath"), args=parts):
            return "/".join(map(_evaluate, [value, *parts]))
        case ast.Call(func=ast.Attribute(attr=name) | ast.Name(id=name), args=parts) if name in _JOINERS:
            return "/".join(map(_evaluate, parts))
        case _:
            return _UNKNOWN


def _runs_data(function: ast.AST) -> bool:
    """Return whether a call of this function runs data, such as `exec(...)` and `pickle.load(...)`."""
    while isinstance(function, ast.Attribute):
        function = function.value
    return isinstance(function, ast.Name) and function.id in _RUNS_DATA


def _package_words(words: Iterable[str]) -> list[str]:
    """Return the names of packages among words such as `@scope/name@1.2/file.js`."""
    return [found[1] for word in words if (found := _PACKAGE_WORD.fullmatch(word))]


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
