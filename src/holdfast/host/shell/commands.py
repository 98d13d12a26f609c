"""All simple commands of a script, nested ones too, each with its decoded words and the directory it runs in.

The walk follows the shell: lists, pipelines, subshells, loops over literal words, functions, `cd`. What a construct
hides from reading (text run as code, names made at run time) is kept as a fault; a fault is never forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.host.shell import arithmetic
from holdfast.host.shell.builtins import CHANGES_NAMES, NEVER_READABLE, names_changed, runs_text
from holdfast.host.shell.plain import Node, parse_plain
from holdfast.host.shell.programs import Started, started_by
from holdfast.host.shell.scope import Flow, Places, Scope, moved, staying, union
from holdfast.host.shell.syntax import SyntaxFault, parse
from holdfast.host.shell.word import Word
from holdfast.host.shell.words import Decoder
from holdfast.host.shell.wrappers import SHELLS, Wrapper, unwrap, wrapper_of

MAX_DEPTH = 50
MAX_COMMANDS = 200
_MAX_UNROLLED = 64
_MAX_FOUND = 2000
_NUMERIC_TESTS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))
_ENDS = frozenset(("exit", "return", "logout", "exec"))
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command stands: its position in the pipeline, how deep, and behind which wrappers."""

    position: int = 0
    depth: int = 0
    nested: bool = False
    wrappers: tuple[str, ...] = ()
    assigns: tuple[tuple[str, Word], ...] = ()
    open_ended: bool = False  # words from elsewhere are appended
    fed: Word | None = None  # what standard input is, when the line says so
    piped: bool = False  # standard input is the pipe

    def deeper(self) -> Place:
        return Place(depth=self.depth + 1, nested=True)


@dataclass(frozen=True, slots=True)
class Found:
    """A simple command as it was found."""

    words: tuple[Word, ...]
    places: Places
    place: Place
    wraps: Wrapper | None = None  # set when this is a wrapper whose own command follows
    function: bool = False  # calls a function of this script

    @property
    def name(self) -> str:
        return self.words[0].text.rpartition("/")[2] if self.words else ""


@dataclass(frozen=True, slots=True)
class FoundRedirect:
    """A redirection to or from a file; `static` when its target is certain."""

    op: str
    fd: str
    target: Word
    places: Places

    @property
    def static(self) -> bool:
        return self.target.literal


