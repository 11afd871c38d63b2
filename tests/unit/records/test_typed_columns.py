"""Typed columns: values, arrays, selection, joining, memory, pickles, comparison."""

from __future__ import annotations

import datetime as dt
import gc
import pickle
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from kfast._native import buffers
from kfast.columns.arrow import ArrowColumn
from kfast.columns.bytes import BytesColumn
from kfast.columns.operations import concat_values, values_column
from kfast.columns.text import StringColumn
from kfast.columns.typed import DecimalColumn, DictionaryColumn, ListColumn, MapColumn, StructColumn
from kfast.columns.uuid import UuidColumn
from kfast.errors import ConfigurationError
from kfast.schemas.schema import Schema
from tests.unit.records.typed_samples import typed

UTC = dt.UTC
ORDERS: dict[str, Any] = {
    "id": "int64 not null",
    "price": "float64",
    "user": "string",
    "side": "dictionary",
    "lines": [{"sku": "string", "qty": "int32 not null"}],
    "tags": {str: "int64"},
    "at": {"x": "int32", "deep": {"y": "string"}},
}


def order(number: int, **given: Any) -> dict[str, Any]:
    row = {
        "id": number,
        "price": number / 2,
        "user": f"user {number}",
        "side": "buy" if number % 2 else "sell",
        "lines": [{"sku": "a" * number, "qty": n} for n in range(number % 3)],
        "tags": {"k": number},
        "at": {"x": number, "deep": {"y": "ü"}},
    }
    return row | given


ROWS: list[Any] = [
    order(1),
    None,
    order(2, lines=None, tags=None, price=None, user=None),
    order(3, at=None, side=None),
    order(5, lines=[None, {"sku": None, "qty": 7}], tags={}, at={"x": None, "deep": None}),
]


@pytest.fixture
def orders() -> Any:
    return typed(ORDERS, ROWS)


# ------------------------------------------------------------------------------------------- values


def test_a_struct_column_is_a_sequence_of_dicts_with_named_columns(orders: StructColumn) -> None:
    """TC-38: one row per record; a null row is null itself, and so are its members."""
    assert orders.to_list() == ROWS
    assert list(orders) == ROWS
    assert [orders[i] for i in range(-5, 5)] == ROWS * 2
    assert orders.is_null.tolist() == [False, True, False, False, False]
    assert orders.null_count == 1
    assert orders.names == tuple(ORDERS)
    assert "price" in orders
    assert "at.deep.y" in orders
    assert "at.z" not in orders
    assert 3 not in orders
    # Not nullable, and yet a tombstone has no id.
    assert orders["id"].tolist() == [1, None, 2, 3, 5]
    assert orders["price"].tolist() == [0.5, None, None, 1.5, 2.5]
    assert orders["user"].to_list() == ["user 1", None, None, "user 3", "user 5"]
    assert orders["at.deep"]["y"].to_list() == ["ü", None, "ü", None, None]
    assert orders["at.deep.y"].to_list() == ["ü", None, "ü", None, None]
    assert orders["side"].to_list() == ["buy", None, "sell", None, "buy"]


def test_kinds_of_columns(orders: StructColumn) -> None:
    kinds = {name: type(orders[name]) for name in orders.names}
    assert kinds == {
        "id": np.ma.MaskedArray,
        "price": np.ma.MaskedArray,
        "user": StringColumn,
        "side": DictionaryColumn,
        "lines": ListColumn,
        "tags": MapColumn,
        "at": StructColumn,
    }


