"""Groups of the kernel for the limits of commands: found where handed over, made, joined and removed again."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.forks import fork

from surehand.sandbox.linux import limits

LIMITS = {"memory": 64 << 20, "processes": 100, "file_size": 1 << 20}


def make_tree(root: Path, enabled: str, own: str = "user/app/shell.scope") -> tuple[str, str]:
    """Make folders like those of a mounted cgroup2, and the file that says which group is ours."""
    for folder in (root, root / "user", root / "user/app", root / own):
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("cgroup.procs", "cgroup.subtree_control"):
            (folder / name).write_text("")
    (root / "user/app/cgroup.subtree_control").write_text(enabled)
    (root / "which").write_text(f"1:name=systemd:/\n0::/{own}\n")
    return str(root), str(root / "which")


def test_the_nearest_group_that_was_handed_over_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, own = make_tree(tmp_path, "cpu memory pids")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1" if path.endswith("/app") else b"")
    assert limits.find_delegated(root, own) == f"{root}/user/app"


def test_none_is_taken_that_lacks_what_is_needed_or_was_not_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own = make_tree(tmp_path, "cpu pids")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"1")
    assert limits.find_delegated(root, own) == ""
    (tmp_path / "user/app/cgroup.subtree_control").write_text("memory pids")
    monkeypatch.setattr(os, "getxattr", lambda path, name: b"")
    assert limits.find_delegated(root, own) == ("" if os.geteuid() == 0 else f"{root}/user/app")
    assert limits.find_delegated(root, str(tmp_path / "missing")) == ""


def test_a_supervisor_without_the_files_of_its_limits_is_taken_back(tmp_path: Path) -> None:
    session = limits.Groups(str(tmp_path), needed=())
    with pytest.raises(FileNotFoundError):
        session.make_group(LIMITS)
    assert os.listdir(tmp_path / session.name) == []
    session.close()
    assert os.listdir(tmp_path) == []


def test_what_killed_launchers_left_is_removed_and_what_lives_is_not(tmp_path: Path) -> None:
    (tmp_path / "surehand-999999999/supervisor-1").mkdir(parents=True)
    (tmp_path / f"surehand-{os.getppid()}").mkdir()
    (tmp_path / "other").mkdir()
    limits.remove_stale(str(tmp_path))
    assert sorted(os.listdir(tmp_path)) == sorted(["other", f"surehand-{os.getppid()}"])


@pytest.mark.skipif(
    not os.access("/sys/fs/cgroup/unified/cgroup.procs", os.W_OK), reason="no cgroup2 here that can be written"
)
def test_a_process_joins_a_real_group_with_all_it_starts_and_the_group_goes() -> None:
    session = limits.Groups("/sys/fs/cgroup/unified", needed=())
    os.mkdir("supervisor-1", dir_fd=session.folder)
    supervisor = os.open("supervisor-1", os.O_RDONLY, dir_fd=session.folder)
    reader, writer = os.pipe()

    def join() -> None:
        limits.join(supervisor)
        with open("/proc/self/cgroup") as own:
            os.write(writer, own.read().encode())

    os.waitpid(fork(join), 0)
    os.close(writer)
    assert f"0::/{session.name}/supervisor-1\n".encode() in os.read(reader, 4096)
    assert limits.count_oom_kills(supervisor) == 0
    session.close()
    assert not os.path.exists(f"/sys/fs/cgroup/unified/{session.name}")
