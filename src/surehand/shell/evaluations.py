"""How the walk goes through what bash evaluates by itself: arithmetic, `[[ ]]`, `let`, `declare`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from surehand.shell import arithmetic
from surehand.shell.found import Place
from surehand.shell.plain import Node
from surehand.shell.scope import Flow, Scope, staying
from surehand.shell.tree import children, outermost, text
from surehand.shell.word import Word

if TYPE_CHECKING:
    from surehand.shell.commands import Walk

_NUMERIC_TESTS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))


def arithmetic_command(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    """Walk `((...))`."""
    walk.substitutions(node.get("X"), scope, place)
    if not arithmetic.is_number(node.get("X")):
        walk.fault("arithmetic on names evaluates their values as code")
    return staying(scope.places)


def let(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    """Walk `let`."""
    walk.seen.add(id(node))
    walk.substitutions(node.get("Exprs"), scope, place)
    walk.fault("`let` evaluates its words as code")
    walk.keep((Word("let"),), scope, place)
    return staying(scope.places)


def test(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    """Walk `[[ ... ]]`."""
    walk.substitutions(node, scope, place)
    for test in outermost(node, ("UnaryTest", "BinaryTest")):
        if test["Op"] in ("-v", "-R"):
            walk.fault(f"`[[ {test['Op']} ]]` evaluates a subscript in its operand")
        elif test["Op"] in _NUMERIC_TESTS and not all(arithmetic.is_number(test[side]) for side in "XY"):
            walk.fault(f"`[[ {test['Op']} ]]` evaluates its operands as code")
    return staying(scope.places)


def declaration(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    """Walk `declare`, `local`, `export` and their kin."""
    walk.seen.add(id(node))
    variant = text(node, "Variant")
    words = [Word(variant)]
    for arg in children(node, "Args"):
        walk.substitutions(arg, scope, place)
        words.append(_declared(walk, arg, scope))
        if name := text(arg, "Name"):
            walk.assign(name, None, scope)
    options = "".join(word.text for word in words[1:] if word.text.startswith("-"))
    if any(letter in options for letter in "in") or any(arg.get("Index") for arg in children(node, "Args")):
        walk.fault(f"`{variant}` with -i, -n or a subscript evaluates values as code")
    walk.keep(tuple(words), scope, place)
    return staying(scope.places)


def _declared(walk: Walk, arg: Node, scope: Scope) -> Word:
    name = text(arg, "Name")
    value = walk.decoder.value(arg.get("Value"), scope.variables)
    if not name:
        return value
    return Word(name) if arg.get("Naked") else Word(f"{name}={value.text}", value.kind, f"{name}=")
