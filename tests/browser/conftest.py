"""A real Chromium, and a console and sessions in separate processes."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@pytest.fixture(scope="session")
def playwright() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed: make test-browser")
    with sync_api.sync_playwright() as started:
        yield started


@pytest.fixture(scope="session")
def browser(playwright: Any) -> Iterator[Any]:
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    found = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
    yield found
    found.close()


class ConsoleProcess:
    """`surehand console` in a separate process."""

    def __init__(self) -> None:
        words = [sys.executable, "-m", "surehand", "console", "--port", "0", "--json"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.url = str(json.loads(self.process.stdout.readline())["url"])

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


@pytest.fixture
def console() -> Iterator[ConsoleProcess]:
    started = ConsoleProcess()
    yield started
    started.close()


class Pages:
    """Opens pages of the console and collects their errors."""

    def __init__(self, browser: Any, console: ConsoleProcess) -> None:
        self._browser = browser
        self._console = console
        self._contexts: list[Any] = []
        self.problems: list[str] = []

    def open(self, where: str = "live", **options: Any) -> Any:
        """Sign in with the console's address, and go to a page."""
        context = self._browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        context.set_default_timeout(20_000)
        self._contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda problem: self.problems.append(f"error: {problem}"))
        page.on("dialog", lambda asked: (self.problems.append(f"a script ran: {asked.message}"), asked.dismiss()))
        page.on("console", lambda said: self._note(said.text) if said.type == "error" else None)
        page.goto(self._console.url)
        page.wait_for_selector("html[data-ready=live]")
        if where != "live":
            page.evaluate(f"location.hash = '#/{where}'")
            page.wait_for_selector(f"html[data-ready={where}]")
        return page

    def _note(self, text: str) -> None:
        if not text.startswith("Failed to load resource"):  # an answer that says no is no fault of the page
            self.problems.append(text)

    def close(self) -> None:
        for context in self._contexts:
            context.close()


@pytest.fixture
def pages(browser: Any, console: ConsoleProcess) -> Iterator[Pages]:
    opened = Pages(browser, console)
    yield opened
    opened.close()
    assert opened.problems == []


SESSION = """
import asyncio, json, os, sys
from surehand import Surehand, tool

@tool(read_only=True)
async def echo(text: str = "") -> str:
    "Say something again."
    return text

@tool(read_only=True)
async def wait() -> str:
    "Wait until it is stopped."
    await asyncio.Event().wait()
    return ""

async def main():
    folder, name = sys.argv[1:3]
    async with Surehand(folder, session=name, tools=[echo, wait]) as app:
        print("ready", flush=True)
        loop = asyncio.get_running_loop()
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            tool, args = json.loads(line)
            result = await app.call(tool, args, source="model")
            print(json.dumps({"ok": result.ok, "output": result.output}), flush=True)

asyncio.run(main())
"""


class SessionProcess:
    """A program that uses the library: makes the calls it is told to, one after the other."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self._waiting = 0
        program = folder.parent / "agent.py"
        program.write_text(SESSION)
        words = [sys.executable, str(program), str(folder), name]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._read() == "ready"

    def _read(self, within_s: float = 40.0) -> str:
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], within_s)
        assert ready, "the session came to no result: does it wait for an answer?"
        return self.process.stdout.readline().strip()

    def begin(self, tool: str, **args: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps([tool, args]) + "\n")
        self.process.stdin.flush()
        self._waiting += 1

    def result(self) -> dict[str, Any]:
        found = json.loads(self._read())
        self._waiting -= 1
        return found

    def call(self, tool: str, **args: Any) -> dict[str, Any]:
        self.begin(tool, **args)
        return self.result()

    def close(self) -> None:
        assert self.process.stdin is not None
        if self._waiting:  # a call that waits for an answer nobody gives any more
            self.process.kill()
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Any]:
    """Start sessions in separate processes: `session("name")`."""
    started: list[SessionProcess] = []

    def start(name: str) -> SessionProcess:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        started.append(SessionProcess(folder, name))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture(autouse=True, scope="session")
def _empty_profile() -> Iterator[None]:
    """Give Chromium an empty HOME: some of its files belong to no profile."""
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("XDG_CONFIG_HOME")
        os.environ["XDG_CONFIG_HOME"] = folder
        yield
        if before is None:
            del os.environ["XDG_CONFIG_HOME"]
        else:
            os.environ["XDG_CONFIG_HOME"] = before
