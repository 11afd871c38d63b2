"""ConsumerRecords: the mapping, what to commit, and exports over all partitions."""

from __future__ import annotations

import gc
import json
import re
import subprocess
import sys
import textwrap
import threading
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import kfast
from kfast._native.buffers import live_count
from kfast.deserializers import BadValue, DecodedColumn, Int64, Utf8
from kfast.errors import DeserializationError, MissingDependencyError
from kfast.records import (
    BytesColumn,
    ConsumerRecords,
    HeadersColumn,
    PartitionRecords,
    arrow_stream,
    build_partition_records,
    empty_partition_records,
)
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.unit.records.sample_index import Sample, sample_index

ROOT = Path(__file__).resolve().parents[3]
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def batch(
    tp: TopicPartition, values: list[Any], base_offset: int = 0, **options: Any
) -> PartitionRecords:
    next_offset = options.pop("next_offset", None)
    index = sample_index(values, base_offset=base_offset, next_offset=next_offset)
    return build_partition_records(tp.topic, tp.partition, index, **options).records


def sample() -> ConsumerRecords:
    return ConsumerRecords(
        [
            batch(A0, [b"0", b"1"]),
            batch(B0, [Sample(b"x", b"k", [("h", None)])], 50, next_offset=60),
            batch(A0, [b"2", None], 2),
            batch(A1, [], 7, next_offset=9),
        ]
    )


def test_a_mapping_of_partitions() -> None:
    """E-10: the result maps partition to records."""
    records = sample()
    assert list(records) == list(records.keys()) == [A0, B0]
    assert len(records) == 2
    assert A0 in records
    assert A1 not in records
    assert [row.value for row in records[A0]] == [b"0", b"1", b"2", None]
    assert [tp for tp, rows in records.items() if len(rows) == 1] == [B0]
    assert sum(len(rows) for rows in records.values()) == 5
    assert records.get(A1) is None
    assert records.get(A1, 5) == 5
    assert records.get(B0) is records[B0]
    with pytest.raises(KeyError):
        records[A1]
    assert records
    assert str(records) == "<ConsumerRecords n=5 {a-0: 4, b-0: 1}>"


def test_kafkas_own_methods() -> None:
    """E-10: records(topic), partitions(), count() and next_offsets()."""
    records = sample()
    assert records.count() == 5
    assert records.partitions() == {A0, B0}
    assert [row.value for row in records.records("a")] == [b"0", b"1", b"2", None]
    assert [row.value for row in records.records(B0)] == [b"x"]
    assert list(records.records("c")) == []
    assert records.nbytes == sum(part.nbytes for part in records.batches())


def test_next_offsets_are_what_to_commit() -> None:
    """F-05, E-10: filtered tails count, also of partitions without a record; epochs go along."""
    assert sample().next_offsets() == {
        A0: OffsetAndMetadata(4, "", 7),
        B0: OffsetAndMetadata(60, "", 7),
        A1: OffsetAndMetadata(9, "", 7),
    }


def test_chunks_stay_apart_until_asked_for() -> None:
    """B-09: batches never mix partitions, and none is copied before they are joined."""
    records = sample()
    assert [(part.topic_partition, len(part)) for part in records.batches()] == [
        (A0, 2),
        (A0, 2),
        (B0, 1),
    ]
    records.to_arrow()
    gc.collect()
    before = live_count()
    records.to_arrow()
    gc.collect()
    assert live_count() == before
    assert records[A0] is records[A0]


def test_other_ways_to_make_one() -> None:
    one, two = batch(A0, [b"0"]), batch(A0, [b"1"], 1)
    assert ConsumerRecords({A0: one})[A0] is one
    assert ConsumerRecords({A0: [one, two]}).count() == 2
    assert ConsumerRecords(part for part in (one, two)).count() == 2


