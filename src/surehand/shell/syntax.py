"""Parses a command to the syntax tree that `shfmt --to-json` prints: nodes are dictionaries, `Type` names their kind.

What cannot be parsed is an error, never a guess. Most commands are plain words joined by `|`, `&&`, `||`, `;` and
newlines: these are parsed to the same tree without a process.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import threading
import time
from functools import lru_cache
from typing import Any, Final, TypeAlias

from surehand.core.text import lazy_pattern
from surehand.shell.options import names

Node: TypeAlias = dict[str, Any]

# The parser for plain commands. It accepts quotes without expansions inside, and redirections to `/dev/null` and
# between descriptors.

_TOKEN = lazy_pattern(
    r"""
    (?P<blank>[ \t]+)
  | (?P<redirect>
      (?P<fd>[12]?) (?: (?P<copy>>&)(?P<to>[12]) | (?P<both>&>)[ ]?/dev/null | (?P<out>>>?)[ ]?/dev/null ) (?=[\s;|]|$)
    )
  | (?P<join>\|\||&&|\||;|\n)
  | (?P<word>(?:[\w@%+=:,./^~*?\[\]{}!#-]|'[^']*'|"[^"$`\\]*"|\\[!-~])+)
    """,
    re.VERBOSE,
)
_PART = lazy_pattern(r"""'([^']*)'|"([^"]*)"|((?:[^'"\\]|\\.)+)""", re.DOTALL)
_COMMAND_WORD = lazy_pattern(r"[A-Za-z0-9_./+:-]+|\[", re.ASCII)

# First words that open a construct or a declaration: left to the full parser.
_RESERVED = names(
    """if then elif else fi for while until case esac select do done in function time coproc
    declare typeset local export readonly nameref let"""
)


def parse_plain(command: str) -> Node | None:
    """Return the tree of a plain command; `None` if it needs the full parser."""
    reader = _PlainParser()
    position, end = 0, len(command)
    scan = _TOKEN.match
    while position < end:
        token = scan(command, position)
        if token is None or not reader.take(token):
            return None
        position = token.end()
    return reader.finish()


class _PlainParser:
    """Builds statements from tokens; False or None means that the full parser is needed."""

    def __init__(self) -> None:
        self.statements: list[Node] = []
        self.words: list[Node] = []
        self.redirects: list[Node] = []
        self.left: Node | None = None  # the left side of a pending `&&` or `||`
        self.join = ""  # the pending `&&` or `||`
        self.pipe: list[Node] = []
        self.glued = False  # the last token was a word: only a blank or an operator may follow

    def take(self, token: re.Match[str]) -> bool:
        kind = token.lastgroup
        if kind == "blank":
            self.glued = False
            return True
        if kind == "join":
            self.glued = False
            return self.end_of_command(token.group())
        if self.glued:
            return False
        self.glued = True
        return self.add_word(token.group()) if kind == "word" else self.add_redirect(token)

    def add_word(self, text: str) -> bool:
        if not self.words and (self.redirects or not _COMMAND_WORD.fullmatch(text) or text in _RESERVED):
            return False
        if text[0] == "#":
            return False
        self.words.append(_word(text))
        return True

    def add_redirect(self, token: re.Match[str]) -> bool:
        if not self.words:
            return False
        op = token["copy"] or token["both"] or token["out"]
        if token["both"] and token["fd"]:
            return False
        target = token["to"] or "/dev/null"
        node: Node = {"Op": op, "Word": _word(target)}
        if token["fd"]:
            node["N"] = {"Value": token["fd"]}
        self.redirects.append(node)
        return True

    def end_of_command(self, join: str) -> bool:
        if not self.words:
            return join == "\n" and not self.pipe and not self.join
        statement: Node = {"Cmd": {"Type": "CallExpr", "Args": self.words}}
        if self.redirects:
            statement["Redirs"] = self.redirects
        self.words, self.redirects = [], []
        self.pipe.append(statement)
        if join != "|":
            self.end_of_pipeline(join)
        return True

    def end_of_pipeline(self, join: str) -> None:
        whole = self.pipe[0]
        for part in self.pipe[1:]:
            whole = _binary("|", whole, part)
        self.pipe = []
        if self.left is not None:
            whole = _binary(self.join, self.left, whole)
        self.left, self.join = None, ""
        if join in ("&&", "||"):
            self.left, self.join = whole, join
        else:
            self.statements.append(whole)

    def finish(self) -> Node | None:
        if self.words:
            self.end_of_command("\n")
        elif self.pipe or self.join:
            return None
        return {"Type": "File", "Stmts": self.statements}


