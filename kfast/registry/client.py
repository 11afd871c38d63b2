"""SchemaClient: another client of a schema registry in the place of kfast's own requests.

For OAuth, Glue and whatever else a user's client knows. It has ``get_schema(id)`` and, if it looks
these up too, ``get_schema_by_guid(guid)``, ``get_latest_version(subject)`` and
``get_version(subject, number)``, as confluent-kafka's ``SchemaRegistryClient``. They return the
text of an Avro schema, or an object with ``schema_str`` or ``text``, and if they apply
``schema_type`` and ``references``; those of a version may have it as their ``schema``. An
exception with ``http_status_code`` 404 means that it is not there; 429, 5xx and those of the
network may pass.

All calls are made on the thread of the registry, one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kfast.errors import SchemaRegistryError
from kfast.registry import api
from kfast.registry.registered_schema import AVRO, KeyKind, SchemaKey
from kfast.security.authentication_errors import printable

if TYPE_CHECKING:
    from kfast.registry.api import Outcome
    from kfast.registry.lookups import SchemaFetch

_SHOWN: Final = 200


class SchemaClient:
    """Calls a user's client for each schema. Thread of the registry only."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._name = name_of(client)

    def fetch(self, fetch: SchemaFetch) -> Outcome:
        """Call the client and return what it means."""
        key = fetch.key
        method, arguments = _call_of(key)
        call = getattr(self._client, method, None)
        if call is None:
            return api.Failure(
                SchemaRegistryError(
                    f"{self._name} has no {method}: {key} cannot be looked up",
                    hint=f"add the method {method}, or use records with schema ids",
                )
            )
        try:
            return self._schema_of(key, call(*arguments))
        except BaseException as error:  # of the user's client, which must not end the thread
            return self._failure(key, error)

    def close(self) -> None:
        """Leave the client as it is: it is the caller's."""

    def _schema_of(self, key: SchemaKey, found: Any) -> Outcome:
        inner = getattr(found, "schema", None)
        schema = found if inner is None or isinstance(inner, str) else inner
        text = schema if isinstance(schema, str) else getattr(schema, "schema_str", None)
        text = getattr(schema, "text", None) if text is None else text
        if not isinstance(text, str):
            kind = type(found).__name__
            return api.Failure(
                SchemaRegistryError(
                    f"{self._name} returned {kind} for {key}, which has no schema",
                    hint="return the text, or an object with schema_str and schema_type",
                )
            )
        rule = _encryption_rule(schema)
        if rule is not None:
            return api.Failure(api.encrypted(self._name, key, rule))
        return api.RawSchema(
            str(getattr(schema, "schema_type", None) or AVRO).upper(),
            text,
            tuple(
                api.RawReference(
                    str(each.name), SchemaKey.of_version(str(each.subject), int(each.version))
                )
                for each in getattr(schema, "references", None) or ()
            ),
            id=int(key.value) if key.kind is KeyKind.ID else _int_of(found, "schema_id"),
            guid=_text_of(found, "guid"),
            subject=_text_of(found, "subject"),
            version=_int_of(found, "version"),
        )

    def _failure(self, key: SchemaKey, error: BaseException) -> Outcome:
        status = getattr(error, "http_status_code", None)
        if status == 404:
            return api.NotFound()
        said = printable(f"{type(error).__name__}: {error}", _SHOWN)
        if status in {401, 403}:
            return api.Failure(api.refused(self._name, key, int(status), said))
        if status in {408, 429} or (isinstance(status, int) and status >= 500):
            return api.Failure(api.unreachable(self._name, said))
        if status is None and isinstance(error, OSError):
            return api.Failure(api.unreachable(self._name, said))
        return api.Failure(
            SchemaRegistryError(
                f"{self._name} failed to look {key} up",
                cause=said,
                hint=f"see what {type(self._client).__name__} says of it",
            )
        )


def name_of(client: object) -> str:
    """Return what messages call a client."""
    return f"client {type(client).__name__}"


def _call_of(key: SchemaKey) -> tuple[str, tuple[object, ...]]:
    if key.kind is KeyKind.GUID:
        return "get_schema_by_guid", (key.value,)
    if key.kind is not KeyKind.VERSION:
        return "get_schema", (key.value,)
    if key.version is None:
        return "get_latest_version", (key.value,)
    return "get_version", (key.value, key.version)


def _int_of(found: Any, name: str) -> int | None:
    value = getattr(found, name, None)
    return value if isinstance(value, int) else None


def _text_of(found: Any, name: str) -> str | None:
    value = getattr(found, name, None)
    return value if isinstance(value, str) else None


def _encryption_rule(schema: Any) -> str | None:
    """Return the name of a rule of confluent-kafka's objects that encrypts."""
    rules = getattr(schema, "rule_set", None)
    for name in ("domain_rules", "migration_rules", "encoding_rules"):
        found: Iterable[Any] = getattr(rules, name, None) or ()
        for rule in found:
            shown = api.encryption_rule(getattr(rule, "name", None), getattr(rule, "type", None))
            if shown is not None:
                return shown
    return None
