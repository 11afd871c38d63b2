"""StringColumn, UuidColumn and HeadersColumn."""

from __future__ import annotations

import gc
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from kfast._native.buffers import copy_of
from kfast.records import BytesColumn, HeadersColumn, StringColumn, UuidColumn
from tests.unit.records.sample_index import Header, Sample, sample_index

TEXTS = ["alpha", None, "", "größer als zwölf Zeichen"]
ONE, TWO = UUID(int=1), UUID("00112233-4455-6677-8899-aabbccddeeff")
HEADERS: list[list[Header]] = [
    [("h", b"x"), ("h", b"x"), ("g", None)],
    [],
    [("", b"")],
]


def texts() -> StringColumn:
    raw = [None if text is None else text.encode() for text in TEXTS]
    return StringColumn(BytesColumn.from_values(raw).compact())


def uuids() -> UuidColumn:
    data = np.frombuffer(ONE.bytes + bytes(16) + TWO.bytes, "V16")
    return UuidColumn(data, np.array([False, True, False]))


def headers(rows: list[list[Header]] | None = None) -> HeadersColumn:
    chosen = HEADERS if rows is None else rows
    index = sample_index([Sample(b"v", None, row) for row in chosen])
    if index.header_starts is None:
        return HeadersColumn.empty(len(chosen))
    return HeadersColumn(index.data, index.header_starts, index.header_counts)


def test_strings() -> None:
    """D-02: null and empty text differ."""
    column = texts()
    assert column.to_list() == list(column) == TEXTS
    assert [column[i] for i in range(-4, 4)] == TEXTS * 2
    assert column[1:3].to_list() == column[[1, 2]].to_list() == [None, ""]
    assert column.is_null.tolist() == [False, True, False, False]
    assert (len(column), column.null_count) == (4, 1)
    assert column.nbytes == column.raw.nbytes == 32
    assert column.lengths.tolist() == [5, -1, 0, 27]
    assert column.compact().to_list() == TEXTS
    assert StringColumn.concat([column, column[:1]]).to_list() == [*TEXTS, "alpha"]
    shown = "[alpha, null, , größer als zwöl…]"
    assert repr(column) == f"<StringColumn n=4 nulls=1 nbytes=32 {shown}>"


def test_strings_to_numpy() -> None:
    column = texts()
    assert column.to_numpy().tolist() == TEXTS
    assert column.to_numpy("U").tolist() == ["alpha", "", "", TEXTS[3]]
    assert column.to_numpy("U2").tolist() == ["al", "", "", "gr"]
    assert column.to_numpy(np.dtypes.StringDType()).tolist() == TEXTS
    assert np.asarray(column).dtype == object
    with pytest.raises(TypeError, match="int64"):
        column.to_numpy(np.int64)


@pytest.mark.parametrize(
    "kind", [pa.string(), pa.large_string(), pa.string_view()], ids=["utf8", "large", "view"]
)
def test_strings_to_arrow(kind: pa.DataType) -> None:
    array = pa.array(texts(), kind)
    array.validate(full=True)
    assert array.type == kind
    assert array.to_pylist() == TEXTS


def test_string_views_share_the_memory() -> None:
    column = texts()
    assert column.to_arrow().type == pa.string()
    array = column.to_arrow(view=True)
    assert array.type == pa.string_view()
    assert array.buffers()[2].address == column.raw.data.ctypes.data


def test_uuids() -> None:
    column = uuids()
    assert column.to_list() == list(column) == [ONE, None, TWO]
    assert [column[0], column[1], column[-1]] == [ONE, None, TWO]
    assert column[::2].to_list() == [ONE, TWO]
    assert column[::2].null_count == 0
    assert column[[2, 1]].to_list() == [TWO, None]
    assert column.is_null.tolist() == [False, True, False]
    assert column[::2].is_null.tolist() == [False, False]
    assert (len(column), column.null_count, column.nbytes) == (3, 1, 48)
    assert UuidColumn.concat([column, column[:1]]).to_list() == [ONE, None, TWO, ONE]
    shown = "[00000000-0000-0…, null, 00112233-4455-6…]"
    assert repr(column) == f"<UuidColumn n=3 nulls=1 {shown}>"


