"""Where rules come from, and that each is found again at its place."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.policy.policy_requests import request

from surehand import config
from surehand.core.effects import RunCommand
from surehand.core.errors import RuleError
from surehand.core.settings import PermissionSettings, RuleSettings, Settings
from surehand.policy.policy import Policy
from surehand.policy.rule_files import example_matches, remember
from surehand.policy.rules import parse_line
from surehand.state import locations


def user_file(text: str) -> Path:
    path = Path(locations.user_settings())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_rules_of_the_user_carry_file_and_line_and_those_of_the_environment_their_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = user_file('[permissions]\nallow = ["Bash(make:*)"]\n\n[[permissions.rules]]\nask = "Bash(git push:*)"\n')
    monkeypatch.setenv("SUREHAND_PERMISSIONS__DENY", '["Bash(curl:*)"]')
    found = Policy.from_settings(config.load(str(tmp_path)).settings, str(tmp_path), command_line=["allow Bash(ls:*)"])
    origins = {rule.text: str(rule.origin) for rule in found.own_rules}
    assert origins == {
        "Bash(ls:*)": "command line",
        "Bash(make:*)": f"user, {path}:2",
        "Bash(git push:*)": f"user, {path}:5",
        "Bash(curl:*)": "user",
    }


def test_what_was_remembered_holds_in_the_next_process(tmp_path: Path) -> None:
    remember("Bash(git commit:*)")
    found = Policy.from_settings(config.load(str(tmp_path)).settings, str(tmp_path))
    commit = RunCommand(("git", "commit", "-m", "x"), False)
    assert found.judge(request(tmp_path, commit, tool="Bash")).verdict == "allow"


def test_settings_given_in_python_are_rules_too(tmp_path: Path) -> None:
    rows = (
        RuleSettings(allow=("Bash(make:*)", "Bash(npm test:*)"), reason="builds", match=("make all",)),
        RuleSettings(deny="Bash(curl:*)", not_match=("ls",)),
    )
    found = Policy.from_settings(Settings(permissions=PermissionSettings(rules=rows)), str(tmp_path))
    assert [(rule.verdict, rule.text, rule.reason) for rule in found.own_rules] == [
        ("allow", "Bash(make:*)", "builds"),
        ("allow", "Bash(npm test:*)", "builds"),
        ("deny", "Bash(curl:*)", ""),
    ]


@pytest.mark.parametrize(
    "row", [RuleSettings(), RuleSettings(allow="A", deny="B"), RuleSettings(allow="Bash(make)", match=("make all",))]
)
def test_a_wrong_rule_in_the_settings_is_refused(tmp_path: Path, row: RuleSettings) -> None:
    with pytest.raises(RuleError):
        Policy.from_settings(Settings(permissions=PermissionSettings(rules=(row,))), str(tmp_path))


def test_a_settings_file_that_links_into_the_workspace_is_refused(tmp_path: Path) -> None:
    path = Path(locations.user_settings())
    path.parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "mine.toml").write_text('[permissions]\nallow = ["Bash"]\n')
    path.symlink_to(tmp_path / "mine.toml")
    settings = config.load(str(tmp_path)).settings
    with pytest.raises(RuleError, match="link into the workspace"):
        Policy.from_settings(settings, str(tmp_path))
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert len(Policy.from_settings(settings, str(elsewhere)).own_rules) == 1


@pytest.mark.parametrize(
    ("rule", "example", "matches"),
    [
        ("deny WebFetch(domain:*.example.com)", "https://a.example.com:8080/x", True),
        ("deny WebFetch(domain:example.com)", "example.com.evil.test", False),
        ("deny Agent(rev*)", "reviewer", True),
        ("deny fs.*", "fs.read_file", True),
        ("deny mcp__github", "mcp__github__create", True),
        ("deny Grep(secrets/**)", "secrets/a", True),
        ("allow Edit(./src/**)", "src/a.py", True),
        ("deny Bash(rm:*)", "ls && sudo rm -rf x", True),
        ("allow Bash(ls:*)", "sudo ls", True),
        ("deny Read(~/.config/**)", "~/.config/x", True),
    ],
)
def test_examples_are_judged_after_the_kind_of_their_rule(rule: str, example: str, matches: bool) -> None:
    assert example_matches(parse_line(rule), example) is matches
