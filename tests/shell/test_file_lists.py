"""Reads whose data names further files: what a list names is judged like a file in the words."""

from __future__ import annotations

import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from surehand import Surehand
from surehand.core.call import ToolResult

HASH = sha256(b"a\n").hexdigest()


async def ran(workspace: Path, command: str) -> ToolResult:
    """Run a command where nobody says yes."""
    (workspace / "a").write_text("a\n")
    async with Surehand(workspace, keep_state=False, allow=()) as app:
        return await app.call("Bash", {"command": command})


@pytest.mark.parametrize(
    "lines",
    [f"{HASH}  a\n", f"{HASH} *./a\n# a comment\n\n", f"SHA256 (a) = {HASH}\n", f"{HASH}  a\r\n"],
    ids=["text", "binary", "tagged", "carriage return"],
)
async def test_sums_of_files_in_the_workspace_are_checked_unasked(tmp_path: Path, lines: str) -> None:
    (tmp_path / "sums").write_bytes(lines.encode())
    result = await ran(tmp_path, "sha256sum -c sums")
    assert result.error is None or result.error.code != "permission_denied", result.output
    if "\r" not in lines:
        assert "OK" in result.output


@pytest.mark.parametrize(
    "lines",
    [
        f"{HASH}  /etc/machine-id\n",
        f"{HASH}  ../outside\n",
        f"{HASH}  a\n{HASH}  .env\n",
        f"SHA256 (/etc/machine-id) = {HASH}\n",
        f"\\{HASH}  a\\nb\n",
        "a line of another kind\n",
    ],
    ids=["outside", "above", "secret", "tagged", "escaped", "unknown"],
)
async def test_sums_of_other_files_or_of_lists_nobody_understands_ask(tmp_path: Path, lines: str) -> None:
    (tmp_path / "sums").write_text(lines)
    (tmp_path / ".env").write_text("KEY=1\n")
    result = await ran(tmp_path, "sha256sum --check --quiet sums")
    assert result.error is not None
    assert result.error.code == "permission_denied"


@pytest.mark.parametrize(
    "command",
    [
        "echo x | sha256sum -c",
        "md5sum -c - < sums",
        "shasum -c link",
        "b2sum --check $(echo sums)",
        "getfacl -",
        "readelf -w a.o",
        "objdump -g a.o",
        "strings @sums",
        "git log --stdin",
        "git rev-list --stdin",
        "find . -newer /etc/machine-id",
        "find . -samefile ../outside",
        "tree --gitfile=/etc/machine-id",
        "pip list --path /root",
        "git bundle list-heads /etc/machine-id",
        "xargs -a sums cat",
        "wc --files0-from=sums",
        "du --files0-from=sums",
        "sort --files0-from=sums",
        "file -f sums",
        "tar -tf a.tar -T sums",
        "rsync -n --files-from=sums . elsewhere",
        "cpio -o < sums",
        "find -files0-from sums",
        "grep -f /etc/machine-id a",
    ],
)
async def test_a_list_that_is_not_looked_through_asks(tmp_path: Path, command: str) -> None:
    (tmp_path / "sums").write_text(f"{HASH}  a\n")
    (tmp_path / "link").symlink_to("sums")
    result = await ran(tmp_path, command)
    assert result.error is not None
    assert result.error.code == "permission_denied", result.output


THROUGH_LINKS = (
    "find . -type l | xargs cat",
    "find . -name 'd*' | xargs cat",
    "cat $(find .)",
    "find . -exec cat {} +",
    "find src -name '*' -exec head -1 {} ';'",
    "find . -type f -o -type l | xargs cat",
    "git ls-files | xargs cat",
    "wc -l $(git ls-files)",
    "git ls-files -z | xargs -0 grep -n x",
    "cd src && git ls-files | xargs cat",
    "git ls-files -o | xargs cat",
    "grep -R x .",
    "rg -L x",
)


@pytest.mark.parametrize("command", THROUGH_LINKS)
async def test_a_list_of_files_with_a_link_out_of_the_workspace_asks(tmp_path: Path, command: str) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside.txt"
    (workspace / "src/a/b/c").mkdir(parents=True)
    outside.write_text("canary\n")
    for name in ("src/a/b/c/deep", "src/a/direct"):
        (workspace / name).symlink_to(outside)
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    subprocess.run(["git", "add", "src/a/b/c/deep"], cwd=workspace, check=True)
    result = await ran(workspace, command)
    assert result.error is not None, result.output
    assert result.error.code == "permission_denied"
    assert "canary" not in result.output


