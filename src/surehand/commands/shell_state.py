"""What a shell with memory remembers that gives a later command another meaning than its words have.

A function, an alias, a trap, a search path or a variable of an earlier command is heeded by all that follow: `ls` is no
read any more once there is a function of that name, and `n=x` evaluates code once `n` is an integer or another name for
something. The shell tells what it remembers after each command that may have changed it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Final

from surehand.core.frozen import field, frozen
from surehand.core.text import lazy_pattern
from surehand.shell.options import names
from surehand.shell.programs import program_of
from surehand.shell.scope import setting_problem, variable_problem
from surehand.shell.word import Word

TELLS: Final = (
    "[[ $PWD -ef . ]] || builtin echo lost PWD; [[ -v PATH ]] || builtin echo lost PATH; "
    "builtin declare -F; builtin alias; builtin trap -p; builtin hash -l; builtin enable -a; builtin declare -p"
)
"""How bash tells it; to stand before `||`, where `set -e` and a trap on errors do not count."""

_LINE: Final = lazy_pattern(
    r"declare -f\S* (?P<function>\S+)|alias (?P<alias>[^=\s]+)=.*|builtin hash -p (?P<program>.+) (?P<hashed>\S+)"
    r"|lost (?P<lost>\w+)|.*' (?P<trap>DEBUG|ERR|RETURN|SIGCHLD|EXIT)"  # the end of one, which may have several lines
    r"|enable (?P<builtin>.+)"
    r"|declare -(?P<attributes>\S+) (?P<variable>\w+)(?:=(?P<value>.*))?",
    re.DOTALL,
)
_OF_NO_ACCOUNT: Final = names(
    """PS1 PS2 PWD OLDPWD SHLVL PATH _ REPLY RANDOM SRANDOM SECONDS LINENO BASHPID PIPESTATUS EPOCHSECONDS EPOCHREALTIME
    HISTCMD OPTIND OPTARG OPTERR DIRSTACK COLUMNS LINES BASH_COMMAND BASH_LINENO BASH_SOURCE BASH_ARGC BASH_ARGV
    BASH_SUBSHELL BASH_ALIASES BASH_CMDS FUNCNAME GROUPS BASH_MONOSECONDS"""
)
"""Variables that the shell itself changes all the time, or that only show; aliases and programs are told as such."""
_ENDS: Final = names("exit break")
_ENDING_OPTIONS: Final = names("errexit nounset")
"""Options with which a shell ends by itself."""
_DECLARES: Final = names("declare typeset local")
_HARMLESS_OPTIONS: Final = names(
    "errexit nounset pipefail xtrace verbose expand_aliases checkwinsize interactive-comments"
)
"""Options of the shell that change no word's meaning."""
_FOR_LANGUAGES: Final = lazy_pattern(
    r"(?:PYTHON|PIP_|PYTEST_|UV_|POETRY_|NODE_|NPM_|npm_|YARN_|PNPM_|DENO_|BUN_|JAVA_|JDK_|GO|CGO_|CARGO_|RUST|RUBY|GEM_|"
    r"BUNDLE_|PERL|PHP|LUA_|DOTNET_|CMAKE_|MAKE|CCACHE_).*|CC|CXX|C(?:XX|PP)?FLAGS|LDFLAGS"
)
"""Variables that only languages and builders heed."""

