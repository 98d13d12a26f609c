"""Login to an MCP server with OAuth, by the SDK, with a person's browser; tokens are saved like keys.

The SDK discovers the issuer of tokens, registers this program there, uses PKCE, and refreshes expired tokens. This
module adds the callback page for the browser, the storage of tokens, and that a person is asked only by `surehand mcp
login`.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

import httpx2
from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import issuers_match
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, ValidationError

from surehand.core.errors import ToolFailure
from surehand.files.sanitize import visible
from surehand.state import keys
from surehand.web.local_server import is_loopback

PERSON_S: Final = 300.0
"""How long a person has to log in."""
PATH: Final = "/callback"
HEAD_LIMIT: Final = 64 * 1024

Show = Callable[[str], Awaitable[None]]
"""Shows a person the address at which to log in."""


@asynccontextmanager
async def open_login(
    name: str,
    url: str,
    client: Mapping[str, str],
    show: Show | None,
    fail: Callable[[str], None],
) -> AsyncGenerator[httpx2.Auth | None]:
    """Yield the authorization of requests to a server: None without a saved login and nobody to ask.

    `client` is this program's registration in the settings; `fail` gets the reason if a login fails.
    """
    saved = SavedLogin(url)
    if show is None:
        yield Login(name, saved, client, None, fail) if saved.exists else None
        return
    async with Callback.listening(saved.redirect_port()) as callback:
        yield Login(name, saved, client, (show, callback), fail)


class SavedLogin:
    """The saved login at one address: the tokens, this program's registration, and their issuer.

    It is saved under the address, so that no other server gets it, whatever its name.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._name = f"mcp:{hashlib.sha256(url.encode()).hexdigest()[:32]}"
        self.values = self._load()
        self.context: Any = None
        """The SDK's context of the login; its metadata is saved too, since refreshing needs it."""

    def _load(self) -> dict[str, Any]:
        try:
            found: Any = json.loads(keys.load_secret(self._name) or "{}")
        except ValueError:
            return {}
        values = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return values if values.get("url") == self.url else {}

    @property
    def exists(self) -> bool:
        """Whether somebody has logged in."""
        return "tokens" in self.values

    def redirect_port(self) -> int:
        """Return the callback port of the registration; 0 for any."""
        try:
            return urlsplit(str(self.values["client"]["redirect_uris"][0])).port or 0
        except (KeyError, TypeError, IndexError, ValueError):
            return 0

    def forget(self) -> bool:
        """Delete the tokens and the registration; return whether there were any."""
        self.values = {}
        return keys.remove_secret(self._name)

    def forget_tokens(self) -> None:
        """Delete the tokens alone, so that the person has to log in again."""
        if self.values.pop("tokens", None) is not None:
            self._save()

    def _save(self) -> None:
        keys.save_secret(self._name, json.dumps({**self.values, "url": self.url}))

    # -- the SDK's `TokenStorage` -------------------------------------------------------------------------------------

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are any."""
        return _read(OAuthToken, self.values.get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Save tokens, with their expiry and what a refresh needs."""
        self.values["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        self.values["expires"] = time.time() + tokens.expires_in if tokens.expires_in else None
        context = self.context
        for key, found in (("server", context.oauth_metadata), ("resource", context.protected_resource_metadata)):
            self.values[key] = found.model_dump(mode="json", exclude_none=True) if found is not None else None
        self.values["issuer"] = context.auth_server_url
        self._save()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """Return this program's registration, if there is one."""
        return _read(OAuthClientInformationFull, self.values.get("client"))

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """Save this program's registration."""
        self.values["client"] = client_info.model_dump(mode="json", exclude_none=True)
        self._save()


class Login(OAuthClientProvider):
    """Authorizes requests with the saved tokens; asks a person only if there is one to ask."""

    def __init__(
        self,
        name: str,
        saved: SavedLogin,
        client: Mapping[str, str],
        person: tuple[Show, Callback] | None,
        fail: Callable[[str], None],
    ) -> None:
        callback = person[1].url if person is not None else f"http://127.0.0.1:{saved.redirect_port()}{PATH}"
        super().__init__(
            saved.url,
            OAuthClientMetadata(
                client_name="Surehand",
                redirect_uris=[AnyUrl(callback)],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
            ),
            cast("Any", saved),
            redirect_handler=self._show_login_page,
            callback_handler=self._wait_for_callback,
            client_metadata_url=client.get("client_metadata_url"),
        )
        saved.context = self.context
        self._name = name
        self._saved = saved
        self._client = client
        self._person = person
        self._callback = callback
        self._fail = fail
        self._issuer: str | None = None
        """The issuer of the saved tokens."""
        self._state = ""
        # The connection reports errors; without a handler, logging would print the SDK's tracebacks to stderr.
        logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())

    async def _initialize(self) -> None:
        """Load the saved tokens and what a refresh needs."""
        await super()._initialize()
        values, context = self._saved.values, self.context
        context.token_expiry_time = values.get("expires")
        context.oauth_metadata = _read(OAuthMetadata, values.get("server"))
        context.protected_resource_metadata = _read(ProtectedResourceMetadata, values.get("resource"))
        context.auth_server_url = values.get("issuer")
        self._issuer = self._expected_issuer() if "issuer" in values else None
        if (own := self._client.get("client_id")) is not None:
            secret = self._client.get("client_secret")
            context.client_info = OAuthClientInformationFull(
                client_id=own,
                client_secret=secret,
                redirect_uris=[AnyUrl(self._callback)],
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
            )
        elif context.client_info is not None and self._callback not in map(
            str, context.client_info.redirect_uris or ()
        ):
            context.client_info = None  # registered with another callback port, which is in use

    async def _perform_authorization(self) -> httpx2.Request:
        """Refresh the token if possible, and otherwise ask the person."""
        try:
            self._check_issuer()
            if self._person is None and self.context.can_refresh_token():
                return await super()._refresh_token()
            return await super()._perform_authorization()
        except (OAuthFlowError, ToolFailure) as problem:
            self._fail(str(problem))
            raise

    async def _refresh_token(self) -> httpx2.Request:
        """Refresh an expired token, only at its issuer: the server may have named another since."""
        try:
            self._check_issuer()
        except OAuthFlowError as problem:
            self._fail(str(problem))
            raise
        return await super()._refresh_token()

    def _check_issuer(self) -> None:
        """Raise if the server names another issuer than that of the saved credentials, which must not get them."""
        is_same = self._issuer is None or issuers_match(self._expected_issuer(), self._issuer)
        if not is_same and (self._person is None or "client_id" in self._client):
            self._initialized = False  # the next request loads the saved issuer again
            again = f"`surehand mcp logout {self._name}`, then `surehand mcp login {self._name}`"
            raise OAuthFlowError(
                f"it names another issuer of tokens than the one logged in to; if that is meant: {again}"
            )

    async def _show_login_page(self, url: str) -> None:
        if self._person is None:
            raise OAuthFlowError(f"it requires a login: `surehand mcp login {self._name}`")
        if not is_safe(url):
            raise OAuthFlowError("its login page is not at a plain https address")
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        await self._person[0](url)

    async def _wait_for_callback(self) -> AuthorizationCodeResult:
        assert self._person is not None
        return await self._person[1].wait(self._state)


