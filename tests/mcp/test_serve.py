"""`surehand serve` as clients start it: a process on standard input and output, and a port on this machine."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest

from surehand import Settings, Surehand
from surehand.core.errors import SettingsError
from surehand.mcp.server.http import Door, Remembered, serve_http
from surehand.mcp.server.serving import Serving
from surehand.policy import trust
from surehand.state import locations
from surehand.web import local_server

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Client:
    """Writes lines to a server and reads lines from it."""

    def __init__(self, workspace: Path, *more: str) -> None:
        words = [sys.executable, "-m", "surehand", "serve", "--stdio", "--cwd", str(workspace), *more]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self.ask(1, "initialize", HELLO)
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def write(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def send(self, message: dict[str, Any]) -> None:
        self.write(json.dumps(message))

    def read(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def ask(self, number: Any, method: str, params: dict[str, Any]) -> dict[str, Any]:
        self.send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        while (said := self.read()).get("method") is not None:  # it also tells of changes
            pass
        return said


NOISY = """
import os
from surehand import tool

@tool(read_only=True)
def noisy() -> str:
    "Print where the protocol speaks."
    print("noise", flush=True)
    os.write(1, b"more noise")
    os.system("echo and a child's")
    return "quiet"
"""


@contextmanager
def started(workspace: Path, *more: str) -> Generator[Client]:
    made = Client(workspace, *more)
    try:
        yield made
    finally:
        made.process.kill()
        made.process.wait()
        for stream in (made.process.stdin, made.process.stdout, made.process.stderr):
            if stream is not None:
                stream.close()


@pytest.fixture
def client(tmp_path: Path) -> Generator[Client]:
    folder = tmp_path / ".surehand" / "tools"
    folder.mkdir(parents=True)
    (folder / "noisy.py").write_text(NOISY)
    trust.add_trust(str(tmp_path))
    with started(tmp_path, "--allow", "Bash(sleep:*)", "--tool-allow", "Bash,Read,time.*,tools.echo,noisy") as made:
        yield made


def test_a_client_on_stdio_gets_answers_errors_and_a_clean_end(client: Client, tmp_path: Path) -> None:
    client.write("{not json")
    assert client.read()["error"]["code"] == -32700
    client.write('{"jsonrpc": "2.0", "neither": "request nor answer"}')
    assert client.read()["error"]["code"] == -32600
    refused_ones: list[dict[str, Any]] = [
        {"id": 50, "params": []},
        {"id": 51, "jsonrpc": "1.0"},
        {"id": None},
        {"id": 1.5},
    ]
    for number, wrong in enumerate(refused_ones):
        client.send({"jsonrpc": "2.0", "method": "ping", **wrong})
        refused = client.read()
        assert refused["error"]["code"] == -32600
        assert refused["id"] == (50, 51, None, None)[number]
    assert client.ask(2, "no/such/method", {})["error"]["code"] == -32601
    names = {each["name"] for each in client.ask(3, "tools/list", {})["result"]["tools"]}
    assert {"Bash", "Read"} <= names
    assert "Write" not in names
    hidden = client.ask(4, "tools/call", {"name": "Write", "arguments": {"file_path": "x", "content": "y"}})
    assert hidden["result"]["isError"] is True
    assert not (tmp_path / "x").exists()
    said = client.ask(5, "tools/call", {"name": "tools.echo", "arguments": {"text": "hello"}})
    assert "hello" in json.dumps(said["result"]["content"])
    assert client.ask(7, "tools/call", {"name": "noisy"})["result"]["content"] == [{"type": "text", "text": "quiet"}]
    seconds = f"{300 + os.getpid()}.5"
    call = {"name": "Bash", "arguments": {"command": f"sleep {seconds}"}}
    client.send({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": call})
    wait_for(lambda: processes_with(f"sleep\0{seconds}"))
    assert client.process.stdin is not None
    assert client.process.stdout is not None
    client.process.stdin.close()
    client.process.stdout.close()
    assert client.process.wait(60) == 0
    assert not processes_with(seconds)


def wait_for(condition: Any, seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def processes_with(word: str) -> list[str]:
    found: list[str] = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
        except OSError:
            continue
        if word in line:
            found.append(line)
    return found


def test_answers_arrive_though_the_client_closes_its_side_early(tmp_path: Path) -> None:
    hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
    call = {"name": "tools.echo", "arguments": {"text": "late"}}
    lines = [
        hello,
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call},
    ]
    words = [sys.executable, "-m", "surehand", "serve", "--cwd", str(tmp_path)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    ran = subprocess.run(words, input=text, capture_output=True, text=True, timeout=300, check=True)
    answers = [json.loads(line) for line in ran.stdout.splitlines()]
    assert [each["id"] for each in answers] == [1, 2]
    assert "late" in ran.stdout


def test_a_client_that_began_with_a_handshake_is_refused_requests_of_the_newer_era(client: Client) -> None:
    envelope = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    refused = client.ask(2, "tools/list", {"_meta": envelope})
    assert refused["error"]["code"] == -32600
    assert client.ask(3, "tools/list", {"_meta": {"progressToken": 1}})["result"]["tools"]


def test_what_a_client_says_before_its_first_request_is_heard_and_bounded(tmp_path: Path) -> None:
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    lines = [*[notice] * 100, {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}, notice]
    lines.append({"jsonrpc": "2.0", "id": 2, "method": "ping"})
    words = [sys.executable, "-m", "surehand", "serve", "--cwd", str(tmp_path)]
    for given, numbers in ((lines, [1, 2]), (lines[:100], [])):
        text = "".join(json.dumps(line) + "\n" for line in given)
        ran = subprocess.run(words, input=text, capture_output=True, text=True, timeout=300, check=True)
        assert [json.loads(line)["id"] for line in ran.stdout.splitlines()] == numbers, ran.stderr


# -- other servers' tools beside our own --------------------------------------------------------------------------

ROUGH = str(Path(__file__).with_name("rough_server.py"))


def configure(**servers: list[str]) -> None:
    """Write MCP servers, each a command, into the user's settings."""
    tables = [
        f"[mcp_servers.{name}]\ncommand = {json.dumps(words[0])}\nargs = {words[1:]!r}\n"
        for name, words in servers.items()
    ]
    path = Path(locations.user_settings())
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(tables))


