"""Trust: what a folder brings counts once the user trusts exactly that, and only to narrow."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from policy_requests import request

from surehand.core.effects import RunCommand
from surehand.core.errors import RuleError, StateError
from surehand.core.settings import Settings
from surehand.policy import trust
from surehand.policy.policy import Policy


def test_a_folder_with_nothing_of_its_own_has_nothing_to_trust(tmp_path: Path) -> None:
    assert trust.state_of(str(tmp_path)).state == "nothing"
    assert not trust.is_trusted(str(tmp_path))


@pytest.mark.parametrize("name", ["surehand.toml", ".mcp.json", ".surehand/tools/x.py", ".surehand/agents/a.md"])
def test_a_change_in_any_file_that_counts_asks_again(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("a")
    assert trust.state_of(str(tmp_path)).state == "untrusted"
    assert trust.give(str(tmp_path)).state == "trusted"
    assert trust.is_trusted(str(tmp_path))
    status = os.stat(file)
    file.write_text("b")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    now = trust.state_of(str(tmp_path))
    assert (now.state, now.changed) == ("changed", (name,))
    trust.give(str(tmp_path))
    file.unlink()
    assert not trust.is_trusted(str(tmp_path))


def test_a_file_that_appears_later_asks_again(tmp_path: Path) -> None:
    trust.give(str(tmp_path))
    assert trust.is_trusted(str(tmp_path))
    (tmp_path / ".mcp.json").write_text("{}")
    assert trust.state_of(str(tmp_path)).changed == (".mcp.json",)


def test_a_link_is_trusted_by_where_it_leads(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("same")
    (tmp_path / "b").write_text("same")
    folder = tmp_path / ".surehand"
    folder.mkdir()
    (folder / "x.py").symlink_to(tmp_path / "a")
    trust.give(str(tmp_path))
    (folder / "x.py").unlink()
    (folder / "x.py").symlink_to(tmp_path / "b")
    assert not trust.is_trusted(str(tmp_path))


def test_trust_is_for_one_folder_and_not_for_those_inside_it(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "surehand.toml").write_text("")
    trust.give(str(tmp_path))
    assert not trust.is_trusted(str(inner))


def test_trust_can_be_taken_back_and_is_kept_outside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "surehand.toml").write_text("")
    trust.give(str(tmp_path))
    assert trust.trusted_folders() == [str(tmp_path)]
    assert sorted(os.listdir(tmp_path)) == ["surehand.toml"]
    assert trust.take(str(tmp_path))
    assert not trust.take(str(tmp_path))
    assert not trust.is_trusted(str(tmp_path))


def test_a_broken_store_trusts_nothing(tmp_path: Path) -> None:
    trust.give(str(tmp_path))
    store = Path(os.environ["SUREHAND_HOME"]) / "trust.json"
    store.write_text("{")
    with pytest.raises(StateError, match="nothing is trusted"):
        trust.is_trusted(str(tmp_path))


def test_a_projects_rules_narrow_always_and_widen_never(tmp_path: Path) -> None:
    (tmp_path / "surehand.toml").write_text(
        '[permissions]\nallow = ["Bash(make:*)"]\ndeny = ["Bash(curl:*)"]\n'
        '[[permissions.rules]]\nallow = "Bash(touch:*)"\n[[permissions.rules]]\nask = "Bash(ls:*)"\n'
    )
    for trusted in (False, True):
        if trusted:
            trust.give(str(tmp_path))
        found = Policy.from_settings(Settings(), str(tmp_path))

        def judged(*words: str, read_only: bool = False, found: Policy = found) -> str:
            return found.judge(request(tmp_path, RunCommand(words, read_only), tool="Bash")).verdict

        assert judged("make") == "ask"
        assert judged("touch", "x") == "ask"
        assert judged("curl", "x") == "deny"
        assert judged("ls", read_only=True) == "ask"


def test_a_projects_rule_is_reported_with_its_file_and_line(tmp_path: Path) -> None:
    file = tmp_path / "surehand.toml"
    file.write_text('[permissions]\ndeny = [\n    "Bash(curl:*)",\n]\n')
    found = Policy.from_settings(Settings(), str(tmp_path))
    decision = found.judge(request(tmp_path, RunCommand(("curl",), False), tool="Bash"))
    assert decision.rules[0].to_dict() == {
        "verdict": "deny",
        "rule": "Bash(curl:*)",
        "source": "project",
        "file": str(file),
        "line": 3,
        "decided": True,
    }


def test_a_project_file_that_is_a_link_or_wrong_closes_the_door(tmp_path: Path) -> None:
    (tmp_path / "other.toml").write_text("")
    (tmp_path / "surehand.toml").symlink_to(tmp_path / "other.toml")
    with pytest.raises(RuleError, match="is a link"):
        Policy.from_settings(Settings(), str(tmp_path))
    (tmp_path / "surehand.toml").unlink()
    (tmp_path / "surehand.toml").write_text('[permissions]\ndeny = ["Bash("]\n')
    with pytest.raises(RuleError, match=r"surehand.toml:2: the rule 'Bash\('"):
        Policy.from_settings(Settings(), str(tmp_path))
