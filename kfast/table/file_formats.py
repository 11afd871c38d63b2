"""Formats of a table's files: Parquet and the Arrow IPC file format, with pyarrow.

Owns their endings, codecs and settings. Parquet has offsets and timestamps delta-encoded,
dictionaries only where values repeat (topic, partition, timestamp type, texts of typed columns),
and statistics only where they help to skip (topic, offset, timestamp, partition, numbers and times
of typed columns). Encoding releases the GIL. `delta_stats` reads the footer of a written file for
the log of a Delta table.
"""

from __future__ import annotations

import contextlib
import datetime
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kfast._base.optional import optional_package
from kfast.columns.arrow import CapsulePair, constant_column
from kfast.table.projection import Projection

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

GROUP_ROWS: Final = 1_000_000
GROUP_BYTES: Final = 32 << 20
"""Most rows and most bytes of a row group, give or take one batch."""

PAGE_BYTES: Final = 65_536
"""Size of a page, give or take a thousand rows.

Encoded data is still in the processor's caches when it is compressed: 5 % less of a worker's time
than with pages of 1 MiB.
"""

COMPRESSIONS: Final = ("zstd", "snappy", "lz4", "gzip", "none")
ARROW_COMPRESSIONS: Final = ("zstd", "lz4", "none")

_ENDINGS: Final = {
    "parquet": ".parquet",
    "delta": ".parquet",
    "iceberg": ".parquet",
    "arrow": ".arrow",
}
_REPEATING: Final = ("topic", "partition", "timestamptype")
_RISING: Final = ("offset", "timestamp")
_SKIPPABLE: Final = ("topic", "partition", "offset", "timestamp")
"""Columns with statistics in every file, besides those inside of typed ones."""
_TYPED: Final = ("key", "value")


def file_ending(table_format: str) -> str:
    """Return how the names of a table's files end."""
    return _ENDINGS[table_format]


