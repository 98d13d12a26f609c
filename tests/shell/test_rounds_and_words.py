"""What a second round of a loop sees, what an unquoted expansion may become, and text that only bash would expand."""

from __future__ import annotations

from pathlib import Path

import pytest

from surehand.core.effects import ReadPath, RunCommand, Unreadable
from surehand.shell import ShellReport, understand

CWD, HOME = "/work/space", "/home/user"


def _report(command: str) -> ShellReport:
    return understand(command, CWD, home=HOME)


@pytest.mark.parametrize(
    "command",
    [
        'x=a; while cat "$x"; do read x; done <<< .env',
        'x=a; until cat "$x"; do read x; done < names',
        "x=ls; while $x; do read x; done",
        "x=a; f() { x=.env; }; while cat $x; do f; done",
        "x=a; y=a; f() { y=$x; x=.env; }; while cat $y; do f; done",
        "x=a; for i in $(seq 3); do cat $x; read x; done < names",
        "x=a; for i in *; do cat $x; read x; done < names",
        "x=a; while :; do cat $x; unset x; read x; done",
    ],
)
def test_a_variable_that_a_round_changes_is_not_known_in_the_next(command: str) -> None:
    report = _report(command)
    assert not report.read_only
    assert any(isinstance(effect, Unreadable) for effect in report.effects)


@pytest.mark.parametrize(
    "command",
    ["while cat k; do cd /; done", "for d in $(ls); do cat k; cd s; done", "for i in *; do cat k; cd ..; done"],
)
def test_a_round_may_begin_in_the_directory_the_last_one_ended_in(command: str) -> None:
    assert any(isinstance(effect, Unreadable) for effect in _report(command).effects)


def test_a_loop_that_changes_nothing_is_walked_once() -> None:
    report = _report("x=a; while read -r l; do cat $x; done < names")
    assert report.read_only
    reads = [each for run in report.effects if isinstance(run, RunCommand) for each in run.implies]
    assert reads == [ReadPath("/work/space/a")]


@pytest.mark.parametrize(
    "command",
    [
        "[[ x == @(a|$(touch o)) ]]",
        "[[ x == !(a|`touch o`) ]]",
        "[[ x = *(a|${x:-$(touch o)}) ]]",
        "[[ x != ?(<(touch o)) ]]",
        "case x in +($(touch o)|b)) ls;; esac",
    ],
)
def test_an_expansion_inside_a_pattern_of_alternatives_is_not_passed_over(command: str) -> None:
    assert not _report(command).read_only


@pytest.mark.parametrize("command", ["[[ x == @(a|b) ]]", "[[ $x == +([0-9]) ]]", r'echo "a \`b\` \$(c)"'])
def test_patterns_and_escapes_without_an_expansion_are_reads(command: str) -> None:
    assert _report(command).read_only


@pytest.mark.parametrize(
    "words",
    ["$x", "! $x", "-n $x", "a = $x", "$(cat a)", "`cat a`", '"$@"', '"${a[@]}"', "$*", "*", "-f ?v", "[-]v a"],
)
def test_a_test_of_words_that_may_hold_its_own_option_is_never_a_read(words: str) -> None:
    assert not _report(f"[ {words} ]").read_only
    assert not _report(f"test {words}").read_only


@pytest.mark.parametrize(
    "words",
    [
        '"$x"',
        '-n "$x"',
        '"$x" = y',
        "$? -eq 0",
        "$# -gt 1",
        "${#x} -gt 3",
        "-f *.py",
        "$(wc -l < a) -gt 1",
        '"$(cat a)"',
    ],
)
def test_a_test_of_single_words_and_numbers_is_a_read(words: str) -> None:
    assert _report(f"[ {words} ]").read_only


@pytest.mark.parametrize("command", ["[[ $? -eq 0 ]]", "[[ $# -lt 2 ]]", "(( $# > 1 ))", "echo $(( ${#x} + 1 ))"])
def test_numbers_that_the_shell_counts_are_no_names(command: str) -> None:
    assert _report(command).read_only


@pytest.mark.parametrize(
    "command",
    [
        "[[ $x -eq 0 ]]",
        "(( x > 1 ))",
        "echo $(( $x ))",
        "echo ${x:$y}",
        "[ $(wc -l 2>&1 < a) -gt 1 ]",
        "[[ ${#a[x]} -eq 1 ]]",
    ],
)
def test_values_of_names_are_still_code(command: str) -> None:
    assert not _report(command).read_only


