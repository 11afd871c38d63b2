"""RecordErrors: what is known of values that could not be read, per batch and for all of a poll."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kfast._native import buffers
from kfast.columns.record_errors import ErrorKind, RecordErrors
from kfast.deserializers import Int64, Utf8
from kfast.errors import DeserializationError
from kfast.records import ConsumerRecords, PartitionRecords, build_partition_records
from tests.unit.deserializers.sample_format import Lines
from tests.unit.records.sample_index import Sample, sample_index

KEYS: Sequence[bytes | None] = [b"1 a", b"?", b"2 b", b"x c", None, b"3"]
VALUES: Sequence[bytes | None] = [b"1 a", b"", b"bad 1", b"5", None, b"6 f"]


def build(on_error: Any = "null", **options: Any) -> Any:
    samples = [
        Sample(value, key, timestamp=1000 + i)
        for i, (value, key) in enumerate(zip(VALUES, KEYS, strict=True))
    ]
    given = {"key_deserializer": Lines(), "value_deserializer": Lines()} | options
    return build_partition_records("orders", 3, sample_index(samples), on_error=on_error, **given)


def test_a_batch_names_each_bad_key_and_value() -> None:
    """TC-47: batch.errors has every bad key and value, in order, with all that is known."""
    records = build().records
    errors = records.errors
    assert [(e.offset, e.column, e.code, e.path) for e in errors] == [
        (101, "key", "type", "id.n"),
        (101, "value", "type", "id.n"),
        (102, "value", "type", "id.n"),
        (103, "key", "type", "id.n"),
        (103, "value", "missing", "text"),
        (105, "key", "missing", "text"),
    ]
    assert records.deserialization_errors == len(errors) == 6
    first = errors[0]
    assert (first.topic, first.partition, first.timestamp, first.raw) == ("orders", 3, 1001, b"?")
    assert first.message == 'orders-3 offset 101: key.id.n is a word, not int64 (byte 0: "?")'
    assert errors.partition.tolist() == [3] * 6
    assert errors.timestamp.tolist() == [1001, 1001, 1002, 1003, 1003, 1005]
    assert errors.topic == ["orders"] * 6
    assert errors.column == ["key", "value", "value", "key", "value", "key"]
    assert len(records) == 6
    assert repr(errors).startswith("<RecordErrors n=6\n  orders-3 offset 101: key.id.n is a word")


def test_headers_of_a_dead_letter_are_kafka_connects() -> None:
    """TC-48: a bad record comes with its bytes and with Connect's headers for a dead letter."""
    error = build().records.errors[4]
    assert error.headers() == [
        ("__connect.errors.topic", b"orders"),
        ("__connect.errors.partition", b"3"),
        ("__connect.errors.offset", b"103"),
        (
            "__connect.errors.exception.class.name",
            b"kfast.errors.DeserializationError: missing",
        ),
        ("__connect.errors.exception.message", error.message.encode()),
    ]


def test_skipped_records_are_named_once_and_the_position_passes_over_them() -> None:
    """TC-49: skip leaves bad records out, names each once, and next_offset goes past them."""
    records = build("skip").records
    assert records.offsets.tolist() == [100, 104]
    assert records.next_offset == 106
    assert records.errors.offset.tolist() == [101, 102, 103, 105]
    assert records.errors.column == ["key", "value", "key", "key"]
    assert records.deserialization_errors == 4
    assert [len(records[[row]].errors) for row in (0, 1)] == [0, 4]


def test_raise_ends_before_the_first_bad_record_with_all_details() -> None:
    result = build("raise")
    assert result.records.offsets.tolist() == [100]
    assert result.records.values.to_list() == [{"id": {"n": 1}, "text": "a"}]
    assert result.records.next_offset == 101
    error = result.error
    assert isinstance(error, DeserializationError)
    assert (error.column, error.code, error.path, error.byte_position) == ("key", "type", "id.n", 0)
    assert (error.key_bytes, error.value_bytes) == (b"?", b"")
    assert error.schema_id == 101
    assert str(error).splitlines()[0].startswith("orders-3 offset 101: key.id.n is a word")