@pytest.mark.parametrize(
    "command",
    [
        "find . -type f | xargs cat",
        "find . -name '*.py' | xargs wc -l",
        "find . -name '*.py' -exec cat {} +",
        "find . -exec basename {} ';'",
        "git ls-files | xargs cat",
        "grep -r x .",
    ],
)
async def test_a_link_that_a_list_leaves_out_is_no_reason_to_ask(tmp_path: Path, command: str) -> None:
    workspace = tmp_path / "ws"
    (workspace / "src").mkdir(parents=True)
    (workspace / "src/app.py").write_text("x = 1\n")
    (workspace / "src/away").symlink_to(tmp_path)
    (workspace / "python3").symlink_to("/usr/bin/env")  # what the system has is no secret of anybody
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    subprocess.run(["git", "add", "src/app.py"], cwd=workspace, check=True)
    result = await ran(workspace, command)
    assert result.error is None or result.error.code != "permission_denied", result.output


def make_canary(tmp_path: Path) -> Path:
    """Return a workspace beside a file that no command in it may print unasked."""
    (tmp_path / "canary").write_text("canary\n")
    (tmp_path / "ws").mkdir()
    (tmp_path / "ws/a").write_text("x\n")
    return tmp_path / "ws"


# Where `xargs` gets words from besides the names that a listing prints; `{canary}` is the path of a file outside.
OTHER_WORDS = (
    "find . | xargs cat <<< {canary}",
    "find . | xargs cat < list",
    "find . | xargs cat 0< list",
    "find . | xargs cat <<END\n{canary}\nEND",
    "find . 2>&1 | xargs cat",
    "find . |& xargs cat",
    "find . -name a | grep -n a | xargs cat",
    "find . | xargs --process-slot-var=GIT_DIR cat",
)


@pytest.mark.parametrize("command", OTHER_WORDS)
async def test_names_that_come_from_elsewhere_than_the_listing_ask(tmp_path: Path, command: str) -> None:
    workspace = make_canary(tmp_path)
    (workspace / "list").write_text(f"{tmp_path}/canary\n")
    result = await ran(workspace, command.format(canary=tmp_path / "canary"))
    assert result.error is not None, result.output
    assert result.error.code == "permission_denied"
    assert "canary" not in result.output


# Folders whose names hide a path from another folder once a blank splits them, or quotes and backslashes are taken off.
HIDING = ("a ", '"', "'", "\\")


@pytest.mark.parametrize("folder", HIDING, ids=["blank", "double quote", "single quote", "backslash"])
@pytest.mark.parametrize(
    "command",
    [
        "grep -rl x | xargs cat",
        "grep -rl x * | xargs cat",
        "grep -rl x | xargs -P0 cat",
        "grep -rl x | xargs -I{} cat {}",
        "grep -rl x | sort | xargs -n 1 cat",
    ],
)
async def test_names_that_xargs_reads_as_other_paths_ask(tmp_path: Path, command: str, folder: str) -> None:
    workspace = make_canary(tmp_path)
    hiding = workspace / f"{folder}{tmp_path}"
    hiding.mkdir(parents=True)
    (hiding / f"canary{folder.strip(' ')}").write_text("x\n")
    result = await ran(workspace, command)
    assert result.error is not None, result.output
    assert result.error.code == "permission_denied"
    assert "canary" not in result.output


@pytest.mark.parametrize(
    "command",
    [
        "git diff --name-only | xargs cat",
        "ls [ab] | xargs -n 1 wc -l",
        "ls *b | xargs -I {} head -1 {}",
        "grep -rlZ x | xargs -0 cat",
    ],
)
async def test_names_that_are_listed_as_they_are_go_to_a_read_unasked(tmp_path: Path, command: str) -> None:
    workspace = make_canary(tmp_path)
    (workspace / "b").write_text("x\n")
    subprocess.run(["git", "init", "-q"], cwd=workspace, check=True)
    subprocess.run(["git", "add", "a", "b"], cwd=workspace, check=True)
    result = await ran(workspace, command)
    assert result.error is None or result.error.code != "permission_denied", result.output


async def test_a_list_that_the_same_line_writes_asks_although_edits_are_accepted(tmp_path: Path) -> None:
    (tmp_path / "sums").write_text(f"{HASH}  a\n")
    (tmp_path / "a").write_text("a\n")
    async with Surehand(tmp_path, keep_state=False, allow=(), mode="accept-edits") as app:
        plain = await app.call("Bash", {"command": "sha256sum -c sums"})
        written = await app.call("Bash", {"command": f"echo '{HASH}  /etc/machine-id' > sums; sha256sum -wc sums"})
    assert plain.error is None
    assert written.error is not None
    assert written.error.code == "permission_denied"
