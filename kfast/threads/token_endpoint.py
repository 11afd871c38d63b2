"""TokenEndpoint: requests OAuth tokens over HTTP, on the login worker.

One POST on a connection of its own, without redirects and without proxies from the environment. The
certificate of the endpoint is verified, against ``https_ca_location``, else the truststore of the
brokers, else the system's. The answer is bounded in size and time. A request that failed and may
succeed later is made again with back-off, until the time for setting up a connection is over.
"""

from __future__ import annotations

import contextlib
import http.client
import logging
import ssl
from typing import TYPE_CHECKING, Final, Protocol

from kfast._clock import ExponentialBackoff
from kfast._version import installed_version
from kfast.client import authentication_errors as errors
from kfast.client.sasl.oidc import (
    MAX_ANSWER_BYTES,
    ClientCredentials,
    Endpoint,
    read_answer,
    token_request,
)
from kfast.errors import AuthenticationError, ConfigurationError, KafkaError
from kfast.network.tls import stores
from kfast.settings.secret import Secret
from kfast.types import OAuthToken

if TYPE_CHECKING:
    from kfast._clock import Clock
    from kfast.config import ConsumerConfig

logger = logging.getLogger(__name__)

_MS: Final = 1000
_READ_BYTES: Final = 64 << 10


class Pause(Protocol):
    """How the login worker waits."""

    def __call__(self, wait_ms: int) -> bool:
        """Wait; return whether to go on."""
        ...


class TokenEndpoint:
    """Requests tokens with the settings of one consumer. Login worker only."""

    def __init__(self, config: ConsumerConfig, pause: Pause, clock: Clock) -> None:
        self._connect_s = config.sasl_login_connect_timeout_ms / _MS
        self._read_s = config.sasl_login_read_timeout_ms / _MS
        self._limit_ms = config.socket_connection_setup_timeout_ms
        self._backoff = ExponentialBackoff(
            config.sasl_login_retry_backoff_ms, config.sasl_login_retry_backoff_max_ms
        )
        self._context = _context_of(config)
        self._user_agent = f"kfast/{installed_version() or 'unknown'}"
        self._pause = pause
        self._clock = clock

    def request(self, endpoint: Endpoint, credentials: ClientCredentials) -> OAuthToken:
        """Return a token; `AuthenticationError` if the endpoint refuses or does not answer."""
        deadline_ms = self._clock.now_ms() + self._limit_ms
        attempt = 0
        while True:
            found = self._request_once(endpoint, credentials, deadline_ms)
            if isinstance(found, OAuthToken):
                return found
            wait_ms = max(1, self._backoff.backoff_ms(attempt, self._clock))
            attempt += 1
            is_final = not isinstance(found, AuthenticationError) or not found.is_transient
            if is_final or self._clock.now_ms() + wait_ms >= deadline_ms:
                raise found
            logger.debug("attempt %d: %s", attempt, found.message)
            if not self._pause(wait_ms):
                raise found

    def _request_once(
        self, endpoint: Endpoint, credentials: ClientCredentials, deadline_ms: int
    ) -> OAuthToken | KafkaError:
        reason: str
        try:
            with contextlib.closing(self._connection(endpoint)) as connection:
                status, body = self._exchange(connection, endpoint, credentials, deadline_ms)
        except ssl.SSLCertVerificationError as error:
            reason = f"its certificate is not trusted: {error.verify_message}"
        except http.client.HTTPException as error:
            reason = f"it does not speak HTTP: {type(error).__name__}"
        except OSError as error:
            reason = (error.strerror or str(error) or type(error).__name__).lower()
        else:
            if len(body.reveal()) > MAX_ANSWER_BYTES:
                return errors.endpoint_malformed(
                    credentials.client_id, f"its answer has more than {MAX_ANSWER_BYTES} bytes"
                )
            return read_answer(status, body, credentials, self._clock.wall_ms())
        return errors.endpoint_unreachable(endpoint.origin, credentials.client_id, reason)

    def _connection(self, endpoint: Endpoint) -> http.client.HTTPConnection:
        if not endpoint.is_https:
            return http.client.HTTPConnection(endpoint.host, endpoint.port, timeout=self._connect_s)
        return http.client.HTTPSConnection(
            endpoint.host, endpoint.port, timeout=self._connect_s, context=self._context
        )

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        endpoint: Endpoint,
        credentials: ClientCredentials,
        deadline_ms: int,
    ) -> tuple[int, Secret[bytes]]:
        """Return status and body; of a body that is too long a little more than the limit."""
        connection.connect()
        connection.sock.settimeout(self._read_s)
        body, authorization, headers = token_request(credentials, self._user_agent)
        connection.putrequest("POST", endpoint.path, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.putheader("Content-Length", str(len(body.reveal())))
        connection.putheader("Authorization", authorization.reveal())
        connection.endheaders(body.reveal())
        with connection.getresponse() as response:
            received = bytearray()
            while len(received) <= MAX_ANSWER_BYTES:
                chunk = response.read1(_READ_BYTES)
                if not chunk:
                    break
                received += chunk
                if self._clock.now_ms() >= deadline_ms:
                    raise TimeoutError("timed out")
            return response.status, Secret(bytes(received))


def _context_of(config: ConsumerConfig) -> ssl.SSLContext:
    """Return the context for the token endpoint; `ConfigurationError` for a bad CA file."""
    name, path = "https_ca_location", config.https_ca_location
    if path is not None:
        trusted: str | None = stores.certificates_at(config.spelling(name), path)
    else:
        name = "the truststore"
        trusted = stores.trusted_certificates(config, stores.ask_passwords(config))
    try:
        return ssl.create_default_context(cadata=trusted)
    except ssl.SSLError as error:
        reason = str(error).lower()
    raise ConfigurationError(
        f"{name}: a certificate cannot be read",
        cause=reason,
        hint="check the file with: openssl x509 -in FILE -text",
    )
