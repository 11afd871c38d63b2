"""OAuth tokens of a LocalKafka, signed with a key of its own, and the endpoint that serves them.

`TokenIssuer` owns the key (EC P-256, algorithm ES256), its public half as ``jwks.json``, which the
brokers read, and the claims that the brokers check. It needs the ``cryptography`` package.

`TokenEndpoint` owns an HTTP server on loopback, in threads of this process. It answers
``POST /token`` for the client credentials grant (RFC 6749, 4.4) with HTTP Basic or form
credentials, which are those of the cluster's users; anything else is refused as the RFC says. The
threads end with the process, and hold no reference to the ``LocalKafka``.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs, unquote

from kfast._base.logs import get_logger
from kfast._base.optional import optional_package

_ISSUER: Final = "https://issuer.local-kafka"
_AUDIENCE: Final = "kafka"
_KEY_ID: Final = "1"
_NUMBER_BYTES: Final = 32
logger = get_logger(__name__)
PATH: Final = "/token"
_LIFETIME_S: Final = 3600
_LONGEST_BODY: Final = 1 << 20
_READ_TIMEOUT_SECONDS: Final = 10
_POLL_SECONDS: Final = 0.05


class TokenIssuer:
    """Signs tokens; writes ``jwks.json`` into ``folder``."""

    __slots__ = ("_key", "jwks")

    def __init__(self, folder: Path) -> None:
        optional_package("cryptography", "LocalKafka with OAUTHBEARER")
        from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

        self._key = ec.generate_private_key(ec.SECP256R1())
        point = self._key.public_key().public_numbers()
        public = {
            "kty": "EC",
            "crv": "P-256",
            "alg": "ES256",
            "use": "sig",
            "kid": _KEY_ID,
            "x": _number(point.x),
            "y": _number(point.y),
        }
        self.jwks = folder / "jwks.json"
        self.jwks.write_text(json.dumps({"keys": [public]}), encoding="ascii")

    def validator_config(self) -> dict[str, str]:
        """Return the brokers' settings with which they check tokens."""
        return {
            "sasl.oauthbearer.jwks.endpoint.url": self.jwks.as_uri(),
            "sasl.oauthbearer.expected.audience": _AUDIENCE,
            "sasl.oauthbearer.expected.issuer": _ISSUER,
        }

    def token(self, user: str, lifetime_s: float, claims: Mapping[str, object]) -> str:
        """Return a token; claims that are None are left out, a negative lifetime is over."""
        from cryptography.hazmat.primitives import hashes  # noqa: PLC0415
        from cryptography.hazmat.primitives.asymmetric import ec, utils  # noqa: PLC0415

        now = time.time()
        payload: dict[str, object] = {
            "iss": _ISSUER,
            "aud": _AUDIENCE,
            "sub": user,
            "iat": int(min(now, now + lifetime_s)),
            "exp": int(now + lifetime_s),
            **claims,
        }
        header = {"alg": "ES256", "typ": "JWT", "kid": _KEY_ID}
        present = {name: value for name, value in payload.items() if value is not None}
        signed = f"{_json(header)}.{_json(present)}"
        r, s = utils.decode_dss_signature(
            self._key.sign(signed.encode("ascii"), ec.ECDSA(hashes.SHA256()))
        )
        return f"{signed}.{_number(r, s)}"


def _json(value: object) -> str:
    return _base64(json.dumps(value).encode())


def _number(*values: int) -> str:
    return _base64(b"".join(value.to_bytes(_NUMBER_BYTES, "big") for value in values))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode("ascii")


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
        password = self.endpoint_users.get(user)
        if password is None or not hmac.compare_digest(password.encode(), secret.encode()):
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
