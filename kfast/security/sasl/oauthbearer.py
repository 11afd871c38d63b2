"""OAUTHBEARER (RFC 7628, KIP-255, KIP-342): a bearer token in one client token.

::

    C1  n,,\\x01auth=Bearer <token>[\\x01<key>=<value>...]\\x01\\x01
    S1  empty                the token is accepted
        {"status": ...}      it is not: the client sends one byte \\x01, and the broker answers
                             SASL_AUTHENTICATION_FAILED

Extensions are checked as RFC 7628 wants it; a token that is none is refused here and not shown. The
server's JSON is hostile input: bounded, and only two texts of it are used.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from kfast.security import authentication_errors as errors
from kfast.security.sasl.mechanism import Work
from kfast.settings.secret import Secret
from kfast.types import OAuthToken

if TYPE_CHECKING:
    from kfast.client.cluster import Node
    from kfast.errors import AuthenticationError

NAME: Final = "OAUTHBEARER"

MAX_TOKEN_BYTES: Final = 65_535
MAX_ERROR_BYTES: Final = 64 << 10

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*", re.ASCII)
_EXTENSION_KEY: Final = re.compile(r"[A-Za-z]+", re.ASCII)
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")
_GIVE_UP: Final = b"\x01"


class OAuthBearerMechanism:
    """One log-in with a token.

    ``token`` returns the token of this authentication; it may block, and runs the user's code.
    ``on_refused`` is called when the broker has refused it. ``mechanism`` names the mechanism in
    errors: AWS_MSK_IAM is this one on the wire.
    """

    name = NAME

    def __init__(
        self,
        node: Node,
        token: Callable[[], OAuthToken],
        wall_ms: Callable[[], int],
        mechanism: str = NAME,
        on_refused: Callable[[], None] | None = None,
    ) -> None:
        self.user: str | None = None
        self.is_complete = False
        self._node = node
        self._ask = token
        self._wall_ms = wall_ms
        self._mechanism = mechanism
        self._on_refused = on_refused
        self._expires_at_ms: int | None = None
        self._status: str | None = None
        self._scope: str | None = None

    def first(self) -> Work:
        """Return C1, once there is a token."""
        return Work(self._first)

    def _first(self) -> Secret[bytes]:
        token = self._ask()
        problem = problem_of(token)
        if problem is not None:
            raise errors.unusable_token(self._mechanism, problem)
        self.user = token.principal
        self._expires_at_ms = token.expires_at_ms
        return client_first(token)

    def answer(self, token: Secret[bytes]) -> Secret[bytes] | None:
        """Take the server's answer: empty, or why it refuses the token."""
        if self._status is None and not self.is_complete and not token.reveal():
            self.is_complete = True
            return None
        if self._status is not None or self.is_complete:
            raise errors.out_of_order(self._node, self._mechanism, self.user)
        self._status, self._scope = _read_error(token.reveal())
        return Secret(_GIVE_UP)

    def refused(self, text: str | None) -> AuthenticationError:
        """Return the error for a token that the broker refused."""
        if self._on_refused is not None:
            self._on_refused()
        expired_ms = None
        if self._expires_at_ms is not None:
            expired_ms = self._wall_ms() - self._expires_at_ms
        return errors.token_refused(
            self._node, self._mechanism, self.user, self._status, self._scope, text, expired_ms
        )


def problem_of(token: OAuthToken) -> str | None:
    """Return why a token or its extensions cannot be sent, None if they can."""
    if not _TOKEN.fullmatch(token.value) or len(token.value) > MAX_TOKEN_BYTES:
        return "the token is empty, too long, or has characters that no bearer token has"
    return problem_of_extensions(token.extensions)


def problem_of_extensions(extensions: Mapping[str, str]) -> str | None:
    """Return which extension cannot be sent, None if all can."""
    for key, value in extensions.items():
        if not isinstance(key, str) or not _EXTENSION_KEY.fullmatch(key) or key == "auth":
            return "the name of an extension is not of the letters a-z and A-Z, or is auth"
        if not isinstance(value, str) or not _EXTENSION_VALUE.fullmatch(value):
            return f"the value of the extension {key} is empty or not printable"
    return None


def client_first(token: OAuthToken) -> Secret[bytes]:
    """Return C1 of a token that is in order."""
    fields = [f"auth=Bearer {token.value}", *(f"{k}={v}" for k, v in token.extensions.items())]
    return Secret(("n,,\x01" + "\x01".join(fields) + "\x01\x01").encode())


def _read_error(token: bytes) -> tuple[str, str | None]:
    """Return status and scope of the server's JSON, as far as it has them."""
    try:
        error = json.loads(token) if len(token) <= MAX_ERROR_BYTES else None
    except (ValueError, RecursionError):
        error = None
    if not isinstance(error, dict):
        return "no reason given", None
    status, scope = error.get("status"), error.get("scope")
    return (
        status if isinstance(status, str) and status else "no reason given",
        scope if isinstance(scope, str) and scope else None,
    )
