"""RegistryHttp: makes the requests for schemas, on the thread of the registry.

One kept connection per server. Credentials are sent to the servers of the settings only: redirects
are followed within the same origin. A bearer token that is a callable's is asked for again when it
was refused. Certificates are verified; files are read at the first connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kfast._base.http_exchange import HttpConnection, HttpError, HttpReply, https_context
from kfast.errors import SchemaRegistryAuthenticationError
from kfast.registry import api
from kfast.registry.settings import RegistrySettings, is_header_value
from kfast.security.tls import stores
from kfast.security.tls.context import load_identity
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast._base.http_exchange import HttpsContext
    from kfast.registry.api import Outcome
    from kfast.registry.lookups import SchemaFetch

MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


class RegistryHttp:
    """The connections to one registry. Made, used and closed by one thread."""

    def __init__(self, settings: RegistrySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._connections: dict[int, HttpConnection] = {}
        self._context: HttpsContext | None = None
        self._authorization = settings.authorization

    def fetch(self, fetch: SchemaFetch) -> Outcome:
        """Make one request and return what its answer means; raises `KafkaError` for settings."""
        url = self._settings.urls[fetch.server]
        path = api.path_of(url, fetch.key, is_serialized=fetch.is_serialized)
        token = self._settings.bearer_token
        is_kept_token = token is not None and token.is_callable and self._authorization is not None
        try:
            reply = self._get(fetch.server, path)
            if reply.status == 401 and is_kept_token:
                self._authorization = None
                reply = self._get(fetch.server, path)
            for _ in range(MAX_REDIRECTS):
                if reply.status not in _REDIRECTS or "location" not in reply.headers:
                    break
                target = api.redirected(url, path, reply.headers["location"])
                if target is None:
                    return api.Failure(api.redirects_elsewhere(url, reply.headers["location"]))
                path = target
                reply = self._get(fetch.server, path)
        except HttpError as error:
            if error.is_untrusted:
                return api.Failure(api.untrusted(url, error.reason))
            return api.Failure(api.unreachable(url, error.reason), is_refused=error.is_refused)
        answer = api.HttpAnswer(
            reply.status,
            reply.headers.get("content-type", ""),
            reply.body,
            reply.headers.get("retry-after"),
        )
        wall_ms = self._clock.wall_ms()
        return api.read_answer(url, fetch.key, answer, wall_ms, is_serialized=fetch.is_serialized)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def _get(self, server: int, path: str) -> HttpReply:
        settings = self._settings
        headers: dict[str, str | Secret[str]] = {"Accept": api.ACCEPT, **dict(settings.headers)}
        authorization = self._authorized()
        if authorization is not None:
            headers["Authorization"] = authorization
        return self._connection(server).exchange(
            "GET",
            path,
            headers,
            most_bytes=api.MAX_ANSWER_BYTES,
            deadline_ms=self._clock.deadline_ms(settings.timeout_ms),
        )

    def _connection(self, server: int) -> HttpConnection:
        made = self._connections.get(server)
        if made is None:
            url, timeout_ms = self._settings.urls[server], self._settings.timeout_ms
            made = self._connections[server] = HttpConnection(
                url.host,
                url.port,
                self._tls() if url.is_https else None,
                connect_ms=timeout_ms,
                read_ms=timeout_ms,
                clock=self._clock,
            )
        return made

    # --- credentials ------------------------------------------------------------------------------

    def _authorized(self) -> Secret[str] | None:
        """Return the value of the Authorization header; None: no credentials are given."""
        token = self._settings.bearer_token
        if self._authorization is None and token is not None:
            self._authorization = self._bearer(token)
        return self._authorization

    def _bearer(self, token: Secret[str]) -> Secret[str]:
        problem, cause = "bearer_token did not return a token", None
        try:
            made = Secret(token.reveal())
            if isinstance(made.source, str) and made.source and is_header_value(made.source):
                return Secret("Bearer " + made.source)
        except Exception as error:  # of the user's callable
            problem, cause = f"bearer_token raised {type(error).__name__}", error
        raise SchemaRegistryAuthenticationError(
            f"no credentials for the schema registry {self._settings.urls[0]}: {problem}",
            hint="let the callable return the token as str",
            url=str(self._settings.urls[0]),
        ) from cause

    def _tls(self) -> HttpsContext:
        if self._context is None:
            settings = self._settings
            trusted = None
            if settings.ssl_cafile is not None:
                trusted = stores.certificates_at("ssl_cafile", settings.ssl_cafile)
            context = https_context("ssl_cafile", trusted)
            context.check_hostname = settings.ssl_check_hostname
            if settings.ssl_certfile is not None:
                identity = stores.certificate_of_files(
                    settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_key_password
                )
                load_identity(context, identity, "ssl_key_password")
            self._context = context
        return self._context
