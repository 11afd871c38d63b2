"""Token providers: objects and callables that a program makes tokens with.

``sasl_login_callback_handler_class`` is an object with ``token()`` and perhaps ``extensions()``, as
in kafka-python; or a callable, also one with an argument as librdkafka's ``oauth_cb``. It returns
the token as text, a tuple ``(token, expiry in seconds since 1970)``, or an `OAuthToken`.

It is user code: it is called by the login worker only, may raise anything, and what it raises may
quote a token. Of a token without an expiry the claims are read, unverified: they decide when it is
renewed and how messages name the user, nothing else.
"""

from __future__ import annotations

import base64
import binascii
import inspect
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kfast.errors import AuthenticationError, KafkaError
from kfast.security import authentication_errors as errors
from kfast.security.sasl.oauthbearer import problem_of
from kfast.settings.secret import Secret
from kfast.types import OAuthToken

MAX_CLAIMS_CHARACTERS: Final = 64 << 10
_LATEST_S: Final = 1e11
_TOKEN_CHARACTERS: Final = re.compile(r"[A-Za-z0-9\-._~+/=%]{20,}")
_TEXT_SHOWN: Final = 200

TokenSource = Callable[[], OAuthToken]
"""Returns a token that can be sent; it may block, and raises `KafkaError`."""


def token_source(provider: Any, argument: Secret[str], mechanism: str) -> TokenSource:
    """Return the function that asks a provider; ``argument`` is for a callable that takes one."""
    ask = provider.token if hasattr(provider, "token") else _without_argument(provider, argument)
    extensions = getattr(provider, "extensions", None)

    def source() -> OAuthToken:
        failure: tuple[AuthenticationError, BaseException | None] | None = None
        answer: Secret[Any] = Secret("")
        extra: object = None
        try:
            answer = Secret(ask())
            extra = extensions() if callable(extensions) else None
        except BaseException as error:
            failure = _failed(error, mechanism), _harmless(error)
        if failure is not None:  # outside of the handler: what was raised may quote a token
            raise failure[0] from failure[1]
        token = _token_of(answer, extra)
        if isinstance(token, str):
            raise errors.provider_failed(mechanism, token)
        problem = problem_of(token)
        if problem is not None:
            raise errors.unusable_token(mechanism, problem)
        return completed(token)

    return source


def _without_argument(provider: Any, argument: Secret[str]) -> Callable[[], Any]:
    try:
        parameters = inspect.signature(provider).parameters.values()
    except (TypeError, ValueError):
        return provider  # type: ignore[no-any-return]  # a callable, as the settings check
    required = [
        parameter
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind in {parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD}
    ]
    return (lambda: provider(argument.reveal())) if required else provider


# --- answers --------------------------------------------------------------------------------------


def _token_of(answer: Secret[Any], extra: object) -> OAuthToken | str:
    """Return the token of an answer, or what is wrong with it."""
    token = answer.source
    expiry: object = None
    if isinstance(token, tuple) and 2 <= len(token) <= 4:  # librdkafka's has four
        token, expiry, *rest = token
        extra = rest[1] if len(rest) == 2 else extra
    if isinstance(token, str):
        if expiry is not None and not _is_time(expiry):
            return "the expiry is no number of seconds since 1970"
        token = OAuthToken(token, None if expiry is None else int(float(expiry) * 1000))  # type: ignore[arg-type]
    if not isinstance(token, OAuthToken) or not isinstance(token.value, str):
        return f"it returned {type(token).__name__}, not str, (str, expiry) or OAuthToken"
    if token.expires_at_ms is not None and not _is_time(token.expires_at_ms, _LATEST_S * 1000):
        return "expires_at_ms of its OAuthToken is no number of ms since 1970"
    if token.principal is not None and not isinstance(token.principal, str):
        return "the principal of its OAuthToken is no text"  # type: ignore[unreachable]
    extra = token.extensions if extra is None else extra
    if not isinstance(extra, Mapping):
        return "its extensions are no mapping"
    return replace(token, extensions=dict(extra))


def _is_time(value: object, latest: float = _LATEST_S) -> bool:
    # Compared only: an int of a claim may be too large for a float.
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < latest


def completed(token: OAuthToken) -> OAuthToken:
    """Return a token with the expiry and the principal of its claims, where it has none itself."""
    if token.expires_at_ms is not None and token.principal is not None:
        return token
    claims = _claims(token.value)
    expiry, subject = claims.get("exp"), claims.get("sub")
    expires_at_ms, principal = token.expires_at_ms, token.principal
    if expires_at_ms is None and _is_time(expiry):
        expires_at_ms = int(float(expiry) * 1000)  # type: ignore[arg-type]
    if principal is None and isinstance(subject, str) and subject:
        principal = errors.printable(subject)
    return replace(token, expires_at_ms=expires_at_ms, principal=principal)


def _claims(value: str) -> dict[str, object]:
    """Return the payload of a JWT, unverified; empty if it is none."""
    parts = value.split(".")
    if len(parts) != 3 or len(parts[1]) > MAX_CLAIMS_CHARACTERS:
        return {}
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError, RecursionError):
        return {}
    return claims if isinstance(claims, dict) else {}


# --- failures -------------------------------------------------------------------------------------


def _failed(failure: BaseException, mechanism: str) -> AuthenticationError:
    text = _text_of(failure)
    if isinstance(failure, AuthenticationError) and not _TOKEN_CHARACTERS.search(text):
        return failure
    words = f": {errors.printable(_TOKEN_CHARACTERS.sub('...', text), _TEXT_SHOWN)}" if text else ""
    return errors.provider_failed(mechanism, type(failure).__name__ + words)


def _harmless(failure: BaseException) -> BaseException | None:
    """Return the cause that may be shown: none that quotes a token."""
    if isinstance(failure, KafkaError):
        return failure.__cause__
    return None if _TOKEN_CHARACTERS.search(_text_of(failure)) else failure


def _text_of(failure: BaseException) -> str:
    try:
        return str(failure)
    except Exception:  # a __str__ of the user's
        return ""
