"""A server that wants a login, and the authorization server that gives out its tokens, on loopback."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

TOOL = {"name": "whoami", "description": "Tell who asks.", "inputSchema": {"type": "object"}}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "remote", "version": "1"},
}


class LoginStub:
    """Counts what happens, and can be told to distrust the tokens it gave."""

    def __init__(self) -> None:
        self.valid: set[str] = set()
        self.refreshable: set[str] = set()
        self.grants: list[str] = []
        self.registered = 0
        self.refuses = False
        self.expires_in = 3600
        self.page = "/authorize"
        self.pages: dict[str, Any] = {}
        """What else is to be had, by path."""
        self._challenges: dict[str, str] = {}
        outer = self

        class Handler(_Handler):
            stub = outer

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self._server.server_address[1]}"
        self.url = f"{self.base}/mcp"
        self.issuer = self.base
        """Who is named as giving out the tokens."""
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    # -- the authorization server --------------------------------------------------------------------------------------

    def authorize(self, query: dict[str, str]) -> str:
        """Return where the browser is sent back to."""
        answer = {"state": query["state"], "iss": self.base}
        if self.refuses:
            return f"{query['redirect_uri']}?{urlencode({**answer, 'error': 'access_denied'})}"
        assert query["code_challenge_method"] == "S256"
        code = f"code{len(self._challenges)}"
        self._challenges[code] = query["code_challenge"]
        return f"{query['redirect_uri']}?{urlencode({**answer, 'code': code})}"

    def token(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.grants.append(form["grant_type"])
        if form["grant_type"] == "refresh_token":
            if form["refresh_token"] not in self.refreshable:
                return 400, {"error": "invalid_grant"}
            self.refreshable.discard(form["refresh_token"])
        else:
            digest = hashlib.sha256(form["code_verifier"].encode()).digest()
            if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != self._challenges.pop(form["code"]):
                return 400, {"error": "invalid_grant"}
        number = len(self.grants)
        self.valid.add(f"secret-access-{number}")
        self.refreshable.add(f"secret-refresh-{number}")
        given = {"access_token": f"secret-access-{number}", "refresh_token": f"secret-refresh-{number}"}
        return 200, {**given, "token_type": "Bearer", "expires_in": self.expires_in}

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.base,
            "authorization_endpoint": f"{self.base}{self.page}" if self.page.startswith("/") else self.page,
            "token_endpoint": f"{self.base}/elsewhere/token",
            "registration_endpoint": f"{self.base}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }


class _Handler(BaseHTTPRequestHandler):
    stub: LoginStub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def answer(self, status: int, body: Any = None, **headers: str) -> None:
        content = json.dumps(body).encode() if body is not None else b""
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def do_GET(self) -> None:
        stub, parts = self.stub, urlsplit(self.path)
        if parts.path == "/.well-known/oauth-protected-resource/mcp":
            self.answer(200, {"resource": stub.url, "authorization_servers": [stub.issuer]})
        elif parts.path == "/.well-known/oauth-authorization-server":
            self.answer(200, stub.metadata())
        elif parts.path == "/authorize":
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            self.answer(302, Location=stub.authorize(query))
        elif parts.path in stub.pages:
            self.answer(200, stub.pages[parts.path])
        else:
            self.answer(405 if parts.path == "/mcp" else 404)

    def do_POST(self) -> None:
        stub = self.stub
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/register":
            stub.registered += 1
            self.answer(201, {**json.loads(body), "client_id": "surehand-1", "token_endpoint_auth_method": "none"})
        elif self.path == "/elsewhere/token":
            form = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            status, said = stub.token(form)
            self.answer(status, said)
        elif self.headers.get("Authorization", "").removeprefix("Bearer ") not in stub.valid:
            where = f'Bearer resource_metadata="{stub.base}/.well-known/oauth-protected-resource/mcp"'
            self.answer(401, {"error": "no token"}, WWW_Authenticate=where)
        else:
            self._message(json.loads(body))

    def _message(self, message: dict[str, Any]) -> None:
        answers: dict[str, Any] = {
            "initialize": HELLO,
            "tools/list": {"tools": [TOOL]},
            "tools/call": {"content": [{"type": "text", "text": "you"}]},
        }
        method = message["method"]
        if "id" not in message:
            self.answer(202)
        elif method in answers:
            self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "result": answers[method]})
        else:
            error = {"code": -32601, "message": "unknown"}
            self.answer(200, {"jsonrpc": "2.0", "id": message["id"], "error": error})
