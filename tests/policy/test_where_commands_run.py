"""A rule that allows a command allows it in the folders of the session, with the words it was written with."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.policy.policy_requests import judge

from surehand.shell import understand

RULES = ["allow Bash(npm test:*)", "allow Bash(git log:*)"]


def verdict(workspace: Path, command: str) -> str:
    return judge(RULES, workspace, *understand(command, str(workspace)).effects, tool="Bash").verdict


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("npm test", "allow"),
        ("cd src && npm test", "allow"),
        ("(cd src; npm test)", "allow"),
        ('cd "$PWD/src" && npm test', "allow"),
        ("cd .. && npm test", "ask"),
        ("cd /usr; npm test", "ask"),
        ("env -C /usr npm test", "ask"),
        ("pushd /usr && npm test", "ask"),
        ("cd out && npm test", "ask"),
        ('cd "$X" && npm test', "ask"),
        ("for d in src /usr; do (cd $d && npm test); done", "ask"),
    ],
)
def test_a_rule_for_a_command_holds_inside_the_roots(tmp_path: Path, command: str, expected: str) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "out").symlink_to("/usr")
    assert verdict(tmp_path, command) == expected


def test_a_rule_for_a_command_does_not_cover_options_that_a_pattern_finds(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert verdict(tmp_path, "git log --stat --ext-diff *") == "allow"
    (tmp_path / "--output=x").touch()
    assert verdict(tmp_path, "git log --stat --ext-diff *") == "ask"
    assert verdict(tmp_path, "git log --stat --ext-diff ./*") == "allow"
