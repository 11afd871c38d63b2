"""PartitionRecords: columns, rows, selection, memory and exports."""

from __future__ import annotations

import gc
import timeit
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from kfast._native import columns as native_columns
from kfast._native.buffers import live_bytes
from kfast.deserializers import Float32, Int64, Struct, Utf8, Uuid
from kfast.errors import ConfigurationError, IllegalStateError, MissingDependencyError
from kfast.records import (
    COLUMN_NAMES,
    BytesColumn,
    ConsumerRecord,
    HeadersColumn,
    PartitionRecords,
    build_partition_records,
    empty_partition_records,
)
from kfast.types import TopicPartition
from tests.unit.records.sample_index import Sample, sample_index
from tests.unit.records.sample_records import HEADERS, SAMPLES, VALUES, build


def test_what_it_says_about_itself() -> None:
    """B-09: a batch carries topic, partition, first and next offset and its size."""
    records = build(offsets=[10, 12, 15, 16], next_offset=30)
    assert (records.topic, records.partition) == ("orders", 3)
    assert records.topic_partition == TopicPartition("orders", 3)
    assert (records.high_watermark, records.leader_epoch) == (500, 7)
    assert records.log_start_offset == -1
    assert records.next_offset == 30
    assert len(records) == 4
    assert records.nbytes == 5 + 300 + 4 + 4 * (8 + 8 + 4 + 4)
    assert str(records) == "<PartitionRecords orders-3 n=4 offsets 10..16 next_offset=30>"
    assert str(build([])) == "<PartitionRecords orders-3 n=0 next_offset=100>"


def test_columns() -> None:
    """D-02: raw keys, values and headers with null and empty distinguished."""
    records = build(offsets=[10, 12, 15, 16])
    assert records.offsets.tolist() == [10, 12, 15, 16]
    assert records.timestamps.tolist() == [1_000, 1_005, -1, 2_000]
    assert records.timestamp_types.tolist() == [0, 0, 0, 0]
    assert isinstance(records.keys, BytesColumn)
    assert records.keys.to_list() == [b"k0", b"", None, b"k3"]
    assert isinstance(records.values, BytesColumn)
    assert records.values.to_list() == VALUES
    assert isinstance(records.headers, HeadersColumn)
    assert records.headers.to_list() == HEADERS
    assert records.columns == frozenset(COLUMN_NAMES)


def test_datetimes() -> None:
    times = build().datetimes
    assert times.dtype == "M8[ms]"
    assert np.isnat(times).tolist() == [False, False, True, False]
    assert times[3] == np.datetime64(2_000, "ms")
    records = build([b"a", b"b"])
    assert records.datetimes.ctypes.data == records.timestamps.ctypes.data


def test_timestamp_types_of_each_row() -> None:
    """D-12: one batch may follow another with append time."""
    records = build(timestamp_types=[0, 1, 1, 0])
    assert records.timestamp_types.tolist() == [0, 1, 1, 0]
    assert records[1:3].timestamp_types.tolist() == [1, 1]
    assert [record.timestamp_type for record in records] == [0, 1, 1, 0]
    assert build(timestamp_types=1).timestamp_types.tolist() == [1, 1, 1, 1]


def test_records_as_objects() -> None:
    """D-24: the fields of kafka-python's ConsumerRecord, with its values."""
    records = build()
    rows = list(records)
    assert rows[0] == ConsumerRecord(
        topic="orders",
        partition=3,
        leader_epoch=7,
        offset=100,
        timestamp=1_000,
        timestamp_type=0,
        key=b"k0",
        value=b"first",
        headers=[("h", b"x"), ("h", None)],
        checksum=None,
        serialized_key_size=2,
        serialized_value_size=5,
        serialized_header_size=3,
    )
    assert rows[1].value is None
    assert (rows[1].serialized_key_size, rows[1].serialized_value_size) == (0, -1)
    assert (rows[1].headers, rows[1].serialized_header_size) == ([], -1)
    assert [records[i] for i in range(-4, 4)] == rows * 2
    assert list(reversed(records)) == rows[::-1]
    assert rows[2] in records
    assert records.index(rows[2]) == 2
    assert records.count(rows[2]) == 1
    assert type(rows[0].offset) is type(rows[0].timestamp) is int
    for row in (4, -5):
        with pytest.raises(IndexError):
            records[row]


