"""`surehand serve --http` as an OAuth resource server, with an authorization server on loopback."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import os
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from pydantic import AnyUrl
from tests.mcp.issuer_stub import IssuerStub

from mcp import Client
from surehand import Settings, Surehand
from surehand.core.errors import SettingsError
from surehand.core.settings import McpServerSettings, ServeSettings
from surehand.mcp.server.http import Door
from surehand.mcp.server.oauth import KEYS_S, REFETCH_S, STALE_KEYS_S, Refusal, ResourceServer
from surehand.testing import Says

HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
HERE = "http://127.0.0.1:7/mcp"


@pytest.fixture
def issuer() -> Iterator[IssuerStub]:
    made = IssuerStub()
    yield made
    made.close()


class Served:
    """A server that runs; `said` is what it printed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.said = ""

    async def post(self, token: str | None, message: dict[str, Any] | None = None, **headers: str) -> httpx2.Response:
        own = {"Accept": "application/json, text/event-stream", **headers}
        if token is not None:
            own["Authorization"] = f"Bearer {token}"
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}
        async with httpx2.AsyncClient(timeout=300) as http:
            return await http.post(self.url, json=message or hello, headers=own)


@asynccontextmanager
async def served(workspace: Path, *words: str) -> AsyncGenerator[Served]:
    """Run `surehand serve --http 0` with the loudest log there is."""
    command = [sys.executable, "-m", "surehand", "serve", "--http", "0", "--cwd", str(workspace), *words]
    process = await asyncio.create_subprocess_exec(
        *command, stderr=asyncio.subprocess.PIPE, env=os.environ | {"SUREHAND_LOG__LEVEL": "debug"}
    )
    assert process.stderr is not None
    made = Served("")
    try:
        while not made.url:
            line = (await process.stderr.readline()).decode()
            assert line, made.said
            made.said += line
            made.url = line.split()[-1] if line.startswith("serving MCP at ") else ""
        yield made
    finally:
        process.terminate()
        made.said += (await process.stderr.read()).decode()
        await process.wait()


class Memory:
    """Keeps what the SDK's client wants kept."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


def sdk_login(url: str, memory: Memory) -> OAuthClientProvider:
    """Return the SDK's own login, with the part of a browser played here."""
    brought: list[dict[str, str]] = []

    async def browse(page: str) -> None:
        async with httpx2.AsyncClient() as browser:
            back = (await browser.get(page)).headers["location"]
        brought.append({name: values[0] for name, values in parse_qs(urlsplit(back).query).items()})

    async def come_back() -> AuthorizationCodeResult:
        return AuthorizationCodeResult(code=brought[-1]["code"], state=brought[-1]["state"], iss=brought[-1]["iss"])

    about = OAuthClientMetadata(
        client_name="test",
        redirect_uris=[AnyUrl("http://127.0.0.1:9/callback")],
        grant_types=["authorization_code", "refresh_token"],
        response_types=["code"],
    )
    return OAuthClientProvider(url, about, memory, redirect_handler=browse, callback_handler=come_back)


async def test_the_sdks_client_finds_the_issuer_logs_in_and_calls_tools(tmp_path: Path, issuer: IssuerStub) -> None:
    (tmp_path / "a.txt").write_text("hello\n")
    memory = Memory()
    async with served(tmp_path, "--issuer", issuer.base, "--scope", "tools") as server:
        async with (
            httpx2.AsyncClient(auth=sdk_login(server.url, memory), timeout=300) as http,
            Client(streamable_http_client(server.url, http_client=http)) as client,
        ):
            result = await client.call_tool("Read", {"file_path": "a.txt"})
            assert "hello" in str(result.content)
        assert issuer.grants == ["authorization_code"]  # a code of PKCE, which the stub checks
        assert memory.tokens.access_token == issuer.given[0]
        own = Path(os.environ["SUREHAND_HOME"], "mcp-token").read_text().strip()
        assert (await server.post(own)).status_code == 200  # the server's own token opens too
    assert f"access tokens of {issuer.base} are taken, if they are for {server.url}" in server.said
    assert not [secret for secret in (*issuer.given, own) if secret in server.said]