def test_selected_rows_keep_their_errors() -> None:
    records = build().records
    assert records[:2].errors.offset.tolist() == [101, 101]
    assert records[3:].errors.offset.tolist() == [103, 103, 105]
    assert records[::-1].errors.offset.tolist() == [105, 103, 103, 102, 101, 101]
    assert records[[2, 1]].errors.offset.tolist() == [102, 101, 101]
    assert records[:1].errors == RecordErrors()
    pieces = [records[i : i + 2] for i in range(0, 6, 2)]
    assert PartitionRecords.concat(pieces).errors == records.errors
    assert ConsumerRecords(pieces).errors == records.errors


def test_errors_of_a_partition_without_rows_are_there() -> None:
    samples = [Sample(b"?", b"1 k"), Sample(b"??", b"1 k")]
    options: dict[str, Any] = {"value_deserializer": Lines(), "on_error": "skip"}
    parts = [
        build_partition_records("t", 0, sample_index(samples, base_offset=at), **options).records
        for at in (0, 2)
    ]
    assert list(map(len, parts)) == [0, 0]
    records = ConsumerRecords(parts)
    assert records.count() == 0
    assert records.errors.offset.tolist() == [0, 1, 2, 3]


def test_kfasts_other_deserializers_name_rows_too() -> None:
    records = build(key_deserializer=Utf8(), value_deserializer=Int64()).records
    assert records.errors.column == ["value"] * 5
    assert set(records.errors.code) == {"type"}
    text = build_partition_records(
        "t", 0, sample_index([Sample(b"ab\xff")]), value_deserializer=Utf8(), on_error="null"
    ).records
    (error,) = text.errors
    assert (error.code, error.byte_position, error.path) == ("utf8", 2, "")
    assert error.message == "t-0 offset 100: value is not UTF-8 (byte 2: 0xff)"


def test_errors_in_arrow_and_pickles() -> None:
    errors = build().records.errors
    batch = errors.to_arrow()
    batch.validate(full=True)
    assert batch.column("offset").to_pylist() == errors.offset.tolist()
    assert batch.column("raw").to_pylist() == errors.raw.to_list()
    assert batch.column("schema_id").to_pylist() == [str(i) for i in errors.schema_id]
    assert batch.schema.names == list(type(errors[0])._fields)
    assert pa.table(pa.record_batch(errors)).num_rows == 6
    assert pickle.loads(pickle.dumps(errors)) == errors
    assert pickle.loads(pickle.dumps(build().records)).errors == errors
    assert RecordErrors().to_arrow().num_rows == 0
    assert errors != RecordErrors()


def test_errors_keep_the_received_bytes_until_they_are_compact() -> None:
    gc.collect()
    before = buffers.live_bytes()
    index = sample_index([Sample(b"?" * 1000), Sample(b"1 " + b"x" * 100_000)])
    records = build_partition_records(
        "t", 0, index, value_deserializer=Lines(), on_error="null"
    ).records
    compact = records.errors.compact()
    assert compact == records.errors
    assert records.pinned_nbytes >= 100_000
    del records, index
    gc.collect()
    assert buffers.live_bytes() <= before
    assert compact[0].raw == b"?" * 1000


def test_a_row_that_does_not_exist() -> None:
    with pytest.raises(IndexError):
        RecordErrors()[0]
    assert len(build().records.errors[np.array([True] + [False] * 5)]) == 1


def test_numbers_of_codes_are_those_of_the_decoders() -> None:
    texts = (
        "empty truncated trailing syntax utf8 type range missing duplicate_key depth magic "
        "unknown_schema schema resolution enum union too_large"
    )
    assert " ".join(kind.text for kind in ErrorKind) == texts
    assert list(ErrorKind) == list(range(1, 18))
