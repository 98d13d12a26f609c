"""A server as an OAuth resource server: it takes access tokens that an authorization server gave out for it.

It says who that is (RFC 9728), and checks what it is shown: a signed token (JWT, RFC 9068) of an issuer that was set,
for this server and no other, not expired, signed by one of the issuer's keys with a method on the list. Nothing a token
says of itself counts before that; errors are in our own words, and no token is logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from time import monotonic
from typing import Any, Final, cast
from urllib.parse import urlsplit

import httpx2
import jwt
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken

from surehand.core.errors import SettingsError
from surehand.core.frozen import frozen
from surehand.core.settings import ServeSettings
from surehand.web.local_server import is_loopback

_log = logging.getLogger("surehand")
WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_PLAIN: Final = re.compile(r"[!#-\[\]-~]+")
"""What may stand in a header between quotes."""
_METADATA: Final = ("oauth-authorization-server", "openid-configuration")
ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""How a token may be signed: with a private key the issuer alone has. What is signed with a shared secret (HS256) or
not at all (none) could be made by anyone who knows the issuer's public key."""
LEEWAY_S: Final = 30.0
"""How far the clocks of two machines may be apart."""
TOKEN_CHARACTERS: Final = 16_000
KEYS_S: Final = 600.0
"""How long an issuer's keys are believed; one that it has withdrawn counts no longer after that."""
STALE_KEYS_S: Final = 3600.0
"""How long they are believed while the issuer cannot be reached."""
REFETCH_S: Final = 30.0
"""How often an unknown key makes us ask for new ones: anyone can name a key that does not exist."""
RETRY_S: Final = 5.0
"""How soon an issuer that could not be reached is tried again: everyone waits meanwhile."""
FETCH_S: Final = 10.0
FETCH_BYTES: Final = 1024 * 1024


@frozen
class Refusal:
    """Why a request is not let in: the status, the protocol's word for it, and a sentence."""

    status: int
    error: str
    words: str


class _BadToken(Exception):
    """A token that is not taken; says why without repeating any of it."""


class _Unreachable(Exception):
    """The issuer's keys cannot be had."""


