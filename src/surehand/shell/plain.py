"""The fast path of parsing: lines of plain words, joined by `|`, `&&`, `||`, `;` and newlines.

It yields the same tree that `shfmt` would, for the subset it is sure of, and `None` for everything else. Quotes are
covered where nothing inside them expands; the only redirections are those to `/dev/null` and between descriptors.
"""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from surehand.core.text import lazy_pattern
from surehand.shell.options import names

Node: TypeAlias = dict[str, Any]

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

# Words that open a construct or a declaration when they stand first: the full parser reads those.
_RESERVED = names(
    """if then elif else fi for while until case esac select do done in function time coproc
    declare typeset local export readonly nameref let"""
)


def parse_plain(command: str) -> Node | None:
    """Return the tree of a plain command, or `None` when only the full parser can be sure."""
    reader = _Reader()
    position, end = 0, len(command)
    scan = _TOKEN.match
    while position < end:
        token = scan(command, position)
        if token is None or not reader.take(token):
            return None
        position = token.end()
    return reader.finish()


class _Reader:
    """Builds statements out of tokens; every refusal means "ask the full parser"."""

    def __init__(self) -> None:
        self.statements: list[Node] = []
        self.words: list[Node] = []
        self.redirects: list[Node] = []
        self.left: Node | None = None  # what stands before a pending `&&` or `||`
        self.join = ""  # the pending `&&` or `||`
        self.pipe: list[Node] = []
        self.glued = False  # the last token was a word: nothing but a blank or a join may follow

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