@pytest.mark.parametrize(
    ("deserializer", "value"),
    [
        (None, b"x"),
        (Utf8(), "ä".encode()),
        (Int64(), b"\0" * 7 + b"\5"),
        (Uuid(), bytes(range(16))),
        (Struct([("a", ">i4"), ("b", "2f4")]), bytes(12)),
        (list, b"abc"),
    ],
)
@pytest.mark.parametrize("nulls", [True, False])
def test_one_record_is_that_of_the_iteration(deserializer: Any, value: bytes, nulls: bool) -> None:
    """B-23: by index and by iteration, of every kind of column, also of a part of the columns."""
    samples = [
        Sample(value, value, [("h", b"x"), ("n\xc3".encode("latin-1"), None)]),
        Sample(None if nulls else value, None),
    ]
    for names in (None, ["value"], ["key", "headers"], []):
        records = build(
            samples * 2,
            key_deserializer=deserializer,
            value_deserializer=deserializer,
            columns=names,
            timestamp_types=[0, 1, 0, 1],
        )
        for batch in (records, records.compact(), records[::-1]):
            rows = [batch[row] for row in range(len(batch))]
            assert [str(row) for row in rows] == [str(row) for row in batch]
            for one, other in zip(rows, batch, strict=True):
                assert list(map(type, one)) == list(map(type, other))


def test_one_record_costs_a_few_indexings() -> None:
    """B-23: it is not made by selecting rows of every column."""
    records = build([b"x" * 100] * 10_000)
    offsets = records.offsets

    def least_time(given: Any) -> float:
        def take() -> None:
            for row in range(500):
                given[row]

        return min(timeit.repeat(take, number=1, repeat=20))

    assert least_time(records) < 150 * least_time(offsets)


def test_fields_are_those_of_kafka_python() -> None:
    """D-24: a program that unpacks records goes on working."""
    theirs = pytest.importorskip("kafka.consumer.fetcher").ConsumerRecord
    assert ConsumerRecord._fields == theirs._fields


def test_an_unknown_leader_epoch_is_none() -> None:
    index = sample_index([b"a"], leader_epoch=-1)
    assert build_partition_records("t", 0, index).records[0].leader_epoch is None


def test_objects_of_many_rows_come_in_order() -> None:
    records = build([b"%d" % i for i in range(10_000)], base_offset=0)
    assert [record.value for record in records] == [b"%d" % i for i in range(10_000)]


def test_objects_of_deserialized_columns() -> None:
    raw = np.array([(1, 2.5)], [("a", ">i4"), ("b", "<f8")])
    row = build([raw.tobytes(), None], value_deserializer=Struct(raw.dtype))[0]
    assert row.value["a"] == 1
    assert row.serialized_value_size == 12
    number = build([bytes([0] * 7 + [5]), None], value_deserializer=Int64())
    assert [record.value for record in number] == [5, None]
    assert type(number[0].value) is int


# --- copies ---------------------------------------------------------------------------------------


def test_compact_lets_the_frame_go() -> None:
    """B-07: a small piece does not hold the received frame once it is compact."""
    index = sample_index([*SAMPLES, b"y" * 100_000])
    frame = index.data
    records = build_partition_records("orders", 3, index).records.select([0, 2])
    small = records.compact()
    assert isinstance(records.values, BytesColumn)
    assert isinstance(small.values, BytesColumn)
    assert isinstance(small.keys, BytesColumn)
    assert small.values.data.size == len(b"k0" + b"first" + b"\2h\2x\2h\1" + b"\2n\0")
    assert small.keys.data.ctypes.data == small.values.data.ctypes.data
    assert [list(row) for row in small] == [list(row) for row in records]
    assert small.next_offset == records.next_offset
    address = small.values.data.ctypes.data
    assert not frame.address <= address < frame.address + len(frame)


