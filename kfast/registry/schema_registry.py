"""SchemaRegistry: the public client of a schema registry.

Owns the arguments and the results of calls; `SchemaLookups` decides what is fetched, `SchemaThread`
makes the requests.
"""

from __future__ import annotations

import functools
import uuid
import weakref
from typing import TYPE_CHECKING, Any, Self

from kfast._base.clock import SystemClock
from kfast._runtime.wakeup_event import WakeupEvent
from kfast.errors import ConfigurationError, SchemaRegistryError
from kfast.registry import api
from kfast.registry.api import RegistrySettings
from kfast.registry.registered_schema import RegisteredSchema, SchemaKey
from kfast.registry.thread import SchemaThread
from kfast.settings.secret import HIDDEN, Secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from kfast.registry.registered_schema import OnDone, SchemaAnswers
    from kfast.registry.thread import PendingSchemas


class SchemaRegistry:
    """A client of a schema registry: Confluent's API, which Apicurio, Karapace and others have too.

    Parameters
    ----------
    url : str, sequence of str, or a client
        Where it is, such as ``"http://localhost:8081"``; several servers of one registry, with
        commas between or as a sequence, are tried in turn. Or another client of a registry, with
        ``get_schema(id)`` as confluent-kafka's has it, which is called instead of sending requests.
    basic_auth : tuple of two str, or str, optional
        User and password, or ``"USER:PASSWORD"``.
    bearer_token : str or callable, optional
        A token, or a callable that returns one; it is called again when the token is refused.
    ssl_cafile : path, optional
        Trusted certificates (PEM file or folder, or PKCS#12). Default: those of the system.
    ssl_certfile, ssl_keyfile, ssl_key_password : path, path and str, optional
        Client certificate and its key (PEM); the key may be in the file of the certificate.
    ssl_check_hostname : bool
        Whether the certificate has to be that of the host.
    headers : Mapping of str, optional
        Sent with every request.
    timeout_ms : int
        Longest time to connect, and for one answer.
    deadline_ms : int
        Longest time for a look-up, with its retries.
    retry_backoff_ms : int
        The first pause between two tries; it doubles up to 5 s.
    miss_cache_ms : int
        How long an id that the registry does not have is not asked for again.
    max_schemas : int
        How many schemas are kept; the least recently used one goes first.

    Raises
    ------
    ConfigurationError
        An argument that cannot be used. Files are read when they are needed.

    Notes
    -----
    Nothing is sent until the first schema is needed. A thread, ``kfast-schemas``, then makes the
    requests; consumers and deserializers that have the same object share it and its cache. It ends
    with `close`, with the last reference to the object, and after a minute without requests.
    Objects with the same arguments are equal, and pickle. In a pickle are also the secrets.

    The methods that return schemas raise `SchemaRegistryError`, retriable if the registry gives no
    answer within ``deadline_ms``, and `SchemaRegistryAuthenticationError` if it refuses them.

    Examples
    --------
    >>> with kfast.SchemaRegistry("http://localhost:8081") as registry:
    ...     print(registry.latest("orders-value").text)
    "long"
    """

    def __init__(
        self,
        url: str | Sequence[str] | object,
        *,
        basic_auth: tuple[str, str] | str | None = None,
        bearer_token: str | Callable[[], str] | None = None,
        ssl_cafile: str | None = None,
        ssl_certfile: str | None = None,
        ssl_keyfile: str | None = None,
        ssl_key_password: str | None = None,
        ssl_check_hostname: bool = True,
        headers: Mapping[str, str] | None = None,
        timeout_ms: int = 10_000,
        deadline_ms: int = 30_000,
        retry_backoff_ms: int = 200,
        miss_cache_ms: int = 60_000,
        max_schemas: int = 10_000,
    ) -> None:
        client = url if hasattr(url, "get_schema") else None
        if client is None and not isinstance(url, str | list | tuple):
            raise ConfigurationError(
                f"SchemaRegistry: a {type(url).__name__} is no URL and has no get_schema",
                hint='such as SchemaRegistry("http://localhost:8081")',
            )
        self._settings = RegistrySettings(
            () if client is not None else api.urls_of(url),  # type: ignore[arg-type]
            api.basic_auth_of(basic_auth),
            api.secret_of(
                "bearer_token",
                bearer_token,
                "give the token, or a callable that returns it",
                is_token=True,
            ),
            ssl_cafile,
            ssl_certfile,
            ssl_keyfile,
            api.secret_of("ssl_key_password", ssl_key_password, "give the password of the key"),
            ssl_check_hostname,
            api.headers_of(headers),
            timeout_ms,
            deadline_ms,
            retry_backoff_ms,
            miss_cache_ms,
            max_schemas,
            client,
        )
        # The thread has no reference to this object, so that a forgotten one is collected.
        self._thread = SchemaThread(self._settings, SystemClock())
        weakref.finalize(self, self._thread.abandon).atexit = False

    # --- schemas ----------------------------------------------------------------------------------

    def schema(self, key: int | str | uuid.UUID) -> RegisteredSchema:
        """Return a schema by its id, or by its GUID.

        Parameters
        ----------
        key : int, str or UUID
            An id, or a GUID as text or UUID.

        Returns
        -------
        RegisteredSchema
            With its references resolved.
        """
        return self._one(_key_of(key))

    def latest(self, subject: str) -> RegisteredSchema:
        """Return the latest version of a subject, asking the registry each time."""
        return self._one(SchemaKey.of_version(subject))

    def version(self, subject: str, version: int) -> RegisteredSchema:
        """Return a version of a subject, counted from 1."""
        return self._one(SchemaKey.of_version(subject, version))

    def preload(self, *ids_or_subjects: int | str | uuid.UUID) -> None:
        """Fetch schemas before they are needed: ids, UUIDs, and the latest versions of subjects.

        A text is a subject. Raises SchemaRegistryError if one is not there.
        """
        keys = [
            SchemaKey.of_version(name) if isinstance(name, str) else _key_of(name)
            for name in ids_or_subjects
        ]
        for key in self.wait_for(keys).not_found:
            raise self.not_there(key)

    def _one(self, key: SchemaKey) -> RegisteredSchema:
        schema = self.wait_for([key]).schemas.get(key)
        if schema is None:
            raise self.not_there(key)
        return schema

    def not_there(self, key: SchemaKey) -> SchemaRegistryError:
        """Return the error for a schema that the registry does not have."""
        return SchemaRegistryError(
            f"the schema registry {self.url} has no {key}".replace(" no the ", " no "),
            hint="see what its /subjects lists, and whether it is the registry of the producer",
            url=self.url,
            status=404,
        )

    # --- for deserializers ------------------------------------------------------------------------

    def lookup(
        self, keys: Collection[SchemaKey], on_done: OnDone = None, *, is_serialized: bool = False
    ) -> PendingSchemas:
        """Begin to look keys up without waiting; see ``kfast.registry.registered_schema``."""
        return self._thread.lookup(keys, on_done, is_serialized=is_serialized)

    def wait_for(
        self, keys: Collection[SchemaKey], *, is_serialized: bool = False
    ) -> SchemaAnswers:
        """Look keys up and wait for them, at most ``deadline_ms``; errors are raised."""
        event = WakeupEvent()
        event.prepare()
        request = self.lookup(keys, event.set, is_serialized=is_serialized)
        try:
            while (answers := request.answers()) is None:
                event.wait(request.seconds_left)
                event.prepare()
        finally:
            request.cancel()
        if answers.error is not None:
            raise answers.error
        return answers

    # --- the rest ---------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The URLs with commas between, or the name of the client."""
        return ",".join(map(str, self._settings.servers))

    def close(self) -> None:
        """End the thread; schemas that are known stay usable, others raise IllegalStateError."""
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SchemaRegistry):
            return NotImplemented
        return self._settings == other._settings

    def __hash__(self) -> int:
        return hash((SchemaRegistry, self._settings.urls))

    def _arguments(self) -> dict[str, Any]:
        """The arguments, besides the first, that are not the default."""
        default = RegistrySettings(())
        names = [*RegistrySettings.__dataclass_fields__][1:-1]  # without the URLs and the client
        values = {name: getattr(self._settings, name) for name in names}
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def __reduce__(self) -> tuple[Any, ...]:
        arguments: dict[str, Any] = {
            name: value.source if isinstance(value, Secret) else value
            for name, value in self._arguments().items()
        }
        if "headers" in arguments:
            arguments["headers"] = {name: value.source for name, value in arguments["headers"]}
        client = self._settings.client
        registry_of = functools.partial(SchemaRegistry, **arguments)
        return registry_of, (self.url if client is None else client,)

    def __repr__(self) -> str:
        shown = [repr(self.url)]
        for name, value in self._arguments().items():
            is_secret = isinstance(value, Secret) or name == "headers"
            shown.append(f"{name}={HIDDEN if is_secret else repr(value)}")
        return f"SchemaRegistry({', '.join(shown)})"


def _key_of(key: object) -> SchemaKey:
    if isinstance(key, int) and not isinstance(key, bool):
        return SchemaKey.of_id(key)
    try:
        if isinstance(key, str | uuid.UUID):
            return SchemaKey.of_guid(key)
    except ValueError:
        pass
    raise ConfigurationError(
        f"{key!r} is no schema id and no GUID", hint="latest(SUBJECT) has the schemas of subjects"
    )
