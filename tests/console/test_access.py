"""Who may come in: codes, cookies, tokens, hosts and origins, over real HTTP."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.console.served import Served, serve_console

from surehand import Surehand
from surehand.console.access import CODE_S, WAIT_S, WRONG_LIMIT, Access, Refused

pytestmark = pytest.mark.spec("CON-1")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_code_lets_in_once() -> None:
    access = Access()
    code = access.make_code()
    login = access.log_in(code)
    assert access.is_signed_in(login.cookie)
    assert access.may_change(login.cookie, login.token)
    assert not access.may_change(login.cookie, "")
    with pytest.raises(Refused):
        access.log_in(code)


def test_the_token_of_one_browser_is_not_that_of_another() -> None:
    access = Access()
    one, other = access.log_in(access.make_code()), access.log_in(access.make_code())
    assert not access.may_change(one.cookie, other.token)


def test_after_five_wrong_codes_even_the_right_one_has_to_wait_and_longer_each_time() -> None:
    clock = Clock()
    access = Access(clock)
    code = access.make_code()
    for wait in (WAIT_S, 2 * WAIT_S):
        for _ in range(WRONG_LIMIT):
            with pytest.raises(Refused):
                access.log_in("wrong")
        with pytest.raises(Refused) as refused:
            access.log_in(code)
        assert refused.value.retry_after_s == wait
        clock.now += wait
    assert access.log_in(code)


def test_a_code_for_another_device_gets_too_old() -> None:
    clock = Clock()
    access = Access(clock)
    code = access.make_code(CODE_S)
    clock.now += CODE_S + 1
    with pytest.raises(Refused):
        access.log_in(code)


def test_a_code_of_letters_that_are_no_ascii_is_wrong_and_no_failure() -> None:
    with pytest.raises(Refused):
        Access().log_in("ü" * 20)


async def test_nothing_is_told_without_signing_in() -> None:
    async with serve_console(signed_in=False) as served:
        for path in ("/api/sessions", "/api/calls", "/api/events", "/api"):
            assert (await served.client.get(path)).status_code == 401
        assert (await served.client.post("/api/codes", json={})).status_code == 401
        page = await served.client.get("/")
        assert page.status_code == 200
        assert "script" in page.text


async def test_the_cookie_is_for_no_script_and_for_no_other_site() -> None:
    async with serve_console(signed_in=False) as served:
        answer = await served.client.post("/api/login", json={"code": served.code})
        cookie = answer.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert str(served.port) in cookie.partition("=")[0]


async def test_what_changes_something_needs_the_token_and_is_json() -> None:
    async with serve_console() as served:
        token = served.client.headers.pop("x-surehand-token")
        assert (await served.client.post("/api/codes", json={})).status_code == 403
        served.client.headers["x-surehand-token"] = token
        assert (await served.client.post("/api/codes", json={})).status_code == 200
        assert (await served.client.post("/api/codes", data={"a": "b"})).status_code == 415


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"host": "evil.example"}, 421),
        ({"host": "127.0.0.1.evil.example"}, 421),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:1"}, 403),
    ],
)
async def test_requests_of_other_pages_and_rebound_names_are_turned_away(headers: dict[str, str], status: int) -> None:
    async with serve_console() as served:
        for path in ("/", "/api/sessions", "/api/events"):
            assert (await served.client.get(path, headers=headers)).status_code == status


async def test_every_answer_forbids_inline_script_and_framing() -> None:
    async with serve_console(signed_in=False) as served:
        for path in ("/", "/app.js", "/api/sessions", "/no/such/page"):
            policy = (await served.client.get(path)).headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert "frame-ancestors 'none'" in policy


@pytest.mark.parametrize("path", ["/../server.py", "/..%2fserver.py", "/%2e%2e/server.py", "/pages/../../server.py"])
async def test_only_the_pages_are_served(path: str) -> None:
    async with serve_console() as served:
        answer = await served.client.get(path)
        assert answer.status_code == 404, answer.text[:200]


async def test_five_wrong_codes_over_http_say_how_long_to_wait() -> None:
    async with serve_console(signed_in=False) as served:
        statuses = [
            (await served.client.post("/api/login", json={"code": "x"})).status_code for _ in range(WRONG_LIMIT + 1)
        ]
        answer = await served.client.post("/api/login", json={"code": served.code})
    assert statuses == [401] * WRONG_LIMIT + [429]
    assert int(answer.headers["retry-after"]) > 0


@pytest.mark.parametrize("body", [b"[", b"[]", b'"text"', b"\xff", b'{"code": 5}', b"[" * 100_000])
async def test_a_body_that_is_no_object_is_refused_in_words(body: bytes) -> None:
    async with serve_console(signed_in=False) as served:
        answer = await served.client.post("/api/login", content=body, headers={"content-type": "application/json"})
    assert answer.status_code == 400
    assert answer.json()["error"]


ODD_REQUESTS = [
    ("GET", "/api/changes?workspace=%00", b""),
    ("GET", "/api/changes?file=a%00b", b""),
    ("GET", "/api/calls/%00", b""),
    ("GET", f"/api/events?after={'9' * 5_000}", b""),
    ("POST", "/api/login", rb'{"code": "\ud800"}'),
    ("POST", "/api/tools/health", rb'{"workspace": "\ud800", "tool": "x"}'),
    ("POST", "/api/tools/health", rb'{"workspace": "\u0000", "tool": "x"}'),
    ("POST", "/api/history/prune", b'{"workspace": "/", "keep_bytes": 1e999}'),
]


@pytest.mark.parametrize(("method", "path", "body"), ODD_REQUESTS)
async def test_values_that_name_nothing_are_refused_in_words(method: str, path: str, body: bytes) -> None:
    async with serve_console() as served:
        headers = {"content-type": "application/json"}
        answer = await served.client.request(method, path, content=body, headers=headers)
    assert answer.status_code == 400
    assert answer.json()["error"]


async def test_signing_out_signs_everybody_out() -> None:
    async with serve_console() as served:
        assert (await served.client.post("/api/logout", json={})).status_code == 200
        assert (await served.client.get("/api/sessions")).status_code == 401


async def _follow(served: Served, wanted: Any, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    async with asyncio.timeout(120):
        async for event in served.events(query):
            found.append(event)
            if wanted(event):
                return found
    raise AssertionError("the stream ended")


async def test_the_stream_shows_a_session_from_its_start_to_its_end(tmp_path: Path) -> None:
    async with serve_console() as served:
        following = asyncio.create_task(_follow(served, lambda event: event["kind"] == "session_closed"))
        await served.until_read()
        async with Surehand(tmp_path, session="one") as app:
            await app.call("Glob", {"pattern": "*"})
        seen = await following
        assert (await served.get("/api/sessions"))["sessions"] == []
        (call,) = (await served.get("/api/calls"))["calls"]
    kinds = [event["kind"] for event in seen]
    assert kinds[0] == "begin"
    assert kinds.index("hello") < kinds.index("call_started") < kinds.index("call_finished")
    assert (call["tool"], call["state"], call["verdict"]) == ("Glob", "ok", "allow")


async def test_a_reader_that_comes_back_gets_what_it_missed(tmp_path: Path) -> None:
    async with serve_console() as served:
        async with Surehand(tmp_path) as app:
            await served.until(lambda feed: bool(feed.sessions))
            number = (await _follow(served, lambda event: event["kind"] == "begin"))[0]["number"]
            await app.call("Glob", {"pattern": "*"})
            await served.until(lambda feed: any(each["state"] == "ok" for each in feed.calls.values()))
        seen = await _follow(served, lambda event: event["kind"] == "session_closed", f"?after={number}")
    kinds = [event["kind"] for event in seen]
    assert "hello" not in kinds
    assert {"call_started", "call_finished"} <= set(kinds)


async def test_calls_recorded_before_the_console_started_are_listed(tmp_path: Path) -> None:
    async with Surehand(tmp_path) as app:
        await app.call("Glob", {"pattern": "*.py"})
        await app.call("Glob", {"pattern": "*.md"})
    async with serve_console() as served:
        await served.until(lambda feed: len(feed.calls) == 2)
        listed = await served.get("/api/calls")
        narrowed = await served.get("/api/calls?text=md")
    assert [each["args"] for each in listed["calls"]] == ['{"pattern": "*.md"}', '{"pattern": "*.py"}']
    assert [each["args"] for each in narrowed["calls"]] == ['{"pattern": "*.md"}']


async def test_another_program_is_not_told_by_a_foreign_cookie_header() -> None:
    async with serve_console(signed_in=False) as served, httpx2.AsyncClient() as client:
        answer = await client.get(f"{served.url}/api/sessions", headers={"cookie": "a=b; ;;=; \x7f"})
    assert answer.status_code == 401
