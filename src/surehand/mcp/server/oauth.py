"""A server as an OAuth resource server: it accepts access tokens that an authorization server issued for it.

It publishes which ones (RFC 9728), and verifies each token: a JWT (RFC 9068) of a configured issuer, for this server
and no other, not expired, signed by one of the issuer's keys with an allowed algorithm. No claim is used before that;
error messages repeat nothing of a token, and no token is logged.
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
"""Characters allowed in a quoted string of a header."""
_METADATA: Final = ("oauth-authorization-server", "openid-configuration")
ALGORITHMS: Final = frozenset(
    ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
)
"""Allowed algorithms: signatures by a private key. A token with a shared secret (HS256) or no signature (none) could be
forged by anyone who knows the issuer's public key."""
LEEWAY_S: Final = 30.0
"""Tolerated difference between two machines' clocks."""
TOKEN_CHARACTERS: Final = 16_000
KEYS_S: Final = 600.0
"""How long an issuer's keys are cached, and so how long a withdrawn one still counts."""
STALE_KEYS_S: Final = 3600.0
"""How long they are used while the issuer cannot be reached."""
REFETCH_S: Final = 30.0
"""Least time between fetches for an unknown key id: anyone can send one."""
RETRY_S: Final = 5.0
"""Least time between attempts to reach an issuer: requests wait during one."""
FETCH_S: Final = 10.0
FETCH_BYTES: Final = 1024 * 1024


@frozen
class Refusal:
    """Why a request is refused: HTTP status, OAuth error code, and a sentence."""

    status: int
    error: str
    message: str


class _BadToken(Exception):
    """A refused token; the message repeats nothing of it."""


class _Unreachable(Exception):
    """The issuer's keys cannot be fetched."""


class ResourceServer:
    """Verifies access tokens, and publishes where to get them."""

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
        """The configured host name of this server, if any."""
        return (urlsplit(self._own.resource).netloc,) if self._own.resource else ()

    def resource(self, here: str) -> str:
        """Return the audience that tokens need; `here` is the address this server listens at."""
        return self._own.resource or here

    # -- metadata -----------------------------------------------------------------------------------------------------

    def is_metadata_path(self, path: str, here: str) -> bool:
        """Return whether a path is one of the server's metadata documents."""
        return path in (WELL_KNOWN, WELL_KNOWN + urlsplit(here).path, WELL_KNOWN + _path(self.resource(here)))

    def metadata(self, here: str) -> dict[str, Any]:
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
        """Return the `WWW-Authenticate` header of a refusal: the error, and the address of the metadata."""
        parts = urlsplit(self.resource(here))
        params = {"error": refusal.error, "error_description": refusal.message if refusal.error else ""}
        params["scope"] = " ".join(self._own.scopes)
        params["resource_metadata"] = f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{_path(parts.geturl())}"
        return b"Bearer " + ", ".join(f'{name}="{value}"' for name, value in params.items() if value).encode()

    # -- tokens -------------------------------------------------------------------------------------------------------

    async def authenticate(self, token: str, here: str) -> AuthenticatedUser | Refusal:
        """Return the user of a token, or why it is refused."""
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
        """Return the claims of a token after verifying it; raise _BadToken for any other."""
        if len(token) > TOKEN_CHARACTERS:
            raise _BadToken("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            unverified: Any = jwt.decode(token, options={"verify_signature": False})
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise _BadToken("this is not a signed access token") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise _BadToken("the token is not signed in a way that is taken here")
        if "crit" in header:
            raise _BadToken("the token has conditions that are not known here")
        issuer = self._issuers.get(unverified["iss"]) if isinstance(unverified.get("iss"), str) else None
        if issuer is None:
            raise _BadToken("the token is of an issuer that is not trusted here")
        key = await issuer.key(key_id if isinstance(key_id, str) else None, str(algorithm))
        resource = self.resource(here)
        audience = self._own.audience or (resource, resource.removesuffix("/"), f"{resource.removesuffix('/')}/")
        try:
            claims = jwt.decode(
                token,
                key,
                algorithms=[str(algorithm)],
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
    return next((text for kind, text in _EXPLAINED.items() if isinstance(problem, kind)), "the token is not valid")


def _scopes(claims: Mapping[str, Any]) -> list[str]:
    """Return the scopes of a token: `scope`, separated by blanks, or `scp`, as some issuers have it, a list or such."""
    found: Any = claims.get("scope", claims.get("scp", ()))
    if isinstance(found, str):
        return found.split()
    return [each for each in cast("list[Any]", found) if isinstance(each, str)] if isinstance(found, list) else []


def _path(url: str) -> str:
    path = urlsplit(url).path
    return "" if path == "/" else path


def _check_address(url: str, setting: str) -> None:
    """Raise SettingsError for an address whose answers could be forged on the way."""
    parts = urlsplit(url)
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))
    plain = _PLAIN.fullmatch(url) and not (parts.query or parts.fragment or parts.username is not None)
    if not (safe and plain and parts.hostname):
        raise SettingsError(f"{setting}: {url!r} must be an https address without a query (http on this machine only)")


