"""An authorization server on loopback that gives out signed access tokens, and whatever else a test wants signed."""

from __future__ import annotations

import json
import time
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from tests.mcp.login_stub import LoginStub


def _kind(key: Any) -> Any:
    return RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else ECAlgorithm


class IssuerStub(LoginStub):
    """Signs with an RSA key `one` and an elliptic one `two`; `rotate` has it use another key from now on."""

    def __init__(self) -> None:
        super().__init__()
        self.scope = "tools"
        self.given: list[str] = []
        """Every token it gave out."""
        self._audience: list[str] = []
        self.keys: dict[str, Any] = {
            "one": rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "two": ec.generate_private_key(ec.SECP256R1()),
        }
        self.publish()

    def publish(self) -> None:
        """Publish the keys there are."""
        public = {name: json.loads(_kind(key).to_jwk(key.public_key())) for name, key in self.keys.items()}
        self.pages["/jwks"] = {"keys": [{**each, "kid": name, "use": "sig"} for name, each in public.items()]}

    def rotate(self, name: str) -> None:
        self.keys = {name: ec.generate_private_key(ec.SECP256R1())}
        self.publish()

    def public_pem(self, name: str) -> bytes:
        from cryptography.hazmat.primitives import serialization

        form = serialization.PublicFormat.SubjectPublicKeyInfo
        pem: bytes = self.keys[name].public_key().public_bytes(serialization.Encoding.PEM, form)
        return pem

    def claims(self, audience: str, **more: Any) -> dict[str, Any]:
        """Return what a good token says; None leaves a claim out."""
        said = {"iss": self.base, "aud": audience, "sub": "ann", "client_id": "surehand-1", "scope": self.scope}
        said |= {"iat": int(time.time()), "exp": int(time.time()) + 600, **more}
        return {name: value for name, value in said.items() if value is not None}

    def sign(self, claims: dict[str, Any], *, key: str = "one", **header: Any) -> str:
        method = "RS256" if isinstance(self.keys[key], rsa.RSAPrivateKey) else "ES256"
        return jwt.encode(claims, self.keys[key], method, headers={"kid": key, "typ": "at+jwt", **header})

    def authorize(self, query: dict[str, str]) -> str:
        self._audience.append(query["resource"])
        self.scope = query.get("scope", "")
        return super().authorize(query)

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        status, said = super().token(form)
        if status == 200:
            self.given.append(self.sign(self.claims(self._audience[-1])))
            said |= {"access_token": self.given[-1], "scope": self.scope}
        return status, said

    def metadata(self) -> dict[str, Any]:
        return {**super().metadata(), "jwks_uri": f"{self.base}/jwks"}