def is_safe(url: str) -> bool:
    """Return whether secrets, or a person, may be sent to an address: by https, or on this machine.

    Not with user information: what stands before an `@` is easily taken for the host.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


class Callback:
    """The page on this machine to which the browser is redirected with the authorization code."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}{PATH}"
        self._answers: asyncio.Queue[Mapping[str, str]] = asyncio.Queue(10)

    @classmethod
    @asynccontextmanager
    async def listening(cls, port: int) -> AsyncGenerator[Callback]:
        """Listen on loopback inside the block; on any port if the given one is in use."""
        callbacks: list[Callback] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(10):
                    await callbacks[0]._serve(reader, writer)
            except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass
            finally:
                writer.close()

        try:
            server = await asyncio.start_server(serve, "127.0.0.1", port, limit=HEAD_LIMIT)
        except OSError:
            server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_LIMIT)
        callbacks.append(cls(server.sockets[0].getsockname()[1]))
        try:
            yield callbacks[0]
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        request_line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        parts = urlsplit(request_line[1] if len(request_line) == 3 and request_line[0] == "GET" else "")
        is_callback = parts.path == PATH
        if is_callback:
            given = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if self._answers.full():
                self._answers.get_nowait()
            self._answers.put_nowait(given)
        body = b"Surehand has the answer; you can close this page." if is_callback else b"There is nothing here."
        status = b"200 OK" if is_callback else b"404 Not Found"
        lines = (b"HTTP/1.1 " + status, b"Content-Type: text/plain", b"Connection: close", b"", body)
        writer.write(b"\r\n".join(lines))
        await writer.drain()

    async def wait(self, state: str) -> AuthorizationCodeResult:
        """Return the authorization code of the login with this `state`; raise ToolFailure if it is refused.

        Callbacks with another `state` are ignored: any page can send a browser here.
        """
        try:
            async with asyncio.timeout(PERSON_S):
                while (given := await self._answers.get()).get("state") != state:
                    pass
        except TimeoutError:
            raise ToolFailure(f"nobody logged in within {PERSON_S:g} s") from None
        if "error" in given:
            reason = given.get("error_description") or given["error"]
            raise ToolFailure(f"the login was refused: {visible(reason[:300], lines=False)}")
        return AuthorizationCodeResult(code=given.get("code", ""), state=given.get("state"), iss=given.get("iss"))


def _read(model: Any, value: Any) -> Any:
    """Parse a model from plain data; None if there is none, or it is of another version."""
    try:
        return model.model_validate(value) if value else None
    except ValidationError:
        return None
