"""How the walk goes through loops: literal words round by round, everything else until nothing new can come of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from surehand.shell.found import Place
from surehand.shell.plain import Node
from surehand.shell.scope import Flow, Places, Scope, staying, union
from surehand.shell.tree import below, child, children, text
from surehand.shell.word import Word

if TYPE_CHECKING:
    from surehand.shell.commands import Walk

_MAX_ROUNDS = 64  # of a loop over literal words
_MAX_WALKS = 4  # before nothing is held for certain any more


def while_loop(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    """Walk `while` and `until`."""

    def once(branch: Scope) -> Places:
        flow = walk.statements(children(node, "Cond"), branch, place.inside())
        branch.places = flow.either or branch.places
        after = walk.statements(children(node, "Do"), branch, place.inside())
        return union(flow.either, after.either)

    forget_assigned(node, scope)
    return _until_settled(once, scope)


def for_loop(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    """Walk `for` and `select`."""
    loop = child(node, "Loop")
    walk.substitutions(loop, scope, place)
    if loop["Type"] != "WordIter":
        walk.fault("an arithmetic loop evaluates names as code")
        return _any_rounds(walk, node, "", scope, place)
    items = [word for item in children(loop, "Items") for word in walk.argument(item, scope, place)]
    readable = items and all(word.kind != "opaque" for word in items) and len(items) <= _MAX_ROUNDS
    if node.get("Select"):
        walk.fault("`select` reads its choice when it runs")
    if not readable or node.get("Select"):
        return _any_rounds(walk, node, text(loop, "Name"), scope, place)
    return _rounds(walk, node, text(loop, "Name"), items, scope, place)


def _rounds(walk: Walk, node: Node, name: str, values: list[Word], scope: Scope, place: Place) -> Flow:
    """Walk the body once for each value of the loop's variable; a pattern stands for any number of rounds."""

    def once(branch: Scope) -> Places:
        return walk.statements(children(node, "Do"), branch, place.inside()).either

    branch = scope.copy()
    for value in values:
        walk.assign(name, value, branch)
        walk.assigned.append((name, value))
        start = branch.places
        branch.places = union(start, once(branch) if value.literal else _until_settled(once, branch).either)
    scope.forget_differences(branch)
    return staying(branch.places)


def _any_rounds(walk: Walk, node: Node, name: str, scope: Scope, place: Place) -> Flow:
    """Walk the body for values nobody knows, any number of times."""

    def once(branch: Scope) -> Places:
        if name:
            walk.assign(name, None, branch)
        return walk.statements(children(node, "Do"), branch, place.inside()).either

    branch = scope.copy()
    forget_assigned(node, branch)
    flow = _until_settled(once, branch)
    scope.forget_differences(branch)
    return flow


def _until_settled(once: Callable[[Scope], Places], scope: Scope) -> Flow:
    """Walk a round again from what it leaves behind, until a further round would begin with nothing new.

    The next round begins where this one ended, with the variables it set (`read x`, a function that assigns): a
    directory or a value that changes is not certain any more.
    """
    for walks_left in reversed(range(_MAX_WALKS)):
        before, start = scope.copy(), scope.places
        branch = scope.copy()
        ends = once(branch)
        scope.forget_differences(branch)
        scope.places = start if set(ends) <= set(start) else union(start, ends, (None,))
        if scope == before:
            break
        if not walks_left:
            scope.variables = dict.fromkeys(scope.variables)
            scope.places = (None,)
            once(scope.copy())
    return staying(scope.places)


def forget_assigned(node: Node, scope: Scope) -> None:
    """Forget every variable that something below `node` assigns: a second round sees other values."""
    for each in below(node):
        if isinstance(each.get("Name"), dict) and (name := text(each, "Name")):
            scope.variables[name] = None
