"""Arrow streams whose batches are compressed on several threads."""

from __future__ import annotations

import io
import threading
from typing import Any

import pyarrow as pa
import pytest

from kfast.cli.binary import ArrowStream
from kfast.cli.output import OutputError

KIND = pa.dictionary(pa.int32(), pa.string())
SCHEMA = pa.schema([("topic", KIND), ("value", pa.binary())])
OPTIONS = pa.ipc.IpcWriteOptions(compression="zstd")


def table_of(names: list[str], *batches: list[tuple[int, bytes]]) -> pa.Table:
    """Return a table of topics, which are numbers in ``names``, and values."""
    return pa.Table.from_batches(
        [
            pa.record_batch(
                [
                    pa.DictionaryArray.from_arrays(
                        pa.array([number for number, _ in rows], pa.int32()), pa.array(names)
                    ),
                    pa.array([value for _, value in rows], pa.binary()),
                ],
                schema=SCHEMA,
            )
            for rows in batches
        ]
    )


def test_batches_come_in_order_with_the_dictionary_of_their_time() -> None:
    """CL-240: a topic that comes later is in the dictionary from then on."""
    output: Any = io.BytesIO()
    first = table_of(["a"], *([(0, b"%d" % n * 10_000)] for n in range(40)))
    second = table_of(["a", "b"], [(1, b"x")], [(0, b"y"), (1, b"z")])
    with ArrowStream(pa, output, SCHEMA, OPTIONS) as stream:
        for table in (first, second, second):
            stream.write_table(table)
    found = pa.ipc.open_stream(output.getvalue()).read_all()
    found.validate(full=True)
    expected = [row for table in (first, second, second) for row in table.to_pylist()]
    assert found.to_pylist() == expected
    assert len(output.getvalue()) < first.nbytes / 4


def test_a_stream_without_batches_has_its_schema() -> None:
    output: Any = io.BytesIO()
    with ArrowStream(pa, output, SCHEMA, OPTIONS):
        pass
    found = pa.ipc.open_stream(output.getvalue()).read_all()
    assert (found.schema, found.num_rows) == (SCHEMA, 0)


class _Full(io.BytesIO):
    def write(self, data: Any) -> int:
        if self.tell() > 1_000:
            raise OutputError("cannot write x: No space left on device")
        return super().write(data)


def test_output_that_fails_ends_the_threads() -> None:
    output: Any = _Full()
    before = threading.active_count()
    table = table_of(["a"], *([(0, bytes(range(256)) * 400)] for _ in range(400)))
    with (
        pytest.raises(OutputError, match="No space left"),
        ArrowStream(pa, output, SCHEMA, OPTIONS) as stream,
    ):
        stream.write_table(table)
    assert threading.active_count() == before


def test_each_batch_has_its_own_dictionaries() -> None:
    """CL-240: also those inside of structs, which another batch may have written differently."""
    first, second = pa.array(["a", "b"]), pa.array(["c", "d"])
    inner = pa.struct([("kind", KIND)])

    def batch(names: pa.Array) -> pa.RecordBatch:
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), names)
        nested = pa.StructArray.from_arrays([column], fields=[pa.field("kind", KIND)])
        return pa.record_batch([column, nested], names=["kind", "value"])

    for columns in (["kind"], ["value"], ["kind", "value"]):
        output: Any = io.BytesIO()
        table = pa.Table.from_batches(
            [batch(names).select(columns) for names in (first, second, second, first)]
        )
        with ArrowStream(pa, output, table.schema, OPTIONS) as stream:
            stream.write_table(table)
        found = pa.ipc.open_stream(output.getvalue())
        assert [row for each in found for row in each.to_pylist()] == table.to_pylist()
    assert inner == table.schema.field("value").type
