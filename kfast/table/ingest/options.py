"""IngestOptions: what an ingest is asked for, checked before anything is opened.

Owns names and values of the options, and the projection and shape of the table that follow from
them. Pure.
"""

from __future__ import annotations

import copy
import fnmatch
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from kfast.deserializers import Deserializer
from kfast.deserializers.debezium import Debezium
from kfast.deserializers.formats import deserializer_of, known_root
from kfast.deserializers.typed import TypedDeserializer
from kfast.errors import ConfigurationError, DeserializationError, did_you_mean
from kfast.internals import is_glob
from kfast.schemas.formats import BYTES, format_named
from kfast.schemas.formats import FORMATS as VALUE_FORMATS
from kfast.schemas.types import SchemaField
from kfast.table.dead_letter_sink import letter_topic
from kfast.table.entries import TableShape
from kfast.table.file_formats import ARROW_COMPRESSIONS, COMPRESSIONS
from kfast.table.iceberg_catalog import check_iceberg
from kfast.table.option_spelling import OptionSpelling
from kfast.table.partitioning import check_partition_by, check_partitioning
from kfast.table.projection import (
    KAFKA_COLUMNS,
    RESCUED,
    SPELLINGS,
    ColumnFormat,
    OutputColumn,
    Projection,
    output_column,
)
from kfast.table.row_changes import UpsertColumns, upsert_columns
from kfast.table.value_types import in_spark, json_of

FORMATS: Final = ("parquet", "delta", "iceberg", "arrow")
KINDS: Final = tuple(row.name for row in VALUE_FORMATS.values() if not row.arguments)
"""Formats of keys and values that need no schema."""
_SOURCES: Final = ("key", "value")
_HINTS: Final = {
    "Avro": 'name one: reader="latest", reader="SUBJECT:3" or its text',
    "Debezium": 'name one: Avro(reader="latest"), reader="SUBJECT:3" or its text',
    "Protobuf": 'name one: reader="latest", reader="SUBJECT:3", or descriptor_set= with message=',
}
_NO_UPSERT: Final = (
    "pyiceberg compares each row of a batch in Python, and deletes by one expression of all keys: "
    "5,000 rows with two key columns take a minute"
)
Roots = Mapping[str, SchemaField]
"""The roots of typed columns, of key and value."""
ON_ERROR: Final = {"fail": "FAILFAST", "null": "PERMISSIVE", "skip": "DROPMALFORMED"}
LOST: Final = ("fail", "skip")

COLUMNS: Final = tuple(SPELLINGS.get(name, name) for name in (*KAFKA_COLUMNS, "headers", RESCUED))
DEFAULT_COLUMNS: Final = COLUMNS[:-2]

