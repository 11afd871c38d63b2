"""RegistrySettings: how a schema registry is reached, checked.

Pure. Equal settings are the same registry with the same credentials. Secrets are never shown; files
are read later, by the thread that connects.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kfast.errors import ConfigurationError
from kfast.registry.api import RegistryUrl, read_url
from kfast.settings.secret import Secret

_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""The name of a header (RFC 9110)."""
_RESERVED: Final = frozenset({"authorization", "host", "content-length", "connection", "accept"})


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The arguments of a ``SchemaRegistry``."""

    urls: tuple[RegistryUrl, ...]
    basic_auth: Secret[str] | None = None
    """``USER:PASSWORD``."""
    bearer_token: Secret[str] | None = None
    ssl_cafile: str | None = None
    ssl_certfile: str | None = None
    ssl_keyfile: str | None = None
    ssl_key_password: Secret[str] | None = None
    ssl_check_hostname: bool = True
    headers: tuple[tuple[str, Secret[str]], ...] = ()
    timeout_ms: int = 10_000
    deadline_ms: int = 30_000
    retry_backoff_ms: int = 200
    miss_cache_ms: int = 60_000
    max_schemas: int = 10_000

    def __post_init__(self) -> None:
        if self.basic_auth is not None and self.bearer_token is not None:
            raise _bad("basic_auth and bearer_token are both given", "give one of them")
        has_tls = any(url.is_https for url in self.urls)
        for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_key_password"):
            if getattr(self, name) is not None and not has_tls:
                raise _bad(f"{name} has no effect with http", "give an https URL, or leave it out")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise _bad("ssl_keyfile without ssl_certfile", "give the client certificate too")
        for name, least in (
            ("timeout_ms", 1),
            ("deadline_ms", 1),
            ("retry_backoff_ms", 0),
            ("miss_cache_ms", 0),
            ("max_schemas", 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise _bad(f"{name} = {value!r}", f"a whole number of {least} or more")

    @property
    def authorization(self) -> Secret[str] | None:
        """The value of the Authorization header for ``basic_auth``."""
        if self.basic_auth is None:
            return None
        return Secret("Basic " + base64.b64encode(self.basic_auth.reveal().encode()).decode())


def urls_of(given: str | Sequence[str]) -> tuple[RegistryUrl, ...]:
    """Return the URLs of one text, which may have several with commas between, or of several."""
    texts = given.split(",") if isinstance(given, str) else [*given]
    if not texts or not all(isinstance(text, str) and text.strip() for text in texts):
        raise _bad("no URL of a schema registry is given", "such as http://HOST:8081")
    return tuple(read_url(text) for text in texts)


def basic_auth_of(given: str | tuple[str, str] | None) -> Secret[str] | None:
    """Return user and password of ``"USER:PASSWORD"`` or a pair."""
    if given is None:
        return None
    if isinstance(given, str):
        user, sign, password = given.partition(":")
        given = (user, password) if sign else ("", "")
    is_pair = len(given) == 2 and all(isinstance(each, str) for each in given)
    if not is_pair or not given[0] or ":" in given[0]:
        raise _bad("basic_auth is not a user and a password", "give (USER, PASSWORD)")
    return Secret(":".join(given))


def token_of(given: str | Callable[[], str] | None) -> Secret[str] | None:
    """Return a bearer token, or the callable that returns one."""
    if given is not None and not callable(given) and not (isinstance(given, str) and given):
        raise _bad("bearer_token is no text", "give the token, or a callable that returns it")
    return None if given is None else Secret(given)


def headers_of(given: Mapping[str, str] | None) -> tuple[tuple[str, Secret[str]], ...]:
    """Return headers that are sent with every request."""
    for name, value in (given or {}).items():
        is_text = isinstance(name, str) and isinstance(value, str)
        if not is_text or not _TOKEN.fullmatch(name) or not is_header_value(value):
            raise _bad("headers: not names and texts", "such as {'X-Tenant': 'a'}")
        if name.lower() in _RESERVED:
            raise _bad(f"headers: {name} is not for the caller", "use basic_auth or bearer_token")
    return tuple((name, Secret(value)) for name, value in (given or {}).items())


def is_header_value(value: str) -> bool:
    """Whether a text can be sent in a header."""
    return value.isascii() and value.isprintable()


def password_of(given: str | None) -> Secret[str] | None:
    """Return the password of the key."""
    if given is not None and not isinstance(given, str):
        raise _bad("ssl_key_password is no text", "give the password of the key")
    return None if given is None else Secret(given)


def _bad(problem: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"SchemaRegistry: {problem}", hint=hint)
