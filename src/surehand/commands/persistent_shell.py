"""The persistent shell: one bash for many commands, so that `cd` and exported variables carry over.

A byte on one pipe tells the shell to read a command from a memory file and to evaluate it; it reports exit code and
directory on another pipe. Commands do not inherit these descriptors. Nothing is forked for a command, which makes it an
order of magnitude faster than a new shell.

State of the shell can give a later command another meaning. Functions, aliases, traps, PATH and variables of earlier
commands apply to all that follow: `ls` may write once there is a function of that name, and `n=x` evaluates code once
`n` is an integer or a nameref. So the shell reports its state after each command that may have changed it.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from surehand.core.frozen import field, frozen, replace_values
from surehand.core.text import lazy_pattern
from surehand.sandbox.command import Command, Ended, Feed, SandboxFailure, bash
from surehand.sandbox.linux.client import Launcher, Run
from surehand.shell.options import names
from surehand.shell.programs import program_of
from surehand.shell.scope import setting_problem, variable_problem
from surehand.shell.word import Word

_REPORT_STATE: Final = (
    "[[ $PWD -ef . ]] || builtin echo lost PWD; [[ -v PATH ]] || builtin echo lost PATH; "
    "builtin declare -F; builtin alias; builtin trap -p; builtin hash -l; builtin enable -a; builtin declare -p"
)
"""Prints the state. To be followed by `||`, which disables `set -e` and error traps for it."""

_LINE: Final = lazy_pattern(
    r"declare -f\S* (?P<function>\S+)|alias (?P<alias>[^=\s]+)=.*|builtin hash -p (?P<program>.+) (?P<hashed>\S+)"
    r"|lost (?P<lost>\w+)|.*' (?P<trap>DEBUG|ERR|RETURN|SIGCHLD|EXIT)"  # the end of one, which may have several lines
    r"|enable (?P<builtin>.+)"
    r"|declare -(?P<attributes>\S+) (?P<variable>\w+)(?:=(?P<value>.*))?",
    re.DOTALL,
)
_IGNORED: Final = names(
    """PS1 PS2 PWD OLDPWD SHLVL PATH _ REPLY RANDOM SRANDOM SECONDS LINENO BASHPID PIPESTATUS EPOCHSECONDS EPOCHREALTIME
    HISTCMD OPTIND OPTARG OPTERR DIRSTACK COLUMNS LINES BASH_COMMAND BASH_LINENO BASH_SOURCE BASH_ARGC BASH_ARGV
    BASH_SUBSHELL BASH_ALIASES BASH_CMDS FUNCNAME GROUPS BASH_MONOSECONDS"""
)
"""Variables that bash itself keeps changing, or that only affect display; aliases and programs are reported as such."""
_ENDS: Final = names("exit break")
_ENDING_OPTIONS: Final = names("errexit nounset")
"""Options that make a shell exit by itself."""
_DECLARES: Final = names("declare typeset local")
_HARMLESS_OPTIONS: Final = names(
    "errexit nounset pipefail xtrace verbose expand_aliases checkwinsize interactive-comments"
)
"""Options that change the meaning of no command."""
_FOR_LANGUAGES: Final = lazy_pattern(
    r"(?:PYTHON|PIP_|PYTEST_|UV_|POETRY_|NODE_|NPM_|npm_|YARN_|PNPM_|DENO_|BUN_|JAVA_|JDK_|GO|CGO_|CARGO_|RUST|RUBY|GEM_|"
    r"BUNDLE_|PERL|PHP|LUA_|DOTNET_|CMAKE_|MAKE|CCACHE_).*|CC|CXX|C(?:XX|PP)?FLAGS|LDFLAGS"
)
"""Variables that only language runtimes and build tools read."""

_SETS: Final = lazy_pattern(r"[=(){}]|\b(?:for|select|function|coproc)\b")
"""Signs of assignments, functions and loops; a redirection to a variable has braces."""
_SETTERS: Final = names(
    """. source eval exec export declare typeset local readonly unset alias unalias hash trap set shopt enable read
    mapfile readarray printf getopts let builtin command pushd popd dirs wait time"""
)


def may_remember(text: str, commands: Iterable[str]) -> bool:
    """Tell whether a command may change the state of its shell; programs it starts cannot."""
    return _SETS.search(text) is not None or not _SETTERS.isdisjoint(commands)


@frozen
class Memory:
    """How the state differs from a new shell's; `unknown` if it could not be reported."""

    functions: frozenset[str] = frozenset()
    aliases: frozenset[str] = frozenset()
    programs: Mapping[str, str] = field(default_factory=dict[str, str])
    """Commands → hashed program path."""
    traps: frozenset[str] = frozenset()
    variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Exported variables set since it began, with values as bash quotes them."""
    own_variables: Mapping[str, str] = field(default_factory=dict[str, str])
    """Unexported variables."""
    evaluated: frozenset[str] = frozenset()
    """Variables with attributes that transform or evaluate assigned values.

    These are integers, namerefs, read-only and case-converting ones, and associative arrays.
    """
    arrays: frozenset[str] = frozenset()
    builtins: frozenset[str] = frozenset()
    """Builtins that were disabled, enabled or loaded."""
    options: frozenset[str] = frozenset()
    """Shell options that were set or unset since it began."""
    path: str | None = None
    lost: frozenset[str] = frozenset()
    """`PWD` if it is not the shell's directory, `PATH` if it is unset."""
    unknown: bool = False

    @classmethod
    def parse_report(cls, text: str, at_first: frozenset[str]) -> Memory:
        """Parse a state report; lines that are in `at_first`, the report of the new shell, are skipped."""
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
        path = (
            '""' if "PATH" in lost else variables.get("PATH", own.get("PATH"))
        )  # unset, it searches the current directory
        return cls(
            frozenset(found.get("function", ())),
            frozenset(found.get("alias", ())),
            found.get("hashed", {}),
            frozenset(found.get("trap", ())),
            {name: value for name, value in variables.items() if name not in _IGNORED},
            {name: value for name, value in own.items() if name not in _IGNORED | _OPTIONS},
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
        """Whether calling a plain name may run code that changes the state."""
        return bool(self.functions or self.aliases or self.traps or self.unknown)

    def alters(self, commands: Iterable[str], cwd: str, path: str, text: str = "") -> str:
        """Return why commands of these names may not be what they seem; empty if they are.

        `path` is the PATH of a new shell, `text` the whole line, for the variables it names.
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
"""All variables that bash itself uses, by its manual; unexported others affect no command."""
_SHELL_SETS: Final = lazy_pattern(
    r"_|MAPFILE|REPLY|(?:OLD)?PWD|OPT(?:IND|ARG|ERR)|PIPESTATUS|COPROC.*|LINES|COLUMNS|LINENO|DIRSTACK|HISTCMD|S?RANDOM|"
    r"SECONDS|EPOCH.*|FUNCNAME|GROUPS|BASH.*|COMP.*|READLINE_.*"
)
"""Variables that bash sets by itself."""
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
    """Unquote a value that bash printed in plain double quotes; a value with escapes is returned as it is."""
    inner = value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
    return inner if "\\" not in inner else value


def _program(name: str, path: str, cwd: str) -> str:
    """Return the real path of a program on a search path; empty if there is none."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        file = os.path.join(cwd, folder, name)
        if os.path.isfile(file) and os.access(file, os.X_OK):
            return os.path.realpath(file)
    return ""


_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")

# Descriptor 10: a byte per order. 11: reports. 12: the memory file with the order. All are closed while a command runs.
# The order is in a file because bash reads pipes byte by byte, and files in blocks. Its fields are the directory to
# change to (empty: none), the command, and whether to report the state after it, which is appended to the file.
# Output goes through 250, so that bash restores it after a command that redirects it for good (`exec >log`).
# `builtin` bypasses functions of the same names. The loop's own trace under `set -x` goes to 251, opened once: opening
# a file costs more than a command. The last exit code is reported before the next order is read, so that a stray
# `continue` or `break` in a command does not skip the report.
_LOOP: Final = f"""
exec 251>/dev/null
{{ {_REPORT_STATE}; }} >&12 2>&251 || [[ 1 ]]
while [[ 1 ]]; do
  while {{
    builtin printf -v REPLY '%s\\t' "$?"; [[ -z ${{REPLY[2]-}} ]] || {{ {_REPORT_STATE}; }} >&12
    {{ builtin printf %s "$REPLY"; builtin pwd; builtin printf '\\0'; }} >&11
    builtin read -r -N 1 -u 10 && builtin mapfile -d '' -n 3 -u 12 REPLY || builtin exit 1
  }} 2>&251; do
    if {{ [[ -z $REPLY ]]; }} 2>&251 || builtin cd -- "$REPLY"; then
      builtin eval "${{REPLY[1]}}" 12<&- 11>&- 10<&- 250>&1 1>&250 250>&2 2>&250 250>&- 251>&-
    else
      [[ -z x ]]
    fi
  done
done
builtin exit 1
"""


@frozen
class Step:
    """How one command ended, and the shell's directory; `cwd` is empty if the shell has ended."""

    ended: Ended
    cwd: str


class PersistentShell:
    """One bash of a session. `alive` turns false when it exits or is ended."""

    def __init__(self, launcher: Launcher, folder: str, cwd: str, environment: Mapping[str, str]) -> None:
        self.launcher = launcher
        self._cwd = cwd
        self._feeds: tuple[Feed, Feed] = (_discard, _discard)
        self._reports = b""
        self._loop = asyncio.get_running_loop()
        self._reported: asyncio.Future[None] = self._loop.create_future()
        self._at_first: frozenset[str] | None = None
        self.memory = Memory()
        """The state of the shell that changes what later commands mean."""
        self.end_is_known = False
        """Whether the result of a command said that the shell ended with it."""
        self.may_lie = False
        """Whether a function may have replaced a builtin that reports the state."""
        orders, self._orders = os.pipe()
        self._reader, reports = os.pipe()
        os.set_blocking(self._reader, False)
        self._order = os.memfd_create("order", os.MFD_CLOEXEC)
        command = Command((bash(), "-c", _LOOP), cwd, environment, descriptors=(orders, reports, self._order))
        self._run: Run = launcher.run(command, self._out, self._err, change_log=folder)
        self._run.told_waiting = self._note_waiting
        self.told_waiting: Callable[[str], None] | None = None
        """Called with the name of a program that begins to wait for input."""
        os.close(orders)
        os.close(reports)
        self._loop.add_reader(self._reader, self._read_reports)
        self._ended = self._loop.create_task(self._run.finish())
        self._ended.add_done_callback(self._end_report)
        self._length = 0
        self._status = -1
        self._used = 0.0
        self._quiet = False

    @property
    def alive(self) -> bool:
        """Whether the shell still runs."""
        return self._run.ended is None and not self._run.stopped

    def _out(self, data: bytes) -> None:
        self._feeds[0](data)

    def _err(self, data: bytes) -> None:
        self._feeds[1](data)

    def _note_waiting(self, name: str) -> None:
        if self.told_waiting is not None:
            self.told_waiting(name)

    async def run(
        self,
        text: str,
        cwd: str,
        stdout: Feed,
        stderr: Feed,
        timeout_s: float,
        change_log: str | None = None,
        *,
        remembers: bool = False,
    ) -> Step:
        """Run one command in the shell, in `cwd`; with `remembers`, read the state of the shell afterwards."""
        remembers = remembers or self.memory.acts
        began = time.monotonic()
        self._feeds = (stdout, stderr)
        ordered = False
        timer = self._loop.call_later(timeout_s, self._run.stop, "timeout")
        try:
            await self._prepare(change_log)
            self._write_order("" if cwd == self._cwd else cwd, text, "m" if remembers else "")
            ordered = os.write(self._orders, b"x") > 0
            self._read_reports()  # a short command has often ended by now
            await self._reported
        except (BrokenPipeError, SandboxFailure):
            await asyncio.shield(self._ended)
        except asyncio.CancelledError:
            self._run.stop("cancelled", 1.5)
            await asyncio.shield(self._ended)
            raise
        finally:
            timer.cancel()
            self._run.drain()
            self._feeds = (_discard, _discard)
        wall = time.monotonic() - began
        if (ended := self._run.ended) is not None:
            return Step(_as_command_end(ended, wall, ordered), "")
        facts = await self._run.ask(("finish log",)) if change_log is not None else None
        before, self._used = self._used, self._cpu_s()
        return self._step(wall, self._used - before, facts, remembers)

    async def _prepare(self, change_log: str | None) -> None:
        """Wait until the shell is ready and its supervisor records into the new change log."""
        if self._at_first is None:
            await self._reported
            self._at_first = frozenset(self._read_report(0).split("\n"))
        self._reported, self._reports = self._loop.create_future(), b""
        if change_log is not None:
            await self._run.begin_change_log(change_log)
        elif not self._quiet:
            await self._run.ask(("finish log",))  # changes between commands are not recorded
        self._quiet = True
        if self._run.ended is not None:
            raise SandboxFailure("the shell has ended")

    def _write_order(self, *fields: str) -> None:
        """Write the next order into the memory file."""
        view = memoryview(b"".join(field.encode("utf-8", "surrogateescape") + b"\0" for field in fields))
        self._length = len(view)
        if fields[-1]:
            os.ftruncate(self._order, 0)  # the report follows the order, to the end of the file
        os.lseek(self._order, 0, os.SEEK_SET)
        while view:
            view = view[os.write(self._order, view) :]
        os.lseek(self._order, 0, os.SEEK_SET)  # the shell shares this file position

    def _step(self, wall_s: float, cpu_s: float, facts: Mapping[str, Any] | None, remembers: bool) -> Step:
        code, _, cwd = self._reports.removesuffix(b"\n\0").partition(b"\t")
        if not code.isdigit():  # a trace redirected to standard output is mixed into the report
            why = "the shell could not tell how the command ended"
            self._run.stop(why, 0.5)
            return Step(Ended(exit_code=-1, wall_s=wall_s, stopped=why, change_log=facts), "")
        self._cwd = os.fsdecode(cwd)
        if remembers:
            report = "" if self.may_lie else self._read_report(self._length)
            self.memory = Memory.parse_report(report, self._at_first or frozenset())
        return Step(Ended(exit_code=int(code), cpu_s=max(cpu_s, 0.0), wall_s=wall_s, change_log=facts), self._cwd)

    def _read_report(self, begin: int) -> str:
        """Return the state report that follows an order of this length."""
        return os.fsdecode(os.pread(self._order, os.fstat(self._order).st_size - begin, begin))

    def _read_reports(self) -> None:
        try:
            data = os.read(self._reader, 65536)
        except BlockingIOError:
            return
        self._reports += data
        if not data:
            self._loop.remove_reader(self._reader)
        elif data.endswith(b"\0") and not self._reported.done():
            self._reported.set_result(None)

    def _end_report(self, ended: asyncio.Task[Ended]) -> None:
        """Wake whoever waits for a report: the shell has ended."""
        if not self._reported.done():
            self._reported.set_result(None)

    def _cpu_s(self) -> float:
        """Return the CPU time of the shell and of the children it waited for."""
        try:
            if self._status < 0:
                self._status = _open_status(self._run.supervisor_pid)
            ticks = os.pread(self._status, 1024, 0).rpartition(b")")[2].split(None, 15)[11:15]
        except (OSError, IndexError, ValueError):
            return 0.0
        return sum(map(int, ticks)) / _TICKS_A_SECOND

    async def close(self) -> None:
        """End the shell and all its processes."""
        self._run.stop("the session was closed", 0.5)
        await asyncio.gather(self._ended, return_exceptions=True)
        self._loop.remove_reader(self._reader)
        for descriptor in (self._reader, self._orders, self._order, *([self._status] if self._status >= 0 else [])):
            os.close(descriptor)


def _open_status(supervisor: int) -> int:
    """Open the `stat` of a supervisor's only child, to be kept open: reading it again is four times as fast."""
    with open(f"/proc/{supervisor}/task/{supervisor}/children", encoding="ascii") as children:
        pid = children.read().split()[0]
    return os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)


def _as_command_end(ended: Ended, wall_s: float, ordered: bool) -> Ended:
    """Return how a command ended whose shell ended; without an exit code if the command was never started."""
    if ordered or ended.stopped:
        return replace_values(ended, wall_s=wall_s)
    return replace_values(ended, wall_s=wall_s, exit_code=-1, stopped="the shell had ended before it began")


def _discard(data: bytes) -> None:
    """Discard output printed between two commands."""
