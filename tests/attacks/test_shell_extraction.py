"""No command of a script is passed over: extraction against the parser's own tree, on generated and mutated scripts."""

from __future__ import annotations

import json
import random
import re
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from surehand.core.effects import RunCommand, Unreadable
from surehand.shell import understand
from surehand.shell.syntax import parser_path

CWD, HOME = "/work/space", "/home/user"


def _names_in_tree(command: str) -> list[str] | None:
    """Return the literal first words of all calls in the tree; written apart from the code under test."""
    done = subprocess.run(
        [parser_path(), "--to-json", "-ln", "bash"],
        input=command.encode(),
        capture_output=True,
        check=False,
        timeout=120,
    )
    if done.returncode:
        return None
    found: list[str] = []

    def visit(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("Type") == "CallExpr" and node.get("Args"):
                parts = node["Args"][0]["Parts"]
                if all(part["Type"] == "Lit" and "\\" not in part.get("Value", "") for part in parts):
                    name = "".join(part.get("Value", "") for part in parts)
                    if re.fullmatch(r"[\w./:+-]+", name):
                        found.append(name)
            for value in node.values():
                visit(value)
        elif isinstance(node, list):
            for value in node:
                visit(value)

    visit(json.loads(done.stdout))
    return found


_LEAVES = r"""
ls
rm x
cat a b
curl http://x
echo $x
X=1 make
y=2
cd src
git log
export A=b
sudo rm q
env A=1 rm w
bash -c 'rm e'
find . -exec rm {} \;
xargs rm
eval 'rm z'
[ -f a ]
let i=1
f
exit
""".strip().splitlines()
# `A` and `B` stand for scripts, made in the same way.
_FORMS = """
( A )
{ A; }
echo $(A)
echo "`echo x`$(A)"
cat <(A)
ls > >(A)
echo ${v:-$(A)}
echo ${v//a/$(A)}
echo ${v:$(A):1}
echo $((1 + $(A)))
w=$(A)
arr=(1 $(A))
arr[$(A)]=1
cat <<EOF@$(A)@EOF@
cat <<-EOF@@$(A)@EOF@
cat <<< $(A)
f() { A; }
function g { A; }
while A; do break; done
until A; do A; done
for i in a b; do A; done
for i in $(A); do B; done
for ((i=$(A); i<1; i++)); do B; done
case x in $(A)) ls;; *) B;; esac
! A
time A
[[ -n $(A) ]]
[[ x =~ $(A) ]]
coproc { A; }
select i in a; do A; done
declare v=$(A)
exit 1; A
(( $(A) ))
let "v=$(A)"
A > $(B)
A; B
A && B
A || B
A | B
A & B
if A; then B; else A; fi
if A; then B; elif B; then A; fi
""".strip().splitlines()


def _grown(generator: random.Random, depth: int) -> str:
    if depth == 0 or generator.random() < 0.2:
        return generator.choice(_LEAVES)
    parts = {"A": _grown(generator, depth - 1), "B": _grown(generator, depth - 1)}
    form = generator.choice(_FORMS)
    return "".join(parts.get(piece, piece) for piece in re.split(r"\b([AB])\b", form)).replace("@", "\n")


def _check(command: str) -> None:
    expected = _names_in_tree(command)
    report = understand(command, CWD, home=HOME)
    if expected is None:
        assert not report.ok
        assert report.error
        assert not report.read_only
        return
    assert report.ok, report.error
    found = [command.words[0] for command in report.commands]
    if any(isinstance(effect, Unreadable) and "nested more than" in effect.reason for effect in report.effects):
        return
    for name in set(expected):
        assert found.count(name) >= expected.count(name), (name, found)
    judged = Counter(effect.words for effect in report.effects if isinstance(effect, RunCommand))
    judged.subtract(command.words for command in report.commands)
    assert min(judged.values(), default=0) >= 0, judged
    # What is judged beside the commands themselves are variables that are set (`d=src`), each on its own.
    assert all(len(words) == 1 and "=" in words[0] for words, count in judged.items() if count), judged


def test_every_command_of_a_generated_script_is_found() -> None:
    generator = random.Random(3)
    for _ in range(250):
        _check(_grown(generator, generator.randint(1, 4)))


@pytest.mark.slow
def test_every_command_of_ten_thousand_generated_scripts_is_found() -> None:
    generator = random.Random(5)
    for _ in range(10_000):
        _check(_grown(generator, generator.randint(1, 5)))


_SEEDS = [
    'for d in src docs; do echo "== $d"; ls "$d" | head -3; done && git log --oneline | wc -l',
    "cat <<'EOF' > out.txt\nsome $(text) here\nEOF\ntest -f out.txt && rm out.txt",
    "if [[ -f a && ! -d b ]]; then sudo -n env X=1 timeout 5 rm -rf a; elif true; then :; fi",
    "find . -name '*.py' -exec sh -c 'echo \"$1\"' _ {} \\; | xargs -0 -n1 grep -l \"x\"",
    'f() { local x=${1:-$(date)}; echo "${x//a/b}" >&2; }; f $((1+2)) "$(cat <(ls))"',
    "case $1 in a|b) echo {1..3};; *) coproc cat;; esac; (cd /tmp && tar xf -) < a.tar 2>>log",
]
_CHARACTERS = [*" \t\n;|&<>(){}[]$`'\"\\!#~*?=+-:/@%^,.0a", "$(", "${", "<<EOF\n", "))", "\r", "\0", "\u200b", "$'"]


def _mutated(generator: random.Random) -> Iterator[str]:
    while True:
        text = list(generator.choice(_SEEDS))
        for _ in range(generator.randint(1, 4)):
            at = generator.randrange(len(text))
            match generator.randrange(3):
                case 0:
                    text.insert(at, generator.choice(_CHARACTERS))
                case 1:
                    del text[at]
                case _:
                    text[at] = generator.choice(_CHARACTERS)
        yield "".join(text)


def _mutations(count: int, seed: int) -> None:
    source = _mutated(random.Random(seed))
    for _ in range(count):
        command = next(source)
        if "\0" not in command:
            _check(command)
        else:
            assert not understand(command, CWD, home=HOME).ok


def test_no_command_of_a_mutated_script_is_passed_over() -> None:
    _mutations(120, seed=7)


@pytest.mark.slow
def test_no_command_of_ten_thousand_mutated_scripts_is_passed_over() -> None:
    _mutations(10_000, seed=11)


@pytest.mark.parametrize(
    "command",
    [
        "echo 'abc",
        'echo "abc $(rm x',
        "ls ;; rm -rf src",
        "ls\0; rm -rf src",
        "if true; then ls",
        "cat <<EOF",
        "echo ${x",
        "((((",
        ")",
        "a" * 1_000_000,
        "ls; " * 300_000,
        "(" * 10_000 + "ls" + ")" * 10_000,
        "$(" * 5_000 + "ls" + ")" * 5_000,
        "\ud800",
    ],
)
def test_what_cannot_be_read_is_a_clear_error_in_bounded_time(command: str) -> None:
    started = time.monotonic()
    report = understand(command, CWD, home=HOME)
    assert time.monotonic() - started < 60  # what hangs, hangs without end
    assert not report.read_only
    if command != "cat <<EOF":
        assert not report.ok
        assert report.error
    assert any(isinstance(effect, Unreadable) for effect in report.effects)


@pytest.mark.parametrize(
    "command",
    [
        "ls; " * 250,
        "(" * 60 + "ls" + ")" * 60,
        "ls " + "$(ls " * 55 + ")" * 55,
        "bash -c " * 1 + "'" + "{ " * 60 + "ls; " + "}; " * 60 + "'",
        "true && " * 300 + "ls",
        "ls | " * 300 + "cat",
        "nice " * 60 + "ls",
        "for a in {1..60}; do for b in {1..60}; do ls; done; done",
    ],
)
def test_beyond_the_limits_nothing_is_read_only(command: str) -> None:
    report = understand(command, CWD, home=HOME)
    assert not report.read_only
    assert any(isinstance(effect, Unreadable) for effect in report.effects)


_UNSEEN = (
    "\r\x0b\x0c\x1b\x7f\x85\x9b\xa0\xad\u034f\u061c\u1680\u180e\u2000\u200b\u200d\u200e\u2028\u202e\u2060\u2066\u2800"
    "\u3000\u3164\ufe0f\ufeff\uffa0\U000e0041\U000e0100"
)


@pytest.mark.parametrize("character", list(_UNSEEN))
@pytest.mark.parametrize("form", ["ls{} -la", "ls {}", "ls '{}'", "{}ls", "cat <<'EOF'\n{}\nEOF"])
def test_a_character_that_cannot_be_seen_is_never_read_only(form: str, character: str) -> None:
    report = understand(form.format(character), CWD, home=HOME)
    assert not report.read_only
    assert any(isinstance(effect, Unreadable) for effect in report.effects)
