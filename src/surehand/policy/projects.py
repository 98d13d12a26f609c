"""Files of projects that make read-only commands do more than read: git settings, pinned versions, symlinks, modules.

A pinned tool chain makes `cargo --version` run a program of the folder, `fix = true` makes `ruff check` write, and a
manifest that is a symlink can make its tool quote a line of another file in an error. The directories a command runs in
are among its reads (`obeys_folder`); each, and those above it, is searched as the programs do. Settings that cannot be
parsed make the command ask.
"""

from __future__ import annotations

import itertools
import os
import posixpath
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, cast

from surehand.core.effects import ReadPath, RunCommand, WritePath
from surehand.core.secrets import is_secret
from surehand.core.text import lazy_pattern

if TYPE_CHECKING:
    from surehand.policy.policy import Request
    from surehand.shell.programs.record import Program

# File that pins a version → (the programs that obey it, what in it is a path instead of a version), both patterns.
_PINS: dict[str, tuple[str, str]] = {
    "rust-toolchain": (r"cargo|rustc|rustup|rustfmt", r"(?m)^\s*path\s*=|/"),
    "rust-toolchain.toml": (r"cargo|rustc|rustup|rustfmt", r"path|\\u"),
    ".python-version": (r"python[0-9.]*|pip[0-9.]*|black|mypy|ruff|pyenv", "/"),
    ".ruby-version": (r"ruby|gem|rbenv", "/"),
    ".node-version": (r"node|npm|npx|tsc|yarn|pnpm|nodenv", "/"),
    ".go-version": (r"go|gofmt", "/"),
    ".java-version": (r"java|javac|javap|jar|jps", "/"),
    ".php-version": (r"php", "/"),
    ".perl-version": (r"perl", "/"),
    ".lua-version": (r"lua", "/"),
    ".terraform-version": (r"terraform", "/"),
    ".opentofu-version": (r"tofu", "/"),
    ".tool-versions": (r".*", r"\bpath:"),
    "mise.toml": (r".*", r"path:|\\u"),
    ".mise.toml": (r".*", r"path:|\\u"),
}
# Manifests and settings a program reads in its directory and above; none may be a symlink to outside the roots.
_SETTINGS: dict[str, tuple[str, ...]] = {
    "cargo": (
        "Cargo.toml",
        ".cargo/config",
        ".cargo/config.toml",
        "rust-toolchain",
        "rust-toolchain.toml",
        "rustfmt.toml",
        ".rustfmt.toml",
    ),
    "rustfmt": ("rustfmt.toml", ".rustfmt.toml"),
    "go": ("go.mod", "go.work", "go.sum", "vendor/modules.txt"),
    "npm": ("package.json", "package-lock.json", "npm-shrinkwrap.json", ".npmrc"),
    "ruff": ("ruff.toml", ".ruff.toml", "pyproject.toml"),
    "black": ("pyproject.toml",),
    "isort": (".isort.cfg", "pyproject.toml", "setup.cfg", "tox.ini", ".editorconfig"),
    "ack": (".ackrc", "_ackrc"),
    "shellcheck": (".shellcheckrc", "shellcheckrc"),
    "yamllint": (".yamllint", ".yamllint.yaml", ".yamllint.yml"),
    "yarn": (".yarnrc", ".yarnrc.yml", "package.json"),
    "pnpm": (".npmrc", ".pnpmfile.cjs", ".pnpmfile.mjs", "pnpm-workspace.yaml", "package.json"),
}
_LIMIT = 256 * 1024
_MOST_FOLDERS = 4_000
_OTHERS_CODE = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", ".tox", ".mypy_cache", ".ruff_cache"})
_CARGO_SETTINGS = frozenset({"net", "term", "profile", "future-incompat-report"})  # none of them names a program
_LEADS_AWAY = lazy_pattern(r"[^\s\"'=,\[\](){}]*\.\.[^\s\"',\])}]*|(?<=[\"'\s])[/~](?!/)[^\s\"',\])}]*")


def project_problem(effect: RunCommand, request: Request) -> str:
    """Return why a read-only command must ask because of files where it runs; empty if it need not. Not for git."""
    program = posixpath.basename(effect.words[0]) if effect.words else ""
    if not program or program == "git":
        return ""
    folders = dict.fromkeys(_folder(each.path) for each in effect.implies if isinstance(each, ReadPath))
    upwards = dict.fromkeys(above for folder in folders for above in _upwards(folder))
    return (
        _written_problem(program, _steers(program, effect), request)
        or _pin_problem(program, upwards, request)
        or _module_problem(program, effect, folders)
        or _settings_problem(program, effect, request, upwards, folders)
    )


