"""Walks the constructs of the shell: lists, pipelines, groups, conditions, loops, arithmetic and declarations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from surehand.core.frozen import replace_values
from surehand.core.text import lazy_pattern
from surehand.shell import arithmetic, simple
from surehand.shell.path_lists import find_listed_paths
from surehand.shell.programs import wrapper_of
from surehand.shell.scope import Context, Directories, Flow, Scope, is_number, staying, union
from surehand.shell.syntax import Node
from surehand.shell.tree import (
    and_or_parts,
    below,
    child,
    children,
    first_word,
    is_plain,
    outermost,
    pipeline_parts,
    text,
    with_own_body,
)
from surehand.shell.word import KEYED, NUMBER, Word

if TYPE_CHECKING:
    from surehand.shell.walk import Walk

Construct: TypeAlias = "Callable[[Walk, Node, Scope, Context], Flow]"
_MAX_ROUNDS = 64  # of a loop over literal words
_MAX_WALKS = 4  # rounds of a loop before all variables are forgotten
_EVALUATED = lazy_pattern(r"[(`\[]")
_NUMERIC_TESTS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))


# -- lists, pipelines, groups, conditions, functions -------------------------------------------------------------------


def _call(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    return walk.call(node, scope, context)


def _binary(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    if node["Op"] in ("|", "|&"):
        return _pipeline(walk, node, scope, context)
    return _list(walk, and_or_parts(node), scope, context)


def _pipeline(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    fed, names = context.fed, context.listed
    parts = pipeline_parts(node)
    heeds_names = any(first_word(part) == "xargs" or child(part, "Cmd").get("Type") == "WhileClause" for part in parts)
    if heeds_names and any(each.get("Op") == "|&" for each in below(node)):
        heeds_names = False  # error messages are mixed with the paths
    for position, part in enumerate(parts):
        before = len(walk.found)
        walk.statement(part, scope.copy(), replace_values(context, position=position, fed=fed, listed=names))
        last = walk.found[-1] if walk.found else None
        fed = simple.text_printed_by(last) if last else None
        # A function prints the output of all its commands, not only of the last.
        lists = heeds_names and is_plain(part) and not any(each.function for each in walk.found[before:])
        names = find_listed_paths(last) if last and lists else ()
    return staying(scope.directories)


def _list(walk: Walk, parts: list[tuple[str, Node]], scope: Scope, context: Context) -> Flow:
    flow = walk.statement(parts[0][1], scope, context)
    for op, node in parts[1:]:
        branch = scope.copy()
        branch.directories = (flow.success if op == "&&" else flow.failure) or flow.either or scope.directories
        after = walk.statement(node, branch, context)
        scope.forget_differences(branch)
        if op == "&&":
            flow = Flow(after.success, union(flow.failure, after.failure))
        else:
            flow = Flow(union(flow.success, after.success), after.failure)
    return flow


def _block(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    return walk.statements(children(node, "Stmts"), scope, context.inside())


def _subshell(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    walk.statements(children(node, "Stmts"), scope.copy(), context.inside())
    return staying(scope.directories)


def _time_clause(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    inner = child(node, "Stmt")
    walk.record_command(
        (Word("time"),), scope, context, wraps=wrapper_of("time")
    )  # in a pipeline it may be the program instead of the keyword
    there = replace_values(context, wrappers=(*context.wrappers, "time"))
    return walk.statement(inner, scope, there) if inner else staying(scope.directories)


def _coprocess(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    walk.add_fault("`coproc` runs beside the shell")
    walk.substitutions(node.get("Name"), scope, context)
    walk.statement(node["Stmt"], scope.copy(), context.inside())
    return staying(scope.directories)


def _choice(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    flow = walk.statements(children(node, "Cond"), scope, context.inside())
    branch = scope.copy()
    branch.directories = flow.success or scope.directories
    ends = [walk.statements(children(node, "Then"), branch, context.inside())]
    scope.forget_differences(branch)
    other = child(node, "Else")
    if other and not walk.too_deep(context):
        rest = scope.copy()
        rest.directories = flow.failure or scope.directories
        ends.append(_choice(walk, other, rest, context.inside()))
        scope.forget_differences(rest)
    else:
        ends.append(staying(flow.failure))
    return staying(union(*(end.either for end in ends)))


def _case(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    walk.substitutions(node.get("Word"), scope, context)
    ends = [scope.directories]
    for item in children(node, "Items"):
        walk.substitutions(item.get("Patterns"), scope, context)
        branch = scope.copy()
        branch.directories = union(*ends)
        ends.append(walk.statements(children(item, "Stmts"), branch, context.inside()).either)
        scope.forget_differences(branch)
    return staying(union(*ends))


def _function(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    if child(child(node, "Body"), "Cmd").get("Type") == "BinaryCmd":
        return walk.statement(with_own_body(node), scope, context)
    for each in [child(node, "Name"), *children(node, "Names")]:
        if each:
            simple.define(walk, str(each.get("Value", "")), child(node, "Body"), scope)
    there = scope.copy()
    there.variables |= dict.fromkeys(_list_assigned(node))
    walk.defined.append((child(node, "Body"), there, context.inside()))
    return staying(scope.directories)


# -- loops: over literal words round by round, all others until the state no longer changes ----------------------------


def _while_loop(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    """Walk `while` and `until`."""
    if name := _name_read(node, context):
        walk.statements(children(node, "Cond"), scope, context.inside())
        listed = [
            each if each.literal else replace_values(each, text=f"${name}", path=each.path or each.text)
            for each in context.listed
        ]
        return _rounds(walk, node, name, listed, scope, replace_values(context, listed=()))

    def once(branch: Scope) -> Directories:
        flow = walk.statements(children(node, "Cond"), branch, context.inside())
        branch.directories = flow.either or branch.directories
        after = walk.statements(children(node, "Do"), branch, context.inside())
        return union(flow.either, after.either)

    _forget_assigned(node, scope)
    return _until_nothing_new(walk, once, scope)


def _name_read(loop: Node, context: Context) -> str:
    """Return the variable that `while read -r name` reads the listed paths into; empty for any other loop."""
    conditions = children(loop, "Cond")
    if not context.listed or any(each.many == "split" for each in context.listed) or len(conditions) != 1:
        return ""
    call = child(conditions[0], "Cmd")
    dressed = loop.get("Until") or any(conditions[0].get(key) for key in ("Redirs", "Negated", "Background"))
    if dressed or [(text(each, "Name"), each.get("Value")) for each in children(call, "Assigns")] not in (
        [],
        [("IFS", None)],
    ):
        return ""
    parts = [children(word, "Parts") for word in children(call, "Args")]
    words = [str(each[0].get("Value", "")) if len(each) == 1 else "" for each in parts]
    if len(words) > 3 and words[-3] in ("-d", "-rd") and _is_nul(parts[-2]):
        del words[-2]
        words[-2:-1] = [] if words[-2] == "-d" else ["-r"]
    return words[-1] if words in (["read", *words[-1:]], ["read", "-r", *words[-1:]]) else ""


def _is_nul(parts: list[Node]) -> bool:
    """Whether a word is `''` or `$'\\0'`: with this delimiter `read` reads NUL-terminated names."""
    return len(parts) == 1 and parts[0]["Type"] == "SglQuoted" and parts[0].get("Value", "") in ("", "\\0")


def _for_loop(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    """Walk `for` and `select`."""
    loop = child(node, "Loop")
    walk.substitutions(loop, scope, context)
    if loop["Type"] != "WordIter":
        counted = arithmetic.count_rounds(loop, _MAX_ROUNDS)
        if counted is not None and counted[0] not in _list_assigned(node):
            values = [Word(str(value)) for value in counted[1]]
            return _rounds(walk, node, counted[0], values, scope, context, counted=True)
        _evaluate(walk, loop.get("Init"), scope)
        return _any_rounds(walk, node, "", scope, context)
    items = [word for item in children(loop, "Items") for word in walk.argument(item, scope, context)]
    if "Items" not in loop and (given := scope.variables.get("@")) is not None:
        items = list(given.items or ())  # `for name; do` loops over the positional parameters
    certain = all(word.kind != "opaque" and word.many != "split" for word in items)
    readable = items and certain and len(items) <= _MAX_ROUNDS
    if node.get("Select"):
        walk.add_fault("`select` reads its choice when it runs")
    if not readable or node.get("Select"):
        value = NUMBER if all(word.number for word in items) and items else None
        if len(items) == 1 and items[0].token:
            value = replace_values(items[0], many="")
        return _any_rounds(walk, node, text(loop, "Name"), scope, context, value)
    return _rounds(walk, node, text(loop, "Name"), items, scope, context)


def _rounds(
    walk: Walk, node: Node, name: str, values: list[Word], scope: Scope, context: Context, *, counted: bool = False
) -> Flow:
    """Walk the body once for each value of the loop variable; a glob stands for any number of rounds.

    If the values are `counted`, the body must not change the variable.
    """

    def once(branch: Scope) -> Directories:
        return walk.statements(children(node, "Do"), branch, context.inside()).either

    branch = scope.copy()
    for value in values:
        walk.assign(name, value, branch)
        walk.assigned.append((name, value))
        start = branch.directories
        ends = _round(walk, once, branch) if value.literal else _until_nothing_new(walk, once, branch).either
        branch.directories = union(start, ends)
        scope.forget_differences(branch)  # `break` may end the loop after this round
        if counted and branch.variables.get(name) != value:
            walk.add_fault("an arithmetic loop evaluates names as code")
            break
    return staying(branch.directories)


def _any_rounds(walk: Walk, node: Node, name: str, scope: Scope, context: Context, value: Word | None = None) -> Flow:
    """Walk the body for unknown values and any number of rounds."""

    loop = child(node, "Loop")

    def once(branch: Scope) -> Directories:
        if name:
            walk.assign(name, value, branch)
        _evaluate(walk, loop.get("Cond"), branch)
        ends = walk.statements(children(node, "Do"), branch, context.inside()).either
        _evaluate(walk, loop.get("Post"), branch)
        return ends

    branch = scope.copy()
    _forget_assigned(node, branch)
    flow = _until_nothing_new(walk, once, branch)
    scope.forget_differences(branch)
    return flow


def _round(walk: Walk, once: Callable[[Scope], Directories], scope: Scope) -> Directories:
    """Walk a round that `break` or `continue` may end after any statement."""
    with walk.passing() as passed:
        ends = once(scope)
    for each in passed:
        scope.forget_differences(each)
    return union(ends, *(each.directories for each in passed))


def _until_nothing_new(walk: Walk, once: Callable[[Scope], Directories], scope: Scope) -> Flow:
    """Walk rounds until the state at the beginning of a round no longer changes (a fixed point).

    A round begins with the directory and the variables the one before left (`read x`, a function that assigns):
    whatever a round changes is no longer certain.
    """
    for walks_left in reversed(range(_MAX_WALKS)):
        before, start = scope.copy(), scope.directories
        branch = scope.copy()
        ends = _round(walk, once, branch)
        scope.forget_differences(branch)
        scope.directories = start if set(ends) <= set(start) else union(start, ends, (None,))
        if scope == before:
            break
        if not walks_left:
            scope.variables = dict.fromkeys(scope.variables)
            scope.directories = (None,)
            once(scope.copy())
    return staying(scope.directories)


def _list_assigned(node: Node) -> list[str]:
    """Return all variables assigned below `node`, including those set for a single command."""
    names = (text(each, "Name") for each in below(node) if isinstance(each.get("Name"), dict))
    return [name for name in names if name]


def _forget_assigned(node: Node, scope: Scope) -> None:
    """Forget every variable assigned below `node`: a second round sees other values.

    A number stays a number; if a round makes something else of it, another round is walked.
    """
    for name in _list_assigned(node):
        scope.variables[name] = NUMBER if is_number(scope.variables.get(name)) else None


# -- what bash evaluates itself: arithmetic, `[[ ]]`, `let`, `declare` -------------------------------------------------


def _arithmetic_command(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    """Walk `((...))`."""
    walk.substitutions(node.get("X"), scope, context)
    _evaluate(walk, node.get("X"), scope)
    return staying(scope.directories)


def _evaluate(walk: Walk, expression: Node | None, scope: Scope) -> None:
    changed = arithmetic.list_changed(expression, scope.variables)
    if changed is None:
        walk.add_fault("arithmetic on names evaluates their values as code")
    for name in changed or ():
        walk.assign(name, NUMBER, scope)
        walk.assigned.append((name, NUMBER))


def _let(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    """Walk `let`."""
    walk.seen.add(id(node))
    walk.substitutions(node.get("Exprs"), scope, context)
    walk.add_fault("`let` evaluates its words as code")
    walk.record_command((Word("let"),), scope, context)
    return staying(scope.directories)


def _test(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    """Walk `[[ ... ]]`."""
    walk.substitutions(node, scope, context)
    for test in outermost(node, ("UnaryTest", "BinaryTest")):
        if test["Op"] in ("-v", "-R"):
            walk.add_fault(f"`[[ {test['Op']} ]]` evaluates a subscript in its operand")
        elif test["Op"] in _NUMERIC_TESTS and not all(
            arithmetic.is_number(test[side], scope.variables) for side in "XY"
        ):
            walk.add_fault(f"`[[ {test['Op']} ]]` evaluates its operands as code")
    return staying(scope.directories)


def _declaration(walk: Walk, node: Node, scope: Scope, context: Context) -> Flow:
    """Walk `declare`, `local`, `export` and the like."""
    walk.seen.add(id(node))
    variant = text(node, "Variant")
    words = [Word(variant)]
    options = ""
    earlier: list[str] = []
    for arg in children(node, "Args"):
        if name := text(arg, "Name"):
            words.append(_declare(walk, arg, name, variant, options, scope, context, earlier))
            earlier.append(name)
            continue
        walk.substitutions(arg, scope, context)
        words.append(walk.decoder.value(arg.get("Value"), scope.variables))
        options += words[-1].text
        if variant != "export" and words[-1].text[:1] not in ("-", "+"):
            walk.add_fault(f"`{variant}` evaluates a name and a value that are quoted together")
    if any(letter in options for letter in "in") or any(arg.get("Index") for arg in children(node, "Args")):
        walk.add_fault(f"`{variant}` with -i, -n or a subscript evaluates values as code")
    walk.record_command(tuple(words), scope, context)
    return staying(scope.directories)


def _declare(
    walk: Walk,
    arg: Node,
    name: str,
    variant: str,
    options: str,
    scope: Scope,
    context: Context,
    earlier: Sequence[str],
) -> Word:
    """Walk one declared name; return it as a word, with its value.

    bash reads all values before it sets any name, so values of names declared `earlier` in the command are the old
    ones. An array stays an array whatever is declared, and then subscripts and text in parentheses are evaluated; the
    names of bash's own arrays are in capitals.
    """
    if variant == "local" and not walk.calling:
        walk.add_fault("`local` outside of a function")
    takes = variant in ("declare", "typeset", "local")
    if "A" in options:
        walk.keyed.add(name)
        new = takes and name not in scope.variables and not name.isupper()
        scope.variables[name] = KEYED if new else None
    elif arg.get("Naked"):
        scope.variables[name] = None
    if arg.get("Naked"):
        return Word(name)
    there = scope.copy()
    there.variables |= dict.fromkeys(earlier)
    name, value = walk.assignment(arg, there, context)
    if any("{" in each.get("Value", "") for each in children(child(arg, "Value"), "Parts") if each["Type"] == "Lit"):
        value = Word(value.text, "opaque")  # braces in it make several declarations
    if child(arg, "Array"):
        walk.assign(name, value if takes else None, scope)
        return Word(f"{name}=")
    if value.literal and _EVALUATED.search(value.text):
        walk.add_fault(f"`{variant}` may evaluate the text that it sets {name} to")
    elif not value.literal and not value.number:
        walk.declared.add(name)
        walk.arrays |= {name} if name.isupper() or "a" in options.lower() else set()
    walk.assign(name, value if takes and not options else None, scope)
    walk.assigned += [(name, value)] if takes else []
    return Word(f"{name}={value.text}", value.kind, f"{name}=")


CONSTRUCTS: dict[str, Construct] = {
    "CallExpr": _call,
    "BinaryCmd": _binary,
    "Block": _block,
    "Subshell": _subshell,
    "IfClause": _choice,
    "WhileClause": _while_loop,
    "ForClause": _for_loop,
    "CaseClause": _case,
    "FuncDecl": _function,
    "ArithmCmd": _arithmetic_command,
    "LetClause": _let,
    "TestClause": _test,
    "DeclClause": _declaration,
    "TimeClause": _time_clause,
    "CoprocClause": _coprocess,
}
