"""Options mean what the program makes of them: whether a value follows, whether letters may be joined, what is a word.

A word that a table takes for the value of an option, and the program for a file, would be read or written unjudged.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from surehand.core.effects import ReadPath, RunCommand
from surehand.shell import understand

# Each writes, runs or shows something although its options look like those of a read.
NO_READ = r"""
xxd -ps a out
xxd -is a out
xxd -ac a out
tree -Po x out
tree -Io x out
tree -aLo 2 out
less '-px$oout' a
less -x4oout a
less -xoout a
ps $(echo e)
ps $1
ps 'e f'
ps axo pid,environ
echo e | xargs ps
xargs nice
xargs timeout 5
xargs env LC_ALL=C
xargs -n1 nice -n 5
xargs xargs
xargs command
printenv HOME $(echo X)
jq -n '$ ENV.PATH'
jq -n '$ENV'
git branch --abbrev name
printf '12%ln' PATH
printf '%hhn' PATH
ls {PATH}<a; git status
ls {BASH_ENV}<a
echo x >&²
find . -name *
ss dst x.evil.test
lsof -i @evil.test
getconf -v ../x y
column -n a
bash -o allexport -c ls
export PATH=.
declare -x A=b
declare PATH=.
declare 'a=([$(id)]=1)'
declare a=([x]=1)
local -i x=y
tee out /dev/null
""".strip().splitlines()

READ = r"""
xxd -ps a
xxd -p -l 16 a
xxd -c16 -g 1 a
xxd -plain a
tree -aL 2 src
tree -L2 -I 'node_modules|.git'
tree -P '*.py' --prune
less -N -x4 a
less -p foo a
less -SR a
ps aux
ps -p $$
ps -o pid,cmd --no-headers
ps axo pid,cmd
xargs -n1 nice echo
xargs echo
printenv HOME PATH
jq -e '.env' a.json
jq '.env.PATH' a.json
jq '.ENV' a.json
git branch --abbrev=7
git log --format=%h -U3
git diff -U0 HEAD
git diff --unified=5
git describe --tags --abbrev=0
git show 'HEAD@{10:00}:a'
git commit -h
git log --help
printf '%s: %d%%\n' a 1
ls 2>&1
sed -n -e '/a/{' -e p -e '}' f
sed -e 'a\' -e 'w text' f
export LC_ALL=C; sort a
ls | tee /dev/stderr
ss -tln sport = :80
lsof -i :3000
""".strip().splitlines()


@pytest.mark.parametrize("command", NO_READ)
def test_what_options_hide_is_no_read(command: str) -> None:
    assert not understand(command, "/nonexistent").read_only


@pytest.mark.parametrize("text", ["cat < {.env,}", "cat < {,.env}"])
def test_the_one_file_that_braces_leave_a_redirect_is_read(text: str) -> None:
    assert ReadPath("/nonexistent/.env") in understand(text, "/nonexistent").effects


@pytest.mark.parametrize("command", READ)
def test_options_that_only_read_stay_a_read(command: str) -> None:
    report = understand(command, "/nonexistent")
    assert all(reason == "defines a function" for reason in report.reasons), report.reasons


@pytest.mark.parametrize(
    "command",
    [
        "od --strings secret",
        "xxd -ps secret",
        "git blame --abbrev secret",
        "git diff -U secret",
        "git diff --unified secret",
        "git log -p --min-parents secret",
        "git show 'HEAD@{10:00}:secret'",
        "git show 'HEAD^{/fix: x}:secret'",
        "git show HEAD:secret",
        "who secret",
        "jq -e .a secret",
        "tree -L 1 secret",
        "unknown-program secret/*",
        "cat < secre{t..t}",
        "x='secre?'; cat < $x",
        "x='secre*'; cat $x",
        "echo secret/*",
        "x='secret/*'; echo $x",
        "for f in secret/*; do echo $f; done",
        "cd secret && echo *",
        "list=(secret/*)",
        "basename -a secret/*",
    ],
)
def test_a_file_among_options_is_seen_to_be_read(command: str, tmp_path: Path) -> None:
    if "secret/*" in command or "cd" in command:
        (tmp_path / "secret").mkdir()
    else:
        (tmp_path / "secret").write_text("x")
    effects = understand(command, str(tmp_path)).effects
    every = [*effects, *(each for effect in effects if isinstance(effect, RunCommand) for each in effect.implies)]
    assert any(isinstance(each, ReadPath) and each.path.startswith(f"{tmp_path}/secret") for each in every)


def test_a_quoted_pattern_or_one_without_names_like_options_is_a_read_of_find(tmp_path: Path) -> None:
    assert understand("find . -name '*'", str(tmp_path)).read_only
    assert understand("find . -name *.py", str(tmp_path)).read_only
    (tmp_path / "-delete").write_text("")
    assert not understand("find . -name *.py", str(tmp_path)).read_only
    assert understand("find . -name '*.py'", str(tmp_path)).read_only


@pytest.mark.parametrize(
    "command",
    [
        "grep -R x .",
        "rg -L x",
        "find -L . -name x",
        "find . -follow -name x",
        "rg --follow x",
        "diff -r . .",
        "diff -qr . .",
        "tree -l",
        "du -sL .",
        "ls -RL .",
    ],
)
def test_a_search_through_links_reads_where_they_lead(command: str, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / ".env").symlink_to("src")
    assert not _reads(command, tmp_path) - {str(tmp_path)}
    (tmp_path / "src" / "out").symlink_to("/usr")
    assert _reads(command, tmp_path) - {str(tmp_path)} == {f"{tmp_path}/src/out"}
    assert _reads("grep -r x .", tmp_path) == _reads("find . -name x", tmp_path) == {str(tmp_path)}
    assert _reads("ls -R .", tmp_path) == _reads("tree", tmp_path) == _reads("du .", tmp_path) == {str(tmp_path)}


def _reads(command: str, folder: Path) -> set[str]:
    runs = [each for each in understand(command, str(folder)).effects if isinstance(each, RunCommand)]
    return {each.path for run in runs for each in run.implies if isinstance(each, ReadPath)}