class _Issuer:
    """The keys of one authorization server, fetched when first needed and again when they expire or one is unknown."""

    def __init__(self, url: str, clock: Callable[[], float]) -> None:
        self.url = url
        self._clock = clock
        self._keys: Sequence[Mapping[str, Any]] = ()
        self._tried_at = self._fetched_at = self._refetched_at = float("-inf")
        self._fetching = asyncio.Lock()

    async def key(self, key_id: str | None, algorithm: str) -> jwt.PyJWK:
        """Return the key that a token names, for an algorithm; raise _BadToken if there is none."""
        if self._clock() - self._fetched_at <= KEYS_S and (found := self._find(key_id, algorithm)) is not None:
            return found  # without the lock, which a request with an unknown key id may hold
        async with self._fetching:
            if self._clock() - self._fetched_at > KEYS_S and self._clock() - self._tried_at > RETRY_S:
                await self._refresh()
            if self._clock() - self._fetched_at > STALE_KEYS_S:
                raise _Unreachable("the server that gives out the tokens cannot be reached; try again later")
            found = self._find(key_id, algorithm)
            if found is None and self._clock() - self._refetched_at > REFETCH_S:
                self._refetched_at = self._clock()  # the issuer may use a new key
                await self._refresh()
                found = self._find(key_id, algorithm)
        if found is None:
            raise _BadToken("the token is signed with a key that its issuer does not have")
        return found

    def _find(self, key_id: str | None, algorithm: str) -> jwt.PyJWK | None:
        candidates = [
            each
            for each in self._keys
            if key_id in (None, each.get("kid"))
            and each.get("use") in (None, "sig")
            and each.get("alg") in (None, algorithm)
        ]
        keys: list[jwt.PyJWK] = []
        for each in candidates:
            try:
                keys.append(jwt.PyJWK(dict(each), algorithm))  # raises if the algorithm needs another kind of key
            except (jwt.PyJWTError, ValueError, TypeError, KeyError):
                continue
        return keys[0] if len(keys) == 1 or (keys and key_id is not None) else None

    async def _refresh(self) -> None:
        self._tried_at = self._clock()
        try:
            self._keys = await self._fetch()
            self._fetched_at = self._clock()
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
        urls = [f"{base}/.well-known/{each}{path.removesuffix('/')}" for each in _METADATA]
        urls.append(f"{self.url.removesuffix('/')}/.well-known/{_METADATA[1]}")  # as OpenID Connect has it
        for url in dict.fromkeys(urls):
            found = await _get_json(http, url)
            if found is not None and found.get("issuer") == self.url and isinstance(found.get("jwks_uri"), str):
                address = str(found["jwks_uri"])
                keys = urlsplit(address)
                if keys.scheme != "https" and (keys.scheme, keys.hostname) != (parts.scheme, parts.hostname):
                    raise ValueError("its keys are not at an https address")
                return address
        raise ValueError("it does not say where its keys are")


async def _get_json(http: httpx2.AsyncClient, url: str) -> dict[str, Any] | None:
    """Return the JSON object at an address; None if there is none. Redirects are not followed."""
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
