"""Typed access to the syntax tree: dictionaries as `shfmt` prints them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Literal, cast

from surehand.core.text import lazy_pattern
from surehand.shell.syntax import Node

COMMAND_KINDS = frozenset(("CallExpr", "DeclClause", "LetClause"))
_BEFORE_A_COMMENT = lazy_pattern(rb"(?:^|[^\\])[ \t\n;&|(]\Z|\A\Z")
_EXPANDS = lazy_pattern(r"[$`]|[<>]\(")
_SUBSTITUTES = lazy_pattern(r"`|\$[({]")
_ESCAPED = lazy_pattern(r"\\.", re.DOTALL)
_COUNTERS = frozenset(
    ("wc -l", "wc -c", "wc -w", "wc -m", "nproc", "id -u", "id -g", "date +%s", "git rev-list --count HEAD")
)
_SMALL = lazy_pattern(r"0|[1-9]\d{0,5}", re.ASCII)
_MOST_NUMBERS = 64
# Commands that print one number, with at most one file: with several they also print names.
_COUNTS_ONE = lazy_pattern(
    r"date\t-d\t[^\t-][^\t]*\t\+%s|stat\t-c\t%[sY]\t[^\t*?\[{~-][^\t*?\[{]*"
    r"|grep\t-[ivwEF]*c[ivwEF]*\t[^\t-][^\t]*(?:\t[^\t*?\[{~-][^\t*?\[{]*)?"
)
_SPECIAL = lazy_pattern(r"[\\*?\[{~]")
_SUBSTITUTIONS = ("CmdSubst", "ProcSubst")


def child(node: Node | None, key: str) -> Node:
    """Return the node under `key`; an empty one if it is missing."""
    found: Any = node.get(key) if node else None
    return cast(Node, found) if found else {}


def children(node: Node | None, key: str) -> list[Node]:
    """Return the list of nodes under `key`; an empty one if it is missing."""
    found: Any = node.get(key) if node else None
    return cast("list[Node]", found) if found else []


def text(node: Node | None, key: str) -> str:
    """Return the value of the literal under `key` (a name, a descriptor); empty if it is missing."""
    return str(child(node, key).get("Value", ""))


def _inner(values: Iterable[object]) -> list[object]:
    """Return the values that contain nodes, leaving out texts and source positions."""
    return [
        each
        for each in values
        if each.__class__ is list or (each.__class__ is dict and cast(Node, each).get("Offset").__class__ is not int)
    ]


def below(root: object, leave_out: str = "") -> Iterator[Node]:
    """Yield every node of a tree, the root first, except those under the key `leave_out`."""
    waiting: list[object] = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            mapping = cast(Node, each)
            yield mapping
            waiting += _inner(value for key, value in mapping.items() if key != leave_out)
        elif isinstance(each, list):
            waiting += cast("list[object]", each)


def outermost(root: object, kinds: tuple[str, ...]) -> Iterator[Node]:
    """Yield the nodes of the given kinds in source order, without entering substitutions."""
    waiting: list[object] = [root]
    while waiting:
        each = waiting.pop()
        if isinstance(each, list):
            waiting.extend(reversed(cast("list[object]", each)))
            continue
        if not isinstance(each, dict):
            continue
        mapping = cast(Node, each)
        kind = mapping.get("Type")
        if kind in kinds:
            yield mapping
        if kind not in _SUBSTITUTIONS:
            waiting += reversed(_inner(mapping.values()))


def count_commands(tree: Node) -> int:
    """Return the number of simple commands in a tree, at any depth."""
    return sum(1 for node in below(tree) if node.get("Type") in COMMAND_KINDS)


def doubtful_comment(tree: Node, source: str) -> bool:
    """Whether the parser read something as a comment that bash does not.

    In bash a `#` opens a comment only where a word may begin, and the comment always ends with its line. The parser
    continues it after a backslash, and inside substitutions accepts a `#` right after an expansion or a quote; both
    would hide a command.
    """
    encoded = source.encode(errors="surrogatepass")
    for node in below(tree):
        if "Hash" in node:
            at = int(child(node, "Hash").get("Offset", 0))
            if "\n" in str(node.get("Text", "")) or not _BEFORE_A_COMMENT.search(encoded[max(at - 2, 0) : at]):
                return True
    return False


def hidden_expansion(tree: Node) -> bool:
    """Whether bash expands something in text the parser took as plain, as in `[[ x == @(a|$(command)) ]]`."""
    return any(
        (node.get("Type") == "ExtGlob" and _EXPANDS.search(text(node, "Pattern")))
        or (node.get("Type") == "Lit" and _SUBSTITUTES.search(_ESCAPED.sub("", node.get("Value", ""))))
        for node in below(tree, leave_out="Hdoc")  # heredocs may be quoted as a whole
    )


def lines(statements: list[Node]) -> Iterator[list[Node]]:
    """Group statements by line: one that begins on the line where the previous one ends belongs to its group."""
    group: list[Node] = []
    for each in statements:
        if group and child(each, "Pos").get("Line", 0) > child(group[-1], "End").get("Line", 0):
            yield group
            group = []
        group.append(each)
    yield group


_MAY_FAIL = frozenset(("ArithmExp", "ArithmCmd", "LetClause", "TestClause", "ArithmExpr"))


def may_abort(statements: list[Node]) -> bool:
    """Whether an expansion on a line may fail, so that bash skips the rest of the line and continues with the next.

    A division by zero or a bad subscript, offset or number does that; a plain `$name` does not.
    """
    return any(
        node.get("Type") in _MAY_FAIL or node.get("Index") or node.get("Slice") or node.get("Exp") or node.get("Repl")
        for node in below(statements)
    )


def with_own_body(function: Node) -> Node:
    """Return a function definition with its body corrected, as bash reads `f() { a; } && b`.

    The parser takes the whole list for the body; in bash only the group is.
    """
    lists: list[Node] = []
    body = child(function, "Body")
    while child(body, "Cmd").get("Type") == "BinaryCmd":
        lists.append(body)
        body = child(body["Cmd"], "X")
    found: Node = {"Cmd": {**function, "Body": body}}
    for each in reversed(lists):
        found = {**each, "Cmd": {**each["Cmd"], "X": found}}
    return found


def and_or_parts(node: Node) -> list[tuple[str, Node]]:
    """Flatten `a && b || c`, which nests to the left, into operators and statements."""
    parts: list[tuple[str, Node]] = []
    while True:
        parts.append((node["Op"], node["Y"]))
        left = child(node, "X")
        inner = child(left, "Cmd")
        if inner.get("Type") != "BinaryCmd" or inner["Op"] not in ("&&", "||") or _has_extras(left):
            parts.append(("", left))
            return parts[::-1]
        node = inner


def pipeline_parts(node: Node) -> list[Node]:
    """Flatten `a | b | c` into its statements."""
    parts: list[Node] = []
    waiting: list[Node] = [node["Y"], node["X"]]
    while waiting:
        part = waiting.pop()
        inner = child(part, "Cmd")
        if inner.get("Type") == "BinaryCmd" and inner["Op"] in ("|", "|&") and not _has_extras(part):
            waiting += [inner["Y"], inner["X"]]
        else:
            parts.append(part)
    return parts


def _has_extras(statement: Node) -> bool:
    return any(statement.get(key) for key in ("Redirs", "Negated", "Background", "Coprocess"))


def first_word(node: Node) -> str:
    """Return the first word of a simple command if it is plain text."""
    parts = [part for word in children(child(node, "Cmd"), "Args")[:1] for part in children(word, "Parts")]
    return str(parts[0].get("Value", "")) if parts else ""


def is_plain(node: Node) -> bool:
    """Whether a part of a pipeline is a simple command without redirections, except of its errors to a file."""
    redirected = any(text(each, "N") != "2" or each["Op"] not in (">", ">>") for each in children(node, "Redirs"))
    return child(node, "Cmd").get("Type") == "CallExpr" and not redirected


def counted_by_seq(call: Node) -> list[str]:
    """Return the numbers that a plain `seq 1 5` prints; none for any other command or too many numbers."""
    parts = [children(word, "Parts") for word in children(call, "Args")]
    words = [str(each[0].get("Value", "")) if len(each) == 1 else "" for each in parts]
    if (
        words[:1] != ["seq"]
        or len(words) not in (2, 3)
        or call.get("Assigns")
        or not all(map(_SMALL.fullmatch, words[1:]))
    ):
        return []
    first, last = (int(words[1]), int(words[2])) if len(words) == 3 else (1, int(words[1]))
    return [str(number) for number in range(first, last + 1)] if last - first < _MOST_NUMBERS else []


def find_arrays(tree: Node) -> set[str]:
    """Return the variables that a script may make arrays."""
    found: set[str] = set()
    for node in below(tree):
        if node.get("Array") or node.get("Index"):
            found |= {text(node, "Name"), text(node, "Param")}
        elif node.get("Type") == "DeclClause" and any(not arg.get("Name") for arg in children(node, "Args")):
            found |= {text(arg, "Name") for arg in children(node, "Args")}  # declared with options
    return found


def prints_a_number(substitution: Node) -> bool:
    """Whether a substitution prints only one number: `$(ls | wc -l)`."""
    statements = children(substitution, "Stmts")
    if len(statements) != 1:
        return False
    command = child(statements[0], "Cmd")
    last = pipeline_parts(command)[-1] if command.get("Op") in ("|", "|&") else statements[0]
    if any(each["Op"] not in ("<", "<<", "<<<") for each in children(last, "Redirs")):
        return False  # error messages would be printed, too
    parts = [children(word, "Parts") for word in children(child(last, "Cmd"), "Args")]
    words = [str(each[0].get("Value", "")) if len(each) == 1 and not _is_altered(each[0]) else "" for each in parts]
    counts = " ".join(words) in _COUNTERS or (all(words) and _COUNTS_ONE.fullmatch("\t".join(words)) is not None)
    return counts and not child(last, "Cmd").get("Assigns")


# Commands that print only object names, short names of references, or dates. Without `--verify`, `rev-parse` echoes
# what it does not know; an object given by its hash may be in no history.
_KNOWN_REVISION = r"(?:HEAD|@)(?:[~^]\d*)*"
_REVISION = rf"(?:{_KNOWN_REVISION}|(?![0-9a-f]{{4,40}}\b|\w*_HEAD)[A-Za-z_][\w./-]*(?:[~^]\d*)*)"
_PRINTS_OBJECTS = lazy_pattern(
    rf"git\tmerge-base(?:\t(?:-a|--all|--octopus|--fork-point))*(?:\t{_REVISION})+"
    rf"|git\trev-parse(?:\t--short(?:=\d+)?)?\t{_KNOWN_REVISION}"
    rf"|git\trev-parse(?:\t(?:-q|--quiet|--short(?:=\d+)?))*\t--verify(?:\t(?:-q|--quiet|--short(?:=\d+)?))*\t{_REVISION}"
    rf"|git\t(?:rev-list|log\t(?:--format=|--pretty=(?:t?format:)?)%[hH])"
    rf"(?:\t(?:-n\t?\d+|-\d+|--max-count=\d+|--max-parents=0|--all|--tags|--reverse|--merges|--no-merges|--first-parent"
    rf"|(?:--since|--until|--author|--grep)=[^\t]*|{_REVISION}))*(?:\t--(?:\t[\w./-]+)+)?"
)
_PRINTS_REFERENCES = lazy_pattern(
    rf"git\tdescribe(?:\t(?:--tags|--always|--long|--exact-match|--first-parent|--abbrev=\d+|--match=[^\t]*))*(?:\t{_REVISION})?"
    r"|git\trev-parse\t--abbrev-ref\t(?:HEAD|@)|git\tbranch\t--show-current"
    r"|git\tsymbolic-ref\t(?:-q\t)?--short\tHEAD|git\ttag(?:\t(?:-l|--list|--sort=[\w:-]+|--merged))*"
)
_PRINTS_DATE = lazy_pattern(
    r"date(?:\t(?:-u|--utc))?(?:\t(?:-d\t[^\t-]|--date=)[^\t]*)?"
    r"\t\+%[YmdHMSFTjyCuwGgUVW](?:[A-Za-z0-9_:.,+-]|%-?[YmdHMSFTjyCuwGgUVWNsabAB])*"
)
_TAKES_SOME = lazy_pattern(r"(?:head|tail)(?:\t-n)?\t-?\d+")


_EXPANDED = lazy_pattern(r"\A~|[*?\[{]")


def kind_of_token(substitution: Node) -> Literal["", "object", "reference", "date"]:
    """Return the kind of all words that a substitution prints; empty if it may print others."""
    statements = children(substitution, "Stmts")
    command = child(statements[0], "Cmd") if len(statements) == 1 else {}
    first, *rest = pipeline_parts(command) if command.get("Op") == "|" else (statements[:1] or [{}])
    if not command or any(_has_extras_but_errors(each) or child(each, "Cmd").get("Assigns") for each in (first, *rest)):
        return ""
    if not all(_TAKES_SOME.fullmatch(_plain_words(each)) for each in rest):
        return ""
    words = _plain_words(first)
    if _PRINTS_DATE.fullmatch(words):
        return "date"
    if _PRINTS_OBJECTS.fullmatch(words):
        return "object"
    return "reference" if _PRINTS_REFERENCES.fullmatch(words) else ""


def _has_extras_but_errors(statement: Node) -> bool:
    redirects = children(statement, "Redirs")
    silent = all(
        each["Op"] == ">" and text(each, "N") == "2" and _plain_text(child(each, "Word")) == "/dev/null"
        for each in redirects
    )
    return not silent or any(statement.get(key) for key in ("Negated", "Background", "Coprocess"))


def _plain_words(statement: Node) -> str:
    """Return the words of a simple command joined by tabs; empty if one is not plain text."""
    command = child(statement, "Cmd")
    words = [_plain_text(each) for each in children(command, "Args")] if command.get("Type") == "CallExpr" else []
    return "\t".join(words) if all(words) and not any("\t" in each for each in words) else ""


def _plain_text(word: Node) -> str:
    found = ""
    for part in children(word, "Parts"):
        inner = children(part, "Parts") if part["Type"] == "DblQuoted" else [part]
        quoted = part["Type"] != "Lit"
        if any(each["Type"] not in ("Lit", "SglQuoted") or each.get("Dollar") for each in inner):
            return ""
        if any("\\" in each.get("Value", "") or (not quoted and _EXPANDED.search(each["Value"])) for each in inner):
            return ""
        found += "".join(each.get("Value", "") for each in inner)
    return found


def _is_altered(part: Node) -> bool:
    """Whether bash changes a part by a backslash, braces, a tilde or a glob."""
    return bool(part.get("Dollar")) or (part["Type"] == "Lit" and _SPECIAL.search(part.get("Value", "")) is not None)
