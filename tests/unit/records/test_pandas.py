"""pandas frames of results: dtypes, values, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from kfast.deserializers import BadValue, DecodedColumn, Int64, Struct, Utf8, Uuid
from kfast.errors import MissingDependencyError
from kfast.records import BytesColumn, ConsumerRecords, HeadersColumn
from tests.unit.records.sample_index import Sample
from tests.unit.records.sample_records import HEADERS, VALUES, build


def test_dtypes_of_a_frame() -> None:
    """B-22: those of Arrow's columns, numbers with their width."""
    frame = ConsumerRecords([build(), build(base_offset=200)]).to_pandas()
    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        "topic": "category",
        "partition": "int32",
        "offset": "int64",
        "timestamp": "datetime64[ms, UTC]",
        "timestamp_type": "int8",
        "key": "object",
        "value": "object",
        "headers": "object",
    }
    assert frame["topic"].tolist() == ["orders"] * 8
    assert frame["value"].tolist() == VALUES * 2
    assert frame["headers"].tolist() == HEADERS * 2
    assert frame.index.tolist() == list(range(8))
    frame.loc[0, "offset"] = 5
    frame.at[1, "headers"].append(("mine", b""))
    assert (frame["offset"][0], len(frame["headers"][1]), frame["headers"][5]) == (5, 1, [])


def test_text_of_a_frame() -> None:
    """B-22: strings have pandas' dtype for them."""
    frame = build([b"a", None], value_deserializer=Utf8()).to_pandas()
    assert isinstance(frame["value"].dtype, pd.StringDtype)
    assert frame["value"][0] == "a"
    assert frame["value"].isna().tolist() == [False, True]
    assert frame["value"].str.upper()[0] == "A"


class _BigEndian:
    """A deserializer that leaves numbers as they are on the wire."""

    def deserialize_column(
        self, column: BytesColumn, _headers: HeadersColumn | None, /, *, stop_at_first: bool
    ) -> DecodedColumn:
        return DecodedColumn(column.view(">f8"))

    def explain(self, raw: bytes) -> BadValue:
        return BadValue.of("is bad", raw)


def test_numbers_have_the_byte_order_of_the_machine() -> None:
    """B-22: pandas fails later on others, as in a group-by."""
    raw = [np.array(number, ">f8").tobytes() for number in (1.5, 2.5, 1.5)]
    frame = build(raw, value_deserializer=_BigEndian()).to_pandas()
    assert frame["value"].dtype == np.dtype("f8")
    assert frame["value"].dtype.isnative
    assert frame.groupby("value").size().to_dict() == {1.5: 2, 2.5: 1}


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("i4", "Int32"), ("u2", "UInt16"), ("f8", "Float64"), ("bool", "boolean"), (">u8", "UInt64")],
)
def test_numbers_with_nulls_stay_numbers(dtype: str, expected: str) -> None:
    """B-22: an integer does not become a float because another one is null."""

    class Masked(_BigEndian):
        def deserialize_column(
            self, column: BytesColumn, _headers: HeadersColumn | None, /, *, stop_at_first: bool
        ) -> DecodedColumn:
            return DecodedColumn(np.ma.MaskedArray(np.ones(3, dtype), mask=[False, True, False]))

    frame = build([b"", None, b""], key_deserializer=None, value_deserializer=Masked()).to_pandas()
    assert str(frame["value"].dtype) == expected
    assert frame["value"].isna().tolist() == [False, True, False]
    assert frame["value"][2] == 1
    largest = build([b"\x7f" + b"\xff" * 7, None], value_deserializer=Int64()).to_pandas()
    assert largest["value"][0] == 2**63 - 1


def test_objects_stay_what_they_are() -> None:
    """B-22: results of a callable need no common type, and UUIDs stay UUIDs."""
    values = [b'{"a": 1}', b"[1]", b'"x"', None, b"2"]
    frame = build(values, value_deserializer=json.loads).to_pandas()
    assert frame["value"].tolist() == [{"a": 1}, [1], "x", None, 2]
    samples = [Sample(b"\0\1", bytes(range(16))), Sample(None, None)]
    options: dict[str, Any] = {"key_deserializer": Uuid()}
    records = build(samples, value_deserializer=Struct([("a", ">u2")]), **options)
    frame = records.to_pandas()
    assert frame["key"].tolist() == records.keys.to_list()
    assert frame["value"].tolist() == [{"a": 1}, None]
    assert list(frame) == list(records.to_arrow().schema.names)


@pytest.mark.parametrize("chosen", [["headers"], ["value", "headers"], ["key"], ["offset"], []])
def test_frames_of_few_columns(chosen: list[str]) -> None:
    """B-22: with the rows of all of them, and without rows."""
    for records in (build(columns=chosen), build([], columns=chosen)):
        frame = records.to_pandas()
        assert list(frame) == records.to_arrow().schema.names
        assert not chosen or len(frame) == len(records)


def test_a_frame_of_the_partitions_is_refused() -> None:
    """B-22: pandas and NumPy would take the mapping's keys, without a word."""
    records = ConsumerRecords([build()])
    for take in (pd.DataFrame, np.asarray, np.array):
        with pytest.raises(TypeError, match=r"use to_pandas\(\) or to_numpy\(\)"):
            take(records)
    assert pd.DataFrame(records[build().topic_partition])["offset"].tolist() == [100, 101, 102, 103]
    assert pd.DataFrame.from_arrow(records)["value"].tolist() == VALUES


def test_frames_need_pyarrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """E-11: the error names what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError) as caught:
        build().to_pandas()
    assert str(caught.value) == 'to_pandas() needs pyarrow\ntry: pip install "kfast[arrow]"'
