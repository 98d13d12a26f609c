"""The web tools through the one door: rules, redirects, refusals and origin, as any caller meets them."""

from __future__ import annotations

import asyncio
import gzip
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.loopback import Site, page, redirect

from surehand import Settings, Surehand
from surehand.core.settings import WebSettings

OPEN = Settings(web=WebSettings(allowed_hosts=("127.0.0.1",)))


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every name under .test lead to loopback, as the system's own resolver would."""
    real: Callable[..., object] = socket.getaddrinfo

    def known(host: str, *rest: object, **options: object) -> object:
        return real("127.0.0.1" if str(host).endswith(".test") else host, *rest, **options)

    monkeypatch.setattr(socket, "getaddrinfo", known)


async def test_a_page_of_an_allowed_host_is_fetched_and_marks_the_session(tmp_path: Path, hosts: None) -> None:
    app = Surehand(tmp_path, settings=OPEN, allow=["WebFetch(domain:allowed.test)"])
    async with Site({"/": page("<title>T</title><p>Words</p>")}) as site, app:
        result = await app.call("WebFetch", {"url": site.url(host="allowed.test")})
        assert (result.ok, result.output, result.meta["origin"]) == (True, "T\n\nWords", "web")
        assert "web" in app.session.origins


async def test_a_host_without_a_rule_needs_somebody_to_ask(tmp_path: Path, hosts: None) -> None:
    async with Site(default=page("x")) as site, Surehand(tmp_path, settings=OPEN) as app:
        result = await app.call("WebFetch", {"url": site.url(host="other.test")})
    assert result.error is not None
    assert result.error.code == "permission_denied"
    assert site.requests == []


async def test_a_redirect_goes_only_where_a_rule_allows(tmp_path: Path, hosts: None) -> None:
    rules = ["WebFetch(domain:allowed.test)", "WebFetch(domain:*.also.test)"]
    async with Site({"/": page("there", "text/plain")}) as there, Site() as here:
        here.answers["/no"] = redirect(there.url(host="elsewhere.test"))
        here.answers["/yes"] = redirect(there.url(host="www.also.test"))
        here.answers["/metadata"] = redirect("http://169.254.169.254/latest/meta-data/")
        async with Surehand(tmp_path, settings=OPEN, allow=rules) as app:
            for path in ("/no", "/metadata"):
                refused = await app.call("WebFetch", {"url": here.url(path, host="allowed.test")})
                assert refused.error is not None
                assert refused.error.code == "permission_denied"
            assert there.requests == []
            followed = await app.call("WebFetch", {"url": here.url("/yes", host="allowed.test")})
            assert followed.output.startswith("there")
            assert followed.data["redirects"] == [there.url(host="www.also.test")]


async def test_bombs_drips_and_headers_end_as_errors_or_cut(tmp_path: Path, hosts: None) -> None:
    async def drips(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.05)

    answers = {
        "/bomb": page(gzip.compress(bytes(50 << 20)), "text/html", "Content-Encoding: gzip"),
        "/headers": b"HTTP/1.1 200 OK\r\n" + b"X: " + b"a" * 300_000 + b"\r\n\r\n",
        "/drip": drips,
    }
    async with Site(answers) as site, Surehand(tmp_path, settings=OPEN, allow=["WebFetch(domain:allowed.test)"]) as app:
        bomb = await app.call("WebFetch", {"url": site.url("/bomb", host="allowed.test")})
        assert bomb.meta["truncated"]
        assert "the rest was cut off" in bomb.output
        headers = await app.call("WebFetch", {"url": site.url("/headers", host="allowed.test")})
        assert headers.error is not None
        assert headers.error.code == "execution_error"
        drip = await app.call("WebFetch", {"url": site.url("/drip", host="allowed.test"), "timeout": 1})
        assert drip.error is not None
        assert drip.error.code == "timeout"


async def test_a_search_without_an_engine_says_how_to_set_one_up(tmp_path: Path) -> None:
    async with Surehand(tmp_path, settings=Settings()) as app:
        result = await app.call("WebSearch", {"query": "tides"})
    assert result.error is not None
    assert result.error.code == "tool_unavailable"
    assert "searxng_url" in result.error.hint
