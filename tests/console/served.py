"""A console served over real HTTP on a free port, and a client that has signed in."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2

from surehand.console.access import TOKEN_HEADER
from surehand.console.live import Feed
from surehand.console.server import Console
from surehand.web.local_server import ServedAddress, serve_app


class Served:
    """A running console, and requests to it."""

    def __init__(self, console: Console, port: int, client: httpx2.AsyncClient, code: str) -> None:
        self.console = console
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.client = client
        self.code = code

    async def sign_in(self) -> None:
        answer = await self.client.post("/api/login", json={"code": self.code})
        self.client.headers[TOKEN_HEADER] = answer.json()["token"]

    async def get(self, path: str) -> Any:
        answer = await self.client.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def post(self, path: str, body: dict[str, Any] | None = None, status: int = 200) -> Any:
        answer = await self.client.post(path, json=body or {})
        assert answer.status_code == status, answer.text
        return answer.json()

    async def events(self, query: str = "") -> AsyncIterator[dict[str, Any]]:
        async with self.client.stream("GET", f"/api/events{query}", timeout=300) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line[6:])

    async def until(self, wanted: Callable[[Feed], bool]) -> None:
        """Poll until a condition on the console holds."""
        async with asyncio.timeout(120):
            while not wanted(self.console.feed):
                await asyncio.sleep(0.01)

    async def until_read(self) -> None:
        """Wait until the event stream has a reader."""
        async with asyncio.timeout(120):
            while not self.console.feed.readers:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def serve_console(*, signed_in: bool = True) -> AsyncGenerator[Served]:
    """Serve a console inside the block."""
    address = ServedAddress("127.0.0.1")
    console = Console(address)
    ports: asyncio.Queue[int] = asyncio.Queue()
    async with console.run():
        serving = asyncio.create_task(serve_app(console.app, address, 0, ports.put_nowait))
        try:
            port = await ports.get()
            async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=120) as client:
                served = Served(console, port, client, console.access.make_code())
                if signed_in:
                    await served.sign_in()
                yield served
        finally:
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)
