"""Calls through the door with the audit on: dispatch, many at once, and registering ten thousand tools."""

from __future__ import annotations

import asyncio
import statistics
import time

from benchmarks.dispatch import Lean
from benchmarks.harness import KIMI_PACKAGES, VIBE_PACKAGES, Harness
from benchmarks.public_door import Peer, contestants, door, scratch
from benchmarks.registry import TOOLS, made

CALLS = 1000
LANGCHAIN = """
import asyncio, sys
from langchain_core.tools import tool
@tool
async def noop(text: str, times: int = 1) -> str:
    "Do nothing."
    return text
loop = asyncio.new_event_loop()
async def many():
    for _ in range(int(sys.argv[1])):
        await noop.ainvoke({"text": "x"})
print("ready", flush=True)
for _ in sys.stdin:
    loop.run_until_complete(many())
    print("done", flush=True)
"""
FASTMCP = """
import asyncio, sys
from fastmcp import Client, FastMCP
server = FastMCP("peer")
@server.tool
def noop(text: str, times: int = 1) -> str:
    return text
loop = asyncio.new_event_loop()
client = Client(server)
loop.run_until_complete(client.__aenter__())
async def many():
    for _ in range(int(sys.argv[1])):
        await client.call_tool("noop", {"text": "x"})
print("ready", flush=True)
for _ in sys.stdin:
    loop.run_until_complete(many())
    print("done", flush=True)
"""
OPENAI_AGENTS = """
import asyncio, json, sys
from agents import function_tool
from agents.tool_context import ToolContext
@function_tool
async def noop(text: str, times: int = 1) -> str:
    "Do nothing."
    return text
loop = asyncio.new_event_loop()
given = json.dumps({"text": "x", "times": 1})
async def many():
    for _ in range(int(sys.argv[1])):
        context = ToolContext(context=None, tool_name="noop", tool_call_id="1", tool_arguments=given)
        await noop.on_invoke_tool(context, given)
print("ready", flush=True)
for _ in sys.stdin:
    loop.run_until_complete(many())
    print("done", flush=True)
"""

VIBE = """
import asyncio, sys
from pydantic import BaseModel
from vibe.core.tools.base import BaseTool, BaseToolConfig, BaseToolState
class Args(BaseModel):
    text: str
    times: int = 1
class Result(BaseModel):
    text: str
class Noop(BaseTool[Args, Result, BaseToolConfig, BaseToolState]):
    async def run(self, args: Args) -> Result:
        return Result(text=args.text)
tool, loop = Noop.from_config(BaseToolConfig()), asyncio.new_event_loop()
async def many():
    for _ in range(int(sys.argv[1])):
        await tool.invoke(text="x")
print("ready", flush=True)
for _ in sys.stdin:
    loop.run_until_complete(many())
    print("done", flush=True)
"""
KIMI = """
import asyncio, sys
from kosong.tooling import CallableTool2, ToolOk
from pydantic import BaseModel
class Params(BaseModel):
    text: str
    times: int = 1
class Noop(CallableTool2[Params]):
    name: str = "noop"
    description: str = "Do nothing."
    params: type[Params] = Params
    async def __call__(self, params: Params):
        return ToolOk(output=params.text)
tool, loop = Noop(), asyncio.new_event_loop()
async def many():
    for _ in range(int(sys.argv[1])):
        assert not (await tool.call({"text": "x"})).is_error
print("ready", flush=True)
for _ in sys.stdin:
    loop.run_until_complete(many())
    print("done", flush=True)
"""


def rows(harness: Harness) -> None:
    """Add the rows of this job."""
    from surehand import ToolCall, tool

    @tool(read_only=True)
    async def noop(text: str, times: int = 1) -> str:
        "Do nothing."
        return text

    @tool
    async def change(text: str, times: int = 1) -> str:
        "Do nothing, and say so to nobody: it counts as a call with effects."
        return text

    @tool(read_only=True)
    async def nap() -> str:
        "Sleep a millisecond."
        await asyncio.sleep(0.001)
        return ""

    lean, apart = Lean(), asyncio.Runner()  # in a loop of its own: ours goes on with what calls have left to write
    others = (
        Peer("openai-agents", ["openai-agents"], OPENAI_AGENTS, str(CALLS)),
        Peer("langchain", ["langchain-core"], LANGCHAIN, str(CALLS)),
        Peer("fastmcp", ["fastmcp"], FASTMCP, str(CALLS)),
        Peer("vibe", VIBE_PACKAGES, VIBE, str(CALLS)),
        Peer("kimi", KIMI_PACKAGES, KIMI, str(CALLS)),
    )
    with scratch() as folder, door(folder, tools=[noop, change, nap], allow=["change"]) as app:

        async def theirs() -> None:
            for _ in range(CALLS):
                await lean.call("noop", {"text": "x"})

        async def ours(name: str) -> None:
            for _ in range(CALLS):
                assert (await app.app.call(name, {"text": "x"})).ok
            app.write_records()

        anchor = ("lean 40-line pipeline", lambda: apart.run(theirs()))
        with contestants(*others) as peers:
            harness.compare(
                f"{CALLS} read-only no-ops, audit on",
                [anchor, *peers, ("surehand", lambda: app.runner.run(ours("noop")))],
                goal="<= 3.0",
            )
        harness.compare(
            f"{CALLS} no-ops with effects, audit on",
            [anchor, ("surehand", lambda: app.runner.run(ours("change")))],
            goal="<= 6",
        )

        async def naps() -> None:
            await app.app.run_calls([ToolCall("nap") for _ in range(1000)])

        async def ideal() -> None:
            for _ in range(100):
                await asyncio.sleep(0.001)

        async def limited() -> None:
            places = asyncio.Semaphore(10)

            async def one() -> None:
                async with places:
                    await asyncio.sleep(0.001)

            await asyncio.gather(*(one() for _ in range(1000)))

        harness.compare(
            "1,000 calls of 1 ms, ten at once",
            [
                ("a tenth of the sleeps", lambda: apart.run(ideal())),
                ("floor: a bare semaphore", lambda: apart.run(limited())),
                ("surehand", lambda: app.runner.run(naps())),
            ],
            goal="<= 1.25",
            rounds=7,
            between=app.write_records,
        )
    apart.close()
    _register(harness)


def _register(harness: Harness) -> None:
    """Register ten thousand tools in an application, and search once."""
    tools, queries = made()

    def plain() -> None:
        assert len({tool.name: tool for tool in tools}) == TOOLS

    with scratch() as folder:

        def ours() -> float:
            with door(folder, builtin=False) as app:
                started = time.process_time()
                for tool in tools:
                    app.app.register(tool)
                app.app.selection.search_tools(queries[0])
                return time.process_time() - started

        def base() -> float:
            started = time.process_time()
            for _ in range(10):
                plain()
            return (time.process_time() - started) / 10

        pairs = [(base(), ours()) for _ in range(3 if harness.quick else 9)]
        ratio = statistics.median(taken for _, taken in pairs) / statistics.median(dict_s for dict_s, _ in pairs)
        harness.fact(f"register {TOOLS:,} tools, search once", "surehand / a dict (CPU)", ratio, "<= 80")
        with door(folder) as app:
            for tool in tools:
                app.app.register(tool)
            gap = app.stall(lambda: app.app.call("ToolSearch", {"query": queries[0]}))
            harness.fact("loop held", f"ToolSearch in {TOOLS:,}", gap * 1000, "<= 50", "ms")
