"""Builds the report on a command: everything that can be known about it before it runs.

The words of each simple command become *touches* (a kind and a word); `locate` resolves these to paths in every
directory the command may run in. A path that cannot be known becomes an `Unreadable` effect; it is never left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, TypeAlias

from surehand.core.effects import Connect, DeletePath, Effect, ReadPath, RunCommand, Unreadable, WritePath
from surehand.core.frozen import frozen, replace_values
from surehand.core.secrets import is_secret
from surehand.core.text import HEAD_SHARE, lazy_pattern
from surehand.shell import globs, read_only, scope
from surehand.shell.options import Verdict
from surehand.shell.programs import program_of
from surehand.shell.programs.record import Program
from surehand.shell.scope import Context, Directories, FoundCommand, FoundRedirect, Scope
from surehand.shell.syntax import SyntaxFault, parse
from surehand.shell.touches import Touch
from surehand.shell.walk import Walk
from surehand.shell.word import Word

_MAKERS: dict[str, Callable[[str, bool], Effect]] = {"read": ReadPath, "write": WritePath, "delete": DeletePath}

# Standard streams and devices: reading or writing them touches no file. `/dev/fd/63` stands for a process
# substitution; any other descriptor above 2 is some file.
STREAMS = lazy_pattern(
    r"/dev/(?:null|stdin|stdout|stderr|fd/(?:[012]|63)|zero|full|random|urandom)|/proc/self/fd/[012]"
)


def known_words(command: str) -> bool:
    """Tell whether a command's words are fully understood, so that its effects are complete."""
    return _record_of(command.rpartition("/")[2]).touches is not None


def touches(name: str, words: Sequence[Word]) -> Iterator[Touch]:
    """Yield the files and hosts a command touches, as far as its words tell."""
    known = _record_of(name).touches
    if known is not None:
        yield from known(words)


def _record_of(name: str) -> Program:
    return program_of("mkfs" if name.startswith("mkfs.") else name)


def locate(touch: Touch, directories: Directories) -> Iterator[Effect]:
    """Yield the effects of a touch in each directory the command may run in."""
    word = touch.word
    if touch.kind == "connect":
        yield from _connection(word)
        return
    if word.kind == "opaque":
        yield Unreadable(f"a path is not literal: {word.text}")
        return
    make = _MAKERS[touch.kind]
    absolute = (word.path or word.text).startswith("/")
    for directory in directories[:1] if absolute else directories:
        if directory is None and not absolute:
            yield Unreadable(f"the directory that {word.text!r} is relative to is not known")
            continue
        paths = list(_paths(word, directory or "/", touch))
        if word.kind == "glob" and word.many == "split" and any(_BLANK.search(path) for path, _ in paths):
            yield Unreadable(f"names that {word.text!r} finds hold blanks, at which they would be split")
        for path, below in paths:
            if not STREAMS.fullmatch(path) and not (touch.if_there and not os.path.lexists(path)):
                yield make(path, touch.recursive or below)
                yield from (make(link, False) for link in (globs.links_out_of(path) if touch.follows else ()))


def _paths(word: Word, directory: str, touch: Touch) -> Iterator[tuple[str, bool]]:
    text = word.path or word.text
    if word.literal:
        yield os.path.join(directory, text) if text not in (".", "") else directory, False
        return
    if "/**" in text:
        root = text.partition("/**")[0]
        yield directory if root == "." else os.path.join(directory, root or "/"), True
        return
    yield from globs.matches(directory, text, everything=touch.kind == "delete" and touch.recursive)


def _connection(word: Word) -> Iterator[Effect]:
    if word.kind != "literal":
        yield Unreadable(f"a host is not literal: {word.text}")
        return
    host, port, url = host_of(word.text)
    if host:
        yield Connect(host, port, url)
    authority = _authority(word.text)
    if not host or _DOUBTFUL_HOST.search(authority):
        other = host_of(authority.rpartition("@")[2])[0]
        yield from [Connect(other)] if other not in ("", host) else ()
        yield Unreadable(f"programs may read another host out of {word.text!r}")


# `http:/host` and `http:///host` reach that host, too. Without a known scheme before the colon it is `host:path`.
_SCHEME = lazy_pattern(r"(?:[A-Za-z][\w+.-]*://+|(?:https?|ftps?|wss?):/*|//+)", re.IGNORECASE)
# Some programs expand escapes, lists and ranges, and disagree whether the part before an `@` is the host or a user.
_DOUBTFUL_HOST = lazy_pattern(r"[\\%{}]|[?#].*@|.\[|\A\[(?![0-9a-fA-F:.]+(?:%\w+)?\])")


def _authority(text: str) -> str:
    scheme = _SCHEME.match(text)
    return text[scheme.end() if scheme else 0 :].partition("/")[0]