_SETS: Final = lazy_pattern(r"[=(){}]|\b(?:for|select|function|coproc)\b")
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
    """Those that programs see, and that were set since it began, as bash writes their values."""
    own_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Those that the shell alone sees."""
    evaluated: frozenset[str] = frozenset()
    """Variables that do not take a value as it is: integers, references to names, constants, those in one case.

    So are associative arrays, which take a list for keys and values.
    """
    arrays: frozenset[str] = frozenset()
    builtins: frozenset[str] = frozenset()
    """What was switched off, on or loaded among the shell's own commands."""
    options: frozenset[str] = frozenset()
    """Options of the shell that were set or unset since it began."""
    path: str | None = None
    lost: frozenset[str] = frozenset()
    """`PWD` where it is not the directory of the shell, `PATH` where there is none."""
    unknown: bool = False

    @classmethod
    def parse_report(cls, text: str, at_first: frozenset[str]) -> Memory:
        """Read what the shell told; the lines it told `at_first` are those of every new shell."""
        found: dict[str, dict[str, str]] = {}
        evaluated: set[str] = set()
        arrays: set[str] = set()
        at_first_evaluated = {match["variable"] for match in _matches(at_first) if _evaluates(match)}
        for match in _matches(line for line in text.split("\n") if line and line not in at_first):
            name = match["variable"]
            if name is not None:
                kind = "variable" if "x" in match["attributes"] else "own"
                found.setdefault(kind, {})[name] = match["value"] or ""
                if _evaluates(match) and name not in at_first_evaluated:
                    evaluated.add(name)
                if "a" in match["attributes"]:
                    arrays.add(name)
            for kind in ("function", "alias", "hashed", "trap", "builtin", "lost"):
                if match[kind] is not None:
                    found.setdefault(kind, {})[match[kind]] = match["program"] or ""
        variables, own = found.get("variable", {}), found.get("own", {})
        lost = frozenset(found.get("lost", ()))
        path = '""' if "PATH" in lost else variables.get("PATH", own.get("PATH"))  # without one it looks where it is
        return cls(
            frozenset(found.get("function", ())),
            frozenset(found.get("alias", ())),
            found.get("hashed", {}),
            frozenset(found.get("trap", ())),
            {name: value for name, value in variables.items() if name not in _OF_NO_ACCOUNT},
            {name: value for name, value in own.items() if name not in _OF_NO_ACCOUNT | _OPTIONS},
            frozenset(evaluated),
            frozenset(arrays),
            frozenset(found.get("builtin", ())),
            _changed_options({**variables, **own}, at_first),
            _plain(path) if path is not None else None,
            lost,
            unknown=not text,
        )

    @property
    def acts(self) -> bool:
        """Whether it has what may act, and so change it, when a plain name is called."""
        return bool(self.functions or self.aliases or self.traps or self.unknown)

    def alters(self, commands: Iterable[str], cwd: str, path: str, text: str = "") -> str:
        """Say why commands of these names may be others than they seem; `path` is where a new shell looks for them.

        `text` is the whole line, for the variables it names.
        """
        if self.unknown:
            return "the shell could not tell what it remembers"
        asked = list(commands)
        may_end = not _ENDS.isdisjoint(asked) or "?" in text or not self.options.isdisjoint(_ENDING_OPTIONS)
        if traps := self.traps if may_end else self.traps - {"EXIT"}:
            return f"the shell has a trap on {', '.join(sorted(traps))}"
        if options := self.options - _HARMLESS_OPTIONS:
            return f"the shell has options that change how it reads ({', '.join(sorted(options))})"
        if self.builtins:
            return f"the shell's own commands were changed ({', '.join(sorted(self.builtins)[:4])})"
        if "command_not_found_handle" in self.functions:
            return "the shell has a function that runs for commands it does not find"
        words = set(_WORD.findall(text))
        if "PWD" in self.lost:
            return "the shell is not where its PWD says"
        if named := [name for name in sorted(self.evaluated) if name in words or _SHELL_SETS.fullmatch(name)]:
            return f"the shell makes something else of what {', '.join(named)} is set to"
        if not _DECLARES.isdisjoint(asked) and (lists := self.arrays & words):
            return f"the shell evaluates what {', '.join(sorted(lists))} is declared to be"
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
        no_language = all(program_of(name).heeds != "any" for name in commands)
        for name, value in self.variables.items():
            if no_language and _FOR_LANGUAGES.fullmatch(name):
                continue
            if problem := setting_problem(name, Word(_plain(value))):
                return f"the shell remembers {name}: {problem}"
        for name, value in self.own_variables.items():
            if _SHELL_HEEDS.fullmatch(name) and (problem := variable_problem(name, Word(_plain(value)))):
                return f"the shell remembers {name}: {problem}"
        return ""

    def _is_another(self, name: str, cwd: str, path: str) -> bool:
        remembered = self.programs.get(name)
        if self.path is None and remembered is None:
            return False
        wanted = _program(name, path, cwd)
        found = _program(name, self.path, cwd) if self.path is not None else wanted
        return found != wanted or (remembered is not None and os.path.realpath(remembered) != wanted)


_SHELL_HEEDS: Final = lazy_pattern(
    r"BASH.*|LC_.*|LANG.*|GLOB.*|HIST.*|COMP.*|MAIL.*|IFS|PS[0-9]|CDPATH|HOME|PATH|ENV|EXECIGNORE|FIGNORE|FUNCNEST|FCEDIT|"
    r"POSIXLY_CORRECT|TIMEFORMAT|TMOUT|TMPDIR|TZ|CHILD_MAX|IGNOREEOF|INPUTRC|INSIDE_EMACS|PROMPT_.*|READLINE_.*|TEXTDOMAIN.*"
)
"""All that the manual of bash says it uses itself; what is not exported is seen by nobody else."""
_SHELL_SETS: Final = lazy_pattern(
    r"_|MAPFILE|REPLY|(?:OLD)?PWD|OPT(?:IND|ARG|ERR)|PIPESTATUS|COPROC.*|LINES|COLUMNS|LINENO|DIRSTACK|HISTCMD|S?RANDOM|"
    r"SECONDS|EPOCH.*|FUNCNAME|GROUPS|BASH.*|COMP.*|READLINE_.*"
)
"""What bash sets by itself, whatever a line names."""
_WORD: Final = lazy_pattern(r"\w+")
_OPTIONS: Final = frozenset({"SHELLOPTS", "BASHOPTS"})


def _matches(lines: Iterable[str]) -> list[re.Match[str]]:
    return list(filter(None, map(_LINE.fullmatch, lines)))


def _evaluates(match: re.Match[str]) -> bool:
    return match["attributes"] is not None and not set("inrlucA").isdisjoint(match["attributes"])


def _changed_options(variables: Mapping[str, str], at_first: frozenset[str]) -> frozenset[str]:
    """Return the options that differ from those of a new shell."""
    before = {match["variable"]: match["value"] or "" for match in _matches(at_first) if match["variable"] in _OPTIONS}
    changed: set[str] = set()
    for name in _OPTIONS & variables.keys():
        changed |= set(_plain(variables[name]).split(":")) ^ set(_plain(before.get(name, "")).split(":"))
    return frozenset(changed - {""})


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
