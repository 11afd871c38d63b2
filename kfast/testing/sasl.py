"""The server's side of PLAIN, SCRAM and OAUTHBEARER, written from the RFCs and not from kfast.

One object per authentication: ``respond`` takes a client token and returns the server's, or raises
`Refused` with the text of error 58; one that cannot be read raises ValueError, KeyError or
IndexError. ``is_done`` says whether the client is authenticated.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from kfast.errors import ErrorCode
from kfast.protocol.api_keys import ApiKey


class Refused(Exception):
    """The log-in is refused with this text."""


def _check(is_well_formed: bool) -> None:
    if not is_well_formed:
        raise ValueError("malformed token")


class SaslServer(Protocol):
    """One authentication."""

    is_done: bool

    def respond(self, token: bytes) -> bytes:
        """Take a client token, return the server's."""
        ...


class PlainServer:
    """RFC 4616."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self.is_done = False
        self._users = users

    def respond(self, token: bytes) -> bytes:
        authorization, user, password = token.decode().split("\0")
        if authorization not in {"", user} or self._users.get(user) != password:
            raise Refused("Authentication failed: Invalid username or password")
        self.is_done = True
        return b""


class ScramServer:
    """RFC 5802; ``iterations`` and ``salt`` are the server's choice."""

    def __init__(
        self,
        hash_name: str,
        users: Mapping[str, str],
        *,
        nonce: str = "3rfcNHYJY1ZVvWVs7j",
        salt: bytes = b"0123456789abcdef",
        iterations: int = 4096,
        tokens: Mapping[str, str] | None = None,
    ) -> None:
        self.is_done = False
        self._hash_name = hash_name
        self._users = users
        self._tokens = tokens or {}
        self._nonce = nonce
        self._salt = salt
        self._iterations = iterations
        self._messages: list[str] = []
        self._password = ""

    def respond(self, token: bytes) -> bytes:
        text = token.decode()
        return (self._final(text) if self._messages else self._first(text)).encode()

    def _first(self, text: str) -> str:
        _check(text.startswith("n,,"))
        bare = text[3:]
        fields = dict(attribute.split("=", 1) for attribute in bare.split(","))
        user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        passwords = self._tokens if fields.get("tokenauth") == "true" else self._users
        if user not in passwords:
            raise Refused("Authentication failed during authentication due to invalid credentials")
        self._password = passwords[user]
        salt = base64.b64encode(self._salt).decode()
        first = f"r={fields['r']}{self._nonce},s={salt},i={self._iterations}"
        self._messages = [bare, first]
        return first

    def _final(self, text: str) -> str:
        without_proof, _, proof = text.rpartition(",p=")
        channel, nonce = without_proof.split(",", 1)
        _check(base64.b64decode(channel[2:]) == b"n,,")
        _check(self._messages[1].startswith(nonce + ","))
        message = ",".join([*self._messages, without_proof]).encode()
        salted = hashlib.pbkdf2_hmac(
            self._hash_name, self._password.encode(), self._salt, self._iterations
        )
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash_name, client_key).digest()
        mask = self._hmac(stored_key, message)
        sent = base64.b64decode(proof)
        recovered = bytes(left ^ right for left, right in zip(sent, mask, strict=True))
        if hashlib.new(self._hash_name, recovered).digest() != stored_key:
            raise Refused("Authentication failed during authentication due to invalid credentials")
        self.is_done = True
        signature = self._hmac(self._hmac(salted, b"Server Key"), message)
        return "v=" + base64.b64encode(signature).decode()

    def _hmac(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._hash_name).digest()


class OAuthBearerServer:
    """RFC 7628; ``accepts`` decides about a token."""

    def __init__(self, accepts: Callable[[str], bool]) -> None:
        self.is_done = False
        self.extensions: dict[str, str] = {}
        self._accepts = accepts
        self._has_failed = False

    def respond(self, token: bytes) -> bytes:
        if self._has_failed:
            _check(token == b"\x01")
            raise Refused("Authentication failed due to invalid credentials with SASL mechanism")
        head, *pairs, empty, last = token.decode().split("\x01")
        _check((head, empty, last) == ("n,,", "", ""))
        fields = dict(pair.split("=", 1) for pair in pairs)
        scheme, bearer = fields.pop("auth").split(" ")
        _check(scheme == "Bearer")
        self.extensions = fields
        if not self._accepts(bearer):
            self._has_failed = True
            return json.dumps({"status": "invalid_token"}).encode()
        self.is_done = True
        return b""


@dataclass
class SaslListener:
    """Mechanisms, users and tokens of the listeners, and how long sessions last."""

    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    users: dict[str, str] = field(default_factory=lambda: {"app": "secret"})
    delegation_tokens: dict[str, str] = field(default_factory=dict)
    tokens: set[str] = field(default_factory=set)
    iterations: int = 4096
    session_lifetime_ms: int = 0
    logins: int = 0
    """Connections that were authenticated."""
    reauthentications: int = 0
    """How often one was authenticated again, or tried to."""
    refusals: int = 0

    def server(self, mechanism: str) -> SaslServer:
        """Return the server's side of one authentication."""
        if mechanism == "PLAIN":
            return PlainServer(self.users)
        if mechanism == "OAUTHBEARER":
            return OAuthBearerServer(self.tokens.__contains__)
        return ScramServer(
            mechanism.removeprefix("SCRAM-").replace("-", "").lower(),
            self.users,
            iterations=self.iterations,
            tokens=self.delegation_tokens,
        )


# --- connections ----------------------------------------------------------------------------------


_BEFORE: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class SaslSession:
    """How far one connection to a listener with SASL is (KIP-368)."""

    def __init__(self, listener: SaslListener) -> None:
        self.is_authenticated = False
        self._listener = listener
        self._server: SaslServer | None = None
        self._expires_ms: int | None = None

    def may_send(self, api_key: int, now_ms: int) -> bool:
        """Return whether a request is in order; else the broker closes the connection."""
        if not self.is_authenticated or self._server is not None:
            return api_key in _BEFORE
        is_over = self._expires_ms is not None and now_ms >= self._expires_ms
        return api_key == ApiKey.SASL_HANDSHAKE or not is_over

    def handshake(self, mechanism: str) -> int:
        """Begin an authentication; return the error code."""
        if mechanism not in self._listener.mechanisms:
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        if self.is_authenticated:
            self._listener.reauthentications += 1
        self._server = self._listener.server(mechanism)
        return 0

    def authenticate(self, token: bytes, now_ms: int) -> tuple[int, str | None, bytes, int]:
        """Return error code, its text, the server's token and the session's lifetime."""
        if self._server is None:
            return ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate without SaslHandshake", b"", 0
        try:
            answer = self._server.respond(token)
        except (Refused, ValueError, KeyError, IndexError) as error:
            self._listener.refusals += 1
            text = str(error) if isinstance(error, Refused) else "malformed token"
            return ErrorCode.SASL_AUTHENTICATION_FAILED, text, b"", 0
        if not self._server.is_done:
            return 0, None, answer, 0
        self._server = None
        self._listener.logins += not self.is_authenticated
        self.is_authenticated = True
        lifetime_ms = self._listener.session_lifetime_ms
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms else None
        return 0, None, answer, lifetime_ms
