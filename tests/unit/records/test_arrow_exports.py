"""What all Arrow exports have in common: validity, limits of size, the topic column."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.feather
import pytest

from kfast._native import arrow_export
from kfast.columns.arrow import ArrayNode, ArrowColumn, CapsuleStream, SchemaNode
from kfast.deserializers import BadValue, DecodedColumn, Int64
from kfast.errors import DeserializationError, IllegalStateError
from kfast.records import (
    BytesColumn,
    ConsumerRecords,
    HeadersColumn,
    PartitionRecords,
    build_partition_records,
)
from tests.unit.records.sample_index import sample_index

TOPICS = pa.dictionary(pa.int32(), pa.string())


def batch(topic: str, values: list[Any], **options: Any) -> PartitionRecords:
    return build_partition_records(topic, 0, sample_index(values), **options).records


def column(count: int, *buffers: Any) -> ArrowColumn:
    return ArrowColumn(SchemaNode("u", "text"), ArrayNode(count, 0, (None, *buffers)))


def test_every_export_of_a_test_run_is_validated() -> None:
    """B-18: what Arrow would read by wrong positions, or as text that is none, fails here."""
    offsets = np.array([0, 2, 4], np.int32)
    assert pa.array(_Pair(column(2, offsets, b"abcd"))).to_pylist() == ["ab", "cd"]
    for wrong in (
        column(2, offsets, b"\xff\xff\xff\xff"),
        column(2, offsets[::-1].copy(), b"abcd"),
        column(2, np.array([0, 2, 9_999], np.int32), b"abcd"),
    ):
        with pytest.raises(pa.ArrowInvalid):
            pa.array(_Pair(wrong))
        struct = SchemaNode("+s", "", children=(wrong.schema,))
        array = ArrayNode(2, 0, (None,), (wrong.array,))
        stream = CapsuleStream(arrow_export.stream_capsule(struct, [array]))
        with pytest.raises(OSError, match="ArrowInvalid"):
            pa.table(stream)


class _Pair:
    def __init__(self, given: ArrowColumn) -> None:
        self.__arrow_c_array__ = lambda requested_schema=None: given.capsules()


# --- the topic column -----------------------------------------------------------------------------


def records_of_two_topics() -> ConsumerRecords:
    return ConsumerRecords([batch("events", [b"0", b"1"]), batch("örders", [b"2"])])


def test_topic_is_a_dictionary_column() -> None:
    """B-19: one dictionary for all batches of a result, and four bytes a row."""
    records = records_of_two_topics()
    for table in (records.to_arrow(), pa.table(records)):
        assert table.schema.field("topic") == pa.field("topic", TOPICS, False)
        assert table["topic"].to_pylist() == ["events", "events", "örders"]
        chunks = [chunk.dictionary.to_pylist() for chunk in table["topic"].chunks]
        assert chunks == [["events", "örders"]] * 2
    one = batch("events", [b"x"] * 1_000).to_arrow()
    assert one["topic"].nbytes <= 4 * 1_000 + 20
    assert ConsumerRecords().to_arrow().schema.field("topic").type == TOPICS


def test_topic_as_plain_strings() -> None:
    """B-19: the switch, and what an Arrow consumer requests."""
    records = records_of_two_topics()
    part = batch("events", [b"x"] * 3)
    names = ["events", "events", "örders"]
    table = records.to_arrow(topic_dictionary=False)
    assert table.schema.field("topic") == pa.field("topic", pa.string(), False)
    assert table["topic"].to_pylist() == names
    assert part.to_arrow(topic_dictionary=False).schema.field("topic").type == pa.string()
    assert records.to_polars(topic_dictionary=False)["topic"].to_list() == names
    assert records.to_polars(topic_dictionary=False).schema["topic"] == pl.String
    assert records.to_polars()["topic"].to_list() == names
    assert records.to_polars().schema["topic"] == pl.Categorical
    assert str(records.to_pandas(topic_dictionary=False)["topic"].dtype) == "str"
    assert str(records.to_pandas()["topic"].dtype) == "category"
    for wanted in (pa.string(), pa.large_string()):
        schema = pa.schema([("topic", wanted)]).__arrow_c_schema__()
        stream = CapsuleStream(records.__arrow_c_stream__(schema))
        assert pa.table(stream).schema.field("topic").type == wanted
        assert part.__arrow_c_array__(schema) is not None


def test_topics_can_be_written_to_files(tmp_path: Any) -> None:
    """B-19: a file of Arrow's has one dictionary per column."""
    path = str(tmp_path / "records.arrow")
    pyarrow.feather.write_feather(records_of_two_topics().to_arrow(), path)
    assert pyarrow.feather.read_table(path)["topic"].to_pylist() == ["events", "events", "örders"]