ROWS_PER_FILE: Final = 4_000_000
BYTES_PER_FILE: Final = 256 << 20
EVERY_MS: Final = 60_000
MEMORY_BYTES: Final = 512 << 20
_LEAST_MEMORY: Final = 64 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """What to write where; see `kfast.ingest`."""

    topics: tuple[str, ...]
    """Names, and globs."""
    to: str
    format: str = "parquet"
    follow: bool = False
    columns: tuple[str, ...] = DEFAULT_COLUMNS
    key: str | TypedDeserializer = BYTES
    value: str | TypedDeserializer = BYTES
    """The name of a format, or a deserializer with a schema."""
    on_error: str = "fail"
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    rows_per_file: int = ROWS_PER_FILE
    bytes_per_file: int = BYTES_PER_FILE
    every_ms: int = EVERY_MS
    lost: str = "fail"
    dead_letter: str | None = None
    take_over: bool = False
    memory_bytes: int = MEMORY_BYTES
    iceberg_table: str = ""
    """Catalog and name of the table, with the format iceberg."""
    upsert: tuple[str, ...] = ()
    """Columns of the rows by which they are upserted; none: records are appended."""
    metrics: str | None = None
    """Address that Prometheus asks for metrics."""
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)
    spelling: OptionSpelling = OptionSpelling.PYTHON
    """Of options in hints."""

    def __post_init__(self) -> None:
        """Check each option.

        Raises ``ConfigurationError``.
        """
        if not self.topics:
            raise ConfigurationError("no topics to ingest", hint="name at least one")
        compressions = ARROW_COMPRESSIONS if self.format == "arrow" else COMPRESSIONS
        for option in _SOURCES:
            _check_format(option, getattr(self, option))
        for option, value, choices in (
            ("format", self.format, FORMATS),
            ("on-error", self.on_error, tuple(ON_ERROR)),
            ("compression", self.compression, compressions),
            ("lost", self.lost, LOST),
        ):
            _check(option, value, choices)
        letter_topic(self.dead_letter)
        if self.upsert:
            self._check_upsert()
        check_partition_by(self.format, self.partition_by)
        values = self.typed.get("value")
        if self.has_rescued and (values is None or values.format_name != "JSON"):
            raise ConfigurationError(
                f"the column {RESCUED} is for values in JSON that are a column, too",
                hint=self.spelling.json_hint,
            )
        check_iceberg(self.format, self.iceberg_table)
        for option, number, least in (
            ("rows-per-file", self.rows_per_file, 1),
            ("bytes-per-file", self.bytes_per_file, 1),
            ("every", self.every_ms, 1),
            ("memory", self.memory_bytes, _LEAST_MEMORY),
        ):
            if number < least:
                raise ConfigurationError(
                    f"{option} = {number}: too small", hint=f"give {least} or more"
                )

    def _check_upsert(self) -> None:
        """Check what goes with ``upsert``; keys are read as the values of Debezium say."""
        for name in self.upsert:
            if self.upsert.count(name) > 1:
                raise ConfigurationError(f"upsert: {name} is given twice", hint="name it once")
        refused = {
            f"the format {self.format}": self.format != "delta",
            "partition-by": self.partition_by,
            "dead-letter": self.dead_letter is not None,
            "on-error null, which would delete rows": self.on_error == "null",
        }
        for name, is_refused in refused.items():
            if is_refused:
                reason = _NO_UPSERT if self.format == "iceberg" else None
                raise ConfigurationError(
                    f"upsert is not for {name}",
                    cause=reason,
                    hint="--format delta" if name.startswith("the format") else "leave it out",
                )
        for name in ("key", "value"):
            if name in self.record_columns:
                raise ConfigurationError(
                    f"columns: a table with keys has the columns of its rows, not {name}",
                    hint="leave it out of the columns (-c)",
                )
        if self.key == BYTES and isinstance(self.value, Debezium):
            key = self.value.key_deserializer(self.upsert)
            object.__setattr__(self, "key", BYTES if key is None else key)

    @property
    def record_columns(self) -> tuple[str, ...]:
        """The columns of a table with keys that are not of its rows; none unless they are given."""
        return () if self.columns == DEFAULT_COLUMNS else self.columns

    @property
    def read_columns(self) -> tuple[str, ...]:
        """The columns that are read: those of the table, or those that its rows are made of."""
        if not self.upsert:
            return self.columns
        return tuple(dict.fromkeys(("key", "value", "offset", *self.record_columns)))

    @property
    def letter_topic(self) -> str:
        """The topic of dead letters, "" for a folder or none."""
        return letter_topic(self.dead_letter)

    def reads(self, topic: str) -> bool:
        """Return whether a name or a glob is that of a topic."""
        return any(
            fnmatch.fnmatchcase(topic, name) if is_glob(name) else topic == name
            for name in self.topics
        )

    @property
    def has_rescued(self) -> bool:
        """Whether a column has the fields of values that no other column is read from."""
        return RESCUED in self.columns

    @property
    def typed(self) -> dict[str, TypedDeserializer]:
        """The deserializers with a schema of keys and values that are columns of the table."""
        columns = self.read_columns
        formats = {source: getattr(self, source) for source in _SOURCES if source in columns}
        return {
            name: deserializer
            for name, deserializer in formats.items()
            if isinstance(deserializer, TypedDeserializer)
        }

    @property
    def of_latest(self) -> dict[str, TypedDeserializer]:
        """Those of `typed` whose schema is the latest of a subject, not a text or a version."""
        return {
            name: deserializer
            for name, deserializer in self.typed.items()
            if deserializer.reader is not None and deserializer.reader.endswith("latest")
        }

    def with_new_deserializers(self) -> IngestOptions:
        """Return the same with deserializers that have looked up no schema yet."""
        new: dict[str, Any] = {
            name: copy.copy(deserializer) for name, deserializer in self.typed.items()
        }
        return replace(self, **new)

    def known_roots(self) -> Roots | None:
        """Return the roots of typed columns; None if one may have to be looked up."""
        roots: dict[str, SchemaField] = {}
        for name, deserializer in self.typed.items():
            root = deserializer.root
            if deserializer.registry is not None or root is None:
                return None
            roots[name] = root
        return roots

    def look_up_roots(self, topics: Collection[str], *, waits: bool = True) -> Roots:
        """Return the roots of typed columns; the same for all topics.

        The registry is asked, unless ``waits`` is false and the deserializers have its answers.

        Raises ``ConfigurationError`` if they are not, or depend on the records, and
        ``SchemaRegistryError``.
        """
        roots: dict[str, SchemaField] = {}
        for name, deserializer in self.typed.items():
            first = ""
            for topic in sorted(topics):
                root = known_root(deserializer, topic, name, waits=waits)
                if root is None:
                    raise ConfigurationError(
                        f"{name}: the schema of the table is not known",
                        found="no schema is named: it would be that of the first record",
                        hint=_HINTS[deserializer.format_name],
                    )
                if name in roots and root.type != roots[name].type:
                    raise ConfigurationError(
                        f"{name}s of {first} and {topic} have different schemas",
                        hint="name one for all, or write them to tables of their own",
                    )
                first = first or topic
                roots[name] = root
        return roots

    def projection(self, roots: Roots) -> Projection:
        """Return the columns that are read, which are those of the table unless it has keys."""
        return Projection(
            tuple(_output_column(_source(name), self, roots) for name in self.read_columns),
            value=ColumnFormat(_kind(self.value)),
            key=ColumnFormat(_kind(self.key)),
            mode=ON_ERROR[self.on_error],
            spelling=self.spelling,
        )

    def correct_hint(self, error: DeserializationError) -> None:
        """Make the hint of an error about options of this ingest, wherever it was raised."""
        is_framed = error.hint is not None and "framing" in error.hint.lower()
        spelling = self.spelling
        if is_framed:
            error.hint = spelling.framing_hint(error.column)
        else:
            error.hint = spelling.upsert_hint if self.upsert else spelling.on_error_hint

    def deserializers(self, projection: Projection) -> dict[str, Deserializer]:
        """Return the deserializers of key and value, without those that are not decoded."""
        deserializers: dict[str, Deserializer] = {}
        for source in _SOURCES:
            data_format = getattr(self, source)
            if not projection.decodes(source):
                continue
            deserializer = (
                data_format
                if isinstance(data_format, TypedDeserializer)
                else deserializer_of(data_format, column=source)
            )
            assert deserializer is not None  # bytes are not decoded
            deserializers[source] = deserializer
        return deserializers

    def shape(self, projection: Projection) -> TableShape:
        """Return the shape of the table.

        Raises ``ConfigurationError`` if its files would have no column.
        """
        check_partitioning(self.format, self.partition_by, projection)
        return TableShape(
            self.format, projection.ddl, self.partition_by, self.iceberg_table, self.upsert
        )

    def of_table(self, projection: Projection) -> Projection:
        """The columns of the table, of those that are read."""
        columns = self.upserted(projection)
        return projection if columns is None else Projection(columns.columns)

    def upserted(self, projection: Projection) -> UpsertColumns | None:
        """The columns of a table with keys, None for one that records are appended to.

        Raises ``ConfigurationError`` if values are no rows with these keys.
        """
        if not self.upsert:
            return None
        return upsert_columns(projection, self.upsert, self.record_columns)