class ResourceServer:
    """Checks access tokens, and says where they are to be had."""

    def __init__(self, settings: ServeSettings, *, clock: Callable[[], float] = monotonic) -> None:
        for issuer in settings.issuers:
            _check_address(issuer, "serve.issuers")
        if settings.resource:
            _check_address(settings.resource, "serve.resource")
        if wrong := [scope for scope in settings.scopes if not _PLAIN.fullmatch(scope)]:
            raise SettingsError(f"serve.scopes: {wrong[0]!r} must be a word of plain characters")
        self._own = settings
        self._issuers = {issuer: _Issuer(issuer, clock) for issuer in settings.issuers}

    @property
    def hosts(self) -> tuple[str, ...]:
        """The name under which clients reach this server, where one was set."""
        return (urlsplit(self._own.resource).netloc,) if self._own.resource else ()

    def resource(self, here: str) -> str:
        """Return the address tokens must be for; `here` is the one this server listens at."""
        return self._own.resource or here

    # -- what clients are told ----------------------------------------------------------------------------------------

    def describes(self, path: str, here: str) -> bool:
        """Return whether a path is one of the server's metadata documents."""
        return path in (WELL_KNOWN, WELL_KNOWN + urlsplit(here).path, WELL_KNOWN + _path(self.resource(here)))

    def describe(self, here: str) -> dict[str, Any]:
        """Return the metadata of RFC 9728."""
        scopes = {"scopes_supported": list(self._own.scopes)} if self._own.scopes else {}
        return {
            "resource": self.resource(here),
            "authorization_servers": list(self._own.issuers),
            "bearer_methods_supported": ["header"],
            "resource_name": "Surehand",
            **scopes,
        }

    def challenge(self, refusal: Refusal, here: str) -> bytes:
        """Return the `WWW-Authenticate` of a refusal: where tokens are to be had, and what this one lacked."""
        parts = urlsplit(self.resource(here))
        found = {"error": refusal.error, "error_description": refusal.words if refusal.error else ""}
        found["scope"] = " ".join(self._own.scopes)
        found["resource_metadata"] = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{_path(parts.geturl())}"
        return b"Bearer " + ", ".join(f'{name}="{value}"' for name, value in found.items() if value).encode()

    # -- tokens -------------------------------------------------------------------------------------------------------

    async def authenticate(self, token: str, here: str) -> AuthenticatedUser | Refusal:
        """Return whose token this is, or why it is not taken."""
        if not token:
            return Refusal(401, "", "this server requires an access token in the Authorization header")
        try:
            claims = await self._verify(token, here)
        except _BadToken as problem:
            return Refusal(401, "invalid_token", str(problem))
        except _Unreachable as problem:
            return Refusal(503, "", str(problem))
        scopes = _scopes(claims)
        if missing := [scope for scope in self._own.scopes if scope not in scopes]:
            return Refusal(403, "insufficient_scope", f"the token lacks the scope {' '.join(missing)}")
        client = str(claims.get("client_id") or claims.get("azp") or "")
        subject = str(claims["sub"]) if claims.get("sub") else None
        return AuthenticatedUser(
            AccessToken(token="", client_id=client, scopes=scopes, subject=subject, claims={"iss": claims["iss"]})
        )

    async def _verify(self, token: str, here: str) -> Mapping[str, Any]:
        """Return what a token says, once it is proved; raise _BadToken for any other."""
        if len(token) > TOKEN_CHARACTERS:
            raise _BadToken("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            said: Any = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise _BadToken("this is not a signed access token") from None
        method, named = header.get("alg"), header.get("kid")
        if method not in ALGORITHMS:
            raise _BadToken("the token is not signed in a way that is taken here")
        if "crit" in header:
            raise _BadToken("the token has conditions that are not known here")
        issuer = self._issuers.get(said["iss"]) if isinstance(said.get("iss"), str) else None
        if issuer is None:
            raise _BadToken("the token is of an issuer that is not trusted here")
        key = await issuer.key(named if isinstance(named, str) else None, str(method))
        resource = self.resource(here)
        audience = self._own.audience or (resource, resource.removesuffix("/"), f"{resource.removesuffix('/')}/")
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[str(method)],
                audience=audience,
                issuer=issuer.url,
                leeway=LEEWAY_S,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, TypeError) as problem:
            raise _BadToken(_explain(problem)) from None
        if not (claims.get("sub") or claims.get("client_id") or claims.get("azp")):
            raise _BadToken("the token does not say whose it is")
        if "cnf" in claims:
            raise _BadToken("the token is bound to a key of its client, which cannot be checked here")
        return claims


_EXPLAINED: Final[Mapping[type[Exception], str]] = {
    jwt.ExpiredSignatureError: "the token has expired",
    jwt.ImmatureSignatureError: "the token is not valid yet",
    jwt.InvalidAudienceError: "the token is for another server",
    jwt.MissingRequiredClaimError: "the token does not say until when, by whom or for whom it was given",
}


def _explain(problem: Exception) -> str:
    return next((words for kind, words in _EXPLAINED.items() if isinstance(problem, kind)), "the token is not valid")


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of a token: a text of words, or a list under the name some issuers use."""
    found: Any = claims.get("scope", claims.get("scp", ()))
    if isinstance(found, str):
        return found.split()
    return [each for each in cast("list[Any]", found) if isinstance(each, str)] if isinstance(found, list) else []


def _path(url: str) -> str:
    path = urlsplit(url).path
    return "" if path == "/" else path


def _check_address(url: str, setting: str) -> None:
    """Raise SettingsError for an address whose answers anybody on the way could forge."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    plain = _PLAIN.fullmatch(url) and not (parts.query or parts.fragment or parts.username is not None)
    if not (safe and plain and parts.hostname):
        raise SettingsError(f"{setting}: {url!r} must be an https address without a query (http on this machine only)")