def test_numbers_are_the_decoders_memory() -> None:
    """TC-39: numbers are arrays over the decoder's memory: not copied, read-only, kept alive."""
    column = typed({"n": "int64"}, [{"n": i} for i in range(1000)])
    values = column["n"]
    assert type(values) is np.ndarray
    assert values.base is not None
    assert not values.flags.writeable
    with pytest.raises(ValueError, match=r"WRITEABLE|read-only"):
        values.flags.writeable = True
    before = buffers.live_count()
    del column
    gc.collect()
    assert values.sum() == 499_500
    del values
    gc.collect()
    assert buffers.live_count() < before


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("bool", [True, False, None]),
        ("int8", [-128, 127, None]),
        ("uint64", [2**64 - 1, 0, None]),
        ("int64", [2**53 + 1, -(2**63), None]),
        ("float32", [1.5, None]),
        ("float64", [0.1, -0.0, None]),
        ("string", ["", "a\x00b", "ü", None]),
        ("binary", [b"", b"\xff\x00", None]),
        ("date32", [dt.date(1970, 1, 1), dt.date(1, 1, 1), None]),
        ("time32[s]", [dt.time(23, 59, 59), None]),
        ("time32[ms]", [dt.time(0, 0, 0, 1000), None]),
        ("time64[us]", [dt.time(1, 2, 3, 4), None]),
        ("time64[ns]", [1, 86_400_000_000_000 - 1, None]),
        ("timestamp[s]", [dt.datetime(2026, 1, 2), None]),
        ("timestamp[ms, UTC]", [dt.datetime(2026, 1, 2, 3, 4, 5, 6000, UTC), None]),
        ("timestamp[us, UTC]", [dt.datetime(1969, 1, 2, 3, 4, 5, 6, UTC), None]),
        ("timestamp[us]", [dt.datetime(2026, 1, 2, 3, 4, 5, 6), None]),
        ("timestamp[ns, UTC]", [2**62, None]),
        ("timestamp[s]", [2**60, None]),
        ("duration[us]", [dt.timedelta(days=-1, microseconds=5), None]),
        ("duration[ns]", [7, None]),
        ("decimal128(38, 4)", [Decimal("-1.5000"), Decimal(10) ** 33, None]),
        ("decimal256(76, 0)", [Decimal(10**75), Decimal(-1), None]),
        ("uuid", [UUID(int=2**127 + 5), None]),
        ("dictionary", ["a", "", "a", None]),
        (["int32"], [[1, None], [], None]),
        (["string"], [["a", None, ""], [], None]),
        ([["int8"]], [[[1], []], None]),
        ({str: "string"}, [{"a": None, "b": "c"}, {}, None]),
        ({str: {"x": "int8"}}, [{"a": None, "b": {"x": 1}}, None]),
    ],
)
def test_values_of_each_kind(kind: object, values: list[Any]) -> None:
    """TC-40: values come out as Python's own, aware where the column is UTC, exact everywhere."""
    column = typed({"v": kind}, [{"v": value} for value in values])
    assert [row["v"] for row in column.to_list()] == values
    assert [type(row["v"]) for row in column.to_list()] == [type(value) for value in values]
    assert len(column["v"]) == len(values)
    root = typed(kind, values)
    assert len(root) == len(values)
    if not isinstance(root, np.ndarray):
        assert root.to_list() == values
        assert root.null_count == 1
    table = pa.array(column)
    table.validate(full=True)
    exported = table.field("v")
    if isinstance(kind, str) and ("ns" in kind or kind == "timestamp[s]"):
        exported = exported.cast(pa.int64())
        if isinstance(values[0], dt.datetime):
            values[0] = values[0].replace(tzinfo=UTC).timestamp()
    got = exported.to_pylist()
    if isinstance(kind, dict):
        got = [None if row is None else dict(row) for row in got]
    assert got == values


def test_arrays_of_times() -> None:
    column = typed(
        {"t": "timestamp[ms, UTC]", "d": "date32", "w": "time32[s]", "l": "duration[us]"},
        [{"t": 5, "d": 3, "w": 7, "l": 9}],
    )
    assert column["t"].dtype == "M8[ms]"
    assert column["d"].tolist() == [dt.date(1970, 1, 4)]
    assert column["w"].dtype == "m8[s]"
    assert column["l"].astype(int).tolist() == [9]


def test_lists_and_maps_are_offsets_and_flat_columns(orders: StructColumn) -> None:
    """TC-41: elements of all rows are one column, and offsets cut it."""
    lines, tags = orders["lines"], orders["tags"]
    assert lines.offsets.tolist() == [0, 1, 1, 1, 1, 3]
    assert lines.lengths.tolist() == [1, 0, 0, 0, 2]
    assert lines.items["qty"].tolist() == [0, None, 7]
    assert lines[2:].offsets.tolist() == [0, 0, 0, 2]
    assert lines[2:].items["sku"].to_list() == [None, None]
    assert tags.keys.to_list() == ["k", "k"]
    assert tags.values.tolist() == [1, 3]
    assert tags[3:].keys.to_list() == ["k"]
    assert tags[3:].values.tolist() == [3]
    assert tags.lengths.tolist() == [1, 0, 0, 1, 0]


def test_dictionaries_and_decimals() -> None:
    sides = typed("dictionary", ["buy", None, "sell", "buy"])
    assert sides.indices.tolist() == [0, 0, 1, 0]
    assert sides.categories == ["buy", "sell"]
    assert (sides == "buy").tolist() == [True, False, False, True]
    assert (sides != "buy").tolist() == [False, False, True, False]
    with pytest.raises(TypeError, match="compares with str"):
        _ = sides == 1
    prices = typed("decimal128(9, 2)", [Decimal("1.25"), None, Decimal("-0.01")])
    assert isinstance(prices, DecimalColumn)
    assert (prices.precision, prices.scale) == (9, 2)
    assert prices.unscaled.view(np.int64)[:, 0].tolist() == [125, 0, -1]
    assert prices.unscaled.shape == (3, 2)
    assert prices.to_numpy("float64").tolist() == [1.25, None, -0.01]
    assert prices.to_numpy().tolist() == [Decimal("1.25"), None, Decimal("-0.01")]


