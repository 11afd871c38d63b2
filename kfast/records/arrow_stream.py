"""Records as Arrow record batches and streams.

Owns: the schema of every export and the cutting of a stream into batches whose columns stay below
2 GiB, the limit of Arrow's 32-bit offsets.

=================  ===============================================  ================
column             Arrow type                                       copied
=================  ===============================================  ================
``topic``          dictionary<int32, string>                        made
``partition``      int32                                            made
``offset``         int64                                            no
``timestamp``      timestamp[ms, UTC], null where there is none     no
``timestamp_type`` int8 (0 create time, 1 log append time)          made or no
``key``            binary, or what the deserializer makes           once, as
``value``          the same                                         binary_view: no
``headers``        list<struct<key: string, value: binary>>         once
=================  ===============================================  ================

Structs may be flattened: their members are columns then, in the place of ``key`` and ``value``.

An Arrow consumer may request other formats of ``key`` and ``value`` (binary_view, large_binary and
the like for strings) and plain strings for ``topic`` through the PyCapsule interface's
``requested_schema``. All batches of a stream have the same dictionary of topics: the IPC file
format has no other.

Thread: that of the stream's consumer; batches are made one at a time on demand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import zip_longest
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast

import numpy as np

from kfast._native import arrow_export
from kfast.columns.arrow import (
    INT32_MAX,
    ArrowColumn,
    Capsule,
    SchemaNode,
    coded_column,
    constant_column,
    dictionary_of,
    flattened_columns,
    integer_column,
    object_sizes,
    plan_objects,
    struct_column,
    timestamp_column,
)
from kfast.columns.bytes import BytesColumn
from kfast.columns.operations import Request, is_object_array, values_column
from kfast.columns.text import StringColumn
from kfast.errors import ConfigurationError, DeserializationError, KafkaError
from kfast.records.row_columns import COLUMN_NAMES, RowColumns, common_columns, concat_rows

if TYPE_CHECKING:
    from kfast.columns.typed import StructColumn

Flatten: TypeAlias = bool | Literal["all"]

BATCH_BYTES: Final = INT32_MAX
"""Most bytes of one column in one batch of a stream."""
GROUP_BYTES: Final = 256 << 20
"""Most bytes that several chunks are joined with."""


_TOPIC_FORMATS: Final = {"u": "u", "U": "U", "vu": "u"}


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Some rows of one partition, to be exported."""

    topic: str
    partition: int
    rows: RowColumns


@dataclass(frozen=True, slots=True)
class Form:
    """The form of an export: requested Arrow formats by column, and columns to leave out.

    ``flatten`` puts the members of structs in the place of ``key`` and ``value``; with ``"all"``
    those of nested structs too.
    """

    requests: Mapping[str, Request] = field(default_factory=dict)
    without: Collection[str] = ()
    flatten: Flatten = False

    @classmethod
    def of(
        cls, *, view: bool = False, topic_dictionary: bool = True, flatten: Flatten = False
    ) -> Form:
        """Return the form for the arguments of ``to_arrow`` and the like.

        Raises
        ------
        ConfigurationError
            ``flatten`` is none of its three values.
        """
        if not isinstance(flatten, bool) and flatten != "all":
            raise ConfigurationError(
                f'flatten is False, True or "all", not {flatten!r}', hint="flatten=True"
            )
        requests: dict[str, Request] = {"key": "v", "value": "v"} if view else {}
        return cls(requests if topic_dictionary else requests | {"topic": "u"}, flatten=flatten)

    @property
    def topic_format(self) -> str | None:
        """The format of plain strings, ``u`` or ``U``, if these are requested for ``topic``."""
        requested = self.requests.get("topic")
        return _TOPIC_FORMATS.get(requested) if isinstance(requested, str) else None


@dataclass(frozen=True, slots=True)
class _Plan:
    """The columns, formats and topics that the batches of one export have in common."""

    columns: list[str]
    requests: Mapping[str, Request]
    codes: Mapping[str, int]
    topics: ArrowColumn
    topic_format: str | None
    flatten: Flatten = False

    @classmethod
    def of(
        cls, chunks: Sequence[PartitionRows], form: Form, topics: Sequence[str] | None = None
    ) -> _Plan:
        """Return the plan for some chunks; ``topics`` are those that there may be, if others."""
        selected = common_columns([chunk.rows for chunk in chunks])
        names: Iterable[str] = COLUMN_NAMES
        columns = [name for name in names if name in selected and name not in form.without]
        if topics is None:
            topics = list(dict.fromkeys([chunk.topic for chunk in chunks]))
        return cls(
            columns,
            {**form.requests, **_object_plans(chunks, columns)},
            {topic: code for code, topic in enumerate(topics)},
            dictionary_of(topics),
            form.topic_format,
            form.flatten,
        )


def _topic(chunk: PartitionRows, plan: _Plan) -> ArrowColumn:
    count = len(chunk.rows)
    if plan.topic_format is not None:
        return constant_column("topic", chunk.topic, count, plan.topic_format)
    # Rows of no topic are those of a template: there are none.
    return coded_column("topic", plan.topics, plan.codes.get(chunk.topic, 0), count)