class _Issuer:
    """The keys of one authorization server, fetched when they are first needed and again when they change."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.url = url
        self._clock = clock
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._tried = self._fetched = self._refetched = float("-inf")
        self._fetching = asyncio.Lock()

    async def key(self, name: str | None, method: str) -> jwt.PyJWK:
        """Return the key a token names, for one way of signing; raise _BadToken where there is none."""
        if self._clock() - self._fetched <= KEYS_S and (found := self._find(name, method)) is not None:
            return found  # while others wait for the issuer, because somebody named a key that it does not have
        async with self._fetching:
            if self._clock() - self._fetched > KEYS_S and self._clock() - self._tried > RETRY_S:
                await self._refresh()
            if self._clock() - self._fetched > STALE_KEYS_S:
                raise _Unreachable("the server that gives out the tokens cannot be reached; try again later")
            found = self._find(name, method)
            if found is None and self._clock() - self._refetched > REFETCH_S:
                self._refetched = self._clock()  # the issuer may have begun to use another
                await self._refresh()
                found = self._find(name, method)
        if found is None:
            raise _BadToken("the token is signed with a key that its issuer does not have")
        return found

    def _find(self, name: str | None, method: str) -> jwt.PyJWK | None:
        fitting = [
            each
            for each in self._keys
            if name in (None, each.get("kid"))
            and each.get("use") in (None, "sig")
            and each.get("alg") in (None, method)
        ]
        made: list[jwt.PyJWK] = []
        for each in fitting:
            try:
                made.append(jwt.PyJWK(dict(each), method))  # raises where this kind of key cannot sign so
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue
        return made[0] if len(made) == 1 or (made and name is not None) else None

    async def _refresh(self) -> None:
        self._tried = self._clock()
        try:
            self._keys = await self._fetch()
            self._fetched = self._clock()
        except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, RecursionError, OSError) as problem:
            _log.warning("the keys of %s cannot be had: %s", self.url, problem or type(problem).__name__)

    async def _fetch(self) -> list[Mapping[str, Any]]:
        async with asyncio.timeout(FETCH_S), httpx2.AsyncClient(timeout=FETCH_S) as http:
            address = await self._find_keys_address(http)
            found: Any = (await _get_json(http, address) or {}).get("keys")
        if isinstance(found, list):
            return [cast("Mapping[str, Any]", each) for each in cast("list[Any]", found) if isinstance(each, dict)]
        raise ValueError("there are no keys")

    async def _find_keys_address(self, http: httpx2.AsyncClient) -> str:
        """Return the issuer's `jwks_uri`; its metadata must name the issuer exactly (RFC 8414)."""
        parts, path = urlsplit(self.url), _path(self.url)
        base = f"{parts.scheme}://{parts.netloc}"
        places = [f"{base}/.well-known/{each}{path.removesuffix('/')}" for each in _METADATA]
        places.append(f"{self.url.removesuffix('/')}/.well-known/{_METADATA[1]}")  # as OpenID Connect has it
        for place in dict.fromkeys(places):
            found = await _get_json(http, place)
            if found is not None and found.get("issuer") == self.url and isinstance(found.get("jwks_uri"), str):
                address = str(found["jwks_uri"])
                keys = urlsplit(address)
                if keys.scheme != "https" and (keys.scheme, keys.hostname) != (parts.scheme, parts.hostname):
                    raise ValueError("its keys are not at an https address")
                return address
        raise ValueError("it does not say where its keys are")


async def _get_json(http: httpx2.AsyncClient, url: str) -> dict[str, Any] | None:
    """Return the JSON object at an address; None where there is none. Redirects are not followed."""
    body = bytearray()
    async with http.stream("GET", url, headers={"accept": "application/json"}) as answer:
        if answer.status_code >= 500:
            raise ValueError(f"it answered {answer.status_code}")
        if answer.status_code != 200:
            return None
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > FETCH_BYTES:
                raise ValueError("the answer is too long")
    found: Any = json.loads(body)
    return cast("dict[str, Any]", found) if isinstance(found, dict) else None
