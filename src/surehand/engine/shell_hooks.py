"""Shell hooks: commands in the settings that receive each call as JSON and may refuse or change it.

    [[hooks]]
    event = "before"            # or "after"
    tools = ["Bash", "mcp__*"]
    command = "python3 check.py"

The command reads one JSON object from stdin (`event`, `tool`, `args`, `call_id`, `session_id`, `cwd`, `source`,
and `result` after a call). It replies by its exit code and, optionally, one JSON object on stdout:

- exit 0 without output: proceed
- `{"decision": "deny", "reason": "..."}`, or exit 2 with the reason on stderr: the call is refused
- `{"args": {...}}` before a call: changed arguments, which are validated and judged
- `{"output": "..."}` after a call: another text for the model
- anything else is a failure of the hook: reported and skipped, or the call fails when the hook is `required`

A hook that a project's own file sets runs in the sandbox of commands; `[sandbox] project_hooks = false` lifts that.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from surehand.commands.program_watch import ProgramWatch
from surehand.commands.session import SHELLS
from surehand.core.call import ToolCall, ToolResult
from surehand.core.errors import ToolFailure
from surehand.core.tool import Tool
from surehand.engine.extensions import Extension
from surehand.sandbox.command import Command, bash
from surehand.sandbox.denials import explain

if TYPE_CHECKING:
    from surehand.core.session import Session
    from surehand.core.settings import HookSettings
    from surehand.sandbox.protocol import Runner

OUTPUT_LIMIT: Final = 1024 * 1024
_TAKE_INPUT: Final = 'exec "$@" <&10 10<&-'
"""Makes descriptor 10 the hook's stdin: the launcher gives commands no stdin, but passes on that descriptor."""
_LIFTED: Final = (
    "; it ran in the sandbox, because a project's own file sets it: the user's [sandbox] project_hooks = false lifts "
    "that"
)
REFUSED: Final = 2


class ShellHook(Extension):
    """A hook from the settings, as an extension."""

    def __init__(self, number: int, settings: HookSettings, session: Session) -> None:
        self.name = f"hook {number}: {settings.command[:60]}"
        self.description = f"{settings.event} {', '.join(settings.tools)}"
        self.tools = settings.tools
        self.required = settings.required
        self.timeout_s = settings.timeout + 1.0  # longer than the command's limit, so that the hook can report that one
        self._settings = settings
        self._session = session
        self._cwd = session.workspace
        self._session_id = session.id
        self._contained = settings.project and session.settings.sandbox.project_hooks
        if settings.event == "before":
            self.before = self._before
        else:
            self.after = self._after

    async def _before(self, tool: Tool, call: ToolCall) -> Mapping[str, Any] | None:
        answer = await self._ask(tool, call, {})
        args = answer.get("args")
        if args is not None and not isinstance(args, dict):
            raise TypeError("`args` in its answer is not an object")
        return cast("dict[str, Any] | None", args)

    async def _after(self, tool: Tool, call: ToolCall, result: ToolResult) -> ToolResult | None:
        answer = await self._ask(tool, call, {"result": result.to_dict()})
        output = answer.get("output")
        return replace(result, output=str(output)) if output is not None else None

    async def _ask(self, tool: Tool, call: ToolCall, more: Mapping[str, Any]) -> dict[str, Any]:
        said = {
            "event": self._settings.event,
            "tool": tool.name,
            "args": call.shown_args,
            "call_id": call.id,
            "source": call.source,
            "cwd": self._cwd,
            "session_id": self._session_id,
            **more,
        }
        code, out, err = await self._run(json.dumps(said, default=str).encode())
        if code == REFUSED:
            raise _veto(tool, self.name, err.strip() or "no reason was given")
        if code != 0:
            raise RuntimeError(f"the command ended with {code}: {err.strip()[:1500]}")
        answer = _parse_answer(out)
        if answer.get("decision") == "deny":
            raise _veto(tool, self.name, str(answer.get("reason") or "no reason was given"))
        return answer

    async def _run(self, said: bytes) -> tuple[int, str, str]:
        """Run the command and return exit code, stdout and stderr."""
        if self._contained:
            launcher = await self._session.keep(SHELLS).launcher()
            if launcher.profile.contained:
                return await self._run_in(launcher, said)
        return await self._run_as_user(said)

    async def _run_in(self, launcher: Runner, said: bytes) -> tuple[int, str, str]:
        """Run the command in the sandbox; explain denials with the setting that lifts them."""
        words = (bash(), "-c", _TAKE_INPUT, "bash", "/bin/sh", "-c", self._settings.command)
        environment = self._session.keep(SHELLS).environment("hook")
        out, err = _Head(), _Head()
        watch = ProgramWatch(self._session, launcher, self.name)
        command = Command(words, self._cwd, environment, script=said)
        run = launcher.run(command, out.feed, err.feed, change_log=watch.change_log)
        try:
            ended = await run.finish(self._settings.timeout)
        finally:
            await watch.finish_with_note(run.ended)
        if ended.stopped == "timeout":
            raise TimeoutError(f"the command did not end within {self._settings.timeout:g} s{_LIFTED}")
        errors = err.text()
        if ended.exit_code not in (0, REFUSED):
            why = explain(errors + out.text(), launcher.profile, ended.exit_code) or ended.stopped
            errors = f"{errors.strip()[:400]} {why}{_LIFTED}"
        return ended.exit_code, out.text(), errors

    async def _run_as_user(self, said: bytes) -> tuple[int, str, str]:
        """Run the command in its own process group, which is killed at the end."""
        process = await asyncio.create_subprocess_exec(
            "/bin/sh",
            "-c",
            self._settings.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            cwd=self._cwd,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(self._settings.timeout):
                out, err, _ = await asyncio.gather(
                    _some(process.stdout), _some(process.stderr), _give(process.stdin, said)
                )
                code = await process.wait()
        except TimeoutError:
            raise TimeoutError(f"the command did not end within {self._settings.timeout:g} s") from None
        finally:
            _end(process)
            await process.wait()
        return code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace")


def _parse_answer(out: str) -> dict[str, Any]:
    if not out.strip():
        return {}
    try:
        answer = json.loads(out)
    except ValueError:
        raise ValueError(f"the command printed no JSON: {out.strip()[:200]!r}") from None
    if not isinstance(answer, dict):
        raise TypeError(f"the command printed {type(answer).__name__}, not an object")
    return cast("dict[str, Any]", answer)


def _veto(tool: Tool, name: str, reason: str) -> ToolFailure:
    return ToolFailure(
        f"{tool.name} was refused by {name}: {reason}",
        code="permission_denied",
        hint="Do it another way, or ask the user.",
        details={"hook": name, "reason": reason},
    )


class _Head:
    """The first bytes of a command's output."""

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._kept += chunk[: OUTPUT_LIMIT - len(self._kept)]

    def text(self) -> str:
        return self._kept.decode("utf-8", "replace")


async def _some(stream: asyncio.StreamReader | None) -> bytes:
    """Read a stream to its end but keep only its first bytes: endless output must not fill the memory."""
    assert stream is not None
    kept = bytearray()
    while block := await stream.read(65536):
        if len(kept) < OUTPUT_LIMIT:
            kept += block
    return bytes(kept[:OUTPUT_LIMIT])


async def _give(stream: asyncio.StreamWriter | None, said: bytes) -> None:
    assert stream is not None
    try:
        stream.write(said)
        await stream.drain()
        stream.close()
        await stream.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        pass  # a command need not read its input


def _end(process: asyncio.subprocess.Process) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
