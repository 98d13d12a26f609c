"""Logging in to a remote server with OAuth, from the command line, with a browser's part played by the test."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from tests.mcp.login_stub import LoginStub

from surehand import Settings, Surehand
from surehand.core.settings import McpServerSettings
from surehand.mcp.client.http import RequestGuard
from surehand.mcp.client.login import open_login
from surehand.state import keys
from surehand.testing import Says

pytestmark = pytest.mark.spec("INT-2")

WHO = "mcp__remote__whoami"


@pytest.fixture
def remote() -> Iterator[LoginStub]:
    made = LoginStub()
    yield made
    made.close()


def surehand(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    whole = [sys.executable, "-m", "surehand", *words, "--cwd", str(workspace)]
    return subprocess.run(whole, capture_output=True, text=True, timeout=100, check=False)


async def browse(url: str) -> None:
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(url)


async def call(
    workspace: Path, url: str, *, login: Any = None, tool: str = WHO, client: Mapping[str, str] = MappingProxyType({})
) -> Any:
    servers = {"remote": McpServerSettings(url=url, **client)}
    async with Surehand(workspace, settings=Settings(), approver=Says("once"), mcp_servers=servers) as app:
        app.servers.login = login
        return await app.call(tool)


def test_a_person_logs_in_once_and_later_calls_are_authorized(tmp_path: Path, remote: LoginStub) -> None:
    assert surehand(tmp_path, "mcp", "add", "remote", "--url", remote.url).returncode == 0
    before = surehand(tmp_path, "mcp", "test", "remote")
    assert before.returncode == 1
    assert "surehand mcp login remote" in before.stdout
    assert remote.registered == 0  # nothing is begun that nobody asked for
    words = [sys.executable, "-m", "surehand", "mcp", "login", "remote", "--no-browser", "--cwd", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        url = next(line for line in process.stderr if line.startswith("http")).strip()
        page = httpx2.get(url, follow_redirects=True)
        assert "close this page" in page.text
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert json.loads(out)["logged_in"] is True
    assert os.stat(keys.path()).st_mode & 0o077 == 0
    after = surehand(tmp_path, "tools", "invoke", WHO, "--allow", "mcp__remote")
    assert after.returncode == 0, after.stderr
    assert "you" in after.stdout
    assert remote.grants == ["authorization_code"]
    assert "secret-" not in out + err + after.stdout + after.stderr
    gone = surehand(tmp_path, "mcp", "logout", "remote")
    assert json.loads(gone.stdout)["forgotten"] is True
    assert "surehand mcp login remote" in surehand(tmp_path, "mcp", "test", "remote").stdout
    assert surehand(tmp_path, "mcp", "login", "nosuch").returncode == 3


async def test_tokens_that_expired_or_were_revoked_are_refreshed_unasked(tmp_path: Path, remote: LoginStub) -> None:
    remote.expires_in = -10  # expired as soon as they are given
    assert (await call(tmp_path, remote.url, login=browse)).output == "you"
    remote.expires_in = 3600
    assert (await call(tmp_path, remote.url)).output == "you"
    assert remote.grants[-1] == "refresh_token"  # at the address its own authorization server names
    grants = len(remote.grants)
    assert (await call(tmp_path, remote.url)).output == "you"
    assert len(remote.grants) == grants
    remote.valid.clear()  # revoked before their time
    assert (await call(tmp_path, remote.url)).output == "you"
    assert remote.grants[-1] == "refresh_token"
    remote.valid.clear()
    remote.refreshable.clear()
    lost = await call(tmp_path, remote.url)
    assert lost.error is not None
    assert "surehand mcp login remote" in lost.error.message
    assert remote.registered == 1


async def test_a_refused_login_and_an_unsafe_page_say_so(tmp_path: Path, remote: LoginStub) -> None:
    remote.refuses = True
    refused = await call(tmp_path, remote.url, login=browse)
    assert refused.error is not None
    assert "the login was refused: access_denied" in refused.error.message
    opened: list[str] = []

    async def open_page(url: str) -> None:
        opened.append(url)

    for remote.page in ("http://phishing.test/authorize", "https://login.example@phishing.test/authorize"):
        unsafe = await call(tmp_path, remote.url, login=open_page)
        assert unsafe.error is not None
        assert "not at a plain https address" in unsafe.error.message
    assert opened == []


OWN_CLIENT = {"client_id": "own", "client_secret": "own-secret"}


@pytest.mark.parametrize("client", [OWN_CLIENT, {}], ids=["registered by hand", "by itself"])
async def test_what_one_issuer_gave_out_is_never_shown_to_another(
    tmp_path: Path, remote: LoginStub, client: dict[str, str]
) -> None:
    other = LoginStub()
    try:
        assert (await call(tmp_path, remote.url, login=browse, client=client)).ok
        remote.valid.clear()
        remote.issuer = other.base  # who may be asked, and is shown a refresh token, is what a server says
        result = await call(tmp_path, remote.url, client=client)
        assert not result.ok
        assert "another issuer" in result.error.message
        assert other.grants == []
        if client:  # a person who logs in again would show the secret of the client
            assert "another issuer" in (await call(tmp_path, remote.url, login=browse, client=client)).error.message
            assert other.grants == []
    finally:
        other.close()


@pytest.mark.parametrize("is_named", [True, False], ids=["another issuer", "one that gives another name"])
async def test_an_expired_token_is_not_refreshed_with_an_issuer_that_was_refused(
    tmp_path: Path, remote: LoginStub, is_named: bool
) -> None:
    other = LoginStub()
    try:
        assert (await call(tmp_path, remote.url, login=browse, client=OWN_CLIENT)).ok
        remote.valid.clear()
        remote.issuer = other.base if is_named else f"{other.base}/else"
        other.pages["/.well-known/oauth-authorization-server/else"] = other.metadata()
        async with open_login("remote", remote.url, OWN_CLIENT, None, lambda reason: None) as login:
            assert isinstance(login, OAuthClientProvider)
            async with httpx2.AsyncClient(auth=login) as http:
                for _ in range(2):
                    with pytest.raises(OAuthFlowError):
                        await http.post(remote.url, json={})
                    login.context.token_expiry_time = 1.0
        assert other.grants == []
        assert remote.grants == ["authorization_code"]
    finally:
        other.close()


async def test_only_the_answer_to_this_login_counts(tmp_path: Path, remote: LoginStub) -> None:
    async def show(url: str) -> None:
        back = parse_qs(urlsplit(url).query)["redirect_uri"][0]
        for forged in ("error=access_denied", "code=stolen", "code=stolen&state=guessed", ""):
            await browse(f"{back}?{forged}")  # as any page in the person's browser can
        await browse(url)

    assert (await call(tmp_path, remote.url, login=show)).ok


async def test_a_public_server_names_no_private_address_for_a_login() -> None:
    for own, named, let in (
        ("https://tools.example/mcp", "https://login.example/token", True),
        ("https://tools.example/mcp", "https://169.254.169.254/token", False),
        ("https://tools.example/mcp", "https://localhost:8443/token", False),
        ("https://tools.example/mcp", "http://login.example/token", False),
        ("https://tools.internal/mcp", "https://login.internal/token", True),
    ):
        check = RequestGuard(own).check(httpx2.Request("POST", named))
        if let:
            await check
        else:
            with pytest.raises(httpx2.UnsupportedProtocol):
                await check


async def test_a_token_goes_to_no_other_address_than_the_one_logged_in_to(tmp_path: Path, remote: LoginStub) -> None:
    assert (await call(tmp_path, remote.url, login=browse)).ok
    other = LoginStub()
    other.valid = remote.valid
    try:
        refused = await call(tmp_path, other.url)  # the same name at another address
        assert refused.error is not None
        assert re.search("401", refused.error.message)
    finally:
        other.close()


async def test_two_logins_kept_at_once_do_not_lose_each_other() -> None:
    await asyncio.gather(*(asyncio.to_thread(keys.save_secret, f"mcp:{number}", "x") for number in range(20)))
    assert all(keys.load_secret(f"mcp:{number}") == "x" for number in range(20))