def test_empty() -> None:
    """E-10: every method is safe without records."""
    for records in (ConsumerRecords(), ConsumerRecords({}), ConsumerRecords([batch(A0, [])])):
        assert not records
        assert (len(records), records.count(), records.nbytes) == (0, 0, 0)
        assert list(records) == []
        assert list(records.items()) == []
        assert list(records.batches()) == []
        assert records.partitions() == set()
        assert list(records.records("a")) == []
        assert records.get(A0) is None
        table = records.to_arrow()
        assert table.num_rows == 0
        assert table.schema == sample().to_arrow().schema
        assert pa.table(records).schema == table.schema
        assert records.to_numpy().shape == (0,)
        assert records.to_numpy().dtype == sample().to_numpy().dtype
        assert records.to_pandas().shape == (0, 8)
        assert pl.DataFrame(records).schema == pl.DataFrame(sample()).schema
        assert str(records) == "<ConsumerRecords n=0 {}>"
    assert ConsumerRecords().next_offsets() == {}


def test_a_template_gives_an_empty_result_its_types() -> None:
    """E-10: with deserializers, too, an empty poll has the schema of a full one."""
    template = empty_partition_records(value_deserializer=Int64(), columns=["offset", "value"])
    schema = ConsumerRecords(template=template).to_arrow().schema
    assert schema == pa.schema([pa.field("offset", pa.int64(), False), ("value", pa.int64())])


# --- exports --------------------------------------------------------------------------------------


def test_to_arrow() -> None:
    records = sample()
    for table in (records.to_arrow(), pa.table(records)):
        table.validate(full=True)
        assert table.column("value").num_chunks == 3
        assert table.select(["topic", "partition", "offset", "value"]).to_pylist() == [
            {"topic": "a", "partition": 0, "offset": 0, "value": b"0"},
            {"topic": "a", "partition": 0, "offset": 1, "value": b"1"},
            {"topic": "a", "partition": 0, "offset": 2, "value": b"2"},
            {"topic": "a", "partition": 0, "offset": 3, "value": None},
            {"topic": "b", "partition": 0, "offset": 50, "value": b"x"},
        ]
    views = records.to_arrow(view=True)
    assert views.schema.field("value").type == pa.binary_view()
    assert views.column("value").to_pylist() == [b"0", b"1", b"2", None, b"x"]


def test_a_stream_honours_requested_layouts() -> None:
    wanted = pa.schema([("value", pa.large_binary()), ("key", pa.binary_view())])
    capsule = sample().__arrow_c_stream__(wanted.__arrow_c_schema__())

    class Stream:
        def __arrow_c_stream__(self, requested_schema: object = None) -> object:
            return capsule

    table = pa.table(Stream())
    assert table.schema.field("value").type == pa.large_binary()
    assert table.schema.field("key").type == pa.binary_view()
    assert table.column("key").to_pylist() == [None] * 4 + [b"k"]


def test_a_stream_stays_below_the_limit_of_32_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """B-03: columns larger than one Arrow batch can hold go out in several, whole rows each."""
    monkeypatch.setattr(arrow_stream, "BATCH_BYTES", 10)
    values = [b"x" * size for size in (4, 4, 4, 10, 11, 1, 0, 9, 1)]
    rows: list[Any] = [Sample(value, b"k", [("h", b"v")]) for value in values]
    for part in (batch(A0, rows), batch(A0, rows, value_deserializer=Utf8())):
        table = pa.table(ConsumerRecords([part]))
        table.validate(full=True)
        assert [len(chunk) for chunk in table.column("value").chunks] == [2, 1, 1, 1, 2, 2]
        assert table.num_rows == len(values)
        assert table.column("value").to_pylist() == part.values[:].to_list()
    many = batch(A0, [Sample(b"", None, [("name", b"value")] * 3)] * 4)
    assert pa.table(ConsumerRecords([many])).column("headers").num_chunks == 4


