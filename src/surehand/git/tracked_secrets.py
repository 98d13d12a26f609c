"""Keeps git working on tracked secrets that the sandbox hides, without printing them.

Two mechanisms: a copy of `info` is mounted over that of every repository, whose attributes mark all secret names as
`-diff`; these take precedence over any attribute in the repository, and git reports what it leaves out. And command
lines of git that read files without printing them run with tracked secrets visible: if `.env` seemed to be an empty
file, `git status` would be wrong and `git commit -a` would commit that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Sequence
from functools import cache
from typing import Final

from surehand.core.secrets import SECRET_PATTERNS, is_secret
from surehand.core.text import lazy_pattern
from surehand.git.calls import GitCall, parse_call
from surehand.git.config import read_plain, settings_of
from surehand.git.model import find_risks
from surehand.git.repositories import Repository, inner_repositories, read_tracked, repositories_around
from surehand.git.wildmatch import translate

_HEADING: Final = b"\n# Surehand: no change of a secret is printed.\n"
_INFO: Final = 1 << 20


def make_info(git_dir: str, folder: str) -> None:
    """Write the replacement for a repository's `info` to `folder`."""
    os.makedirs(folder, exist_ok=True)
    own = os.path.join(git_dir, "info")
    for name in os.listdir(own) if os.path.isdir(own) else ():
        data = read_plain(os.fsencode(os.path.join(own, name)), _INFO)
        if data is not None:
            _write(os.path.join(folder, name), data)
    before = read_plain(os.fsencode(os.path.join(own, "attributes")), _INFO) or b""
    _write(os.path.join(folder, "attributes"), before + _HEADING + _attributes(git_dir))


def _write(path: str, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)


def _attributes(git_dir: str) -> bytes:
    lines = [_line(pattern) for pattern in SECRET_PATTERNS if not pattern.startswith("/")]
    exact = (each.path for each in read_tracked(git_dir) if is_secret(each.path))
    lines += [_quote_pattern("/" + re.sub(r"([*?[\\])", r"\\\1", path)) + " -diff" for path in exact]
    return os.fsencode("\n".join(lines) + "\n")


def _line(pattern: str) -> str:
    word = "!diff" if pattern.startswith("!") else "-diff"
    return f"{_quote_pattern(_as_attribute(pattern))} {word}"


def _as_attribute(pattern: str) -> str:
    """Convert a pattern of secrets to the syntax of a gitattributes file."""
    name = pattern.removeprefix("!")
    if name.endswith("/"):
        name += "**"
    return f"**/{name}" if "/" in name else name


def is_left_out(path: str) -> bool:
    """Tell whether these attributes keep git from printing changes of a file, from whatever revision.

    Not all secrets match: git compares names case-sensitively, and names of backups are too many to list.
    """
    known = False
    for says, expression in _expressions():
        if known != says and expression.fullmatch(os.fsencode(path)):
            known = says
    return known


@cache
def _expressions() -> list[tuple[bool, re.Pattern[bytes]]]:
    """Return, for each line of attributes in order, whether it suppresses changes and what it matches."""
    found: list[tuple[bool, re.Pattern[bytes]]] = []
    for pattern in SECRET_PATTERNS:
        name = _as_attribute(pattern)
        expression = translate(os.fsencode(name if "/" in name else f"**/{name}"), pathname=True)
        if expression is not None and not pattern.startswith("/"):
            found.append((not pattern.startswith("!"), re.compile(expression, re.DOTALL)))
    return found


def _quote_pattern(pattern: str) -> str:
    escaped = pattern.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    return f'"{escaped}"'


def tracked_secrets(workspace: str, covered: Iterable[str], infos: Container[str] | None = None) -> tuple[str, ...]:
    """Return the covered files that are tracked by the repository around the workspace.

    With `infos`, the `info` directories that are replaced, also those tracked by nested repositories whose `info` is
    among them.
    """
    found: list[str] = []
    known = set(covered)
    for outer in repositories_around(workspace):
        inner = inner_repositories(outer) if infos is not None else ()
        shown = [each for each in inner if infos is not None and os.path.join(each.common, "info") in infos]
        for repository in (outer, *shown):
            names = (each.path for each in read_tracked(repository.git_dir) if is_secret(each.path))
            found += [path for name in names if (path := os.path.join(repository.top, name)) in known]
    return tuple(dict.fromkeys(found))


BY_SIZE_AND_TIME: Final = {"core.checkStat": "minimal"}
"""Makes git compare only size and time of files, which a cover can share with the file it covers."""

