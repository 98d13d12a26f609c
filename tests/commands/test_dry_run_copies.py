"""Layers that cannot be laid: the dry run ends with the reason, and the next is made on a copy."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from surehand.commands.dry_run import never_ran
from surehand.commands.dry_run_copies import Layers, Limits, copy_tree
from surehand.commands.session import SHELLS
from surehand.core.session import Session
from surehand.core.settings import Settings
from surehand.sandbox.command import Command
from surehand.sandbox.linux import probe
from surehand.testing import scratch_app

pytestmark = pytest.mark.skipif(
    not probe.abilities().overlay, reason=f"no overlay in namespaces here: {probe.abilities().why_not}"
)


async def test_layers_the_kernel_refuses_end_the_dry_run_at_once_with_the_reason(tmp_path: Path) -> None:
    session = Session(str(tmp_path / "ws"), settings=Settings())
    (tmp_path / "ws").mkdir()
    shells = session.keep(SHELLS)
    launcher = await shells.dry_run_launcher()
    assert launcher is not None
    layers = Layers.make(shells.dry_run_folder("t"), launcher.profile.workspace)
    order = layers.wire
    order["folders"][0]["work"] = "/dev/shm"  # another file system than the layer's
    command = Command(("/bin/true",), session.cwd, {})
    ended = await asyncio.wait_for(launcher.run(command, print, print, overlay=order).finish(), 60)
    assert "Invalid argument" in never_ran(ended)
    plain = await asyncio.wait_for(launcher.run(command, print, print).finish(), 60)
    assert plain.exit_code == 0
    await session.close()


async def test_where_layers_cannot_be_laid_a_copy_takes_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = Layers.wire.fget
    assert real is not None

    def broken(layers: Layers) -> object:
        order = real(layers)
        order["folders"][0]["work"] = "/dev/shm"
        return order

    monkeypatch.setattr(Layers, "wire", property(broken))
    workspace = tmp_path / "ws"
    workspace.mkdir()
    async with scratch_app(workspace) as app:
        shown = await app.dry_run("Bash", {"command": f"echo x > {workspace}/made; pwd"})
        again = await app.dry_run("Bash", {"command": "echo y > other"})
    for each, path in ((shown, "made"), (again, "other")):
        assert each.data["dry_run"]["on"] == "copy"
        assert [change["path"] for change in each.data["changes"]] == [path]
    assert shown.data["stdout"] == f"{workspace}\n"
    assert list(workspace.iterdir()) == []


def test_a_file_that_goes_while_its_folder_is_copied_is_left_out(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    (source / "locked").write_text("for a moment\n")
    (source / "stays.txt").write_text("stays\n")

    def remove_and_go_on() -> bool:
        (source / "locked").unlink(missing_ok=True)
        return False

    copy_tree(str(source), str(target), Limits(files=10, bytes=1 << 20), remove_and_go_on)
    assert [path.name for path in target.iterdir()] == ["stays.txt"]
