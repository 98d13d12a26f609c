"""What must hold for every composition: a deny is never weakened, a path never leaves the roots unasked."""

from __future__ import annotations

import os
import random
import shlex
from pathlib import Path

import pytest
from tests.policy.policy_requests import request

from surehand.app import Surehand
from surehand.core.effects import ReadPath, RunCommand, WritePath
from surehand.engine.checking import Checker
from surehand.policy.policy import Policy
from surehand.policy.rules import parse_line

QUOTINGS = [
    "rm",
    "'rm'",
    '"rm"',
    "r'm'",
    'r"m"',
    "\\rm",
    "r\\m",
    "''rm",
    "r''m",
    "/bin/rm",
    "/usr/bin/rm",
    "$'rm'",
    "$'\\x72m'",
    "$'\\162\\155'",
    "r\\\nm",
]
WRAPPERS = [
    "{}",
    "sudo {}",
    "sudo -n -u root {}",
    "env {}",
    "env -i A=b {}",
    "nohup {}",
    "nice -n 5 {}",
    "timeout 5 {}",
    "timeout -k 1 5s {}",
    "stdbuf -oL {}",
    "setsid -w {}",
    "time {}",
    "command {}",
    "exec {}",
    "xargs {}",
    "ionice -c 3 {}",
    "A=1 B=2 {}",
    "find . -maxdepth 0 -exec {} ';'",
    "! {}",
    "doas {}",
    "chroot . {}",
    "flock lock {}",
    "strace {}",
    "busybox {}",
]
SHELLS = ["bash -c", "sh -c", "bash -lc", "zsh -c", "eval", "dash -c", "sudo bash -c", "env bash -c", "timeout 5 sh -c"]
OPERATORS = [
    "{}",
    "ls && {}",
    "ls; {}",
    "{} || true",
    "ls | {}",
    "{} & ls",
    "ls\n{}",
    "({})",
    "{{ {}; }}",
    "if true; then {}; fi",
    "while true; do {}; break; done",
    "for i in 1; do {}; done",
    "case a in *) {};; esac",
    "f() {{ {}; }}; f",
    "echo $({})",
    "echo `{}`",
    "cat <({})",
    'echo "$({})"',
    "ls > out && {}",
    "{} > out 2>&1",
    "cd src && {}",
    "trap '{}' EXIT",
    "coproc {}",
    "echo ${{x:-$({})}}",
    "cat <<E\n$({})\nE",
    "[[ -n $({}) ]]",
    "echo $(( $({}) + 1 ))",
    "until {}; do :; done",
    "true && ( ls; {} )",
    "export A=$({})",
]


def composed(chance: random.Random) -> str:
    """Return `rm -rf src` hidden in a random composition. Only a simple command can be handed to a wrapper."""
    command, simple = f"{chance.choice(QUOTINGS)} -rf src", True
    for _ in range(chance.randint(0, 4)):
        kind = chance.choice(["wrapper", "shell", "operator"])
        if kind == "wrapper" and simple:
            command = chance.choice(WRAPPERS).format(command)
            simple = command[0] not in "!A"
        elif kind == "shell":
            command, simple = f"{chance.choice(SHELLS)} {shlex.quote(command)}", True
        else:
            # Back quotes and heredocs of one name do not nest: the inner ones would end the outer.
            fitting = [each for each in OPERATORS if not any(mark in each and mark in command for mark in ("`", "<<E"))]
            shape = chance.choice(fitting).replace("'{}'", "{quoted}")
            command, simple = shape.format(command, quoted=shlex.quote(command)), False
    return command


def check_compositions(workspace: Path, count: int, seed: int) -> None:
    chance = random.Random(seed)
    app = Surehand(workspace, keep_state=False)
    rules = [
        parse_line(line) for line in ("deny Bash(rm:*)", "allow Bash", "allow Bash(*)", "allow Edit", "allow Read")
    ]
    checker = Checker(Policy(rules), app.session, app.registry)
    for _ in range(count):
        command = composed(chance)
        mode = chance.choice(["default", "accept-edits", "bypass", "plan"])
        answer = checker.check("Bash", {"command": command}, mode)
        assert answer["decision"] != "allow", (command, mode, answer["commands"])


@pytest.mark.parametrize("seed", range(2))
def test_no_composition_turns_a_deny_into_an_allow(tmp_path: Path, seed: int) -> None:
    check_compositions(tmp_path, 400, seed)


@pytest.mark.slow
def test_no_composition_of_ten_thousand_turns_a_deny_into_an_allow(tmp_path: Path) -> None:
    check_compositions(tmp_path, 10_000, 20261115)


def tangled(root: Path, chance: random.Random) -> Path:
    """Return a workspace full of folders and of links that lead everywhere."""
    workspace, outside = root / "ws", root / "outside"
    (workspace / "a" / "b").mkdir(parents=True)
    (outside / "c").mkdir(parents=True)
    targets = [
        "..",
        "../..",
        "a",
        "a/b",
        "../outside",
        str(outside),
        str(workspace),
        "/",
        "/etc",
        "l0",
        "loop",
        "a/../..",
    ]
    for number in range(12):
        folder = chance.choice([workspace, workspace / "a", workspace / "a" / "b"])
        link = folder / f"l{number}"
        if not link.is_symlink():
            link.symlink_to(chance.choice(targets))
    (workspace / "loop").symlink_to("loop")
    return workspace


@pytest.mark.parametrize("seed", range(8))
def test_no_path_leaves_the_roots_without_a_question(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    workspace = tangled(tmp_path, chance)
    policy = Policy([parse_line("allow Edit"), parse_line("allow Tool")])
    parts = ["..", ".", "a", "b", "c", "x", "loop", "outside", "ws", "", *(f"l{number}" for number in range(12))]
    inside = os.path.realpath(workspace)
    for _ in range(400):
        path = os.path.join(workspace, *(part for part in chance.choices(parts, k=chance.randint(1, 7))))
        leads_to = os.path.realpath(path)
        for effect in (ReadPath(path), WritePath(path)):
            verdict = policy.judge(request(workspace, effect, read_only=isinstance(effect, ReadPath))).verdict
            if verdict == "allow":
                assert leads_to == inside or leads_to.startswith(inside + "/"), path


@pytest.mark.parametrize("seed", range(4))
def test_adding_a_deny_rule_never_permits_more_and_adding_an_allow_rule_never_lifts_a_deny(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    pool = ["Bash(git:*)", "Bash(git push:*)", "Bash", "Read(src/**)", "Edit(*.py)", "Read", "Edit", "Bash(ls)", "Tool"]
    effects = [
        RunCommand(("git", "push"), False),
        RunCommand(("ls", "-l"), True),
        ReadPath(str(tmp_path / "src" / "a.py")),
        WritePath(str(tmp_path / "src" / "a.py")),
        WritePath("/opt/x"),
    ]
    order = {"allow": 0, "ask": 1, "deny": 2}
    for _ in range(200):
        rules = [parse_line(f"{chance.choice(['allow', 'ask', 'deny'])} {rule}") for rule in chance.sample(pool, 4)]
        asked = request(tmp_path, *chance.sample(effects, 2), tool=chance.choice(["Bash", "Tool"]))
        before = Policy(rules).judge(asked).verdict
        stricter = Policy([*rules, parse_line(f"deny {chance.choice(pool)}")]).judge(asked).verdict
        looser = Policy([*rules, parse_line(f"allow {chance.choice(pool)}")]).judge(asked).verdict
        assert order[stricter] >= order[before]
        assert order[looser] <= order[before]
        assert before != "deny" or looser == "deny"