def test_compact_of_deserialized_columns() -> None:
    samples = [Sample(bytes(8), b"a"), Sample(b"\0" * 7 + b"\1", "ä".encode()), Sample(None, None)]
    records = build(samples, key_deserializer=Utf8(), value_deserializer=Int64())
    small = records.select([1, 2]).compact()
    assert [(row.key, row.value) for row in small] == [("ä", 1), (None, None)]
    assert build([]).compact().next_offset == 100
    with_uuids = build([bytes(16), None], value_deserializer=Uuid()).compact()
    assert [row.value is None for row in with_uuids] == [False, True]


def test_fixed_width_values_can_be_viewed_after_compact() -> None:
    values = build([b"abcd", b"efgh"]).compact().values
    assert isinstance(values, BytesColumn)
    assert values.view("S4").ctypes.data == values.data.ctypes.data


def test_concat() -> None:
    first = build(base_offset=0)
    second = build(base_offset=10, timestamp_types=1, next_offset=99)
    joined = PartitionRecords.concat([first, second])
    assert list(joined) == list(first) + list(second)
    assert joined.next_offset == 99
    assert joined.to_arrow().equals(pa.concat_batches([first.to_arrow(), second.to_arrow()]))
    assert PartitionRecords.concat([first]) is first
    other = build_partition_records("orders", 4, sample_index([b"x"])).records
    for wrong in ([first, other], []):
        with pytest.raises(ValueError, match="one partition"):
            PartitionRecords.concat(wrong)


@pytest.mark.parametrize(
    ("deserializer", "good"),
    [
        (Utf8(), b"text"),
        (Int64(), bytes(8)),
        (Uuid(), bytes(16)),
        (Struct([("a", "i4")]), bytes(4)),
        (len, b"abc"),
    ],
)
@pytest.mark.parametrize("nulls", [True, False])
def test_concat_of_deserialized_columns(deserializer: Any, good: bytes, nulls: bool) -> None:
    parts = [
        build([good, good], value_deserializer=deserializer),
        build([good, None if nulls else good], value_deserializer=deserializer, base_offset=102),
    ]
    joined = PartitionRecords.concat(parts)
    assert [str(row) for row in joined] == [str(row) for part in parts for row in part]
    assert joined.deserialization_errors == 0


def test_select_keeps_masks() -> None:
    records = build([None, bytes(4)], value_deserializer=Float32())
    values = records.select([1, 0]).values
    assert isinstance(values, np.ma.MaskedArray)
    assert values.tolist() == [0.0, None]


# --- column choice --------------------------------------------------------------------------------


def test_unasked_columns() -> None:
    records = build(columns=["offset", "value"])
    assert records.to_arrow().schema.names == ["offset", "value"]
    assert records.to_numpy().dtype.names == ("offset", "value")
    assert list(records.to_pandas().columns) == ["offset", "value"]
    assert records.to_polars().columns == ["offset", "value"]
    for name in ("keys", "headers"):
        with pytest.raises(IllegalStateError, match=r"orders-3 was not selected\ntry: add"):
            getattr(records, name)
    row = records[0]
    assert (row.key, row.serialized_key_size, row.headers) == (None, -1, [])
    assert row.value == b"first"
    assert records.timestamps.tolist() == [1_000, 1_005, -1, 2_000]
    assert len(records.select([0, 1]).compact()) == 2
    assert len(PartitionRecords.concat([records, records])) == 8
    assert build(columns=["key"]).to_arrow().schema.names == ["key"]
    assert build(columns=[]).to_arrow().num_rows == 4


