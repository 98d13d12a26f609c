"""The examples, each as a program of its own: it calls a command, asks for permission, and says what the model said."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integrations.script import TOUCH, calling, responding
from tests.integrations.test_google_adk import saying
from tests.mcp.messages_stub import messages_stub
from tests.providers.model_stub import Stub

pytestmark = pytest.mark.spec("INT-1")

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "frameworks"
CALL = ("1", "Bash", TOUCH)
CHAT = [calling(CALL), {"text": "it is done"}]
RESPONSES = [responding(CALL), responding(text="it is done")]
GEMINI = [saying(CALL), saying(text="it is done")]


async def run_example(name: str, workspace: Path, environment: dict[str, str], *words: str, answer: str = "y") -> str:
    """Return what an example printed."""
    program = await asyncio.create_subprocess_exec(
        sys.executable,
        str(EXAMPLES / name),
        *words,
        cwd=workspace,
        env={**os.environ, **environment},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    output, errors = await program.communicate(f"{answer}\n".encode())
    assert program.returncode == 0, errors.decode()[-3000:]
    return output.decode()


def find_keys(address: str) -> dict[str, str]:
    return {
        "OPENAI_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "none",
        "ANTHROPIC_BASE_URL": address,
        "ANTHROPIC_API_KEY": "none",
        "GOOGLE_GEMINI_BASE_URL": address,
        "GOOGLE_API_KEY": "none",
    }


@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("with_pydantic_ai.py", CHAT),
        ("with_langchain.py", CHAT),
        ("with_openai_agents.py", RESPONSES),
        ("with_openai.py", RESPONSES),
        ("with_anthropic.py", CHAT),
        ("with_google_adk.py", GEMINI),
    ],
)
async def test_an_example_asks_and_does_what_was_allowed(name: str, script: Any, stub: Stub, workspace: Path) -> None:
    stub.script = [dict(step) for step in script]
    output = await run_example(name, workspace, find_keys(stub.address))
    assert "touch made.txt" in output
    assert output.rstrip().endswith("it is done")
    assert (workspace / "made.txt").exists()


async def test_an_example_does_not_do_what_was_refused(stub: Stub, workspace: Path) -> None:
    stub.script = [dict(step) for step in CHAT]
    await run_example("with_pydantic_ai.py", workspace, find_keys(stub.address), answer="n")
    assert not (workspace / "made.txt").exists()


async def test_the_example_of_the_claude_sdk_asks_too(workspace: Path, tmp_path: Path) -> None:
    async with messages_stub() as (_, url):
        environment = {**find_keys(url), "CLAUDE_CONFIG_DIR": str(tmp_path / "claude"), "ENABLE_TOOL_SEARCH": "false"}
        environment["CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC"] = "1"
        prompt = 'CALL mcp__surehand__Bash {"command": "touch made.txt"}'
        output = await run_example("with_claude_sdk.py", workspace, environment, prompt)
    assert "result (ok)" in output
    assert (workspace / "made.txt").exists()


def test_every_framework_has_its_example() -> None:
    adapters = Path(EXAMPLES).parent.parent / "src" / "surehand" / "integrations"
    shared = {"__init__", "toolbox", "messages"}
    named = {path.stem.removeprefix("with_") for path in EXAMPLES.glob("with_*.py")}
    assert named == {path.stem for path in adapters.glob("*.py")} - shared
