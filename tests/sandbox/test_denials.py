"""What is said of a command that met the sandbox where there are no mounts, only Landlock."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from surehand.core.settings import SandboxSettings
from surehand.sandbox.denials import explain
from surehand.sandbox.profile import SandboxProfile, closed_profile


@pytest.fixture
def profile(tmp_path: Path) -> SandboxProfile:
    for name in ("ws", "private", "outside"):
        (tmp_path / name).mkdir()
    return closed_profile(str(tmp_path / "ws"), [], SandboxSettings(), str(tmp_path / "private"), private_view=False)


@pytest.mark.parametrize("path", ["{outside}/new", "../outside/new", "{outside}"])
def test_a_write_that_only_the_sandbox_denies_is_put_down_to_it(
    profile: SandboxProfile, tmp_path: Path, path: str
) -> None:
    said = f"touch: cannot touch '{path.format(outside=tmp_path / 'outside')}': Permission denied"
    assert "lets commands write only in" in explain(said, profile, 1)


def test_what_everybody_is_denied_is_not(profile: SandboxProfile) -> None:
    assert explain("bash: ./no.sh: Permission denied", profile, 126) == ""
    assert explain("cat: '/nonexistent/folder/x': Permission denied", profile, 1) == ""
    if os.geteuid() != 0:
        assert explain("touch: cannot touch '/etc/x': Permission denied", profile, 1) == ""


def test_with_mounts_a_write_is_denied_in_other_words(profile: SandboxProfile, tmp_path: Path) -> None:
    said = f"touch: cannot touch '{tmp_path}/outside/new': Permission denied"
    assert explain(said, replace(profile, private_view=True), 1) == ""


def test_an_exception_of_python_is_no_want_of_network(profile: SandboxProfile) -> None:
    assert explain("FileNotFoundError: [Errno 2] No such file or directory: 'x.txt'", profile, 1) == ""
    assert explain("ModuleNotFoundError: No module named 'x'", profile, 1) == ""
    assert "no network" in explain("npm error code ENOTFOUND", profile, 1)


def test_a_file_made_where_commands_see_nothing_is_put_down_to_it(profile: SandboxProfile, tmp_path: Path) -> None:
    said = f"bash: {tmp_path}/outside/new: No such file or directory"
    assert f"{tmp_path}/outside/new is none of these" in explain(said, profile, 1)


def test_a_name_that_holds_the_name_of_a_program_is_none(profile: SandboxProfile) -> None:
    assert explain("cat: /srv/mounted/x: Permission denied", profile, 1) == ""
    assert "mounts" in explain("mount: /mnt: permission denied.", profile, 32)
