"""Opening beneath roots: links inside work, every way out is refused, with and without `openat2`."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path

import pytest
from tests.forks import fork

from surehand.core.call import ToolCall
from surehand.core.context import ToolContext
from surehand.core.errors import ToolFailure
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.files import paths
from surehand.files.paths import (
    OutsideRoots,
    missing_failure,
    near_names,
    open_beneath,
    open_folder,
    readable_roots,
    refuse_special,
)


@pytest.fixture(params=["openat2", "walk"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "walk":
        monkeypatch.setattr(paths, "can_openat2", lambda: False)
    elif not paths.can_openat2():
        pytest.skip("no openat2 here")
    return request.param


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("ws/sub", "ws2", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "ws/sub/a.txt").write_text("inside")
    (tmp_path / "ws2/b.txt").write_text("second")
    (tmp_path / "outside/secret").write_text("secret")
    return tmp_path


def content(path: str, *roots: str, flags: int = os.O_RDONLY) -> str:
    fd = open_beneath(path, roots, flags)
    with open(fd) as file:
        return file.read()


def test_a_file_inside_a_root_is_opened(way: str, tree: Path) -> None:
    assert content(f"{tree}/ws/sub/a.txt", f"{tree}/ws") == "inside"
    assert content(f"{tree}/ws//sub/./../sub/a.txt", f"{tree}/ws") == "inside"


@pytest.mark.parametrize("target", ["sub/a.txt", "{tree}/ws/sub/a.txt", "../ws2/b.txt", "{tree}/ws2/b.txt"])
def test_links_that_stay_inside_the_roots_are_followed(way: str, tree: Path, target: str) -> None:
    os.symlink(target.format(tree=tree), tree / "ws/link")
    assert content(f"{tree}/ws/link", f"{tree}/ws", f"{tree}/ws2") in ("inside", "second")


@pytest.mark.parametrize(
    "target", ["../outside/secret", "{tree}/outside/secret", "/proc/self/root{tree}/outside/secret"]
)
def test_links_that_lead_out_are_refused(way: str, tree: Path, target: str) -> None:
    os.symlink(target.format(tree=tree), tree / "ws/link")
    with pytest.raises(OutsideRoots) as caught:
        content(f"{tree}/ws/link", f"{tree}/ws")
    assert caught.value.code == "permission_denied"
    assert caught.value.details["number"] == 2


def test_a_folder_link_that_leads_out_is_refused(way: str, tree: Path) -> None:
    os.symlink(tree / "outside", tree / "ws/dir")
    for name in ("ws/dir/secret", "ws/dir/../outside/secret", "ws/dir/new"):
        with pytest.raises(OutsideRoots):
            open_beneath(f"{tree}/{name}", (f"{tree}/ws",), os.O_RDWR | os.O_CREAT)
    assert sorted(os.listdir(tree / "outside")) == ["secret"]


@pytest.mark.parametrize("name", ["../outside/secret", "sub/../../outside/secret", "../ws2/b.txt"])
def test_dots_that_lead_out_are_refused(way: str, tree: Path, name: str) -> None:
    with pytest.raises(OutsideRoots):
        content(f"{tree}/ws/{name}", f"{tree}/ws")


def test_a_sibling_whose_name_begins_like_the_root_is_outside(way: str, tree: Path) -> None:
    with pytest.raises(OutsideRoots):
        content(f"{tree}/ws2/b.txt", f"{tree}/ws")


def test_a_root_reached_by_a_link_works_under_both_names(way: str, tree: Path) -> None:
    os.symlink(tree / "ws", tree / "alias")
    assert content(f"{tree}/alias/sub/a.txt", f"{tree}/alias") == "inside"
    assert content(f"{tree}/ws/sub/a.txt", f"{tree}/alias") == "inside"
    assert content(f"{tree}/alias/sub/a.txt", f"{tree}/ws") == "inside"


def test_a_link_circle_and_a_missing_file_are_plain_errors(way: str, tree: Path) -> None:
    os.symlink("loop", tree / "ws/loop")
    with pytest.raises(OSError, match="symbolic"):
        content(f"{tree}/ws/loop", f"{tree}/ws")
    with pytest.raises(FileNotFoundError):
        content(f"{tree}/ws/none", f"{tree}/ws")


def test_nofollow_refuses_a_link_as_last_component(way: str, tree: Path) -> None:
    os.symlink("sub/a.txt", tree / "ws/link")
    with pytest.raises(OSError):
        content(f"{tree}/ws/link", f"{tree}/ws", flags=os.O_RDONLY | os.O_NOFOLLOW)


def test_a_new_file_is_created_where_a_dangling_link_inside_points(way: str, tree: Path) -> None:
    os.symlink("sub/new", tree / "ws/link")
    os.close(open_beneath(f"{tree}/ws/link", (f"{tree}/ws",), os.O_RDWR | os.O_CREAT, 0o640))
    assert (tree / "ws/sub/new").exists()


def test_folders_are_made_beneath_the_roots_only(way: str, tree: Path) -> None:
    fd, made = open_folder(f"{tree}/ws/x/y", (f"{tree}/ws",), make=True)
    os.close(fd)
    assert made == [f"{tree}/ws/x", f"{tree}/ws/x/y"]
    with pytest.raises(OutsideRoots):
        open_folder(f"{tree}/elsewhere/x", (f"{tree}/ws",), make=True)
    os.symlink(tree / "outside", tree / "ws/dir")
    with pytest.raises(OSError):
        open_folder(f"{tree}/ws/dir/x", (f"{tree}/ws",), make=True)
    assert os.listdir(tree / "outside") == ["secret"]


def test_special_files_are_refused_at_once(way: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    started = time.monotonic()
    for path in (
        str(tmp_path / "fifo"),
        "/dev/zero",
        "/proc/self/mem",
        "/proc/self/environ",
        f"/proc/{os.getpid()}/environ",
    ):
        fd = open_beneath(path, (os.path.realpath(os.path.dirname(path)),), os.O_RDONLY)
        try:
            with pytest.raises(ToolFailure, match="only regular files"):
                refuse_special(fd, path)
        finally:
            os.close(fd)
    assert time.monotonic() - started < 60  # what hangs, hangs without end


def test_a_socket_does_not_open(way: str, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        with pytest.raises(OSError) as caught:
            open_beneath(f"{tmp_path}/s", (str(tmp_path),), os.O_RDONLY)
    assert "FIFO or a socket" in paths.os_failure(caught.value, "s", "read").message


def test_names_no_system_can_have_are_invalid_arguments(tmp_path: Path) -> None:
    for name in ("a\0b", "a\ud800b"):
        with pytest.raises(ToolFailure) as caught:
            open_beneath(f"{tmp_path}/{name}", (str(tmp_path),), os.O_RDONLY)
        assert caught.value.code == "invalid_args"


def test_a_name_with_a_newline_or_bytes_that_are_no_text_works(way: str, tmp_path: Path) -> None:
    for raw in (b"two\nlines", b"caf\xe9"):
        name = os.fsdecode(os.path.join(os.fsencode(tmp_path), raw))
        os.close(open_beneath(name, (str(tmp_path),), os.O_RDWR | os.O_CREAT))
        assert content(name, str(tmp_path)) == ""


def context(workspace: Path) -> ToolContext:
    return ToolContext(ToolCall("Read"), Session(str(workspace), settings=Settings()), lambda _: None, {})


def test_near_names_find_typos_case_and_other_endings(tree: Path) -> None:
    (tree / "ws/README.md").touch()
    (tree / "ws/config.yaml").touch()
    ctx = context(tree / "ws")
    assert near_names(f"{tree}/ws/readme.md", ctx) == [f"{tree}/ws/README.md"]
    assert near_names(f"{tree}/ws/REAMDE.md", ctx) == [f"{tree}/ws/README.md"]
    assert near_names(f"{tree}/ws/config.toml", ctx) == [f"{tree}/ws/config.yaml"]
    assert near_names(f"{tree}/ws/nowhere/x", ctx) == []
    assert near_names(f"{tree}/ws/readme.md", context(tree / "ws2")) == []


def test_near_names_find_a_name_whose_accents_are_stored_apart(tmp_path: Path) -> None:
    for name in ("cafe\u0301.txt", "cafe.txt"):
        (tmp_path / name).touch()
    assert near_names(f"{tmp_path}/Caf\u00e9.txt", context(tmp_path))[0] == f"{tmp_path}/cafe\u0301.txt"


def test_a_link_that_leads_nowhere_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("nowhere")
    problem = missing_failure(f"{tmp_path}/link", context(tmp_path))
    assert str(problem) == f"File does not exist: {tmp_path}/link is a link to nowhere, and nothing is there"
    assert problem.details["near"] == []


def test_an_outside_path_is_pinned_to_its_folder_and_an_inside_one_to_the_roots(tree: Path) -> None:
    session = Session(f"{tree}/ws", settings=Settings(), roots=(f"{tree}/ws2",))
    ctx = ToolContext(ToolCall("Read"), session, lambda _: None, {})
    assert readable_roots(ctx, f"{tree}/ws/a") == session.roots
    assert readable_roots(ctx, f"{tree}/outside/secret") == (f"{tree}/outside",)
    os.symlink(tree / "outside", tree / "ws/dir")
    assert readable_roots(ctx, f"{tree}/ws/dir/secret") == session.roots
    os.symlink(tree / "ws", tree / "alias")
    with open(
        open_beneath(f"{tree}/alias/sub/a.txt", readable_roots(ctx, f"{tree}/alias/sub/a.txt"), os.O_RDONLY)
    ) as f:
        assert f.read() == "inside"


def test_a_link_swapped_while_reading_never_leaks(way: str, tree: Path) -> None:
    swap_and_read(tree, tries=1500)


@pytest.mark.slow
def test_a_link_swapped_while_reading_never_leaks_in_100_000_tries(way: str, tree: Path) -> None:
    swap_and_read(tree, tries=100_000)


def swap_and_read(tree: Path, tries: int) -> None:
    """Read through a link that another process swaps all the time, until enough tries ended either way."""
    (tree / "outside/a.txt").write_text("secret")
    link, spare = f"{tree}/ws/link", f"{tree}/ws/spare"
    os.symlink("sub", link)

    def swap() -> None:
        while os.getppid() != 1:
            for target in ("sub", "../outside", f"{tree}/outside", f"{tree}/ws/sub"):
                os.symlink(target, spare)
                os.replace(spare, link)

    swapper = fork(swap)
    seen = {"inside": 0, "refused": 0}
    try:
        while sum(seen.values()) < tries or not min(seen.values()):
            try:
                seen[content(f"{link}/a.txt", f"{tree}/ws")] += 1
            except (OSError, OutsideRoots):
                seen["refused"] += 1
    finally:
        os.kill(swapper, signal.SIGKILL)
        os.waitpid(swapper, 0)
