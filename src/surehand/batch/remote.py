"""Tasks of a batch on a fleet: each in a remote session of its own; the work is done on the node by the same code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from surehand.batch.work import Setting, Work
from surehand.core.errors import StateError, SurehandError, ToolFailure
from surehand.core.frozen import replace_values
from surehand.registry.loading import load_tool, refer_to

if TYPE_CHECKING:
    from surehand.app import Surehand
    from surehand.batch.tasks import Task
    from surehand.batch.workspaces import Workspaces
    from surehand.policy.approvals import Approver
    from surehand.workspaces.snapshot import Pieces


_Payload: TypeAlias = "tuple[Task, Setting, list[Any], float | None]"


class _Hosted(Protocol):
    """A session as its host describes it: where its workspace is, and its first snapshot."""

    work: str
    base: Any
    app: Surehand


class FleetRunner:
    """Runs attempts at tasks on a fleet (`surehand.cluster.Fleet`), on nodes that have what a task `needs`."""

    def __init__(self, fleet: Any, *, needs: Mapping[str, Any] | None = None) -> None:
        self._fleet = fleet
        self._needs = needs

    def begin(self, setting: Setting, workspaces: Workspaces) -> None:
        """Start with what the tasks of a batch share, and the source of their workspaces."""
        self._setting = replace_values(setting, listener=None, make_approver=None, tools=())  # only what can be pickled
        self._tools = [refer_to(each) for each in setting.tools]
        self._workspaces = workspaces

    async def run(self, task: Task, attempt: int, timeout_s: float | None) -> dict[str, Any]:
        """Run one attempt on some node; one whose node dies is an error, and may be tried again."""
        try:
            snapshot = await self._workspaces.snapshot_of(task)
            session = await self._fleet.session(snapshot, pieces=self._workspaces.pieces, needs=self._needs)
        except (ToolFailure, StateError) as problem:
            hint = problem.hint if isinstance(problem, ToolFailure) else ""
            return {"status": "error", "error": {"code": "precondition_failed", "message": str(problem), "hint": hint}}
        try:
            payload = (task, self._setting, self._tools, timeout_s)
            found: dict[str, Any] = await session.run("surehand.batch.remote:work", payload)
            return found | {"node": session.node}
        except SurehandError as problem:
            error = {"code": "execution_error", "message": str(problem), "hint": "It may have run in part."}
            return {"status": "error", "error": error}
        finally:
            with suppress(Exception):
                await asyncio.shield(asyncio.ensure_future(session.close()))

    async def close(self, *, finished: bool) -> None:
        """Release the snapshots of the tasks."""
        await self._workspaces.close(remove=finished)


async def work(hosted: _Hosted, pieces: Pieces, payload: _Payload) -> dict[str, Any]:
    """Do a task's work in the workspace of a remote session; runs on the node."""
    task, setting, tools, timeout_s = payload

    def ask_home(app: Surehand) -> Approver:
        return hosted.app.approver

    setting = replace_values(
        setting,
        tools=tuple(load_tool(each) for each in tools),
        listener=hosted.app.bus.emit,  # the driver fetches events from there
        make_approver=ask_home,
    )
    return await Work(task, hosted.work, setting).run(hosted.base, pieces, timeout_s)
