"""What a shell with memory remembers that gives a later command another meaning than its words have.

A function, an alias, a trap, a search path or a variable of an earlier command is heeded by all that follow: `ls` is no
read any more once there is a function of that name. The shell tells what it remembers after each command that may have
changed it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from surehand.core.frozen import field, frozen
from surehand.host.shell.options import names

TELLS: Final = (
    "builtin declare -F; builtin alias; builtin trap -p; builtin hash -l; builtin declare -px; "
    "builtin declare -p CDPATH HOME PATH GLOBIGNORE"
)
"""How bash tells it; to stand before `||`, where `set -e` and a trap on errors do not count."""

_LINE: Final = re.compile(
    r"declare -f\S* (?P<function>\S+)|alias (?P<alias>[^=\s]+)=.*|builtin hash -p (?P<program>.+) (?P<hashed>\S+)"
    r"|trap -- .*\b(?P<trap>DEBUG|ERR|RETURN|SIGCHLD)|declare -\S+ (?P<variable>\w+)=(?P<value>.*)",
    re.DOTALL,
)
_OF_NO_ACCOUNT: Final = frozenset({"PS1", "PS2", "PWD", "OLDPWD", "SHLVL", "PATH", "_"})
_FOR_LANGUAGES: Final = re.compile(
    r"(?:PYTHON|PIP_|PYTEST_|UV_|POETRY_|NODE_|NPM_|npm_|YARN_|PNPM_|DENO_|BUN_|JAVA_|JDK_|GO|CGO_|CARGO_|RUST|RUBY|GEM_|"
    r"BUNDLE_|PERL|PHP|LUA_|DOTNET_|CMAKE_|MAKE|CCACHE_).*|CC|CXX|C(?:XX|PP)?FLAGS|LDFLAGS"
)
"""Variables that only languages and builders heed."""
_LANGUAGES: Final = re.compile(
    r"(?:py|pip|uv|poetry|tox|ruff|mypy|node|np[mx]|yarn|pnpm|deno|bun|java|mvn|gradle|go|cargo|rust|ruby|gem|bundle|rake|"
    r"perl|php|lua|dotnet|c?make|ninja|cc|c\+\+|gcc|g\+\+|clang|tsc|jest).*"
)

_SETS: Final = re.compile(r"[=(){}]|\b(?:for|select|function|coproc)\b")
"""Signs of assignments, functions and loops; a redirection to a variable has braces."""
_SETTERS: Final = names(
    """. source eval exec export declare typeset local readonly unset alias unalias hash trap set shopt enable read
    mapfile readarray printf getopts let builtin command pushd popd dirs wait time"""
)


def may_remember(text: str, commands: Iterable[str]) -> bool:
    """Tell whether a command may leave something in the memory of its shell; a program it starts cannot."""
    return _SETS.search(text) is not None or not _SETTERS.isdisjoint(commands)


@frozen
class Memory:
    """What differs from a new shell; `unknown` when it could not tell."""

    functions: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Commands whose program the shell has found or was told."""
    traps: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those that programs see or the shell heeds, and that were set since it began, as bash writes their values."""
    path: str | None = None
    unknown: bool = False

    @classmethod
    def told(cls, text: str, at_first: frozenset[str]) -> Memory:
        """Read what the shell told; the lines it told `at_first` are those of every new shell."""
        found: dict[str, dict[str, str]] = {}
        lines = [line for line in text.split("\n") if line and line not in at_first]
        for match in filter(None, map(_LINE.fullmatch, lines)):
            for kind, name in match.groupdict().items():
                if name is not None and kind not in ("value", "program"):
                    found.setdefault(kind, {})[name] = match["value"] or match["program"] or ""
        variables = found.get("variable", {})
        return cls(
            frozenset(found.get("function", ())),
            frozenset(found.get("alias", ())),
            found.get("hashed", {}),
            frozenset(found.get("trap", ())),
            {name: value for name, value in variables.items() if name not in _OF_NO_ACCOUNT},
            _plain(variables["PATH"]) if "PATH" in variables else None,
            unknown=not text,
        )

    @property
    def acts(self) -> bool:
        """Whether it has what may act, and so change it, when a plain name is called."""
        return bool(self.functions or self.aliases or self.traps or self.unknown)

    def alters(self, commands: Iterable[str], cwd: str, path: str) -> str:
        """Say why commands of these names may be others than they seem; `path` is where a new shell looks for them."""
        if self.unknown:
            return "the shell could not tell what it remembers"
        if self.traps:
            return f"the shell has a trap on {', '.join(sorted(self.traps))}"
        asked = list(commands)
        if problem := self._variables_alter(asked):
            return problem
        for name in asked:
            if name in self.functions or name in self.aliases:
                kind = "a function" if name in self.functions else "an alias"
                return f"the shell has {kind} named {name}"
            if self._is_another(name, cwd, path):
                return f"the shell finds another program for {name}"
        return ""

    def _variables_alter(self, commands: list[str]) -> str:
        from surehand.host.shell.readonly import setting_problem
        from surehand.host.shell.word import Word

        for name, value in self.variables.items():
            if _FOR_LANGUAGES.fullmatch(name) and not any(map(_LANGUAGES.fullmatch, commands)):
                continue
            if problem := setting_problem(name, Word(_plain(value))):
                return f"the shell remembers {name}: {problem}"
        return ""

    def _is_another(self, name: str, cwd: str, path: str) -> bool:
        remembered = self.programs.get(name)
        if self.path is None and remembered is None:
            return False
        wanted = _program(name, path, cwd)
        found = _program(name, self.path, cwd) if self.path is not None else wanted
        return found != wanted or (remembered is not None and os.path.realpath(remembered) != wanted)


def _plain(value: str) -> str:
    """Return a value as it is, from how bash writes it; one with signs of quoting keeps them, and is no plain one."""
    inner = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return inner if "\\" not in inner else value


def _program(name: str, path: str, cwd: str) -> str:
    """Return the real path of the program a search path leads to; empty when there is none."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        file = os.path.join(cwd, folder, name)
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return os.path.realpath(file)
    return ""