def test_no_number_of_rows_is_too_large_for_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-19: repeated names may exceed what 32-bit positions address; limits of 100 bytes here."""
    monkeypatch.setattr("kfast.records.arrow_stream.BATCH_BYTES", 100)
    monkeypatch.setattr("kfast.columns.arrow.INT32_MAX", 100)
    joined = PartitionRecords.concat([batch("events", [b"x"] * 40), batch("events", [b"y"] * 40)])
    names = ["events"] * 80
    assert joined.to_arrow()["topic"].to_pylist() == names
    assert pa.table(ConsumerRecords([joined]))["topic"].num_chunks == 1
    plain = joined.to_arrow(topic_dictionary=False)
    assert plain.schema.field("topic").type == pa.large_string()
    assert plain["topic"].to_pylist() == names
    table = ConsumerRecords([joined]).to_arrow(topic_dictionary=False)
    assert table.schema.field("topic").type == pa.string()
    assert table["topic"].to_pylist() == names
    assert max(chunk.buffers()[2].size for chunk in table["topic"].chunks) <= 100
    assert table["value"].to_pylist() == [b"x"] * 40 + [b"y"] * 40


# --- limits of size -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "value", "chunks"),
    [
        (json.loads, b'{"a": "xxxxxxxxx", "b": 1}', 3),
        (json.loads, b'["xxxx", "xx", "x"]', 3),
        (json.loads, '{"a": ["ä"]}'.encode(), 2),
        (lambda raw: (raw, raw), b"xxxxx", 4),
        (lambda raw: np.frombuffer(raw, np.uint8), b"xxxxx", 3),
        (json.loads, b'{"a": 1}', 1),
    ],
)
def test_objects_of_any_kind_are_cut_by_bytes(
    make: Any, value: bytes, chunks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-17: text and items inside of what pyarrow converts have positions of 32 bits, too."""
    monkeypatch.setattr("kfast.records.arrow_stream.BATCH_BYTES", 100)
    records = batch("t", [value] * 30, value_deserializer=make)
    table = ConsumerRecords([records]).to_arrow()
    assert table["value"].num_chunks >= chunks
    assert table["value"].num_chunks == 1 or chunks > 1
    found = [list(each) if isinstance(each, tuple) else each for each in records.values]
    assert str(table["value"].to_pylist()) == str([_listed(each) for each in found])


def _listed(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray) else value


class _Wide:
    """A deserializer that makes text of a fixed width."""

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        texts = [value.decode() for value in column.to_list() if value is not None]
        return DecodedColumn(np.array(texts, "U5"))

    def explain(self, raw: bytes) -> BadValue:
        return BadValue.of("is bad", raw)


def test_text_of_a_fixed_width_is_cut_by_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-17: NumPy's text becomes Arrow's, with positions of 32 bits."""
    monkeypatch.setattr("kfast.records.arrow_stream.BATCH_BYTES", 100)
    records = batch("t", ["äöü".encode()] * 30, value_deserializer=_Wide())
    table = ConsumerRecords([records]).to_arrow()
    assert [len(chunk) for chunk in table["value"].chunks] == [5] * 6
    assert table["value"].to_pylist() == ["äöü"] * 30


def test_objects_that_do_not_fit_into_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-17: pyarrow makes several arrays of them, or none; the error says what does."""
    records = batch("t", [b'{"a": 1}'], value_deserializer=json.loads)

    def several(items: Any, type: Any) -> Any:
        return pa.chunked_array([[]], type)

    def none(items: Any, type: Any) -> Any:
        raise pa.ArrowCapacityError("too much")

    for array in (several, none):
        monkeypatch.setattr(pa, "array", array)
        with pytest.raises(DeserializationError, match=r"2 GiB(.|\n)*pyarrow.table\(records\)"):
            records.to_arrow()


# --- different columns ----------------------------------------------------------------------------


def test_different_columns_are_not_exported_together() -> None:
    """B-24: the error names the columns, of exports and of joined partitions."""
    parts = [batch("t", [b"x"]), batch("t", [b"y"], columns=["offset", "value"])]
    records = ConsumerRecords(parts)
    calls: list[Any] = [
        records.to_arrow,
        records.to_numpy,
        records.to_pandas,
        records.to_polars,
        lambda: pa.table(records),
        lambda: records[parts[0].topic_partition],
        lambda: PartitionRecords.concat(parts),
    ]
    for call in calls:
        with pytest.raises(IllegalStateError, match="different columns") as error:
            call()
        assert "found: offset, value after topic, partition, offset, " in str(error.value)


def test_batches_whose_records_were_all_skipped() -> None:
    """B-24, B-15: they join with others, and their errors stay counted, also in pieces."""
    options: dict[str, Any] = {"value_deserializer": Int64(), "on_error": "skip"}
    good, bad = [bytes(8), b"?", bytes(8)], [b"?", b"?"]
    for order, per_row in (
        ((good, bad, good), [0, 1, 2, 1]),
        ((bad, good), [2, 1]),
        ((good, bad), [0, 3]),
        ((bad, bad), []),
    ):
        parts = [batch("t", values, **options) for values in order]
        total = sum(part.deserialization_errors for part in parts)
        joined = PartitionRecords.concat(parts)
        assert joined.deserialization_errors == total
        assert [joined[[row]].deserialization_errors for row in range(len(joined))] == per_row
        records = ConsumerRecords(parts)
        assert records.count() == len(joined) == len(per_row)
        assert sum(each.deserialization_errors for each in records.batches()) == sum(per_row)
        assert records.next_offsets()[joined.topic_partition].offset == joined.next_offset
        if per_row:
            assert records[joined.topic_partition].deserialization_errors == total
        else:
            assert list(records) == []
            assert records.to_arrow().schema.field("value").type == pa.int64()
