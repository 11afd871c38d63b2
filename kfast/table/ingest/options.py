"""IngestOptions: what an ingest is asked for, checked before anything is opened.

Owns names and values of the options, and the projection and shape of the table that follow from
them. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from kfast.errors import ConfigurationError, did_you_mean
from kfast.table.file_formats import ARROW_COMPRESSIONS, COMPRESSIONS
from kfast.table.file_names import check_partition_by
from kfast.table.manifest import TableShape
from kfast.table.projection import KAFKA_COLUMNS, SPELLINGS, Projection, output_column

FORMATS: Final = ("parquet", "delta", "arrow")
KINDS: Final = {
    "bytes": "binary",
    "text": "utf8",
    "int32": "int32",
    "int64": "int64",
    "float32": "float32",
    "float64": "float64",
}
"""Kinds of keys and values, and the format of each in a `Projection`."""
_TYPED: Final = ("json", "avro", "protobuf")
ON_ERROR: Final = {"fail": "FAILFAST", "null": "PERMISSIVE", "skip": "DROPMALFORMED"}
LOST: Final = ("fail", "skip")

COLUMNS: Final = tuple(SPELLINGS.get(name, name) for name in (*KAFKA_COLUMNS, "headers"))
DEFAULT_COLUMNS: Final = COLUMNS[:-1]

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
    key: str = "bytes"
    value: str = "bytes"
    on_error: str = "fail"
    partition_by: tuple[str, ...] = ()
    compression: str = "zstd"
    rows_per_file: int = ROWS_PER_FILE
    bytes_per_file: int = BYTES_PER_FILE
    every_ms: int = EVERY_MS
    lost: str = "fail"
    take_over: bool = False
    memory_bytes: int = MEMORY_BYTES
    storage_options: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Check each option.

        Raises ``ConfigurationError``.
        """
        if not self.topics:
            raise ConfigurationError("no topics to ingest", hint="name at least one")
        compressions = ARROW_COMPRESSIONS if self.format == "arrow" else COMPRESSIONS
        for option, value in (("key", self.key), ("value", self.value)):
            if value in _TYPED:
                raise ConfigurationError(
                    f"{option}: an ingest cannot make columns of {value} yet",
                    hint="bytes keeps it as it is",
                )
        for option, value, known in (
            ("format", self.format, FORMATS),
            ("key", self.key, tuple(KINDS)),
            ("value", self.value, tuple(KINDS)),
            ("on-error", self.on_error, tuple(ON_ERROR)),
            ("compression", self.compression, compressions),
            ("lost", self.lost, LOST),
        ):
            _check(option, value, known)
        check_partition_by(self.partition_by)
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

    @property
    def projection(self) -> Projection:
        """The columns of the table."""
        formats = {"key": KINDS[self.key], "value": KINDS[self.value]}
        return Projection(
            tuple(
                output_column(name, formats.get(name, "binary"))
                for name in (_source(name) for name in self.columns)
            ),
            value_format=formats["value"],
            mode=ON_ERROR[self.on_error],
            key_format=formats["key"],
        )

    @property
    def file_projection(self) -> Projection:
        """The columns of the files: those of the table that are in no folder's name."""
        return self.projection.without(self.partition_by)

    @property
    def shape(self) -> TableShape:
        """The shape of the table.

        Raises ``ConfigurationError`` if its files would have no column.
        """
        if not self.file_projection.columns:
            raise ConfigurationError(
                "the files would have no column", hint="add one that is not in partition-by"
            )
        return TableShape(self.format, self.projection.ddl, self.partition_by)


def check_columns(names: Collection[str]) -> tuple[str, ...]:
    """Return columns as a table spells them, each known and given once.

    ``timestamp_type`` is the name of ``kfast read`` for ``timestampType``.
    """
    known = {name.lower(): name for name in COLUMNS} | {"timestamp_type": "timestampType"}
    found: list[str] = []
    for name in names:
        if name.lower() not in known:
            raise _not_one_of("columns", name, COLUMNS)
        if known[name.lower()] in found:
            raise ConfigurationError(f"columns: {name} is given twice", hint="name it once")
        found.append(known[name.lower()])
    return tuple(found)


def _source(column: str) -> str:
    return column.lower()


def _check(option: str, value: str, known: Collection[str]) -> None:
    if value not in known:
        raise _not_one_of(option, value, known)


def _not_one_of(option: str, value: str, known: Collection[str]) -> ConfigurationError:
    near = did_you_mean(value, known)
    return ConfigurationError(
        f'{option}: there is no "{value}"',
        hint=f"did you mean {near}?" if near else f"one of {', '.join(known)}",
    )
