"""Values that name the schema they are written with: the shared part of the formats.

Owns: the framings, the keys of schemas in a column, and for ``Avro`` and ``Protobuf`` what was
learned from a registry, which is bounded. A format says what it makes of a schema of the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from kfast._base.logs import get_logger
from kfast._base.spelling import did_you_mean
from kfast._native import wire_ids
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import ErrorKind
from kfast.columns.spans import index_array
from kfast.deserializers.typed import TypedDeserializer
from kfast.errors import ConfigurationError
from kfast.registry.registered_schema import SchemaKey
from kfast.schemas.types import DataType, Kind, SchemaField

if TYPE_CHECKING:
    from kfast._native.wire_ids import WireIds
    from kfast.registry.registered_schema import RegisteredSchema, SchemaAnswers, SchemaSource

logger = get_logger(__name__)

MOST_DEPTH: Final = 256
MOST_KNOWN: Final = 10_000
"""Schemas of a registry whose types and plans are kept."""
RECENT_TURNS: Final = 100
"""Batches, the last ones, whose schemas are kept besides: other threads may be decoding them."""

NONE, CONFLUENT, APICURIO, SINGLE_OBJECT = "none", "confluent", "apicurio", "avro-single-object"
_HEADERS: Final = {"key": b"__key_schema_id", "value": b"__value_schema_id"}

NO_SCHEMA: Final = SchemaField("", DataType(Kind.NULL))
"""The column while no schema is known: all rows are null."""

Key = SchemaKey | int
"""What names a schema: a key of a registry, a fingerprint, or a number of the format's own."""
Place = tuple[str, str]
"""Topic and column."""


class FramedDeserializer(TypedDeserializer):
    """A deserializer whose values may name their schema."""

    __slots__ = ("_framing",)

    framings: ClassVar[tuple[str, ...]] = (NONE, CONFLUENT, APICURIO)
    has_indexes: ClassVar[bool] = False
    """Whether the path of a message follows the id."""

    def _set_framing(self, framing: str) -> None:
        self._framing = _checked_framing(framing, self.framings)

    @property
    def needs_headers(self) -> bool:
        """Whether a header may name the schema of a value."""
        return self._framing == CONFLUENT

    def _scan(self, column: BytesColumn, headers: HeadersColumn | None) -> WireIds:
        place = place_of(column)
        return wire_ids.scan(
            self._framing,
            *column.spans,
            headers=None if headers is None else headers.index,
            header_name=_HEADERS["value" if place is None else place[1]],
            has_indexes=self.has_indexes,
        )

    def _schema_ids(
        self, column: BytesColumn, headers: HeadersColumn | None, rows: NDArray[np.int64]
    ) -> Sequence[int | str | None] | None:
        if self._framing == NONE:
            return None
        some = None if headers is None else headers.select(rows)
        wire = self._scan(column.select(rows), some)
        shown = [_shown_id(kind, value) for kind, value, _ in wire.keys]
        numbers = index_array(wire.row_keys(), np.int32).tolist()
        return [shown[number] if number >= 0 else None for number in numbers]


class RegistryDeserializer(FramedDeserializer):
    """A deserializer that reads the schemas that values name, which a registry has."""

    __slots__ = (
        "_columns", "_known", "_max_depth", "_reader_key", "_registry", "_targets", "_turn", "_used"
    )  # fmt: skip

    _known: dict[Key, Any]
    """What keys stand for, or the error of their rows. Written by any thread, each entry once."""
    _used: dict[SchemaKey, int]
    """In which turn, one per batch, each was needed last."""
    _targets: dict[Place | None, Any]
    """The columns of topics for which the schema was looked up, or found. Written likewise."""

    def _set_registry(self, framing: str | None, registry: Any, max_depth: int) -> None:
        if framing is None:
            framing = NONE if registry is None else CONFLUENT
        self._set_framing(framing)
        self._registry = _checked_registry(registry)
        self._max_depth = _checked_depth(max_depth)
        self._known = {}
        self._used = {}
        self._turn = 0
        self._targets = {}
        self._reader_key: str | None = None

    @property
    def reader(self) -> str | None:
        """The version of a subject that gives the columns; None without one."""
        return self._reader_key

    def _set_reader_key(self, reader: str) -> None:
        """Take a version of a subject as the schema that gives the columns."""
        if self._registry is None:
            raise ConfigurationError(
                f"reader={reader!r} needs a registry", hint="registry=SchemaRegistry(URL)"
            )
        version_key(reader, ("topic", "value"))
        self._reader_key = reader

    # --- the format's -----------------------------------------------------------------------------

    def _read(self, _key: SchemaKey, schema: RegisteredSchema, /) -> object:
        """Parse a schema of the registry, once per key.

        Raises
        ------
        ConfigurationError
            It cannot be used.
        """
        raise NotImplementedError

    def _forget(self, _keys: Collection[SchemaKey], /) -> None:
        """Drop what was made of some schemas."""

    # --- what users see ---------------------------------------------------------------------------

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The paths that are wanted, None for all."""
        paths: tuple[str, ...] | None = self._options.get("columns")
        return paths

    @property
    def registry(self) -> SchemaSource | None:
        """Where schemas are looked up."""
        return self._registry

    # --- schemas of a registry --------------------------------------------------------------------

    def prepare(
        self, column: BytesColumn, headers: HeadersColumn | None, /
    ) -> Collection[SchemaKey]:
        """Return the keys of schemas that are needed and not known yet."""
        missing: set[SchemaKey] = set()
        if self._registry is not None and self._framing in {CONFLUENT, APICURIO}:
            wire_keys = keys_of(self._scan(column, headers))
            keys = {key for key in wire_keys if isinstance(key, SchemaKey)}
            self._turn += 1
            for key in keys:
                if key in self._used:
                    self._used[key] = self._turn
            self._drop_unused()
            missing = {key for key in keys if key not in self._known}
        place = place_of(column)
        if self._reader_key is not None and place not in self._targets:
            missing.add(version_key(self._reader_key, place))
        return missing

    def _no_reader(self, place: Place | None) -> ConfigurationError:
        """Return the error for a version that the registry does not have, or of another format."""
        assert self._reader_key is not None
        key = version_key(self._reader_key, place)
        return ConfigurationError(
            f"the registry has no {self.format_name} schema for reader={self._reader_key!r}: {key}",
            hint='reader="SUBJECT:VERSION" names another one',
        )

    def learn(self, answers: SchemaAnswers) -> None:
        """Take what the registry has answered; what it does not have is asked for again."""
        for key, schema in answers.schemas.items():
            if key not in self._known:
                self._used[key] = self._turn
                self._known[key] = self._readable(key, schema)

    def _drop_unused(self) -> None:
        """Drop schemas that no batch has needed for long; not while one is being decoded."""
        excess = len(self._known) - MOST_KNOWN
        if excess <= 0:
            return
        used, until = self._used.copy(), self._turn - RECENT_TURNS
        old = [key for key, turn in used.items() if turn <= until]
        dropped = sorted(old, key=used.__getitem__)[:excess]
        for key in dropped:
            self._known.pop(key, None)
            self._used.pop(key, None)
        self._forget({*dropped})

    def _readable(self, key: SchemaKey, schema: RegisteredSchema) -> object:
        """Parse a schema; SCHEMA for one that cannot be used."""
        if schema.schema_type != self.format_name.upper():
            logger.warning(
                "%s is a schema of %s, not of %s", key, schema.schema_type, self.format_name
            )
            return ErrorKind.SCHEMA
        try:
            return self._read(key, schema)
        except ConfigurationError as error:
            logger.warning("%s cannot be used: %s", key, error.message)
            return ErrorKind.SCHEMA


def plans_of_rows(
    wire: WireIds, plans: Sequence[int]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the plan and the size of the framing of each row, by the plans of the keys."""
    buffers = wire_ids.plans_of_rows(wire, np.array(plans, np.int32))
    rows, prefixes = (index_array(buffer, np.int32) for buffer in buffers)
    return rows, prefixes


