"""The console: what following costs a call, how soon an event is there, fifty sessions at once, ten thousand calls."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Generator
from contextlib import contextmanager
from typing import Any

from benchmarks.harness import Harness

CALLS = 500
RECORDED = 10_000
PROCESSES, SESSIONS, A_SECOND, FOR_S = 10, 5, 20, 5

WORK = """
import asyncio, sys
from surehand import Surehand, tool

@tool(read_only=True)
async def noop(text: str = "") -> str:
    "Do nothing."
    return text

async def work(folder, calls, pause):
    async with Surehand(folder, tools=[noop]) as app:
        due = asyncio.get_running_loop().time()
        for number in range(calls):
            await app.call("noop", {"text": str(number)})
            due += pause
            await asyncio.sleep(max(0.0, due - asyncio.get_running_loop().time()))

async def main():
    folder, sessions, calls, pause = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
    await asyncio.gather(*(work(folder, calls, pause) for _ in range(sessions)))

asyncio.run(main())
"""


def rows(harness: Harness) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["SUREHAND_HOME"] = os.path.join(scratch, "home")
        workspace = os.path.join(scratch, "workspace")
        os.makedirs(workspace)
        try:
            asyncio.run(_dispatch(harness, workspace))
            asyncio.run(_latency(harness, workspace))
            asyncio.run(_many(harness, scratch))
            _page(harness, workspace)
        finally:
            del os.environ["SUREHAND_HOME"]


async def _dispatch(harness: Harness, workspace: str) -> None:
    from surehand import Surehand, tool
    from surehand.state.local_rpc import follow_sessions

    @tool(read_only=True)
    async def noop(text: str = "") -> str:
        "Do nothing."
        return text

    async def calls(app: Surehand) -> float:
        started = time.perf_counter()
        for _ in range(CALLS):
            await app.call("noop", {"text": "x"})
        return time.perf_counter() - started

    without = Surehand(workspace, tools=[noop])  # never entered: it has no channel
    took: dict[str, list[float]] = {"no channel": [], "channel open": [], "channel followed": []}
    async with Surehand(workspace, tools=[noop]) as opened:
        for _ in range(3 if harness.quick else 15):
            took["no channel"].append(await calls(without))
            took["channel open"].append(await calls(opened))
            async with follow_sessions() as events:
                reading = asyncio.create_task(_drain(events))
                await asyncio.sleep(0.05)
                took["channel followed"].append(await calls(opened))
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
    await without.close()
    base = statistics.median(took["no channel"])
    for name, goal in (("channel open", "<= 1.2"), ("channel followed", "")):
        ratio = statistics.median(took[name]) / base
        harness.fact("a no-op call, to one without a channel", name, ratio, goal)


async def _drain(events: AsyncIterator[Any]) -> None:
    async for _ in events:
        pass


@contextmanager
def _console() -> Generator[str]:
    words = [sys.executable, "-m", "surehand", "console", "--port", "0", "--json"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield str(json.loads(process.stdout.readline())["url"])
    finally:
        process.terminate()
        process.wait()


class _Client:
    """A program that has signed in and follows the stream."""

    def __init__(self, url: str) -> None:
        import httpx2

        origin, _, self._code = url.partition("/#code=")
        self.http = httpx2.AsyncClient(base_url=origin, timeout=60)

    async def events(self) -> AsyncIterator[dict[str, Any]]:
        await self.http.post("/api/login", json={"code": self._code})
        async with self.http.stream("GET", "/api/events") as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])


async def _latency(harness: Harness, workspace: str) -> None:
    from surehand import Surehand

    with _console() as url:
        client = _Client(url)
        async with Surehand(workspace) as app:
            late: list[float] = []
            events = client.events()
            async for event in events:
                if event["kind"] == "hello":
                    break
            for _ in range(10 if harness.quick else 100):
                await app.call("Glob", {"pattern": "*"})
                async for event in events:
                    if event["kind"] == "call_finished":
                        late.append((time.time() - event["at"]) * 1000)
                        break
            await events.aclose()  # type: ignore[attr-defined]
        await client.http.aclose()
    late.sort()
    harness.fact("from a call's end to an API client", "half within", statistics.median(late), "<= 200", "ms")
    harness.fact("from a call's end to an API client", "95 of 100 within", late[int(len(late) * 0.95)], "<= 200", "ms")


async def _many(harness: Harness, scratch: str) -> None:
    sessions, for_s = PROCESSES * SESSIONS, 1 if harness.quick else FOR_S
    calls = A_SECOND * for_s
    with _console() as url:
        client = _Client(url)
        events = client.events()
        await anext(events)
        processes = [
            await asyncio.create_subprocess_exec(
                sys.executable, "-c", WORK, _folder(scratch, number), str(SESSIONS), str(calls), str(1 / A_SECOND)
            )
            for number in range(PROCESSES)
        ]
        finished = lost = ended = 0
        async for event in events:
            finished += event["kind"] == "call_finished"
            lost += int(event.get("lost", 0)) if event["kind"] == "gap" else 0
            ended += event["kind"] in ("session_closed", "session_lost")
            if ended == sessions:
                break
        for process in processes:
            await process.wait()
        await events.aclose()  # type: ignore[attr-defined]
        await client.http.aclose()
    job = f"{sessions} sessions, {A_SECOND} calls a second each"
    harness.fact(job, "calls seen of those made", finished / (sessions * calls), "1")
    harness.fact(job, "events lost, all counted", lost, "0")


def _folder(scratch: str, number: int) -> str:
    path = os.path.join(scratch, f"many-{number}")
    os.makedirs(path, exist_ok=True)
    return path


def _watch(page: Any, workspace: str, calls: int) -> list[float]:
    """Return how many milliseconds after their start calls of another process stood on the page, the quickest first."""
    before: set[str] = set(
        page.evaluate(
            """() => {
            window.seen = {};
            const look = () => {
                for (const row of document.querySelectorAll('.call[data-call]')) seen[row.dataset.call] ??= Date.now();
            };
            new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
            look();
            return Object.keys(seen);
            }"""
        )
    )
    subprocess.run([sys.executable, "-c", WORK, workspace, "1", str(calls), "0.05"], check=True)
    page.wait_for_timeout(1000)
    seen: dict[str, float] = page.evaluate("window.seen")
    rows: list[dict[str, Any]] = page.evaluate("fetch('/api/calls?limit=500').then((answer) => answer.json())")["calls"]
    began = {row["call_id"]: row["at"] * 1000 for row in rows}
    late = sorted(at - began[id] for id, at in seen.items() if id in began.keys() - before)
    assert len(late) >= calls * 0.9, f"{len(late)} of {calls} calls were seen on the page"
    return late


def _page(harness: Harness, workspace: str) -> None:
    recorded = 500 if harness.quick else RECORDED
    words = [sys.executable, "-c", WORK, workspace, "1", str(recorded), "0"]
    subprocess.run(words, check=True)
    chromium = shutil.which("chromium")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        sys.stderr.write("the page is not timed: `make test-browser` installs what that needs\n")
        return
    from playwright.sync_api import sync_playwright

    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
    with _console() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        page = browser.new_page()
        page.goto(url)
        page.locator(".call").first.wait_for()
        took: list[float] = []
        for _ in range(3 if harness.quick else 9):
            started = time.perf_counter()
            page.reload()
            page.locator(".call").first.wait_for()
            took.append(time.perf_counter() - started)
        late = _watch(page, workspace, 10 if harness.quick else 100)
        browser.close()
    shown = statistics.median(late)
    harness.fact("from a call's start to the page", "half within", shown, "<= 200", "ms")
    harness.fact("from a call's start to the page", "95 of 100 within", late[int(len(late) * 0.95)], "<= 200", "ms")
    ready = statistics.median(took) * 1000
    harness.fact(f"page ready, {recorded:,} recorded calls", "Live in Chromium", ready, "<= 1000", "ms")
