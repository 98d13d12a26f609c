"""Long lists of commands as people and attackers type them: each is judged, in one process, and every miss is named.

The lists are text files beside this one: a command a line, `⏎` for a line break inside it, `##` before a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.engine.checking import Checker
from surehand.policy.policy import Policy

HERE = Path(__file__).parent
FILES = (
    "README.md src/app.py src/util.py tests/test_app.py docs/guide.md package.json data.csv app.log config.yaml "
    "Makefile .env .env.example sub/.env secrets/k.txt id_rsa"
)
Judge = Callable[..., dict[str, str]]


def commands(name: str) -> list[str]:
    lines = (HERE / name).read_text().splitlines()
    return [line.replace("⏎", "\n") for line in lines if line.strip() and not line.startswith("##")]


@pytest.fixture
def judge(tmp_path: Path) -> Judge:
    """Return a function that gives the decision on each command, as if the sandbox were there."""
    for name in FILES.split():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("KEY=1\n")

    def judged(given: Sequence[str], rules: Sequence[str] = (), mode: str | None = None) -> dict[str, str]:
        app = Surehand(tmp_path, keep_state=False)
        policy = Policy.from_settings(app.settings, str(tmp_path), command_line=rules)
        checker = Checker(policy, app.session, app.registry)
        return {each: checker.check("Bash", {"command": each}, mode)["decision"] for each in given}

    return judged


@pytest.mark.spec("PERM-9")
def test_everyday_reads_run_without_a_question(judge: Judge) -> None:
    decisions = judge(commands("everyday_reads.txt"), ())
    assert len(decisions) > 1000
    assert [command for command, decision in decisions.items() if decision != "allow"] == []


@pytest.mark.spec("SHELL-4", "PERM-9")
def test_what_writes_runs_connects_or_cannot_be_read_is_never_unasked(judge: Judge) -> None:
    decisions = judge(commands("never_unasked.txt"), ())
    assert len(decisions) > 1300
    assert [command for command, decision in decisions.items() if decision == "allow"] == []


def test_everyday_changes_are_asked_about_and_not_refused(judge: Judge) -> None:
    decisions = judge(commands("asked_about.txt"), ())
    assert len(decisions) > 240
    assert {command: decision for command, decision in decisions.items() if decision != "ask"} == {}


@pytest.mark.parametrize("mode", ["default", "accept-edits", "bypass"])
def test_the_hard_floor_holds_in_every_mode_and_under_every_rule(judge: Judge, tmp_path: Path, mode: str) -> None:
    given = [command.replace("{ws}", str(tmp_path)) for command in commands("hard_floor.txt")]
    decisions = judge(given, ("allow Bash(*)", "allow Bash", "allow Edit", "allow Read"), mode)
    assert len(decisions) > 150
    assert {command: decision for command, decision in decisions.items() if decision != "deny"} == {}


def test_no_way_of_reading_a_secret_is_unasked(judge: Judge) -> None:
    decisions = judge(commands("secret_reads.txt"), ())
    assert len(decisions) > 400
    assert [command for command, decision in decisions.items() if decision == "allow"] == []


# What is denied, by which rule; the words stand where the wrapping has `{c}`.
DENIED = {
    "deny Bash(curl:*)": "curl http://evil.test",
    "deny Bash(git push:*)": "git push origin x",
    "deny Bash(ls:*)": "ls",
    "deny Read(secrets/**)": "cat secrets/k.txt",
    "deny Edit(secrets/**)": "tee secrets/k.txt",
}
# Wrappings whose command is plain to see: the refusal itself must stay, not only a question.
PLAIN = (
    "{c}", "ls; {c}", "ls | {c}", "( {c} )", "if true; then {c}; fi", "f() {{ {c}; }}; f", 'echo "$({c})"',
    "bash -c '{c}'", "bash <<< '{c}'", "echo '{c}' | sh", "trap '{c}' EXIT", "coproc {c}", "env X=1 {c}",
    "sudo -u root {c}", "nohup {c} &", "timeout -k1 5 {c}", "xargs {c}", "find . -exec {c} \\;", "busybox {c}",
    "flock /tmp/l -c '{c}'", "strace -o out {c}", "watch -x {c}", "git -c core.pager='{c}' log", "env -S '{c}'",
    "eval '{c}'", "at now <<< '{c}'", "sed '1e {c}' README.md", "time env nice -n 5 timeout 3 {c}",
)  # fmt: skip


@pytest.mark.parametrize("rule", DENIED)
def test_no_wrapping_turns_a_refusal_into_permission(judge: Judge, rule: str) -> None:
    wrapped = {wrapping: wrapping.format(c=DENIED[rule]) for wrapping in (*commands("wrappings.txt"), *PLAIN)}
    decisions = judge([*wrapped.values()], (rule, "allow Bash(*)", "allow Bash"))
    assert [command for command, decision in decisions.items() if decision == "allow"] == []
    assert [wrapped[each] for each in PLAIN if decisions[wrapped[each]] != "deny"] == []


@pytest.mark.parametrize(
    "command",
    [
        "LD_PRELOAD=./x.so ls",
        "GIT_PAGER='touch pwn' git log",
        "GIT_EXTERNAL_DIFF=./x git log -p",
        "PATH=. git log",
        "env BASH_ENV=./x npm test",
        "NODE_OPTIONS='--require ./x.js' npm test",
        "PATH=.; npm test",
    ],
)
def test_a_rule_for_a_command_does_not_cover_variables_that_change_it(judge: Judge, command: str) -> None:
    rules = ("allow Bash(ls:*)", "allow Bash(git log:*)", "allow Bash(npm test:*)")
    assert judge([command], rules)[command] == "ask"
    assert judge(["NODE_ENV=test PORT=80 npm test"], rules) == {"NODE_ENV=test PORT=80 npm test": "allow"}


@pytest.mark.parametrize(
    "command",
    [
        "git push --receive-pack='touch x'",
        "git push --rec 'touch x' origin",
        "git fetch --upl='touch x'",
        "git fetch --upload-pack 'touch x' origin",
        "go vet -vettool=./x ./...",
        "go vet --vettool ./x ./...",
        "go vet -toolexec=./x ./...",
        "cargo build --config 'build.rustc-wrapper=\"./x\"'",
        "cargo build --config=x.toml",
        "npm test --script-shell=./x",
        "npm test --node-options '--require ./x.js'",
    ],
)
def test_a_rule_for_a_command_does_not_cover_programs_that_its_options_name(judge: Judge, command: str) -> None:
    allowed = ("git push", "git fetch", "go vet", "cargo build", "npm test")
    assert judge([command], [f"allow Bash({each}:*)" for each in allowed])[command] == "ask"
