"""A verdict in words, and warnings about rules that look like mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.policy.policy_requests import judge

from surehand.cli.policy import format_verdict
from surehand.core.effects import Connect, RunCommand, WritePath
from surehand.policy.rule_files import find_mistakes
from surehand.policy.rules import Origin, Rule, parse_rule


def rule(verdict: str, text: str, line: int) -> Rule:
    return parse_rule(verdict, text, Origin("user", "config.toml", line))


@pytest.mark.spec("PERM-1")
def test_an_explanation_names_commands_effects_rules_and_what_would_spare_the_question(tmp_path: Path) -> None:
    command = RunCommand(("touch", "a\x1b[2J"), False, implies=(WritePath(str(tmp_path / "a")), Connect("example.com")))
    decision = judge(["ask Edit(b)"], tmp_path, command, tool="Bash")
    commands = [{"name": "touch", "words": list(command.words), "read_only": False, "verdict": "ask"}]
    text = format_verdict({**decision.to_dict(), "commands": commands})
    assert text.startswith("ask: touch")
    assert f"ask    write {tmp_path}/a" in text
    assert "connect example.com" in text
    assert "Bash(touch:*)" in text
    assert "\x1b" not in text


def test_an_explanation_marks_the_rule_that_decided(tmp_path: Path) -> None:
    decision = judge(["deny Bash(make:*)", "allow Bash"], tmp_path, RunCommand(("make",), False), tool="Bash")
    lines = format_verdict({**decision.to_dict(), "commands": []}).splitlines()
    assert "  > deny   Bash(make:*)  (command line)" in lines
    assert "    allow  Bash  (command line)" in lines


def test_rules_that_match_no_tool_or_that_another_one_undoes_are_warned_of_with_their_line() -> None:
    rules = [
        rule("allow", "Gerp", 1),
        rule("allow", "Bash(git push:*)", 2),
        rule("deny", "Bash(git push:*)", 3),
        rule("ask", "Read(src/**)", 4),
        rule("deny", "Read", 5),
        rule("allow", "mcp__unknown", 6),
        rule("allow", "Edit(src/**)", 7),
    ]
    found = find_mistakes(rules, ["Grep", "Bash"])
    assert found == [
        "user, config.toml:1: allow Gerp matches nothing: there is no tool 'Gerp'; did you mean Grep?",
        "user, config.toml:2: allow Bash(git push:*) has no effect: "
        "deny Bash(git push:*) (user, config.toml:3) comes first",
        "user, config.toml:4: ask Read(src/**) has no effect: deny Read (user, config.toml:5) comes first",
    ]
