"""TokenEndpoint: an OAuth token endpoint on loopback, for the OIDC clients of a LocalKafka.

Owns an HTTP server in threads of this process. It answers ``POST /token`` for the client
credentials grant (RFC 6749, 4.4) with HTTP Basic or form credentials, which are those of the
cluster's users; anything else is refused as the RFC says. The threads end with the process, and
hold no reference to the ``LocalKafka``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from kfast._base.logs import get_logger
from kfast.local.tokens import TokenIssuer

logger = get_logger(__name__)
PATH: Final = "/token"
_LIFETIME_S: Final = 3600
_LONGEST_BODY: Final = 1 << 20
_READ_TIMEOUT_SECONDS: Final = 10
_POLL_SECONDS: Final = 0.05


class TokenEndpoint:
    """Serves tokens of ``issuer`` to ``users`` (name to secret), looked up at each request."""

    def __init__(self, host: str, users: Mapping[str, str], issuer: TokenIssuer) -> None:
        class Handler(_Handler):
            endpoint_users = users
            endpoint_issuer = issuer

        self._server = ThreadingHTTPServer((host, 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://{host}:{self._server.server_port}{PATH}"
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            args=(_POLL_SECONDS,),
            name="token-endpoint",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    endpoint_users: Mapping[str, str]
    endpoint_issuer: TokenIssuer
    timeout = _READ_TIMEOUT_SECONDS

    def do_POST(self) -> None:
        if self.path != PATH:
            self._answer(404, {"error": "not_found"})
            return
        try:
            size = int(self.headers.get("Content-Length") or 0)
            if not 0 <= size <= _LONGEST_BODY:
                raise ValueError(f"a body of {size} bytes")
            form = parse_qs(self.rfile.read(size).decode("ascii"))
            user, secret = self._credentials(form)
        except (ValueError, binascii.Error) as error:
            self._answer(400, _refusal("invalid_request", str(error)))
            return
        if form.get("grant_type") != ["client_credentials"]:
            self._answer(400, _refusal("unsupported_grant_type", "not client_credentials"))
            return
        known = self.endpoint_users.get(user)
        if known is None or not hmac.compare_digest(known.encode(), secret.encode()):
            self._answer(401, _refusal("invalid_client", "bad client credentials"))
            return
        scope = form.get("scope", [None])[0]
        token = self.endpoint_issuer.token(user, _LIFETIME_S, {"scope": scope})
        answer: dict[str, object] = {
            "access_token": token,
            "token_type": "Bearer",
            "expires_in": _LIFETIME_S,
        }
        if scope is not None:
            answer["scope"] = scope
        self._answer(200, answer)

    def _credentials(self, form: dict[str, list[str]]) -> tuple[str, str]:
        kind, _, encoded = self.headers.get("Authorization", "").partition(" ")
        if kind.lower() != "basic":
            return form.get("client_id", [""])[0], form.get("client_secret", [""])[0]
        user, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        if user not in self.endpoint_users:  # encoded as a form, as RFC 6749, 2.3.1 has it
            user, secret = unquote(user), unquote(secret)
        return user, secret

    def _answer(self, status: int, body: Mapping[str, object]) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log to this module's logger; request lines have no secrets."""
        logger.debug(format, *args)


def _refusal(error: str, description: str) -> dict[str, object]:
    return {"error": error, "error_description": description}