def record_of(program: str) -> Program:
    """Return the record of the program with this path or name."""
    from surehand.shell.programs import program_of  # lazy: the shell's records of programs, about 30 ms

    return program_of(posixpath.basename(program))


def _steers(program: str, effect: RunCommand) -> Callable[[str], bool]:
    """Return a test for the names (lower case) of files that change what a program does or reads."""
    names = {name for name, (programs, _) in _PINS.items() if re.fullmatch(programs, program)}
    names |= set(_SETTINGS.get(program, ()) if program in _JUDGES else ())
    if record_of(program).opens_list and any(map(_CHECKS.match, effect.words)):
        names |= {word.lower() for word in effect.words[1:]}  # `sha256sum -c LIST` reads every file that LIST names
    imports = _imports_from_its_folder(program, effect)
    return lambda name: name in {each.rpartition("/")[2] for each in names} or (imports and _is_python_module(name))


_CHECKS = lazy_pattern(r"--check|-\w*c")


def _written_problem(program: str, steers: Callable[[str], bool], request: Request) -> str:
    """Return why the check is void: the same call writes a file that steers the program. Empty if it does not."""
    for effect in request.effects or ():
        if isinstance(effect, WritePath):
            paths = [path.lower() for path in (effect.path, os.path.realpath(effect.path))]
            if any(steers(re.sub(r"/__init__\.[^/]*\Z", "", path).rpartition("/")[2]) for path in paths):
                return f"{effect.path}, which the same line writes, steers {program}"
    return ""


def heeds_a_project(program: str) -> bool:
    """Return whether a program of this name obeys files of its folder."""
    return program in _SETTINGS or any(re.fullmatch(programs, program) for programs, _ in _NAMED_PINS)


_NAMED_PINS = [pin for pin in _PINS.values() if pin[0] != ".*"]


def _pin_problem(program: str, folders: dict[str, None], request: Request) -> str:
    """Return which version file names the program by a path, or is a symlink to a file that an error would quote."""
    if not heeds_a_project(program):
        return ""
    for folder in folders:
        for name, (programs, place) in _PINS.items():
            if not re.fullmatch(programs, program):
                continue
            path = os.path.join(folder, name)
            if re.search(place, _read(path)):
                return f"{name} in {folder} chooses the {program} that runs by a path"
            if os.path.islink(path) and _leads_out(path, request) and not _leads_out(folder, request):
                return f"{path} is a link to a file elsewhere, which {program} would read"
    return ""


def _settings_problem(
    program: str, effect: RunCommand, request: Request, upwards: dict[str, None], folders: dict[str, None]
) -> str:
    """Return which settings would make the program do more than read."""
    settings = _SETTINGS.get(program, ())
    nested = [*_below(folders, request)] if program == "ruff" and settings else []
    if None in nested:
        return f"there are too many folders here to look for the settings of {program}"
    judge = _JUDGES.get(program)
    for folder in dict.fromkeys([*upwards, *(each for each in nested if each is not None)]):
        for name in settings:
            path = os.path.join(folder, name)
            if os.path.islink(path) and _leads_out(path, request):
                return f"{path} is a link to a file elsewhere, which {program} would read"
            if judge is not None and os.path.lexists(path) and (problem := judge(path, effect, request)):
                return problem
    return ""


def _cargo(path: str, effect: RunCommand, request: Request) -> str:
    folder, name = os.path.split(path)
    if name == "Cargo.toml":
        return _points_away(path, folder, request)
    if name.lstrip(".").startswith("rust") or os.path.dirname(folder) == os.path.expanduser("~"):
        return ""  # the settings in the home folder are the user's own
    found = _toml(path)
    named = [] if found is None else sorted(found.keys() - _CARGO_SETTINGS)
    return f"{path} may choose programs that cargo runs" if found is None or named else ""


def _go(path: str, effect: RunCommand, request: Request) -> str:
    return _points_away(path, os.path.dirname(path), request) if path.endswith((".mod", ".work")) else ""