def names(client: Client) -> set[str]:
    return {each["name"] for each in client.ask(2, "tools/list", {})["result"]["tools"]}


def called(client: Client, name: str, **args: Any) -> dict[str, Any]:
    return client.ask(3, "tools/call", {"name": name, "arguments": args})


def test_other_servers_tools_are_served_when_asked_for_and_judged_like_our_own(tmp_path: Path) -> None:
    configure(rough=[sys.executable, "-S", ROUGH], gone=["/no/such/program"])
    with started(tmp_path) as client:
        assert not [name for name in names(client) if name.startswith("mcp__")]
        assert called(client, "mcp__rough__echo", text="x")["error"]["code"] == -32602
    with started(tmp_path, "--servers", "*", "--allow", "mcp__rough__echo", "--tool-allow", "Read,mcp__*") as client:
        wait_for(lambda: {"Read", "mcp__rough__echo", "mcp__rough__rich"} <= names(client))
        assert "Write" not in names(client)
        assert called(client, "mcp__rough__echo", text="hello")["result"]["content"][0]["text"] == "hello"
        asked = called(client, "mcp__rough__fail")["result"]
        assert asked["isError"] is True
        assert asked["_meta"]["surehand"]["error"]["code"] == "permission_denied"
        wrong = called(client, "mcp__rough__echo", text=7)["result"]
        assert wrong["_meta"]["surehand"]["error"]["code"] == "invalid_args"
        assert called(client, "mcp__gone__x")["error"]["code"] == -32602
        assert called(client, "mcp__rough__die")["result"]["_meta"]["surehand"]["error"]["code"] == "permission_denied"
    with started(tmp_path, "--servers", "rough", "--allow", "mcp__rough") as client:
        wait_for(lambda: "mcp__rough__echo" in names(client))
        lost = called(client, "mcp__rough__die")["result"]
        assert lost["_meta"]["surehand"]["error"]["code"] == "tool_unavailable"
        wait_for(lambda: "mcp__rough__echo" in names(client))  # it is brought back
        wait_for(lambda: "result" in called(client, "mcp__rough__echo", text="again"))
    with started(tmp_path, "--servers", "gone,nosuch") as client:
        assert not [name for name in names(client) if name.startswith("mcp__")]


