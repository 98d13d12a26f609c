"""Scripts of `sed` and `awk` that are called reads, held against the programs themselves."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path

import pytest

from surehand.shell.programs.sed_and_awk import awk_reads_only, sed_reads_only

SED_PIECES = (
    "w o¦e id¦r x¦W o¦R x¦s/a/b/w o¦s/a/b/e¦p¦d¦b¦t¦T¦:a¦b a¦ba¦a¦i¦c¦a\\¦i\\¦a foo¦i\\x¦{¦}¦;¦\n¦ ¦\t¦#¦#c¦1¦$¦/x/¦"
    "\\,x,¦!¦s/¦/¦\\¦[¦]¦y/a/b/¦q¦q5¦l¦=¦n¦N¦w¦e¦a\\\n¦\\\n¦1,2¦~2¦+1¦I¦M¦g¦s,a,b,¦foo¦F¦z¦0¦s/[/]/x/¦v¦Q"
)
AWK_PIECES = (
    'print "y" > "o"¦print 1 > "o"¦print > "o"¦printf "a" >> "o"¦print 1,¦print (1)¦x¦=¦/#/¦/x/¦/¦#¦"¦"a"¦(¦)¦[¦]¦{¦}¦'
    ';¦\n¦ ¦\\\n¦\\ \n¦\\¦if (1)¦else¦x++¦--¦+¦-¦*¦length¦?¦:¦~¦!¦$1¦1¦&&¦||¦<¦>¦/(/¦/)/¦exit¦return¦print¦> "o"¦'
    'in¦do¦while (0)¦for (;0;)¦x /¦/ 2¦"/"¦/"/¦/[/]/¦/\\//¦,'
)


def _made(pieces: str, rounds: int, seed: int, most: int) -> list[str]:
    chance = random.Random(seed)
    choices = pieces.split("¦")
    return ["".join(chance.choice(choices) for _ in range(chance.randint(1, most))) for _ in range(rounds)]


def _takes_sandbox() -> bool:
    sed_path = shutil.which("sed")
    return (
        bool(sed_path) and subprocess.run(["sed", "--sandbox", "p", "/dev/null"], capture_output=True).returncode == 0
    )


@pytest.mark.skipif(not _takes_sandbox(), reason="needs the sed that can refuse to write and run")
def test_no_sed_script_called_a_read_writes_or_runs_anything_to_sed_itself() -> None:
    called_reads = [script for script in _made(SED_PIECES, 3000, 11, 7) if sed_reads_only(script)]
    assert len(called_reads) > 150
    for script in called_reads:
        done = subprocess.run(["sed", "--sandbox", "-n", "--", script], input=b"", capture_output=True)
        assert b"sandbox" not in done.stderr, repr(script)


@pytest.mark.skipif(shutil.which("mawk") is None, reason="needs mawk")
def test_no_awk_program_called_a_read_writes_when_mawk_runs_it(tmp_path: Path) -> None:
    programs = [f"BEGIN {{{body}}}" for body in _made(AWK_PIECES, 40_000, 5, 9)]
    called_reads = [program for program in programs if '"o"' in program and awk_reads_only(program)]
    assert len(called_reads) > 200
    for program in called_reads[:250]:
        limited = ["timeout", "1", "mawk", "--", program]
        subprocess.run(limited, cwd=tmp_path, stdin=subprocess.DEVNULL, capture_output=True)
        assert not (tmp_path / "o").exists(), repr(program)


@pytest.mark.parametrize(
    "script", [":a w o", "b end w o", "b # w o", "b\nw o", "ta w o", "a\nw o", "i \nw o", ":a# w o", ":a e id"]
)
def test_a_label_or_a_text_hides_no_command_that_follows_it(script: str) -> None:
    assert not sed_reads_only(script)


@pytest.mark.parametrize(
    "script", [":a;N;$!ba;s/\\n/,/g", "/x/{s/a/b/;ta;q};:a\np", "1i\\header", "$a end", "a\\\nx\np"]
)
def test_labels_and_texts_of_everyday_scripts_are_reads(script: str) -> None:
    assert sed_reads_only(script)


@pytest.mark.parametrize(
    "program",
    [
        '{x = /#/; print > "o"}',
        '{exit /#/; print > "o"}',
        '{if (1) /#/; print > "o"}',
        "{if (1) /(/; print > o /)/}",
        '{length /#/; print > "o"}',
        '{a[/#/]; print > "o"}',
        '{print 1 ?\n2 : 3 > "o"}',
        '{print 1 \\ \n> "o"}',
        '{print 1 \\ # c\n> "o"}',
        "BEGIN {for (k in ENVIRON) print ENVIRON[k]}",
    ],
)
def test_a_slash_or_a_line_end_that_reads_in_two_ways_hides_no_output_file(program: str) -> None:
    assert not awk_reads_only(program)


@pytest.mark.parametrize(
    "program",
    ["{print $1/$2}", "{print ($1+$2)/2}", '{print "a/b", $1}', "$1 ~ /x/ {n++} END {print n/NR}", "{x /= 2; print x}"],
)
def test_divisions_and_patterns_of_everyday_programs_are_reads(program: str) -> None:
    assert awk_reads_only(program)