def _ruff(path: str, effect: RunCommand, request: Request) -> str:
    found = _toml(path)
    if found is None:
        return f"{path} cannot be read"
    if path.endswith("pyproject.toml"):
        found = _table(_table(found, "tool"), "ruff")
    base = found.get("extend")
    if base is not None and (not isinstance(base, str) or re.search(r"[$~]", base)):
        return f"{path} extends settings of another place"
    if isinstance(base, str) and _leads_out(os.path.join(os.path.dirname(path), base), request):
        return f"{path} extends settings of another place ({base})"
    checks = "format" not in effect.words and not {"--no-fix", "--diff"} & set(effect.words)
    if checks and (found.get("fix") or found.get("fix-only")):
        return f"{path} has ruff fix what it finds"
    return ""


def _javascript(path: str, effect: RunCommand, request: Request) -> str:
    """Return which file chooses the release of the package manager, or code that it loads."""
    folder, name = os.path.split(path)
    if name == "package.json":
        chooses = re.search(r"packageManager|devEngines|\\u", _read(path))
        return f"{path} may choose the {effect.words[0]} that runs" if chooses else ""
    own = folder == os.path.expanduser("~")
    return "" if own else f"{path} may name code that {effect.words[0]} loads"


def _ack(path: str, effect: RunCommand, request: Request) -> str:
    own = os.path.dirname(path) == os.path.expanduser("~")
    return "" if own else f"{path} has options for ack"


def _yamllint(path: str, effect: RunCommand, request: Request) -> str:
    rest = re.sub(r"(?m)^extends: *(?:default|relaxed) *$", "", _read(path))
    return f"{path} may name other files that yamllint reads" if re.search(r"extends|from-file|\\", rest) else ""


def _shellcheck(path: str, effect: RunCommand, request: Request) -> str:
    own = os.path.dirname(path) == os.path.expanduser("~")
    plain = own or all(_PLAIN_CHECK.fullmatch(line.strip()) for line in _read(path).split("\n"))
    return "" if plain else f"{path} may have shellcheck read and quote the files that scripts name"


_PLAIN_CHECK = lazy_pattern(r"(?:(?:disable|enable|shell)=[\w,-]+)?\s*(?:#.*)?", re.ASCII)


_JUDGES: dict[str, Callable[[str, RunCommand, Request], str]] = {
    "cargo": _cargo, "go": _go, "ruff": _ruff, "yarn": _javascript, "pnpm": _javascript, "ack": _ack,
    "shellcheck": _shellcheck, "yamllint": _yamllint,
}  # fmt: skip
# Modules of Python releases newer than this interpreter, and `pip`, which `-m` runs.
_NEWER_MODULES = frozenset({"annotationlib", "compression", "profiling", "pip"})
# `copy` of older releases tries to import `org.python.core` (Jython); a package `org` is found without `__init__` too.
_JYTHON = "org"


def _imports_from_its_folder(program: str, effect: RunCommand) -> bool:
    return program.startswith("python") and "-m" in effect.words


def _is_python_module(name: str) -> bool:
    """Return whether a file or folder has the name of a standard module, or starts with `_` like private ones."""
    module = name.partition(".")[0]
    known = module in sys.stdlib_module_names or module in _NEWER_MODULES or module == _JYTHON
    return known or re.match("_[^_]", module) is not None


def _module_problem(program: str, effect: RunCommand, folders: dict[str, None]) -> str:
    """Return which file `python -m` would import instead of a standard module: it searches its directory first."""
    if not _imports_from_its_folder(program, effect):
        return ""
    try:
        found = next((path for folder in folders for path in _find_modules(folder)), "")
    except OSError as problem:
        return f"whether {program} would import modules of its folder cannot be found out: {problem}"
    return f"{found} would be imported in place of a module of Python" if found else ""


def _find_modules(folder: str) -> Iterator[str]:
    for name in filter(_is_python_module, os.listdir(folder)):
        path = os.path.join(folder, name)
        first = ("__init__.", "python") if name == _JYTHON else "__init__."
        if "." in name or (os.path.isdir(path) and any(each.startswith(first) for each in os.listdir(path))):
            yield path


def _points_away(path: str, folder: str, request: Request) -> str:
    """Return why a manifest must ask: it names a path outside the roots. Empty if it names none."""
    for word in _LEADS_AWAY.findall(re.sub(r"(?m)(?:#|//).*$", "", _read(path))):
        if _leads_out(os.path.join(folder, os.path.expanduser(word.strip("\"'"))), request):
            return f"{path} leads to {word}, outside the workspace"
    return ""


def _leads_out(path: str, request: Request) -> bool:
    real = os.path.realpath(path)
    roots = (os.path.realpath(root) for root in (request.workspace, *request.roots))
    return is_secret(real) or not any(real == root or real.startswith(root.rstrip("/") + "/") for root in roots)


