"""The hard floor holds in every mode, under every allow rule, however the thing is named."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.policy.policy_requests import judge, verdict

from surehand import Surehand
from surehand.core.effects import DeletePath, ReadPath, RunCommand, WritePath
from surehand.engine.checking import Checker
from surehand.policy.policy import Policy
from surehand.state import locations

ALLOW = ["allow Bash", "allow Bash(*)", "allow Edit", "allow Read", "allow Tool"]
MODES = ["default", "accept-edits", "bypass"]


@pytest.fixture(params=MODES)
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize(
    "path",
    [
        "{ws}/.git/config",
        "{ws}/.git",
        "{ws}/sub/.GIT/hooks/pre-commit",
        "{ws}/.g\u200cit/config",
        "{ws}/.surehand/tools/x.py",
        "{ws}/.Surehand/Settings.json",
        "{ws}/surehand.toml",
        "{ws}/a/../.git/config",
        "{home}/.bashrc",
        "{home}/.zshenv",
        "{home}/.profile",
        "{home}/.config/fish/config.fish",
        "{home}/.ssh/authorized_keys",
        "{state}/trust.json",
        "{state}/config.toml",
        "/etc/profile.d/x.sh",
        "/dev/sda",
        "/dev/nvme0n1p1",
        "/dev/mem",
    ],
)
def test_the_floor_forbids_writing_and_deleting(tmp_path: Path, path: str, mode: str) -> None:
    state = os.environ["SUREHAND_HOME"]
    path = path.replace("{ws}", str(tmp_path)).replace("{home}", os.environ["HOME"]).replace("{state}", state)
    for effect in (WritePath(path), DeletePath(path)):
        decision = judge(ALLOW, tmp_path, effect, mode=mode)
        assert decision.verdict == "deny"
        assert decision.reason.startswith("hard floor")


def test_the_floor_holds_for_a_link_that_leads_there(tmp_path: Path, mode: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "innocent").symlink_to(tmp_path / ".git")
    assert verdict(ALLOW, tmp_path, WritePath(str(tmp_path / "innocent" / "config")), mode=mode) == "deny"


def test_ssh_keys_are_not_even_read(tmp_path: Path, mode: str) -> None:
    effect = ReadPath(str(Path(os.environ["HOME"]) / ".ssh" / "id_rsa"))
    assert verdict([*ALLOW, "allow Read(~/.ssh/**)"], tmp_path, effect, mode=mode, read_only=True) == "deny"


@pytest.mark.parametrize(
    "words",
    [
        ("rm", "-rf", "/"),
        ("rm", "-rf", "--no-preserve-root", "/"),
        ("rm", "-rf", "/*"),
        ("rm", "-rf", "~"),
        ("rm", "-rf", "~/"),
        ("rm", "-r", "/etc"),
        ("rm", "-rf", "/usr/"),
        ("rm", "-rf", "."),
        ("rm", "-rf", "./"),
        ("rm", "-rf", ".."),
        ("rm", "-rf", "*"),
        ("rm", "-rf", "{ws}"),
        ("rm", "-rf", "{ws}/"),
        ("rm", "-rf", "{ws}/*"),
        ("rm", "-rf", "{ws}/src/.."),
        ("/bin/rm", "-fr", "/"),
        ("mv", "{ws}", "/tmp/x"),
        ("find", "/", "-delete"),
        ("find", ".", "-delete"),
        ("find", "/etc", "-type", "f", "-delete"),
        ("rm", "-rf", "/c*"),
        ("rm", "-rf", "~/*"),
        ("chmod", "-R", "777", "/"),
        ("chown", "-R", "me", "~"),
        ("mkfs.ext4", "/dev/sda"),
        ("mkfs", "-t", "ext4", "/dev/vda1"),
        ("dd", "if=/dev/zero", "of=/dev/sda"),
        ("shred", "/dev/sdb"),
        ("wipefs", "-a", "/dev/nvme0n1"),
        ("cp", "image", "/dev/disk/by-id/x"),
    ],
)
def test_the_floor_forbids_commands_by_their_words(tmp_path: Path, words: tuple[str, ...], mode: str) -> None:
    words = tuple(word.replace("{ws}", str(tmp_path)) for word in words)
    decision = judge(ALLOW, tmp_path, RunCommand(words, False), tool="Bash", mode=mode)
    assert decision.verdict == "deny"
    assert decision.reason.startswith("hard floor")


@pytest.mark.parametrize(
    "words",
    [
        ("rm", "-rf", "build"),
        ("rm", "-rf", "build/*"),
        ("rm", "-rf", "{ws}/node_modules"),
        ("find", ".", "-name", "*.tmp", "-delete"),
        ("chmod", "-R", "755", "bin"),
        ("dd", "if=/dev/zero", "of=disk.img"),
        ("mv", "a", "b"),
        ("chmod", "+x", "run.sh"),
    ],
)
def test_the_floor_leaves_everyday_work_to_the_rules(tmp_path: Path, words: tuple[str, ...]) -> None:
    words = tuple(word.replace("{ws}", str(tmp_path)) for word in words)
    assert verdict([], tmp_path, RunCommand(words, False), tool="Bash") == "ask"
    assert verdict(["allow Bash"], tmp_path, RunCommand(words, False), tool="Bash") == "allow"


def test_a_chosen_delete_below_the_workspace_is_no_delete_of_the_workspace(tmp_path: Path) -> None:
    implied = DeletePath(str(tmp_path), recursive=True)
    find = RunCommand(("find", ".", "-name", "*.tmp", "-delete"), False, implies=(implied,))
    assert verdict([], tmp_path, find, tool="Bash") == "ask"
    rm = RunCommand(("rm", "-rf", "."), False, implies=(implied,))
    assert verdict(["allow Bash"], tmp_path, rm, tool="Bash") == "deny"


def test_work_goes_on_in_a_worktree_below_the_state_folder() -> None:
    worktree = Path(os.environ["SUREHAND_HOME"]) / "workspaces" / "x" / "worktrees" / "y"
    worktree.mkdir(parents=True)
    assert verdict([], worktree, WritePath(str(worktree / "a")), mode="accept-edits") == "allow"
    assert verdict([], worktree, WritePath(str(worktree.parent / "a")), mode="accept-edits") == "deny"


def test_lookalike_names_are_no_floor(tmp_path: Path) -> None:
    for name in (".gitignore", ".github/CODEOWNERS", "src/git/x", "surehand/x", "sub/surehand.toml.md", "dev/sda"):
        assert verdict([], tmp_path, WritePath(str(tmp_path / name)), mode="accept-edits") == "allow"


def test_the_kept_output_of_a_command_is_read_and_nothing_else_of_the_state(tmp_path: Path) -> None:
    state = Path(locations.workspace_state(str(tmp_path)))
    (state / "output").mkdir(parents=True)
    assert verdict([], tmp_path, ReadPath(str(state / "output" / "1.txt")), read_only=True) == "allow"
    assert verdict(["allow Read"], tmp_path, ReadPath(str(state / "output" / ".." / "x")), read_only=True) == "deny"
    assert verdict([], tmp_path, ReadPath(locations.user_settings()), read_only=True) == "deny"
    assert verdict([], tmp_path, WritePath(str(state / "output" / "1.txt")), mode="bypass") == "deny"
    assert verdict([], tmp_path / "other", ReadPath(str(state / "output" / "1.txt")), read_only=True) != "allow"


@pytest.mark.parametrize("count", [10, 100])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rm -r d*", "ask"),
        ("rm -rf sub/d*", "ask"),
        ("cd sub && rm -rf d*", "ask"),
        ("chmod -R 700 d*", "ask"),
        ("mv d* sub", "ask"),
        ("rm -rf *", "deny"),
        ("rm -rf ./?*", "deny"),
        ("rm -rf d* .", "deny"),
        ("rm -rf d* ..", "deny"),
        ("cd sub && rm -rf ../d* ..", "deny"),
        ("rm -rf .[a-z]*", "deny"),
        ("rm -rf *l", "deny"),
        ("rm -rf */..", "deny"),
        ("cat d*", "ask"),
    ],
)
def test_a_pattern_is_judged_by_what_it_stands_for_not_by_how_much(
    tmp_path: Path, count: int, command: str, expected: str
) -> None:
    workspace = tmp_path / "ws"
    for number in range(count):
        for name in (f"d{number}", f".h{number}", f"sub/d{number}", f"{number}l"):
            (workspace / name).mkdir(parents=True)
    (workspace / ".git").mkdir()
    (workspace / "surehand.toml").write_text("")
    (workspace / "d-out").symlink_to("/etc/passwd")
    app = Surehand(workspace, keep_state=False)
    policy = Policy.from_settings(app.settings, str(workspace))
    assert Checker(policy, app.session, app.registry).check("Bash", {"command": command})["decision"] == expected


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("for f in $(find . -name '*.md'); do rm \"$f\"; done", "ask"),
        ("rm $(git ls-files '*.log')", "ask"),
        ("rm $(git ls-files -o --exclude-standard src '*.tmp')", "ask"),
        ("mv $(find {ws} -type f -name '*.md') sub", "ask"),
        ("rm -rf $(find .)", "deny"),
        ("rm -rf $(find . -name '?*')", "deny"),
        ("rm -rf $(find . -name '*t')", "deny"),
        ("rm -rf $(find . -name '.git')", "deny"),
        ("rm -rf $(find . -name '*.md' -o -type d)", "deny"),
        ("rm -rf $(find . ! -name x)", "deny"),
        ("rm -rf $(find {ws} -name 'w*')", "deny"),
        ("rm -rf $(find .. -name 'x*')", "deny"),
        ("rm $(git ls-files)", "deny"),
        ("rm $(git ls-files '*.log' .)", "deny"),
        ("rm $(git ls-files ':!x')", "deny"),
        ("rm $(git ls-files src/..)", "deny"),
    ],
)
def test_files_that_a_listing_picks_are_not_the_workspace(tmp_path: Path, command: str, expected: str) -> None:
    workspace = tmp_path / "ws"
    (workspace / "src").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    app = Surehand(workspace, keep_state=False)
    policy = Policy.from_settings(app.settings, str(workspace))
    given = {"command": command.replace("{ws}", str(workspace))}
    assert Checker(policy, app.session, app.registry).check("Bash", given)["decision"] == expected
