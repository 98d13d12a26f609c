"""Bash itself is asked: whatever command it runs while a script is evaluated, extraction had found before.

The scripts are made of commands that do not exist; bash reports each one it would have run.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from surehand.core.effects import Unreadable
from surehand.shell import understand

BASH = shutil.which("bash") or ""
pytestmark = pytest.mark.skipif(not BASH, reason="bash is what is asked")

# Ways to run something, plain and sly; ¶ stands for a newline.
_LEAVES = r"""
c0
c1 a
c2 'b c'
c3 "$x"
X=1 c4
command c5
builtin eval c6
eval 'c7 a'
exec c8
c9 <<< a
env c0
nice c1
bash -c 'c2'
c3 2>&1
$(c4)
'c5'
c\6
"c7"
c\¶8
$'c9'
{c0,c1}
x=c2; $x
a() { c3; }; a
(c4)
trap 'c5' EXIT
c6 & wait
! c7
coproc c8
time c9
c0 `c1`
c2 <<EOF¶$(c3)¶EOF¶
c2 <<'EOF'¶$(c3)¶EOF¶
c2 <<EOF¶foo\¶EOF¶c4¶EOF¶
c2 <<"E F"¶ c5¶E F¶c6
c2 <<-EOF¶	x¶	EOF¶c7
c2 <<E\OF¶$(c4)¶EOF¶c5
c1 <<A <<B¶$(c2)¶A¶$(c3)¶B¶c4
printf -v 'a[$(c1)]' x
[[ -v 'a[$(c1)]' ]]
[[ 'a[$(c2)]' -eq 1 ]]
test -v 'a[$(c3)]'
unset 'a[$(c4)]'
read 'a[$(c5)]' <<< x
let 'a[$(c6)]=1'
declare -i z='a[$(c7)]'
echo $((a[$(c8)]))
y='a[$(c9)]'; echo $((y))
y='a[$(c0)]'; [[ y -gt 0 ]]
p='$(c1)'; echo ${p@P}
n=y; echo ${!n}
a=(x); echo ${a[$(c2)]}
echo ${x:$(c3)}
printf %d 'a[$(c4)]'
printf %n 'a[$(c5)]'
wait 'a[$(c6)]'
[ 'a[$(c7)]' -eq 1 ]
test -R 'a[$(c8)]'
mapfile -C c9 -c 1 z <<< x
shift 'a[$(c1)]'
exit 'a[$(c2)]'
return 'a[$(c3)]'
break 'a[$(c4)]'
kill 'a[$(c5)]'
ulimit 'a[$(c6)]'
umask 'a[$(c7)]'
cd 'a[$(c8)]'
echo {$(c9),x}
echo ~$(c1)
case $(c2) in $(c3)) c4;; esac
for i in $(c5); do c6; done
select i in a; do c7; break; done <<< 1
until c9; do break; done
if c1; then c2; else c3; fi
f() { c4; }; f
function f { c5; }; f
echo <(c6)
cat < <(c7)
c8 > >(c9)
x=$(c1)
x=`c2`
x=(a $(c3))
x[$(c4)]=1
export x=$(c5)
local x=$(c6)
(( $(c7) ))
for ((i=$(c8);i<0;i++)); do :; done
[[ $(c9) ]]
[[ x =~ $(c1) ]]
[ $(c2) ]
echo "${x:-$(c3)}"
echo ${x/$(c4)/}
echo ${x#$(c5)}
echo "`c6`"
echo "\`c7\`"
echo `echo \`c8\``
echo "$(c9 "$(c1)")"
hash -p c1 c2; c2
alias c3=c4; c3
c5() { c6; }; c5
set -- c7; "$@"
set c8; $1
x=c9; "$x"
IFS=z; x=c1za; $x
echo a | c2
echo c3 | bash
bash <<< c4
source /dev/stdin <<< c5
. <(echo c6)
enable -n c7
type c8
command -v c9
compgen -C c1
complete -C c2 x
printf '%s' "${x[@]}"
echo ${x[@]@P}
echo "${PS1@P}"
time -p c3
! ! c4
{ c5; } 2>&1
c6 {v}>nowhere
c7 &>nowhere
c8 >&2 | c9
""".strip().split("\n")
_FORMS = r"""
{0}
{0}; {1}
{0} && {1}
{0} || {1}
{0} | {1}
( {0} )
{{ {0}; }}
echo $({0})
echo "$({0})"
if {0}; then {1}; fi
{0}¶{1}
{0} & {1}
for i in 1 2; do {0}; done
f() {{ {0}; }}; f
cat <({0})
x=$({0})
while ! {0}; do break; done
eval '{0}'
{0} #{1}
#{0}¶{1}
echo '{0}'
echo "{0}"
echo \¶{0}
""".strip().split("\n")
_NOISE = [
    *" \t\n;|&(){}$`'\"\\#<>[]=!*~",
    "$(",
    "<<EOF\n",
    "\nEOF\n",
    "&&",
    "${x",
    "))",
    "'$(",
    "\\\n",
    "if ",
    "fi",
    "$x",
    "c1 ",
]

# bash writes line by line: a name with a line feed would be torn apart by what a background command reports.
_PRELUDE = """
command_not_found_handle() { printf '%s\\0' "${1//$'\\n'/$'\\1'}" >> "$REPORT"; return 1; }
ulimit -t 2
eval "$SCRIPT" > /dev/null 2>&1 < /dev/null
"""


def _grown(generator: random.Random, depth: int) -> str:
    if depth == 0:
        return generator.choice(_LEAVES).replace("¶", "\n")
    first, second = _grown(generator, depth - 1), _grown(generator, generator.randint(0, depth - 1))
    return generator.choice(_FORMS).replace("¶", "\n").format(first, second)


def _noisy(script: str, generator: random.Random) -> str:
    for _ in range(generator.choice((0, 0, 1, 2, 4))):
        at = generator.randrange(len(script) + 1)
        script = script[:at] + generator.choice(_NOISE) + script[at + generator.randint(0, 1) :]
    return script


def _run_by_bash(script: str, folder: Path, number: int) -> set[str]:
    """Return the commands that bash tried to run; each script reports to a file of its own."""
    report = folder / str(number)
    report.touch()
    variables = {"PATH": "/nonexistent", "HOME": str(folder), "REPORT": str(report), "SCRIPT": script}
    running = subprocess.Popen(
        [BASH, "--norc", "-c", _PRELUDE], env=variables, cwd=folder, stdin=subprocess.DEVNULL, start_new_session=True
    )
    try:
        running.wait(timeout=5)
    except subprocess.TimeoutExpired:
        pass
    try:
        os.killpg(running.pid, 9)
    except ProcessLookupError:
        pass
    running.wait()
    names = report.read_bytes().replace(b"\1", b"\n").split(b"\0")
    return {name.decode(errors="replace") for name in names if name}


def _ask(count: int, seed: int, folder: Path) -> None:
    generator = random.Random(seed)
    for number in range(count):
        script = _noisy(_grown(generator, generator.randint(0, 3)), generator)
        if "\0" in script or "ulimit" in script:
            continue
        understood = understand(script, str(folder), home=str(folder))
        missed = _run_by_bash(script, folder, number) - {command.words[0] for command in understood.commands}
        if missed:
            assert not understood.read_only, (script, missed)
            assert any(isinstance(effect, Unreadable) for effect in understood.effects), (script, missed)


def test_bash_runs_nothing_that_was_not_found(tmp_path: Path) -> None:
    _ask(200, seed=1, folder=tmp_path)


@pytest.mark.slow
def test_bash_runs_nothing_that_was_not_found_in_ten_thousand_scripts(tmp_path: Path) -> None:
    _ask(10_000, seed=2, folder=tmp_path)


@pytest.mark.parametrize("script", [leaf.replace("¶", "\n") for leaf in _LEAVES])
def test_each_sly_way_to_run_a_command_is_found_or_unreadable(script: str, tmp_path: Path) -> None:
    understood = understand(script, str(tmp_path), home=str(tmp_path))
    missed = _run_by_bash(script, tmp_path, 0) - {command.words[0] for command in understood.commands}
    assert not missed or any(isinstance(effect, Unreadable) for effect in understood.effects)
    assert not missed or not understood.read_only