def host_of(text: str) -> tuple[str, int | None, str]:
    """Return host, port and URL of `https://host:8/x`, `user@host`, `host:path` or `host`."""
    url = text if text.lower().startswith(("http://", "https://")) else ""
    authority = re.split(r"[?#\\]", _authority(text), maxsplit=1)[0].rpartition("@")[2]
    bracketed = re.match(r"\[([^\]]+)\](?::(\d+))?", authority)
    if bracketed:
        host, port = bracketed[1], bracketed[2]
    else:
        host, _, port = authority.partition(":")
    return host.lower().rstrip("."), int(port) if port and port.isdigit() else None, url


def guess_touches(words: Sequence[Word]) -> Iterator[Touch]:
    """Yield reads of the words that look like paths, for an unknown program."""
    for word in words:
        text = word.text.partition("=")[2] if word.text.startswith("--") and "=" in word.text else word.text
        if word.literal and _PATH_LIKE.match(text) and "\n" not in text:
            yield Touch("read", Word(text))
        elif word.kind == "glob" and "/" in text:
            yield Touch("read", word)


def secrets_named(words: Sequence[Word], known: Sequence[Touch]) -> Iterator[Touch]:
    """Yield reads of secret files named anywhere in the words of a command that is not a plain read.

    `-b .env`, `--from-file=id_rsa`, `x@server.key`, `/srv/.env:/x`: which options take files is not known for every
    program. Only existing files count: another name may mean something else (`make server.key`).
    """
    taken = {touch.word.text for touch in known if touch.kind != "connect"}
    for word in words:
        if word.literal and word.text not in taken and not _BLANK.search(word.text):
            for part in dict.fromkeys((word.text, *_PART_ENDS.split(word.text))):
                if part and is_secret(part):
                    yield Touch("read", Word(part), if_there=True)


_BLANK = lazy_pattern(r"\s")
_PART_ENDS = lazy_pattern(r"[=@:,<]")
_PATH_LIKE = lazy_pattern(r"(?:\.{0,2}/|\.[A-Za-z])[^\s:;|&<>(){}'\"$*]*$|[\w.-]+/[^\s:;|&<>(){}'\"$*]*$")


# The six classes of commands, and the class of a whole line: that of its least safe part.

Class: TypeAlias = Literal["search", "read", "list", "silent", "write", "general"]

# From the safest to the least safe.
ORDER: tuple[Class, ...] = ("search", "read", "list", "silent", "write", "general")


def head_share(kind: Class, commands: Iterable[str]) -> float:
    """Return the share of the output limit that goes to the beginning of a long output; the rest goes to its end.

    A search or a list is wanted from its beginning; a build reports failures at its end.
    """
    if kind in ("search", "list"):
        return 1.0
    builds = kind == "general" and any(program_of(name).builds for name in commands)
    return 1 - HEAD_SHARE if builds else HEAD_SHARE


MEANINGS: dict[Class, str] = {
    "search": "searches",
    "read": "reads",
    "list": "lists",
    "silent": "changes files and prints nothing",
    "write": "writes files",
    "general": "runs a program",
}
"""What commands of a class do, for people; from the safest to the least safe."""


def class_of(name: str, read_only: bool, writes: bool) -> Class | None:
    """Return the class of one command, `None` for a neutral one.

    A search or read that is not read-only because of its options counts as `write` or `general`.
    """
    kind = program_of(name).kind
    if kind == "neutral":
        return None
    if read_only or kind not in ("search", "read", "list"):
        return kind
    return "write" if writes else "general"


def least_safe(kinds: list[Class]) -> Class:
    """Return the class of a line, that of its least safe part; `general` if all parts are neutral."""
    return max(kinds, key=ORDER.index) if kinds else "general"


_DESCRIPTOR = lazy_pattern(r"\d+-?", re.ASCII)
_READS = frozenset(("<", "<>"))
_TEXTS = frozenset(("<<", "<<-", "<<<"))
_WRITES = frozenset((">", ">>", ">|", "&>", "&>>", "<>", ">&", ">!", ">>!"))


@frozen
class SimpleCommand:
    """One simple command. `name` is the last part of its first word; `cwd` is `None` where it cannot be known."""

    name: str
    words: tuple[str, ...]
    literal: bool
    position: int
    nested: bool
    cwd: str | None
    wrappers: tuple[str, ...] = ()
    assignments: tuple[tuple[str, str], ...] = ()


@frozen
class Redirect:
    """One redirection; `static` when its target is certain."""

    op: str
    fd: str
    target: str
    static: bool


