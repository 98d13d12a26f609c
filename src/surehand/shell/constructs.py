"""How the walk goes through what joins commands: lists, pipelines, groups, choices, functions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from surehand.shell import evaluations, loops, simple
from surehand.shell.found import Place
from surehand.shell.path_lists import find_listed_paths
from surehand.shell.plain import Node
from surehand.shell.programs import wrapper_of
from surehand.shell.scope import Flow, Scope, staying, union
from surehand.shell.tree import and_or_parts, child, children, first_word, is_plain, pipeline_parts, with_own_body
from surehand.shell.word import Word

if TYPE_CHECKING:
    from surehand.shell.commands import Walk

Construct: TypeAlias = "Callable[[Walk, Node, Scope, Place], Flow]"


def _call(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    return walk.call(node, scope, place)


def _binary(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    if node["Op"] in ("|", "|&"):
        return _pipeline(walk, pipeline_parts(node), scope, place)
    return _list(walk, and_or_parts(node), scope, place)


def _pipeline(walk: Walk, parts: list[Node], scope: Scope, place: Place) -> Flow:
    fed, names = place.fed, place.listed
    heeds_names = any(first_word(part) == "xargs" for part in parts)
    for position, part in enumerate(parts):
        walk.statement(part, scope.copy(), replace(place, position=position, fed=fed, listed=names))
        last = walk.found[-1] if walk.found else None
        fed = simple.printed(last) if last else None
        names = find_listed_paths(last) if last and heeds_names and is_plain(part) else ()
    return staying(scope.places)


def _list(walk: Walk, parts: list[tuple[str, Node]], scope: Scope, place: Place) -> Flow:
    flow = walk.statement(parts[0][1], scope, place)
    for op, node in parts[1:]:
        branch = scope.copy()
        branch.places = (flow.success if op == "&&" else flow.failure) or flow.either or scope.places
        after = walk.statement(node, branch, place)
        scope.forget_differences(branch)
        if op == "&&":
            flow = Flow(after.success, union(flow.failure, after.failure))
        else:
            flow = Flow(union(flow.success, after.success), after.failure)
    return flow


def _block(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    return walk.statements(children(node, "Stmts"), scope, place.inside())


def _subshell(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    walk.statements(children(node, "Stmts"), scope.copy(), place.inside())
    return staying(scope.places)


def _timed(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    inner = child(node, "Stmt")
    walk.keep((Word("time"),), scope, place, wraps=wrapper_of("time"))  # in a pipeline it is the program, no keyword
    there = replace(place, wrappers=(*place.wrappers, "time"))
    return walk.statement(inner, scope, there) if inner else staying(scope.places)


def _coprocess(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    walk.fault("`coproc` runs beside the shell")
    walk.substitutions(node.get("Name"), scope, place)
    walk.statement(node["Stmt"], scope.copy(), place.inside())
    return staying(scope.places)


def _choice(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    flow = walk.statements(children(node, "Cond"), scope, place.inside())
    branch = scope.copy()
    branch.places = flow.success or scope.places
    ends = [walk.statements(children(node, "Then"), branch, place.inside())]
    scope.forget_differences(branch)
    other = child(node, "Else")
    if other and not walk.too_deep(place):
        rest = scope.copy()
        rest.places = flow.failure or scope.places
        ends.append(_choice(walk, other, rest, place.inside()))
        scope.forget_differences(rest)
    else:
        ends.append(staying(flow.failure))
    return staying(union(*(end.either for end in ends)))


def _case(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    walk.substitutions(node.get("Word"), scope, place)
    ends = [scope.places]
    for item in children(node, "Items"):
        walk.substitutions(item.get("Patterns"), scope, place)
        branch = scope.copy()
        branch.places = union(*ends)
        ends.append(walk.statements(children(item, "Stmts"), branch, place.inside()).either)
        scope.forget_differences(branch)
    return staying(union(*ends))


def _function(walk: Walk, node: Node, scope: Scope, place: Place) -> Flow:
    if child(child(node, "Body"), "Cmd").get("Type") == "BinaryCmd":
        return walk.statement(with_own_body(node), scope, place)
    for each in [child(node, "Name"), *children(node, "Names")]:
        if each:
            simple.define(walk, str(each.get("Value", "")), child(node, "Body"))
    body = scope.copy()
    loops.forget_assigned(node, body)
    walk.statement(child(node, "Body"), body, place.inside())
    return staying(scope.places)


CONSTRUCTS: dict[str, Construct] = {
    "CallExpr": _call,
    "BinaryCmd": _binary,
    "Block": _block,
    "Subshell": _subshell,
    "IfClause": _choice,
    "WhileClause": loops.while_loop,
    "ForClause": loops.for_loop,
    "CaseClause": _case,
    "FuncDecl": _function,
    "ArithmCmd": evaluations.arithmetic_command,
    "LetClause": evaluations.let,
    "TestClause": evaluations.test,
    "DeclClause": evaluations.declaration,
    "TimeClause": _timed,
    "CoprocClause": _coprocess,
}
