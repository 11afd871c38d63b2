"""Batches with typed columns: deserialized later, flattened, joined, as rows and as tables."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kfast.columns.typed import StructColumn
from kfast.deserializers import Int64, Struct, Utf8
from kfast.errors import ConfigurationError, DeserializationError, IllegalStateError
from kfast.records import ConsumerRecords, PartitionRecords, build_partition_records
from tests.unit.deserializers.sample_format import Lines
from tests.unit.records.sample_index import Sample, sample_index

VALUES = [b"1 a", None, b"? b", b"4 d"]
ROWS = [{"id": {"n": 1}, "text": "a"}, None, None, {"id": {"n": 4}, "text": "d"}]


def raw(**options: Any) -> PartitionRecords:
    samples = [Sample(value, b"k%d" % i) for i, value in enumerate(VALUES)]
    return build_partition_records("t", 5, sample_index(samples), **options).records


def test_a_raw_batch_is_deserialized_later() -> None:
    """TC-50: decode() of a batch gives what a consumer with that deserializer gives."""
    made = raw().decode(values=Lines(), on_error="null")
    assert isinstance(made.values, StructColumn)
    assert made.values.to_list() == ROWS
    consumed = raw(value_deserializer=Lines(), on_error="null")
    assert list(made) == list(consumed)
    assert made.errors == consumed.errors
    assert made.next_offset == 104
    assert made.errors[0].message.startswith("t-5 offset 102: value.id.n is a word")
    skipped = raw().decode(values=Lines(), keys=Utf8(), on_error="skip")
    assert skipped.offsets.tolist() == [100, 101, 103]
    assert skipped.keys.to_list() == ["k0", "k1", "k3"]
    assert skipped.next_offset == 104
    assert [len(skipped[[row]].errors) for row in range(3)] == [0, 0, 1]


def test_errors_of_both_columns_are_joined_in_the_order_of_rows() -> None:
    keys_first = raw(key_deserializer=Int64(), on_error="null")
    made = keys_first.decode(values=Lines(), on_error="null")
    assert [(e.offset, e.column) for e in made.errors] == [
        (100, "key"),
        (101, "key"),
        (102, "key"),
        (102, "value"),
        (103, "key"),
    ]
    assert [len(made[[row]].errors) for row in range(4)] == [1, 1, 2, 1]
    assert keys_first.errors.column == ["key"] * 4


def test_the_first_bad_value_is_raised_and_the_batch_stays() -> None:
    records = raw()
    with pytest.raises(DeserializationError) as caught:
        records.decode(values=Lines())
    assert (caught.value.offset, caught.value.key_bytes) == (102, b"k2")
    assert records.values.to_list() == VALUES


def test_columns_that_are_not_raw_are_refused() -> None:
    with pytest.raises(IllegalStateError, match="deserialized already"):
        raw(value_deserializer=Lines(), on_error="null").decode(values=Lines())
    with pytest.raises(IllegalStateError, match="not selected"):
        raw(columns=["key"]).decode(values=Lines())
    with pytest.raises(ConfigurationError, match="on_error"):
        raw().decode(values=Lines(), on_error="drop")  # type: ignore[arg-type]


def test_rows_are_objects_with_dicts() -> None:
    records = raw(value_deserializer=Lines(), on_error="null")
    assert [record.value for record in records] == ROWS
    assert records[3].value == ROWS[3]
    assert records[1].value is None
    assert records.to_numpy()["value"].tolist() == ROWS


# ------------------------------------------------------------------------------------------ flatten


def typed(**options: Any) -> PartitionRecords:
    return raw(value_deserializer=Lines(), on_error="null", **options)


def test_members_become_columns() -> None:
    """TC-51: flatten puts the members of struct keys and values at the top, null where it is."""
    batch = typed().to_arrow(flatten=True)
    batch.validate(full=True)
    names = ["topic", "partition", "offset", "timestamp", "timestamp_type", "key", "id", "text"]
    assert batch.schema.names == [*names, "headers"]
    assert batch.column("text").to_pylist() == ["a", None, None, "d"]
    assert batch.schema.field("text").nullable
    assert batch.column("id").to_pylist() == [{"n": 1}, None, None, {"n": 4}]
    deep = typed().to_arrow(flatten="all")
    assert deep.schema.names == [*names[:6], "id.n", "text", "headers"]
    assert deep.column("id.n").to_pylist() == [1, None, None, 4]
    assert typed().to_arrow().schema.field("value").type.names == ["id", "text"]


def test_a_name_that_is_taken_gets_the_columns_name() -> None:
    key = [Sample(b"1 a", b"2 b")]
    records = build_partition_records(
        "t", 0, sample_index(key), key_deserializer=Lines(), value_deserializer=Lines()
    ).records
    batch = records.to_arrow(flatten=True)
    assert batch.schema.names[5:9] == ["id", "text", "value.id", "value.text"]
    assert batch.column("value.text").to_pylist() == ["a"]


def test_fields_of_structures_become_columns() -> None:
    """TC-51: those of the deserializer Struct, too."""
    inner = np.dtype([("x", "<f8"), ("y", "<f8")])
    dtype = np.dtype([("n", ">i4"), ("offset", "u1"), ("at", inner), ("pair", ">i2", (2,))])
    value = np.array([(1, 2, (3.0, 4.0), (5, 6))], dtype).tobytes()
    records = build_partition_records(
        "t", 0, sample_index([value, None]), value_deserializer=Struct(dtype)
    ).records
    batch = records.to_arrow(flatten=True)
    batch.validate(full=True)
    assert batch.schema.names[5:] == ["key", "n", "value.offset", "at", "pair", "headers"]
    assert batch.column("n").to_pylist() == [1, None]
    assert batch.column("value.offset").to_pylist() == [2, None]
    assert batch.column("at").to_pylist() == [{"x": 3.0, "y": 4.0}, None]
    assert batch.column("pair").to_pylist() == [[5, 6], None]
    deep = ConsumerRecords([records, records]).to_arrow(flatten="all")
    assert deep.schema.names[6:10] == ["n", "value.offset", "at.x", "at.y"]
    assert deep.column("at.y").to_pylist() == [4.0, None] * 2
    assert records.to_pandas(flatten=True)["n"].tolist()[0] == 1
    assert records.to_polars(flatten="all")["at.x"].to_list() == [3.0, None]
    assert records[:0].to_arrow(flatten="all").schema == deep.schema


def test_flattened_tables_of_several_batches_and_without_records() -> None:
    records = ConsumerRecords([typed()[:2], typed()[2:]])
    table = records.to_arrow(flatten=True)
    table.validate(full=True)
    assert table.column("text").to_pylist() == ["a", None, None, "d"]
    empty = ConsumerRecords([], template=typed()[:0]).to_arrow(flatten="all")
    assert empty.schema == records.to_arrow(flatten="all").schema
    views = typed().to_arrow(view=True, flatten=True)
    assert views.schema.field("text").type == pa.string_view()


def test_flattened_data_frames() -> None:
    frame = typed().to_pandas(flatten="all")
    assert list(frame.columns) == [*list(typed().to_arrow(flatten="all").schema.names)]
    assert str(frame["id.n"].dtype) == "Int64"
    assert frame["id.n"].isna().tolist() == [False, True, True, False]
    uuids = ConsumerRecords([typed()]).to_pandas(flatten=True)
    assert isinstance(uuids, pd.DataFrame)
    polars = typed().to_polars(flatten="all")
    assert isinstance(polars, pl.DataFrame)
    assert polars["id.n"].to_list() == [1, None, None, 4]
    assert ConsumerRecords([typed()]).to_polars(flatten=True)["text"].to_list()[0] == "a"


def test_flatten_has_three_values_and_leaves_other_columns_as_they_are() -> None:
    with pytest.raises(ConfigurationError, match="flatten"):
        typed().to_arrow(flatten="deep")  # type: ignore[arg-type]
    assert raw().to_arrow(flatten=True).schema == raw().to_arrow().schema


# -------------------------------------------------------------------------------------- the others


def test_typed_batches_join_pickle_and_are_compact() -> None:
    records = typed()
    joined = PartitionRecords.concat([records[:2], records[2:]])
    for each in (joined, records.compact(), pickle.loads(pickle.dumps(records))):
        assert list(each) == list(records)
        assert each.errors == records.errors
        assert each.to_arrow().equals(records.to_arrow())
    assert "text" in repr(records)


def test_streams_have_the_types_of_the_schema() -> None:
    stream = pa.RecordBatchReader.from_stream(ConsumerRecords([typed(), typed()]))
    assert stream.read_all().num_rows == 8
    assert pl.DataFrame(typed()).shape[0] == 4
