"""Small private files: whole or not at all, and nobody else's."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from surehand.state.files import mode_of, write_private, write_private_json


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_private_file_is_for_its_user_alone_whatever_was_there_before(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_text("{}")
    path.chmod(0o644)
    write_private_json(str(path), {"b": "\udcff", "a": [1]})
    assert json.loads(path.read_text()) == {"a": [1], "b": "\udcff"}
    assert mode(path) == 0o600
    assert os.listdir(tmp_path) == ["keys.json"]


def test_a_file_that_a_person_shares_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "surehand.toml"
    assert mode_of(str(path)) == 0o600
    path.touch(0o640)
    path.chmod(0o640)
    write_private(str(path), "[web]\n", mode=mode_of(str(path)))
    assert (path.read_text(), mode(path)) == ("[web]\n", 0o640)


def test_a_write_that_fails_leaves_the_old_file_and_nothing_beside_it(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inside").mkdir(parents=True)
    with pytest.raises(OSError, match="folder"):
        write_private(str(tmp_path / "folder"), b"x")
    (tmp_path / "a").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_private(str(tmp_path / "a"), "\udcff")
    assert (tmp_path / "a").read_text() == "old"
    assert sorted(os.listdir(tmp_path)) == ["a", "folder"]
