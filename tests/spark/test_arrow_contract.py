"""Columns and types: the batches have exactly the Arrow schema Spark derives from its own."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kfast.errors import ConfigurationError, DeserializationError, KafkaError
from kfast.spark.source.schema import default_schema, project
from kfast.table.arrow_batches import BATCH_ROWS
from kfast.table.offset_ranges import OffsetRange
from kfast.table.projection import Projection
from kfast.table.range_files import RangeFiles
from kfast.table.store import LocalStore
from tests.spark.arrow_rows import (
    ALL,
    BINARY,
    HEADERS,
    INT,
    LONG,
    STRING,
    batches,
    records,
    schema,
    struct,
)
from tests.spark.support import options
from tests.unit.records.sample_index import Sample

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")


def column(name: str, kind: Any, **more: Any) -> list[Any]:
    """Return one column of the samples."""
    (batch,) = batches(schema({name: kind}), **more)
    return list(batch.column(0).to_pylist())


def test_all_columns() -> None:
    (batch,) = batches(schema(ALL), includeHeaders="true")
    expected = records()
    assert batch.column("offset").to_pylist() == expected.offsets.tolist()
    assert batch.column("key").to_pylist() == [None, b"k", b""]
    assert batch.column("value").to_pylist() == [b"v", None, b"abcd"]
    assert batch.column("topic").to_pylist() == ["top"] * 3
    assert batch.column("partition").to_pylist() == [3] * 3
    assert batch.column("timestamp").cast(pa.int64()).to_pylist() == [
        ms * 1000 for ms in expected.timestamps.tolist()
    ]
    assert batch.column("timestampType").to_pylist() == expected.timestamp_types.tolist()
    assert batch.column("headers").to_pylist() == [
        [{"key": "h", "value": b"x"}, {"key": "h", "value": None}],
        None,
        [{"key": "ö", "value": b""}],
    ]


@pytest.mark.parametrize("name", ALL)
def test_each_column_alone(name: str) -> None:
    assert len(column(name, ALL[name], includeHeaders="true")) == 3


def test_a_schema_in_another_order_case_and_nullability() -> None:
    wanted = schema({"OFFSET": LONG, "Topic": STRING, "partition": INT}, ("OFFSET", "partition"))
    (batch,) = batches(wanted)
    assert batch.schema.names == ["OFFSET", "Topic", "partition"]


def test_the_default_schema_is_the_connectors() -> None:
    assert default_schema(options()) == (
        "key binary, value binary, topic string, partition int, offset bigint, "
        "timestamp timestamp, timestampType int"
    )
    with_headers = default_schema(options(includeHeaders="true", valueFormat="float64"))
    assert with_headers.endswith("headers array<struct<key:string,value:binary>>")
    assert "value double" in with_headers
    with pytest.raises(ConfigurationError, match="needs a schema"):
        default_schema(options(valueFormat="struct"))


WRONG = [
    ({"ofset": LONG}, {}, "unknown column ofset; did you mean offset?"),
    ({"payload": BINARY}, {}, "unknown column payload"),
    ({"headers": HEADERS}, {}, "unknown column headers"),
    ({"offset": INT}, {}, "column offset is bigint, not int"),
    ({"value": STRING}, {}, "column value is binary, not string"),
    ({"value": BINARY}, {"valueFormat": "int64"}, "column value is bigint, not binary"),
    ({"timestamp": LONG}, {}, "column timestamp is timestamp, not bigint"),
    ({"value": BINARY, "VALUE": BINARY}, {}, "column VALUE is in the schema twice"),
    ({}, {}, "the schema has no column"),
    ({"_corrupt_record": BINARY}, {}, "unknown column _corrupt_record"),
    ({"offset": LONG}, {"valueFormat": "struct"}, "valueFormat = struct needs the column value"),
    ({"value": STRING}, {"valueFormat": "struct"}, "valueFormat = struct, but column value"),
    ({"value": struct(a=STRING)}, {"valueFormat": "struct"}, "field a of value is string"),
    ({"value": struct()}, {"valueFormat": "struct"}, "column value is a struct without fields"),
]


@pytest.mark.parametrize(("columns", "more", "message"), WRONG)
def test_wrong_schemas(columns: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        project(schema(columns), options(**more))
    assert raised.value.message.startswith(message)
    assert raised.value.hint


# --- values ---------------------------------------------------------------------------------------

FIXED = [
    ("int32", INT, np.array([1, -2], ">i4"), [1, -2]),
    ("int64", LONG, np.array([1 << 40, -2], ">i8"), [1 << 40, -2]),
    ("float32", "float", np.array([0.5, -2], ">f4"), [0.5, -2.0]),
    ("float64", "double", np.array([0.1, -2], ">f8"), [0.1, -2.0]),
    ("utf8", STRING, np.array([b"abc", b"xyz"]), ["abc", "xyz"]),
]


@pytest.mark.parametrize(("name", "kind", "wire", "values"), FIXED)
def test_formats(name: str, kind: str, wire: Any, values: list[Any]) -> None:
    raw = [wire[row : row + 1].tobytes() for row in range(2)]
    rows = records([Sample(raw[0]), Sample(None), Sample(raw[1])])
    (batch,) = batches(schema({"value": kind}), rows, valueFormat=name, mode="FAILFAST")
    assert batch.column(0).to_pylist() == [values[0], None, values[1]]


@pytest.mark.parametrize("order", ["big", "little"])
def test_structs(order: str) -> None:
    mark = {"big": ">", "little": "<"}[order]
    dtype = np.dtype(
        [("a", f"{mark}i2"), ("b", "?"), ("c", "i1"), ("d", f"{mark}f8"), ("e", f"{mark}i8")]
    )
    row = np.array([(513, True, -1, 0.25, 1 << 33)], dtype)
    layout = struct(a="short", b="boolean", c="byte", d="double", e=LONG)
    rows = records([Sample(row.tobytes()), Sample(b"short"), Sample(None)])
    (batch,) = batches(
        schema({"value": layout, "_corrupt_record": BINARY}),
        rows,
        valueFormat="struct",
        valueByteOrder=order,
    )
    expected = {"a": 513, "b": True, "c": -1, "d": 0.25, "e": 1 << 33}
    assert batch.column(0).to_pylist() == [expected, None, None]
    assert batch.column(1).to_pylist() == [None, b"short", None]


def test_permissive_nulls_and_keeps_the_bytes() -> None:
    wanted = schema({"offset": LONG, "bad": BINARY, "value": INT})
    (batch,) = batches(wanted, valueFormat="int32", columnNameOfCorruptRecord="bad")
    assert batch.column("value").to_pylist() == [None, None, int.from_bytes(b"abcd", "big")]
    assert batch.column("bad").to_pylist() == [b"v", None, None]


def test_drop_malformed_leaves_the_record_out() -> None:
    wanted = schema({"key": BINARY, "value": INT, "headers": HEADERS})
    (batch,) = batches(wanted, valueFormat="int32", mode="DROPMALFORMED", includeHeaders="true")
    assert batch.column("key").to_pylist() == [b"k", b""]
    assert batch.column("value").to_pylist() == [None, int.from_bytes(b"abcd", "big")]
    # Also when the query does not want the values themselves.
    (batch,) = batches(schema({"key": BINARY}), valueFormat="int32", mode="DROPMALFORMED")
    assert batch.column("key").to_pylist() == [b"k", b""]


def test_nothing_left_is_no_batch() -> None:
    rows = records([Sample(b"bad"), Sample(b"worse")])
    wanted = schema({"value": INT})
    assert batches(wanted, rows, valueFormat="int32", mode="DROPMALFORMED") == []


@pytest.mark.parametrize("columns", [{"value": INT}, {"offset": LONG}])
def test_failfast_names_the_place(columns: dict[str, Any]) -> None:
    with pytest.raises(DeserializationError) as raised:
        batches(schema(columns), valueFormat="int32", mode="FAILFAST")
    error = raised.value
    assert error.message == "top-3 offset 100: value is not an Int32 (1 bytes, needs 4)"
    assert (error.topic, error.partition, error.offset) == ("top", 3, 100)
    assert error.value_bytes == b"v"


def test_a_null_in_a_column_that_is_said_to_have_none() -> None:
    with pytest.raises(KafkaError) as raised:
        batches(schema({"value": BINARY}, not_null=("value",)))
    assert raised.value.message == "top-3 offset 101: value is null"
    assert "NOT NULL" in str(raised.value)


def test_a_time_spark_cannot_hold() -> None:
    times = (5, 2**62, -1, -(2**62))
    rows = records([Sample(b"v", timestamp=time) for time in times])
    wanted = schema({"timestamp": "timestamp"})
    with pytest.raises(DeserializationError, match=r"top-3 offset 101: timestamp 46116") as raised:
        batches(wanted, rows, mode="FAILFAST")
    assert raised.value.hint == 'set mode to "PERMISSIVE" or "DROPMALFORMED"'
    assert (raised.value.offset, raised.value.column, raised.value.code) == (
        101,
        "timestamp",
        "range",
    )
    (batch,) = batches(schema({"timestamp": "timestamp", "_corrupt_reason": STRING}), rows)
    times = batch.column("timestamp").cast("int64").to_pylist()
    assert times == [5_000, None, -1_000, None]
    assert batch.column("_corrupt_reason").to_pylist() == [None, "timestamp range"] * 2
    (batch,) = batches(wanted, rows, mode="DROPMALFORMED")
    assert batch.column("timestamp").cast("int64").to_pylist() == [5_000, -1_000]
    assert batches(schema({"offset": LONG}), rows, mode="FAILFAST")[0].num_rows == 4


def test_fields_of_documents_without_a_column() -> None:
    """H-10: in the schema of a query, with records that are malformed left out or not."""
    samples = [b'{"a":1}', b'{"a":2,"x":[1],"s":{"y":2}}', b'{"a":"x","z":1}', None]
    rows = records([Sample(each) for each in samples])
    wanted = schema({"value": struct(a=INT, s=struct(b=INT)), "_rescued_data": STRING})
    (batch,) = batches(wanted, rows, valueFormat="json")
    expected = [None, '{"x":[1],"s":{"y":2}}', None, None]
    assert batch.column("_rescued_data").to_pylist() == expected
    (batch,) = batches(wanted, rows, valueFormat="json", mode="DROPMALFORMED")
    assert batch.column("_rescued_data").to_pylist() == [*expected[:2], None]
    with pytest.raises(ConfigurationError, match="unknown column _rescued_data") as raised:
        batches(schema({"_rescued_data": STRING}), rows)
    assert raised.value.hint == "it is for valueFormat=json"


# --- sizes ----------------------------------------------------------------------------------------


def test_batches_are_bounded_in_rows_and_bytes() -> None:
    rows = records([Sample(b"")] * (BATCH_ROWS + 5))
    assert [batch.num_rows for batch in batches(schema({"offset": LONG}), rows)] == [BATCH_ROWS, 5]
    rows = records([Sample(bytes(6 << 20))] * 5)
    made = batches(schema({"value": BINARY}), rows)
    assert [batch.num_rows for batch in made] == [2, 2, 1]
    offsets = [n for batch in batches(schema({"offset": LONG}), rows) for n in batch[0].to_pylist()]
    assert offsets == rows.offsets.tolist()


def test_little_memory_is_cut_without_a_look_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        pytest.fail("lengths were added up for records that fit, whatever they are")

    monkeypatch.setattr("kfast.table.arrow_batches.row_ranges", refuse)
    rows = records([Sample(b"v", b"k", [("h", b"x")])] * 3)
    (batch,) = batches(schema({"value": BINARY, "key": BINARY}), rows)
    assert batch.num_rows == 3


def test_batches_are_bounded_in_bytes_of_headers() -> None:
    rows = records([Sample(b"", None, [("h", bytes(6 << 20))])] * 5)
    made = batches(schema({"headers": HEADERS}), rows, includeHeaders="true")
    assert [batch.num_rows for batch in made] == [2, 2, 1]


def test_offsets_are_not_copied() -> None:
    rows = records()
    (batch,) = batches(schema({"offset": LONG}), rows)
    assert batch.column(0).buffers()[1].address == rows.offsets.__array_interface__["data"][0]


def test_a_projection_travels_to_workers() -> None:
    projection = project(schema(ALL), options(includeHeaders="true"))
    assert pickle.loads(pickle.dumps(projection)) == projection
    assert isinstance(projection, Projection)


WORKER = """
import json, sys
from kfast.table.arrow_batches import ArrowBatches
from kfast.spark.ingest.task import part_rows
from kfast.table.offset_ranges import OffsetRange
from kfast.table.range_files import RangeFiles
from kfast.spark.source.schema import project
from kfast.table.store import LocalStore
from pathlib import Path
from tests.spark.support import options
from tests.spark.arrow_rows import ALL, records, schema