async def test_our_own_client_logs_in_to_our_own_server(tmp_path: Path, issuer: IssuerStub) -> None:
    async def browse(url: str) -> None:
        async with httpx2.AsyncClient(follow_redirects=True, timeout=300) as browser:
            await browser.get(url)

    async with served(tmp_path, "--issuer", issuer.base, "--scope", "tools", "--no-token") as server:
        servers = {"remote": McpServerSettings(url=server.url)}
        async with Surehand(tmp_path, settings=Settings(), approver=Says("once"), mcp_servers=servers) as app:
            app.servers.login = browse
            result = await app.call("mcp__remote__Glob", {"pattern": "*"})
            assert result.ok, result.output


def unsigned(claims: dict[str, Any], header: dict[str, Any], secret: bytes | None = None) -> str:
    """Return a token signed with a shared secret, or not at all; the library would refuse to make some of these."""
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in (header, claims)]
    signature = hmac.digest(secret, b".".join(parts), hashlib.sha256) if secret is not None else b""
    return b".".join((*parts, base64.urlsafe_b64encode(signature).rstrip(b"="))).decode()


ATTACKS: dict[str, Callable[[IssuerStub, str], str]] = {
    "no token at all": lambda issuer, url: "x",
    "for another server": lambda issuer, url: issuer.sign(issuer.claims("https://other.test/mcp")),
    "for another path": lambda issuer, url: issuer.sign(issuer.claims(f"{url}/else")),
    "for nobody": lambda issuer, url: issuer.sign(issuer.claims(url, aud=None)),
    "expired": lambda issuer, url: issuer.sign(issuer.claims(url, exp=int(time.time()) - 3600)),
    "for ever": lambda issuer, url: issuer.sign(issuer.claims(url, exp=None)),
    "not yet": lambda issuer, url: issuer.sign(issuer.claims(url, nbf=int(time.time()) + 3600)),
    "of another issuer": lambda issuer, url: issuer.sign(issuer.claims(url, iss="https://evil.test")),
    "of no issuer": lambda issuer, url: issuer.sign(issuer.claims(url, iss=None)),
    "of an issuer almost ours": lambda issuer, url: issuer.sign(issuer.claims(url, iss=f"{issuer.base}/")),
    "unsigned": lambda issuer, url: unsigned(issuer.claims(url), {"alg": "none", "kid": "one"}),
    "unsigned, spelled otherwise": lambda issuer, url: unsigned(issuer.claims(url), {"alg": "NoNe", "kid": "one"}),
    "signed with the public key": lambda issuer, url: unsigned(
        issuer.claims(url), {"alg": "HS256", "kid": "one"}, issuer.public_pem("one")
    ),
    "signature left out": lambda issuer, url: issuer.sign(issuer.claims(url)).rpartition(".")[0] + ".",
    "of an unknown key": lambda issuer, url: issuer.sign(issuer.claims(url), kid="three"),
    "of the other key": lambda issuer, url: issuer.sign(issuer.claims(url), kid="two"),
    "with a key of its own": lambda issuer, url: issuer.sign(issuer.claims(url), kid="three", jku="http://127.0.0.1/"),
    "with a condition": lambda issuer, url: issuer.sign(issuer.claims(url), crit=["odd"], odd=1),
    "bound to a client's key": lambda issuer, url: issuer.sign(issuer.claims(url, cnf={"jkt": "x"})),
    "of nobody": lambda issuer, url: issuer.sign(issuer.claims(url, sub=None, client_id=None)),
    "too long": lambda issuer, url: issuer.sign(issuer.claims(url, more="x" * 20_000)),
    "changed": lambda issuer, url: issuer.sign(issuer.claims(url)).replace(".", ".e30", 1),
}


