"""The walk over a script: all its simple commands, nested ones too, with decoded words and the directory of each.

The walk follows the shell: lists, pipelines, subshells, loops over literal words, functions, `cd`. What a construct
hides from reading (text run as code, names made at run time) is kept as a fault; a fault is never forgotten.
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
    is_shells_own,
    keep_under,
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
"""Characters of scripts within scripts: a long one that is wrapped many times is read once for each."""
# To bash a comment ends with its line, whatever stands before the newline; the parser joins the next line to it.
_CONTINUED_COMMENT = lazy_pattern(r"""(?:^|[\s;&|()<>`{}'"])#[^\n]*\\\n""")
_DECLARES = lazy_pattern(r"declare|typeset|local")
_TOO_DEEP = f"nested more than {MAX_DEPTH} levels deep"


class Walk:
    """One walk over one script. Read `found`, `redirects`, `faults` (never readable) and `notes` (no read) after it."""

    def __init__(self) -> None:
        self.found: list[FoundCommand] = []
        self.redirects: list[FoundRedirect] = []
        self.assigned: list[tuple[str, Word]] = []
        self.listed: list[tuple[Word, Directories]] = []  # patterns in lists of values, which no command is given
        self.faults: list[str] = []
        self.notes: list[str] = []
        self.calling: set[str] = set()
        self.called: list[Node] = []  # bodies of functions that were walked for a call
        self.defined: list[tuple[Node, Scope, Context]] = []
        self.unset: set[str] = set()  # names that some command unsets
        self.keyed: set[str] = set()  # names that may be associative arrays
        self.arrays: set[str] = set()  # names that may be arrays of any kind
        self.declared: set[str] = set()  # names that are declared with a text that nobody knows
        self.returned: list[tuple[Scope, bool]] = []  # states in which `return` left the function, and whether it fails
        self.decoder = Decoder("", self.fault)
        self.seen: set[int] = set()
        self._nested = 0
        self.passed: list[list[Scope]] = []

    def fault(self, reason: str) -> None:
        """Keep a reason why the script can never be read with certainty."""
        if reason not in self.faults:
            self.faults.append(reason)

    def note(self, reason: str) -> None:
        """Keep a reason why the script is no plain read, though its effects are known."""
        if reason not in self.notes:
            self.notes.append(reason)

    def keep(
        self,
        words: tuple[Word, ...],
        scope: Scope,
        context: Context,
        wraps: Wrapper | None = None,
        function: bool = False,
    ) -> None:
        """Keep a simple command."""
        self.found.append(FoundCommand(words, scope.directories, context, wraps, function))

    def too_deep(self, context: Context) -> bool:
        """Whether to stop here, which is a fault; so is a script that grows without end when it is unrolled."""
        if len(self.found) > _MAX_FOUND:
            self.fault("too many commands once loops and functions are unrolled")
            return True
        if context.depth > MAX_DEPTH:
            self.fault(_TOO_DEEP)
        return context.depth > MAX_DEPTH

    def script(self, tree: Node, source: str, scope: Scope, context: Context) -> Flow:
        """Walk a whole tree, and make sure that no command in it was passed over."""
        if "#" in source and (_CONTINUED_COMMENT.search(source) or doubtful_comment(tree, source)):
            self.fault("a comment that bash may read as a command")
        if ("(" in source or "`" in source) and hidden_expansion(tree):
            self.fault("an expansion inside a pattern cannot be read")
        outer = self.decoder, self.seen, self.defined
        self.decoder, self.seen, self.defined = Decoder(source, self.fault), set(), []
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
            self.fault(f"a declaration may evaluate the text that it sets {name} to")
        total = count_commands(tree)
        if len(self.seen) < total:
            self.fault("a command of the script was not understood")
        if total > MAX_COMMANDS:
            self.fault(f"more than {MAX_COMMANDS} commands")
        self.decoder, self.seen, self.defined = outer
        return flow

    def _walk_uncalled(self) -> None:
        """Walk the functions that no command of the script calls: one of a later script may."""
        while self.defined:
            body, scope, context = self.defined.pop()
            if not any(body is each for each in self.called):
                self.statement(body, scope, context)

    def text(self, source: str, scope: Scope, context: Context) -> None:
        """Walk text that another command runs as a script."""
        self._nested += len(source)
        if self._nested > _MAX_NESTED:
            self.fault("the scripts within the script are too long")
        if self.too_deep(context) or self._nested > _MAX_NESTED:
            return
        try:
            tree = parse(source)
        except SyntaxFault as error:
            self.fault(f"a nested script cannot be read: {error}")
        else:
            self.script(tree, source, scope, context)

    @contextmanager
    def passing(self) -> Generator[list[Scope]]:
        """Collect the states after each statement meanwhile: a part that is left half-way ends in one of them."""
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
            for each in children(command, "Assigns"):  # where no command follows, bash assigns first: `x=1 <<< $x`
                scope.variables[text(each, "Name")] = None
            context = self._redirections(node["Redirs"], scope, context)
        if not command:
            return staying(scope.directories)
        before = scope.copy() if any(map(_may_fail, children(node, "Redirs"))) else None
        if node.get("Background") or node.get("Coprocess"):
            self.note("runs in the background")
            self._command(command, scope.copy(), context)
            return staying(scope.directories)
        flow = self._command(command, scope, context)
        if before is not None:  # where a file cannot be opened, bash goes on without the command
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
        self.fault(f"a construct of kind {node['Type']} is not understood")
        self.substitutions(node, scope, context)
        return staying((None,))

    def call(self, node: Node, scope: Scope, context: Context) -> Flow:
        """Walk a simple command, or assignments that stand alone."""
        self.seen.add(id(node))
        assigns = self._assignments(children(node, "Assigns"), scope, context) if "Assigns" in node else ()
        words: list[Word] = []
        for arg in children(node, "Args"):
            self.substitutions(arg, scope, context)
            words += self.argument(arg, scope, context)
        if words:
            for name, _ in assigns:  # to a shell that keeps to POSIX, `x=1 :` sets it for good
                scope.variables[name] = None
            there = replace_values(context, assigns=context.assigns + assigns) if assigns else context
            return simple.run(self, tuple(words), scope, there)
        for name, value in assigns:
            self.assign(name, value, scope)
        self.assigned += assigns
        return staying(scope.directories)

    def _assignments(self, nodes: Sequence[Node], scope: Scope, context: Context) -> tuple[tuple[str, Word], ...]:
        """Walk the assignments of a command one after the other: each sees the values of those before it."""
        there = scope.copy()
        found: list[tuple[str, Word]] = []
        for node in nodes:
            name, value = self.assignment(node, there, context)
            there.variables[name] = _certain(value)
            found.append((name, value))
        return tuple(found)

    def argument(self, node: Node, scope: Scope, context: Context) -> list[Word]:
        """Return the words an argument becomes; `$(git ls-files)` is the files that lists, where it can be known."""
        words = self.decoder.words(node, scope.variables)
        if len(words) == 1 and words[0].kind == "opaque" and words[0].many == "split":
            words = list(self._listing(node, scope, context)) or words
        return [globs.looked_at(word, scope.directories) for word in words]

    def _listing(self, node: Node, scope: Scope, context: Context) -> tuple[Word, ...]:
        """Return patterns of the paths that a substitution, alone in its word, prints; each is a word of its own."""
        parts = children(node, "Parts")
        substitutes = len(parts) == 1 and (parts[0]["Type"] == "CmdSubst" or parts[0].get("Op") == "<(")
        statements = children(parts[0], "Stmts") if substitutes else []
        if len(statements) != 1 or not self.decoder.splits_as_usual:
            return ()
        command = child(statements[0], "Cmd")
        if is_plain(statements[0]) and (numbers := counted_by_seq(command)):
            return tuple(map(Word, numbers))
        if next(outermost(command, ("CmdSubst", "ProcSubst")), None) is not None:
            return ()  # each is walked once: twice at every level takes for ever
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
        """Return the name that is assigned to, and its value."""
        self.substitutions(node, scope, context)
        name = text(node, "Name")
        array = child(node, "Array")
        before = scope.variables.get(name)
        subscripts = [node.get("Index"), *(element.get("Index") for element in children(array, "Elems"))]
        given = [index for index in subscripts if index is not None]
        if not all(is_plain_subscript(index, scope.variables, name) for index in given):
            self.fault("a subscript is evaluated as code")
        items: list[Word] = []
        for element in children(array, "Elems"):
            words = self.argument(element["Value"], scope, context) if element.get("Value") else []
            self.listed += [(word, scope.directories) for word in words if word.kind == "glob"]
            items += words
        if before is not None and before.keyed and (array or given):
            return name, before
        if array and not given and not node.get("Append") and name not in self.keyed:
            return name, Word(name, "opaque", items=tuple(keep_under(item, f"${{{name}[@]}}") for item in items))
        if array or given or node.get("Append"):
            return name, Word(name, "opaque")
        return name, self.decoder.value(node.get("Value"), scope.variables)

    def assign(self, name: str, value: Word | None, scope: Scope) -> None:
        """Set a variable to a certain value, or forget what it was."""
        if name == "IFS":
            self.decoder.splits_as_usual = False
        # What the shell sets by itself is not what it was set to: `LINES`.
        scope.variables[name] = _certain(value) if is_shells_own(name) else None

    def _redirections(self, nodes: Sequence[Node], scope: Scope, context: Context) -> Context:
        for node in nodes:
            self.substitutions(node, scope, context)
            op: str = node["Op"]
            if op[0] == "<" and text(node, "N") in ("", "0"):
                # Its input is no more what the command before it lists.
                context = replace_values(
                    context, listed=self._listing(node["Word"], scope, context) if op == "<" else ()
                )
            if op in ("<<", "<<-"):
                parts = children(child(node, "Word"), "Parts")
                quoted = any(part["Type"] != "Lit" or "\\" in part.get("Value", "") for part in parts)
                context = replace_values(context, fed=self.decoder.heredoc(node.get("Hdoc"), quoted, scope.variables))
                self._keep_redirect(node, op, self.decoder.value(node["Word"], {}), scope)
            elif op == "<<<":
                context = replace_values(context, fed=self.decoder.value(node["Word"], scope.variables))
                self._keep_redirect(node, op, context.fed or Word(""), scope)
            else:
                self._redirection(node, op, scope)
        return context

    def _redirection(self, node: Node, op: str, scope: Scope) -> None:
        words = self.decoder.words(node["Word"], scope.variables)
        target = words[0]
        if len(words) > 1:  # braces whose other words are empty leave one that names a file: `< {.env,}`
            target = Word(" ".join(word.text for word in words), "opaque")
        if text(node, "N").startswith("{"):
            self.note("a redirection assigns a variable")
            name = text(node, "N").strip("{}")
            self.assign(name, None, scope)
            self.assigned.append((name, Word(name, "opaque")))  # `{PATH}<file` sets the variable to a number
        self._keep_redirect(node, op, target, scope)

    def _keep_redirect(self, node: Node, op: str, target: Word, scope: Scope) -> None:
        self.redirects.append(FoundRedirect(op, text(node, "N"), target, scope.directories))

    def substitutions(self, node: object, scope: Scope, context: Context) -> None:
        """Walk every command and process substitution below a node, wherever expansions may stand."""
        for inner in outermost(node, ("CmdSubst", "ProcSubst", "ParamExp", "ArithmExp")):
            if inner["Type"] == "ArithmExp":
                if not arithmetic.is_number(inner.get("X"), scope.variables):
                    self.fault("arithmetic on names evaluates their values as code")
                continue
            if inner["Type"] == "ParamExp":
                if reason := odd_parameter(inner, scope.variables):
                    self.fault(reason)
                continue
            if inner.get("TempFile") or inner.get("ReplyVar"):
                self.fault("`${ command; }` runs in the shell itself")
            self.statements(children(inner, "Stmts"), scope.copy(), context.in_substitution())


def _may_fail(redirect: Node) -> bool:
    """Whether a redirection opens a file that may not be there, or a descriptor that may be closed."""
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
