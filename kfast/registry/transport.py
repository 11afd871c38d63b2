"""HTTP requests for schemas, or calls of a user's own client of a registry.

`RegistryHttp` keeps one connection per server. Credentials are sent to the servers of the settings
only: redirects are followed within the same origin. A bearer token that is a callable's is asked
for again when it was refused. Certificates are verified; files are read at the first connection.

`RegistryClient` calls an object of the user's, for OAuth, Glue and whatever else that knows. It has
``get_schema(id)`` and, if it looks these up too, ``get_schema_by_guid(guid)``,
``get_latest_version(subject)`` and ``get_version(subject, number)``, as confluent-kafka's
``SchemaRegistryClient``. They return the text of an Avro schema, or an object with ``schema_str``
or ``text``, and if they apply ``schema_type`` and ``references``; those of a version may have it as
their ``schema``. An exception with ``http_status_code`` 404 means that it is not there; 429, 5xx
and those of the network may pass.

Both are made, used and closed by the thread of the registry.
"""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from kfast._base.http_exchange import HttpConnection, HttpError, HttpReply, https_context
from kfast.errors import SchemaRegistryAuthenticationError
from kfast.registry import api
from kfast.registry.registered_schema import AVRO, KeyKind, SchemaKey
from kfast.security.authentication_errors import printable
from kfast.security.tls import stores
from kfast.security.tls.context import load_identity
from kfast.settings.secret import Secret

if TYPE_CHECKING:
    from kfast._base.clock import Clock
    from kfast._base.http_exchange import HttpsContext
    from kfast.registry.api import Outcome, RegistrySettings
    from kfast.registry.lookups import SchemaFetch

MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


def transport_of(settings: RegistrySettings, clock: Clock) -> RegistryHttp | RegistryClient:
    """Make what the settings ask for."""
    if settings.client is not None:
        return RegistryClient(settings.client, settings.servers[0])
    return RegistryHttp(settings, clock)


class RegistryHttp:
    """The connections to the servers of one registry."""

    def __init__(self, settings: RegistrySettings, clock: Clock) -> None:
        self._settings = settings
        self._clock = clock
        self._connections: dict[int, HttpConnection] = {}
        self._authorization: Secret[str] | None = None
        if settings.basic_auth is not None:
            user = base64.b64encode(settings.basic_auth.reveal().encode()).decode()
            self._authorization = Secret("Basic " + user)

    def fetch(self, fetch: SchemaFetch) -> Outcome:
        """Make one request; raises `KafkaError` for settings that cannot be used."""
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
                location = reply.headers.get("location")
                if reply.status not in _REDIRECTS or location is None:
                    break
                target = api.redirected(url, path, location)
                if target is None:
                    return api.failure(
                        url,
                        f"the schema registry {url} redirects to another server, which is not "
                        "followed",
                        found=api.origin_of(location),
                        hint="give the URL of that server, if it is the registry",
                    )
                path = target
                reply = self._get(fetch.server, path)
        except HttpError as error:
            if not error.is_untrusted:
                return api.Failure(api.unreachable(url, error.reason), is_refused=error.is_refused)
            return api.failure(
                url,
                f"the certificate of the schema registry {url} is not trusted",
                cause=error.reason,
                hint="give its authority's certificate as ssl_cafile",
                command_hint="give its authority's certificate: schema.registry.ssl.ca.location in "
                "a file (-F FILE)",
            )
        wall_ms = self._clock.wall_ms()
        return api.read_reply(url, fetch.key, reply, wall_ms, is_serialized=fetch.is_serialized)

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections.values():
            connection.close()

    def _get(self, server: int, path: str) -> HttpReply:
        timeout_ms = self._settings.timeout_ms
        if server not in self._connections:
            url = urlsplit(self._settings.urls[server])
            self._connections[server] = HttpConnection(
                url.hostname or "",
                url.port,
                self._context if url.scheme == "https" else None,
                connect_ms=timeout_ms,
                read_ms=timeout_ms,
                clock=self._clock,
            )
        headers: dict[str, str | Secret[str]] = {"Accept": api.ACCEPT}
        headers.update(self._settings.headers)
        if self._authorization is None and self._settings.bearer_token is not None:
            self._authorization = self._bearer(self._settings.bearer_token)
        if self._authorization is not None:
            headers["Authorization"] = self._authorization
        return self._connections[server].exchange(
            "GET",
            path,
            headers,
            most_bytes=api.MAX_ANSWER_BYTES,
            deadline_ms=self._clock.deadline_ms(timeout_ms),
        )

    def _bearer(self, token: Secret[str]) -> Secret[str]:
        problem, cause = "bearer_token did not return a token", None
        try:
            text = Secret(token.reveal())  # no local variable of a traceback
            if isinstance(text.source, str) and text.source and api.is_header_value(text.source):
                return Secret("Bearer " + text.source)
        except Exception as error:  # of the user's callable
            problem, cause = f"bearer_token raised {type(error).__name__}", error
        raise SchemaRegistryAuthenticationError(
            f"no credentials for the schema registry {self._settings.urls[0]}: {problem}",
            hint="let the callable return the token as str",
            url=self._settings.urls[0],
        ) from cause

    @functools.cached_property
    def _context(self) -> HttpsContext:
        settings = self._settings
        path = settings.ssl_cafile
        trusted = None if path is None else stores.certificates_at("ssl_cafile", path)
        context = https_context("ssl_cafile", trusted)
        context.check_hostname = settings.ssl_check_hostname
        if settings.ssl_certfile is not None:
            identity = stores.certificate_of_files(
                settings.ssl_certfile, settings.ssl_keyfile, settings.ssl_key_password
            )
            load_identity(context, identity, "ssl_key_password")
        return context