projection = project(schema(ALL), options(includeHeaders="true"))
before = "pandas" in sys.modules
list(ArrowBatches(projection, "top", 3).batches(records()))
files = RangeFiles(LocalStore(Path(sys.argv[1])), projection, OffsetRange("top", 3, 0, 3), "w")
files.write(records())
(row,) = part_rows([files.close()]).to_pylist()
part = json.loads(row["part"])
assert part["topic"] == "top" and [file["rows"] for file in part["files"]] == [3], part
print(before, "pandas" in sys.modules)
"""


def test_a_worker_does_not_wait_for_pandas(tmp_path: Path) -> None:
    # pyarrow imports it to look at what it is given as an array or scalar of Python's.
    line = [sys.executable, "-c", WORKER, str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False", "False"], done.stderr


def test_files_hold_what_batches_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the topic, which files keep as codes of one name, over several row groups."""
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("kfast.table.range_files.GROUP_ROWS", 1)
    projection = project(schema(ALL), options(includeHeaders="true"))
    files = RangeFiles(LocalStore(tmp_path), projection, OffsetRange("top", 3, 0, 9), "w")
    files.write(records())
    files.write(records())
    (file,) = files.close().files
    with (tmp_path / file.staged).open("rb") as written:
        read = parquet.ParquetFile(written)
        assert read.num_row_groups == 2
        assert read.schema_arrow.field("topic").type == "string"
        topic = read.metadata.row_group(0).column(read.schema_arrow.names.index("topic"))
        assert topic.has_dictionary_page, "one name, and codes"
        assert topic.statistics.min == topic.statistics.max == "top"
        (batch,) = batches(schema(ALL), includeHeaders="true")
        assert read.read().to_pylist() == batch.to_pylist() * 2