def test_objects_of_all_chunks_get_one_arrow_type() -> None:
    """E-07: a chunk of integers after one of nulls or floats fits the stream's schema."""
    options: dict[str, Any] = {"value_deserializer": json.loads}
    parts: list[list[Any]] = [[b"null", None], [b"1"], [b"2.5"]]
    records = ConsumerRecords([batch(A0, part, **options) for part in parts])
    assert pl.DataFrame(records)["value"].to_list() == [None, None, 1.0, 2.5]
    dicts: list[list[Any]] = [[b'{"a": 1}'], [b'{"b": "x"}'], [None]]
    records = ConsumerRecords([batch(A0, part, **options) for part in dicts])
    assert records.to_arrow().column("value").to_pylist() == [
        {"a": 1, "b": None},
        {"a": None, "b": "x"},
        None,
    ]


def test_polars() -> None:
    for frame in (pl.DataFrame(sample()), sample().to_polars()):
        assert frame["value"].to_list() == [b"0", b"1", b"2", None, b"x"]
        assert frame["topic"].to_list() == ["a"] * 4 + ["b"]


def test_pandas() -> None:
    for frame in (sample().to_pandas(), pd.DataFrame.from_arrow(sample())):
        assert frame["value"].tolist() == [b"0", b"1", b"2", None, b"x"]
        assert frame["offset"].tolist() == [0, 1, 2, 3, 50]
    assert sample().to_pandas().index.tolist() == [0, 1, 2, 3, 4]


def test_numpy() -> None:
    array = sample().to_numpy()
    assert array["offset"].tolist() == [0, 1, 2, 3, 50]
    with pytest.raises(ValueError, match="read-only"):
        array["offset"][0] = 1
    parts: list[tuple[TopicPartition, list[Any]]] = [(A0, [bytes(8)]), (B0, [None, bytes(8)])]
    masked = ConsumerRecords(
        batch(tp, values, value_deserializer=Int64()) for tp, values in parts
    ).to_numpy()
    assert isinstance(masked, np.ma.MaskedArray)
    assert masked["value"].tolist() == [0, None, 0]