_MAKERS: Final[dict[str, Callable[[PartitionRows], ArrowColumn]]] = {
    "partition": lambda chunk: integer_column(
        "partition", np.full(len(chunk.rows), chunk.partition, np.int32)
    ),
    "offset": lambda chunk: integer_column("offset", chunk.rows.offsets),
    "timestamp": lambda chunk: timestamp_column(
        "timestamp", chunk.rows.timestamps, chunk.rows.has_no_timestamp
    ),
    "timestamp_type": lambda chunk: integer_column("timestamp_type", chunk.rows.type_array),
}


def record_batch(chunk: PartitionRows, form: Form) -> ArrowColumn:
    """Return rows as one struct column, Arrow's form of a record batch."""
    return _batch(chunk, _Plan.of([chunk], form))


def record_stream(
    chunks: Sequence[PartitionRows], form: Form, failures: list[KafkaError] | None = None
) -> Capsule:
    """Return an ``arrow_array_stream`` over at least one chunk.

    An error while the stream is read ends it. Its reader knows the text only, so ``failures`` gets
    the error itself.

    Raises
    ------
    IllegalStateError
        The chunks have different columns.
    DeserializationError
        The columns of a chunk are of another kind than those of the first.
    """
    plan = _Plan.of(chunks, form)
    schema = _schema(chunks[0], plan)
    kinds = _kinds(chunks[0])
    for chunk in chunks:
        if _kinds(chunk) != kinds and len(chunk.rows):
            _check_schema(chunk, _schema(chunk, plan), schema)
    arrays = _arrays(chunks, plan, schema)
    if failures is not None:
        arrays = _noted(arrays, failures)
    return arrow_export.stream_capsule(schema, arrays)


def _kinds(chunk: PartitionRows) -> tuple[object, ...]:
    """Return dtypes or classes of keys and values: cheap, and most Arrow types differ in them."""
    columns = (chunk.rows.keys, chunk.rows.values)
    return tuple(
        column.dtype if isinstance(column, np.ndarray) else type(column) for column in columns
    )


def _noted(arrays: Iterator[object], failures: list[KafkaError]) -> Iterator[object]:
    try:
        yield from arrays
    except KafkaError as error:
        failures.append(error)
        raise


def grouped_stream(
    groups: Iterator[Sequence[PartitionRows]],
    first: Sequence[PartitionRows],
    topics: Sequence[str],
    form: Form,
) -> Capsule:
    """Return an ``arrow_array_stream`` of groups that are made while it is read, a batch for each.

    Columns and their types are those of ``first``, which has at least one chunk; topics are among
    ``topics``.
    """
    plan = _Plan.of(first, form, topics)
    schema = _schema(first[0], plan)
    return arrow_export.stream_capsule(schema, _grouped(groups, plan, schema))


def record_schema(chunk: PartitionRows) -> Capsule:
    """Return the ``arrow_schema`` of some rows, without gathering their values."""
    return arrow_export.schema_capsule(_schema(chunk, _Plan.of([chunk], Form())))


def _batch(chunk: PartitionRows, plan: _Plan, sources: Sequence[PartitionRows] = ()) -> ArrowColumn:
    """Return the rows of a chunk, or of several ``sources`` whose rows it has."""
    rows = chunk.rows
    counts = [len(source.rows) for source in sources]
    children = []
    for name in plan.columns:
        if name == "topic" and sources:
            codes = np.array([plan.codes[source.topic] for source in sources], np.int32)
            children.append(coded_column(name, plan.topics, np.repeat(codes, counts), len(rows)))
        elif name == "partition" and sources:
            numbers = np.array([source.partition for source in sources], np.int32)
            children.append(integer_column(name, np.repeat(numbers, counts)))
        elif name == "topic":
            children.append(_topic(chunk, plan))
        elif name in _MAKERS:
            children.append(_MAKERS[name](chunk))
        elif name == "headers":
            if rows.headers is not None:
                children.append(rows.headers.arrow_column(name))
        else:
            column = rows.keys if name == "key" else rows.values
            if column is None:
                continue
            if plan.flatten and _is_struct(column):
                taken = _taken_names(rows, plan) | {child.schema.name for child in children}
                nested = plan.flatten == "all"
                if isinstance(column, np.ndarray):
                    children += flattened_columns(name, column, taken, nested=nested)
                    continue
                form = partial(_requested, plan, name)
                struct = cast("StructColumn", column)
                children += struct.flattened_columns(name, taken, form, nested=nested)
            else:
                children.append(values_column(name, column, plan.requests.get(name)))
    return struct_column("", children, len(rows))


def _requested(plan: _Plan, column: str, member: str) -> Request:
    return plan.requests.get(member, plan.requests.get(column))


def _is_struct(column: object) -> bool:
    if isinstance(column, np.ndarray):
        return column.dtype.names is not None
    return hasattr(column, "flattened_columns")  # without loading the class for plain columns