def test_two_gateways_that_name_each_other_do_not_go_round_in_circles(tmp_path: Path) -> None:
    ourselves = [sys.executable, "-m", "surehand", "serve", "--servers", "*", "--cwd", str(tmp_path)]
    configure(rough=[sys.executable, "-S", ROUGH], again=ourselves)
    with started(tmp_path, "--servers", "*") as client:
        wait_for(lambda: {"mcp__again__Read", "mcp__rough__echo"} <= names(client), 60)
        assert not [name for name in names(client) if name.startswith("mcp__again__mcp__")]


# -- HTTP ---------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def listening(
    workspace: Path, token: str | None = "correct horse battery", allow: tuple[str, ...] = ()
) -> AsyncGenerator[tuple[str, list[Any]]]:
    apps: list[Surehand] = []

    def open_app(approver: Any, root: str | None) -> Surehand:
        made = Surehand(root or workspace, settings=Settings(), approver=approver, allow=allow, keep_state=False)
        apps.append(made)
        return apps[-1]

    serving = Serving(open_app)
    urls: asyncio.Queue[str] = asyncio.Queue()
    task = asyncio.create_task(serve_http(serving, Door("127.0.0.1", (), token), 0, urls.put_nowait))
    try:
        yield await urls.get(), apps
    finally:
        task.cancel()
        await asyncio.wait([task], timeout=60)
        await serving.close()


HEADERS = {
    "Accept": "application/json, text/event-stream",
    "Content-Type": "application/json",
    "Authorization": "Bearer correct horse battery",
}


def body(method: str, params: dict[str, Any], number: int = 1) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