def test_uuids_to_numpy() -> None:
    column = uuids()
    assert column.to_numpy().dtype == "V16"
    assert column.to_numpy()[2].tobytes() == TWO.bytes
    assert column.to_numpy(object).tolist() == [ONE, None, TWO]
    assert np.asarray(column).dtype == "V16"


def test_uuids_to_arrow_without_a_copy() -> None:
    column = uuids()
    array = column.to_arrow()
    array.validate(full=True)
    assert array.type == pa.uuid()
    assert array.to_pylist() == [ONE, None, TWO]
    assert array.storage.buffers()[1].address == column.data.ctypes.data


def test_headers() -> None:
    """D-02: header order and repeats are kept; null, empty and missing differ."""
    column = headers()
    assert column.to_list() == list(column) == HEADERS
    assert [column[i] for i in range(-3, 3)] == HEADERS * 2
    assert [headers()[i] for i in range(3)] == HEADERS
    assert column[1:].to_list() == column[[1, 2]].to_list() == HEADERS[1:]
    assert column.counts.tolist() == [3, 0, 1]
    assert column.serialized_sizes.tolist() == [5, -1, 0]
    assert repr(column) == "<HeadersColumn n=3 headers=4>"
    with pytest.raises(IndexError):
        column[3]


def test_no_headers() -> None:
    column = headers([[], []])
    assert column.to_list() == [[], []]
    assert column[1] == []
    assert column.nbytes == 0
    assert column.serialized_sizes.tolist() == [-1, -1]
    assert column.to_arrow().to_pylist() == [[], []]


def test_headers_are_copied_out_exactly() -> None:
    column = headers()[[2, 0]]
    assert column.compact().to_list() == [HEADERS[2], HEADERS[0]]
    assert column.nbytes == len(b"\0\0") + len(b"\2h\2x\2h\2x\2g\1")
    assert HeadersColumn.concat([headers(), headers([[]]), column]).to_list() == [
        *HEADERS,
        [],
        HEADERS[2],
        HEADERS[0],
    ]


def test_headers_to_arrow() -> None:
    array = headers().to_arrow()
    array.validate(full=True)
    pair = pa.struct([pa.field("key", pa.string(), False), pa.field("value", pa.binary())])
    assert array.type == pa.list_(pa.field("item", pair, False))
    assert array.to_pylist() == [[{"key": k, "value": v} for k, v in row] for row in HEADERS]


def test_header_keys_that_are_not_utf8_are_replaced() -> None:
    """D-20: a header cannot make a record unreadable, nor reach Arrow as malformed text."""
    column = headers([[(b"\xff\xfeok", b"1")], [("a", None)]])
    assert column.to_list() == [[("\ufffd\ufffdok", b"1")], [("a", None)]]
    array = column.to_arrow()
    array.validate(full=True)
    assert array.to_pylist()[0] == [{"key": "\ufffd\ufffdok", "value": b"1"}]


def test_columns_outlive_what_they_came_from() -> None:
    """D-25: headers parsed late still read the memory they came in."""
    column = headers()
    gc.collect()
    junk = [copy_of(b"\xff" * 100) for _ in range(100)]
    assert column.to_list() == HEADERS
    del junk


@pytest.mark.parametrize("column", [texts(), uuids(), headers()])
def test_out_of_range(column: Any) -> None:
    with pytest.raises(IndexError):
        column[99]
    with pytest.raises(IndexError):
        column[[99]]


def test_text_comparison_gives_a_mask() -> None:
    """B-11: text compares with str, row by row."""
    values = StringColumn(BytesColumn.from_values([b"a", None, "ä".encode(), b""]))
    assert (values == "ä").tolist() == [False, False, True, False]
    assert (values != "ä").tolist() == [True, False, False, True]
    assert (values == "\ud800").tolist() == [False] * 4
    assert values.isin(["a", "", None]).tolist() == [True, True, False, True]
    assert values[values.isin({"a"})].to_list() == ["a"]
    with pytest.raises(TypeError, match="a StringColumn compares with str, not bytes"):
        values == b"a"  # noqa: B015
    with pytest.raises(TypeError, match="takes several strings"):
        values.isin("ab")
    with pytest.raises(TypeError, match="unhashable"):
        hash(values)