def _check_format(option: str, data_format: object) -> None:
    if isinstance(data_format, TypedDeserializer):
        return
    if not isinstance(data_format, str):
        raise ConfigurationError(
            f"{option} is the name of a format or a deserializer with a schema, not "
            f"{type(data_format).__name__}",
            hint=f'{option}="text", or {option}=kfast.Json({{"id": "int64"}})',
        )
    row = format_named(data_format, option)
    if row.arguments:
        example = 'kfast.Json({"id": "int64"})' if row.name == "json" else "a deserializer"
        raise ConfigurationError(
            f"{option}: {row.name} needs a schema",
            hint=f"--{option}-schema TEXT or @FILE ({option}={example})",
        )


def _kind(data_format: str | TypedDeserializer) -> str:
    if isinstance(data_format, TypedDeserializer):
        return data_format.format_name.lower()
    return format_named(data_format, "").name


def _output_column(source: str, options: IngestOptions, roots: Roots) -> OutputColumn:
    if source not in roots:
        data_format = getattr(options, source) if source in _SOURCES else BYTES
        return output_column(source, _kind(data_format))
    return OutputColumn(source, source, json_of(in_spark(roots[source], source).type))


def check_columns(names: Collection[str]) -> tuple[str, ...]:
    """Return columns as a table spells them, each known and given once.

    ``timestamp_type`` is the name of ``kfast read`` for ``timestampType``.
    """
    spellings = {name.lower(): name for name in COLUMNS} | {"timestamp_type": "timestampType"}
    columns: list[str] = []
    for name in names:
        if name.lower() not in spellings:
            raise _not_one_of("columns", name, COLUMNS)
        if spellings[name.lower()] in columns:
            raise ConfigurationError(f"columns: {name} is given twice", hint="name it once")
        columns.append(spellings[name.lower()])
    return tuple(columns)


def _source(column: str) -> str:
    return column.lower()


def _check(option: str, value: str, choices: Collection[str]) -> None:
    if value not in choices:
        raise _not_one_of(option, value, choices)


def _not_one_of(option: str, value: str, choices: Collection[str]) -> ConfigurationError:
    near = did_you_mean(value, choices)
    return ConfigurationError(
        f'{option}: there is no "{value}"',
        hint=f"did you mean {near}?" if near else f"one of {', '.join(choices)}",
    )
