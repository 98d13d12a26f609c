"""Reads among the builtins of bash: `test`, `printf`, `read`, `set`, and the variables they may safely change."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence

from surehand.shell import options
from surehand.shell.options import names
from surehand.shell.verdict import Check, Verdict
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
SHELL_VARIABLE = re.compile(rf"(?!(?:{_HEEDED})$)[A-Za-z][A-Za-z0-9_]*", re.ASCII)
# More names that a program may heed when they are set for it alone (`CC=./x make`); a script often has such of its own.
STEERING = re.compile(
    r"(?:CC|CXX|CPP|FC|AR|AS|LD|LEX|YACC|PATH|ENV|NPM|GO[A-Z].*|MAKE.*|TIME|HG.*|CVS.*)|.*(?:_FILE|FILES|_INIT|_COMMAND|"
    r"_CMD|_RSH|_PROG|_PROGRAM|PRELOAD|WRAPPER|LAUNCHER|PLUGINS?|MODULES?|STARTUP|ASKPASS|COMPILER|LINKER|RUNNER|PREFIX|"
    r"_EXE|_BIN|_CONF|_SHELL|PATH|CONFIG|RC|_HOST|OPTS|OPTIONS|FLAGS)"
)
_PRINTF_ASSIGNS = re.compile(r"%[-#0 +'0-9.*]*[hjlLtz]*n")

_UNARY_TESTS = names("-a -b -c -d -e -f -g -h -k -p -r -s -t -u -w -x -G -L -N -O -S -z -n -o")
_BINARY_TESTS = names("= == != < > -eq -ne -lt -le -gt -ge -nt -ot -ef")


def _test(words: Sequence[Word]) -> Verdict:
    if any(_may_ask_about_a_name(word) for word in words):
        return Verdict("`test -v` evaluates a subscript in its operand", unreadable=True)
    if all(word.literal for word in words):
        return Verdict()
    inner = [word for word in words if word.text != "!"]
    literal = [word.text if word.literal else "" for word in inner]
    if len(inner) == 1 or (len(inner) == 2 and literal[0] in _UNARY_TESTS):
        return Verdict()
    if len(inner) == 3 and literal[1] in _BINARY_TESTS:
        return Verdict()
    return Verdict("a test of words that are not literal", unreadable=True)


def _may_ask_about_a_name(word: Word) -> bool:
    """Whether a word is, or may turn out to hold, the `-v` or `-R` that evaluates what follows it."""
    if word.many == "names":
        return any(fnmatch.fnmatchcase(option, word.text) for option in ("-v", "-R"))
    return word.many == "split" or (word.literal and word.text in ("-v", "-R"))


def _bracket(words: Sequence[Word]) -> Verdict:
    if not words or words[-1].text != "]":
        return Verdict("`[` without its `]`")
    return _test(words[:-1])


def _printf(words: Sequence[Word]) -> Verdict:
    if not words:
        return Verdict()
    form = words[1] if words[0].text == "--" and len(words) > 1 else words[0]
    if form.text.startswith("-v") and words[0].text != "--":
        return Verdict("`printf -v` evaluates a subscript in a name", unreadable=True)
    if form.kind != "literal" or _PRINTF_ASSIGNS.search(form.text):
        return Verdict("the format of `printf` is not a plain one", unreadable=True)
    return Verdict()


def _read(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, options.flags("-res -a: -d: -i: -n: -N: -p: -t: -u:"))
    given = [*parsed.operands, *parsed.values("-a")]
    if parsed.unknown or any(not word.literal or not SHELL_VARIABLE.fullmatch(word.text) for word in given):
        return Verdict("`read` into a name that is not a plain one", unreadable=True)
    return Verdict()


def _unset(words: Sequence[Word]) -> Verdict:
    if all(word.literal and SHELL_VARIABLE.fullmatch(word.text) for word in words):
        return Verdict()
    return Verdict("`unset` evaluates a subscript in a name, or forgets one that programs heed", unreadable=True)


SHELL_MODES = names("pipefail errexit nounset xtrace")
_MODE = re.compile(r"[-+][euxo]+")


def _set(words: Sequence[Word]) -> Verdict:
    if words and all(word.literal and (_MODE.fullmatch(word.text) or word.text in SHELL_MODES) for word in words):
        return Verdict()
    return Verdict("`set` prints or changes the state of the shell")


def _wait(words: Sequence[Word]) -> Verdict:
    if any(word.may_be_flag and word.text not in ("-n", "-f", "$!", '"$!"') for word in words):
        return Verdict("`wait -p` evaluates a subscript in a name", unreadable=True)
    return Verdict()


def _shown_limit(words: Sequence[Word]) -> Verdict:
    """Judge `umask` and `ulimit`, which tell a value when none is given."""
    if all(word.literal and re.fullmatch(r"-[A-Za-z]+", word.text) for word in words):
        return Verdict()
    return Verdict("it changes a limit of the shell")


BUILTIN_CHECKS: dict[str, Check] = {
    "test": _test,
    "[": _bracket,
    "printf": _printf,
    "read": _read,
    "unset": _unset,
    "set": _set,
    "umask": _shown_limit,
    "wait": _wait,
    "ulimit": _shown_limit,
}
