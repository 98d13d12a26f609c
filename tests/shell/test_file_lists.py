"""Reads whose data names further files: what a list names is judged like a file in the words."""

from __future__ import annotations

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