def test_raw_parts_are_text_or_bytes() -> None:
    column = typed("raw", [b'{"a":1}', None])
    assert isinstance(column, BytesColumn | StringColumn)
    assert column.null_count == 1


def test_names_win_over_paths_and_several_make_a_struct() -> None:
    column = typed({"a": {"b": "int8"}, "a.b": "string"}, [{"a": {"b": 1}, "a.b": "x"}, None])
    assert column["a.b"].to_list() == ["x", None]
    both = column["a", "a.b"]
    assert both.names == ("a", "a.b")
    assert both.to_list() == [{"a": {"b": 1}, "a.b": "x"}, None]
    with pytest.raises(KeyError, match=r'no column "c" in a, a\.b; did you mean "a"'):
        column["c"]


# --------------------------------------------------------------------------------- rows and memory

SELECTIONS: list[Any] = [
    slice(1, 4),
    slice(0, 0),
    slice(3, 1),
    slice(None, None, -1),
    slice(None, None, 2),
    np.array([True, False, True, False, True]),
    [4, 4, -5, 1],
    [],
]


@pytest.mark.parametrize("rows", SELECTIONS, ids=str)
def test_any_selection_of_rows(orders: StructColumn, rows: Any) -> None:
    """TC-42: slices, masks, row numbers, joins, copies and pickles of typed columns."""
    expected = np.array([*ROWS, None], object)[:-1][rows].tolist()
    for chosen in (orders[rows], orders[rows].compact(), pickle.loads(pickle.dumps(orders[rows]))):
        assert chosen.to_list() == expected
        pa.array(chosen).validate(full=True)
        assert chosen["lines"].to_list() == [row and row["lines"] for row in expected]
    assert orders[rows] == typed(ORDERS, expected)


def test_joined_columns_have_one_dictionary(orders: StructColumn) -> None:
    joined: Any = concat_values([orders[2:], typed(ORDERS, [order(4, side="hold")]), orders[:2]])
    assert joined.to_list() == [*ROWS[2:], order(4, side="hold"), *ROWS[:2]]
    assert sorted(joined["side"].categories) == ["buy", "hold", "sell"]
    pa.array(joined).validate(full=True)
    with pytest.raises(ConfigurationError, match="two schemas"):
        concat_values([orders, typed({"a": "int8"}, [None])])


def test_memory_that_is_kept_alive_is_counted_and_compact_reduces_it() -> None:
    column = typed({"n": "int64", "t": "string"}, [{"n": i, "t": "x" * 50} for i in range(5000)])
    part = column[10:12]
    assert part.pinned_nbytes >= 5000 * 58
    assert part.compact().pinned_nbytes < 4096
    assert part.nbytes < 200
    assert column.nbytes >= 5000 * 58
    assert len(pickle.dumps(part)) < 5000


def test_pickles_with_buffers_out_of_band(orders: StructColumn) -> None:
    found: list[pickle.PickleBuffer] = []
    raw = pickle.dumps(orders, protocol=5, buffer_callback=found.append)
    copies = [bytearray(b"#" + bytes(part.raw())) for part in found]
    back = pickle.loads(raw, buffers=[memoryview(part)[1:] for part in copies])
    assert back == orders
    assert back.schema == Schema(ORDERS)


def test_comparison_with_a_value_and_with_a_column(orders: StructColumn) -> None:
    assert (orders == ROWS[0]).tolist() == [True, False, False, False, False]
    assert (orders != ROWS[0]).tolist() == [False, False, True, True, True]
    assert (orders["lines"] == []).tolist() == [False] * 3 + [True, False]
    assert orders == orders[:]
    assert orders[:2] != orders[1:3]
    with pytest.raises(TypeError, match="unhashable"):
        hash(orders)


def test_repr_has_type_rows_nulls_and_the_first_rows(orders: StructColumn) -> None:
    text = repr(orders)
    assert text.startswith("<StructColumn struct<id: int64 not null, price")
    assert "n=5 nulls=1 [{'id': 1" in text
    assert text.endswith(", …]>")
    assert repr(typed(["int8"], [[1], None])) == "<ListColumn list<int8> n=2 nulls=1 [[1], null]>"