async def test_http_wants_the_token_and_refuses_foreign_hosts_and_origins(tmp_path: Path) -> None:
    async with listening(tmp_path) as (url, _), httpx2.AsyncClient() as http:
        hello = body("initialize", HELLO)
        for wrong in ({"Authorization": ""}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic eDp5"}):
            assert (await http.post(url, json=hello, headers=HEADERS | wrong)).status_code == 401
        for wrong in ({"Host": "evil.test"}, {"Origin": "http://evil.test"}, {"Origin": "null"}):
            assert (await http.post(url, json=hello, headers=HEADERS | wrong)).status_code in (403, 421)
        assert (await http.post(url, json=hello, headers=HEADERS)).status_code == 200
        broken = await http.post(url, content=b"{not json", headers=HEADERS)
        assert broken.status_code == 400
        assert broken.json()["error"]["code"] == -32700


NAMES_OF_THE_SERVER = [
    ("Host", "127.0.0.1:{port}", 200),
    ("Host", "LOCALHOST:{port}", 200),
    ("Host", "127.0.0.1:1", 421),
    ("Host", "127.0.0.1:{port}.evil.test", 421),
    ("Host", "localhost:evil.test", 421),
    ("Host", "127.0.0.1:{port}@evil.test", 421),
    ("Host", "localhost.evil.test:{port}", 421),
    ("Origin", "http://localhost:{port}", 200),
    ("Origin", "http://localhost:1", 403),
    ("Origin", "http://localhost", 403),
    ("Origin", "http://127.0.0.1", 403),
    ("Origin", "https://localhost:{port}", 403),
    ("Origin", "http://localhost:0{port}", 403),
    ("Origin", "http://[::1]", 403),
    ("Host", "localhost", 421),
    ("Host", "127.0.0.1", 421),
    ("Host", "127.1:{port}", 421),
    ("Host", "2130706433:{port}", 421),
    ("Host", "localhost.:{port}", 421),
    ("Host", "[::ffff:127.0.0.1]:{port}", 421),
    ("Origin", "http://localhost:{port}.evil.test", 403),
    ("Origin", "http://localhost:{port}@evil.test", 403),
    ("Origin", "http://localhost:{port}/", 403),
    ("Origin", "file://localhost", 403),
]


@pytest.mark.spec("MCP-3")
async def test_host_and_origin_are_compared_exactly(tmp_path: Path) -> None:
    async with listening(tmp_path) as (url, _), httpx2.AsyncClient() as http:
        port = url.removesuffix("/mcp").rsplit(":", 1)[1]
        for name, value, status in NAMES_OF_THE_SERVER:
            headers = HEADERS | {name: value.format(port=port)}
            answer = await http.post(url, json=body("initialize", HELLO), headers=headers)
            assert answer.status_code == status, (name, value)


async def raw(url: str, head: str, content: bytes) -> tuple[bytes, bool]:
    """Send a request as it is; return the answer, and whether the connection was closed after it."""
    host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = [
        f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\n",
        *(f"{key}: {value}\r\n" for key, value in HEADERS.items()),
    ]
    writer.write(("".join(lines) + head + "\r\n").encode() + content)
    try:
        async with asyncio.timeout(120):
            await writer.drain()
            return await reader.read(), True
    except TimeoutError:
        return b"", False
    finally:
        writer.close()


async def test_a_request_with_two_lengths_is_refused_and_its_connection_closed(tmp_path: Path) -> None:
    smuggled = b"0\r\n\r\nPOST /mcp HTTP/1.1\r\nHost: x\r\n\r\n"
    async with listening(tmp_path) as (url, _):
        answer, closed = await raw(url, f"Content-Length: {len(smuggled)}\r\nTransfer-Encoding: chunked\r\n", smuggled)
    assert closed
    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1 ") == 1  # what stood behind the shorter body was no request


@pytest.mark.parametrize("name", ["Authorization", "Mcp-Session-Id", "Last-Event-ID", "Content-Type"])
async def test_a_header_that_says_who_asks_for_what_comes_once(tmp_path: Path, name: str) -> None:
    async with listening(tmp_path) as (url, _):
        twice = "".join(f"{name}: {value}\r\n" for value in ("one", "two"))
        answer, closed = await raw(url, f"{twice}Content-Length: 2\r\n", b"{}")
    assert closed
    assert answer.startswith(b"HTTP/1.1 400")
    assert f"one {name.lower()} header".encode() in answer


async def test_a_head_is_read_in_small_pieces_and_no_further_than_its_limit(tmp_path: Path) -> None:
    async with listening(tmp_path) as (url, _):
        with suppress(ConnectionError):  # what it did not read resets the connection
            answer, _ = await raw(url, f"X: {'a' * 100_000}\r\nContent-Length: 2\r\n", b"{}")
            assert not answer.startswith(b"HTTP/1.1 2")


@pytest.mark.parametrize("begun", [b"", b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: "])
async def test_a_connection_whose_request_never_begins_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    monkeypatch.setattr(local_server, "HEAD_S", 0.1)
    async with listening(tmp_path) as (url, _):
        host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(begun)
        async with asyncio.timeout(60):
            assert await reader.read() == b""
        writer.close()
        async with httpx2.AsyncClient() as http:
            assert (await http.post(url, json=body("initialize", HELLO), headers=HEADERS)).status_code == 200


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_that_is_too_large_gets_an_answer(tmp_path: Path, chunked: bool) -> None:
    size = 12_000_000
    async with listening(tmp_path) as (url, _):
        if chunked:
            piece = b"%x\r\n" % (size // 4) + b" " * (size // 4) + b"\r\n"
            answer, closed = await raw(url, "Transfer-Encoding: chunked\r\n", piece * 4 + b"0\r\n\r\n")
        else:
            answer, closed = await raw(url, f"Content-Length: {size}\r\n", b" " * size)
    assert closed
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"at most 4,194,304 bytes" in answer


async def test_a_body_of_too_many_values_gets_an_answer(tmp_path: Path) -> None:
    values = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":[' + b",".join([b"[]"] * 300_000) + b"]}}"
    async with listening(tmp_path) as (url, _), httpx2.AsyncClient() as http:
        answer = await http.post(url, content=values, headers=HEADERS)
        assert (answer.status_code, "200,000 values" in answer.text) == (413, True)
        text = body("initialize", HELLO | {"clientInfo": {"name": "[,{" * 300_000, "version": "1"}})
        assert (await http.post(url, json=text, headers=HEADERS)).status_code == 200


async def test_who_is_not_let_in_reads_why_though_it_sends_a_body(tmp_path: Path) -> None:
    async with listening(tmp_path) as (url, _):
        host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"POST /mcp HTTP/1.1\r\nHost: elsewhere.example\r\nContent-Length: {2 << 20}\r\n\r\n".encode())
        writer.write(b" " * (2 << 20))
        await writer.drain()  # a server that had closed the connection with bytes unread would have reset it
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 4")
    assert answer.endswith(b"}")


