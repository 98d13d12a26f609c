"""The scope at a point of a script: possible directories, known variables and functions; commands found."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

from surehand.core.frozen import frozen, replace_values
from surehand.core.text import lazy_pattern
from surehand.shell.options import names
from surehand.shell.syntax import Node
from surehand.shell.word import NUMBER, Word
from surehand.shell.wrappers import Wrapper

# All directories the shell may be in (a failed `cd` changes nothing); `None` means any directory.
Directories: TypeAlias = tuple[str | None, ...]


class Scope:
    """The state of one shell process; a subshell works on a copy."""

    __slots__ = ("directories", "functions", "previous_directories", "variables")

    def __init__(
        self,
        directories: Directories,
        variables: dict[str, Word | None] | None = None,
        functions: dict[str, tuple[Node | None, ...]] | None = None,
        previous_directories: Directories = (None,),
    ) -> None:
        self.directories = directories
        self.variables = {} if variables is None else variables
        self.functions = {} if functions is None else functions
        """The bodies a function may have; `None` among them if the name may also be that of a program."""
        self.previous_directories = previous_directories
        """Where `cd -` may lead; empty if the shell has not changed its directory yet."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scope) and all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    def copy(self) -> Scope:
        """Return an independent copy."""
        return Scope(self.directories, dict(self.variables), dict(self.functions), self.previous_directories)

    def set_arguments(self, words: tuple[Word, ...] | None) -> None:
        """Set the positional parameters, or forget them (None)."""
        self.variables |= dict.fromkeys(filter(is_positional, self.variables))
        words = None if words is None else tuple(as_variable(word, "$@") for word in words)
        self.variables["@"] = None if words is None else Word("$@", "opaque", items=words)
        for position, word in enumerate(words or (), start=1):
            known = (word.kind != "opaque" or word.number) and word.many != "split"
            self.variables[str(position)] = word if known else None
            if not word.single:
                return
        for position in range(len(words or ()) + 1, 10 if words is not None else 0):
            self.variables[str(position)] = Word("")  # unset: expands to nothing

    def forget_found_names(self) -> None:
        """Forget values that are globs, after the directory changed: they would match other files there."""
        for name, value in self.variables.items():
            if value is not None and any(word.kind == "glob" for word in (value, *(value.items or ()))):
                self.variables[name] = None

    def forget_differences(self, branch: Scope) -> None:
        """Merge with a branch that may or may not run: forget every variable that differs."""
        for name in self.variables.keys() | branch.variables.keys():
            if self.variables.get(name) != branch.variables.get(name):
                both = is_number(self.variables.get(name)) and is_number(branch.variables.get(name))
                self.variables[name] = NUMBER if both else None
        for name in self.functions.keys() | branch.functions.keys():
            self.add_bodies(name, branch.functions.get(name, _NO_FUNCTION))
        self.previous_directories = union(self.previous_directories, branch.previous_directories)

    def add_bodies(self, name: str, bodies: tuple[Node | None, ...]) -> None:
        """Add possible bodies of a function."""
        known = self.functions.get(name, _NO_FUNCTION)
        self.functions[name] = (*known, *(each for each in bodies if not any(each is body for body in known)))

    def join(self, states: Iterable[Scope]) -> None:
        """Merge with other states the shell may be in, including their directories."""
        for each in states:
            self.forget_differences(each)
            self.directories = union(self.directories, each.directories)


def as_variable(word: Word, name: str) -> Word:
    """Return a word as the value of a variable: the source text of an unknown word is replaced by the name."""
    return replace_values(word, text=name) if word.kind == "opaque" and not word.number else word


_NO_FUNCTION: tuple[Node | None, ...] = (None,)


def is_positional(name: str) -> bool:
    """Return whether a name is that of a positional parameter, or `@`."""
    return name == "@" or name.isdecimal()


def is_number(value: Word | None) -> bool:
    """Return whether the value of a variable is certainly a number."""
    return value is not None and (value.number or (value.literal and value.text.isdecimal() and value.text.isascii()))


@frozen
class Flow:
    """The directories the shell may be in after a command succeeds or fails; empty if it does not continue."""

    success: Directories
    failure: Directories

    @property
    def either(self) -> Directories:
        """The directories after either outcome."""
        return union(self.success, self.failure)


def staying(directories: Directories) -> Flow:
    """Return the flow of a command that does not change the directory."""
    return Flow(directories, directories)


def union(*many: Directories) -> Directories:
    """Return all directories, each once; more than eight count as any directory."""
    seen = tuple(dict.fromkeys(directory for directories in many for directory in directories))
    return seen if len(seen) <= 8 else (None,)