def _taken_names(rows: RowColumns, plan: _Plan) -> set[str]:
    """Return the names of the columns that are not flattened."""
    flattened = {
        name for name, column in (("key", rows.keys), ("value", rows.values)) if _is_struct(column)
    }
    return set(plan.columns) - flattened


def _schema(chunk: PartitionRows, plan: _Plan) -> SchemaNode:
    empty = PartitionRows(chunk.topic, chunk.partition, chunk.rows.select(slice(0, 0)))
    return _batch(empty, plan).schema


def _arrays(chunks: Sequence[PartitionRows], plan: _Plan, schema: SchemaNode) -> Iterator[object]:
    for chunk in chunks:
        topic_bytes = 0
        if plan.topic_format == "u" and "topic" in plan.columns:
            topic_bytes = len(chunk.topic.encode())
        for start, stop in row_ranges(chunk.rows, BATCH_BYTES, topic_bytes):
            rows = (
                chunk.rows
                if stop - start == len(chunk.rows)
                else chunk.rows.select(slice(start, stop))
            )
            piece = PartitionRows(chunk.topic, chunk.partition, rows)
            batch = _batch(piece, plan)
            _check_schema(piece, batch.schema, schema)
            yield batch.array


def _grouped(
    groups: Iterator[Sequence[PartitionRows]], plan: _Plan, schema: SchemaNode
) -> Iterator[object]:
    for chunks in groups:
        if len(chunks) == 1 or plan.topic_format or _nbytes(chunks) > GROUP_BYTES:
            yield from _arrays(chunks, plan, schema)
        else:
            piece = PartitionRows(
                chunks[0].topic, chunks[0].partition, concat_rows([p.rows for p in chunks])
            )
            batch = _batch(piece, plan, chunks)
            _check_schema(piece, batch.schema, schema)
            yield batch.array


def _nbytes(chunks: Sequence[PartitionRows]) -> int:
    return sum(chunk.rows.nbytes for chunk in chunks)


def _check_schema(piece: PartitionRows, chunk_schema: SchemaNode, schema: SchemaNode) -> None:
    """Raise if a piece differs from its stream's schema, by which its buffers would be read."""
    for own, expected in zip_longest(chunk_schema.children, schema.children):
        if own != expected:
            first = int(piece.rows.offsets[0])
            name = (own or expected).name
            raise DeserializationError(
                f'{piece.topic}-{piece.partition} offset {first}: column "{name}" has another '
                "Arrow type from here on than in the records before",
                found=f"{_arrow_type(own)} after {_arrow_type(expected)}",
                hint="make the deserializer return columns of one type",
                topic=piece.topic,
                partition=piece.partition,
                offset=first,
                column=name,
            )


def _arrow_type(node: SchemaNode | None) -> str:
    """Name a type by Arrow's format string, of fields too; None for a column that is not there."""
    if node is None:
        return "no column"
    fields = ", ".join(f"{child.name}: {_arrow_type(child)}" for child in node.children)
    return f'"{node.format}"' + (f" of {fields}" if fields else "")


def row_ranges(rows: RowColumns, max_bytes: int, topic_bytes: int = 0) -> Iterator[tuple[int, int]]:
    """Cut rows so that no column of a piece exceeds ``max_bytes``; a larger row is a piece.

    ``topic_bytes`` is what each row takes for its topic.
    """
    count = len(rows)
    most = max_bytes // topic_bytes if topic_bytes else count
    sizes = []
    for column in (rows.keys, rows.values):
        if isinstance(column, BytesColumn | StringColumn):
            if column.nbytes > max_bytes:
                sizes.append(np.maximum(column.lengths, 0))
        elif not isinstance(column, np.ndarray):
            continue
        elif is_object_array(column):
            objects = object_sizes(column)
            if objects.sum() > max_bytes:
                sizes.append(objects)
        elif column.nbytes > max_bytes:  # text of a fixed width becomes Arrow's text
            most = min(most, max_bytes // (column.nbytes // count))
    if rows.headers is not None and rows.headers.nbytes > max_bytes:
        sizes.append(rows.headers.spans[2])
    ends = [np.concatenate(([0], np.cumsum(size, dtype=np.int64))) for size in sizes]
    start = 0
    while start < count:
        stops = [
            int(np.searchsorted(end, end[start] + max_bytes, side="right")) - 1 for end in ends
        ]
        stop = max(start + 1, min(count, start + most, *stops))
        yield start, stop
        start = stop


def _object_plans(chunks: Sequence[PartitionRows], names: Collection[str]) -> dict[str, Request]:
    """Choose one Arrow type for each column of Python objects, over all chunks."""
    plans: dict[str, Request] = {}
    for name, columns in (
        ("key", [chunk.rows.keys for chunk in chunks]),
        ("value", [chunk.rows.values for chunk in chunks]),
    ):
        arrays = [column for column in columns if isinstance(column, np.ndarray)]
        if name in names and arrays and is_object_array(arrays[0]):
            plans[name] = plan_objects(name, arrays)
    return plans
