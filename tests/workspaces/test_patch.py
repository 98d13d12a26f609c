"""Patches between snapshots: what they say is what happened, for us and for git alike."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surehand.core.errors import StateError
from surehand.workspaces.patch import format_patch, parse_patch
from surehand.workspaces.snapshot import Pieces, Snapshot, compare, restore, take_snapshot

CONTENT = st.one_of(
    st.binary(max_size=200),
    st.text(st.sampled_from("ab\nc\r\t "), max_size=60).map(str.encode),
    st.lists(st.sampled_from(["one\n", "two\n", "three\n", "x"]), max_size=30).map(
        lambda lines: "".join(lines).encode()
    ),
)
NAME = st.sampled_from(["a.txt", "b c.txt", "sub/ü.txt", 'sub/q"uote', "sub/new\nline", "deep/er/f", "\udcff.bin"])
TREE = st.dictionaries(NAME, st.tuples(CONTENT, st.booleans()), max_size=5)


def write_tree(root: Path, tree: dict[str, tuple[bytes, bool]]) -> None:
    root.mkdir(exist_ok=True)
    for name, (content, executable) in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        path.chmod(0o755 if executable else 0o644)


def apply_by_hand(root: Path, patch: str) -> None:
    for each in parse_patch(patch):
        path = root / each.path
        old = path.read_bytes() if path.is_file() else None
        new = each.apply(old)
        if new is None:
            path.unlink()
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(new)
            path.chmod(0o755 if each.new_mode == 0o100755 else 0o644)


@settings(max_examples=30)
@given(before=TREE, after=TREE)
def test_a_patch_leads_from_one_tree_to_the_other(
    before: dict[str, tuple[bytes, bool]],
    after: dict[str, tuple[bytes, bool]],
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    top = tmp_path_factory.mktemp("patch")
    write_tree(top / "one", before)
    write_tree(top / "two", after)
    pieces = Pieces(str(top / "pieces"))
    one, two = (take_snapshot(str(top / name), pieces) for name in ("one", "two"))
    patch = format_patch(compare(one, two), pieces.read)
    apply_by_hand(top / "one", patch)
    assert compare(take_snapshot(str(top / "one"), pieces), two) == []


def test_git_applies_our_patches_with_binary_files_links_modes_and_deletions(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    write_tree(one, {"text": (b"a\nb\nc", False), "gone": (b"x\n", False), "bin": (bytes(range(256)) * 9, False)})
    write_tree(two, {"text": (b"a\nB\nc\n", True), "bin": (b"\0new" * 300, False), "n w/f": (b"new\n", False)})
    write_tree(two, {"empty": (b"", False), "big": (b"line\n" * 9000, False)})
    os.symlink("text", two / "link")
    pieces = Pieces(str(tmp_path / "pieces"))
    first, second = take_snapshot(str(one), pieces), take_snapshot(str(two), pieces)
    patch = format_patch(compare(first, second), pieces.read)
    subprocess.run(["git", "apply", "-"], cwd=one, input=patch.encode(), check=True)
    assert compare(take_snapshot(str(one), pieces), second) == []
    subprocess.run(["git", "apply", "-R", "-"], cwd=one, input=patch.encode(), check=True)
    assert compare(take_snapshot(str(one), pieces), first) == []


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", ".git/hooks/pre-commit", "sub/.GIT/config", ".env", "a//b"])
def test_a_patch_that_leads_out_of_the_workspace_or_to_a_secret_is_refused(path: str) -> None:
    head = f"diff --git a/{path} b/{path}\nnew file mode 100644\nindex {'0' * 40}..{'1' * 40}\n"
    patch = f"{head}--- /dev/null\n+++ b/{path}\n@@ -0,0 +1 @@\n+x\n"
    with pytest.raises(StateError):
        parse_patch(patch)


def test_a_file_that_changed_since_is_not_patched(tmp_path: Path) -> None:
    write_tree(tmp_path / "one", {"f": (b"a\n", False)})
    write_tree(tmp_path / "two", {"f": (b"b\n", False)})
    pieces = Pieces(str(tmp_path / "pieces"))
    one, two = (take_snapshot(str(tmp_path / name), pieces) for name in ("one", "two"))
    (each,) = parse_patch(format_patch(compare(one, two), pieces.read))
    with pytest.raises(StateError, match="not what the patch was made from"):
        each.apply(b"c\n")


def test_a_snapshot_honours_ignore_rules_keeps_what_git_tracks_and_never_holds_secrets(tmp_path: Path) -> None:
    root = tmp_path / "work"
    names = ["kept.py", "dropped.log", "tracked.log", ".env", "id_rsa", "__pycache__/x.pyc", ".venv/lib.py", "sub/deep"]
    write_tree(root, dict.fromkeys(names, (b"x\n", False)))
    (root / ".gitignore").write_text("*.log\n")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    subprocess.run(["git", "add", "-f", "tracked.log", "kept.py", ".env"], cwd=root, check=True)
    snapshot = take_snapshot(str(root), Pieces(str(tmp_path / "pieces")))
    assert sorted(snapshot.entries) == [".gitignore", "kept.py", "sub/deep", "tracked.log"]


def test_a_snapshot_restored_elsewhere_is_the_same_and_survives_its_way_as_data(tmp_path: Path) -> None:
    write_tree(tmp_path / "one", {"run.sh": (b"#!/bin/sh\n", True), "a/b/c": (b"\xff\0", False), "ü": (b"", False)})
    os.symlink("../elsewhere", tmp_path / "one" / "link")
    pieces = Pieces(str(tmp_path / "pieces"))
    snapshot = Snapshot.from_dict(take_snapshot(str(tmp_path / "one"), pieces).to_dict())
    (tmp_path / "two").mkdir()
    restore(snapshot, str(tmp_path / "two"), pieces)
    assert compare(take_snapshot(str(tmp_path / "two"), pieces), snapshot) == []
    assert os.readlink(tmp_path / "two" / "link") == "../elsewhere"


def test_what_an_agent_begins_to_ignore_is_not_told_as_deleted(tmp_path: Path) -> None:
    write_tree(tmp_path / "one", {"notes.txt": (b"x\n", False)})
    pieces = Pieces(str(tmp_path / "pieces"))
    base = take_snapshot(str(tmp_path / "one"), pieces)
    (tmp_path / "one" / ".gitignore").write_text("notes.txt\n")
    after = take_snapshot(str(tmp_path / "one"), pieces, base)
    assert [each.path for each in compare(base, after)] == [".gitignore"]