def change_directory(directories: Directories, target: Word | None, *, physical: bool = False) -> Directories:
    """Return where `cd target` may lead. bash resolves `..` textually, so the path is normalized without the disk."""
    if target is None or not target.literal or not target.text:
        return (None,)
    found: list[str | None] = []
    for directory in directories:
        if not target.text.startswith("/") and directory is None:
            found.append(None)
        else:
            path = os.path.join(directory or "/", target.text)
            found.append(path if physical else os.path.normpath(path))
    return union(tuple(found))


@frozen
class Context:
    """The position of a command in its line: in the pipeline, its depth, and the wrappers before it."""

    position: int = 0
    depth: int = 0
    nested: bool = False
    wrappers: tuple[str, ...] = ()
    assigns: tuple[tuple[str, Word], ...] = ()
    open_ended: bool = False  # more words are appended when it runs (`xargs`)
    fed: Word | None = None  # the text of standard input, if known
    listed: tuple[Word, ...] = ()  # patterns of the paths listed on standard input, if known

    def in_substitution(self) -> Context:
        """Return the context of a command inside a substitution."""
        return Context(depth=self.depth + 1, nested=True)

    def inside(self) -> Context:
        """Return the context of a command inside a compound command."""
        return replace_values(self, depth=self.depth + 1)

    def of_started(self, *wrappers: str) -> Context:
        """Return the context of a command that another one starts."""
        wrapped = (*self.wrappers, *wrappers)
        return replace_values(
            self, depth=self.depth + 1, nested=True, position=0, fed=None, listed=(), wrappers=wrapped
        )


@frozen
class FoundCommand:
    """A simple command found in a script."""

    words: tuple[Word, ...]
    directories: Directories
    context: Context
    wraps: Wrapper | None = None  # set for a wrapper, whose inner command follows
    function: bool = False  # calls a function of this script

    @property
    def name(self) -> str:
        """The base name of the command word."""
        return self.words[0].text.rpartition("/")[2] if self.words else ""


@frozen
class FoundRedirect:
    """A redirection to or from a file."""

    op: str
    fd: str
    target: Word
    directories: Directories

    @property
    def static(self) -> bool:
        """Whether the target is known before the command runs."""
        return self.target.literal


# Which variables may be set: for a command, in the shell, and exported.

