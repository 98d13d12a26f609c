"""From the text of a command to its syntax tree.

The tree is the one `shfmt --to-json` prints (nodes are dictionaries, `Type` names the kind). Plain commands get the
same tree without a process (`plain.py`). What either cannot read is an error, never a guess.
"""

from __future__ import annotations

import os
import re
import sys
from functools import lru_cache

from surehand.shell.parser_process import PARSERS, ParserFailure
from surehand.shell.plain import Node, parse_plain

MAX_COMMAND_BYTES = 100_000
PARSER_TIMEOUT_S = 5.0
MAX_TREE_BYTES = 6_000_000
"""The parser prints some 160 bytes for each of a dense script: this is about 40 kB of those, and far more of text."""
_REMEMBERED_BYTES = 4_000


class SyntaxFault(Exception):
    """The command is not a script that bash would accept, or not one that can be read within bounds."""


def parse(command: str) -> Node:
    """Return the tree of `command`; raise `SyntaxFault` with the position of the fault."""
    source = _encode(command)
    tree = parse_plain(command)
    if tree is not None:
        return tree
    return _parse_again(source) if len(source) < _REMEMBERED_BYTES else _parse(source)


def parse_full(command: str) -> Node:
    """Return the tree as the parser process prints it."""
    return _parse(_encode(command))


@lru_cache(maxsize=128)
def _parse_again(source: bytes) -> Node:
    """Return the tree of a command that may be judged several times on its way; nobody changes a tree."""
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
    """Return where `shfmt` lies: beside the interpreter, where its package puts it, or else in PATH."""
    name = "shfmt.exe" if os.name == "nt" else "shfmt"
    beside = os.path.join(os.path.dirname(sys.executable), name)
    if os.access(beside, os.X_OK):
        return beside
    import shutil
    import sysconfig

    scripts = os.path.join(sysconfig.get_path("scripts"), name)
    return scripts if os.access(scripts, os.X_OK) else shutil.which(name) or name