class Walk:
    """One walk over one script. Read `found`, `redirects`, `faults` (never readable) and `notes` (no read) after it."""

    def __init__(self, home: str | None) -> None:
        self.found: list[Found] = []
        self.redirects: list[FoundRedirect] = []
        self.assigned: list[tuple[str, Word]] = []
        self.faults: list[str] = []
        self.notes: list[str] = []
        self._home = home
        self._decoder = Decoder("", home, self.fault)
        self._functions: dict[str, Node] = {}
        self._calling: set[str] = set()
        self._seen: set[int] = set()

    def fault(self, reason: str) -> None:
        """Keep a reason why the script can never be read with certainty."""
        if reason not in self.faults:
            self.faults.append(reason)

    def note(self, reason: str) -> None:
        """Keep a reason why the script is no plain read, though its effects are known."""
        if reason not in self.notes:
            self.notes.append(reason)

    def script(self, tree: Node, source: str, scope: Scope, place: Place) -> Flow:
        """Walk a whole tree, and make sure that no command in it was passed over."""
        outer, outer_seen = self._decoder, self._seen
        self._decoder, self._seen = Decoder(source, self._home, self.fault), set()
        flow = self._statements(tree.get("Stmts"), scope, place)
        total = _count_commands(tree)
        if len(self._seen) < total:
            self.fault("a command of the script was not understood")
        if total > MAX_COMMANDS:
            self.fault(f"more than {MAX_COMMANDS} commands")
        self._decoder, self._seen = outer, outer_seen
        return flow

    def text(self, text: str, scope: Scope, place: Place) -> bool:
        """Walk text that another command runs as a script; false when it cannot be read."""
        if place.depth > MAX_DEPTH:
            self.fault(f"nested more than {MAX_DEPTH} levels deep")
            return False
        try:
            tree = parse(text)
        except SyntaxFault as error:
            self.fault(f"a nested script cannot be read: {error}")
            return False
        self.script(tree, text, scope, place)
        return True

    # Statements

    def _statements(self, nodes: Sequence[Node] | None, scope: Scope, place: Place) -> Flow:
        flow = staying(scope.places)
        for node in nodes or ():
            flow = self._statement(node, scope, place)
            scope.places = flow.either or scope.places
        return flow

    def _statement(self, node: Node, scope: Scope, place: Place) -> Flow:
        if place.depth > MAX_DEPTH:
            self.fault(f"nested more than {MAX_DEPTH} levels deep")
            return staying(scope.places)
        place = self._redirections(node.get("Redirs"), scope, place)
        command: Node | None = node.get("Cmd")
        if command is None:
            return staying(scope.places)
        if node.get("Background") or node.get("Coprocess"):
            self._command(command, scope.copy(), place)
            return staying(scope.places)
        flow = self._command(command, scope, place)
        return Flow(flow.failure, flow.success) if node.get("Negated") else flow

    def _command(self, node: Node, scope: Scope, place: Place) -> Flow:
        handler = getattr(self, "_on_" + node["Type"], None)
        if handler is None:
            self.fault(f"a construct of kind {node['Type']} is not understood")
            self._substitutions(node, scope, place)
            return staying((None,))
        return handler(node, scope, place)

    def _on_BinaryCmd(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        if node["Op"] in ("|", "|&"):
            return self._pipeline(_flat(node, ("|", "|&")), scope, place)
        return self._list(_spine(node), scope, place)

    def _pipeline(self, parts: list[Node], scope: Scope, place: Place) -> Flow:
        for position, part in enumerate(parts):
            there = replace(place, position=position, piped=position > 0, fed=None)
            if position:
                there = replace(there, fed=_printed(self.found[-1]) if self.found else None)
            self._statement(part, scope.copy(), there)
        return staying(scope.places)

    def _list(self, parts: list[tuple[str, Node]], scope: Scope, place: Place) -> Flow:
        flow = self._statement(parts[0][1], scope, place)
        for op, node in parts[1:]:
            branch = scope.copy()
            branch.places = (flow.success if op == "&&" else flow.failure) or flow.either or scope.places
            after = self._statement(node, branch, place)
            scope.forget_differences(branch)
            if op == "&&":
                flow = Flow(after.success, union(flow.failure, after.failure))
            else:
                flow = Flow(union(flow.success, after.success), after.failure)
        return flow

    def _on_Block(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        return self._statements(node.get("Stmts"), scope, _inside(place))

    def _on_Subshell(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self._statements(node.get("Stmts"), scope.copy(), _inside(place))
        return staying(scope.places)

    def _on_TimeClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        inner: Node | None = node.get("Stmt")
        there = replace(place, wrappers=(*place.wrappers, "time"))
        return staying(scope.places) if inner is None else self._statement(inner, scope, there)

    def _on_CoprocClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self.fault("`coproc` runs beside the shell")
        self._substitutions(node.get("Name"), scope, place)
        self._statement(node["Stmt"], scope.copy(), _inside(place))
        return staying(scope.places)

    def _on_IfClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        inner = _inside(place)
        flow = self._statements(node.get("Cond"), scope, inner)
        branch = scope.copy()
        branch.places = flow.success or scope.places
        ends = [self._statements(node.get("Then"), branch, inner)]
        scope.forget_differences(branch)
        other: Node | None = node.get("Else")
        if other is None:
            ends.append(staying(flow.failure))
        else:
            rest = scope.copy()
            rest.places = flow.failure or scope.places
            ends.append(self._on_IfClause(other, rest, replace(place, depth=place.depth + 1)))
            scope.forget_differences(rest)
        return staying(union(*(end.either for end in ends)))

    def _on_WhileClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        inner = _inside(place)
        self._forget_assigned(node, scope)
        before = scope.places
        branch = scope.copy()
        flow = self._statements(node.get("Cond"), branch, inner)
        branch.places = flow.either
        after = self._statements(node.get("Do"), branch, inner)
        if after.either not in (before, ()):  # a directory changed in the loop: the next round starts elsewhere
            branch.places = union(before, (None,))
            self._statements(node.get("Do"), branch, inner)
        scope.forget_differences(branch)
        return staying(union(before, flow.either, after.either))

    def _on_ForClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        loop: Node = node["Loop"]
        self._substitutions(loop, scope, place)
        if loop["Type"] != "WordIter":
            self.fault("an arithmetic loop evaluates names as code")
            return self._rounds(node, "", [None], scope, place)
        name: str = loop["Name"]["Value"]
        items = [word for item in loop.get("Items") or () for word in self._decoder.words(item, scope.variables)]
        readable = items and all(word.kind != "opaque" for word in items) and len(items) <= _MAX_UNROLLED
        if node.get("Select"):
            self.fault("`select` reads its choice when it runs")
        rounds: list[Word | None] = [*items] if readable and not node.get("Select") else [None]
        return self._rounds(node, name, rounds, scope, place)

    def _rounds(self, node: Node, name: str, values: list[Word | None], scope: Scope, place: Place) -> Flow:
        inner = _inside(place)
        branch = scope.copy()
        if values == [None]:
            self._forget_assigned(node, branch)
        ends = [scope.places]
        for value in values:
            if len(self.found) > _MAX_FOUND:
                self.fault("too many commands after loops are unrolled")
                break
            if name:
                self._assign(name, value, branch)
            flow = self._statements(node.get("Do"), branch, inner)
            branch.places = union(ends[-1], flow.either)
            ends.append(branch.places)
        scope.forget_differences(branch)
        return staying(union(*ends))

    def _on_CaseClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self._substitutions(node.get("Word"), scope, place)
        ends = [scope.places]
        for item in node.get("Items") or ():
            self._substitutions(item.get("Patterns"), scope, place)
            branch = scope.copy()
            branch.places = union(*ends) if item.get("Op") != ";;" else scope.places
            ends.append(self._statements(item.get("Stmts"), branch, _inside(place)).either)
            scope.forget_differences(branch)
        return staying(union(*ends))

    def _on_FuncDecl(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        for each in [node.get("Name"), *(node.get("Names") or ())]:
            if each:
                self._functions[each["Value"]] = node["Body"]
        self.note("defines a function")
        body = scope.copy()
        self._forget_assigned(node, body)
        self._statement(node["Body"], body, _inside(place))
        return staying(scope.places)

    def _on_ArithmCmd(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self._substitutions(node.get("X"), scope, place)
        if arithmetic.value_of(node.get("X")) is None:
            self.fault("arithmetic on names evaluates their values as code")
        return staying(scope.places)

    def _on_LetClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self._seen.add(id(node))
        self._substitutions(node.get("Exprs"), scope, place)
        self.fault("`let` evaluates its words as code")
        self._keep((Word("let"),), scope, place)
        return staying(scope.places)

    def _on_TestClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self._substitutions(node, scope, place)
        for test in _typed(node, ("UnaryTest", "BinaryTest")):
            if test["Op"] in ("-v", "-R"):
                self.fault(f"`[[ {test['Op']} ]]` evaluates a subscript in its operand")
            elif test["Op"] in _NUMERIC_TESTS:
                for side in ("X", "Y"):
                    if arithmetic.value_of(test[side]) is None:
                        self.fault(f"`[[ {test['Op']} ]]` evaluates its operands as code")
        return staying(scope.places)

    def _on_DeclClause(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self._seen.add(id(node))
        variant: str = node["Variant"]["Value"]
        words = [Word(variant)]
        for arg in node.get("Args") or ():
            self._substitutions(arg, scope, place)
            words.append(self._declared(arg, scope))
            if name := (arg.get("Name") or {}).get("Value"):
                self._assign(name, None, scope)
        options = "".join(word.text for word in words[1:] if word.text.startswith("-"))
        if any(letter in options for letter in "in") or any(arg.get("Index") for arg in node.get("Args") or ()):
            self.fault(f"`{variant}` with -i, -n or a subscript evaluates values as code")
        self._keep(tuple(words), scope, place)
        return staying(scope.places)

    def _declared(self, arg: Node, scope: Scope) -> Word:
        name = (arg.get("Name") or {}).get("Value", "")
        value = self._decoder.value(arg.get("Value"), scope.variables)
        if not name:
            return value
        if arg.get("Naked"):
            return Word(name)
        return Word(f"{name}={value.text}", value.kind, f"{name}=")

    def _on_CallExpr(self, node: Node, scope: Scope, place: Place) -> Flow:  # noqa: N802
        self._seen.add(id(node))
        assigns = tuple(self._assignment(each, scope, place) for each in node.get("Assigns") or ())
        words: list[Word] = []
        for arg in node.get("Args") or ():
            self._substitutions(arg, scope, place)
            words += self._decoder.words(arg, scope.variables)
        if not words:
            for name, value in assigns:
                self._assign(name, value, scope)
                self.assigned.append((name, value))
            return staying(scope.places)
        return self._simple(tuple(words), scope, replace(place, assigns=place.assigns + assigns))

    def _assignment(self, node: Node, scope: Scope, place: Place) -> tuple[str, Word]:
        self._substitutions(node, scope, place)
        name: str = node["Name"]["Value"]
        if node.get("Index") is not None and arithmetic.value_of(node["Index"]) is None:
            self.fault("a subscript is evaluated as code")
        if node.get("Array") is not None or node.get("Append") or node.get("Index") is not None:
            for element in _typed(node.get("Array") or {}, ("ParamExp", "ArithmExp")):
                self._decoder.words({"Parts": [element]}, scope.variables)
            if any(element.get("Index") for element in (node.get("Array") or {}).get("Elems") or ()):
                self.fault("a subscript is evaluated as code")
            return name, Word(name, "opaque")
        return name, self._decoder.value(node.get("Value"), scope.variables)

    # Simple commands

    def _simple(self, words: tuple[Word, ...], scope: Scope, place: Place) -> Flow:
        if place.depth > MAX_DEPTH:
            self.fault(f"nested more than {MAX_DEPTH} levels deep")
            return staying(scope.places)
        first = words[0]
        if not first.literal:
            self.fault(f"the command word is not literal: {first.text}")
            self._keep(words, scope, place)
            return staying((None,))
        name = first.text.rpartition("/")[2]
        if name in self._functions and "/" not in first.text:
            return self._function(words, scope, place)
        wrapper = wrapper_of(name)
        if wrapper is not None and not _looks_up(name, words):
            return self._wrapper(words, wrapper, scope, place)
        self._keep(words, scope, place)
        if name in SHELLS:
            self._shell(words, scope, place)
        elif name in NEVER_READABLE:
            self._never_readable(words, scope, place)
        else:
            for started in started_by(name, words[1:]):
                self._start(name, started, scope, place)
        return self._flow_of(name, words, scope)

    def _keep(
        self, words: tuple[Word, ...], scope: Scope, place: Place, wraps: Wrapper | None = None, function: bool = False
    ) -> None:
        self.found.append(Found(words, scope.places, place, wraps, function))

    def _function(self, words: tuple[Word, ...], scope: Scope, place: Place) -> Flow:
        name = words[0].text
        self._keep(words, scope, place, function=True)
        if name in self._calling:
            self.fault(f"the function {name} calls itself")
            return staying(scope.places)
        self._calling.add(name)
        flow = self._statement(self._functions[name], scope, replace(_inside(place), fed=None))
        self._calling.discard(name)
        return flow

    def _wrapper(self, words: tuple[Word, ...], wrapper: Wrapper, scope: Scope, place: Place) -> Flow:
        name = words[0].text.rpartition("/")[2]
        inner = unwrap(name, wrapper, words[1:])
        self._keep(words, scope, place, wraps=wrapper)
        if inner.problem:
            self.fault(inner.problem)
            return staying((None,))
        there = replace(
            place,
            depth=place.depth + 1,
            wrappers=(*place.wrappers, name),
            assigns=place.assigns + inner.assigns,
            open_ended=place.open_ended or wrapper.adds_words,
        )
        if inner.script is not None:
            self._run_text(inner.script, scope, there, name)
        elif inner.words:
            where = scope.copy()
            if inner.directory is not None:
                where.places = moved(scope.places, inner.directory, physical=True)
            shared = name in ("command", "builtin", "time")
            return self._simple(inner.words, scope if shared else where, there)
        return staying(()) if name == "exec" and inner.words else staying(scope.places)

    def _shell(self, words: tuple[Word, ...], scope: Scope, place: Place) -> None:
        name = words[0].text.rpartition("/")[2]
        script, file = _shell_script(words[1:])
        if script is not None:
            self._run_text(script, scope, place, name)
        elif file is not None:
            return
        elif place.fed is not None:
            self._run_text(place.fed, scope, place, name)
            self.fault(f"`{name}` runs its standard input as code")
        else:
            self.fault(f"`{name}` runs its standard input as code")

    def _run_text(self, script: Word, scope: Scope, place: Place, name: str) -> None:
        if not script.literal:
            self.fault(f"the script given to `{name}` is not literal: {script.text}")
            return
        child = Scope(scope.places, {key: scope.variables.get(key) for key in ("HOME", "PWD")})
        if name in SHELLS - {"bash"} and (parse_plain(script.text) is None or re.search(r"[{}~*?\[]", script.text)):
            self.note(f"`{name}` may read the script otherwise than bash")
        there = replace(place, depth=place.depth + 1, nested=True, position=0, fed=None, piped=False)
        self.text(script.text, child, there)

    def _never_readable(self, words: tuple[Word, ...], scope: Scope, place: Place) -> None:
        name = words[0].text.rpartition("/")[2]
        self.fault(f"`{name}` {NEVER_READABLE[name]}")
        text = runs_text(name, words[1:])
        if text is not None and text.literal and text.text:
            self.text(text.text, scope.copy(), replace(place, depth=place.depth + 1, nested=True, position=0))

    def _start(self, name: str, started: Started, scope: Scope, place: Place) -> None:
        there = replace(place, depth=place.depth + 1, nested=True, position=0, wrappers=(*place.wrappers, name))
        if started.script is not None:
            self._run_text(started.script, scope, there, name)
        elif started.words:
            words = tuple(_placed(word, started.below) for word in started.words)
            self._simple(words, scope.copy(), there)

    def _flow_of(self, name: str, words: tuple[Word, ...], scope: Scope) -> Flow:
        if name in _ENDS:
            return staying(())
        if name in ("cd", "pushd", "popd", "chdir"):
            there = self._directory_after(name, words[1:], scope)
            scope.variables["PWD"] = None
            return Flow(there, scope.places)
        if name in CHANGES_NAMES:
            for changed in names_changed(name, words[1:]):
                self._assign(changed, None, scope)
        return staying(scope.places)

    def _directory_after(self, name: str, words: Sequence[Word], scope: Scope) -> Places:
        physical = any(word.text in ("-P", "-LP") for word in words)
        operands = [
            word for word in words if word.text in ("-", "") or not word.text.startswith("-") or not word.literal
        ]
        if name == "popd" or "CDPATH" in scope.variables or len(operands) > 1:
            return (None,)
        if not operands:
            return moved(scope.places, scope.variables.get("HOME") if name != "pushd" else None)
        if operands[0].text in ("-", "") or operands[0].text.startswith("+"):
            return (None,)
        return moved(scope.places, operands[0], physical=physical)

    # Variables, redirections, substitutions

    def _assign(self, name: str, value: Word | None, scope: Scope) -> None:
        if name == "IFS":
            self._decoder.splits_as_usual = False
        scope.variables[name] = value if value is not None and value.kind != "opaque" else None

    def _forget_assigned(self, node: Node, scope: Scope) -> None:
        """Forget every variable that something below `node` assigns: a loop's second round sees other values."""
        for assign in _with_key(node, "Name"):
            name = assign["Name"].get("Value") if isinstance(assign["Name"], dict) else None
            if name:
                scope.variables[name] = None

    def _redirections(self, nodes: Sequence[Node] | None, scope: Scope, place: Place) -> Place:
        for node in nodes or ():
            self._substitutions(node, scope, place)
            op: str = node["Op"]
            fd: str = (node.get("N") or {}).get("Value", "")
            if op in ("<<", "<<-"):
                quoted = any(part["Type"] != "Lit" or "\\" in part["Value"] for part in node["Word"]["Parts"])
                body = self._decoder.heredoc(node.get("Hdoc"), quoted, scope.variables)
                place = replace(place, fed=body)
                continue
            target = self._decoder.value(node["Word"], scope.variables)
            if op == "<<<":
                place = replace(place, fed=target)
                continue
            if _has_glob(node["Word"]):
                target = Word(target.text, "glob")
            if fd.startswith("{"):
                self.note("a redirection assigns a variable")
                self._assign(fd.strip("{}"), None, scope)
            self.redirects.append(FoundRedirect(op, fd, target, scope.places))
        return place

    def _substitutions(self, node: object, scope: Scope, place: Place) -> None:
        """Walk every command and process substitution below a node, wherever expansions may stand."""
        for inner in _typed(node, ("CmdSubst", "ProcSubst")):
            if inner.get("TempFile") or inner.get("ReplyVar"):
                self.fault("`${ command; }` runs in the shell itself")
            self._statements(inner.get("Stmts"), scope.copy(), place.deeper())
        for inner in _typed(node, ("ParamExp",)):
            from holdfast.host.shell.words import odd_parameter

            if reason := odd_parameter(inner):
                self.fault(reason)


def _inside(place: Place) -> Place:
    return replace(place, depth=place.depth + 1)


def _spine(node: Node) -> list[tuple[str, Node]]:
    """Flatten `a && b || c`, which nests to the left, into operators and statements."""
    parts: list[tuple[str, Node]] = []
    while True:
        parts.append((node["Op"], node["Y"]))
        left: Node = node["X"]
        inner: Node | None = left.get("Cmd")
        if inner is None or inner["Type"] != "BinaryCmd" or inner["Op"] not in ("&&", "||") or _dressed(left):
            parts.append(("", left))
            return parts[::-1]
        node = inner


def _flat(node: Node, ops: tuple[str, ...]) -> list[Node]:
    parts: list[Node] = []
    waiting: list[Node] = [node["Y"], node["X"]]
    while waiting:
        part = waiting.pop()
        inner: Node | None = part.get("Cmd")
        if inner is not None and inner["Type"] == "BinaryCmd" and inner["Op"] in ops and not _dressed(part):
            waiting += [inner["Y"], inner["X"]]
        else:
            parts.append(part)
    return parts


def _dressed(statement: Node) -> bool:
    return any(statement.get(key) for key in ("Redirs", "Negated", "Background", "Coprocess"))


def _typed(node: object, kinds: tuple[str, ...]) -> Iterator[Node]:
    """Yield the nodes of the given kinds below `node`, not looking inside those found."""
    waiting: list[object] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            mapping: Node = each
            if mapping.get("Type") in kinds:
                yield mapping
                if mapping.get("Type") in ("CmdSubst", "ProcSubst"):
                    continue
            waiting += [value for value in reversed(list(mapping.values())) if isinstance(value, (dict, list))]
        elif isinstance(each, list):
            waiting += reversed(each)


def _with_key(node: object, key: str) -> Iterator[Node]:
    waiting: list[object] = [node]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            mapping: Node = each
            if key in mapping:
                yield mapping
            waiting += [value for value in mapping.values() if isinstance(value, (dict, list))]
        elif isinstance(each, list):
            waiting += each


def _count_commands(tree: Node) -> int:
    return sum(1 for node in _with_key(tree, "Type") if node["Type"] in ("CallExpr", "DeclClause", "LetClause"))


def _has_glob(node: Node) -> bool:
    bare = "".join(part["Value"] for part in node["Parts"] if part["Type"] == "Lit")
    return re.search(r"(?<!\\)[*?\[{]", bare) is not None


def _looks_up(name: str, words: tuple[Word, ...]) -> bool:
    """Whether `command -v name` only asks where a program is."""
    return name == "command" and len(words) > 1 and words[1].text in ("-v", "-V", "-pv", "-pV")


def _placed(word: Word, below: tuple[str, ...]) -> Word:
    """Return the word with the `{}` of `find` standing for any path below the starting points."""
    if "{}" not in word.text or not word.literal:
        return word
    if len(below) != 1:
        return Word(word.text, "opaque")
    root = below[0].rstrip("/") or "/"
    path = word.text.replace("{}", root + "/**")
    return Word(word.text, "glob", path.partition("*")[0], path)


def _printed(found: Found) -> Word | None:
    """Return what a literal `echo` or `cat <<EOF` puts into the pipe, so that `| sh` can be read."""
    if found.name == "cat" and len(found.words) == 1:
        return found.place.fed
    if found.name not in ("echo", "printf") or any(not word.literal for word in found.words):
        return None
    words = [word.text for word in found.words[1:] if word.text not in ("-n", "-e", "--", "%s", "%s\n", "%s\\n")]
    return Word(" ".join(words).replace("\\n", "\n"))


def _shell_script(words: Sequence[Word]) -> tuple[Word | None, Word | None]:
    """Return the script of `bash -c SCRIPT`, or the file (or other operand) it runs."""
    takes_script = False
    rest = iter(words)
    for word in rest:
        if word.text in ("-O", "+O", "-o", "+o", "--rcfile", "--init-file"):
            next(rest, None)
        elif word.literal and re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", word.text):
            takes_script = True
        elif word.literal and word.text == "-s":
            return None, None
        elif word.literal and (word.text == "-" or word.text == "--"):
            continue
        elif not word.literal or word.text[:1] not in ("-", "+") or not word.text:
            return (word, None) if takes_script else (None, word)
    return (Word("", "opaque"), None) if takes_script else (None, None)
