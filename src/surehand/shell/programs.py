"""Commands that an option of another program runs: `find -exec`, `fd -x`, `go test -exec`, `git bisect run`.

Each is judged as the command it is. A script given as one word (`sh -c` style) is told apart from a list of words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from surehand.core.frozen import frozen
from surehand.shell import sed
from surehand.shell.options import names
from surehand.shell.word import Word


@frozen
class Started:
    """A command another one starts: its words, or a script. `below` names the directories its `{}` lies in."""

    words: tuple[Word, ...] = ()
    script: Word | None = None
    below: tuple[str, ...] = ()


Finder: TypeAlias = Callable[[Sequence[Word]], Iterator[Started]]

_FIND_RUNS = names("-exec -execdir -ok -okdir")


def find_roots(words: Sequence[Word]) -> list[Word]:
    """Return the starting points of a `find`, which stand before its first test."""
    roots: list[Word] = []
    rest = list(words)
    while rest and rest[0].literal and (rest[0].text in ("-H", "-L", "-P") or rest[0].text.startswith(("-O", "-D"))):
        rest = rest[2 if rest[0].text == "-D" else 1 :]
    for word in rest:
        if word.literal and (word.text[:1] in ("-", "(", ")", "!") or word.text == ","):
            break
        roots.append(word)
    return roots or [Word(".")]


def _find(words: Sequence[Word]) -> Iterator[Started]:
    below = tuple(root.text for root in find_roots(words) if root.literal)
    index = 0
    while index < len(words):
        if words[index].text not in _FIND_RUNS:
            index += 1
            continue
        end = index + 1
        while end < len(words) and not (
            words[end].text == ";" or (words[end].text == "+" and _ends_in_braces(words, end))
        ):
            end += 1
        yield Started(tuple(words[index + 1 : end]), below=below)
        index = end + 1


def _ends_in_braces(words: Sequence[Word], end: int) -> bool:
    return words[end - 1].text == "{}"


def _fd(words: Sequence[Word]) -> Iterator[Started]:
    for index, word in enumerate(words):
        if word.text in ("-x", "-X", "--exec", "--exec-batch"):
            rest = list(words[index + 1 :])
            end = next((at for at, each in enumerate(rest) if each.text == ";"), len(rest))
            yield Started(tuple(rest[:end]), below=(".",))
        elif word.text.startswith(("--exec=", "--exec-batch=")):
            yield Started((_value(word),), below=(".",))


def _scripts(*wanted: str) -> Finder:
    """Return a finder for options whose value is a command line (`-e ssh`, `--pre=cmd`, `-I zstd`)."""

    def find(words: Sequence[Word]) -> Iterator[Started]:
        for index, word in enumerate(words):
            for option in wanted:
                if word.text == option and index + 1 < len(words):
                    yield Started(script=words[index + 1])
                elif option.startswith("--") and word.text.startswith(option + "="):
                    yield Started(script=_value(word))
                elif len(option) == 2 and word.text.startswith(option) and len(word.text) > 2:
                    yield Started(script=Word(word.text[2:], word.kind))

    return find


def _tar(words: Sequence[Word]) -> Iterator[Started]:
    yield from _scripts(
        "--to-command", "--use-compress-program", "-I", "--rmt-command", "--rsh-command", "--info-script"
    )(words)
    for index, word in enumerate(words):
        if word.text.startswith("--checkpoint-action"):
            value = _value(word) if "=" in word.text else (words[index + 1] if index + 1 < len(words) else Word(""))
            if value.text.startswith("exec="):
                yield Started(script=Word(value.text[5:], value.kind))


# Settings whose value is a command line.
_GIT_PROGRAM = re.compile(
    r"(pager(\..*)?|editor|sshcommand|fsmonitor|external|textconv|program|helper|command|cmd|driver|clean|smudge|"
    r"process|gitproxy|askpass)$"
)


def _git(words: Sequence[Word]) -> Iterator[Started]:
    for index, word in enumerate(words):
        following = words[index + 1 : index + 2]
        if word.text == "-c" and following:
            key, _, value = following[0].text.partition("=")
            if value.startswith("!") or _GIT_PROGRAM.search(key.lower()):
                yield Started(script=Word(value.removeprefix("!"), following[0].kind))
            elif key.lower().startswith("alias."):
                yield Started((Word("git"), *(Word(each, following[0].kind) for each in value.split())))
        elif (
            word.text in ("-x", "--exec", "--upload-pack", "--receive-pack", "--open-files-in-pager", "-u")
            and following
        ):
            yield Started(script=following[0])
        elif word.text.startswith(("--exec=", "--upload-pack=", "--receive-pack=", "--open-files-in-pager=")):
            yield Started(script=_value(word))
        elif word.text in ("run", "foreach") and index and words[index - 1].text in ("bisect", "submodule"):
            rest = [each for each in words[index + 1 :] if each.text not in ("--recursive", "--quiet", "-q")]
            yield Started(script=rest[0]) if len(rest) == 1 else Started(tuple(rest))


def _sed(words: Sequence[Word]) -> Iterator[Started]:
    """Yield what the command `e` of a script runs."""
    for word in words:
        if word.literal and not sed.reads_only(word.text):
            for hit in re.finditer(r"(?:^|[\s;{}\d$/!,])e[ \t]+([^\n]+)", word.text):
                yield Started(script=Word(hit[1]))


def _ssh(words: Sequence[Word]) -> Iterator[Started]:
    for index, word in enumerate(words):
        value = word
        if word.text == "-o" and index + 1 < len(words):
            value = words[index + 1]
        elif word.text.startswith("-o"):
            value = Word(word.text[2:], word.kind)
        hit = re.fullmatch(r"\s*(\w+)\s*[=\s]\s*(.*)", value.text, re.DOTALL)
        if hit and hit[1].lower() in ("proxycommand", "localcommand", "knownhostscommand"):
            yield Started(script=Word(hit[2], value.kind))


def _runner(*deeds: str) -> Finder:
    """Return a finder for programs that run the first word that is no option, after one of `deeds` if they have such.

    An option may have a value, so that the word after it is either: each is judged as the command it would be.
    """

    def find(words: Sequence[Word]) -> Iterator[Started]:
        start = next((at + 1 for at, word in enumerate(words) if word.text in deeds), None) if deeds else 0
        before = ""
        for at in range(start, len(words)) if start is not None else ():
            text = words[at].text
            if not text.startswith("-") or not words[at].literal:
                if text.rpartition("/")[2] in _RUN_BY_OTHERS:
                    yield Started(tuple(words[at:]))
                if not before.startswith("-") or before == "--":
                    return
            before = text

    return find


# What is judged as a command of its own where a runner is handed it; the names of other programs are not known here.
_RUN_BY_OTHERS = names(
    """rm rmdir unlink shred mv cp install ln dd tee touch mkdir chmod chown truncate find xargs env sudo doas timeout
    nice bash sh dash zsh ksh fish busybox curl wget nc ncat ssh scp rsync git sed eval exec command time mkfs kill
    pkill killall"""
)


def _value(word: Word) -> Word:
    return Word(word.text.partition("=")[2], word.kind)


_go_scripts = _scripts("-exec", "-toolexec", "--exec")


def _go(words: Sequence[Word]) -> Iterator[Started]:
    """Yield what `go` runs: programs named by options, and git for the version of what it lists."""
    yield from _go_scripts(words)
    if words and words[0].text in ("list", "doc"):
        yield Started((Word("git"), Word("status"), Word("--porcelain")))


STARTERS: dict[str, Finder] = {
    "find": _find,
    "gfind": _find,
    "fd": _fd,
    "fdfind": _fd,
    "rg": _scripts("--pre", "--hostname-bin"),
    "go": _go,
    "sed": _sed,
    "gsed": _sed,
    "tar": _tar,
    "gtar": _tar,
    "bsdtar": _tar,
    "rsync": _scripts("-e", "--rsh", "--rsync-path"),
    "sort": _scripts("--compress-program"),
    "split": _scripts("--filter"),
    "man": _scripts("-P", "--pager", "--html"),
    **dict.fromkeys(names("npx bunx pnpx uvx valgrind dumb-init tini cross-env xvfb hyperfine ltrace"), _runner()),
    "perf": _runner("stat", "record", "trace", "mem"),
    **dict.fromkeys(("gdb", "lldb"), _runner("--args", "--")),
    **dict.fromkeys(names("uv poetry pdm pipenv hatch pipx conda rye dotenv"), _runner("run")),
    **dict.fromkeys(names("npm pnpm yarn bun bundle mise asdf rbenv pyenv direnv"), _runner("exec", "x", "dlx")),
    "git": _git,
    "ssh": _ssh,
    "scp": _ssh,
    "sftp": _ssh,
}


def started_by(name: str, words: Sequence[Word]) -> list[Started]:
    """Return the commands that options among `words` (those after the name) make the program start."""
    finder = STARTERS.get(name)
    return [] if finder is None else list(finder(words))