def _below(folders: dict[str, None], request: Request) -> Iterator[str | None]:
    """Yield these folders and all below, where a tool that walks trees finds more settings; None once too many."""
    count = 0
    waiting = [folder for folder in folders if not _leads_out(folder, request)]
    while waiting:
        folder = waiting.pop()
        count += 1
        if count > _MOST_FOLDERS:
            yield None
            return
        yield folder
        try:
            with os.scandir(folder) as entries:
                waiting += [
                    entry.path
                    for entry in entries
                    if entry.name not in _OTHERS_CODE and entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            continue


def _folder(path: str) -> str:
    return path if os.path.isdir(path) else os.path.dirname(path)


def _upwards(folder: str) -> Iterator[str]:
    """Yield a folder and all folders above it, both as named and with links resolved."""
    for start in dict.fromkeys((os.path.normpath(folder), os.path.realpath(folder))):
        yield (above := start)
        while (higher := os.path.dirname(above)) != above:
            yield (above := higher)


def _table(found: dict[str, Any], name: str) -> dict[str, Any]:
    inner = found.get(name)
    return cast("dict[str, Any]", inner) if isinstance(inner, dict) else {}


def _toml(path: str) -> dict[str, Any] | None:
    import tomllib

    text = _read(path)
    try:
        return tomllib.loads(text) if len(text) < _LIMIT else None
    except (tomllib.TOMLDecodeError, RecursionError):
        return None


def _read(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.read(descriptor, _LIMIT).decode(errors="replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)


# -- git's own settings, and secrets in its history ------------------------------------------------------------------


def repository_problem(effect: RunCommand, request: Request) -> str:
    """Return why a read-only `git` must ask: files here make it run or read others, or it may print a secret."""
    if not effect.words:
        return ""
    if posixpath.basename(effect.words[0]) != "git":
        return ""
    if problem := _written_problem("git", _STEERS_GIT.__contains__, request):
        return problem
    from surehand.git.model import find_risks  # lazy: model, 11 ms

    if any("{}" in word for option, word in itertools.pairwise(effect.words) if option == "-C"):
        return "git is run in folders that cannot be known before"
    named = [os.path.join(request.cwd, folder) for folder in _git_folders(effect, request)]
    folders = dict.fromkeys(os.path.realpath(each) for folder in named for each in (folder, os.path.normpath(folder)))
    found = dict.fromkeys(name for folder in folders for name in find_risks(folder, request.roots))
    if found:
        return f"this repository's own files say what git runs or reads ({', '.join(found)})"
    return _committed_secret(effect, folders, request)


# Names (lower case) of files that make a directory a git repository, or configure one.
_STEERS_GIT = frozenset(
    {
        *("head", "config", "config.worktree", "commondir", "gitdir", "index", "alternates", "attributes"),
        *(".git", ".gitmodules", ".gitattributes"),
    }
)


def _committed_secret(effect: RunCommand, folders: Iterable[str], request: Request) -> str:
    """Return which secret of the history a command may print."""
    from surehand.git.calls import parse_call, prints, prints_notes  # lazy: calls, 5 ms
    from surehand.shell.programs.git import spell_out  # lazy: git's options, 2 ms, for git alone

    call = parse_call(spell_out(effect.words))
    if call is None or not (prints(call) or prints_notes(call)):
        return ""
    from surehand.git.secret_history import find_secret_reached  # lazy: secret_history, 20 ms

    for folder in folders:
        found = find_secret_reached(call, folder, is_secret)
        if found == "?":
            return "whether it prints a secret out of the history could not be found out"
        if found:
            return f"it may print {found} as it was committed, which holds secrets"
    return ""


def _git_folders(effect: RunCommand, request: Request) -> Iterator[str]:
    """Yield the folders git may be in: those it reads, wherever the line moved to, and those named by `-C` and `cd`."""
    yield request.cwd
    yield from (each.path for each in effect.implies if isinstance(each, ReadPath))
    named = [word for option, word in itertools.pairwise(effect.words) if option == "-C"]
    for folder in (*named, *_cd_targets(request)):
        yield os.path.join(request.cwd, folder)


def _cd_targets(request: Request) -> list[str]:
    """Return where each `cd` of the line leads: from the folder of the call, and from where the one before it led."""
    words = [each.words for each in request.effects or () if isinstance(each, RunCommand)]
    named = [each[-1] for each in words if len(each) > 1 and each[0] in ("cd", "pushd")]
    return [*named, *itertools.accumulate(named, os.path.join)]
