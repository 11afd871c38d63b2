"""A token endpoint's client credentials grant (OpenID Connect, RFC 6749 section 4.4).

Pure: builds the one request and reads the answer; the login worker sends it. The endpoint is
reached over https, plain http only on this machine. Its answer is bounded and untrusted: a token is
a text, a lifetime a positive number, and what is shown of an error is short and printable.
"""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

from kfast.errors import ConfigurationError, KafkaError
from kfast.security import authentication_errors as errors
from kfast.settings.secret import Secret
from kfast.types import OAuthToken

MAX_ANSWER_BYTES: Final = 1 << 20

_LOOPBACK: Final = re.compile(r"localhost|127(?:\.\d{1,3}){3}|::1", re.ASCII)
_SHOWN: Final = 200
_TOO_MANY: Final = 429
_MAX_LIFETIME_S: Final = 1e9


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a token endpoint is."""

    is_https: bool
    host: str
    port: int
    path: str
    """With the query."""

    @property
    def origin(self) -> str:
        """How messages name it: a query may contain a secret."""
        return f"{'https' if self.is_https else 'http'}://{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client shows to the endpoint, and asks for."""

    client_id: str
    client_secret: Secret[str]
    scope: str | None = None
    is_urlencoded: bool = False
    """Whether id and secret are URL-encoded in the header, as RFC 6749 wants it."""


def read_endpoint(url: str) -> Endpoint:
    """Return the endpoint of a URL; `ConfigurationError` if it must not be used."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = None, None
    if (
        parts is None
        or not parts.hostname
        or parts.username is not None
        or not url.isascii()
        or not url.isprintable()
        or " " in url
    ):
        raise ConfigurationError(
            "sasl_oauthbearer_token_endpoint_url is no URL of a token endpoint",
            hint="write https://HOST/PATH, without user name and password",
        )
    is_https = parts.scheme == "https"
    if not is_https and not (parts.scheme == "http" and _LOOPBACK.fullmatch(parts.hostname)):
        raise ConfigurationError(
            f"sasl_oauthbearer_token_endpoint_url: {parts.scheme or 'no scheme'} is not https",
            cause="the client secret would cross the network readable",
            hint="use https; http is for this machine only (localhost)",
        )
    path = parts.path or "/"
    if parts.query:
        path += "?" + parts.query
    return Endpoint(is_https, parts.hostname, port or (443 if is_https else 80), path)


def token_request(
    credentials: ClientCredentials,
) -> tuple[Secret[bytes], Secret[str], dict[str, str]]:
    """Return body, value of the Authorization header, and the other headers of the POST."""
    form = {"grant_type": "client_credentials"}
    if credentials.scope:
        form["scope"] = credentials.scope
    return (
        Secret(urlencode(form).encode()),
        _basic(credentials),
        {
            "Accept": "application/json",
            "Content-Type": "application/x-www-form-urlencoded",
        },
    )


def _basic(credentials: ClientCredentials) -> Secret[str]:
    parts = [credentials.client_id, credentials.client_secret.reveal()]
    if credentials.is_urlencoded:
        parts = [quote_plus(text) for text in parts]
    return Secret("Basic " + base64.b64encode(":".join(parts).encode()).decode())


def is_retriable(status: int) -> bool:
    """Return whether the endpoint may answer another request with a token."""
    return status >= 500 or status == _TOO_MANY


def read_answer(
    status: int, body: Secret[bytes], credentials: ClientCredentials, wall_ms: int
) -> OAuthToken | KafkaError:
    """Return the token of an answer that came at ``wall_ms``, or the error to raise."""
    answer = _read_json(body.reveal())
    if status != 200:
        return errors.endpoint_refused(
            credentials.client_id,
            status,
            _shown(answer.get("error")),
            _shown(answer.get("error_description")),
            is_final=not is_retriable(status),
        )
    token, lifetime_ms = answer.get("access_token"), _lifetime_ms(answer.get("expires_in"))
    problem = None
    if not isinstance(token, str) or not token:
        problem = "access_token is missing or no text"
    elif lifetime_ms == 0:
        problem = "expires_in is no positive number"
    if problem is not None:
        return errors.endpoint_malformed(credentials.client_id, problem)
    return OAuthToken(str(token), None if lifetime_ms is None else wall_ms + lifetime_ms)


def _lifetime_ms(value: object) -> int | None:
    """Return ``expires_in`` in ms, None if it is missing, 0 if it is no positive number."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,9}", value):  # some endpoints quote it
        value = int(value)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    if not 0 < value <= _MAX_LIFETIME_S:
        return 0
    return max(1, int(value * 1000))


def _read_json(body: bytes) -> dict[str, object]:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _shown(text: object) -> str | None:
    return errors.printable(text, _SHOWN) if isinstance(text, str) else None
