"""Avro: records of Avro's binary encoding become typed columns.

Knows the arguments, which schema a value was written with, and which one it is read by; schemas,
resolution and plans are in ``kfast.schemas``, bytes in ``_native/avro_decode``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Never

import numpy as np

from kfast._base.logs import get_logger
from kfast._native import avro_decode
from kfast.columns.bytes import BytesColumn
from kfast.columns.headers import HeadersColumn
from kfast.columns.record_errors import ErrorKind
from kfast.deserializers.framed import (
    APICURIO,
    CONFLUENT,
    NO_SCHEMA,
    NONE,
    SINGLE_OBJECT,
    Key,
    RegistryDeserializer,
    keys_of,
    place_of,
    plans_of_rows,
    shown_place,
    version_key,
)
from kfast.deserializers.typed import Piece
from kfast.errors import ConfigurationError
from kfast.registry.registered_schema import SchemaKey
from kfast.schemas.avro_columns import only
from kfast.schemas.avro_plan import AvroPlan, AvroTarget, compile_plan, target_of
from kfast.schemas.avro_text import AvroSchema, fingerprint, parse_avro
from kfast.schemas.selection import Selection, select
from kfast.schemas.types import SchemaField

if TYPE_CHECKING:
    from kfast.registry.registered_schema import RegisteredSchema, SchemaSource

logger = get_logger(__name__)

_NO_SCHEMA: Final = AvroTarget(AvroSchema(parse_avro("bytes").root), NO_SCHEMA)
_UNFRAMED: Final = -1
"""Key of the schema that was given, for values that name none."""


class Avro(RegistryDeserializer):
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

    __slots__ = ("_plans", "_reader")

    format_name: ClassVar[str] = "Avro"
    framings: ClassVar[tuple[str, ...]] = (NONE, CONFLUENT, APICURIO, SINGLE_OBJECT)
    schema_misfit: ClassVar[str] = "whose schema is none of Avro that can be read"

    def __init__(
        self,
        schema: str | Mapping[str, Any] | Sequence[str | Mapping[str, Any]] | None = None,
        *,
        reader: str | Mapping[str, Any] | None = None,
        registry: SchemaSource | None = None,
        framing: str | None = None,
        columns: Sequence[str] | None = None,
        max_depth: int = 64,
        **unknown: Never,
    ) -> None:
        self._refuse_unknown(unknown)
        self._set_registry(framing, registry, max_depth)
        self._columns: Selection = select(columns)
        texts = _texts_of(schema)
        self._check_arguments(len(texts))
        # Written by any thread, each entry once.
        self._plans: dict[tuple[Key, AvroTarget], AvroPlan | ErrorKind] = {}
        self._reader: AvroTarget | None = None
        writers = [parse_avro(text) for text in texts]
        for writer in writers:
            key = fingerprint(writer.root) if self._framing == SINGLE_OBJECT else _UNFRAMED
            self._known[key] = writer
        self._set_reader(reader, writers)
        options: dict[str, Any] = {
            "schema": None if not texts else texts[0] if len(texts) == 1 else texts,
            "reader": reader if reader is None or isinstance(reader, str) else json.dumps(reader),
            "registry": registry,
            "framing": None if self._framing == NONE and registry is None else self._framing,
            "columns": None if columns is None else tuple(columns),
            "max_depth": None if max_depth == 64 else max_depth,
        }
        self._options = {name: value for name, value in options.items() if value is not None}

    def _check_arguments(self, schemas: int) -> None:
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

    def _set_reader(
        self, reader: str | Mapping[str, Any] | None, writers: list[AvroSchema]
    ) -> None:
        """Find what gives the columns; what is known already is resolved at once."""
        if isinstance(reader, str) and _is_lookup(reader):
            self._set_reader_key(reader)
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
        target = self._reader or next(iter(list(self._targets.values())), None)
        return None if target is None else target.column

    @property
    def plan(self) -> AvroPlan | None:
        """How values are read; its repr has one line per instruction. None while it depends."""
        return next((p for p in list(self._plans.values()) if isinstance(p, AvroPlan)), None)

    # --- schemas of a registry --------------------------------------------------------------------

    def _read(self, _key: SchemaKey, schema: RegisteredSchema, /) -> AvroSchema:
        references = schema.dependencies()
        return parse_avro(schema.text, [reference.schema.text for reference in references])

    def _forget(self, keys: Collection[SchemaKey], /) -> None:
        for pair in [pair for pair in list(self._plans) if pair[0] in keys]:
            self._plans.pop(pair, None)

    # --- decoding ---------------------------------------------------------------------------------

    def _decode(
        self, column: BytesColumn, headers: HeadersColumn | None, mode: int, most_bytes: int
    ) -> Piece:
        wire = None if self._framing == NONE else self._scan(column, headers)
        keys: list[Key] = [_UNFRAMED] if wire is None else keys_of(wire)
        target = self._reader or self._target(column, keys)
        plans: list[tuple[Any, Any, bytes]] = []
        numbers: list[int] = []
        for key in keys:
            plan = self._plan(key, target)
            if isinstance(plan, AvroPlan):
                numbers.append(len(plans))
                plans.append((plan.ops, plan.tables, plan.constants))
            else:
                numbers.append(-plan)
        rows: Any = None
        prefixes: Any = None
        if wire is not None:
            rows, prefixes = plans_of_rows(wire, numbers)
        elif not plans:
            rows = np.full(len(column), numbers[0], np.int32)
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

    def _target(self, column: BytesColumn, keys: Sequence[Key]) -> AvroTarget:
        """Return the columns of a topic that has no schema given for them."""
        place = place_of(column)
        target: AvroTarget | None = self._targets.get(place)
        if target is not None:
            return target
        if self._reader_key is not None:
            keys = [version_key(self._reader_key, place)]
        for key in keys:
            schema = self._known.get(key)
            if isinstance(schema, AvroSchema):
                target = self._targets.setdefault(place, self._target_of(schema))
                logger.info("the schema of %s is that of %s", shown_place(place), _name_of(key))
                return target
        if self._reader_key is not None and len(column):
            raise self._no_reader(place)
        return _NO_SCHEMA

    def _plan(self, key: Key, target: AvroTarget) -> AvroPlan | ErrorKind:
        """Return how values of a writer are read, or why they cannot be."""
        plan = self._plans.get((key, target))
        if plan is not None:
            return plan
        writer = self._known.get(key, ErrorKind.UNKNOWN_SCHEMA)
        if isinstance(writer, ErrorKind) or target is _NO_SCHEMA:
            return writer if isinstance(writer, ErrorKind) else ErrorKind.UNKNOWN_SCHEMA
        try:
            plan = compile_plan(writer, target, self._max_depth)
        except ConfigurationError as error:
            logger.warning("values of %s cannot be read: %s", _name_of(key), error.message)
            plan = ErrorKind.RESOLUTION
        return self._plans.setdefault((key, target), plan)


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


def _name_of(key: Key) -> str:
    return f"fingerprint {key:016x}" if isinstance(key, int) else str(key)
