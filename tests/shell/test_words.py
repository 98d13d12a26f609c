"""Words are decoded as bash decodes them: asked of bash itself."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from surehand.shell import understand

BASH = shutil.which("bash") or ""
HOME = "/home/some one"
pytestmark = pytest.mark.skipif(not BASH, reason="bash is what is asked")


def _bash_words(texts: list[str]) -> list[list[str] | None]:
    """Return the words bash makes of each text (all in one process), `None` where it refuses."""
    script = "cd /; set -f\n"  # what a glob finds is no matter of decoding
    for text in texts:
        quoted = "'" + f"printf '%s\\0' x {text}".replace("'", "'\\''") + "'"
        script += f"eval {quoted} 2>/dev/null || printf 'REFUSED\\0'; printf 'END\\0'\n"
    done = subprocess.run(
        [BASH, "--norc", "-c", script],
        capture_output=True,
        env={"HOME": HOME, "LC_ALL": "C.UTF-8", "PWD": "/"},
        check=False,
    )
    answers: list[list[str] | None] = []
    current: list[str] = []
    for word in done.stdout.split(b"\0")[:-1]:
        if word == b"END":
            answers.append(None if "REFUSED" in current or not current else current[1:])
            current = []
        else:
            current.append(word.decode("utf-8", "surrogateescape"))
    return answers


def _our_words(text: str) -> list[str] | None:
    """Return the words we say it has, `None` where we say that they cannot be known."""
    report = understand(f"printf '%s\\0' x {text}", "/", home=HOME)
    if not report.ok or len(report.commands) != 1 or not report.commands[0].literal:
        return None
    return list(report.commands[0].words[3:])


EXACT = [
    "a'b'\"c\"d",
    r"a\ b \' \" \\ \$x",
    r"'a\b'",
    r'"a\b\$\`\"\\"',
    r"$'a\tb\n\x41\101\u00e9\e[0m\'\"'",
    r"$'a\0b'c",
    r"$'\cA\q'",
    '$"hi"',
    "~ ~/x '~' \\~ a~ ~/'x y'",
    "a=~ a=~/b --a=~ 'a'=~ a:~",
    '"$HOME" "$HOME"/x "${HOME}"',
    "{a,b} x{a,b}y {a,b}{c,d} {a,{b,c}}d",
    "{1..5} {5..1} {01..03} {a..e} {1..10..3} {a..e..2} {-2..2}",
    "{a} {} {a,b {,a} {a,} a{,}b",
    "{,a} {a,,b} {,} x{,}",
    "{'',a} {,}''",
    "'{a,b}' \\{a,b} {a,'b c'} {'a,b',c} {a\\,b,c}",
    "stash@{0} HEAD^{tree} @{u} a{b}c {a..} {..b} {1..}",
    "$((1+2*3)) $((1<<4)) $((0xff & 15)) $((2**10)) $((7/-2)) $((-7%3)) $((010)) $((1>2)) $((!3)) $((~0))",
    "$(( (1+2)*3 )) $((5,6)) $((1&&0)) $((0||2))",
    "a\\\nb 'c\nd'",
    "''  \"\" a''b",
    "#a a#b '#c'",
    "a;",
    "\\;",
    "!a a! '!'",
    "*nothing-matches-this* [zq]nothing",
    "é 日本 'ö ä'",
    "--a='b c' -x\"y z\"",
]


@pytest.mark.parametrize("text", EXACT)
def test_a_word_is_decoded_as_bash_does(text: str) -> None:
    ours = _our_words(text)
    if ours is not None:
        assert ours == _bash_words([text])[0]


def test_most_hard_words_are_certain() -> None:
    uncertain = [text for text in EXACT if _our_words(text) is None]
    assert uncertain == ["{a} {} {a,b {,a} {a,} a{,}b", "stash@{0} HEAD^{tree} @{u} a{b}c {a..} {..b} {1..}"]


_PLAIN_PIECES = r"""
a b - = : ~ / , { } .. 1 9 0 ' " \ · $ $HOME * ? [ ] $' \n \x41 ! ^ @ % + . é $((1+1)) 'a·b' "c·d" {a,b} {1..3} ~/ $x
"""
_PIECES = st.sampled_from([piece.replace("·", " ") for piece in _PLAIN_PIECES.split()])


@settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(_PIECES, min_size=1, max_size=8).map("".join), min_size=40, max_size=40))
def test_random_words_are_decoded_as_bash_does_or_called_uncertain(texts: list[str]) -> None:
    for text, theirs in zip(texts, _bash_words(texts), strict=True):
        ours = _our_words(text)
        if ours is not None:
            assert ours == theirs, text


@pytest.mark.parametrize(
    "text", ["{a," * 10_000 + "b" + "}" * 10_000, "{a,b}" * 10_000, "{" * 30_000, "{a,{b}" * 9_000]
)
def test_a_word_of_very_many_braces_is_unreadable_at_once(text: str) -> None:
    began = time.process_time()
    assert not understand(f"rm {text}", "/", home=HOME).read_only
    assert time.process_time() - began < 60  # what hangs, hangs without end