async def test_near_the_limit_of_descriptors_new_clients_are_told_to_come_back_and_known_ones_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("surehand.mcp.server.http.monotonic", iter(range(1, 1000)).__next__)
    async with listening(tmp_path) as (url, _), httpx2.AsyncClient() as http:
        answer = await http.post(url, json=body("initialize", HELLO), headers=HEADERS)
        known = HEADERS | {"mcp-session-id": answer.headers["mcp-session-id"]}
        free, hard = len(os.listdir("/proc/self/fd")) + 20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (free, hard))
        try:
            for _ in range(3):
                refused = await http.post(url, json=body("initialize", HELLO), headers=HEADERS)
                assert (refused.status_code, refused.headers["retry-after"]) == (503, "10")
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=known)
            assert (await http.post(url, json=body("tools/list", {}, 2), headers=known)).status_code == 200
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        assert (await http.post(url, json=body("initialize", HELLO), headers=HEADERS)).status_code == 200
    assert caplog.text.count("new clients are turned away") == 1


async def test_http_lives_on_when_a_client_drops_its_stream(tmp_path: Path) -> None:
    async with listening(tmp_path) as (url, _):
        host, port = url.removeprefix("http://").removesuffix("/mcp").split(":")
        for _ in range(3):
            _, writer = await asyncio.open_connection(host, int(port))
            content = json.dumps(body("initialize", HELLO)).encode()
            head = f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Length: {len(content)}\r\n"
            head += "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items()) + "\r\n"
            writer.write(head.encode() + content)
            await writer.drain()
            writer.transport.abort()
        async with httpx2.AsyncClient() as http:
            assert (await http.post(url, json=body("initialize", HELLO), headers=HEADERS)).status_code == 200


async def test_each_http_session_has_a_session_of_its_own_that_ends_with_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    async with listening(tmp_path) as (url, apps), httpx2.AsyncClient() as http:
        sessions: list[dict[str, str]] = []
        for _ in range(2):
            answer = await http.post(url, json=body("initialize", HELLO), headers=HEADERS)
            headers = HEADERS | {"mcp-session-id": answer.headers["mcp-session-id"]}
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
            sessions.append(headers)
        call = body("tools/call", {"name": "Read", "arguments": {"file_path": "a.txt"}}, 2)
        assert "one" in (await http.post(url, json=call, headers=sessions[0])).text
        await http.post(url, json=body("tools/list", {}, 3), headers=sessions[1])
        assert [bool(app.session.read_state.items()) for app in apps] == [True, False]
        await http.delete(url, headers=sessions[0])
        assert [app.session.closed for app in apps] == [True, False]


