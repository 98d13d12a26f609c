"""All simple commands of a script, nested ones too, each with its decoded words and the directory it runs in.

The walk follows the shell: lists, pipelines, subshells, loops over literal words, functions, `cd`. What a construct
hides from reading (text run as code, names made at run time) is kept as a fault; a fault is never forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.host.shell import arithmetic, simple
from holdfast.host.shell.found import Found, FoundRedirect, Place
from holdfast.host.shell.listed import listed
from holdfast.host.shell.plain import Node
from holdfast.host.shell.scope import Flow, Scope, staying, union
from holdfast.host.shell.syntax import SyntaxFault, parse
from holdfast.host.shell.tree import (
    and_or_parts,
    below,
    child,
    children,
    count_commands,
    doubtful_comment,
    first_word,
    has_glob,
    is_plain,
    outermost,
    pipeline_parts,
    text,
)
from holdfast.host.shell.word import Word
from holdfast.host.shell.words import Decoder, odd_parameter
from holdfast.host.shell.wrappers import WRAPPERS, Wrapper

MAX_DEPTH = 50
MAX_COMMANDS = 200
_MAX_ROUNDS = 64
_MAX_FOUND = 2000
# To bash a comment ends with its line, whatever stands before the newline; the parser joins the next line to it.
_CONTINUED_COMMENT = re.compile(r"""(?:^|[\s;&|()<>`{}'"])#[^\n]*\\\n""")
_NUMERIC_TESTS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


class Walk:
    """One walk over one script. Read `found`, `redirects`, `faults` (never readable) and `notes` (no read) after it."""

    def __init__(self, home: str | None) -> None:
        self.found: list[Found] = []
        self.redirects: list[FoundRedirect] = []
        self.assigned: list[tuple[str, Word]] = []
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.functions: dict[str, Node] = {}
        self.calling: set[str] = set()
        self._home = home
        self._decoder = Decoder("", home, self.fault)
        self._seen: set[int] = set()

    def fault(self, reason: str) -> None:
        """Keep a reason why the script can never be read with certainty."""
        if reason not in self.faults:
            self.faults.append(reason)

    def note(self, reason: str) -> None:
        """Keep a reason why the script is no plain read, though its effects are known."""
        if reason not in self.notes:
            self.notes.append(reason)

    def keep(
        self, words: tuple[Word, ...], scope: Scope, place: Place, wraps: Wrapper | None = None, function: bool = False
    ) -> None:
        """Keep a simple command."""
        self.found.append(Found(words, scope.places, place, wraps, function))

    def too_deep(self, place: Place) -> bool:
        """Whether to stop here, which is a fault; so is a script that grows without end when it is unrolled."""
        if len(self.found) > _MAX_FOUND:
            self.fault("too many commands once loops and functions are unrolled")
            return True
        if place.depth > MAX_DEPTH:
            self.fault(_TOO_DEEP)
        return place.depth > MAX_DEPTH

    def script(self, tree: Node, source: str, scope: Scope, place: Place) -> Flow:
        """Walk a whole tree, and make sure that no command in it was passed over."""
        if "#" in source and (_CONTINUED_COMMENT.search(source) or doubtful_comment(tree, source)):
            self.fault("a comment that bash may read as a command")
        outer, outer_seen = self._decoder, self._seen
        self._decoder, self._seen = Decoder(source, self._home, self.fault), set()
        flow = self.statements(children(tree, "Stmts"), scope, place)
        total = count_commands(tree)
        if len(self._seen) < total:
            self.fault("a command of the script was not understood")
        if total > MAX_COMMANDS:
            self.fault(f"more than {MAX_COMMANDS} commands")
        self._decoder, self._seen = outer, outer_seen
        return flow

    def text(self, source: str, scope: Scope, place: Place) -> None:
        """Walk text that another command runs as a script."""
        if self.too_deep(place):
            return
        try:
            tree = parse(source)
        except SyntaxFault as error:
            self.fault(f"a nested script cannot be read: {error}")
        else:
            self.script(tree, source, scope, place)

    # Statements

    def statements(self, nodes: Sequence[Node], scope: Scope, place: Place) -> Flow:
        """Walk statements one after the other."""
        flow = staying(scope.places)
        for node in nodes:
            flow = self.statement(node, scope, place)
            scope.places = flow.either or scope.places
        return flow

    def statement(self, node: Node, scope: Scope, place: Place) -> Flow:
        """Walk one statement: its redirections, then its command."""
        if self.too_deep(place):
            return staying(scope.places)
        if "Redirs" in node:
            place = self._redirections(node["Redirs"], scope, place)
        command = child(node, "Cmd")
        if not command:
            return staying(scope.places)
        if node.get("Background") or node.get("Coprocess"):
            self.note("runs in the background")
            self._command(command, scope.copy(), place)
            return staying(scope.places)
        flow = self._command(command, scope, place)
        return Flow(flow.failure, flow.success) if node.get("Negated") else flow

    def _command(self, node: Node, scope: Scope, place: Place) -> Flow:
        walk = _CONSTRUCTS.get(node["Type"])
        if walk is not None:
            return walk(self, node, scope, place)
        self.fault(f"a construct of kind {node['Type']} is not understood")
        self.substitutions(node, scope, place)
        return staying((None,))

    def binary(self, node: Node, scope: Scope, place: Place) -> Flow:
        if node["Op"] in ("|", "|&"):
            return self._pipeline(pipeline_parts(node), scope, place)
        return self._list(and_or_parts(node), scope, place)

    def _pipeline(self, parts: list[Node], scope: Scope, place: Place) -> Flow:
        fed, names = place.fed, place.listed
        heeds_names = any(first_word(part) == "xargs" for part in parts)
        for position, part in enumerate(parts):
            self.statement(part, scope.copy(), replace(place, position=position, fed=fed, listed=names))
            last = self.found[-1] if self.found else None
            fed = simple.printed(last) if last else None
            names = listed(last) if last and heeds_names and is_plain(part) else ()
        return staying(scope.places)

    def _list(self, parts: list[tuple[str, Node]], scope: Scope, place: Place) -> Flow:
        flow = self.statement(parts[0][1], scope, place)
        for op, node in parts[1:]:
            branch = scope.copy()
            branch.places = (flow.success if op == "&&" else flow.failure) or flow.either or scope.places
            after = self.statement(node, branch, place)
            scope.forget_differences(branch)
            if op == "&&":
                flow = Flow(after.success, union(flow.failure, after.failure))
            else:
                flow = Flow(union(flow.success, after.success), after.failure)
        return flow

    def block(self, node: Node, scope: Scope, place: Place) -> Flow:
        return self.statements(children(node, "Stmts"), scope, place.inside())

    def subshell(self, node: Node, scope: Scope, place: Place) -> Flow:
        self.statements(children(node, "Stmts"), scope.copy(), place.inside())
        return staying(scope.places)

    def timed(self, node: Node, scope: Scope, place: Place) -> Flow:
        inner = child(node, "Stmt")
        self.keep((Word("time"),), scope, place, wraps=WRAPPERS["time"])  # in a pipeline it is the program, no keyword
        there = replace(place, wrappers=(*place.wrappers, "time"))
        return self.statement(inner, scope, there) if inner else staying(scope.places)

    def coprocess(self, node: Node, scope: Scope, place: Place) -> Flow:
        self.fault("`coproc` runs beside the shell")
        self.substitutions(node.get("Name"), scope, place)
        self.statement(node["Stmt"], scope.copy(), place.inside())
        return staying(scope.places)

    def choice(self, node: Node, scope: Scope, place: Place) -> Flow:
        flow = self.statements(children(node, "Cond"), scope, place.inside())
        branch = scope.copy()
        branch.places = flow.success or scope.places
        ends = [self.statements(children(node, "Then"), branch, place.inside())]
        scope.forget_differences(branch)
        other = child(node, "Else")
        if other and not self.too_deep(place):
            rest = scope.copy()
            rest.places = flow.failure or scope.places
            ends.append(self.choice(other, rest, place.inside()))
            scope.forget_differences(rest)
        else:
            ends.append(staying(flow.failure))
        return staying(union(*(end.either for end in ends)))

    def while_loop(self, node: Node, scope: Scope, place: Place) -> Flow:
        self._forget_assigned(node, scope)
        before = scope.places
        branch = scope.copy()
        flow = self.statements(children(node, "Cond"), branch, place.inside())
        branch.places = flow.either or before
        after = self.statements(children(node, "Do"), branch, place.inside())
        if after.either and after.either != before:  # the next round starts in another directory
            branch.places = union(before, (None,))
            self.statements(children(node, "Do"), branch, place.inside())
        scope.forget_differences(branch)
        return staying(union(before, flow.either, after.either))

    def for_loop(self, node: Node, scope: Scope, place: Place) -> Flow:
        loop = child(node, "Loop")
        self.substitutions(loop, scope, place)
        if loop["Type"] != "WordIter":
            self.fault("an arithmetic loop evaluates names as code")
            return self._rounds(node, "", [None], scope, place)
        items = [word for item in children(loop, "Items") for word in self._decoder.words(item, scope.variables)]
        readable = items and all(word.kind != "opaque" for word in items) and len(items) <= _MAX_ROUNDS
        if node.get("Select"):
            self.fault("`select` reads its choice when it runs")
        rounds: list[Word | None] = [*items] if readable and not node.get("Select") else [None]
        return self._rounds(node, text(loop, "Name"), rounds, scope, place)

    def _rounds(self, node: Node, name: str, values: list[Word | None], scope: Scope, place: Place) -> Flow:
        """Walk the body once for each value of the loop's variable, `None` standing for values nobody knows."""
        branch = scope.copy()
        if values == [None]:
            self._forget_assigned(node, branch)
        ends = [scope.places]
        for value in values:
            if name:
                self.assign(name, value, branch)
                if value is not None:
                    self.assigned.append((name, value))
            flow = self.statements(children(node, "Do"), branch, place.inside())
            branch.places = union(ends[-1], flow.either)
            ends.append(branch.places)
        scope.forget_differences(branch)
        return staying(union(*ends))

    def case(self, node: Node, scope: Scope, place: Place) -> Flow:
        self.substitutions(node.get("Word"), scope, place)
        ends = [scope.places]
        for item in children(node, "Items"):
            self.substitutions(item.get("Patterns"), scope, place)
            branch = scope.copy()
            branch.places = union(*ends)
            ends.append(self.statements(children(item, "Stmts"), branch, place.inside()).either)
            scope.forget_differences(branch)
        return staying(union(*ends))

    def function(self, node: Node, scope: Scope, place: Place) -> Flow:
        for each in [child(node, "Name"), *children(node, "Names")]:
            if each:
                simple.define(self, str(each.get("Value", "")), child(node, "Body"))
        body = scope.copy()
        self._forget_assigned(node, body)
        self.statement(child(node, "Body"), body, place.inside())
        return staying(scope.places)

    def arithmetic(self, node: Node, scope: Scope, place: Place) -> Flow:
        self.substitutions(node.get("X"), scope, place)
        if arithmetic.value_of(node.get("X")) is None:
            self.fault("arithmetic on names evaluates their values as code")
        return staying(scope.places)

    def let(self, node: Node, scope: Scope, place: Place) -> Flow:
        self._seen.add(id(node))
        self.substitutions(node.get("Exprs"), scope, place)
        self.fault("`let` evaluates its words as code")
        self.keep((Word("let"),), scope, place)
        return staying(scope.places)

    def test(self, node: Node, scope: Scope, place: Place) -> Flow:
        self.substitutions(node, scope, place)
        for test in outermost(node, ("UnaryTest", "BinaryTest")):
            if test["Op"] in ("-v", "-R"):
                self.fault(f"`[[ {test['Op']} ]]` evaluates a subscript in its operand")
            elif test["Op"] in _NUMERIC_TESTS and any(arithmetic.value_of(test[side]) is None for side in "XY"):
                self.fault(f"`[[ {test['Op']} ]]` evaluates its operands as code")
        return staying(scope.places)

    def declaration(self, node: Node, scope: Scope, place: Place) -> Flow:
        self._seen.add(id(node))
        variant = text(node, "Variant")
        words = [Word(variant)]
        for arg in children(node, "Args"):
            self.substitutions(arg, scope, place)
            words.append(self._declared(arg, scope))
            if name := text(arg, "Name"):
                self.assign(name, None, scope)
        options = "".join(word.text for word in words[1:] if word.text.startswith("-"))
        if any(letter in options for letter in "in") or any(arg.get("Index") for arg in children(node, "Args")):
            self.fault(f"`{variant}` with -i, -n or a subscript evaluates values as code")
        self.keep(tuple(words), scope, place)
        return staying(scope.places)

    def _declared(self, arg: Node, scope: Scope) -> Word:
        name = text(arg, "Name")
        value = self._decoder.value(arg.get("Value"), scope.variables)
        if not name:
            return value
        return Word(name) if arg.get("Naked") else Word(f"{name}={value.text}", value.kind, f"{name}=")

    def call(self, node: Node, scope: Scope, place: Place) -> Flow:
        self._seen.add(id(node))
        assigns: tuple[tuple[str, Word], ...] = ()
        if "Assigns" in node:
            assigns = tuple(self._assignment(each, scope, place) for each in children(node, "Assigns"))
        words: list[Word] = []
        for arg in children(node, "Args"):
            self.substitutions(arg, scope, place)
            words += self._decoder.words(arg, scope.variables)
        if words:
            there = replace(place, assigns=place.assigns + assigns) if assigns else place
            return simple.run(self, tuple(words), scope, there)
        for name, value in assigns:
            self.assign(name, value, scope)
            self.assigned.append((name, value))
        return staying(scope.places)

    # Variables, redirections, substitutions

    def _assignment(self, node: Node, scope: Scope, place: Place) -> tuple[str, Word]:
        self.substitutions(node, scope, place)
        name = text(node, "Name")
        array = child(node, "Array")
        subscripts = [node.get("Index"), *(element.get("Index") for element in children(array, "Elems"))]
        if any(index is not None and arithmetic.value_of(index) is None for index in subscripts):
            self.fault("a subscript is evaluated as code")
        if array or node.get("Append") or node.get("Index") is not None:
            return name, Word(name, "opaque")
        return name, self._decoder.value(node.get("Value"), scope.variables)

    def assign(self, name: str, value: Word | None, scope: Scope) -> None:
        """Set a variable to a certain value, or forget what it was."""
        if name == "IFS":
            self._decoder.splits_as_usual = False
        scope.variables[name] = value if value is not None and value.kind != "opaque" else None

    def _forget_assigned(self, node: Node, scope: Scope) -> None:
        """Forget every variable that something below `node` assigns: a second round sees other values."""
        for each in below(node):
            if isinstance(each.get("Name"), dict) and (name := text(each, "Name")):
                scope.variables[name] = None

    def _redirections(self, nodes: Sequence[Node], scope: Scope, place: Place) -> Place:
        for node in nodes:
            self.substitutions(node, scope, place)
            op: str = node["Op"]
            if op in ("<<", "<<-"):
                parts = children(child(node, "Word"), "Parts")
                quoted = any(part["Type"] != "Lit" or "\\" in part.get("Value", "") for part in parts)
                place = replace(place, fed=self._decoder.heredoc(node.get("Hdoc"), quoted, scope.variables))
                self._keep_redirect(node, op, self._decoder.value(node["Word"], {}), scope)
            elif op == "<<<":
                place = replace(place, fed=self._decoder.value(node["Word"], scope.variables))
                self._keep_redirect(node, op, place.fed or Word(""), scope)
            else:
                self._redirection(node, op, scope)
        return place

    def _redirection(self, node: Node, op: str, scope: Scope) -> None:
        target = self._decoder.value(node["Word"], scope.variables)
        if has_glob(node["Word"]):
            target = Word(target.text, "glob")
        if text(node, "N").startswith("{"):
            self.note("a redirection assigns a variable")
            self.assign(text(node, "N").strip("{}"), None, scope)
        self._keep_redirect(node, op, target, scope)

    def _keep_redirect(self, node: Node, op: str, target: Word, scope: Scope) -> None:
        self.redirects.append(FoundRedirect(op, text(node, "N"), target, scope.places))

    def substitutions(self, node: object, scope: Scope, place: Place) -> None:
        """Walk every command and process substitution below a node, wherever expansions may stand."""
        for inner in outermost(node, ("CmdSubst", "ProcSubst", "ParamExp")):
            if inner["Type"] == "ParamExp":
                if reason := odd_parameter(inner):
                    self.fault(reason)
                continue
            if inner.get("TempFile") or inner.get("ReplyVar"):
                self.fault("`${ command; }` runs in the shell itself")
            self.statements(children(inner, "Stmts"), scope.copy(), place.substituted())


_CONSTRUCTS: dict[str, Callable[[Walk, Node, Scope, Place], Flow]] = {
    "CallExpr": Walk.call,
    "BinaryCmd": Walk.binary,
    "Block": Walk.block,
    "Subshell": Walk.subshell,
    "IfClause": Walk.choice,
    "WhileClause": Walk.while_loop,
    "ForClause": Walk.for_loop,
    "CaseClause": Walk.case,
    "FuncDecl": Walk.function,
    "ArithmCmd": Walk.arithmetic,
    "LetClause": Walk.let,
    "TestClause": Walk.test,
    "DeclClause": Walk.declaration,
    "TimeClause": Walk.timed,
    "CoprocClause": Walk.coprocess,
}
