"""Text that the editor has not saved: read, edited, written back byte for byte, and undone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.acp.editor import AgentPool, Editor, ask
from tests.providers.model_stub import Stub

from acp import schema
from surehand import ToolCall, ToolResult
from surehand.acp import convert
from surehand.acp.conversation import unsaved_bytes

pytestmark = pytest.mark.spec("INT-2")
shared = pytest.mark.asyncio(loop_scope="module")

FILES = schema.FileSystemCapabilities(read_text_file=True, write_text_file=True)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def run(
    agents: AgentPool, stub: Stub, editor: Editor, work: Path, env: dict[str, str], *calls: tuple[str, dict[str, Any]]
) -> str:
    """Have the model make calls, one a turn; return the session's name."""
    stub.script = [{"calls": [(f"c{at}", name, json.dumps(args))]} for at, (name, args) in enumerate(calls)]
    stub.script.append({"text": "done"})
    async with agents.sit(editor, work, env, "--mode", "accept-edits", fs=FILES) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=ask("go"))
    return session.session_id


def results(stub: Stub) -> list[str]:
    return [each["content"] for each in stub.requests[-1]["messages"] if each["role"] == "tool"]


def undo(env: dict[str, str], work: Path, *words: str) -> None:
    command = [sys.executable, "-m", "surehand", "undo", *words]
    done = subprocess.run(command, env=env, cwd=work, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


@shared
async def test_an_edit_works_on_what_is_not_saved_and_undo_leaves_the_users_text(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    path = work / "a.txt"
    path.write_bytes(b"one\r\ntwo\r\nthree\n")
    editor = Editor()
    editor.buffers[str(path)] = "one\ntyped\ntwo\nthree\n"
    session = await run(
        *(agents, stub, editor, work, env),
        ("Read", {"file_path": str(path)}),
        ("Edit", {"file_path": str(path), "old_string": "two", "new_string": "2"}),
    )
    assert "typed" in results(stub)[0]
    assert "not saved yet" in results(stub)[0]
    assert path.read_bytes() == b"one\r\ntyped\r\n2\r\nthree\n"
    assert editor.written == [(str(path), "one\r\ntyped\r\n2\r\nthree\n")]
    assert str(path) not in editor.buffers
    undo(env, work, "--session", session)
    assert path.read_bytes() == b"one\r\ntyped\r\ntwo\r\nthree\n"
    undo(env, work, "--session", session)
    assert path.read_bytes() == b"one\r\ntwo\r\nthree\n"


@shared
async def test_reading_saves_nothing(agents: AgentPool, stub: Stub, env: dict[str, str], work: Path) -> None:
    path = work / "a.txt"
    path.write_text("one\n")
    editor = Editor()
    editor.buffers[str(path)] = "one\ntyped\n"
    await run(agents, stub, editor, work, env, ("Read", {"file_path": str(path)}))
    assert "typed" in results(stub)[0]
    assert path.read_text() == "one\n"
    assert editor.written == []


@shared
async def test_what_the_user_types_after_the_read_stops_an_edit(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    path = work / "a.txt"
    path.write_text("one\n")
    editor = Editor()
    stub.script = []
    steps = iter(
        [
            {"calls": [("r", "Read", json.dumps({"file_path": str(path)}))]},
            {"calls": [("e", "Edit", json.dumps({"file_path": str(path), "old_string": "one", "new_string": "1"}))]},
            {"text": "done"},
        ]
    )

    def answer(body: dict[str, Any]) -> dict[str, Any]:
        if len(body["messages"]) > 3:
            editor.buffers[str(path)] = "one\ntyped since\n"
        return next(steps)

    stub.answer = answer  # type: ignore[method-assign]
    async with agents.sit(editor, work, env, "--mode", "accept-edits", fs=FILES) as agent:
        session = await agent.new_session(cwd=str(work), mcp_servers=[])
        await agent.prompt(session_id=session.session_id, prompt=ask("go"))
    assert "modified since read" in results(stub)[1]
    assert "typed since" in results(stub)[1]
    assert path.read_text() == "one\n"


@shared
async def test_bytes_stay_as_they_are_where_the_editor_saves_in_its_own_way(
    agents: AgentPool, stub: Stub, env: dict[str, str], work: Path
) -> None:
    path = work / "latin.txt"
    path.write_bytes("gr\u00fcn\r\nblau\r\n".encode("latin-1"))
    editor = Editor()
    await run(
        *(agents, stub, editor, work, env),
        ("Read", {"file_path": str(path)}),
        ("Edit", {"file_path": str(path), "old_string": "blau", "new_string": "rot"}),
        ("Write", {"file_path": str(work / "new.txt"), "content": "x\r\n"}),
    )
    assert path.read_bytes() == "gr\u00fcn\r\nrot\r\n".encode("latin-1")
    assert (work / "new.txt").read_bytes() == b"x\r\n"
    assert [text for _, text in editor.written] == ["gr\u00fcn\r\nrot\r\n", "x\r\n"]


@pytest.mark.parametrize(
    ("on_disk", "text", "expected"),
    [
        (b"a\r\nb\n", "a\nb\n", None),
        (b"", "", None),
        (b"", "new\n", b"new\n"),
        (b"a\rb\r", "a\nc\n", b"a\rc\r"),
        (b"\xef\xbb\xbfa\n", "a\nb", b"\xef\xbb\xbfa\nb"),
        (b"a\r\nb\r\nc\n", "a\nx\nb\nc", b"a\r\nx\r\nb\r\nc"),
        ("a\nb\n".encode("utf-16"), "a\nc\n", "a\nc\n".encode("utf-16")),
        ("gr\u00fcn\nblau\n".encode("latin-1"), "gr\u00fcn\n\u65e5\n", "gr\u00fcn\n\u65e5\n".encode()),
        (b"\x00\x01\x02\xff", "text", None),
    ],
)
def test_lines_that_are_the_same_keep_their_bytes(on_disk: bytes, text: str, expected: bytes | None) -> None:
    assert unsaved_bytes(on_disk, text) == expected


def test_half_of_a_character_is_replaced_before_it_reaches_the_editor() -> None:
    call = ToolCall("Read", {"file_path": "/w/\udcff.txt"})
    for update in (
        convert.agent_text("half \ud83d of it"),
        convert.call_start(call, "/w", "read"),
        convert.call_end(call, ToolResult(output="\udcff", data={"exit_code": 1}), "/w", terminal=True),
    ):
        sent = convert.encodable(update)
        assert "?" in sent.model_dump_json(by_alias=True), sent
        assert sent.model_dump(by_alias=True).keys() == update.model_dump(by_alias=True).keys()
    whole = convert.agent_text("whole 😀")
    assert convert.encodable(whole) is whole
