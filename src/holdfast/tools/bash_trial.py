"""The dry run of `Bash`: the command runs for real on a layer over the workspace; the layer is shown and dropped."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from holdfast.core.errors import ToolFailure
from holdfast.core.tool import Preview
from holdfast.host import overlay
from holdfast.host.output import STDERR_LIMIT, STDOUT_LIMIT, Stream, marked
from holdfast.host.process import Ended
from holdfast.host.sandbox import probe
from holdfast.host.shells import SHELLS
from holdfast.tools.bash import command_of

if TYPE_CHECKING:
    from holdfast.core.context import ToolContext


async def tried(command: str, timeout_s: float, ctx: ToolContext) -> Preview:
    """Return output, exit code and the diff of every file a command would change."""
    shells = ctx.session.keep(SHELLS)
    launcher = await shells.trial_launcher()
    if launcher is None:
        raise ToolFailure(
            f"a command can be tried only where there are namespaces: {probe.abilities().why_not}",
            hint="Without a trial, `holdfast policy check` says which files and hosts it would touch.",
        )
    folder, workspace = shells.trial_folder(ctx.call.id), launcher.plan.workspace
    if f"{folder}/".startswith(workspace.rstrip("/") + "/"):
        raise ToolFailure(f"a command cannot be tried here: the workspace {workspace} holds the layer itself")
    trial = await asyncio.to_thread(overlay.Trial.make, folder, workspace)
    stdout, stderr = Stream(STDOUT_LIMIT), Stream(STDERR_LIMIT)
    try:
        run = launcher.run(command_of(command, ctx, shells), stdout.feed, stderr.feed, overlay=trial.layer)
        ended = await run.finish(timeout_s)
        differences = await asyncio.to_thread(trial.differences)
        diff = await asyncio.to_thread(overlay.render, differences)
        changes = [each.to_dict() for each in differences]
    finally:
        await asyncio.to_thread(trial.drop)
    return _preview(stdout.show().text, stderr.show().text, ended, diff, changes)


def _preview(stdout: str, stderr: str, ended: Ended, diff: str, changes: list[dict[str, object]]) -> Preview:
    code = f"it ended early: {ended.stopped}" if ended.stopped else f"exit code {ended.exit_code}"
    head = f"Tried on a copy of the workspace, without network: {code}; {_counted(changes)}."
    printed = "\n".join(part for part in (stdout.rstrip("\n"), marked(stderr)) if part)
    text = "\n".join(part for part in (head, printed) if part)
    data = {"exit_code": ended.exit_code, "stdout": stdout, "stderr": stderr, "changes": changes, "diff": diff}
    if ended.stopped:
        data["stopped"] = ended.stopped
    return Preview(text, f"{text}\n{diff}" if diff else text, data | {"usage": ended.usage()})


def _counted(changes: list[dict[str, object]]) -> str:
    if not changes:
        return "no file would change"
    return "one path would change" if len(changes) == 1 else f"{len(changes)} paths would change"
