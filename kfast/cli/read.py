"""``kfast read``: writes a topic as Parquet, CSV or JSON lines.

Owns the formats. Parquet has the columns of Arrow. CSV and JSON lines are text: times are ISO 8601
in UTC, and bytes that are not UTF-8 are written as base64 (JSON: ``{"base64": "..."}``). A file is
renamed to its final name when it is complete; after an error there is none.
"""

from __future__ import annotations

import base64
import contextlib
import csv
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, Protocol

import numpy as np

import kfast
from kfast.errors import ConfigurationError, MissingDependencyError, did_you_mean

FORMATS: Final = ("parquet", "csv", "jsonl")
COLUMNS: Final = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")

_DESERIALIZERS: Final[Mapping[str, Callable[[], Any]]] = {
    "auto": lambda: None,
    "bytes": lambda: None,
    "json": kfast.Utf8,
    "utf8": kfast.Utf8,
    "int32": kfast.Int32,
    "int64": kfast.Int64,
    "float32": kfast.Float32,
    "float64": kfast.Float64,
    "uuid": kfast.Uuid,
}
KINDS: Final = tuple(_DESERIALIZERS)
"""Formats of keys and values. ``auto``: text if it is UTF-8; ``bytes``: never text."""

_ENDINGS: Final = {".parquet": "parquet", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@dataclass(slots=True, frozen=True)
class ReadOptions:
    """What to read and where to put it; see ``kfast read --help``."""

    topic: str
    start: Any
    end: Any
    columns: tuple[str, ...] | None
    key: str
    value: str
    output: str | None
    format: str | None
    limit: int | None
    configs: Mapping[str, object]


class Writer(Protocol):
    """Takes batches of records, one after another."""

    def write(self, batch: kfast.PartitionRecords) -> None:
        """Write a batch."""

    def close(self) -> None:
        """Finish the file."""


def read_to_file(options: ReadOptions) -> None:
    """Read a topic as the options say."""
    columns = _columns(options.columns)
    chosen = _format(options)
    make = _TEXT_WRITERS.get(chosen)
    with _destination(options.output, is_text=make is not None) as (target, is_shown):
        batches = kfast.scan_topic(
            options.topic,
            start=options.start,
            end=options.end,
            columns=[name for name in ("key", "value", "headers") if name in columns],
            progress=is_shown,
            config=options.configs,
            key_deserializer=_DESERIALIZERS[options.key](),
            value_deserializer=_DESERIALIZERS[options.value](),
        )
        writer: Writer = (
            _ParquetWriter(target, columns) if make is None else make(target, columns, options)
        )
        for batch in _limited(batches, options.limit):
            writer.write(batch)
        writer.close()


def _columns(wanted: tuple[str, ...] | None) -> tuple[str, ...]:
    for name in wanted or ():
        if name not in COLUMNS:
            near = did_you_mean(name, COLUMNS)
            raise ConfigurationError(
                f'--columns: no column "{name}"',
                hint=f'did you mean "{near}"?' if near else f"columns are {', '.join(COLUMNS)}",
            )
    return wanted or COLUMNS


def _format(options: ReadOptions) -> str:
    if options.format is not None:
        chosen = options.format
    elif options.output is None:
        chosen = "jsonl"
    else:
        ending = Path(options.output).suffix.lower()
        if ending not in _ENDINGS:
            raise ConfigurationError(
                f"--output {options.output}: unknown suffix",
                hint=f"use {', '.join(_ENDINGS)}, or give --format",
            )
        chosen = _ENDINGS[ending]
    if chosen == "parquet" and options.output is None:
        raise ConfigurationError(
            "Parquet cannot be written to standard output", hint="give --output FILE.parquet"
        )
    return chosen


def _limited(
    batches: Iterator[kfast.PartitionRecords], limit: int | None
) -> Iterator[kfast.PartitionRecords]:
    left = limit
    for batch in batches:
        if left is None or len(batch) <= left:
            yield batch
        else:
            yield batch.select(slice(0, left))
        if left is not None:
            left -= len(batch)
            if left <= 0:
                return


@contextlib.contextmanager
def _destination(output: str | None, *, is_text: bool) -> Iterator[tuple[IO[Any], bool]]:
    """Yield the open file, and whether progress may be shown on standard error."""
    if output is None:
        yield sys.stdout, False
        return
    path = Path(output)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with partial.open("w" if is_text else "wb", **_text_options(is_text)) as file:
            yield file, sys.stderr.isatty()
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _text_options(is_text: bool) -> dict[str, Any]:
    return {"encoding": "utf-8", "newline": ""} if is_text else {}


# --- Parquet --------------------------------------------------------------------------------------


class _ParquetWriter:
    """One row group per batch, zstd; the schema is that of the first batch."""

    def __init__(self, target: IO[bytes], columns: tuple[str, ...]) -> None:
        try:
            import pyarrow  # noqa: PLC0415 - optional
            import pyarrow.parquet  # noqa: PLC0415 - optional
        except ImportError:
            raise MissingDependencyError(
                "writing Parquet needs pyarrow", hint='pip install "kfast[arrow]"'
            ) from None
        self._arrow = pyarrow
        self._target = target
        self._columns = columns
        self._writer: Any = None

    def write(self, batch: kfast.PartitionRecords) -> None:
        arrow = self._select(batch)
        if self._writer is None:
            self._writer = self._arrow.parquet.ParquetWriter(
                self._target, arrow.schema, compression="zstd"
            )
        self._writer.write_batch(arrow)

    def _select(self, batch: kfast.PartitionRecords) -> Any:
        """Return the wanted columns; a filtered export has only keys, values and headers."""
        exported, pa = batch.to_arrow(), self._arrow
        always: dict[str, Callable[[], Any]] = {
            "topic": lambda: pa.repeat(batch.topic, len(batch)),
            "partition": lambda: pa.repeat(pa.scalar(batch.partition, pa.int32()), len(batch)),
            "offset": lambda: pa.array(batch.offsets),
            "timestamp": lambda: pa.array(batch.timestamps).cast(pa.timestamp("ms", tz="UTC")),
        }
        made = [
            always[name]() if name in always else exported.column(name) for name in self._columns
        ]
        return pa.record_batch(made, names=list(self._columns))

    def close(self) -> None:
        if self._writer is None:
            raise kfast.KafkaError(
                "there are no records to write", hint="check --start and --end, or kfast topics"
            )
        self._writer.close()


# --- text -----------------------------------------------------------------------------------------


class _JsonLinesWriter:
    """One JSON object per record and line."""

    def __init__(self, target: IO[str], columns: tuple[str, ...], options: ReadOptions) -> None:
        self._target = target
        self._columns = columns
        self._options = options

    def write(self, batch: kfast.PartitionRecords) -> None:
        names = self._columns
        encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
        for row in _rows(batch, names, self._options, _binary_for_json):
            self._target.write(encode(dict(zip(names, row, strict=True))))
            self._target.write("\n")

    def close(self) -> None:
        pass


class _CsvWriter:
    """A heading, then one line per record; headers are JSON."""

    def __init__(self, target: IO[str], columns: tuple[str, ...], options: ReadOptions) -> None:
        self._writer = csv.writer(target)
        self._writer.writerow(columns)
        self._columns = columns
        self._options = options

    def write(self, batch: kfast.PartitionRecords) -> None:
        for row in _rows(batch, self._columns, self._options, _binary_for_csv):
            self._writer.writerow(
                [
                    json.dumps(cell, ensure_ascii=False) if isinstance(cell, list | dict) else cell
                    for cell in row
                ]
            )

    def close(self) -> None:
        pass


_TEXT_WRITERS: Final[Mapping[str, Callable[[IO[Any], tuple[str, ...], ReadOptions], Writer]]] = {
    "csv": _CsvWriter,
    "jsonl": _JsonLinesWriter,
}


def _rows(
    batch: kfast.PartitionRecords,
    columns: tuple[str, ...],
    options: ReadOptions,
    binary: Callable[[bytes], object],
) -> Iterable[tuple[Any, ...]]:
    made: list[Iterable[Any]] = []
    for name in columns:
        if name in {"topic", "partition"}:
            made.append(itertools.repeat(getattr(batch, name), len(batch)))
        elif name == "offset":
            made.append(batch.offsets.tolist())
        elif name == "timestamp":
            texts = np.datetime_as_string(batch.datetimes, unit="ms", timezone="UTC")
            made.append(texts.tolist())
        elif name == "headers":
            made.append([_headers(headers, binary) for headers in batch.headers])
        else:
            kind = options.key if name == "key" else options.value
            column = batch.keys if name == "key" else batch.values
            made.append(_cells(column, kind, binary))
    return zip(*made, strict=True)


def _cells(column: Any, kind: str, binary: Callable[[bytes], object]) -> Iterable[Any]:
    values = column.tolist() if isinstance(column, np.ndarray) else column.to_list()
    if kind == "auto":
        return [_text_or(value, binary) for value in values]
    if kind == "bytes":
        return [None if value is None else binary(value) for value in values]
    if kind == "json":
        return [None if value is None else _parse(value) for value in values]
    if kind == "uuid":
        return [None if value is None else str(value) for value in values]
    return list(values)


def _text_or(value: bytes | None, binary: Callable[[bytes], object]) -> object:
    if value is None:
        return None
    try:
        return value.decode("utf-8")
    except UnicodeDecodeError:
        return binary(value)


def _parse(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _headers(
    headers: Iterable[tuple[str, bytes | None]], binary: Callable[[bytes], object]
) -> list[list[object]]:
    """Return pairs: a key may occur more than once."""
    return [[key, _text_or(value, binary)] for key, value in headers]


def _binary_for_json(value: bytes) -> object:
    return {"base64": base64.b64encode(value).decode("ascii")}


def _binary_for_csv(value: bytes) -> object:
    return base64.b64encode(value).decode("ascii")