def _binary(op: str, left: Node, right: Node) -> Node:
    return {"Cmd": {"Type": "BinaryCmd", "Op": op, "X": left, "Y": right}}


def _word(text: str) -> Node:
    if "'" not in text and '"' not in text:
        return {"Parts": [{"Type": "Lit", "Value": text}]}
    parts: list[Node] = []
    for single, double, bare in _PART.findall(text):
        if bare:
            parts.append({"Type": "Lit", "Value": bare})
        elif double:
            parts.append({"Type": "DblQuoted", "Parts": [{"Type": "Lit", "Value": double}]})
        else:
            parts.append({"Type": "SglQuoted", "Value": single})
    return {"Parts": parts}


# `shfmt` as a process: it reads one script from standard input, prints the tree and exits.
#
# Starting the process is most of the cost of a parse, so from the second script on, the next process is started ahead
# and waits for its input. It exits when it is not needed for a while, and when this process ends: its input is closed.

WAITS_S: Final = 20.0
_ENVIRONMENT: Final[dict[str, str]] = {"GOMAXPROCS": "2", "GOGC": "400"}
_BLOCK: Final = 1 << 16


class ParserFailure(Exception):
    """The parser could not be started, timed out or printed too much."""


class ParserProcess:
    """One run of the parser."""

    def __init__(self, argv: tuple[str, ...]) -> None:
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,  # a signal to our group (Ctrl-C) is not meant for it
            )
        except OSError as error:
            raise ParserFailure(f"the parser cannot be started ({error})") from error
        self.pid = self._process.pid

    def parse(self, source: bytes, timeout_s: float, limit_bytes: int) -> tuple[int, bytes, str]:
        """Return exit code, printed tree and error message; kill the process at either limit."""
        try:
            printed, complaint = self._exchange(source, time.monotonic() + timeout_s, limit_bytes)
            return self._process.wait(), printed, complaint.decode(errors="replace")
        except TimeoutError as error:
            raise ParserFailure(f"the parser did not finish within {timeout_s:g} s") from error
        finally:
            self.end()

    def _exchange(self, source: bytes, deadline: float, limit_bytes: int) -> tuple[bytes, bytes]:
        """Write the script and collect both outputs until they are closed."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        inlet, outlets = process.stdin.fileno(), (process.stdout.fileno(), process.stderr.fileno())
        collected: dict[int, list[bytes]] = {outlet: [] for outlet in outlets}
        left, total = memoryview(source), 0
        os.set_blocking(inlet, False)
        poll = select.poll()
        for outlet in outlets:
            poll.register(outlet, select.POLLIN)
        poll.register(inlet, select.POLLOUT)
        waiting = {inlet, *outlets}
        while waiting & set(outlets):
            events = poll.poll(max(deadline - time.monotonic(), 0) * 1000)
            if not events:
                raise TimeoutError
            for descriptor, _ in events:
                if descriptor == inlet:
                    left = left[_write(inlet, left) :]
                    over = not left
                else:
                    data = os.read(descriptor, _BLOCK)
                    total += len(data)
                    collected[descriptor].append(data)
                    over = not data
                if total > limit_bytes:
                    raise ParserFailure("the command is too large to be read")
                if over:
                    poll.unregister(descriptor)
                    waiting.discard(descriptor)
                    if descriptor == inlet:
                        process.stdin.close()
        return b"".join(collected[outlets[0]]), b"".join(collected[outlets[1]])

    def end(self) -> None:
        """Kill the process and close its pipes."""
        process = self._process
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:
                pass


def _write(descriptor: int, data: memoryview) -> int:
    try:
        return os.write(descriptor, data)
    except BlockingIOError:
        return 0
    except BrokenPipeError:
        return len(data)  # it has exited; its error message says why


class Parsers:
    """Pool of parser processes: from the third script on, one was started ahead."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spare: ParserProcess | None = None
        self._taken = threading.Event()
        self._starting = False
        self._asked = 0
        os.register_at_fork(after_in_child=self._forget)

    def take(self, argv: tuple[str, ...]) -> ParserProcess:
        """Return an unused parser, the one started ahead if there is one."""
        with self._lock:
            spare, self._spare = self._spare, None
            self._taken.set()
            self._asked += 1
            ahead = self._asked > 1 and not self._starting
            self._starting = self._starting or ahead
        if ahead:
            threading.Thread(target=self._keep_one_waiting, args=(argv,), name="shell-parser", daemon=True).start()
        return spare or ParserProcess(argv)

    def end(self) -> None:
        """Kill the waiting parser; the next script starts a new one."""
        with self._lock:
            spare, self._spare, self._asked = self._spare, None, 0
            self._taken.set()
        if spare is not None:
            spare.end()

    def _keep_one_waiting(self, argv: tuple[str, ...]) -> None:
        try:
            process = ParserProcess(argv)
        except ParserFailure:
            process = None
        with self._lock:
            self._starting = False
            taken = self._taken = threading.Event()
            surplus, self._spare = self._spare, process
        if surplus is not None:
            surplus.end()
        if not taken.wait(WAITS_S):
            with self._lock:
                idle = self._spare is process
                if idle:
                    self._spare = None
            if idle and process is not None:
                process.end()

    def _forget(self) -> None:
        """Forget the parser in a forked child: it belongs to the parent."""
        self._lock = threading.Lock()
        self._spare, self._starting, self._asked = None, False, 0


