"""Reads that need more than a table: programs with a language of their own, or with subcommands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from surehand.shell import awk, find, options, sed
from surehand.shell.options import names
from surehand.shell.programs import find_roots
from surehand.shell.readonly_archives import ARCHIVE_CHECKS
from surehand.shell.readonly_builtins import BUILTIN_CHECKS, SHELL_MODES
from surehand.shell.readonly_git_check import git
from surehand.shell.readonly_own_options import OWN_OPTIONS
from surehand.shell.readonly_table import READ_ONLY
from surehand.shell.readonly_tools import FORMS, TOOL_CHECKS, Form, check_of
from surehand.shell.verdict import Check, Verdict, by_table
from surehand.shell.word import Word

_STREAM = re.compile(r"/dev/(?:null|stdout|stderr)")
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


def _find(words: Sequence[Word]) -> Verdict:
    if problem := find.problem(words):
        return Verdict(problem)
    picked = find.named(words) if any(word.text == "-exec" for word in words) else []
    follows = any(word.text in ("-L", "-follow") for word in words)
    return Verdict(reads=(*find_roots(words), *picked, *find.compared(words)), recursive=True, follows=follows)


_SED = options.flags(
    "-nrEsuz -e: -l: --quiet --silent --expression: --regexp-extended --separate --unbuffered --null-data --posix "
    "--sandbox --debug --line-length: @filter"
)


def _sed(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, _SED)
    if parsed.unknown:
        return Verdict(f"`sed {parsed.unknown[0].text}` is not known to only read")
    scripts = parsed.values("-e", "--expression")
    files = parsed.operands if scripts else parsed.operands[1:]
    given = scripts or parsed.operands[:1]
    if opaque := next((script for script in given if not script.literal), None):
        return Verdict(f"the script of `sed` is not literal: {opaque.text}", unreadable=True)
    # Each `-e` is a line of one script: `-e '/a/{' -e p -e '}'`.
    if not parsed.has("--sandbox") and not sed.reads_only("\n".join(script.text for script in given)):
        return Verdict("the script of `sed` is not known to only read")
    return _files("sed", files)


_AWK = options.flags("-F: -v: --field-separator: --assign: --sandbox --posix --traditional --re-interval -S -P @filter")


def _awk(words: Sequence[Word]) -> Verdict:
    parsed = options.parse(words, _AWK, permute=False)
    rest = parsed.operands or list(words[parsed.used :])
    if parsed.unknown or not rest:
        return Verdict("`awk` with these options is not known to only read")
    if any(value.kind == "opaque" for _, value in parsed.options if value is not None):
        return Verdict("an option of `awk` is not literal", unreadable=True)
    if not rest[0].literal or not awk.reads_only(rest[0].text):
        return Verdict("the program of `awk` is not known to only read", unreadable=not rest[0].literal)
    return _files("awk", [word for word in rest[1:] if not re.match(r"[A-Za-z_]\w*=", word.text)])


def _files(name: str, files: Sequence[Word]) -> Verdict:
    for word in files:
        if word.kind == "opaque":
            return Verdict(f"a word of `{name}` is not literal: {word.text}", unreadable=True)
        if word.may_be_flag and not word.literal:
            return Verdict(f"`{name} {word.text}` could be an option")
    return Verdict(reads=tuple(word for word in files if word.text != "-"))


def _printenv(words: Sequence[Word]) -> Verdict:
    named = [word for word in words if not (word.literal and word.text.startswith("-"))]
    if not named:
        return Verdict("prints the whole environment")
    if not all(word.literal and _IDENTIFIER.fullmatch(word.text) for word in named):
        return Verdict("prints a variable whose name is not literal", unreadable=True)
    return by_table("printenv", words, options.flags(READ_ONLY["printenv"]))


def _tput(words: Sequence[Word]) -> Verdict:
    if any(word.text in ("init", "reset") for word in words):
        return Verdict("`tput` runs the program that sets a terminal up")
    return by_table("tput", words, options.flags(READ_ONLY["tput"]))


def _tee(words: Sequence[Word]) -> Verdict:
    """Judge `tee`, which shows its input once more when nothing but streams are named."""
    if words and all(word.literal and _STREAM.fullmatch(word.text) for word in words):
        return Verdict()
    return Verdict("`tee` writes the files it is given")


def _sleep(words: Sequence[Word]) -> Verdict:
    if all(word.literal and re.fullmatch(r"[0-9.]+[smhd]?", word.text) for word in words):
        return Verdict()
    return Verdict("`sleep` of a time that is not literal")


# Filters that read files which are not among the words (`import "x" as $x;`) or print the environment. A field may
# have any name: `.include` and `.env` are data.
_JQ_READS_MORE = re.compile(r"""(?<![.$\w"])(?:include|import|env|modulemeta|ENV)\b|\$ENV\b""")
_YQ_READS_MORE = re.compile(r"\b(?:load\w*|env|strenv|eval|system)\s*\(|\benvsubst\b")
_YQ_SUBCOMMANDS = names("e ea eval eval-all")


def _yq(words: Sequence[Word]) -> Verdict:
    """Judge both programs of this name: one takes filters of `jq`, the other has expressions of its own."""
    given = words[1:] if words and words[0].literal and words[0].text in _YQ_SUBCOMMANDS else words
    if any(_YQ_READS_MORE.search(word.text) or _JQ_READS_MORE.search(word.text) for word in given):
        return Verdict("the expression of `yq` may read other files")
    return by_table("yq", given, options.flags(READ_ONLY["yq"]))


def _jq(words: Sequence[Word]) -> Verdict:
    if any(_JQ_READS_MORE.search(word.text) for word in words):
        return Verdict("the filter of `jq` may read other files")
    return by_table("jq", words, options.flags(READ_ONLY["jq"]))


def _shell(words: Sequence[Word]) -> Verdict:
    """Judge `bash -c SCRIPT`; the script is judged by itself. A login or interactive shell runs start files first.

    `bash -n FILE` reads a script and runs nothing of it.
    """
    if len(words) > 1 and words[0].text == "-n" and words[0].literal:
        return _files("bash", words[1:]) if words[1].text[:1] not in ("-", "+") else Verdict("a shell with options")
    rest = iter(words)
    for word in rest:
        if word.literal and word.text == "-o":
            if next(rest, word).text not in SHELL_MODES:
                break
        elif word.literal and re.fullmatch(r"-[eux]*c[eux]*", word.text):
            return Verdict()
        elif not word.literal or not re.fullmatch(r"-[eux]+", word.text):
            break
    return Verdict("a shell that runs more than a script in its words")


def _listing(name: str, asks: str, line: str) -> Check:
    """Return a check for programs that read only when one of the options in `asks` is given."""
    known = options.flags(line)

    def check(words: Sequence[Word]) -> Verdict:
        if not options.parse(words, known).has(*asks.split()):
            return Verdict(f"`{name}` is not known to only read")
        return by_table(name, words, known)

    return check


def _subcommand(name: str, table: dict[str, str]) -> Check:
    """Return a check for programs that read only with certain first words."""

    def check(words: Sequence[Word]) -> Verdict:
        line = table.get(words[0].text) if words and words[0].literal else None
        if line is None:
            return Verdict(f"`{name}` is not a known read")
        return by_table(f"{name} {words[0].text}", words[1:], options.flags(line))

    return check


_PIP = {
    "list": "-v --format: --not-required --user --local --verbose --path:r -l @none",
    "show": "-fv --files --verbose -q @text",
    "freeze": "-l --local --user --all --exclude: @none",
    "check": "@none",
    "--version": "@none",
    "help": "@text",
}
_PIP_CACHE = tuple(Form(words) for words in ("cache dir", "cache info"))
_UNITS = "--no-pager --all --type: --state: --failed -a -t: @text"
_SYSTEMCTL = {
    **dict.fromkeys(("status", "is-active", "is-enabled", "is-failed", "cat"), "--no-pager -q --quiet @text"),
    **dict.fromkeys(("list-units", "list-unit-files", "list-timers"), _UNITS),
    "show": "-p: --property: --no-pager @text",
}
CHECKS: dict[str, Check] = {
    **ARCHIVE_CHECKS,
    **BUILTIN_CHECKS,
    **OWN_OPTIONS,
    **TOOL_CHECKS,
    "find": _find,
    "gfind": _find,
    "sed": _sed,
    "gsed": _sed,
    "awk": _awk,
    "gawk": _awk,
    "mawk": _awk,
    "nawk": _awk,
    "printenv": _printenv,
    "sleep": _sleep,
    "tee": _tee,
    "tput": _tput,
    "jq": _jq,
    "yq": _yq,
    "git": git,
    "bash": _shell,
    "sh": _shell,
    "dash": _shell,
    "command": lambda words: by_table("command", words, options.flags("-vVp @text")),
    "unzip": _listing("unzip", "-l -Z -v -t -p", "-lZvtpqC12 @read"),
    "dpkg": check_of("dpkg", FORMS["dpkg"], _listing("dpkg", "-l -L -s -S --list", "-lLsS --list --listfiles "
                     "--status --search @text")),
    "rpm": _listing("rpm", "-q", "-qailcdR @text"),
    "pip": check_of("pip", _PIP_CACHE, _subcommand("pip", _PIP)),
    "pip3": check_of("pip3", _PIP_CACHE, _subcommand("pip3", _PIP)),
    "apt": _subcommand("apt", {"list": "--installed --upgradable @text", "show": "@text", "search": "@text"}),
    "apt-cache": _subcommand("apt-cache", {"search": "@text", "show": "@text", "policy": "@text", "depends": "@text"}),
    "systemctl": check_of("systemctl", FORMS["systemctl"], _subcommand("systemctl", _SYSTEMCTL)),
    "brew": _subcommand("brew", {"list": "-1 --versions --cask --formula @text", "--prefix": "@text"}),
    "dmesg": lambda words: by_table("dmesg", words, options.flags("-HTtxkuP -l: -f: --human --ctime --level: @none")),
    "getent": _subcommand("getent", dict.fromkeys(("passwd", "group", "services", "protocols"), "@text")),
    "mount": lambda words: by_table("mount", words, options.flags("-l @none")),
}  # fmt: skip
