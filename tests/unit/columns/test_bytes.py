"""BytesColumn: values, selection, views and exports."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kfast._native.buffers import copy_of, live_count
from kfast.columns.spans import ColumnOrigin
from kfast.errors import DeserializationError, MissingDependencyError
from kfast.records import BytesColumn

DATA = b"##alpha#beta##gamma"
VALUES = [b"alpha", None, b"beta", b"", b"gamma"]


def column() -> BytesColumn:
    offsets = np.array([10, 11, 15, 16, 20], np.int64)
    return BytesColumn(
        copy_of(DATA),
        np.array([2, 0, 8, 0, 14], np.int32),
        np.array([5, -1, 4, 0, 5], np.int32),
        origin=ColumnOrigin("orders", 3, "value", offsets),
    )


def fixed(values: list[bytes], gap: bytes = b"#") -> BytesColumn:
    size = len(values[0]) + len(gap)
    starts = np.arange(len(values), dtype=np.int32) * size
    lengths = np.full(len(values), len(values[0]), np.int32)
    offsets = np.arange(len(values), dtype=np.int64) + 100
    origin = ColumnOrigin("orders", 3, "value", offsets)
    return BytesColumn(copy_of(gap.join(values)), starts, lengths, origin=origin)


def test_items() -> None:
    """D-02: null is None, empty is b""."""
    values = column()
    assert [values[i] for i in range(5)] == VALUES
    assert values[-1] == b"gamma"
    assert values[np.int64(2)] == b"beta"
    assert list(values) == values.to_list() == VALUES
    for row in (5, -6):
        with pytest.raises(IndexError):
            values[row]


def test_arrays() -> None:
    values = column()
    assert len(values) == 5
    assert values.data.tobytes() == DATA
    assert values.starts.tolist() == [2, 0, 8, 0, 14]
    assert values.lengths.tolist() == [5, -1, 4, 0, 5]
    assert values.offsets.tolist() == [10, 11, 15, 16, 20]
    assert values.is_null.tolist() == [False, True, False, False, False]
    assert values.null_count == 1
    assert values.nbytes == 14
    assert repr(values) == "<BytesColumn n=5 nulls=1 nbytes=14 [alpha, null, beta, , gamma]>"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        (slice(1, 3), [None, b"beta"]),
        (slice(None, None, 2), [b"alpha", b"beta", b"gamma"]),
        (slice(None, None, -1), VALUES[::-1]),
        (slice(9, 12), []),
        ([4, 0, 0], [b"gamma", b"alpha", b"alpha"]),
        ([-1], [b"gamma"]),
        ([], []),
        (np.array([True, False, False, True, False]), [b"alpha", b""]),
        (np.array([2, 1], np.uint8), [b"beta", None]),
    ],
)
def test_selection_shares_the_memory(rows: Any, expected: list[bytes | None]) -> None:
    values = column()
    before = live_count()
    for chosen in (values[rows], values.select(rows)):
        assert chosen.to_list() == expected
        assert chosen.data.ctypes.data == values.data.ctypes.data
        assert len(chosen.offsets) == len(expected)
        assert chosen.select(slice(None)).to_list() == expected
    assert live_count() == before


@pytest.mark.parametrize(
    "rows", [[5], [-6], [True, False], np.zeros((2, 2), np.int64), [0.5], ["x"], np.zeros(6, bool)]
)
def test_wrong_selections(rows: Any) -> None:
    with pytest.raises(IndexError):
        column().select(rows)


def test_compact_copies_only_what_is_there() -> None:
    values = column()[[4, 2]].compact()
    assert values.data.tobytes() == b"gammabeta"
    assert values.to_list() == [b"gamma", b"beta"]
    assert values.offsets.tolist() == [20, 15]


def test_concat() -> None:
    joined = BytesColumn.concat([column(), column()[1:3]])
    assert joined.to_list() == [*VALUES, None, b"beta"]
    assert joined.offsets.tolist() == [10, 11, 15, 16, 20, 11, 15]
    anonymous = BytesColumn.concat([column(), BytesColumn.from_values([b"x", None])])
    assert anonymous.to_list() == [*VALUES, b"x", None]
    assert anonymous.offsets.tolist() == list(range(7))


def test_from_values() -> None:
    assert BytesColumn.from_values(VALUES).to_list() == VALUES
    assert BytesColumn.from_values([]).to_list() == []


def test_everything_is_read_only() -> None:
    """D-25: what a column gives out cannot be written to."""
    values = column()
    arrays = [
        values.data,
        values.starts,
        values.lengths,
        values.is_null,
        values.to_numpy(),
        values.to_numpy("S"),
        values[[0, 2]].lengths,
        fixed([b"abcd", b"efgh"]).view("<i4"),
        fixed([b"abcd", b"efgh"], b"").view("<i4"),
    ]
    for array in arrays:
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[1]
    with pytest.raises(ValueError, match="WRITEABLE"):
        values.data.flags.writeable = True


def test_arrays_outlive_the_column() -> None:
    """D-25: every array keeps the memory it shows alive."""
    values = fixed([b"abcd", b"efgh"], b"")
    kept = [values.data, values.view("S4"), values[1:].data, values.starts]
    del values
    gc.collect()
    junk = [copy_of(b"\xff" * 8) for _ in range(100)]
    assert kept[0].tobytes() == b"abcdefgh"
    assert kept[1].tolist() == [b"abcd", b"efgh"]
    assert kept[2].tobytes() == b"abcdefgh"
    assert kept[3].tolist() == [0, 4]
    del junk


def test_to_numpy() -> None:
    values = column()
    objects = values.to_numpy()
    assert objects.dtype == object
    assert objects.tolist() == VALUES
    padded = values.to_numpy("S")
    assert padded.dtype == "S5"
    assert padded.tolist() == [b"alpha", b"", b"beta", b"", b"gamma"]
    assert values.to_numpy("S7").dtype == "S7"
    assert values[[3, 1]].to_numpy("S").dtype == "S1"
    assert np.asarray(values).tolist() == VALUES
    with pytest.raises(DeserializationError, match=r"orders-3 offset 10: value has 5 bytes"):
        values.to_numpy("S4")


def test_to_numpy_strings() -> None:
    string = np.dtypes.StringDType
    texts = column().to_numpy(string())
    assert texts.tolist() == ["alpha", None, "beta", "", "gamma"]
    assert column()[[0, 2]].to_numpy(string).tolist() == ["alpha", "beta"]
    bad = BytesColumn.from_values([b"x", b"\xff"])
    with pytest.raises(DeserializationError, match="row 1: value is not UTF-8"):
        bad.to_numpy(string())


def test_strings_need_numpy_2(monkeypatch: pytest.MonkeyPatch) -> None:
    """E-11: a missing feature says what is needed."""
    string = np.dtypes.StringDType()
    monkeypatch.delattr(np.dtypes, "StringDType")
    with pytest.raises(MissingDependencyError, match="StringDType needs NumPy 2"):
        column().to_numpy(string)


@pytest.mark.parametrize("gap", [b"", b"#"])
@pytest.mark.parametrize("dtype", ["<i4", ">i4", "S4", "V4", [("a", "<u2"), ("b", ">u2")]])
def test_view(gap: bytes, dtype: Any) -> None:
    raw = [b"abcd", b"efgh", b"ijkl"]
    values = fixed(raw, gap).view(dtype)
    assert values.dtype == np.dtype(dtype)
    assert values.tobytes() == b"".join(raw)
    assert fixed(raw, gap).to_numpy(np.dtype(">u4")).tobytes() == b"".join(raw)


def test_view_of_contiguous_values_is_no_copy() -> None:
    values = fixed([b"abcd", b"efgh", b"ijkl"], b"")
    assert values.view("<i4").ctypes.data == values.data.ctypes.data
    assert values[1:].view("<i4").ctypes.data == values.data.ctypes.data + 4
    assert fixed([b"abcd", b"efgh"]).compact().view("S4").tolist() == [b"abcd", b"efgh"]


def test_view_of_nothing() -> None:
    assert column()[:0].view("<f8").shape == (0,)


def test_view_names_the_first_offset_that_differs() -> None:
    """E-08: topic, partition, offset and bytes of the record are in the error."""
    with pytest.raises(DeserializationError) as caught:
        column()[[0, 4, 2, 1]].view("S5")
    assert str(caught.value) == "orders-3 offset 15: value has 4 bytes, a view as |S5 needs 5"
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("orders", 3, 15)
    assert caught.value.value_bytes == b"beta"
    with pytest.raises(DeserializationError, match="offset 11: value is null"):
        column()[[0, 1]].view("S5")
    with pytest.raises(TypeError):
        column().view(object)


def test_to_arrow_copies_once() -> None:
    array = column().to_arrow()
    array.validate(full=True)
    assert array.type == pa.binary()
    assert array.to_pylist() == VALUES
    assert array.null_count == 1


def test_to_arrow_views_share_the_memory() -> None:
    values = BytesColumn.from_values([b"short", None, b"longer than twelve bytes"]).compact()
    array = values.to_arrow(view=True)
    array.validate(full=True)
    assert array.type == pa.binary_view()
    assert array.to_pylist() == values.to_list()
    assert array.buffers()[2].address == values.data.ctypes.data
    del values
    gc.collect()
    assert array.to_pylist() == [b"short", None, b"longer than twelve bytes"]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary_view()], ids=["binary", "large", "view"]
)
def test_arrow_may_ask_for_a_layout(kind: pa.DataType) -> None:
    array = pa.array(column(), kind)
    assert array.type == kind
    assert array.to_pylist() == VALUES


def test_pyarrow_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """E-11: the error names what to install."""
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError) as caught:
        column().to_arrow()
    assert str(caught.value) == 'to_arrow() needs pyarrow\ntry: pip install "kfast[arrow]"'


def test_arrays_must_fit_together() -> None:
    with pytest.raises(ValueError, match="differ in length"):
        BytesColumn(b"", np.zeros(2, np.int32), np.zeros(1, np.int32))


def test_wide_starts_are_recognised_by_their_size() -> None:
    starts = copy_of(np.array([2, 8], np.int64).tobytes())
    lengths = copy_of(np.array([5, 4], np.int32).tobytes())
    values = BytesColumn(copy_of(DATA), starts, lengths)
    assert values.starts.dtype == np.int64
    assert values.to_list() == [b"alpha", b"beta"]


# --- comparison -----------------------------------------------------------------------------------


def test_comparison_gives_a_mask() -> None:
    """B-11: a column compares row by row, and a null neither equals a value nor differs from it."""
    values = column()
    assert (values == b"beta").tolist() == [False, False, True, False, False]
    assert (values == bytearray(b"beta")).tolist() == (values == b"beta").tolist()
    assert (values == b"").tolist() == [False, False, False, True, False]
    assert (values == b"bet").tolist() == [False] * 5
    assert (values != b"beta").tolist() == [True, False, False, True, True]
    assert (values == b"beta").dtype == (values != b"beta").dtype == np.bool_
    assert values[values == b"beta"].to_list() == [b"beta"]
    assert (values[:0] == b"beta").tolist() == []


def test_isin_gives_a_mask() -> None:
    """B-11: membership in a few or in many values; None stands for null."""
    values = column()
    assert values.isin([b"gamma", b"alpha", b"alpha"]).tolist() == [True, False, False, False, True]
    assert values.isin([b"", None]).tolist() == [False, True, False, True, False]
    assert values.isin([]).tolist() == [False] * 5
    numbers = [b"%d" % number for number in range(3_000)]
    many = BytesColumn.from_values(numbers)
    wanted = [*numbers[::7], b"x", b"30000", b""]
    assert np.flatnonzero(many.isin(wanted)).tolist() == list(range(0, 3_000, 7))


@pytest.mark.parametrize("value", ["beta", None, 3, [b"beta"]])
def test_comparison_with_another_type_is_refused(value: Any) -> None:
    """B-11: a mistaken type raises instead of giving False, which would select nothing or row 0."""
    for compare in (column().__eq__, column().__ne__):
        with pytest.raises(TypeError, match="a BytesColumn compares with bytes, not"):
            compare(value)
    with pytest.raises(TypeError, match="compares with bytes, not int"):
        column().isin(b"beta")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="unhashable"):
        hash(column())


@pytest.mark.parametrize("row", [True, False, np.True_, np.False_])
def test_a_bool_is_not_a_row_number(row: Any) -> None:
    """B-11: the result of a comparison that gave one bool does not select row 0 or 1."""
    for choose in (column().__getitem__, column().select):
        with pytest.raises(TypeError, match="is neither a row number nor a mask"):
            choose(row)