# Variables that the shell or programs heed. They may already be exported, so setting one can affect commands; all other
# names belong to the script alone.
_HEEDED = (
    r"(?:BASH|GIT_|LD_|DYLD_|LC_|LANG|HIST|PS\d|PROMPT_|PYTHON|PERL|RUBY|NODE_|NPM_|npm_|JAVA_|JDK_|PIP_|LESS|MAN[PORSW]|"
    r"MAGIC|TAR_|TAPE|GZIP|ZIPOPT|ZIPINFO|UNZIP|BAT_|EXA_|TREE_C|RIPGREP_|GREP_|LS_|AWK|GAWK|JQ_|BC_|POSIX|TIMEFORMAT|"
    r"TIME_|TZ|OPTARG|OPTIND|OPTERR|SHELL|EXECIGNORE|GLOBIGNORE|MAIL(?:CHECK|PATH|RC)|SSH_|GPG_|XDG_|DOCKER_|CARGO_|RUST|"
    r"GO(?:[A-Z]*PATH|ROOT|BIN|OS|ARCH|FLAGS|ENV|WORK|TOOLCHAIN|TMPDIR|DEBUG)|CGO_|MALLOC_|GCONV_|GLIBC_|TERM|SYSTEMD_|DEBIAN_|"
    r"APT_|DPKG_|SUREHAND|COMP_|COMPREPLY|COPROC|FUNCNAME|FUNCNEST|REPLY|DIRSTACK|SECONDS|S?RANDOM|HOSTALIASES|CHILD_MAX|"
    r"MAKEF|MAKELEVEL|LUA_|PHP|ERL_|ELIXIR_|R_|JULIA_|OPENSSL_|SSL|ANSIBLE_|TF_|GCC_|CMAKE_|CCACHE_|DISTCC_|BUNDLE_|GEM_|"
    r"YARN_|PNPM_|DENO_|BUN_|G?VIM|NVIM|EXINIT|EMACS|PSQL|MYSQL_|SQLITE_|PYTEST_|COVERAGE_|UV_|POETRY_|GTK_|GIO_|QT_|NIX_|"
    r"GUILE_|SUDO_|RSYNC_|SVN_|HG[A-Z]|CVS_|FZF_|DOTNET_|CORECLR_|MSBUILD|NUGET_|KUBE|HELM_|CURL_|FCEDIT).*"
    r"|.*(?:PAGER|EDITOR|PROXY|_proxy)|[A-Z]*PATH|.*(?:LIBRARY|INCLUDE|COMPILER|PLUGIN|CONFIG|LOAD|LIB|EXEC|MODULE)_PATH"
    r"|.+(?:OPTS|OPTIONS|FLAGS)|(?:.*_)?HOME|(?:INPUT|WGET|NET|SCREEN|CURL|IRB|KSH|LYNX|DIR)RC|ENV|IFS|VISUAL|BROWSER|"
    r"TMOUT|FIGNORE|USER|LOGNAME|PWD|OLDPWD|TMP|TEMP|TMPDIR|MAIL|COLUMNS|LINES|LINENO|E?UID|PPID|GROUPS|PIPESTATUS|EPOCH.*"
)
_SHELL_VARIABLE = lazy_pattern(rf"(?!(?:{_HEEDED})$)[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def is_shells_own(name: str) -> bool:
    """Return whether no program heeds a variable; exported ones never count."""
    return _SHELL_VARIABLE.fullmatch(name) is not None and name not in os.environ


# Further names that a program may heed if set for it (`CC=./x make`); as plain shell variables they are common.
STEERING = lazy_pattern(
    r"(?:CC|CXX|CPP|FC|AR|AS|LD|LEX|YACC|PATH|ENV|NPM|GO[A-Z].*|MAKE.*|TIME|HG.*|CVS.*)|.*(?:_FILE|FILES|_INIT|_COMMAND|"
    r"_CMD|_RSH|_PROG|_PROGRAM|PRELOAD|WRAPPER|LAUNCHER|PLUGINS?|MODULES?|STARTUP|ASKPASS|COMPILER|LINKER|RUNNER|PREFIX|"
    r"_EXE|_BIN|_CONF|_SHELL|PATH|CONFIG|RC|_HOST|OPTS|OPTIONS|FLAGS)"
)
# Variables that may be set for a command, and their accepted values.
_PLAIN_VALUE = lazy_pattern(r"[A-Za-z0-9_.,:@%+-]*")
_SAFE_VARIABLES: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(
        names(
            """LANG LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_NUMERIC LC_TIME NO_COLOR FORCE_COLOR CLICOLOR
            CLICOLOR_FORCE COLUMNS LINES COLORTERM DEBUG VERBOSE BLOCKSIZE BLOCK_SIZE CI
            GIT_TERMINAL_PROMPT PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE DEBIAN_FRONTEND TERM
            TIME_STYLE SYSTEMD_COLORS NODE_ENV RUST_BACKTRACE RUST_LOG"""
        ),
        _PLAIN_VALUE,
    ),
    **dict.fromkeys(names("CC CXX"), lazy_pattern(r"(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d+)?")),
    **dict.fromkeys(names("GREP_COLOR GREP_COLORS LS_COLORS"), lazy_pattern(r"[A-Za-z0-9_.,:@%+;=*-]*")),
    "GIT_OPTIONAL_LOCKS": lazy_pattern("0"),
    "TZ": lazy_pattern(r"(?![/:.])[A-Za-z0-9_+/-]*"),
    **dict.fromkeys(names("PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER"), lazy_pattern(r"cat|")),
    "LESS": lazy_pattern(r"cat|-?[FRXSiM]*"),
}


def assignment_problem(assigns: Sequence[tuple[str, Word]]) -> str:
    """Return why a variable set for a command might change what it does."""
    for name, value in assigns:
        allowed = _SAFE_VARIABLES.get(name)
        if allowed is None:
            return f"the variable {name} may change what the command does"
        if not value.literal or not allowed.fullmatch(value.text):
            return f"the value of {name} is not a plain one"
    return ""


def variable_problem(name: str, value: Word) -> str:
    """Return why a shell variable should not be set: programs may heed it."""
    if is_shells_own(name):
        return ""
    return assignment_problem([(name, value)])


def setting_problem(name: str, value: Word) -> str:
    """Return why a variable should not be set for a command, even a permitted one: it may choose what that runs."""
    if STEERING.fullmatch(name):
        return assignment_problem([(name, value)])
    return variable_problem(name, value)


def variable_and_setting_problem(assigns: Sequence[tuple[str, Word]]) -> str:
    """Return why variables should not be set for a builtin, which only the shell could heed."""
    return next((problem for name, value in assigns if (problem := setting_problem(name, value))), "")