def keys_of(wire: WireIds) -> list[Key]:
    """Return the keys in the order of their first rows; with paths a key may be there again."""
    return [_KEYS[kind](value) for kind, value, _ in wire.keys]


_KEYS: Final[Mapping[str, Callable[[Any], Key]]] = {
    "id": SchemaKey.of_id,
    "guid": SchemaKey.of_guid,
    "global_id": SchemaKey.of_global_id,
    "fingerprint": int,
}


def place_of(column: BytesColumn) -> Place | None:
    """Return where values come from, None for values in memory."""
    origin = column.origin
    return None if origin is None else (origin.topic, origin.column)


def shown_place(place: Place | None) -> str:
    """Return where values come from in words."""
    return "values in memory" if place is None else f"{place[1]}s of {place[0]}"


def version_key(reader: str, place: Place | None) -> SchemaKey:
    """Return the key of ``latest``, ``subject:latest`` or ``subject:3``.

    Raises
    ------
    ConfigurationError
        It is none of them, or the latest one of a topic where there is none.
    """
    if reader == "latest":
        if place is None:
            raise ConfigurationError(
                'reader="latest" is the latest version of a topic, and values in memory have none',
                hint='reader="SUBJECT:latest"',
            )
        return SchemaKey.of_version(f"{place[0]}-{place[1]}")
    subject, _, version = reader.rpartition(":")
    if subject and version == "latest":
        return SchemaKey.of_version(subject)
    if not subject or not version.isdecimal() or not int(version):
        raise ConfigurationError(
            f"reader={reader!r} is no schema and no version of a subject",
            hint='reader="orders-value:3", "orders-value:latest" or the text of a schema',
        )
    return SchemaKey.of_version(subject, int(version))


def _shown_id(kind: str, value: int | bytes) -> int | str:
    if isinstance(value, bytes):
        return str(UUID(bytes=value))
    return f"{value:016x}" if kind == "fingerprint" else value


def _checked_framing(framing: str, framings: Sequence[str]) -> str:
    if framing in framings:
        return framing
    if framing == "glue":
        raise ConfigurationError(
            'framing="glue" (03, compression, UUID) is known and not supported',
            hint="strip it in a callable deserializer, or write with the Confluent format",
        )
    nearest = did_you_mean(framing, framings) if isinstance(framing, str) else None
    raise ConfigurationError(
        f"there is no framing {framing!r}",
        hint=f'framing="{nearest}"' if nearest else f"one of {', '.join(framings)}",
    )


def _checked_registry(registry: Any) -> SchemaSource | None:
    if registry is None or (hasattr(registry, "lookup") and hasattr(registry, "wait_for")):
        source: SchemaSource | None = registry
        return source
    raise ConfigurationError(
        f"registry is a SchemaRegistry, not {type(registry).__name__}",
        hint="registry=SchemaRegistry(URL), or SchemaRegistry(CLIENT) for a client of your own",
    )


def _checked_depth(max_depth: int) -> int:
    if isinstance(max_depth, bool) or not isinstance(max_depth, int):
        raise ConfigurationError(f"max_depth is a number of levels, not {max_depth!r}")
    if not 1 <= max_depth <= MOST_DEPTH:
        raise ConfigurationError(f"max_depth is 1 to {MOST_DEPTH}, not {max_depth}")
    return max_depth