_SAFE: Final[dict[str, re.Pattern[str]]] = {
    "status": lazy_pattern(
        r"-[suzb]+.*|--(?:short|branch|show-stash|porcelain|long|untracked-files|ignored|no-renames).*"
    ),
    "add": lazy_pattern(r"-[Aufnv]+|--(?:all|update|force|dry-run|verbose|no-all|ignore-errors)"),
    "commit": lazy_pattern(
        r"-[aqm]+|--(?:all|message|quiet|amend|no-edit|allow-empty|signoff|no-gpg-sign|author|date).*"
    ),
    "diff": lazy_pattern(
        r"-[wbRMCU]\d*|--(?:cached|staged|stat|numstat|shortstat|name-only|name-status|summary|word-diff|no-color|color|"
        r"check|quiet|exit-code|submodule|unified|minimal|patience|histogram|ignore-.*|no-renames|find-renames|merge-base)(?:=.*)?"
    ),
    "ls-files": lazy_pattern(r"-[cdmostuz]+|--(?:cached|deleted|modified|others|exclude-standard|stage)"),
    "rm": lazy_pattern(r"-[rqf]+|--cached|--quiet|--force"),
    "reset": lazy_pattern(r"-q|--quiet|--mixed|--soft"),
    "restore": lazy_pattern(r"-[Sq]|--staged|--quiet"),
    "rev-parse": lazy_pattern(r"--(?:show-toplevel|abbrev-ref|short|verify|git-dir|is-inside-work-tree)"),
    "log": lazy_pattern(
        r"-\d+|-n\d*|--(?:oneline|format|pretty|max-count|all|graph|decorate|stat|name-only|name-status).*"
    ),
}
"""Subcommands that read files without printing their contents, with the options for which this holds."""


_LOOKS: Final = frozenset({"status", "diff", "ls-files", "rev-parse", "log"})
"""Those that may also run in a nested repository, by `-C`."""

_BY_ANY: Final = frozenset({"post-index-change", "reference-transaction"})
"""Hooks that run whenever git writes the index or a reference, not only for a commit."""


_TAKES_ALL: Final = lazy_pattern(r"-[Aufv]*[Au][Aufv]*|--all|--update")


def prints_nothing(
    commands: Sequence[Sequence[str]], workspace: str, roots: Sequence[str], cwd: str | None = None
) -> bool:
    """Tell whether git commands certainly print no file contents, in a repository that runs no program of its own.

    With `cwd`, their working directory, reading commands may also enter nested repositories by `-C`.
    """
    calls = _parse_quiet(commands, may_enter=cwd is not None)
    if not calls or find_risks(workspace, roots):
        return False
    if cwd is not None and any(call.folder for call in calls):
        known = [each for outer in repositories_around(workspace) for each in (outer, *inner_repositories(outer))]
        folders = {each.git_dir for each in known}
        entered = [os.path.join(cwd, call.folder) for call in calls]
        if not all(each.git_dir in folders for folder in entered for each in repositories_around(folder)):
            return False
    hooks = {name for repository in repositories_around(workspace) for name in _list_hooks(repository)}
    return not (hooks if any(call.name == "commit" for call in calls) else hooks & _BY_ANY)


def find_staged(commands: Sequence[Sequence[str]], cwd: str, secrets: Sequence[str]) -> dict[str, bool]:
    """Return the secrets that a line of quiet git commands stages before it commits, and whether `git add` does so.

    Pathspecs with wildcards or magic stage none here.
    """
    calls = _parse_quiet(commands)
    found: dict[str, bool] = {}
    for call in calls if any(call.name == "commit" for call in calls) else ():
        if call.name == "commit" and any(re.fullmatch(r"-[aqm]*a[aqm]*|--all", word) for word in call.words):
            found = dict.fromkeys(secrets, False) | found
        elif call.name == "add":
            plain = (word for word in call.words if not re.match(r"-|.*[:*?[\\]", word))
            named = [os.path.normpath(os.path.join(cwd, word)) for word in plain]
            everything = any(_TAKES_ALL.fullmatch(word) for word in call.words)
            everything &= all(word.startswith("-") for word in call.words)
            within = [path for path in secrets if any(f"{path}/".startswith(f"{each}/") for each in named)]
            found |= dict.fromkeys(secrets if everything else within, True)
    return found


def _parse_quiet(commands: Sequence[Sequence[str]], *, may_enter: bool = False) -> list[GitCall]:
    """Parse commands that all certainly print no file contents; an empty list if one may.

    With `may_enter`, reading commands may name another directory by `-C`.
    """
    calls: list[GitCall] = []
    for words in commands:
        call = parse_call(words)
        known = _SAFE.get(call.name) if call is not None else None
        if call is None or known is None or not call.plain:
            return []
        if call.folder and not (may_enter and call.name in _LOOKS):
            return []
        if any(word.startswith("-") and word != "--" and not known.fullmatch(word) for word in call.words):
            return []
        if call.name == "commit" and not any(
            re.match(r"-[aq]*m|--message|--no-edit|--amend", word) for word in call.words
        ):
            return []  # it would start an editor
        calls.append(call)
    return calls


def _list_hooks(repository: Repository) -> list[str]:
    """Return the names of a repository's hooks, also in `core.hooksPath`."""
    settings = settings_of(os.fsencode(repository.git_dir), os.fsencode(repository.common))
    elsewhere = os.path.expanduser(os.fsdecode(settings.get(b"core.hookspath", b"")))
    folder = os.path.join(repository.top, elsewhere) if elsewhere else os.path.join(repository.common, "hooks")
    try:
        return [name for name in os.listdir(folder) if not name.endswith(".sample")]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError:
        return [*_BY_ANY]  # unreadable: assume the ones that matter
