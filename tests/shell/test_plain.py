"""The fast path reads a command exactly as the full parser does, or leaves it to the full parser."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surehand.shell.scope import Context, Scope
from surehand.shell.syntax import SyntaxFault, parse_full, parse_plain
from surehand.shell.walk import Walk
from surehand.shell.word import Word


def _spaced(text: str) -> list[str]:
    return text.split()


_WORDS = _spaced(r"""
ls -la a.txt git log 'a·b' "c·d" a'b'"c" {} \; *.py src/{a,b} ~/x ~ x=1 [ ] [[ if then ! { } time #x a#b 2 12 let export
--x='y·z' é 'é·ö' a\·b \ '' "" a[1]=2 stash@{0} HEAD^ ^x %1 +x : x: @{u}
""")
_JOINS = _spaced("""
· · · · ·· ·|· | ·&&· && ·||· ;· ; ¶ ¶¶ ·2>&1· ·>/dev/null· ·2>/dev/null >/dev/null 2>&1 ·&>·/dev/null· ·>·/dev/null
;; |& & ·2>·/dev/null·
""")

lines = st.lists(st.tuples(st.sampled_from(_WORDS), st.sampled_from(_JOINS)), min_size=1, max_size=7).map(
    lambda parts: "".join(word + join for word, join in parts).replace("·", " ").replace("¶", "\n")
)


def _found(tree: dict[str, Any], command: str) -> object:
    walk = Walk()
    walk.script(
        tree, command, Scope(("/work/space",), {"HOME": Word("/home/user"), "PWD": Word("/work/space")}), Context()
    )
    return walk.found, walk.redirects, walk.faults, walk.notes, walk.assigned


@settings(max_examples=600, deadline=None, suppress_health_check=list(HealthCheck))
@given(lines)
def test_the_fast_path_agrees_with_the_full_parser(command: str) -> None:
    fast = parse_plain(command)
    if fast is None:
        return
    try:
        full = parse_full(command)
    except SyntaxFault as fault:
        raise AssertionError(f"the fast path accepts what the full parser refuses: {fault}") from fault
    assert _found(fast, command) == _found(full, command)


def test_everyday_lines_take_the_fast_path() -> None:
    for command in (
        "ls -la",
        "git status --short",
        "rg -n 'TODO|FIXME' src | head -20",
        "cat a | sort | uniq -c",
        "find . -name '*.py'",
        "cd src && ls; pwd",
        "ls nothere 2>/dev/null || echo none",
        "npm test 2>&1 | tail -40",
        "find . -name x -exec rm {} \\;",
        'git commit -m "fix: a thing"',
    ):
        assert parse_plain(command) is not None, command


def test_what_needs_the_full_parser_is_left_to_it() -> None:
    for command in (
        "echo $x", "echo `id`", "echo \"$x\"", "echo $(id)", "a=1 ls", "ls > x", "ls &", "if true; then ls; fi", "(ls)",
        "{ ls; }", "! ls", "time ls", "[[ a ]]", "ls # c", "cat <<EOF\nEOF", "ls;;", "ls |", "&& ls", "echo 'abc",
        "r'm' x", "cu\\\nrl x", "12>/dev/null ls", "echo 12>/dev/null", "export a=b", "f() { ls; }", "ls ;; ls",
    ):  # fmt: skip
        assert parse_plain(command) is None, command
