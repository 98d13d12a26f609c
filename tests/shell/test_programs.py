"""The records of programs: their examples are judged by the policy, and a new one is a change of one place."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import pytest
from tests.shell.verdicts import make_workspace

from surehand import Surehand
from surehand.engine.checking import Checker
from surehand.policy.policy import Policy
from surehand.policy.projects import heeds_a_project
from surehand.shell.programs import FAMILIES, PROGRAMS, load_families
from surehand.shell.programs.record import Program

Judge = Callable[[str], str]
RECORDS: list[Program] = [
    program for family in FAMILIES for program in import_module(f"surehand.shell.programs.{family}").PROGRAMS
]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judge:
    """Return a function that tells what the policy decides about a command, in a workspace with a few files."""
    for name in ("HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "")
    monkeypatch.chdir(tmp_path)
    app = Surehand(make_workspace(tmp_path), keep_state=False)
    checker = Checker(Policy.from_settings(app.settings, str(tmp_path / "ws")), app.session, app.registry)

    def decide(command: str) -> str:
        return checker.check("Bash", {"command": command})["decision"]

    return decide


def test_every_example_of_a_record_is_judged_as_the_record_says(judge: Judge) -> None:
    examples = [(each, "allow") for program in RECORDS for each in program.runs]
    examples += [(each, "ask") for program in RECORDS for each in program.asks]
    assert len(examples) > 900
    assert [(each, expected) for each, expected in examples if judge(each) != expected] == []


def test_every_example_calls_the_program_of_its_record() -> None:
    for program in RECORDS:
        for example in (*program.runs, *program.asks):
            assert example.split()[0] in (program.name, *program.aliases), example


def test_every_record_of_a_program_that_may_read_has_an_example_that_runs_and_every_other_one_that_asks() -> None:
    reading = [each for each in RECORDS if each.reads or each.forms or each.exact or each.version]
    assert [each.name for each in reading if not each.runs] == []
    assert [each.name for each in RECORDS if not each.runs and not each.asks] == []


def test_what_is_known_of_the_files_a_program_obeys_is_known_to_the_judgement() -> None:
    obeying = [name for each in RECORDS if each.obeys_folder for name in (each.name, *each.aliases)]
    assert [name for name in obeying if not heeds_a_project(name)] == []


def test_a_name_has_one_record() -> None:
    load_families()
    names = [name for program in RECORDS for name in (program.name, *program.aliases)]
    assert len(names) == len(set(names)) == len(PROGRAMS)


def test_adding_a_read_only_program_is_one_record(judge: Judge, monkeypatch: pytest.MonkeyPatch) -> None:
    assert judge("wordfreq -n 5 a.txt") == "ask"
    wordfreq = Program("wordfreq", kind="read", reads="-i -n: --top: @read", exit_1_means_no=True)
    monkeypatch.setitem(PROGRAMS, "wordfreq", wordfreq)
    assert judge("wordfreq -n 5 a.txt") == "allow"
    assert judge("wordfreq --top=5 a.txt | head -3") == "allow"
    assert judge("wordfreq --output=out a.txt") == "ask"
    assert judge("wordfreq .env") == "deny"
    assert judge("wordfreq /etc/passwd") == "ask"