def test_structs_of_fixed_width_become_a_structured_array() -> None:
    column = typed({"n": "int64", "t": "timestamp[ms]"}, [{"n": 1, "t": 5}, {"n": 2, "t": 6}])
    array = column.to_numpy()
    assert array.dtype.names == ("n", "t")
    assert array["n"].tolist() == [1, 2]
    assert not array.flags.writeable
    nulls = typed({"n": "int64 not null"}, [{"n": 1}, None]).to_numpy()
    assert nulls["n"].tolist() == [1, None]
    assert column.to_numpy(object).tolist() == column.to_list()
    assert typed({"s": "string"}, [{"s": "x"}]).to_numpy().tolist() == [{"s": "x"}]
    with pytest.raises(TypeError, match="cannot be converted"):
        column.to_numpy("i8")


# -------------------------------------------------------------------------------------------- Arrow


def test_arrow_has_the_schemas_names_types_and_nullability(orders: StructColumn) -> None:
    """TC-43: Arrow columns are valid, named and nullable as the schema says, and not copied."""
    array = pa.array(orders)
    array.validate(full=True)
    field = array.type
    assert str(field.field("id")) == "pyarrow.Field<id: int64 not null>"
    assert field.field("side").type == pa.dictionary(pa.int32(), pa.string())
    lines = field.field("lines").type
    assert lines.value_field.name == "item"
    assert not lines.value_type.field("qty").nullable
    assert field.field("tags").type == pa.map_(pa.string(), pa.int64())
    assert array.to_pylist() == [
        None
        if row is None
        else row | {"tags": row["tags"] if row["tags"] is None else list(row["tags"].items())}
        for row in ROWS
    ]
    assert array.field("price").buffers()[1].address == orders.node.children[1].data.ctypes.data
    assert pa.schema(orders.schema) == pa.schema(list(field))
    assert pa.field(orders).type == field


def test_extension_types_of_arrow() -> None:
    column = typed({"u": "uuid", "t": "timestamp[us, UTC]"}, [{"u": UUID(int=1), "t": 1}, None])
    array = pa.array(column)
    assert array.type.field("u").type == pa.uuid()
    assert array.type.field("t").type == pa.timestamp("us", "UTC")
    assert isinstance(column["u"], UuidColumn)
    assert pa.array(column["u"]).to_pylist() == [UUID(int=1), None]


@pytest.mark.parametrize("wanted", [pa.string(), pa.large_string(), pa.string_view()])
def test_requested_forms_of_text(wanted: pa.DataType) -> None:
    column = typed({"s": "string"}, [{"s": "x" * n} for n in range(20)] + [None])
    kind = pa.struct([pa.field("s", wanted)])
    capsule = kind.__arrow_c_schema__()
    array = pa.array(column[3:], type=kind) if capsule is None else _imported(column[3:], capsule)
    array.validate(full=True)
    assert array.type.field("s").type == wanted
    assert array.field("s").to_pylist() == ["x" * n for n in range(3, 20)] + [None]
    text = column["s"]
    assert pa.array(text, type=wanted).to_pylist() == text.to_list()
    assert pa.array(text[2:5]).buffers()[2].address == text.raw.data.ctypes.data


def _imported(column: Any, capsule: Any) -> pa.Array:
    return pa.Array._import_from_c_capsule(*column.__arrow_c_array__(capsule))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("timestamp[ms, UTC]", dt.datetime(2026, 1, 2, 3, 4, 5, 6000, UTC)),
        ("time32[s]", dt.time(1, 2, 3)),
        ("time64[us]", dt.time(1, 2, 3, 4)),
        ("date32", dt.date(2026, 1, 2)),
        ("duration[ms]", dt.timedelta(seconds=1)),
        ("timestamp[us]", dt.datetime(2026, 1, 2)),
    ],
)
def test_times_that_are_the_whole_value_keep_their_type_in_arrow(kind: str, value: Any) -> None:
    """TC-43: a root that is an array says UTC, and time of day, as a member does."""
    member = pa.array(typed({"v": kind}, [{"v": value}])).type.field("v").type
    root = typed(kind, [value, None])
    for column in (root, root[:1], concat_values([root, root]), pickle.loads(pickle.dumps(root))):
        made = ArrowColumn(*values_column("value", column))
        array = pa.Array._import_from_c_capsule(*made.capsules())
        assert array.type == member
        assert array.to_pylist()[0] == value


def test_large_types_where_the_schema_wants_them() -> None:
    column = typed(pa.schema([("s", pa.large_string()), ("l", pa.large_list(pa.int8()))]), [])
    assert pa.array(column).type.field("s").type == pa.large_string()
    full = typed(pa.schema([("l", pa.large_list(pa.int8()))]), [{"l": [1, 2]}])
    array = pa.array(full)
    array.validate(full=True)
    assert array.type.field("l").type == pa.large_list(pa.int8())
    assert array.to_pylist() == [{"l": [1, 2]}]