@frozen
class ShellReport:
    """The report on a command: its parts, class, effects, and whether it only reads or why not."""

    ok: bool
    error: str
    commands: tuple[SimpleCommand, ...]
    redirects: tuple[Redirect, ...]
    class_: Class
    read_only: bool
    reasons: tuple[str, ...]
    effects: tuple[Effect, ...]

    def to_dict(self) -> dict[str, object]:
        """Return the report as plain data, the form `surehand shell parse` prints."""
        return {
            "ok": self.ok,
            "error": self.error or None,
            "class": self.class_,
            "read_only": self.read_only,
            "commands": [_command_dict(command) for command in self.commands],
            "redirects": [
                {"op": each.op, "fd": each.fd, "target": each.target, "static": each.static} for each in self.redirects
            ],
            "reasons": list(self.reasons),
        }


def understand(command: str, cwd: str, *, home: str | None = None, new_shell: bool = True) -> ShellReport:
    """Analyze a shell command without running it. Never raises: what cannot be read is an `Unreadable` effect.

    `new_shell` says that the shell has not changed its directory before (`cd -` leads nowhere).
    """
    home = home if home is not None else os.environ.get("HOME")
    walk = Walk()
    variables: dict[str, Word | None] = {"PWD": Word(cwd), "HOME": Word(home) if home else None}
    try:
        tree = parse(command)
        walk.script(
            tree, command, Scope((cwd,), variables, previous_directories=() if new_shell else (None,)), Context()
        )
    except SyntaxFault as error:
        return _unreadable(str(error))
    except RecursionError:
        return _unreadable("the command is nested too deeply to be read")
    except (KeyError, IndexError, TypeError) as error:  # the tree comes from another program
        return _unreadable(f"the parser's tree has a shape that is not understood ({error!r})")
    if problem := _name_unseen_character(command):
        walk.add_fault(problem)
    return _report(walk, cwd)


def _unreadable(error: str) -> ShellReport:
    reason = f"the command cannot be read: {error}"
    return ShellReport(False, error, (), (), "general", False, (reason,), (Unreadable(reason),))


def _report(walk: Walk, cwd: str) -> ShellReport:
    reasons = [*walk.notes, *walk.faults]
    found: list[Effect] = []
    kinds: list[Class] = []
    faults = list(walk.faults)
    shell_alone = all(program_of(each.name).heeds == "none" for each in walk.found)
    for each in walk.found:
        run, unreadable = _run(each, cwd, shell_alone)
        writes = any(not isinstance(effect, (ReadPath, Connect)) for effect in run.implies)
        kind = None if each.wraps or each.function else class_of(each.name, run.read_only, writes)
        if kind:
            kinds.append(kind)
            run = replace_values(run, kind=kind)
        found.append(run)
        if not run.read_only:
            reasons.append(run.reason)
        if unreadable:
            faults.append(run.reason)
    for name, value, problem in _variables(walk):
        # Judged separately: a rule that allows the command does not cover what a variable makes of it.
        found.append(RunCommand((f"{name}={value.text}",), False, problem))
        reasons.append(problem)
    opened = {"", "0", "1", "2", *(redirect.fd for redirect in walk.redirects)}
    for redirect in walk.redirects:
        if redirect.op in (">&", "<&") and redirect.static and (odd := redirect.target.text.rstrip("-")) not in opened:
            # In a persistent shell it may be open and refer to another file.
            faults += [f"the descriptor {odd} is opened by another command"] if odd.isdecimal() else []
        for effect in _redirect_effects(redirect):
            found.append(effect)
            if not isinstance(effect, ReadPath):
                reasons.append(f"`{redirect.op} {redirect.target.text}` writes")
                kinds.append("write")
            if isinstance(effect, Connect):  # what a program would do with its words, and judged as one
                found.append(RunCommand((redirect.op + redirect.target.text,), False, "it opens a connection"))
    for word, directories in walk.also_read:
        found += locate(Touch("read", globs.folder_of(word)), directories)
    found += [Unreadable(reason) for reason in dict.fromkeys(faults)]
    reasons = list(dict.fromkeys(reasons))
    return ShellReport(
        True,
        "",
        tuple(_simple(each) for each in walk.found),
        tuple(Redirect(each.op, each.fd, each.target.text, each.static) for each in walk.redirects),
        least_safe(kinds),
        not reasons,
        tuple(reasons),
        tuple(found),
    )


def _variables(walk: Walk) -> Iterator[tuple[str, Word, str]]:
    """Yield each assignment that is not known to be harmless, and why."""
    set_for_commands = [pair for each in walk.found for pair in read_only.heeded_variables(each)]
    for pairs, problem_of in (
        (walk.assigned, scope.variable_problem),
        (set_for_commands, scope.setting_problem),
    ):
        for name, value in dict.fromkeys(pairs):
            if problem := problem_of(name, value):
                yield name, value, problem


