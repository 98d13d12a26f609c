"""Walks a script and collects all its simple commands, nested ones included, with decoded words and directories.

The walk follows the shell: lists, pipelines, subshells, loops over literal words, functions, `cd`. Whatever cannot be
analyzed (text run as code, names made at run time) is recorded as a fault, which makes the whole script ask.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager

from surehand.core.frozen import replace_values
from surehand.core.text import lazy_pattern
from surehand.shell import arithmetic, globs, simple
from surehand.shell.constructs import CONSTRUCTS
from surehand.shell.path_lists import find_listed_paths
from surehand.shell.scope import (
    Context,
    Directories,
    Flow,
    FoundCommand,
    FoundRedirect,
    Scope,
    as_variable,
    is_shells_own,
    staying,
    union,
)
from surehand.shell.syntax import Node, SyntaxFault, parse
from surehand.shell.tree import (
    child,
    children,
    count_commands,
    counted_by_seq,
    doubtful_comment,
    find_arrays,
    hidden_expansion,
    is_plain,
    lines,
    may_abort,
    outermost,
    pipeline_parts,
    text,
)
from surehand.shell.word import NUMBER, Word
from surehand.shell.words import Decoder, is_plain_subscript, odd_parameter
from surehand.shell.wrappers import Wrapper

MAX_DEPTH = 50
MAX_COMMANDS = 200
_MAX_FOUND = 2000
_MAX_NESTED = 400_000
"""Limit on the characters of nested scripts: a script wrapped many times is parsed once per level."""
# In bash a comment ends with its line even after a backslash; the parser continues it.
_CONTINUED_COMMENT = lazy_pattern(r"""(?:^|[\s;&|()<>`{}'"])#[^\n]*\\\n""")
_DECLARES = lazy_pattern(r"declare|typeset|local")
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


class Walk:
    """One walk over one script. Results: `found`, `redirects`, `faults` (not readable), `notes` (not a plain read)."""

    def __init__(self) -> None:
        self.found: list[FoundCommand] = []
        self.redirects: list[FoundRedirect] = []
        self.assigned: list[tuple[str, Word]] = []
        self.also_read: list[tuple[Word, Directories]] = []  # globs in array values, and links that commands may open
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.calling: set[str] = set()
        self.called: list[Node] = []  # bodies of functions walked for a call
        self.defined: list[tuple[Node, Scope, Context]] = []
        self.unset: set[str] = set()  # names that a command unsets
        self.keyed: set[str] = set()  # names that may be associative arrays
        self.arrays: set[str] = set()  # names that may be arrays
        self.declared: set[str] = set()  # names declared with an unknown text
        self.returned: list[tuple[Scope, bool]] = []  # states at each `return` of the function, and whether it fails
        self.decoder = Decoder("", self.add_fault)
        self.seen: set[int] = set()
        self._nested = 0
        self.passed: list[list[Scope]] = []

    def add_fault(self, reason: str) -> None:
        """Record a reason why the script cannot be analyzed with certainty."""
        if reason not in self.faults:
            self.faults.append(reason)

    def add_note(self, reason: str) -> None:
        """Record a reason why the script is not a plain read, although its effects are known."""
        if reason not in self.notes:
            self.notes.append(reason)

    def record_command(
        self,
        words: tuple[Word, ...],
        scope: Scope,
        context: Context,
        wraps: Wrapper | None = None,
        function: bool = False,
    ) -> None:
        """Record a simple command."""
        self.found.append(FoundCommand(words, scope.directories, context, wraps, function))

    def too_deep(self, context: Context) -> bool:
        """Whether to stop: too deep, or too many commands once loops are unrolled; both are faults."""
        if len(self.found) > _MAX_FOUND:
            self.add_fault("too many commands once loops and functions are unrolled")
            return True
        if context.depth > MAX_DEPTH:
            self.add_fault(_TOO_DEEP)
        return context.depth > MAX_DEPTH

    def script(self, tree: Node, source: str, scope: Scope, context: Context) -> Flow:
        """Walk a whole tree, and verify that no command was skipped."""
        if "#" in source and (_CONTINUED_COMMENT.search(source) or doubtful_comment(tree, source)):
            self.add_fault("a comment that bash may read as a command")
        if ("(" in source or "`" in source) and hidden_expansion(tree):
            self.add_fault("an expansion inside a pattern cannot be read")
        outer = self.decoder, self.seen, self.defined
        self.decoder, self.seen, self.defined = Decoder(source, self.add_fault), set(), []
        if _DECLARES.search(source):
            self.arrays |= find_arrays(tree)
        flow = staying(scope.directories)
        for line in lines(children(tree, "Stmts")):
            before = scope.copy()
            with self.passing() as passed:
                flow = self.statements(line, scope, context)
            if may_abort(line):
                scope.join([before, *passed])
                flow = staying(scope.directories)
        self._walk_uncalled()
        for name in self.declared & self.arrays:
            self.add_fault(f"a declaration may evaluate the text that it sets {name} to")
        total = count_commands(tree)
        if len(self.seen) < total:
            self.add_fault("a command of the script was not understood")
        if total > MAX_COMMANDS:
            self.add_fault(f"more than {MAX_COMMANDS} commands")
        self.decoder, self.seen, self.defined = outer
        return flow

    def _walk_uncalled(self) -> None:
        """Walk functions that the script does not call: a later one may."""
        while self.defined:
            body, scope, context = self.defined.pop()
            if not any(body is each for each in self.called):
                self.statement(body, scope, context)

    def text(self, source: str, scope: Scope, context: Context) -> None:
        """Parse and walk text that another command runs as a script."""
        self._nested += len(source)
        if self._nested > _MAX_NESTED:
            self.add_fault("the scripts within the script are too long")
        if self.too_deep(context) or self._nested > _MAX_NESTED:
            return
        try:
            tree = parse(source)
        except SyntaxFault as error:
            self.add_fault(f"a nested script cannot be read: {error}")
        else:
            self.script(tree, source, scope, context)

    @contextmanager
    def passing(self) -> Generator[list[Scope]]:
        """Collect the state after each statement: `break` or an error may end the part in any of them."""
        states: list[Scope] = []
        self.passed.append(states)
        yield states
        self.passed.pop()

    # Statements

    def statements(self, nodes: Sequence[Node], scope: Scope, context: Context) -> Flow:
        """Walk statements one after the other."""
        flow = staying(scope.directories)
        for node in nodes:
            flow = self.statement(node, scope, context)
            scope.directories = flow.either or scope.directories
        return flow

    def statement(self, node: Node, scope: Scope, context: Context) -> Flow:
        """Walk one statement: its redirections, then its command."""
        if self.too_deep(context):
            return staying(scope.directories)
        command = child(node, "Cmd")
        if "Redirs" in node:
            for each in children(command, "Assigns"):  # without a command, bash assigns first: `x=1 <<< $x`
                scope.variables[text(each, "Name")] = None
            context = self._redirections(node["Redirs"], scope, context)
        if not command:
            return staying(scope.directories)
        before = scope.copy() if any(map(_may_fail, children(node, "Redirs"))) else None
        if node.get("Background") or node.get("Coprocess"):
            self.add_note("runs in the background")
            self._command(command, scope.copy(), context)
            return staying(scope.directories)
        flow = self._command(command, scope, context)
        if before is not None:  # if a file cannot be opened, bash skips the command
            scope.forget_differences(before)
            flow = Flow(flow.success, union(flow.failure, before.directories))
        for states in self.passed:
            states.append(state := scope.copy())
            state.directories = flow.either or scope.directories
        return Flow(flow.failure, flow.success) if node.get("Negated") else flow

    def _command(self, node: Node, scope: Scope, context: Context) -> Flow:
        walk = CONSTRUCTS.get(node["Type"])
        if walk is not None:
            return walk(self, node, scope, context)
        self.add_fault(f"a construct of kind {node['Type']} is not understood")
        self.substitutions(node, scope, context)
        return staying((None,))

    def call(self, node: Node, scope: Scope, context: Context) -> Flow:
        """Walk a simple command, or assignments without one."""
        self.seen.add(id(node))
        assigns = self._assignments(children(node, "Assigns"), scope, context) if "Assigns" in node else ()
        words: list[Word] = []
        for arg in children(node, "Args"):
            self.substitutions(arg, scope, context)
            words += self.argument(arg, scope, context)
        if words:
            for name, _ in assigns:  # in POSIX mode, `x=1 :` sets it permanently
                scope.variables[name] = None
            there = replace_values(context, assigns=context.assigns + assigns) if assigns else context
            return simple.run(self, tuple(words), scope, there)
        for name, value in assigns:
            self.assign(name, value, scope)
        self.assigned += assigns
        return staying(scope.directories)

    def _assignments(self, nodes: Sequence[Node], scope: Scope, context: Context) -> tuple[tuple[str, Word], ...]:
        """Walk the assignments of a command in order: each sees the values of those before it."""
        there = scope.copy()
        found: list[tuple[str, Word]] = []
        for node in nodes:
            name, value = self.assignment(node, there, context)
            there.variables[name] = _certain(value)
            found.append((name, value))
        return tuple(found)

    def argument(self, node: Node, scope: Scope, context: Context) -> list[Word]:
        """Return the words an argument becomes; `$(git ls-files)` becomes the listed files if they can be known."""
        words = self.decoder.words(node, scope.variables)
        if len(words) == 1 and words[0].kind == "opaque" and words[0].many == "split":
            words = list(self._listing(node, scope, context)) or words
        return [globs.mark_option_free(word, scope.directories) for word in words]

    def _listing(self, node: Node, scope: Scope, context: Context) -> tuple[Word, ...]:
        """Return patterns of the paths printed by a substitution that is a whole word."""
        parts = children(node, "Parts")
        substitutes = len(parts) == 1 and (parts[0]["Type"] == "CmdSubst" or parts[0].get("Op") == "<(")
        statements = children(parts[0], "Stmts") if substitutes else []
        if len(statements) != 1 or not self.decoder.splits_as_usual:
            return ()
        command = child(statements[0], "Cmd")
        if is_plain(statements[0]) and (numbers := counted_by_seq(command)):
            return tuple(map(Word, numbers))
        if next(outermost(command, ("CmdSubst", "ProcSubst")), None) is not None:
            return ()  # walking each level twice would take exponential time
        piped = pipeline_parts(command) if command.get("Op") == "|" else statements
        names: tuple[Word, ...] = ()
        for position, part in enumerate(piped):
            if not is_plain(part) or child(part, "Cmd").get("Assigns") or part.get("Background") or part.get("Negated"):
                return ()
            probe = Walk()
            probe.decoder = self.decoder
            probe.statement(part, scope.copy(), Context(position=position, depth=context.depth + 1, listed=names))
            names = find_listed_paths(probe.found[0]) if len(probe.found) == 1 and not probe.faults else ()
        return () if any(each.many == "split" for each in names) else names

    # Variables, redirections, substitutions

    def assignment(self, node: Node, scope: Scope, context: Context) -> tuple[str, Word]:
        """Return the assigned name and its value."""
        self.substitutions(node, scope, context)
        name = text(node, "Name")
        array = child(node, "Array")
        before = scope.variables.get(name)
        subscripts = [node.get("Index"), *(element.get("Index") for element in children(array, "Elems"))]
        given = [index for index in subscripts if index is not None]
        if not all(is_plain_subscript(index, scope.variables, name) for index in given):
            self.add_fault("a subscript is evaluated as code")
        items: list[Word] = []
        for element in children(array, "Elems"):
            words = self.argument(element["Value"], scope, context) if element.get("Value") else []
            self.also_read += [(word, scope.directories) for word in words if word.kind == "glob"]
            items += words
        if before is not None and before.keyed and (array or given):
            return name, before
        if array and not given and not node.get("Append") and name not in self.keyed:
            return name, Word(name, "opaque", items=tuple(as_variable(item, f"${{{name}[@]}}") for item in items))
        if array or given or node.get("Append"):
            return name, Word(name, "opaque")
        return name, self.decoder.value(node.get("Value"), scope.variables)

    def assign(self, name: str, value: Word | None, scope: Scope) -> None:
        """Set a variable to a known value, or forget it."""
        if name == "IFS":
            self.decoder.splits_as_usual = False
        # The shell itself changes variables such as `LINES`.
        scope.variables[name] = _certain(value) if is_shells_own(name) else None

    def _redirections(self, nodes: Sequence[Node], scope: Scope, context: Context) -> Context:
        for node in nodes:
            self.substitutions(node, scope, context)
            op: str = node["Op"]
            if op[0] == "<" and text(node, "N") in ("", "0"):
                # Its input is no longer the list of the previous command.
                context = replace_values(
                    context, listed=self._listing(node["Word"], scope, context) if op == "<" else ()
                )
            if op in ("<<", "<<-"):
                parts = children(child(node, "Word"), "Parts")
                quoted = any(part["Type"] != "Lit" or "\\" in part.get("Value", "") for part in parts)
                context = replace_values(context, fed=self.decoder.heredoc(node.get("Hdoc"), quoted, scope.variables))
                self._record_redirect(node, op, self.decoder.value(node["Word"], {}), scope)
            elif op == "<<<":
                context = replace_values(context, fed=self.decoder.value(node["Word"], scope.variables))
                self._record_redirect(node, op, context.fed or Word(""), scope)
            else:
                self._redirection(node, op, scope)
        return context

    def _redirection(self, node: Node, op: str, scope: Scope) -> None:
        words = self.decoder.words(node["Word"], scope.variables)
        target = words[0]
        if len(words) > 1:  # one file if the other words of braces are empty: `< {.env,}`
            target = Word(" ".join(word.text for word in words), "opaque")
        if text(node, "N").startswith("{"):
            self.add_note("a redirection assigns a variable")
            name = text(node, "N").strip("{}")
            self.assign(name, None, scope)
            self.assigned.append((name, Word(name, "opaque")))  # `{PATH}<file` sets the variable to a number
        self._record_redirect(node, op, target, scope)

    def _record_redirect(self, node: Node, op: str, target: Word, scope: Scope) -> None:
        self.redirects.append(FoundRedirect(op, text(node, "N"), target, scope.directories))

    def substitutions(self, node: object, scope: Scope, context: Context) -> None:
        """Walk every command and process substitution below a node, and check its other expansions."""
        for inner in outermost(node, ("CmdSubst", "ProcSubst", "ParamExp", "ArithmExp")):
            if inner["Type"] == "ArithmExp":
                if not arithmetic.is_number(inner.get("X"), scope.variables):
                    self.add_fault("arithmetic on names evaluates their values as code")
                continue
            if inner["Type"] == "ParamExp":
                if reason := odd_parameter(inner, scope.variables):
                    self.add_fault(reason)
                continue
            if inner.get("TempFile") or inner.get("ReplyVar"):
                self.add_fault("`${ command; }` runs in the shell itself")
            self.statements(children(inner, "Stmts"), scope.copy(), context.in_substitution())


def _may_fail(redirect: Node) -> bool:
    """Whether a redirection may fail: its file may be missing, its descriptor closed."""
    target = [(part["Type"], part.get("Value")) for part in children(child(redirect, "Word"), "Parts")]
    copies = redirect["Op"] == ">&" and target in ([("Lit", "1")], [("Lit", "2")])
    opens = redirect["Op"] not in ("<<", "<<-", "<<<") and target not in ([("Lit", "/dev/null")], [("ProcSubst", None)])
    return opens and not copies


def _certain(value: Word | None) -> Word | None:
    if value is not None and value.number:
        return NUMBER
    if value is not None and value.token:
        return value
    known = value is not None and (value.kind != "opaque" or value.items is not None or value.keyed)
    return value if known else None