def test_unknown_columns() -> None:
    """E-01: the nearest name is suggested."""
    with pytest.raises(ConfigurationError) as caught:
        build(columns=["vaule"])
    assert 'unknown column "vaule"' in str(caught.value)
    assert 'did you mean "value"?' in str(caught.value)
    with pytest.raises(ConfigurationError, match="choose from these"):
        build(columns=["xyzzy"])


# --- memory ---------------------------------------------------------------------------------------


def test_everything_is_read_only() -> None:
    """D-25: nothing that a batch gives out can be written to."""
    records = build()
    chosen = records.select([0, 1, 3])
    for batch in (records, chosen, records.compact(), PartitionRecords.concat([records, chosen])):
        assert isinstance(batch.values, BytesColumn)
        arrays: list[Any] = [
            batch.offsets,
            batch.timestamps,
            batch.datetimes,
            batch.timestamp_types,
            batch.values.data,
            batch.values.lengths,
            batch.headers.counts,
            batch.headers.serialized_sizes,
            batch.to_numpy(),
        ]
        for array in arrays:
            with pytest.raises(ValueError, match="read-only"):
                array[0] = array[1]


@pytest.mark.parametrize(
    ("deserializer", "value"),
    [(None, b"12345678"), (Int64(), bytes(8)), (Utf8(), b"1"), (Struct([("n", ">i8")]), bytes(8))],
)
def test_no_array_can_be_made_writeable(deserializer: Any, value: bytes) -> None:
    """B-13, D-25: an array that a selection or a join has made is as read-only as the others."""
    whole = build([value, value, None], value_deserializer=deserializer)
    for batch in (
        whole,
        whole[[1, 0]],
        whole[::2],
        whole[np.array([True, False, True])],
        whole.compact(),
        PartitionRecords.concat([whole, whole]),
    ):
        arrays: dict[str, Any] = {}
        for owner in (batch, batch.keys, batch.values, batch.headers):
            for name in ("offsets", "timestamps", "timestamp_types", "datetimes", "counts"):
                arrays[f"{owner}.{name}"] = getattr(owner, name, None)
            for name in ("data", "starts", "lengths", "is_null", "serialized_sizes"):
                arrays[f"{owner}.{name}"] = getattr(owner, name, None)
        if isinstance(batch.values, np.ndarray):
            arrays["values"] = np.ma.getdata(batch.values)
            arrays["mask"] = np.ma.getmaskarray(batch.values)
        for name, array in arrays.items():
            if isinstance(array, np.ndarray) and not isinstance(array, np.ma.MaskedArray):
                assert not array.flags.writeable, name
                with pytest.raises(ValueError, match="WRITEABLE"):
                    array.flags.writeable = True
        if isinstance(batch.values, np.ma.MaskedArray):
            before, mask = batch.values.tolist(), np.ma.getmaskarray(batch.values)
            with pytest.raises(ValueError, match="read-only"):
                batch.values[0] = np.ma.masked
            with pytest.raises(ValueError, match="read-only"):
                mask[0] = mask[1]
            assert batch.values.tolist() == before


def test_compact_column_lets_the_index_go() -> None:
    """B-13: one value that is kept does not hold the index of its batch."""
    count = 20_000
    records = build([Sample(b"%d" % i, b"k", [("h", b"")]) for i in range(count)])
    before = live_bytes()
    kept = [records.values[7:8].compact(), records.headers[7:8].compact(), records[7:8].compact()]
    del records
    gc.collect()
    assert before - live_bytes() > count * (8 + 8 + 6 * 4)
    assert kept[0].to_list() == [b"7"]
    assert kept[0].offsets.tolist() == [107]
    assert kept[1].to_list() == [[("h", b"")]]


