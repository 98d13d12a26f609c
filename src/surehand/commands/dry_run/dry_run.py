"""Where a dry run of a command happens: on layers, on a copy put in the workspace's place, or on a copy beside it.

    scratch = await prepare_scratch(shells, name)
    ended = await scratch.run(command, stdout.feed, stderr.feed, timeout_s)
    found = scratch.copy.differences()
    await scratch.discard()

Layers and a copy in its place need namespaces; full paths lead to them too. With Landlock alone the copy lies beside
the workspace, which cannot be written then; what Landlock does not see of that (modes) is put back. Where nothing
would keep a command off the workspace, there is no dry run.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from surehand.commands.dry_run.overlay import Layers
from surehand.commands.dry_run.tree_copy import TreeCopy
from surehand.commands.session import Shells
from surehand.core.errors import ToolFailure
from surehand.files.protected_paths import inside
from surehand.files.trees import remove_tree
from surehand.history.change_logs import ChangeLog
from surehand.history.command_changes import put_back
from surehand.sandbox import protocol
from surehand.sandbox.command import NO_LAYER, Command, Ended, Feed, SandboxFailure
from surehand.sandbox.protocol import Runner
from surehand.state.private_folder import DRY_RUNS, PrivateFolder

_HINT: Final = "Without a dry run, `surehand policy check` says which files and hosts it would touch."


class Scratch:
    """A copy, and the launcher that keeps commands in it."""

    def __init__(self, copy: Layers | TreeCopy, launcher: Runner, own: PrivateFolder | None = None) -> None:
        self.copy = copy
        self.launcher = launcher
        self._own = own
        self.put_back: tuple[str, ...] = ()
        """What the command had changed in the workspace itself, and what is as it was again."""

    @property
    def beside(self) -> bool:
        """Whether the copy lies beside the workspace, where full paths do not lead."""
        return self._own is not None

    @property
    def kind(self) -> str:
        """How the copy is made."""
        return "layer" if isinstance(self.copy, Layers) else "copy beside" if self.beside else "copy"

    async def run(self, command: Command, stdout: Feed, stderr: Feed, timeout_s: float) -> Ended:
        """Run the command on the copy to its end."""
        if not self.beside:
            return await self.launcher.run(command, stdout, stderr, overlay=self.copy.wire).finish(timeout_s)
        assert isinstance(self.copy, TreeCopy)
        command = _beside(command, self.copy)
        change_log = os.path.join(self.copy.folder, "change-log")
        os.mkdir(change_log, 0o700)
        run = self.launcher.run(command, stdout, stderr, change_log=change_log)
        try:
            return await run.finish(timeout_s)
        finally:
            await asyncio.shield(asyncio.to_thread(self._put_back, change_log, run.ended))

    def _put_back(self, change_log: str, ended: Ended | None) -> None:
        """Landlock knows nothing of modes: what a full path led to in the workspace becomes as it was."""
        try:
            if ended is not None and ended.change_log is not None and ended.change_log["count"]:
                self.put_back = put_back(ChangeLog(change_log), lambda path: not inside(path, [self.copy.folder]))
        finally:
            remove_tree(change_log)

    async def discard(self) -> None:
        """Take the copy away."""
        await asyncio.to_thread(self.copy.discard)
        if self._own is not None:
            await self.launcher.close()
            await asyncio.to_thread(self._own.remove)


async def prepare_scratch(shells: Shells, name: str) -> Scratch:
    """Return the best scratch copy there is for a dry run; raise ToolFailure where there is none."""
    launcher = await shells.dry_run_launcher()
    folder = shells.dry_run_folder(name)
    workspace = launcher.profile.workspace if launcher else _real(shells.session.workspace)
    if inside(folder, [workspace]):
        raise ToolFailure(f"a dry run is not possible here: the workspace {workspace} holds the copy itself")
    if launcher is not None and not shells.no_layers and protocol.abilities().overlay:
        return Scratch(await asyncio.to_thread(Layers.make, folder, workspace, _others(launcher)), launcher)
    if launcher is not None:
        return Scratch(await _copy_workspace(folder, workspace, _others(launcher)), launcher)
    if not protocol.abilities().enough:
        why = protocol.abilities().why_not or "this system can contain nothing"
        raise ToolFailure(
            f"a dry run is not possible here: nothing would keep it off the workspace ({why})",
            code="tool_unavailable",
            hint=_HINT,
        )
    # Not in the session's private temp, where its commands write: with Landlock alone nothing in that can be hidden.
    own = PrivateFolder.make()
    try:
        copy = await _copy_workspace(os.path.join(own.path, DRY_RUNS, name), workspace)
        return Scratch(copy, await _start_confined(shells, copy), own)
    except BaseException:
        await asyncio.to_thread(own.remove)
        raise


def _beside(command: Command, copy: TreeCopy) -> Command:
    """Return the command as it starts in a copy beside the workspace."""
    cwd = _real(command.cwd)
    if inside(cwd, [copy.workspace]):
        cwd = os.path.normpath(os.path.join(copy.copy, os.path.relpath(cwd, copy.workspace)))
    return replace(command, cwd=cwd, environment={**command.environment, "TMPDIR": copy.temp})


def _real(path: str) -> str:
    return os.path.realpath(path)


def _others(launcher: Runner) -> list[str]:
    """Return what commands may write beside the workspace and their private temp."""
    profile = launcher.profile
    return [path for path in profile.writable if path != profile.workspace and not inside(path, [profile.private_dir])]


async def _copy_workspace(folder: str, workspace: str, frozen: Sequence[str] = ()) -> TreeCopy:
    """Copy the workspace in a thread, which ends soon when nobody waits for it any more."""
    stop = threading.Event()
    work = asyncio.ensure_future(
        asyncio.to_thread(TreeCopy.make, folder, workspace, frozen=frozen, stopped=stop.is_set)
    )
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        stop.set()
        done, _ = await asyncio.wait({work})
        if all(each.exception() is None for each in done):
            work.result().discard()
        raise


async def _start_confined(shells: Shells, copy: TreeCopy) -> Runner:
    """Start a launcher whose commands may write the copy and nothing else."""
    profile = replace(shells.closed_profile(private_view=False), writable=(copy.copy, copy.temp), network=False)
    try:
        return await protocol.choose().start(profile)
    except SandboxFailure as failure:
        raise ToolFailure(
            f"a dry run is not possible here: {failure}", code="tool_unavailable", hint=_HINT
        ) from failure


def never_ran(ended: Ended) -> str:
    """Return why the system could not lay a copy over the workspace, or an empty text."""
    return ended.stopped.removeprefix(NO_LAYER) if ended.stopped.startswith(NO_LAYER) else ""