def test_pyarrow_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """E-11: the error names what to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"to_arrow\(\) needs pyarrow"):
        sample().to_arrow()


def test_other_libraries_need_no_pyarrow() -> None:
    """E-11: polars takes the records although pyarrow is neither imported nor importable."""
    program = textwrap.dedent(
        """
        import sys
        sys.modules["pyarrow"] = None
        # RECORDS
        import polars
        frame = polars.DataFrame(records())
        assert frame["value"].to_list() == [b"0", None], frame
        assert records().to_polars().equals(frame)
        assert records().to_polars(topic_dictionary=False)["topic"].to_list() == ["a", "a"]
        try:
            records()[("a", 0)].to_pandas()
        except ImportError as error:
            assert "to_pandas() needs pyarrow" in str(error)
        else:
            raise AssertionError("pandas gets its columns through pyarrow")
        assert sys.modules["pyarrow"] is None
        print("done")
        """
    )
    source = textwrap.dedent(
        """
        from kfast.records import ConsumerRecords, build_partition_records
        from tests.unit.records.sample_index import sample_index

        def records():
            part = build_partition_records("a", 0, sample_index([b"0", None])).records
            return ConsumerRecords([part])
        """
    )
    program = program.replace("# RECORDS\n", source)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert (done.stderr, done.stdout, done.returncode) == ("", "done\n", 0)


def test_importing_records_imports_no_optional_package() -> None:
    """E-11: DataFrame and Arrow libraries are loaded when they are used."""
    program = (
        "import sys, kfast.records, kfast.deserializers\n"
        "print(sorted({'pyarrow', 'pandas', 'polars'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert done.stdout == "[]\n"


def test_exports_on_several_threads() -> None:
    """D-25: records may be read, exported and dropped by any number of threads."""
    records = ConsumerRecords([batch(A0, [b"%d" % i for i in range(2_000)], 0)])
    expected = pa.table(records)
    good: list[bool] = []

    def use() -> None:
        for _ in range(5):
            good.append(pa.table(records).equals(expected))
            good.append(records[A0].select([5, 6]).compact()[0].value == b"5")

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert good == [True] * 40


def test_a_table_outlives_the_records() -> None:
    """D-25: zero-copy tables keep the received memory alive."""
    records = sample()
    table = records.to_arrow(view=True)
    del records
    gc.collect()
    junk = [batch(A0, [b"\xee" * 50] * 4) for _ in range(50)]
    assert table.column("value").to_pylist() == [b"0", b"1", b"2", None, b"x"]
    assert table.column("offset").to_pylist() == [0, 1, 2, 3, 50]
    del junk


class _WidthOfFirst:
    """A deserializer whose column type depends on the values."""

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        del stop_at_first
        return DecodedColumn(column.to_numpy("S"))

    def explain(self, raw: bytes) -> BadValue:
        return BadValue.of("is bad", raw)


def test_arrow_stream_refuses_a_part_of_another_type() -> None:
    """B-17: buffers are never read by the schema of other records."""
    parts = [
        build_partition_records(
            "t", 3, sample_index([value], base_offset=base), value_deserializer=_WidthOfFirst()
        ).records
        for value, base in ((b"x" * 8, 0), (b"yy", 1))
    ]
    ConsumerRecords(parts[:1]).to_arrow().validate(full=True)
    check_refusal(ConsumerRecords(parts), '"w:2" after "w:8"')


def check_refusal(records: ConsumerRecords, found: str = ".* after .*") -> None:
    """Check that every export raises the error itself, which names the first record."""
    for export in (
        ConsumerRecords.to_arrow,
        ConsumerRecords.to_pandas,
        ConsumerRecords.to_polars,
        lambda records: records.to_arrow(view=True),
        pa.table,
        pl.DataFrame,
    ):
        with pytest.raises(
            DeserializationError, match=r"t-3 offset 1: column .value. has another Arrow type"
        ) as caught:
            export(records)
        assert re.fullmatch(found, caught.value.found or "")
        assert (caught.value.partition, caught.value.offset) == (3, 1)


def test_an_export_of_parts_of_different_types_raises_the_error_itself() -> None:
    """U-12: not the error that the reader of the stream makes of its text."""
    for kinds in permutations((kfast.Utf8(), kfast.Int64(), None), 2):
        parts = [
            build_partition_records(
                "t", 3, sample_index([b"x" * 8], base_offset=base), value_deserializer=kind
            ).records
            for base, kind in enumerate(kinds)
        ]
        check_refusal(ConsumerRecords(parts))


def test_an_error_while_a_stream_is_read_is_raised_by_every_export_of_kfast() -> None:
    """U-12: columns of one kind, whose types differ inside."""
    parts = [
        build_partition_records(
            "t", 3, sample_index([b"{}"], base_offset=base), value_deserializer=kfast.Json(schema)
        ).records
        for base, schema in enumerate(("a int", "a int, b int"))
    ]
    for flatten in (False, True):
        for name in ("to_arrow", "to_polars"):
            with pytest.raises(DeserializationError, match="has another Arrow type"):
                getattr(ConsumerRecords(parts), name)(flatten=flatten)


@pytest.mark.parametrize("make", [bytes, bytes.decode, lambda raw: raw.decode() + "ä"])
def test_arrow_stream_cuts_python_objects_by_bytes(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """B-17: text and bytes of Python objects are cut before their positions need 64 bits."""
    monkeypatch.setattr("kfast.records.arrow_stream.BATCH_BYTES", 100)
    values = [b"x" * 10] * 30
    records = build_partition_records("t", 0, sample_index(values), value_deserializer=make).records
    table = ConsumerRecords([records]).to_arrow()
    table.validate(full=True)
    assert table.column("value").num_chunks >= 3
    assert table.column("value").to_pylist() == records.values.tolist()
    for chunk in table.column("value").chunks:
        assert sum(buffer.size for buffer in chunk.buffers()[2:]) <= 100
