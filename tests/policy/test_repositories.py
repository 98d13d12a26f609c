"""A folder whose own files choose the program that runs is asked about, by whatever way the line gets there."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.policy.policy_requests import judge

from surehand.shell import understand


def verdict(workspace: Path, command: str) -> str:
    return judge([], workspace, *understand(command, str(workspace)).effects, tool="Bash").verdict


@pytest.mark.parametrize(
    "command",
    [
        "git -C sub/repo diff",
        "cd sub/repo && git diff",
        "cd sub && cd repo && git diff",
        "cd sub; cd repo; git status",
        "(cd sub; (cd repo; git log -p))",
        "pushd sub; pushd repo; git blame x",
        "env -C sub/repo git diff",
        "cd sub && env -C repo git diff",
        "cd sub && git -C repo diff",
        "cd sub && bash -c 'cd repo && git diff'",
        "d=sub; cd $d; cd repo; git diff",
        "for d in sub/*; do git -C $d diff; done",
        "git -C sub/rep* diff",
    ],
)
def test_a_repository_that_runs_programs_is_asked_about_wherever_the_line_went(tmp_path: Path, command: str) -> None:
    git = tmp_path / "sub" / "repo" / ".git"
    git.mkdir(parents=True)
    assert verdict(tmp_path, command) == "allow"
    (git / "config").write_text("[diff]\n\texternal = ./x\n")
    assert verdict(tmp_path, command) == "ask"
    assert verdict(tmp_path, "git status") == "allow"


@pytest.mark.parametrize(
    ("name", "harmless", "place", "command"),
    [
        ("rust-toolchain.toml", '[toolchain]\nchannel = "1.80"\n', '[toolchain]\npath = "./x"\n', "cargo --version"),
        ("rust-toolchain", "stable\n", "[toolchain]\npath = './x'\n", "rustc -vV"),
        (".python-version", "3.12\n", "../../x\n", "python3 --version"),
        (".ruby-version", "3.3.0\n", "../x\n", "ruby -v"),
        (".tool-versions", "nodejs 20.1.0\n", "nodejs path:./x\n", "node --version"),
    ],
)
@pytest.mark.parametrize("move", ["", "cd sub && cd deep && "])
def test_a_program_that_a_file_chooses_by_its_path_is_asked_about(
    tmp_path: Path, name: str, harmless: str, place: str, command: str, move: str
) -> None:
    folder = tmp_path / "sub" / "deep"
    folder.mkdir(parents=True)
    pin = (folder if move else tmp_path) / name
    pin.write_text(harmless)
    assert verdict(tmp_path, move + command) == "allow"
    pin.write_text(place)
    assert verdict(tmp_path, move + command) == "ask"
    assert verdict(tmp_path, "ls") == "allow"