async def test_no_forged_or_misdirected_token_opens_the_door(tmp_path: Path, issuer: IssuerStub) -> None:
    async with served(tmp_path, "--issuer", issuer.base, "--scope", "tools", "--no-token") as server:
        for key in ("one", "two"):
            assert (await server.post(issuer.sign(issuer.claims(server.url), key=key))).status_code == 200
        tokens = {name: make(issuer, server.url) for name, make in ATTACKS.items()}
        for name, token in tokens.items():
            answer = await server.post(token)
            assert answer.status_code == 401, name
            assert 'error="invalid_token"' in answer.headers["www-authenticate"], name
            assert len(token) < 2 or token not in answer.text + str(answer.headers)
        nothing = await server.post(None)
        assert nothing.status_code == 401
        assert "error=" not in nothing.headers["www-authenticate"]
        weak = await server.post(issuer.sign(issuer.claims(server.url, scope="other")))
        assert weak.status_code == 403
        challenge = weak.headers["www-authenticate"]
        assert 'error="insufficient_scope"' in challenge
        assert 'scope="tools"' in challenge
        listed = await server.post(issuer.sign(issuer.claims(server.url, scope=None, scp=["a", "tools"])))
        assert listed.status_code == 200
        several = await server.post(issuer.sign(issuer.claims("x", aud=["https://other.test", server.url])))
        assert several.status_code == 200
    assert not [token for token in tokens.values() if len(token) > 2 and token in server.said]


async def test_what_the_server_says_of_itself_is_where_the_challenge_says(tmp_path: Path, issuer: IssuerStub) -> None:
    async with served(tmp_path, "--issuer", issuer.base, "--scope", "tools") as server:
        challenge = (await server.post(None)).headers["www-authenticate"]
        place = challenge.split('resource_metadata="')[1].split('"')[0]
        async with httpx2.AsyncClient() as http:
            said = (await http.get(place)).json()
            assert (await http.get(place, headers={"Host": "evil.test"})).status_code == 421
    assert place == server.url.removesuffix("/mcp") + "/.well-known/oauth-protected-resource/mcp"
    assert said == {
        "resource": server.url,
        "authorization_servers": [issuer.base],
        "bearer_methods_supported": ["header"],
        "resource_name": "Surehand",
        "scopes_supported": ["tools"],
    }


async def test_nobody_uses_the_session_of_somebody_else(tmp_path: Path, issuer: IssuerStub) -> None:
    (tmp_path / "a.txt").write_text("one\n")
    words = ("--issuer", issuer.base, "--mode", "accept-edits")
    edit = {"file_path": "a.txt", "old_string": "one", "new_string": "two"}
    async with served(tmp_path, *words) as server:
        ann, bob = (issuer.sign(issuer.claims(server.url, sub=who)) for who in ("ann", "bob"))
        session = (await server.post(ann)).headers["mcp-session-id"]
        listing = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}
        own = {"mcp-session-id": session, "mcp-protocol-version": "2025-11-25"}
        ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        assert (await server.post(ann, ready, **own)).status_code == 202
        assert (await server.post(bob, listing, **own)).status_code == 404
        async with httpx2.AsyncClient() as http:
            ended = await http.delete(server.url, headers={**own, "Authorization": f"Bearer {bob}"})
        assert ended.status_code == 404
        assert (await server.post(ann, listing, **own)).status_code == 200

        def call(name: str, args: dict[str, Any]) -> dict[str, Any]:
            about = {"clientInfo": HELLO["clientInfo"], "protocolVersion": "2026-07-28", "clientCapabilities": {}}
            meta = {f"io.modelcontextprotocol/{key}": value for key, value in about.items()}
            params = {"name": name, "arguments": args, "_meta": meta}
            return {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params}

        async def make(who: str, name: str, args: dict[str, Any]) -> str:
            headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/call", "mcp-name": name}
            return (await server.post(who, call(name, args), **headers)).text

        assert "one" in await make(ann, "Read", {"file_path": "a.txt"})
        assert "has not been read" in (await make(bob, "Edit", edit)).lower()  # the newer protocol has no sessions
        assert '"isError":false' in (await make(ann, "Edit", edit)).replace(" ", "")


