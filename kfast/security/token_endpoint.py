"""TokenEndpoint: requests OAuth tokens over HTTP, on the login worker.

One POST on a connection of its own, without redirects and without proxies from the environment. The
certificate of the endpoint is verified, against ``https_ca_location``, else the truststore of the
brokers, else the system's. The answer is bounded in size and time. A request that failed and may
succeed later is made again with back-off, until the time for setting up a connection is over.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Protocol

from kfast._base.clock import ExponentialBackoff
from kfast._base.http_exchange import HttpConnection, HttpError, https_context
from kfast._base.logs import get_logger
from kfast.errors import AuthenticationError, KafkaError
from kfast.security import authentication_errors as errors
from kfast.security.sasl.oidc import (
    MAX_ANSWER_BYTES,
    ClientCredentials,
    Endpoint,
    read_answer,
    token_request,
)
from kfast.security.tls import stores
from kfast.settings.secret import Secret
from kfast.types import OAuthToken

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast._base.http_exchange import HttpsContext
    from kfast.config import ConsumerConfig

logger = get_logger(__name__)


class Pause(Protocol):
    """How the login worker waits."""

    def __call__(self, wait_ms: int) -> bool:
        """Wait; return whether to go on."""
        ...


class TokenEndpoint:
    """Requests tokens with the settings of one consumer. Login worker only."""

    def __init__(self, config: ConsumerConfig, pause: Pause, clock: Clock) -> None:
        self._connect_ms = config.sasl_login_connect_timeout_ms
        self._read_ms = config.sasl_login_read_timeout_ms
        self._limit_ms = config.socket_connection_setup_timeout_ms
        self._backoff = ExponentialBackoff(
            config.sasl_login_retry_backoff_ms, config.sasl_login_retry_backoff_max_ms
        )
        self._context = _context_of(config)
        self._pause = pause
        self._clock = clock

    def request(self, endpoint: Endpoint, credentials: ClientCredentials) -> OAuthToken:
        """Return a token; `AuthenticationError` if the endpoint refuses or does not answer."""
        deadline_ms = self._clock.now_ms() + self._limit_ms
        attempt = 0
        while True:
            result = self._request_once(endpoint, credentials, deadline_ms)
            if isinstance(result, OAuthToken):
                return result
            wait_ms = max(1, self._backoff.backoff_ms(attempt, self._clock))
            attempt += 1
            is_final = not isinstance(result, AuthenticationError) or not result.is_transient
            if is_final or self._clock.now_ms() + wait_ms >= deadline_ms:
                raise result
            logger.debug("attempt %d: %s", attempt, result.message)
            if not self._pause(wait_ms):
                raise result

    def _request_once(
        self, endpoint: Endpoint, credentials: ClientCredentials, deadline_ms: int
    ) -> OAuthToken | KafkaError:
        connection = HttpConnection(
            endpoint.host,
            endpoint.port,
            self._context if endpoint.is_https else None,
            connect_ms=self._connect_ms,
            read_ms=self._read_ms,
            clock=self._clock,
        )
        form, authorization, headers = token_request(credentials)
        try:
            with contextlib.closing(connection):
                reply = connection.exchange(
                    "POST",
                    endpoint.path,
                    {**headers, "Authorization": authorization},
                    form,
                    most_bytes=MAX_ANSWER_BYTES,
                    deadline_ms=deadline_ms,
                )
        except HttpError as error:
            reason = error.reason
            if error.is_untrusted:
                reason = f"its certificate is not trusted: {reason}"
            return errors.endpoint_unreachable(endpoint.origin, credentials.client_id, reason)
        body = Secret(reply.body)
        if len(body.reveal()) > MAX_ANSWER_BYTES:
            return errors.endpoint_malformed(
                credentials.client_id, f"its answer has more than {MAX_ANSWER_BYTES} bytes"
            )
        return read_answer(reply.status, body, credentials, self._clock.wall_ms())


def _context_of(config: ConsumerConfig) -> HttpsContext:
    """Return the context for the token endpoint; `ConfigurationError` for a bad CA file."""
    name, path = "https_ca_location", config.https_ca_location
    if path is not None:
        trusted: str | None = stores.certificates_at(config.spelling(name), path)
    else:
        name = "the truststore"
        trusted = stores.trusted_certificates(config, stores.ask_passwords(config))
    return https_context(name, trusted)