class FileEncoder:
    """Makes files of one format whose columns are those of a projection."""

    def __init__(
        self,
        table_format: str,
        projection: Projection,
        schema: pa.Schema,
        compression: str,
        field_ids: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        self.ending = file_ending(table_format)
        self._is_delta = table_format == "delta"
        self._is_parquet = self.ending == ".parquet"
        self._compression = compression
        self._sources = {column.source: column.name for column in projection.columns}
        self._arrow = optional_package("pyarrow", "a table of files")
        self._topic_at: int | None = None
        self._schema = schema
        self._texts, self._numbers = typed_leaves(schema, self._sources)
        for at, column in enumerate(projection.columns):
            if column.source == "topic" and self._is_parquet:
                kind = self._arrow.dictionary(self._arrow.int8(), self._arrow.string())
                self._topic_at = at
                self._schema = schema.set(at, schema.field(at).with_type(kind))
        if field_ids:
            self._schema = self._arrow.schema(
                [with_field_ids(column, column.name, field_ids) for column in self._schema]
            )

    def open(self, output: Any) -> Any:
        """Return a writer to an open file."""
        if self._is_parquet:
            return parquet_writer(
                output,
                self._schema,
                self._sources,
                self._compression,
                repeating=self._texts,
                skippable=self._numbers,
            )
        codec = None if self._compression == "none" else self._compression
        options = self._arrow.ipc.IpcWriteOptions(compression=codec)
        return self._arrow.ipc.new_file(output, self._schema, options=options)

    def write(self, writer: Any, batches: list[pa.RecordBatch], topic: str) -> int:
        """Write batches as one row group; return the number of rows."""
        table = self._arrow.Table.from_batches(batches)
        if self._topic_at is not None:
            field = self._schema.field(self._topic_at)
            topics = coded_topics(topic, table.num_rows)
            table = table.set_column(self._topic_at, field, topics)
        if self._is_parquet:
            writer.write_table(table, row_group_size=max(1, table.num_rows))
        else:
            writer.write_table(table)
        return int(table.num_rows)

    def statistics(self, writer: Any) -> str:
        """Return the statistics of a closed file as Delta has them; "" for other tables."""
        if not self._is_delta:
            return ""
        return delta_stats(writer.writer.metadata, self._schema)

    def __repr__(self) -> str:
        return f"<FileEncoder {self.ending} {self._compression}>"


def parquet_writer(
    output: Any,
    schema: pa.Schema,
    sources: Mapping[str, str],
    compression: str,
    *,
    store_schema: bool = False,
    repeating: Collection[str] = (),
    skippable: Collection[str] = (),
) -> pq.ParquetWriter:
    """Return the writer of a file, to a path or an open file.

    ``sources`` has the columns' names by their source in lower case. With ``store_schema`` pyarrow
    reads the file with Arrow's types, dictionaries among them. ``repeating`` and ``skippable`` are
    further columns with a dictionary and with statistics.
    """
    return optional_package("pyarrow.parquet", "a table of files").ParquetWriter(
        output,
        schema,
        compression=compression,
        use_dictionary=[*(sources[name] for name in _REPEATING if name in sources), *repeating],
        column_encoding={
            sources[name]: "DELTA_BINARY_PACKED" for name in _RISING if name in sources
        },
        write_statistics=[
            *(sources[name] for name in _SKIPPABLE if name in sources),
            *skippable,
        ]
        or False,
        store_schema=store_schema,
        data_page_size=PAGE_BYTES,
    )


def with_field_ids(column: pa.Field, path: str, field_ids: Mapping[str, int]) -> pa.Field:
    """A column with Iceberg's ids of itself and of what is in it, by path.

    Paths are ``value.price`` of members, ``a.element`` of lists, ``m.key`` and ``m.value`` of maps.
    """
    arrow = optional_package("pyarrow", "a table of files")
    kind = column.type
    if arrow.types.is_struct(kind):
        members = [kind.field(number) for number in range(kind.num_fields)]
        kind = arrow.struct(
            [with_field_ids(member, f"{path}.{member.name}", field_ids) for member in members]
        )
    elif arrow.types.is_list(kind):
        kind = arrow.list_(with_field_ids(kind.value_field, f"{path}.element", field_ids))
    elif arrow.types.is_map(kind):
        kind = arrow.map_(
            with_field_ids(kind.key_field, f"{path}.key", field_ids),
            with_field_ids(kind.item_field, f"{path}.value", field_ids),
        )
    return column.with_type(kind).with_metadata({"PARQUET:field_id": str(field_ids[path])})


def typed_leaves(schema: pa.Schema, sources: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Return the columns of Parquet below typed keys and values: texts and binary, and others.

    ``sources`` is that of `parquet_writer`.
    """
    typed = {sources[name] for name in _TYPED if name in sources}
    leaves = [
        leaf
        for field in schema
        if field.name in typed and field.type.num_fields
        for leaf in _leaves(field.type, field.name)
    ]
    return (
        [path for path, is_text in leaves if is_text],
        [path for path, is_text in leaves if not is_text],
    )


def _leaves(kind: pa.DataType, path: str) -> Iterator[tuple[str, bool]]:
    """Yield the columns of Parquet below a nested type, and whether each is text or binary."""
    arrow = optional_package("pyarrow", "a table of files")
    if arrow.types.is_struct(kind):
        for number in range(kind.num_fields):
            field = kind.field(number)
            yield from _leaves(field.type, f"{path}.{field.name}")
    elif arrow.types.is_list(kind):
        yield from _leaves(kind.value_type, f"{path}.list.element")
    elif arrow.types.is_map(kind):
        yield from _leaves(kind.key_type, f"{path}.key_value.key")
        yield from _leaves(kind.item_type, f"{path}.key_value.value")
    else:
        yield path, arrow.types.is_string(kind) or arrow.types.is_binary(kind)


def bounded_columns(projection: Projection, folders: Sequence[str] = ()) -> list[str]:
    """Return the columns that have bounds in every file, or members that have some."""
    return [
        column.name
        for column in projection.columns
        if column.source not in folders
        and (column.source in _SKIPPABLE or _is_struct(column.json_type))
    ]


def _is_struct(json_type: Any) -> bool:
    return isinstance(json_type, dict) and json_type["type"] == "struct"


def coded_topics(topic: str, count: int) -> pa.DictionaryArray:
    """Return a topic ``count`` times as a dictionary array, so that Parquet compares no names."""
    arrow = optional_package("pyarrow", "a table of files")
    name = arrow.array(CapsulePair(constant_column("", topic, 1)))
    codes = arrow.py_buffer(np.zeros(count, np.int8))
    codes = arrow.Array.from_buffers(arrow.int8(), count, [None, codes], 0)
    return arrow.DictionaryArray.from_arrays(codes, name)


# --- statistics of Delta --------------------------------------------------------------------------
# Members of structs have statistics too, those of lists and maps not. Left out are bounds that
# could be wrong: those of floating-point numbers, as Parquet leaves out NaN and Delta takes it for
# the greatest, and those of decimals, whose digits JSON numbers may not hold. Delta's times have
# milliseconds: bounds are rounded to the outside, and those beyond the years 1 to 9999 are the ends
# of these.
#
# A column at the top has bounds in every file or in none, and the table has a property that says
# which (`bounded_columns`): for the others deltalake would take "at least null" as a bound, by
# which its Arrow datasets leave out rows that a filter on such a column asks for.

_BOUNDED: Final = (int, str, datetime.date)  # bool and datetime are subclasses
_MS: Final = datetime.timedelta(milliseconds=1)
_ENDS: Final = (
    datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=datetime.UTC),
)
_LONGEST: Final = 256
"""Longest text that is given as a bound; names of topics are shorter."""


def delta_stats(metadata: pq.FileMetaData, schema: pa.Schema) -> str:
    """Return the statistics of a file in JSON."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    paths = [path for field in schema for path in _stats_paths(field.type, (field.name,))]
    for number, path in enumerate(paths):
        statistics = [
            metadata.row_group(group).column(number).statistics
            for group in range(metadata.num_row_groups)
        ]
        if path is None or any(group is None for group in statistics):
            continue
        if all(group.has_null_count for group in statistics):
            _put(nulls, path, sum(group.null_count for group in statistics))
        # A row group of nulls has no bounds.
        bounded = [group for group in statistics if group.num_values]
        if bounded and all(_has_bounds(group) for group in bounded):
            _put(least, path, _text(min(_bounds(group)[0] for group in bounded), is_end=False))
            _put(greatest, path, _text(max(_bounds(group)[1] for group in bounded), is_end=True))
    return json.dumps(
        {
            "numRecords": metadata.num_rows,
            "minValues": least,
            "maxValues": greatest,
            "nullCount": nulls,
        }
    )


def _has_bounds(statistics: pq.Statistics) -> bool:
    if not statistics.has_min_max:
        return False
    return all(
        isinstance(bound, _BOUNDED) and (not isinstance(bound, str) or len(bound) <= _LONGEST)
        for bound in _bounds(statistics)
    )


def _bounds(statistics: pq.Statistics) -> tuple[Any, Any]:
    """Return the least and the greatest value, within the years that Python has."""
    bounds = []
    for name in ("min", "max"):
        try:
            bounds.append(getattr(statistics, name))
        except (OverflowError, ValueError):
            end = _ENDS[getattr(statistics, f"{name}_raw") > 0]
            kind = json.loads(statistics.logical_type.to_json())
            if kind["Type"] == "Date":
                bounds.append(end.date())
            else:
                bounds.append(end if kind["isAdjustedToUTC"] else end.replace(tzinfo=None))
    return bounds[0], bounds[1]


def _text(value: Any, *, is_end: bool) -> Any:
    if not isinstance(value, datetime.datetime):
        return value.isoformat() if isinstance(value, datetime.date) else value
    rest = datetime.timedelta(microseconds=value.microsecond % 1000)
    if rest:
        value -= rest
        with contextlib.suppress(OverflowError):  # the last millisecond that there is
            value += _MS if is_end else datetime.timedelta()
    return value.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _put(into: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        into = into.setdefault(name, {})
    into[path[-1]] = value


def _stats_paths(kind: pa.DataType, path: tuple[str, ...]) -> Iterator[tuple[str, ...] | None]:
    """Yield the path of each column of Parquet, None for those inside of lists and maps."""
    types = optional_package("pyarrow", "a table of files").types
    if types.is_struct(kind):
        for number in range(kind.num_fields):
            field = kind.field(number)
            yield from _stats_paths(field.type, (*path, field.name))
    elif types.is_dictionary(kind) or not kind.num_fields:
        yield path
    else:
        inner = [kind.key_type, kind.item_type] if types.is_map(kind) else [kind.value_type]
        for inner_type in inner:
            for _ in _stats_paths(inner_type, path):
                yield None
