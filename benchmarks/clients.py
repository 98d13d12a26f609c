"""Many clients of one server over HTTP: the cost of a thousand connected ones, a hundred of them at work.

    python -m benchmarks.clients [CONNECTED] [ACTIVE]

Prints, while clients connect: memory of the server and its helpers (proportional set size, without commands),
descriptors of the server, and processes. Run by hand: it takes minutes.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import tempfile
import time
from typing import Any

import httpx2
import psutil

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
ACCEPT = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


class Client:
    """One client with a session of its own."""

    def __init__(self, http: httpx2.AsyncClient, url: str) -> None:
        self._http, self._url, self._headers = http, url, dict(ACCEPT)

    async def connect(self) -> None:
        answer = await self._http.post(self._url, json=_body("initialize", HELLO), headers=self._headers)
        if answer.status_code != 200:
            raise RuntimeError(f"{answer.status_code} {answer.text[:200]}")
        self._headers["mcp-session-id"] = answer.headers["mcp-session-id"]
        notification = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await self._http.post(self._url, json=notification, headers=self._headers)

    async def call(self, name: str, args: dict[str, Any]) -> bool:
        body = _body("tools/call", {"name": name, "arguments": args}, 2)
        answer = await self._http.post(self._url, json=body, headers=self._headers)
        found = re.search(r"^data: (\{.*\})\r?$", answer.text, re.M)
        result = json.loads(found[1] if found else answer.text).get("result") or {}
        return result.get("isError") is False


def _body(method: str, params: dict[str, Any], number: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def measure(pid: int) -> str:
    """Return memory, descriptors and processes of the server and its helpers."""
    server = psutil.Process(pid)
    family = [server, *server.children(recursive=True)]
    total = 0
    for each in family:
        try:
            if "sleep" not in each.name():
                total += each.memory_full_info().pss
        except psutil.Error:
            continue
    return f"{total / 2**20:7.0f} MiB  {server.num_fds():6} descriptors  {len(family):5} processes"


async def main(connected: int, active: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        workspace = os.path.join(folder, "project")
        os.mkdir(workspace)
        with open(os.path.join(workspace, "a.txt"), "w") as file:
            file.write("one\n" * 100)
        env = os.environ | {"SUREHAND_HOME": os.path.join(folder, "home"), "HOME": folder}
        argv = [sys.executable, "-m", "surehand", "serve", "--http", "0", "--no-token", "--cwd", workspace]
        argv += ["--allow", "Bash(sleep:*)"]
        process = await asyncio.create_subprocess_exec(*argv, stderr=asyncio.subprocess.PIPE, env=env)
        try:
            await _drive(process, connected, active)
        finally:
            process.terminate()
            await process.wait()


async def _drive(process: asyncio.subprocess.Process, connected: int, active: int) -> None:
    assert process.stderr is not None
    found = re.search(rb"http://\S+", await process.stderr.readline())
    assert found is not None
    url = found[0].decode()
    draining = asyncio.ensure_future(process.stderr.read())
    print(f"started            {measure(process.pid)}")
    limits = httpx2.Limits(max_connections=connected + 10, max_keepalive_connections=connected + 10)
    async with httpx2.AsyncClient(limits=limits, timeout=300) as http:
        clients = [Client(http, url) for _ in range(connected)]
        began = time.perf_counter()
        for start in range(0, connected, 20):
            some = clients[start : start + 20]
            await asyncio.gather(*(each.connect() for each in some))
            await asyncio.gather(*(each.call("Read", {"file_path": "a.txt"}) for each in some))
            if (start + 20) % 200 == 0:
                print(f"{start + 20:5} connected    {measure(process.pid)}  {time.perf_counter() - began:5.0f} s")
        busy = [asyncio.ensure_future(each.call("Bash", {"command": "sleep 20"})) for each in clients[:active]]
        await asyncio.sleep(15)
        print(f"{active:5} at work      {measure(process.pid)}")
        print(f"      of them served: {sum(await asyncio.gather(*busy))}")
        answered = await asyncio.gather(*(each.call("Read", {"file_path": "a.txt"}) for each in clients))
        print(f"      all read again: {sum(answered)} of {connected}")
        await asyncio.sleep(75)
        print(f"      at rest         {measure(process.pid)}")
    draining.cancel()


if __name__ == "__main__":
    asyncio.run(main(*(int(word) for word in (*sys.argv[1:], "1000", "100")[:2])))
