"""Records as Arrow record batches and streams.

Owns: the schema of every export and the cutting of a stream into batches whose columns stay below
2 GiB, the limit of Arrow's 32-bit offsets.

=================  ===============================================  ================
column             Arrow type                                       copied
=================  ===============================================  ================
``topic``          string                                           made
``partition``      int32                                            made
``offset``         int64                                            no
``timestamp``      timestamp[ms, UTC], null where there is none     no
``timestamp_type`` int8 (0 create time, 1 log append time)          made or no
``key``            binary, or what the deserializer makes           once, as
``value``          the same                                         binary_view: no
``headers``        list<struct<key: string, value: binary>>         once
=================  ===============================================  ================

An Arrow consumer may request other formats of ``key`` and ``value`` (binary_view, large_binary and
the like for strings) through the PyCapsule interface's ``requested_schema``.

Thread: that of the stream's consumer; batches are made one at a time on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

import numpy as np

from kfast._native import arrow_export
from kfast.errors import DeserializationError
from kfast.records.arrow.arrays import constant_column, integer_column, timestamp_column
from kfast.records.arrow.nodes import INT32_MAX, ArrowColumn, Capsule, SchemaNode, struct_column
from kfast.records.arrow.objects import object_sizes, plan_objects
from kfast.records.columns.bytes import BytesColumn
from kfast.records.columns.operations import Request, is_object_array, values_column
from kfast.records.columns.text import StringColumn
from kfast.records.row_columns import COLUMN_NAMES, RowColumns

BATCH_BYTES: Final = INT32_MAX
"""Most bytes of one column in one batch of a stream."""


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of one partition, to be exported."""

    topic: str
    partition: int
    rows: RowColumns


_MAKERS: Final[dict[str, Callable[[Part], ArrowColumn]]] = {
    "topic": lambda part: constant_column("topic", part.topic, len(part.rows)),
    "partition": lambda part: integer_column(
        "partition", np.full(len(part.rows), part.partition, np.int32)
    ),
    "offset": lambda part: integer_column("offset", part.rows.offsets),
    "timestamp": lambda part: timestamp_column(
        "timestamp", part.rows.timestamps, part.rows.has_no_timestamp
    ),
    "timestamp_type": lambda part: integer_column("timestamp_type", part.rows.type_array),
}


def record_batch(part: Part, requests: Mapping[str, Request]) -> ArrowColumn:
    """Return rows as one struct column, Arrow's form of a record batch."""
    children = []
    for name in COLUMN_NAMES:
        if name not in part.rows.selected:
            continue
        if name in _MAKERS:
            children.append(_MAKERS[name](part))
        elif name == "headers":
            if part.rows.headers is not None:
                children.append(part.rows.headers.arrow_column(name))
        else:
            column = part.rows.keys if name == "key" else part.rows.values
            if column is not None:
                children.append(values_column(name, column, requests.get(name)))
    return struct_column("", children, len(part.rows))


def record_stream(parts: Sequence[Part], requests: Mapping[str, Request]) -> Capsule:
    """Return an ``arrow_array_stream`` over at least one part, all with the same columns.

    A part whose columns have other types than those of the first ends the stream with an error.

    ``requests`` has the formats that the Arrow consumer requests for ``key`` and ``value``.
    """
    planned = dict(requests) | _object_plans(parts)
    schema = _schema(parts[0], planned)
    return arrow_export.stream_capsule(schema, _arrays(parts, planned, schema))


def record_schema(part: Part) -> Capsule:
    """Return the ``arrow_schema`` of some rows, without gathering their values."""
    return arrow_export.schema_capsule(_schema(part, _object_plans([part])))


def _schema(part: Part, planned: Mapping[str, Request]) -> Any:
    empty = Part(part.topic, part.partition, part.rows.select(slice(0, 0)))
    return record_batch(empty, planned).schema


def _arrays(
    parts: Sequence[Part], requests: Mapping[str, Request], schema: Any
) -> Iterator[object]:
    for part in parts:
        for start, stop in row_ranges(part.rows, BATCH_BYTES):
            rows = (
                part.rows
                if stop - start == len(part.rows)
                else part.rows.select(slice(start, stop))
            )
            piece = Part(part.topic, part.partition, rows)
            batch = record_batch(piece, requests)
            _check_schema(piece, batch.schema, schema)
            yield batch.array


def _check_schema(piece: Part, found: Any, schema: Any) -> None:
    """Raise if a piece differs from its stream's schema, by which its buffers would be read.

    A field that pyarrow described has the type that was planned for the whole stream.
    """
    for own, given in zip(found.children, schema.children, strict=True):
        are_nodes = isinstance(own, SchemaNode), isinstance(given, SchemaNode)
        if any(are_nodes) and own != given:
            name = own.name if are_nodes[0] else given.name
            first = int(piece.rows.offsets[0])
            raise DeserializationError(
                f'{piece.topic}-{piece.partition} offset {first}: column "{name}" has another '
                "Arrow type from here on than in the records before",
                found=f"{_arrow_type(own)} after {_arrow_type(given)}",
                hint="make the deserializer return columns of one type",
                topic=piece.topic,
                partition=piece.partition,
                offset=first,
                column=name,
            )


def _arrow_type(node: Any) -> str:
    """Name a type by Arrow's format string, of fields too."""
    if not isinstance(node, SchemaNode):
        return "a type of pyarrow"
    fields = ", ".join(f"{child.name}: {_arrow_type(child)}" for child in node.children)
    return f'"{node.format}"' + (f" of {fields}" if fields else "")


def row_ranges(rows: RowColumns, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Cut rows so that no variable-length column of a piece exceeds ``max_bytes``.

    A larger row is a piece of its own.
    """
    sizes = []
    for column in (rows.keys, rows.values):
        if isinstance(column, BytesColumn | StringColumn):
            if column.nbytes > max_bytes:
                sizes.append(np.maximum(column.lengths, 0))
        elif column is not None and is_object_array(column):
            objects = object_sizes(cast("Any", column))
            if objects.sum() > max_bytes:
                sizes.append(objects)
    if rows.headers is not None and rows.headers.nbytes > max_bytes:
        sizes.append(rows.headers.spans[2])
    if not sizes:
        if len(rows):
            yield 0, len(rows)
        return
    ends = [np.concatenate(([0], np.cumsum(size, dtype=np.int64))) for size in sizes]
    start = 0
    while start < len(rows):
        stops = [
            int(np.searchsorted(end, end[start] + max_bytes, side="right")) - 1 for end in ends
        ]
        stop = max(start + 1, min(stops))
        yield start, stop
        start = stop


def _object_plans(parts: Sequence[Part]) -> dict[str, Request]:
    """Choose one Arrow type for each column of Python objects, over all parts."""
    plans: dict[str, Request] = {}
    for name, columns in (
        ("key", [part.rows.keys for part in parts]),
        ("value", [part.rows.values for part in parts]),
    ):
        arrays = [column for column in columns if isinstance(column, np.ndarray)]
        if arrays and is_object_array(arrays[0]):
            plans[name] = plan_objects(name, arrays)
    return plans
