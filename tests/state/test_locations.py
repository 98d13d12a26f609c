"""Where state and settings lie: places a folder cannot bring along."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.core.errors import SettingsError
from surehand.state import locations

linux = pytest.mark.skipif(sys.platform == "darwin", reason="the XDG folders are Linux's")


@pytest.mark.parametrize("chosen", ["state", "./state", "../state", "~nobody-of-that-name/state"])
def test_a_relative_home_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.setenv("SUREHAND_HOME", chosen)
    monkeypatch.chdir(tmp_path)
    for ask in (locations.home, locations.user_settings, lambda: locations.workspace_state("/")):
        with pytest.raises(SettingsError, match="SUREHAND_HOME must be an absolute path"):
            ask()
    with pytest.raises(SettingsError):
        Surehand(tmp_path)
    assert os.listdir(tmp_path) == []


def test_a_folder_cannot_bring_its_own_rules_through_a_relative_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine" / "surehand").mkdir(parents=True)
    (tmp_path / "mine" / "surehand" / "config.toml").write_text("[permissions]\nallow = ['Bash']\n")
    monkeypatch.delenv("SUREHAND_HOME")
    monkeypatch.setenv("XDG_CONFIG_HOME", "mine")
    monkeypatch.chdir(tmp_path)
    assert Surehand(tmp_path, keep_state=False).settings.permissions.allow == ()


def test_a_home_may_be_written_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUREHAND_HOME", "~/a/../b")
    assert locations.home() == os.path.join(os.environ["HOME"], "b")


@linux
@pytest.mark.parametrize("chosen", ["", "relative"])
def test_relative_folders_of_the_standard_are_ignored(monkeypatch: pytest.MonkeyPatch, chosen: str) -> None:
    monkeypatch.delenv("SUREHAND_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", chosen)
    monkeypatch.setenv("XDG_CONFIG_HOME", chosen)
    assert locations.home() == os.path.join(os.environ["HOME"], ".local/state/surehand")
    assert locations.user_settings() == os.path.join(os.environ["HOME"], ".config/surehand/config.toml")


@linux
def test_absolute_folders_of_the_standard_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUREHAND_HOME")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    assert locations.home() == str(tmp_path / "state" / "surehand")
    assert locations.user_settings() == str(tmp_path / "config" / "surehand" / "config.toml")


@pytest.mark.parametrize("said", [None, "", "relative"])
def test_without_a_home_folder_in_the_environment_the_users_own_is_taken(
    monkeypatch: pytest.MonkeyPatch, said: str | None
) -> None:
    for variable in ("SUREHAND_HOME", "HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    if said is not None:
        monkeypatch.setenv("HOME", said)
    assert locations.home().startswith(pwd.getpwuid(os.getuid()).pw_dir)