async def test_what_is_kept_for_lost_streams_is_bounded() -> None:
    kept, last = Remembered(), ""
    for number in range(60):
        result = {"content": [{"type": "text", "text": "x" * 1_000_000}]}
        last = await kept.store_event("one", types.JSONRPCResponse(jsonrpc="2.0", id=number, result=result))
    assert len(kept._events) < 20  # pyright: ignore[reportPrivateUsage]
    replayed: list[Any] = []

    async def take(event: Any) -> None:
        replayed.append(event)

    assert await kept.replay_events_after(last, take) == "one"
    assert await kept.replay_events_after("unknown", take) is None
    assert replayed == []


def test_a_door_to_other_machines_needs_a_token(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="needs a token"):
        Door.of("0.0.0.0", [], None, no_token=True)
    made = Door.of("127.0.0.1", [], None, no_token=False)
    assert made.token == Door.of("127.0.0.1", [], None, no_token=False).token
    assert os.stat(made.token_path).st_mode & 0o077 == 0


MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_connection_that_is_cut_ends_its_command(tmp_path: Path, era: str) -> None:
    async with listening(tmp_path, allow=("Bash(sleep:*)",)) as (url, _), httpx2.AsyncClient(timeout=300) as http:
        headers = dict(HEADERS)
        seconds = f"{400 + os.getpid()}.{len(era)}"
        params: dict[str, Any] = {"name": "Bash", "arguments": {"command": f"sleep {seconds}"}}
        if era == "legacy":
            answer = await http.post(url, json=body("initialize", HELLO), headers=headers)
            headers["mcp-session-id"] = answer.headers["mcp-session-id"]
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=headers)
        else:
            headers |= {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": "Bash"}
            params["_meta"] = MODERN_META
        calling = asyncio.ensure_future(http.post(url, json=body("tools/call", params, 7), headers=headers))
        await eventually(lambda: processes_with(f"sleep\0{seconds}") or calling.done())
        assert not calling.done(), calling.result().text
        calling.cancel()  # closes its connection
        await eventually(lambda: not processes_with(f"sleep\0{seconds}"))
        if era == "legacy":  # the session itself goes on
            assert (await http.post(url, json=body("tools/list", {}, 8), headers=headers)).status_code == 200


async def eventually(condition: Any) -> None:
    async with asyncio.timeout(120):
        while not condition():
            await asyncio.sleep(0.05)


async def test_a_client_that_lost_its_stream_gets_the_rest_of_it_and_nothing_of_others(tmp_path: Path) -> None:
    async with listening(tmp_path) as (url, _), httpx2.AsyncClient(timeout=300) as http:
        sessions: list[dict[str, str]] = []
        for name in ("one", "two"):
            (tmp_path / f"{name}.txt").write_text(f"text of {name}\n")
            answer = await http.post(url, json=body("initialize", HELLO), headers=HEADERS)
            known = {"mcp-session-id": answer.headers["mcp-session-id"], "mcp-protocol-version": "2025-11-25"}
            sessions.append(HEADERS | known)
            await http.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"}, headers=sessions[-1])
        first: list[str] = []
        for headers, name in zip(sessions, ("one", "two"), strict=True):  # both call it number 2
            read = body("tools/call", {"name": "Read", "arguments": {"file_path": f"{name}.txt"}}, 2)
            lines = (await http.post(url, json=read, headers=headers)).text.splitlines()
            first.append(next(line for line in lines if line.startswith("id:")).removeprefix("id:").strip())

        async def come_back(headers: dict[str, str], last: str) -> str:
            text = ""
            async with http.stream("GET", url, headers=headers | {"Last-Event-ID": last}) as stream:
                async for line in stream.aiter_lines():
                    text += line
                    if "text of" in text:
                        break
            return text

        async with asyncio.timeout(60):
            assert "text of one" in await come_back(sessions[0], first[0])
            assert "text of two" in await come_back(sessions[1], first[1])
            assert "text of" not in await come_back(sessions[0], first[1])
