"""Login to an MCP server with OAuth: the SDK's own support, with a person's browser and tokens kept like keys.

The SDK discovers who gives out tokens, registers this program there, proves with PKCE that it began the login, and
refreshes what has expired. Here stands what it leaves to the program: the page the browser is sent back to, where
tokens are kept, and that nobody is asked unless they said so (`surehand mcp login`).
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
    """Yield what authorizes requests to a server: None where nobody has logged in and nobody can be asked.

    `client` holds this program's registration from the settings; `fail` is called with the reason a login failed.
    """
    kept = KeptLogin(url)
    if show is None:
        yield Login(name, kept, client, None, fail) if kept.is_there else None
        return
    async with Callback.listening(kept.redirect_port()) as callback:
        yield Login(name, kept, client, (show, callback), fail)


class KeptLogin:
    """What is kept of a login at one address: the tokens, this program's registration, and who gave them out.

    They are kept under the address, so that no other server gets them, whatever name it goes by.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self._name = f"mcp:{hashlib.sha256(url.encode()).hexdigest()[:32]}"
        self.values = self._load()
        self.context: Any = None
        """The SDK's context of the login, whose discoveries are kept too: refreshing needs them."""

    def _load(self) -> dict[str, Any]:
        try:
            found: Any = json.loads(keys.load_secret(self._name) or "{}")
        except ValueError:
            return {}
        values = cast("dict[str, Any]", found) if isinstance(found, dict) else {}
        return values if values.get("url") == self.url else {}

    @property
    def is_there(self) -> bool:
        """Whether somebody has logged in."""
        return "tokens" in self.values

    def redirect_port(self) -> int:
        """Return the port that the registration names as ours; 0 for any."""
        try:
            return urlsplit(str(self.values["client"]["redirect_uris"][0])).port or 0
        except (KeyError, TypeError, IndexError, ValueError):
            return 0

    def forget(self) -> bool:
        """Forget the tokens and the registration; say whether there were any."""
        self.values = {}
        return keys.remove_secret(self._name)

    def forget_tokens(self) -> None:
        """Forget the tokens alone, so that the person is asked anew."""
        if self.values.pop("tokens", None) is not None:
            self._save()

    def _save(self) -> None:
        keys.save_secret(self._name, json.dumps({**self.values, "url": self.url}))

    # -- as the SDK wants it ------------------------------------------------------------------------------------------

    async def get_tokens(self) -> OAuthToken | None:
        """Return the tokens, if there are any."""
        return _read(OAuthToken, self.values.get("tokens"))

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """Keep tokens, with when they expire and where they are refreshed."""
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
        """Keep this program's registration."""
        self.values["client"] = client_info.model_dump(mode="json", exclude_none=True)
        self._save()