class RegistryClient:
    """A user's client, called for each schema."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name

    def fetch(self, fetch: SchemaFetch) -> Outcome:
        """Call the client."""
        key = fetch.key
        method, arguments = _call_of(key)
        call = getattr(self._client, method, None)
        if call is None:
            return api.failure(
                self._name,
                f"{self._name} has no {method}: {key} cannot be looked up",
                hint=f"add the method {method}, or use records with schema ids",
            )
        try:
            result = call(*arguments)
            return api.read_schema(self._name, key, _document_of(result)) or api.failure(
                self._name,
                f"{self._name} returned {type(result).__name__} for {key}, which has no schema",
                hint="return the text, or an object with schema_str and schema_type",
            )
        except BaseException as error:  # of the user's client, which must not end the thread
            return self._failure(key, error)

    def close(self) -> None:
        """Leave the client as it is: it is the caller's."""

    def _failure(self, key: SchemaKey, error: BaseException) -> Outcome:
        status = getattr(error, "http_status_code", None)
        text = printable(f"{type(error).__name__}: {error}", api.SHOWN_CHARACTERS)
        if status == 404:
            return api.Absent.SCHEMA
        if status is None and isinstance(error, OSError):
            return api.Failure(api.unreachable(self._name, text))
        failure = None
        if isinstance(status, int):
            failure = api.status_failure(self._name, key, status, text, text)
        return failure or api.failure(
            self._name,
            f"{self._name} failed to look {key} up",
            cause=text,
            hint=f"see what {type(self._client).__name__} says of it",
        )


def _call_of(key: SchemaKey) -> tuple[str, tuple[object, ...]]:
    if key.kind is KeyKind.GUID:
        return "get_schema_by_guid", (key.value,)
    if key.kind is not KeyKind.VERSION:
        return "get_schema", (key.value,)
    if key.version is None:
        return "get_latest_version", (key.value,)
    return "get_version", (key.value, key.version)


def _document_of(result: Any) -> dict[str, Any]:
    """What a client returned, in the form of the HTTP API."""
    inner = getattr(result, "schema", None)
    schema = result if inner is None or isinstance(inner, str) else inner
    text = schema if isinstance(schema, str) else getattr(schema, "schema_str", None)
    rules = getattr(schema, "rule_set", None)
    return {
        "schema": getattr(schema, "text", None) if text is None else text,
        "schemaType": str(getattr(schema, "schema_type", None) or AVRO),
        "references": [
            {"name": str(item.name), "subject": str(item.subject), "version": int(item.version)}
            for item in getattr(schema, "references", None) or ()
        ],
        "ruleSet": {
            name: [
                {"name": getattr(rule, "name", None), "type": getattr(rule, "type", None)}
                for rule in getattr(rules, name, None) or ()
            ]
            for name in ("domain_rules", "migration_rules", "encoding_rules")
        },
        "id": getattr(result, "schema_id", None),
        "guid": getattr(result, "guid", None),
        "subject": getattr(result, "subject", None),
        "version": getattr(result, "version", None),
    }