PARSERS: Final = Parsers()


MAX_COMMAND_BYTES = 100_000
PARSER_TIMEOUT_S = 5.0
MAX_TREE_BYTES = 6_000_000
"""The parser prints some 160 bytes per byte of a dense script: enough for 40 kB of those, and far more of text."""
_REMEMBERED_BYTES = 4_000


class SyntaxFault(Exception):
    """The command is not a script that bash accepts, or exceeds the limits."""


def parse(command: str) -> Node:
    """Return the tree of `command`; raise `SyntaxFault` with the position of an error."""
    source = _encode(command)
    tree = parse_plain(command)
    if tree is not None:
        return tree
    return _parse_again(source) if len(source) < _REMEMBERED_BYTES else _parse(source)


def parse_full(command: str) -> Node:
    """Return the tree from the parser process, even for a plain command."""
    return _parse(_encode(command))


@lru_cache(maxsize=128)
def _parse_again(source: bytes) -> Node:
    """Return the cached tree: a command is judged several times. Trees are never modified."""
    return _parse(source)


def _parse(source: bytes) -> Node:
    import json

    printed = _run_parser(source)
    try:
        tree: Node = json.loads(printed)
    except RecursionError as error:
        raise SyntaxFault("the command is nested too deeply to be read") from error
    except ValueError as error:
        raise SyntaxFault("the parser printed no tree") from error
    return tree


def _encode(command: str) -> bytes:
    if "\0" in command:
        raise SyntaxFault(f"NUL character at position {command.index(chr(0))}")
    try:
        source = command.encode()
    except UnicodeEncodeError as error:
        raise SyntaxFault(f"character at position {error.start} is not valid Unicode") from error
    if len(source) > MAX_COMMAND_BYTES:
        raise SyntaxFault(f"the command is too long to be read ({len(source)} bytes, at most {MAX_COMMAND_BYTES})")
    return source


def _run_parser(source: bytes) -> bytes:
    try:
        parser = PARSERS.take((parser_path(), "--to-json", "-ln", "bash"))
        code, printed, complaint = parser.parse(source, PARSER_TIMEOUT_S, MAX_TREE_BYTES)
    except ParserFailure as failure:
        raise SyntaxFault(str(failure)) from failure
    if code != 0:
        raise SyntaxFault(_fault_of(complaint))
    return printed


def _fault_of(printed: str) -> str:
    """Turn `3:7: reached EOF without closing quote` into a sentence with line and column."""
    first = printed.strip().splitlines()[0] if printed.strip() else "the parser failed"
    located = re.match(r"(?:<standard input>:)?(\d+):(\d+): (.*)", first)
    if located is None:
        return first
    line, column, message = located.groups()
    return f"line {line}, column {column}: {message}"


@lru_cache(maxsize=1)
def parser_path() -> str:
    """Return the path of `shfmt`: beside the interpreter, in its scripts directory, or from PATH."""
    name = "shfmt.exe" if os.name == "nt" else "shfmt"
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if os.access(beside, os.X_OK):
        return beside
    import shutil
    import sysconfig

    scripts = os.path.join(sysconfig.get_path("scripts"), name)
    return scripts if os.access(scripts, os.X_OK) else shutil.which(name) or name
