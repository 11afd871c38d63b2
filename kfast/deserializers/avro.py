"""Avro: records of Avro's binary encoding become typed columns.

Knows the arguments, which schema a value was written with, and which one it is read by; schemas,
resolution and plans are in ``kfast.schemas``, bytes in ``_native/avro_decode``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from kfast._native import avro_decode, wire_ids
from kfast._spelling import did_you_mean
from kfast.deserializers.typed import Piece, TypedDeserializer
from kfast.errors import ConfigurationError
from kfast.records.columns.bytes import BytesColumn
from kfast.records.columns.headers import HeadersColumn
from kfast.records.columns.spans import index_array
from kfast.records.errors import ErrorKind
from kfast.registered_schema import AVRO, SchemaKey
from kfast.schemas.avro_canonical import fingerprint
from kfast.schemas.avro_columns import only
from kfast.schemas.avro_plan import AvroPlan, AvroTarget, compile_plan, target_of
from kfast.schemas.avro_text import AvroSchema, parse_avro
from kfast.schemas.selection import Selection, select
from kfast.schemas.types import DataType, Kind, SchemaField

if TYPE_CHECKING:
    from kfast._native.wire_ids import WireIds
    from kfast.registered_schema import RegisteredSchema, SchemaAnswers, SchemaSource

logger = logging.getLogger(__name__)

MOST_DEPTH: Final = 256
MOST_KNOWN: Final = 10_000
"""Schemas of a registry whose types and plans are kept."""

NONE, CONFLUENT, APICURIO, SINGLE_OBJECT = "none", "confluent", "apicurio", "avro-single-object"
_FRAMINGS: Final = (NONE, CONFLUENT, APICURIO, SINGLE_OBJECT)
_HEADERS: Final = {"key": b"__key_schema_id", "value": b"__value_schema_id"}
_NO_SCHEMA: Final = AvroTarget(
    AvroSchema(parse_avro("bytes").root), SchemaField("", DataType(Kind.BINARY))
)
"""Columns while no schema is known: all rows are null."""

_UNFRAMED: Final = -1
"""Key of the schema that was given, for values that name none."""
_Key = SchemaKey | int
_Writer = AvroSchema | ErrorKind
_Place = tuple[str, str]
"""Topic and column."""


class Avro(TypedDeserializer):
    """Values in Avro's binary encoding, as typed columns.

    Parameters
    ----------
    schema : str, mapping, or sequence of them, optional
        The writer's schema, where values do not name it; its JSON text, or that read. For
        ``framing="avro-single-object"`` all writers' schemas.
    reader : str, optional
        The schema that gives the columns: its text; ``"latest"`` for the latest version of
        ``<topic>-value`` or ``<topic>-key``, ``"SUBJECT:latest"`` or ``"SUBJECT:3"`` for a version
        of a subject, looked up when it is first needed. Default: the writer's, or with ids the
        schema of the first value of each topic, which depends on where reading begins.
    registry : SchemaRegistry, optional
        Where the schemas are that values name.
    framing : {"none", "confluent", "apicurio", "avro-single-object"}, optional
        How values name their schema. Default: ``"confluent"`` with a registry, else ``"none"``.
    columns : sequence of str, optional
        Paths of the columns that are wanted, such as ``["id", "order.price", "lines[].sku"]``;
        the others are skipped. Default: all.
    max_depth : int
        How deep schemas may be nested, and records in themselves that are skipped; at most 256.

    Raises
    ------
    ConfigurationError
        A schema cannot be used, or the writer's not be read by the reader's.

    Notes
    -----
    Writers' schemas are resolved to the reader's as Avro's specification says; several in one batch
    are decoded in order. Nothing is looked up at construction. Objects are immutable, equal if
    their arguments are, and pickle.

    Examples
    --------
    >>> text = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'
    >>> kfast.Avro(text).decode([b"\\x0e"]).values.to_list()
    [{'id': 7}]
    """

    __slots__ = (
        "_columns",
        "_framing",
        "_known",
        "_max_depth",
        "_plans",
        "_reader",
        "_reader_key",
        "_registry",
        "_targets",
    )

    format_name: ClassVar[str] = "Avro"

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
        *,
        reader: str | Mapping[str, Any] | None = None,
        registry: SchemaSource | None = None,
        framing: str | None = None,
        columns: Sequence[str] | None = None,
        max_depth: int = 64,
    ) -> None:
        if framing is None:
            framing = NONE if registry is None else CONFLUENT
        self._framing = _checked_framing(framing)
        self._registry = _checked_registry(registry)
        self._max_depth = _checked_depth(max_depth)
        self._columns: Selection = select(columns)
        texts = _texts_of(schema)
        self._check_arguments(len(texts), reader)
        # What values may name, and what came of it: written by any thread, each entry once.
        self._known: dict[_Key, _Writer] = {}
        self._plans: dict[tuple[_Key, AvroTarget], AvroPlan | ErrorKind] = {}
        self._targets: dict[_Place | None, AvroTarget] = {}
        self._reader: AvroTarget | None = None
        self._reader_key: str | None = None
        writers = [parse_avro(text) for text in texts]
        for writer in writers:
            key = fingerprint(writer.root) if self._framing == SINGLE_OBJECT else _UNFRAMED
            self._known[key] = writer
        self._set_reader(reader, writers)
        given: dict[str, Any] = {
            "schema": None if not texts else texts[0] if len(texts) == 1 else texts,
            "reader": reader if reader is None or isinstance(reader, str) else json.dumps(reader),
            "registry": registry,
            "framing": None if self._framing == NONE and registry is None else self._framing,
            "columns": None if columns is None else tuple(columns),
            "max_depth": None if max_depth == 64 else max_depth,
        }
        self._options = {name: value for name, value in given.items() if value is not None}

    def _check_arguments(self, schemas: int, reader: object) -> None:
        framing = self._framing
        if framing == NONE and schemas != 1:
            raise ConfigurationError(
                "Avro needs the writer's schema where values do not name it",
                found=f"{schemas} schemas and no registry" if not self._registry else None,
                hint="Avro(TEXT), or registry=SchemaRegistry(URL) for values with a schema id",
            )
        if framing in {CONFLUENT, APICURIO} and self._registry is None:
            raise ConfigurationError(
                f'framing="{framing}" needs a registry: values have the id of their schema only',
                hint="registry=SchemaRegistry(URL)",
            )
        if framing in {CONFLUENT, APICURIO} and schemas:
            raise ConfigurationError(
                f'with framing="{framing}" the writer\'s schema is the one that a value names',
                hint="reader=TEXT is the schema that gives the columns",
            )
        if framing == SINGLE_OBJECT and not schemas:
            raise ConfigurationError(
                f'framing="{framing}" needs the schemas that values may be written with',
                hint="Avro([TEXT, TEXT], framing=...)",
            )
        if isinstance(reader, str) and _is_lookup(reader) and self._registry is None:
            raise ConfigurationError(
                f"reader={reader!r} needs a registry", hint="registry=SchemaRegistry(URL)"
            )

    def _set_reader(
        self, reader: str | Mapping[str, Any] | None, writers: list[AvroSchema]
    ) -> None:
        """Find what gives the columns; what is known already is resolved at once."""
        if isinstance(reader, str) and _is_lookup(reader):
            _version_key(reader, ("topic", "value"))
            self._reader_key = reader
        elif reader is not None:
            self._reader = self._target_of(parse_avro(_text_of(reader)))
        elif self._framing == NONE:
            self._reader = self._target_of(writers[0])
        if self._reader is not None:
            for key, writer in self._known.items():
                assert isinstance(writer, AvroSchema)
                plan = compile_plan(writer, self._reader, self._max_depth)
                self._plans[key, self._reader] = plan

    def _target_of(self, schema: AvroSchema) -> AvroTarget:
        return target_of(only(schema, self._columns))

    # --- what users see ---------------------------------------------------------------------------

    @property
    def root(self) -> SchemaField | None:
        """The root of the schema, of the first one if topics have several."""
        target = self._reader or next(iter(self._targets.values()), None)
        return None if target is None else target.column

    @property
    def columns(self) -> tuple[str, ...] | None:
        """The paths that are wanted, None for all."""
        paths: tuple[str, ...] | None = self._options.get("columns")
        return paths

    @property
    def plan(self) -> AvroPlan | None:
        """How values are read; its repr has one line per instruction. None while it depends."""
        return next((plan for plan in self._plans.values() if isinstance(plan, AvroPlan)), None)

    @property
    def registry(self) -> SchemaSource | None:
        """Where schemas are looked up."""
        return self._registry

    @property
    def needs_headers(self) -> bool:
        """Whether a header may name the schema of a value."""
        return self._framing == CONFLUENT

    # --- schemas of a registry --------------------------------------------------------------------

    def prepare(
        self, column: BytesColumn, headers: HeadersColumn | None, /
    ) -> Collection[SchemaKey]:
        """Return the keys of schemas that are needed and not known yet."""
        missing: set[SchemaKey] = set()
        place = _place_of(column)
        if self._reader_key is not None and place not in self._targets:
            missing.add(_version_key(self._reader_key, place))
        if self._framing in {CONFLUENT, APICURIO}:
            keys = _keys_of(self._scan(column, headers))
            missing.update(k for k in keys if isinstance(k, SchemaKey) and k not in self._known)
        return missing

    def learn(self, answers: SchemaAnswers) -> None:
        """Take what the registry has answered; what it does not have is asked for again."""
        for key, found in answers.found.items():
            if key not in self._known:
                self._known[key] = _read(key, found)
        oldest = list(self._known)[: max(len(self._known) - MOST_KNOWN, 0)]
        dropped = {k for k in oldest if isinstance(k, SchemaKey) and k not in answers.found}
        if dropped:
            for each in dropped:
                self._known.pop(each, None)
            for pair in [pair for pair in list(self._plans) if pair[0] in dropped]:
                self._plans.pop(pair, None)

    def _scan(self, column: BytesColumn, headers: HeadersColumn | None) -> WireIds:
        place = _place_of(column)
        return wire_ids.scan(
            self._framing,
            *column.spans,
            headers=None if headers is None else headers.index,
            header_name=_HEADERS["value" if place is None else place[1]],
        )

    # --- decoding ---------------------------------------------------------------------------------

    def _decode(
        self, column: BytesColumn, headers: HeadersColumn | None, mode: int, most_bytes: int
    ) -> Piece:
        wire = None if self._framing == NONE else self._scan(column, headers)
        keys: list[_Key] = [_UNFRAMED] if wire is None else _keys_of(wire)
        target = self._reader or self._target(column, keys)
        plans: list[tuple[Any, Any, bytes]] = []
        numbers = np.zeros(len(keys), np.int32)
        for number, key in enumerate(keys):
            plan = self._plan(key, target)
            if isinstance(plan, AvroPlan):
                numbers[number] = len(plans)
                plans.append((plan.ops, plan.tables, plan.constants))
            else:
                numbers[number] = -plan
        rows: Any = None
        prefixes: Any = None
        if wire is not None:
            found = avro_decode.plans_of_rows(wire, numbers)
            rows, prefixes = (index_array(each, np.int32) for each in found)
        elif not plans:
            rows = np.repeat(numbers, len(column))
        built, errors = avro_decode.decode(
            target.layout,
            target.symbols,
            plans,
            *column.spans,
            mode,
            rows,
            prefixes,
            self._max_depth,
            most_bytes,
        )
        return Piece(target.column, built, errors)

    def _target(self, column: BytesColumn, keys: Sequence[_Key]) -> AvroTarget:
        """Return the columns of a topic that has no schema given for them."""
        place = _place_of(column)
        target = self._targets.get(place)
        if target is not None:
            return target
        if self._reader_key is not None:
            keys = [_version_key(self._reader_key, place)]
        for key in keys:
            schema = self._known.get(key)
            if isinstance(schema, AvroSchema):
                made = self._targets.setdefault(place, self._target_of(schema))
                where = "values in memory" if place is None else f"{place[1]}s of {place[0]}"
                logger.info("the schema of %s is that of %s", where, _name_of(key))
                return made
        if self._reader_key is not None:
            raise ConfigurationError(
                f"the registry has no Avro schema for reader={self._reader_key!r}: {keys[0]}",
                hint='reader="SUBJECT:VERSION" names another one',
            )
        return _NO_SCHEMA

    def _plan(self, key: _Key, target: AvroTarget) -> AvroPlan | ErrorKind:
        """Return how values of a writer are read, or why they cannot be."""
        plan = self._plans.get((key, target))
        if plan is not None:
            return plan
        writer = self._known.get(key, ErrorKind.UNKNOWN_SCHEMA)
        if isinstance(writer, ErrorKind) or target is _NO_SCHEMA:
            return writer if isinstance(writer, ErrorKind) else ErrorKind.UNKNOWN_SCHEMA
        try:
            made: AvroPlan | ErrorKind = compile_plan(writer, target, self._max_depth)
        except ConfigurationError as error:
            logger.warning("values of %s cannot be read: %s", _name_of(key), error.message)
            made = ErrorKind.RESOLUTION
        return self._plans.setdefault((key, target), made)

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


def _keys_of(wire: WireIds) -> list[_Key]:
    """Return the distinct keys in the order of their first rows."""
    return [_KEYS[kind](value) for kind, value, _ in wire.keys]


_KEYS: Final[Mapping[str, Callable[[Any], _Key]]] = {
    "id": SchemaKey.of_id,
    "guid": SchemaKey.of_guid,
    "global_id": SchemaKey.of_global_id,
    "fingerprint": int,
}


def _shown_id(kind: str, value: int | bytes) -> int | str:
    if isinstance(value, bytes):
        return str(UUID(bytes=value))
    return f"{value:016x}" if kind == "fingerprint" else value


def _checked_framing(framing: str) -> str:
    if framing in _FRAMINGS:
        return framing
    if framing == "glue":
        raise ConfigurationError(
            'framing="glue" (03, compression, UUID) is known and not supported',
            hint="strip it in a callable deserializer, or write with the Confluent format",
        )
    nearest = did_you_mean(framing, _FRAMINGS) if isinstance(framing, str) else None
    raise ConfigurationError(
        f"there is no framing {framing!r}",
        hint=f'framing="{nearest}"' if nearest else f"one of {', '.join(_FRAMINGS)}",
    )


def _checked_registry(registry: Any) -> SchemaSource | None:
    if registry is None or (hasattr(registry, "lookup") and hasattr(registry, "wait_for")):
        made: SchemaSource | None = registry
        return made
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


def _text_of(schema: object) -> str:
    if isinstance(schema, str):
        return schema
    if isinstance(schema, Mapping):
        return json.dumps(dict(schema))
    raise ConfigurationError(
        f"a schema is its JSON text or a dict, not {type(schema).__name__}",
        hint="open(FILE).read() gives the text of a file",
    )


def _texts_of(schema: object) -> tuple[str, ...]:
    if schema is None:
        return ()
    if isinstance(schema, list | tuple):
        return tuple(map(_text_of, schema))
    return (_text_of(schema),)


def _is_lookup(reader: str) -> bool:
    """Whether a reader is named: no text of a schema begins so, but for a name of one type."""
    text = reader.strip()
    return bool(text) and text[0] not in '{["' and (text == "latest" or ":" in text)


def _version_key(reader: str, place: _Place | None) -> SchemaKey:
    """Return the key of ``latest``, ``subject:latest`` or ``subject:3``."""
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


def _place_of(column: BytesColumn) -> _Place | None:
    origin = column.origin
    return None if origin is None else (origin.topic, origin.column)


def _name_of(key: _Key) -> str:
    return f"fingerprint {key:016x}" if isinstance(key, int) else str(key)


def _read(key: SchemaKey, found: RegisteredSchema) -> _Writer:
    """Return the types of a schema of the registry; SCHEMA for one that cannot be used."""
    if found.schema_type != AVRO:
        logger.warning("%s is a schema of %s, not of Avro", key, found.schema_type)
        return ErrorKind.SCHEMA
    try:
        return parse_avro(found.text, [each.schema.text for each in found.dependencies()])
    except ConfigurationError as error:
        logger.warning("%s cannot be used: %s", key, error.message)
        return ErrorKind.SCHEMA