def _run(found: FoundCommand, cwd: str, shell_alone: bool) -> tuple[RunCommand, bool]:
    verdict = read_only.judge(found, shell_alone=shell_alone)
    implied: dict[Effect, None] = {}
    elsewhere = bool(verdict.problem) and any(directory != cwd for directory in found.directories)
    # What an unknown program does depends on its directory: a rule that allows it does not cover every directory.
    for touch in (*_touches(found, verdict), *([Touch("read", Word("."))] if elsewhere else ())):
        implied.update(dict.fromkeys(locate(touch, found.directories)))
    problem = verdict.problem
    unknown = next((effect.reason for effect in implied if isinstance(effect, Unreadable)), "")
    if unknown and not problem:
        problem = unknown
    words = tuple(word.text for word in found.words)
    opaque = "" if not verdict.problem else _opaque_problem(found)
    fed = found.context.fed.text if problem and found.context.fed is not None else ""
    run = RunCommand(words, not problem, problem, tuple(implied), fed)
    return run, verdict.unreadable or bool(unknown) or bool(opaque)


def _opaque_problem(found: FoundCommand) -> str:
    """Return the first word that cannot be known, of a command that is not known to be a read."""
    return next(
        (word.text for word in found.words if word.kind == "opaque" or globs.finds_option(word, found.directories)), ""
    )


def _touches(found: FoundCommand, verdict: Verdict) -> list[Touch]:
    if found.wraps is not None or found.function:
        return []
    touches = list(_own_touches(found, verdict))
    judged = {touch.word.text for touch in touches}
    patterns = [word for word in found.words if word.kind == "glob" and not word.path and word.text not in judged]
    return [*touches, *(Touch("read", globs.folder_of(word)) for word in patterns)]


def _own_touches(found: FoundCommand, verdict: Verdict) -> Iterator[Touch]:
    if not verdict.problem:
        for word in verdict.reads:
            yield Touch("read", word, verdict.recursive, follows=verdict.follows)
        yield from (Touch("read", word, if_there=True) for word in verdict.may_read)
        return
    rest = found.words[1:]
    known = list(touches(found.name, rest)) or list(guess_touches(rest))
    yield from known
    yield from secrets_named(rest, known)


def _redirect_effects(redirect: FoundRedirect) -> Iterator[Effect]:
    target, op = redirect.target, redirect.op
    text = target.text
    if op in _TEXTS:
        return
    if op in (">&", "<&") and target.literal and (_DESCRIPTOR.fullmatch(text) or text == "-"):
        return
    if op == "<" and target.kind == "glob":  # one of the matching files
        yield from locate(Touch("read", target), redirect.directories)
        return
    if not target.literal or op == "<&":
        yield Unreadable(f"the target of `{op}` is not literal: {text}")
        return
    if text.startswith(("/dev/tcp/", "/dev/udp/")):
        host, _, port = text[9:].partition("/")
        yield Connect(host.lower(), int(port) if port.isdigit() else None)
        return
    if STREAMS.fullmatch(text):
        return
    if op in _READS:
        yield from locate(Touch("read", target), redirect.directories)
    if op in _WRITES:
        yield from locate(Touch("write", target), redirect.directories)
    elif op not in _READS:
        yield Unreadable(f"the redirection `{op}` is not understood")


def _simple(found: FoundCommand) -> SimpleCommand:
    return SimpleCommand(
        name=found.name,
        words=tuple(word.text for word in found.words),
        literal=all(word.kind != "opaque" for word in found.words) and found.words[0].literal,
        position=found.context.position,
        nested=found.context.nested,
        cwd=found.directories[0] if found.directories else None,
        wrappers=found.context.wrappers,
        assignments=tuple((name, value.text) for name, value in found.context.assigns),
    )


def _command_dict(command: SimpleCommand) -> dict[str, object]:
    return {
        "name": command.name,
        "words": list(command.words),
        "literal": command.literal,
        "position": command.position,
        "nested": command.nested,
        "wrappers": list(command.wrappers),
        "assignments": [f"{name}={value}" for name, value in command.assignments],
    }


# All control characters but tab and newline, and characters that are drawn as nothing, as a blank or in another order:
# they can hide a part of a command from the person who approves it.
_UNSEEN_CHARACTER = lazy_pattern(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\xa0\xad"
    "\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f"
    "\u2000-\u200f\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164"
    "\ud800-\udfff\ue000-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ufffe\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001345f\U0001bca0-\U0001bca3\U0001d159\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff\U000f0000-\U0010ffff"
    "]"
)


def _name_unseen_character(text: str) -> str | None:
    """Describe the first control or invisible character of `text` and its position, if there is one."""
    hit = None if text.isascii() and text.isprintable() else _UNSEEN_CHARACTER.search(text)
    if hit is None:
        return None
    return f"character U+{ord(hit.group()):04X} at position {hit.start()} cannot be seen"
