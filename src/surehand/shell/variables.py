"""Variables that may be set: before a command, in the shell itself, for the commands that follow."""

from __future__ import annotations

import re
from collections.abc import Sequence

from surehand.core.patterns import lazy_pattern
from surehand.shell.options import names
from surehand.shell.word import Word

# Variables that the shell itself or programs heed: they may be exported already, so that setting one is no matter of
# this script alone. Every other name is.
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
    r"TMOUT|FIGNORE|USER|LOGNAME|PWD|OLDPWD|TMP|TEMP|TMPDIR|MAIL"
)
SHELL_VARIABLE = lazy_pattern(rf"(?!(?:{_HEEDED})$)[A-Za-z][A-Za-z0-9_]*", re.ASCII)
# More names that a program may heed when they are set for it alone (`CC=./x make`); a script often has such of its own.
STEERING = lazy_pattern(
    r"(?:CC|CXX|CPP|FC|AR|AS|LD|LEX|YACC|PATH|ENV|NPM|GO[A-Z].*|MAKE.*|TIME|HG.*|CVS.*)|.*(?:_FILE|FILES|_INIT|_COMMAND|"
    r"_CMD|_RSH|_PROG|_PROGRAM|PRELOAD|WRAPPER|LAUNCHER|PLUGINS?|MODULES?|STARTUP|ASKPASS|COMPILER|LINKER|RUNNER|PREFIX|"
    r"_EXE|_BIN|_CONF|_SHELL|PATH|CONFIG|RC|_HOST|OPTS|OPTIONS|FLAGS)"
)
# Variables that may stand before a command: what they may be set to.
_PLAIN_VALUE = lazy_pattern(r"[A-Za-z0-9_.,:@%+-]*")
_SAFE_VARIABLES: dict[str, re.Pattern[str]] = {
    **dict.fromkeys(
        names(
            """LANG LANGUAGE LC_ALL LC_COLLATE LC_CTYPE LC_MESSAGES LC_NUMERIC LC_TIME NO_COLOR FORCE_COLOR CLICOLOR
            CLICOLOR_FORCE COLUMNS LINES COLORTERM GREP_COLOR GREP_COLORS LS_COLORS BLOCKSIZE BLOCK_SIZE CI
            GIT_TERMINAL_PROMPT PYTHONUNBUFFERED PYTHONDONTWRITEBYTECODE DEBIAN_FRONTEND TERM
            TIME_STYLE SYSTEMD_COLORS NODE_ENV RUST_BACKTRACE RUST_LOG"""
        ),
        _PLAIN_VALUE,
    ),
    **dict.fromkeys(names("CC CXX"), lazy_pattern(r"(?:gcc|g\+\+|clang|clang\+\+|cc|c\+\+)(?:-\d+)?")),
    "GIT_OPTIONAL_LOCKS": lazy_pattern("0"),
    "TZ": lazy_pattern(r"(?![/:.])[A-Za-z0-9_+/-]*"),
    **dict.fromkeys(names("PAGER GIT_PAGER MANPAGER SYSTEMD_PAGER LESS"), lazy_pattern(r"cat|")),
}


def assignment_problem(assigns: Sequence[tuple[str, Word]]) -> str:
    """Say which variable set before a command might change what it does."""
    for name, value in assigns:
        allowed = _SAFE_VARIABLES.get(name)
        if allowed is None:
            return f"the variable {name} may change what the command does"
        if not value.literal or not allowed.fullmatch(value.text):
            return f"the value of {name} is not a plain one"
    return ""


def variable_problem(name: str, value: Word) -> str:
    """Say why a variable of the shell itself should not be set: it may be one that programs heed."""
    if SHELL_VARIABLE.fullmatch(name):
        return ""
    return assignment_problem([(name, value)])


def setting_problem(name: str, value: Word) -> str:
    """Say why a variable should not be set for a command, also for one that may run: it may choose what that runs."""
    if STEERING.fullmatch(name):
        return assignment_problem([(name, value)])
    return variable_problem(name, value)


def variable_and_setting_problem(assigns: Sequence[tuple[str, Word]]) -> str:
    """Say which variable should not be set even where only the shell itself may heed it."""
    return next((problem for name, value in assigns if (problem := setting_problem(name, value))), "")