def test_arrays_outlive_the_records() -> None:
    """D-25: arrays, columns and Arrow batches stay valid after everything else is gone."""
    records = build()
    kept: list[Any] = [
        records.offsets,
        records.timestamps,
        records.values,
        records.headers,
        records.to_arrow(view=True),
        records.offsets.data,
    ]
    del records
    gc.collect()
    junk = [build([b"\xee" * 300] * 4, base_offset=9) for _ in range(50)]
    assert kept[0].tolist() == [100, 101, 102, 103]
    assert kept[1].tolist() == [1_000, 1_005, -1, 2_000]
    assert kept[2].to_list() == VALUES
    assert kept[3].to_list() == HEADERS
    assert kept[4].column("value").to_pylist() == VALUES
    assert kept[5].tolist() == [100, 101, 102, 103]
    assert kept[5].readonly
    assert len(junk) == 50


# --- exports --------------------------------------------------------------------------------------


def test_arrow_schema_and_rows() -> None:
    batch = build(offsets=[10, 12, 15, 16]).to_arrow()
    batch.validate(full=True)
    pair = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
    assert batch.schema == pa.schema(
        [
            pa.field("topic", pa.dictionary(pa.int32(), pa.string()), False),
            pa.field("partition", pa.int32(), False),
            pa.field("offset", pa.int64(), False),
            pa.field("timestamp", pa.timestamp("ms", "UTC")),
            pa.field("timestamp_type", pa.int8(), False),
            pa.field("key", pa.binary()),
            pa.field("value", pa.binary()),
            pa.field("headers", pa.list_(pa.field("item", pair, False)), False),
        ]
    )
    columns = batch.to_pydict()
    assert columns["topic"] == ["orders"] * 4
    assert columns["partition"] == [3] * 4
    assert columns["offset"] == [10, 12, 15, 16]
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [1_000, 1_005, None, 2_000]
    assert columns["value"] == VALUES
    assert columns["headers"][0] == [{"key": "h", "value": b"x"}, {"key": "h", "value": None}]
    assert pa.schema(build()).equals(batch.schema)


