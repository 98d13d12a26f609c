"""Arithmetic: the value of `$((...))` where every operand is a number.

bash evaluates the value of a name as another expression, and subscripts in it may run commands. So a name is accepted
only if its value is certainly a number.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping

from surehand.core.text import lazy_pattern
from surehand.shell.syntax import Node
from surehand.shell.tree import child, children, prints_a_number, text
from surehand.shell.word import Word

_NUMBER = lazy_pattern(r"0[xX][0-9a-fA-F]+|0[0-7]*|[1-9][0-9]*|2#[01]+|16#[0-9a-fA-F]+")
_WORD_SIZE = 1 << 64
_CHANGES_A_COUNT = ("Excl", "Width", "IsSet", "Flags", "NestedParam", "Modifiers", "Exp", "Repl", "Slice", "Names")

_BINARY: dict[str, Callable[[int, int], int | None]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "&": lambda left, right: left & right,
    "|": lambda left, right: left | right,
    "^": lambda left, right: left ^ right,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
    "<=": operator.le,
    ">=": operator.ge,
    "&&": lambda left, right: int(bool(left and right)),
    "||": lambda left, right: int(bool(left or right)),
    ",": lambda _left, right: right,
    "<<": lambda left, right: left << right if 0 <= right < 64 else None,
    ">>": lambda left, right: left >> right if 0 <= right < 64 else None,
    "**": lambda left, right: pow(left, right, _WORD_SIZE) if right >= 0 else None,
    "/": lambda left, right: _quotient(left, right) if right else None,
    "%": lambda left, right: left - right * _quotient(left, right) if right else None,
}
_UNARY: dict[str, Callable[[int], int]] = {
    "+": lambda value: value,
    "-": lambda value: -value,
    "~": lambda value: ~value,
    "!": lambda value: int(not value),
}


Names = Mapping[str, Word | None]


def value_of(node: Node | None, names: Names) -> int | None:
    """Return the value of an expression whose operands are all certain numbers; `None` for any other."""
    if node is None:
        return 0
    kind = node.get("Type")
    if kind == "Word":
        return _number(node, names)
    if kind == "ParenArithm":
        return value_of(node["X"], names)
    if kind == "UnaryArithm":
        return _unary(node, names)
    return _binary(node, names) if kind == "BinaryArithm" else None


_NO_NAMES: Names = {}


def is_number(node: Node | None, names: Names = _NO_NAMES) -> bool:
    """Return whether all operands are numbers: literals, counts such as `$#`, and names that hold numbers."""
    if not node:
        return True
    kind = node.get("Type")
    if kind == "Word":
        return _number(node, names) is not None or _is_count(node["Parts"]) or _names_number(node["Parts"], names)
    if kind == "ParenArithm":
        return is_number(node["X"], names)
    if kind == "UnaryArithm":
        return not node.get("Post") and node["Op"] in _UNARY and is_number(node["X"], names)
    known = kind == "BinaryArithm" and (node["Op"] in _BINARY or node["Op"] in ("?", ":"))
    return known and is_number(node["X"], names) and is_number(node["Y"], names)


_CHANGES = frozenset(("+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "|=", "^="))


def list_changed(node: Node | None, names: Names) -> list[str] | None:
    """Return the names that an expression sets to numbers; `None` if not all operands are numbers."""
    if is_number(node, names) or node is None:
        return []
    name, op = _literal(node.get("X")), node.get("Op", "")
    if node.get("Type") == "UnaryArithm" and op in ("++", "--"):
        return [name] if _is_number_name(name, names) else None
    if node.get("Type") != "BinaryArithm":
        return None
    if op == ",":
        changed = [list_changed(node[side], names) for side in "XY"]
        return None if None in changed else [each for side in changed for each in side or ()]
    sets = op == "=" and name.isidentifier() and name.isascii()
    sets = sets or (op in _CHANGES and _is_number_name(name, names))
    return [name] if sets and is_number(node["Y"], names) else None


def count_rounds(loop: Node, most: int) -> tuple[str, list[int]] | None:
    """Return the counter of `for ((i = 0; i < 3; i++))` and its values; `None` for any other loop.

    The body must not assign the counter: its value would be evaluated as an expression.
    """
    first, test, step = (child(loop, part) for part in ("Init", "Cond", "Post"))
    name = _literal(first.get("X"))
    value = value_of(first.get("Y"), {}) if first.get("Op") == "=" and first.get("Y") else None
    steps = {"++": 1, "--": -1}
    by = steps.get(step.get("Op", "")) if step.get("Type") == "UnaryArithm" else None
    if step.get("Op") in ("+=", "-=") and step.get("Y") and (given := value_of(step["Y"], {})) is not None:
        by = given if step["Op"] == "+=" else -given
    if not name.isidentifier() or value is None or not by or _literal(step.get("X")) != name or not test:
        return None
    values: list[int] = []
    while (goes_on := value_of(test, {name: Word(str(value))})) and len(values) <= most:
        values.append(value)
        value += by
        if value < 0:
            return None  # a sign is an operator, not part of a number
    return None if goes_on is None or len(values) > most else (name, values)


def _literal(node: Node | None) -> str:
    parts = children(node, "Parts") if node else []
    return str(parts[0].get("Value", "")) if len(parts) == 1 and parts[0].get("Type") == "Lit" else ""


def _is_count(parts: list[Node]) -> bool:
    if len(parts) != 1:
        return False
    part = parts[0]
    if part["Type"] == "CmdSubst":
        return not part.get("TempFile") and not part.get("ReplyVar") and prints_a_number(part)
    return _is_count(part.get("Parts", [])) if part["Type"] == "DblQuoted" else counts(part)


def counts(part: Node) -> bool:
    """Return whether an expansion always is a number: `$?`, `$#`, `$$`, `${#name}`, `${#list[@]}`."""
    if part["Type"] != "ParamExp" or any(part.get(key) for key in _CHANGES_A_COUNT):
        return False
    name = text(part, "Param")
    if not part.get("Length"):
        return name in ("?", "#", "$") and part.get("Index") is None
    index = [each.get("Value") for each in children(child(part, "Index"), "Parts")]
    return index in ([], ["@"], ["*"]) and re.fullmatch(r"\w+", name, re.ASCII) is not None


def _names_number(parts: list[Node], names: Names) -> bool:
    """Return whether an operand is a name, with or without `$`, that holds a number."""
    if len(parts) != 1:
        return False
    part = parts[0]
    if part["Type"] == "DblQuoted":
        return _names_number(part.get("Parts", []), names)
    if part["Type"] == "ParamExp" and part.keys() & {*_CHANGES_A_COUNT, "Length", "Index"}:
        return False
    name = str(part.get("Value", "")) if part["Type"] == "Lit" else text(part, "Param")
    return part["Type"] in ("Lit", "ParamExp") and _is_number_name(name, names)


def _is_number_name(name: str, names: Names) -> bool:
    value = names.get(name)
    return value is not None and (value.number or (value.literal and _NUMBER.fullmatch(value.text) is not None))


def _unary(node: Node, names: Names) -> int | None:
    apply = None if node.get("Post") else _UNARY.get(node["Op"])
    inner = value_of(node["X"], names)
    return None if apply is None or inner is None else _wrap_around(int(apply(inner)))


def _binary(node: Node, names: Names) -> int | None:
    apply = _BINARY.get(node["Op"])
    if apply is None:
        return None
    left, right = value_of(node["X"], names), value_of(node["Y"], names)
    if left is None or right is None:
        return None
    result = apply(left, right)
    return None if result is None else _wrap_around(int(result))


def _number(node: Node, names: Names) -> int | None:
    parts = node["Parts"]
    if len(parts) != 1 or parts[0].get("Type") not in ("Lit", "ParamExp"):
        return None
    text = _value_of_name(parts[0], names)
    if not _NUMBER.fullmatch(text) or len(text) > 18:
        return None
    base, mark, digits = text.rpartition("#")
    if mark:
        return int(digits, int(base))
    return int(text, 16) if text[:2] in ("0x", "0X") else int(text, 8 if text[0] == "0" else 10)


def _value_of_name(part: Node, names: Names) -> str:
    """Return the text of an operand, for a name its value if that is certain."""
    name: str = part.get("Value", "") if part["Type"] == "Lit" else part.get("Param", {}).get("Value", "")
    if part["Type"] == "ParamExp" and part.keys() & {*_CHANGES_A_COUNT, "Length", "Index"}:
        return ""
    known = names.get(name)
    return known.text if known is not None and known.literal else name if part["Type"] == "Lit" else ""


def _quotient(left: int, right: int) -> int:
    size = abs(left) // abs(right)
    return size if (left < 0) == (right < 0) else -size


def _wrap_around(value: int) -> int:
    return (value + (_WORD_SIZE >> 1)) % _WORD_SIZE - (_WORD_SIZE >> 1)