class Login(OAuthClientProvider):
    """Authorizes requests with the tokens kept; asks a person only where one may be asked."""

    def __init__(
        self,
        name: str,
        kept: KeptLogin,
        client: Mapping[str, str],
        person: tuple[Show, Callback] | None,
        fail: Callable[[str], None],
    ) -> None:
        back = person[1].url if person is not None else f"http://127.0.0.1:{kept.redirect_port()}{PATH}"
        super().__init__(
            kept.url,
            OAuthClientMetadata(
                client_name="Surehand",
                redirect_uris=[AnyUrl(back)],
                grant_types=["authorization_code", "refresh_token"],
                response_types=["code"],
            ),
            cast("Any", kept),
            redirect_handler=self._send_person,
            callback_handler=self._await_person,
            client_metadata_url=client.get("client_metadata_url"),
        )
        kept.context = self.context
        self._name = name
        self._kept = kept
        self._client = client
        self._person = person
        self._back = back
        self._fail = fail
        self._issuer: str | None = None
        """Who gave out the tokens that are kept."""
        self._state = ""
        # The connection reports what goes wrong; the SDK would print it with a traceback.
        logging.getLogger("mcp.client.auth").addHandler(logging.NullHandler())

    async def _initialize(self) -> None:
        """Load the saved tokens, with what a refresh needs."""
        await super()._initialize()
        values, context = self._kept.values, self.context
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
                redirect_uris=[AnyUrl(self._back)],
                token_endpoint_auth_method="client_secret_basic" if secret else "none",
            )
        elif context.client_info is not None and self._back not in map(str, context.client_info.redirect_uris or ()):
            context.client_info = None  # registered with a port that is taken now

    async def _perform_authorization(self) -> httpx2.Request:
        """Refresh where that is possible, and otherwise ask the person."""
        try:
            self._check_issuer()
            if self._person is None and self.context.can_refresh_token():
                return await super()._refresh_token()
            return await super()._perform_authorization()
        except (OAuthFlowError, ToolFailure) as problem:
            self._fail(str(problem))
            raise

    async def _refresh_token(self) -> httpx2.Request:
        """Refresh a token that has expired, with its issuer: an earlier request may have been told of another one."""
        try:
            self._check_issuer()
        except OAuthFlowError as problem:
            self._fail(str(problem))
            raise
        return await super()._refresh_token()

    def _check_issuer(self) -> None:
        """Refuse to show what one issuer gave out to another: a server says who it is, and may say otherwise later."""
        known = self._issuer is None or issuers_match(self._expected_issuer(), self._issuer)
        if not known and (self._person is None or "client_id" in self._client):
            self._initialized = False  # the next request begins with what is kept, not with what was named here
            again = f"`surehand mcp logout {self._name}`, then `surehand mcp login {self._name}`"
            raise OAuthFlowError(
                f"it names another issuer of tokens than the one logged in to; if that is meant: {again}"
            )

    async def _send_person(self, url: str) -> None:
        if self._person is None:
            raise OAuthFlowError(f"it requires a login: `surehand mcp login {self._name}`")
        if not is_safe(url):
            raise OAuthFlowError("its login page is not at a plain https address")
        self._state = parse_qs(urlsplit(url).query).get("state", [""])[0]
        await self._person[0](url)

    async def _await_person(self) -> AuthorizationCodeResult:
        assert self._person is not None
        return await self._person[1].wait(self._state)


def is_safe(url: str) -> bool:
    """Say whether secrets may be sent to an address, or a person: by https, or within this machine.

    A name before an `@` is there to be taken for the host.
    """
    parts = urlsplit(url)
    if "@" in parts.netloc:
        return False
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


class Callback:
    """The page on this machine that the browser is sent back to with the answer."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}{PATH}"
        self._answers: asyncio.Queue[Mapping[str, str]] = asyncio.Queue(10)

    @classmethod
    @asynccontextmanager
    async def listening(cls, port: int) -> AsyncGenerator[Callback]:
        """Listen on this machine for as long as the block lasts; on another port where that one is taken."""
        made: list[Callback] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                async with asyncio.timeout(10):
                    await made[0]._serve(reader, writer)
            except (TimeoutError, OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass
            finally:
                writer.close()

        try:
            server = await asyncio.start_server(serve, "127.0.0.1", port, limit=HEAD_LIMIT)
        except OSError:
            server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=HEAD_LIMIT)
        made.append(cls(server.sockets[0].getsockname()[1]))
        try:
            yield made[0]
        finally:
            server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        words = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        parts = urlsplit(words[1] if len(words) == 3 and words[0] == "GET" else "")
        known = parts.path == PATH
        if known:
            given = {name: values[0] for name, values in parse_qs(parts.query).items()}
            if self._answers.full():
                self._answers.get_nowait()
            self._answers.put_nowait(given)
        said = b"Surehand has the answer; you can close this page." if known else b"There is nothing here."
        status = b"200 OK" if known else b"404 Not Found"
        lines = (b"HTTP/1.1 " + status, b"Content-Type: text/plain", b"Connection: close", b"", said)
        writer.write(b"\r\n".join(lines))
        await writer.drain()

    async def wait(self, state: str) -> AuthorizationCodeResult:
        """Return what the browser brought back; raise ToolFailure where that is a refusal, or nothing comes.

        Any page can send a browser here: only the answer to this very login counts.
        """
        try:
            async with asyncio.timeout(PERSON_S):
                while (given := await self._answers.get()).get("state") != state:
                    pass
        except TimeoutError:
            raise ToolFailure(f"nobody logged in within {PERSON_S:g} s") from None
        if "error" in given:
            said = given.get("error_description") or given["error"]
            raise ToolFailure(f"the login was refused: {visible(said[:300], lines=False)}")
        return AuthorizationCodeResult(code=given.get("code", ""), state=given.get("state"), iss=given.get("iss"))


def _read(model: Any, value: Any) -> Any:
    """Decode plain data; None where there is none, or it has another version."""
    try:
        return model.model_validate(value) if value else None
    except ValidationError:
        return None