def test_arrow_schema_copies_no_values(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-14: asking a batch for its schema gathers nothing."""
    gather = native_columns.gather
    gathered: list[int] = []

    def counted(data: Any, starts: Any, lengths: Any, wide: bool = False) -> Any:
        gathered.append(memoryview(lengths).nbytes)
        return gather(data, starts, lengths, wide)

    monkeypatch.setattr(native_columns, "gather", counted)
    for deserializer in (None, Utf8(), bytes.decode):
        records = build([b"x" * 1_000] * 1_000, value_deserializer=deserializer)
        schema = records.to_arrow().schema
        gathered.clear()
        assert pa.schema(records).equals(schema)
        assert sum(gathered) == 0


def test_arrow_takes_offsets_and_timestamps_as_they_are() -> None:
    records = build()
    batch = records.to_arrow()
    assert batch.column("offset").buffers()[1].address == records.offsets.ctypes.data
    assert batch.column("timestamp").buffers()[1].address == records.timestamps.ctypes.data


def test_arrow_views() -> None:
    records = build()
    assert isinstance(records.values, BytesColumn)
    batch = records.to_arrow(view=True)
    batch.validate(full=True)
    assert batch.schema.field("value").type == pa.binary_view()
    assert batch.column("value").to_pylist() == VALUES
    assert batch.column("value").buffers()[2].address == records.values.data.ctypes.data
    texts = build([b"a", b"b"], value_deserializer=Utf8()).to_arrow(view=True)
    assert texts.schema.field("value").type == pa.string_view()


@pytest.mark.parametrize("make", [pa.table, pa.record_batch])
def test_pyarrow_takes_records_directly(make: Any) -> None:
    assert make(build()).to_pydict() == build().to_arrow().to_pydict()


def test_a_requested_schema_chooses_layouts() -> None:
    wanted = pa.schema(
        [
            field.with_type(pa.large_binary()) if field.name == "value" else field
            for field in build().to_arrow().schema
        ]
    )
    schema, array = build().__arrow_c_array__(wanted.__arrow_c_schema__())
    batch = pa.RecordBatch._import_from_c_capsule(schema, array)
    assert batch.schema == wanted
    assert batch.column("value").to_pylist() == VALUES


def test_polars() -> None:
    for frame in (pl.DataFrame(build()), build().to_polars()):
        assert frame.shape == (4, 8)
        assert frame["value"].to_list() == VALUES
        assert frame["offset"].to_list() == [100, 101, 102, 103]
        assert frame.schema["timestamp"] == pl.Datetime("ms", "UTC")


def test_pandas() -> None:
    frame = build().to_pandas()
    assert frame["value"].tolist() == VALUES
    assert frame["offset"].dtype == np.int64
    assert frame["partition"].dtype == np.int32
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    assert frame["timestamp"].isna().tolist() == [False, False, True, False]
    assert frame["headers"].tolist() == HEADERS
    assert pd.DataFrame.from_arrow(build())["value"].tolist() == VALUES


def test_pandas_of_deserialized_columns() -> None:
    frame = build([bytes(8), None], value_deserializer=Int64()).to_pandas()
    assert str(frame["value"].dtype) == "Int64"
    assert frame["value"].isna().tolist() == [False, True]
    frame = build([bytes(4), None], value_deserializer=Float32()).to_pandas()
    assert str(frame["value"].dtype) == "Float32"
    frame = build([bytes(8)], value_deserializer=Int64()).to_pandas()
    assert frame["value"].dtype == np.int64
    frame = build([b"\0\1", None], value_deserializer=Struct([("a", ">u2")])).to_pandas()
    assert frame["value"].tolist() == [{"a": 1}, None]
    frame = build([bytes(16)], value_deserializer=Uuid()).to_pandas()
    assert [item.int for item in frame["value"]] == [0]
    frame = build([b"a", None], value_deserializer=Utf8()).to_pandas()
    assert frame["value"].fillna("null").tolist() == ["a", "null"]


def test_numpy() -> None:
    array = build().to_numpy()
    assert array.dtype.names == COLUMN_NAMES
    assert array["offset"].tolist() == [100, 101, 102, 103]
    assert array["timestamp"].dtype == "M8[ms]"
    assert array["value"].tolist() == VALUES
    assert array["headers"].tolist() == HEADERS
    assert array["topic"].tolist() == ["orders"] * 4
    typed = build([bytes(8), None], value_deserializer=Int64()).to_numpy()
    assert isinstance(typed, np.ma.MaskedArray)
    assert typed["value"].tolist() == [0, None]


@pytest.mark.parametrize(
    ("method", "package", "extra"),
    [
        ("to_pandas", "pandas", "pandas"),
        ("to_polars", "polars", "polars"),
        ("to_arrow", "pyarrow", "arrow"),
    ],
)
def test_missing_packages(
    method: str, package: str, extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E-11: the error names what to install."""
    monkeypatch.setitem(__import__("sys").modules, package, None)
    with pytest.raises(MissingDependencyError) as caught:
        getattr(build(), method)()
    assert str(caught.value) == f'{method}() needs {package}\ntry: pip install "kfast[{extra}]"'


def test_objects_need_pyarrow_only_when_they_are_odd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    assert build([b"1"], value_deserializer=int).to_polars()["value"].to_list() == [1]
    with pytest.raises(MissingDependencyError, match="column 'value' to Arrow needs pyarrow"):
        build([b"1"], value_deserializer=lambda raw: {"a": raw}).to_polars()


def test_empty_records_have_the_columns_of_real_ones() -> None:
    """E-10: an empty result has the same types."""
    options: dict[str, Any] = {"key_deserializer": Utf8(), "value_deserializer": Int64()}
    full = build([Sample(bytes(8), b"k")], **options)
    empty = empty_partition_records("orders", 3, **options)
    assert len(empty) == 0
    assert empty.to_arrow().schema == full.to_arrow().schema
    assert empty.to_numpy().dtype == full.to_numpy().dtype
    assert empty_partition_records(columns=["value"]).to_arrow().schema.names == ["value"]