@pytest.mark.parametrize("program", ["sh", "dash", "zsh", "bash", "vim", "nvim"])
@pytest.mark.parametrize("flag", ["-V", "-version"])
def test_a_short_version_flag_of_a_program_that_reads_commands_is_no_read(program: str, flag: str) -> None:
    assert not _report(f"echo 'touch o' | {program} {flag}").read_only


@pytest.mark.parametrize(
    "command",
    [
        "git config core.fsmonitor -- --get",
        "git apply x.patch -- --stat",
        "git apply -p --stat x.patch",
        "git branch --sort --list new",
        "git tag --format --list v1",
        "git branch --format='%(signature)'",
    ],
)
def test_an_option_of_git_counts_only_where_git_takes_it_for_one(command: str) -> None:
    assert not _report(command).read_only


@pytest.mark.parametrize("command", ["ps e", "ps auxe", "ps -o pid e", "ps axo pid e"])
def test_environments_of_processes_are_not_shown_unasked(command: str) -> None:
    assert not _report(command).read_only


@pytest.mark.parametrize("command", ["ps -e", "ps aux", "ps axo etime", "ps -o etime", "ps -ef --sort=etime"])
def test_listings_of_processes_are_reads(command: str) -> None:
    assert _report(command).read_only


@pytest.mark.parametrize(
    "command",
    [
        "env -i git status",
        "env - git diff",
        "env -u GIT_CONFIG_COUNT git status",
        "env -i bash -c 'git diff'",
        "GIT_OPTIONAL_LOCKS=1 git status",
    ],
)
def test_variables_that_keep_git_from_running_programs_are_not_taken_away(command: str) -> None:
    assert not _report(command).read_only


@pytest.mark.parametrize("command", ["env -i ls", "env -u X git status", "GIT_OPTIONAL_LOCKS=0 git status"])
def test_other_variables_may_go(command: str) -> None:
    assert _report(command).read_only


def test_a_name_with_blanks_that_an_unquoted_variable_splits_is_not_foreseen(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    plain = "for f in *.py; do cat $f; done"
    assert understand(plain, str(tmp_path), home=HOME).read_only
    (tmp_path / "x .env y.py").write_text("")
    assert not understand(plain, str(tmp_path), home=HOME).read_only
    assert understand('for f in *.py; do cat "$f"; done', str(tmp_path), home=HOME).read_only


@pytest.mark.parametrize(
    "command", ['for f in *; do [ -f "$f" ] && echo "$f"; done', 'for f in *; do [ "$f" = a ]; done']
)
def test_a_quoted_name_is_one_word_of_a_test(command: str) -> None:
    assert _report(command).read_only


@pytest.mark.parametrize(
    "command", ["for f in *; do [ $f ]; done", "for f in *; do [ \"$f\" 'a[$(touch o)]' ]; done", "[ -f * ]"]
)
def test_a_name_that_may_be_an_option_of_test_is_none(command: str) -> None:
    assert not _report(command).read_only


GLOBBED = [
    "sort *.txt",
    "sed -n 1p *.txt",
    "awk 1 *.txt",
    "jq . *.txt",
    'for f in *.txt; do sort "$f"; done',
    "rg x *.txt",
]


@pytest.mark.parametrize("command", GLOBBED)
def test_a_pattern_is_a_read_where_no_name_could_be_an_option(tmp_path: Path, command: str) -> None:
    (tmp_path / "a.txt").write_text("")
    assert understand(command, str(tmp_path), home=HOME).read_only
    (tmp_path / "-oo.txt").write_text("")
    assert not understand(command, str(tmp_path), home=HOME).read_only


@pytest.mark.parametrize("command", ["cd sub; sort *.txt", 'for f in *.txt; do cd sub; sort "$f"; done'])
def test_names_are_looked_at_where_the_pattern_is_matched(tmp_path: Path, command: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "-oo.txt").write_text("")
    (tmp_path / "sub" / "a.txt").write_text("")
    report = understand(command, str(tmp_path), home=HOME)
    assert any(
        isinstance(each, RunCommand) and each.words[0] == "sort" and not each.read_only for each in report.effects
    )


@pytest.mark.parametrize("command", ["uniq src/*.txt", "uniq *.txt", "xxd ./*", "uniq {a,b}"])
def test_a_pattern_may_name_the_output_file_of_a_filter(command: str) -> None:
    assert not _report(command).read_only
