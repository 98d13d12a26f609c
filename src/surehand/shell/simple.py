"""Walks a simple command: the commands it wraps or starts, scripts it runs, and its effect on the shell's state."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from surehand.core.frozen import replace_values
from surehand.core.text import lazy_pattern
from surehand.shell import globs, options
from surehand.shell.options import names
from surehand.shell.path_lists import add_listed_paths, repositories_around
from surehand.shell.programs import program_of, wrapper_of
from surehand.shell.programs.record import VERSION_OPTIONS
from surehand.shell.scope import (
    Context,
    Directories,
    Flow,
    FoundCommand,
    Scope,
    change_directory,
    is_positional,
    staying,
    union,
)
from surehand.shell.syntax import Node, parse_plain
from surehand.shell.tree import below, child, children, text
from surehand.shell.word import Word
from surehand.shell.wrappers import Started, Wrapper, unwrap

if TYPE_CHECKING:
    from surehand.shell.walk import Walk

# Only a plain `exit` ends the script. After `return` outside a function (an error), `exit --help` or a program of that
# name it continues; after `return` in a function its caller does.
_ENDS = lazy_pattern(r"exit(?: (?:\d+|\$\?|\"\$\?\"))?", re.ASCII)
_MOVES = names("cd pushd popd chdir")
_STANDARD_INPUT = names("- /dev/stdin /dev/fd/0 /proc/self/fd/0")
_SHELL_KEEPS = names("command builtin time")  # these run a command in the same shell
_DECLARES = names("declare typeset local")
_MAX_PLACES = 8
_FAILS = lazy_pattern(r"[1-9]\d?", re.ASCII)
_COUNT = lazy_pattern(r"\d{1,9}", re.ASCII)
_TOP = lazy_pattern(r"""(["']?)\$\(git rev-parse --show-toplevel(?: 2> ?/dev/null)?(?: \|\| (?:pwd|echo \.))?\)\1""")
_READ_OTHERWISE = lazy_pattern(r"[{}~*?\[=^]")  # plain text that other shells may read differently from bash


def run(walk: Walk, words: tuple[Word, ...], scope: Scope, context: Context) -> Flow:
    """Record a simple command and every command it leads to; return where the shell may be afterwards."""
    if walk.too_deep(context):
        return staying(scope.directories)
    first = words[0]
    if not first.literal:
        walk.add_fault(f"the command word is not literal: {first.text}")
        walk.record_command(words, scope, context)
        return staying((None,))
    if not context.wrappers and (bodies := scope.functions.get(first.text)):
        return _call_function(walk, words, bodies, scope, context)
    return _run_program(walk, words, scope, context)


def _run_program(walk: Walk, words: tuple[Word, ...], scope: Scope, context: Context) -> Flow:
    name = words[0].text.rpartition("/")[2]
    wrapper = wrapper_of(name)
    if wrapper is not None and not _looks_up(name, words):
        return _unwrap_and_run(walk, words, wrapper, scope, context)
    program = program_of(name)
    if any(_is_read_in(word) for word in words) and program.judge(name, words[1:]).problem:
        # A variable read from a list stands for all paths only in reads: changing one is not changing all of them.
        words = tuple(Word(word.text, "opaque") if _is_read_in(word) else word for word in words)
    walk.record_command(words, scope, context)
    if name in _DECLARES:
        walk.add_fault(f"`{name}` behind other words evaluates what it is given")
    if program.is_shell:
        _run_shell(walk, words, scope, context)
    elif program.runs_input:
        _run_input(walk, name, scope, context)
    elif program.unreadable and program.judge(name, words[1:]).problem:
        _never_readable(walk, words, scope, context)
    elif program.starts is not None:
        for started in program.starts(words[1:]):
            _run_started(walk, name, started, scope, context)
    return _flow_after(walk, name, words, scope, context)


def _is_read_in(word: Word) -> bool:
    return bool(word.path) and word.text.startswith("$")


def define(walk: Walk, name: str, body: Node, scope: Scope) -> None:
    """Record a function; one named like a known command hides that command, which is a fault."""
    scope.functions[name] = (body,)
    walk.add_note("defines a function")
    if program_of(name.rpartition("/")[2]).is_described or name == "command_not_found_handle":
        walk.add_fault(f"the function {name} takes the name of a command")


def _call_function(
    walk: Walk, words: tuple[Word, ...], bodies: tuple[Node | None, ...], scope: Scope, context: Context
) -> Flow:
    """Walk each body the function may have; None among them stands for a program of that name."""
    name = words[0].text
    walk.record_command(words, scope, context, function=True)
    if name in walk.calling:
        walk.add_fault(f"the function {name} calls itself")
        return staying(scope.directories)
    walk.calling.add(name)
    branches = [scope.copy() for _ in bodies]
    flows = [
        _run_program(walk, words, branch, context) if body is None else _call_body(walk, body, words, branch, context)
        for body, branch in zip(bodies, branches, strict=True)
    ]
    walk.calling.discard(name)
    scope.variables, scope.functions, scope.previous_directories = (
        branches[0].variables,
        branches[0].functions,
        branches[0].previous_directories,
    )
    for branch in branches[1:]:
        scope.forget_differences(branch)
    return Flow(union(*(each.success for each in flows)), union(*(each.failure for each in flows)))


def _call_body(walk: Walk, body: Node, words: tuple[Word, ...], scope: Scope, context: Context) -> Flow:
    walk.called.append(body)
    arguments = {name: value for name, value in scope.variables.items() if is_positional(name)}
    scope.set_arguments(words[1:])
    declared = {name for each in below(body) for name in _declared_names(each)}
    hidden = {name: scope.variables.get(name) for name in _declared_first(body)}
    for name in declared & scope.variables.keys():
        del scope.variables[name]
    passed = [(states, len(states)) for states in walk.passed]
    before, walk.returned = walk.returned, []
    flow = walk.statement(body, scope, replace_values(context.inside(), fed=None))
    returned, walk.returned = walk.returned, before
    for name in walk.unset & hidden.keys():  # `unset` uncovers the caller's variable, which is then assigned
        del hidden[name]
    ended = [state for state, _ in returned]
    for each in [scope, *ended, *(state for states, start in passed for state in states[start:])]:
        each.variables |= dict.fromkeys([*declared, *filter(is_positional, each.variables)])
        each.variables |= {**hidden, **arguments}
        if any(directories != scope.directories for directories in (flow.either, *(end.directories for end in ended))):
            each.forget_found_names()
    for each in ended:
        scope.forget_differences(each)
    succeeded = (state.directories for state, fails in returned if not fails)
    return Flow(union(flow.success, *succeeded), union(flow.failure, *(each.directories for each in ended)))


def _declared_names(node: Node) -> list[str]:
    is_declaration = node.get("Type") == "DeclClause"
    return [text(arg, "Name") for arg in children(node, "Args")] if is_declaration else []


def _declared_first(body: Node) -> Iterator[str]:
    """Yield variables declared at the beginning of a function: the caller's of the same name stay unchanged."""
    for statement in children(child(body, "Cmd"), "Stmts") if child(body, "Cmd").get("Type") == "Block" else ():
        names = _declared_names(child(statement, "Cmd"))
        apart = any(statement.get(key) for key in ("Redirs", "Background", "Coprocess"))
        if text(child(statement, "Cmd"), "Variant") not in _DECLARES or not all(names) or apart:
            return
        yield from names


def _unwrap_and_run(walk: Walk, words: tuple[Word, ...], wrapper: Wrapper, scope: Scope, context: Context) -> Flow:
    name = words[0].text.rpartition("/")[2]
    inner = unwrap(name, wrapper, words[1:])
    walk.record_command(words, scope, context, wraps=wrapper)
    if inner.problem:
        walk.add_fault(inner.problem)
        return staying((None,))
    there = replace_values(
        context,
        depth=context.depth + 1,
        wrappers=(*context.wrappers, name),
        assigns=context.assigns + inner.assigns,
        open_ended=context.open_ended or wrapper.adds_words,
    )
    if name == "xargs" and inner.words and (complete := add_listed_paths(inner.words, words[1:], context.listed)):
        inner.words, there = complete, replace_values(there, open_ended=context.open_ended, listed=())
    if inner.script is not None:
        _run_text(walk, inner.script, scope, there, name)
    if not inner.words:
        if context.open_ended:  # `xargs nice`
            walk.add_fault(f"the command that `{name}` runs comes from its input")
        if name == "exec":
            walk.add_fault("`exec` with redirections changes the shell's own files")
        return staying(scope.directories)
    if name in _SHELL_KEEPS:
        return run(walk, inner.words, scope, there)
    child = scope.copy()
    if inner.directory is not None:
        child.directories = change_directory(scope.directories, inner.directory, physical=True)
    run(walk, inner.words, child, there)
    return staying(()) if name == "exec" else staying(scope.directories)


def _run_shell(walk: Walk, words: tuple[Word, ...], scope: Scope, context: Context) -> None:
    name = words[0].text.rpartition("/")[2]
    if len(words) == 2 and words[1].text in VERSION_OPTIONS:
        return
    script, file = _shell_script(words[1:])
    if script is not None:
        at = next((at for at, word in enumerate(words) if word is script), len(words))
        given = words[at + 2 :]
        of_find = all(word.path for word in given) and not context.open_ended
        _run_text(walk, script, scope, context, name, given if of_find else ())
    elif file is not None and re.fullmatch(r"/dev/fd/[1-9]\d*", file.text):
        walk.add_fault(f"`{name}` runs the output of a command as code")
    elif file is None or file.text in _STANDARD_INPUT:
        _run_input(walk, name, scope, context)


def _run_input(walk: Walk, name: str, scope: Scope, context: Context) -> None:
    walk.add_fault(f"`{name}` runs its standard input as code")
    if context.fed is not None:
        _run_text(walk, context.fed, scope, context, name)


def _run_text(
    walk: Walk,
    script: Word,
    scope: Scope,
    context: Context,
    name: str,
    arguments: tuple[Word, ...] = (),
) -> None:
    """Walk a script that another process runs: it shares the directory, and no variable of this shell for certain.

    Of its positional parameters only the paths that `find` puts in are known, the `arguments`: other words after a
    script, as in `bash -c 'ls $1' x WORDS`, are a way to hide words, and not to read.
    """
    if not script.literal:
        walk.add_fault(f"the script given to `{name}` is not literal: {script.text}")
        return
    if name != "bash" and (parse_plain(script.text) is None or _READ_OTHERWISE.search(script.text)):
        walk.add_note(f"`{name}` may read the script otherwise than bash")
    child = Scope(scope.directories, {key: scope.variables.get(key) for key in ("HOME", "PWD")})
    if arguments:
        child.set_arguments(arguments)
    calling, walk.calling = walk.calling, set()
    walk.text(script.text, child, context.of_started())
    walk.calling = calling


def _never_readable(walk: Walk, words: tuple[Word, ...], scope: Scope, context: Context) -> None:
    name = words[0].text.rpartition("/")[2]
    walk.add_fault(f"`{name}` {program_of(name).unreadable}")
    script = _text_run_by(name, words[1:])
    if script is not None and script.literal and script.text:
        walk.text(script.text, scope if name == "eval" else scope.copy(), context.of_started())


def _text_run_by(name: str, words: Sequence[Word]) -> Word | None:
    """Return the text that `eval`, `trap` or `parallel` runs as a script."""
    given = list(words)
    while given and given[0].text.startswith("-"):
        given = given[1:]
    if name == "trap":
        return given[0] if given else None
    if name in ("eval", "parallel", "sem"):
        end = next((at for at, word in enumerate(given) if word.text.startswith(":::")), len(given))
        kind = "literal" if all(word.literal for word in given[:end]) else "opaque"
        return Word(" ".join(word.text for word in given[:end]), kind)
    return None


def _assigned_names(name: str, words: Sequence[Word]) -> Iterator[str]:
    """Yield the variables a builtin may assign or unset; superfluous names do no harm."""
    for word in words:
        if not word.text.startswith("-"):
            yield word.text.partition("=")[0].partition("[")[0]
        elif name == "read":
            yield word.text.partition("a")[2]  # `read -raNAME`
    if name == "read":
        yield "REPLY"


def _run_started(walk: Walk, name: str, started: Started, scope: Scope, context: Context) -> None:
    there = context.of_started(name)
    if started.script is not None:
        _run_text(walk, started.script, scope, there, name)
    elif started.words and (not started.if_known or _is_run_by_others(started.words[0])):
        _record_links(walk, started, scope)
        apart = 1 < len(started.below) <= _MAX_PLACES  # judged separately for each starting point
        for below in [(each,) for each in started.below] if apart else [started.below]:
            run(walk, tuple(_expand_placeholder(word, below, started) for word in started.words), scope.copy(), there)


def _record_links(walk: Walk, started: Started, scope: Scope) -> None:
    """Record links that a command may be given for `{}`: it opens their targets."""
    first = program_of(started.words[0].text.rpartition("/")[2])
    opens = options.flags(first.reads).operands not in ("text", "anything")
    if not opens or not any("{}" in word.text for word in started.words[1:]):
        return
    for directory in scope.directories:
        for root in started.below if directory is not None else ():
            links = globs.links_out_of(os.path.join(directory or "/", root), started.picks_link)
            walk.also_read += [(Word(link), scope.directories) for link in links]


def _is_run_by_others(word: Word) -> bool:
    return program_of(word.text.rpartition("/")[2]).run_by_others


def _expand_placeholder(word: Word, below: tuple[str, ...], started: Started) -> Word:
    """Return the word with `{}` standing for any path below the starting point."""
    if "{}" not in word.text or not word.literal:
        return word
    if len(below) != 1:
        return Word(word.text, "opaque")
    root = below[0].rstrip("/")
    path = word.text.replace("{}", root + "/**")
    fixed = "" if started.bare and root in (".", "") else path.partition("*")[0]
    return Word(word.text, "glob", fixed, path, "names" if started.many else "")


def _lines_read(name: str, words: Sequence[Word], context: Context) -> Word | None:
    """Return the array that `mapfile -t name` makes of the paths listed on standard input."""
    takes = name in ("mapfile", "readarray") and len(words) == 2 and words[0].text == "-t"
    listed = context.listed if takes and not any(each.many == "split" for each in context.listed) else ()
    return Word(words[-1].text, "opaque", items=listed) if listed else None


def _flow_after(walk: Walk, name: str, words: tuple[Word, ...], scope: Scope, context: Context) -> Flow:
    if _ENDS.fullmatch(" ".join(word.text for word in words)):
        return staying(())
    if words[0].text != name:
        return staying(scope.directories)  # `/bin/cd` is a program, not the builtin
    if name == "return":
        fails = len(words) == 2 and words[1].literal and _FAILS.fullmatch(words[1].text) is not None
        walk.returned.append((scope.copy(), fails))
    if name in _MOVES:
        there = _directory_after(name, words[1:], scope)
        scope.variables["PWD"] = scope.variables["OLDPWD"] = None
        scope.previous_directories = union(scope.previous_directories, scope.directories)
        scope.forget_found_names()
        return Flow(there, scope.directories)
    if name in ("set", "shift"):
        scope.set_arguments(_arguments_after(name, words[1:], scope))
    if program_of(name).assigns:
        for changed in _assigned_names(name, words[1:]):
            walk.assign(changed, _lines_read(name, words[1:], context), scope)
            walk.arrays.add(changed)
            if name == "unset":
                walk.unset.add(changed)
            if name == "unset" and changed in scope.functions:
                scope.add_bodies(changed, (None,))  # without such a variable, `unset` removes the function
    return staying(scope.directories)


def _directory_after(name: str, words: Sequence[Word], scope: Scope) -> Directories:
    flags = "".join(word.text for word in words if word.literal and word.text[:1] == "-")
    operands = [word for word in words if not word.literal or word.text == "-" or not word.text.startswith("-")]
    if name == "popd" or "CDPATH" in scope.variables or len(operands) > 1:
        return (None,)
    if not operands:
        return change_directory(scope.directories, scope.variables.get("HOME") if name != "pushd" else None)
    if name == "pushd" and "n" in flags:
        return scope.directories
    if operands[0].text == "-" and name == "cd":
        return scope.previous_directories
    if operands[0].text == "-" or operands[0].text.startswith("+"):
        return (None,)
    if operands[0].kind == "opaque" and _TOP.fullmatch(operands[0].text):
        if None in scope.directories:
            return (None,)
        tops = (top for directory in scope.directories for top in repositories_around(directory or "/"))
        return union(scope.directories, tuple(tops))  # outside a repository, `cd ""` changes nothing
    if "P" not in flags:
        return change_directory(scope.directories, operands[0])
    found = change_directory(scope.directories, operands[0], physical=True)
    return union(tuple(None if "L" in flags or each is None else os.path.realpath(each) for each in found))


def _arguments_after(name: str, words: Sequence[Word], scope: Scope) -> tuple[Word, ...] | None:
    """Return the positional parameters after `set` or `shift`, `None` where they are not known."""
    before = scope.variables.get("@")
    items = before.items if before is not None else None
    if name == "set":
        if words and words[0].literal and words[0].text == "--":
            return tuple(words[1:])
        modes = zip(words, (Word(""), *words), strict=False)  # pairs with the previous word: `-o pipefail`
        return items if all(word.text[:1] in "-+" or before.text.endswith("o") for word, before in modes) else None
    by = words[0].text if words else "1"
    if items is None or len(words) > 1 or not _COUNT.fullmatch(by) or not all(word.single for word in items[: int(by)]):
        return None
    return items[int(by) :] if int(by) <= len(items) else items


def _looks_up(name: str, words: tuple[Word, ...]) -> bool:
    """Whether `command -v name` only asks where a program is, or `xargs --version` for a version."""
    if len(words) == 2 and words[1].literal and words[1].text in VERSION_OPTIONS:
        return True
    return name == "command" and len(words) > 1 and re.fullmatch(r"-p?[vV]", words[1].text) is not None


def text_printed_by(found: FoundCommand) -> Word | None:
    """Return what a literal `echo` or `cat <<EOF` prints, so that a script in `| sh` can be analyzed."""
    if found.name == "cat" and len(found.words) == 1:
        return found.context.fed
    if found.name not in ("echo", "printf") or any(not word.literal for word in found.words):
        return None
    words = [word.text for word in found.words[1:] if word.text not in ("-n", "-e", "-ne", "--", "%s", "%s\\n")]
    return Word(" ".join(words).replace("\\n", "\n"))


def _shell_script(words: Sequence[Word]) -> tuple[Word | None, Word | None]:
    """Return the script of `bash -c SCRIPT`, or the file it runs."""
    takes_script = False
    rest = iter(words)
    for word in rest:
        if not word.literal:
            return (word, None) if takes_script else (None, word)
        given = re.fullmatch(r"--(?:command|init-command)=(.*)", word.text, re.DOTALL)
        if given:  # of `fish`
            return Word(given[1]), None
        if word.text in ("--rcfile", "--init-file", "--emulate"):
            next(rest, None)
        elif re.fullmatch(r"[-+][A-Za-z]*[cCoO][A-Za-z]*", word.text):
            takes_script = takes_script or (word.text[0] == "-" and re.search("[cC]", word.text) is not None)
            for _ in re.findall("[oO]", word.text):  # each takes its own word, even in a cluster: `-co pipefail`
                next(rest, None)
        elif re.fullmatch(r"-[A-Za-z]*s[A-Za-z]*", word.text) and not takes_script:
            return None, None
        elif word.text[:1] not in ("-", "+"):
            return (word, None) if takes_script else (None, word)
    return (Word("", "opaque"), None) if takes_script else (None, None)