async def test_keys_are_fetched_again_when_they_change_and_not_for_every_stranger(issuer: IssuerStub) -> None:
    now = [0.0]
    server = ResourceServer(ServeSettings(issuers=(issuer.base,)), clock=lambda: now[0])

    async def status(token: str) -> int:
        found = await server.authenticate(token, HERE)
        return found.status if isinstance(found, Refusal) else 200

    old = issuer.sign(issuer.claims(HERE))
    assert await status(old) == 200
    issuer.rotate("new")
    assert await status(issuer.sign(issuer.claims(HERE), key="new")) == 200
    assert await status(old) == 401  # its key was withdrawn
    issuer.rotate("newer")
    newer = issuer.sign(issuer.claims(HERE), key="newer")
    assert await status(newer) == 401  # just asked
    now[0] += REFETCH_S + 1
    assert await status(newer) == 200
    issuer.pages.clear()  # the issuer is down
    now[0] += KEYS_S + 1
    assert await status(newer) == 200
    now[0] += STALE_KEYS_S
    assert await status(newer) == 503


async def test_a_stranger_who_names_a_key_that_does_not_exist_holds_up_nobody(issuer: IssuerStub) -> None:
    server = ResourceServer(ServeSettings(issuers=(issuer.base,)))
    good, metadata = issuer.sign(issuer.claims(HERE)), issuer.metadata()
    assert not isinstance(await server.authenticate(good, HERE), Refusal)
    asked, answers = threading.Event(), threading.Event()

    def slow() -> dict[str, Any]:
        asked.set()
        answers.wait(60)
        return metadata

    issuer.metadata = slow  # type: ignore[method-assign]
    stranger = asyncio.create_task(server.authenticate(issuer.sign(issuer.claims(HERE), kid="other"), HERE))
    try:
        assert await asyncio.to_thread(asked.wait, 60)
        assert not isinstance(await server.authenticate(good, HERE), Refusal)
        assert not stranger.done()
    finally:
        answers.set()
    assert isinstance(await stranger, Refusal)


async def test_an_issuer_that_says_it_is_another_is_not_believed(issuer: IssuerStub) -> None:
    good = issuer.metadata()
    for wrong in ({"issuer": "https://evil.test"}, {"jwks_uri": "http://evil.test/jwks"}, {"jwks_uri": "file:///etc"}):
        issuer.metadata = lambda wrong=wrong: good | wrong  # type: ignore[method-assign]
        server = ResourceServer(ServeSettings(issuers=(issuer.base,)))
        found = await server.authenticate(issuer.sign(issuer.claims(HERE)), HERE)
        assert isinstance(found, Refusal)
        assert found.status == 503


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"issuers": ("http://login.test",)}, "https"),
        ({"issuers": ("https://login.test?x=1",)}, "https"),
        ({"issuers": ("https://login.test",)}, "serve.resource"),
        ({"issuers": ("https://login.test",), "resource": "tools.test/mcp"}, "https"),
        ({"issuers": ("https://login.test",), "resource": 'https://tools.test/"x'}, "https"),
        ({"issuers": ("https://login.test",), "resource": "https://tools.test/mcp", "scopes": ('a"b',)}, "scopes"),
    ],
)
def test_a_door_that_could_be_opened_by_others_is_not_made(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        Door.of("0.0.0.0", [], None, no_token=True, serve=ServeSettings(**settings))


def test_a_server_behind_a_name_needs_no_token_of_its_own() -> None:
    own = ServeSettings(issuers=("https://login.test",), resource="https://tools.test/a/mcp", scopes=("x",))
    door = Door.of("0.0.0.0", [], None, no_token=True, serve=own)
    assert door.token is None
    assert door.address.knows("tools.test", 8808)
    assert door.oauth is not None
    assert door.oauth.is_metadata_path("/.well-known/oauth-protected-resource/a/mcp", HERE)
    assert b"https://tools.test/.well-known/oauth-protected-resource/a/mcp" in door.oauth.challenge(
        Refusal(401, "", "x"), HERE
    )
