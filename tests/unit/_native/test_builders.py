"""Column builders against a slow model: appends, nulls, rows that are rolled back, limits."""

from __future__ import annotations

import gc
import struct
from array import array
from typing import Any

import numpy as np
import pytest

from kfast._native import buffers
from kfast._native.builder_operations import build
from kfast.schemas.layout import constant_bytes, layout
from kfast.schemas.types import DataType, Kind, SchemaField
from tests.unit._native.column_model import (
    Operation,
    appends,
    list_of,
    numbers_of,
    struct_of,
    values_of,
)

INT = DataType(Kind.INT64)
BINARY = DataType(Kind.BINARY)
CODES = DataType(Kind.DICTIONARY)
NO_MEMORY, TOO_LARGE, FULL = -1, -2, -3

LINE = DataType(
    Kind.STRUCT,
    fields=(SchemaField("sku", BINARY), SchemaField("qty", INT, is_nullable=False)),
)
ORDER = struct_of(
    SchemaField("id", INT),
    list_of(LINE, "lines"),
    SchemaField("side", CODES),
    SchemaField(
        "tags",
        DataType(Kind.MAP, fields=(SchemaField("key", BINARY, False), SchemaField("value", INT))),
    ),
)
NODES = numbers_of(ORDER)


def order(number: int, lines: Any = (), side: Any = "buy", tags: Any = ()) -> dict[str, Any]:
    return {"id": number, "lines": list(lines), "side": side, "tags": list(tags)}


ROWS: list[Any] = [
    order(1, [{"sku": b"a", "qty": 2}, {"sku": None, "qty": 0}], tags=[(b"k", 1), (b"l", None)]),
    None,
    order(2, side=None),
    {"id": None, "lines": None, "side": "sell", "tags": None},
    order(-(2**63), [None], tags=[(b"", 2**63 - 1)]),
]


def rows_of(root: SchemaField, rows: list[Any]) -> list[Operation]:
    return [step for row in rows for step in (("row",), *appends(root, 0, row))]


def test_columns_have_what_was_appended() -> None:
    built, errors, results, is_full, _size = build(layout(ORDER), rows_of(ORDER, ROWS))
    assert values_of(ORDER, built) == ROWS
    assert errors is None
    assert not any(results)
    assert not is_full


def test_a_row_that_is_rolled_back_leaves_nothing_in_any_column() -> None:
    """TC-35: a bad row leaves nothing behind: lists, texts, nulls and dictionary included."""
    bad = order(9, [{"sku": b"x" * 1000, "qty": 1}] * 50, "other", [(b"z", None)])
    steps = list[Operation]()
    for row in ROWS:
        steps += rows_of(ORDER, [bad])
        # In the middle of a list whose last item has no `qty` yet.
        steps += [("struct", NODES["lines[]"]), ("null", NODES["lines[].sku"]), ("roll_back",)]
        steps += rows_of(ORDER, [row])
    built, _errors, _results, _full, _size = build(layout(ORDER), steps)
    assert values_of(ORDER, built) == ROWS
    dictionary = built[-1][2][-2]
    assert bytes(dictionary[2]) == b"buysell"


def test_a_bad_first_row_can_become_a_null() -> None:
    steps = [("row",), ("struct", 0), ("null", 1), ("roll_back",), ("null", 0)]
    built = build(layout(ORDER), steps)[0]
    assert values_of(ORDER, built) == [None]


def test_members_of_a_null_struct_that_may_not_be_null_are_zeros() -> None:
    root = struct_of(SchemaField("n", INT, False), SchemaField("d", CODES, False))
    built = build(layout(root), [("null", 0)])[0]
    number, code = built[-1]
    assert (number[2], number[3], code[2], code[3]) == (0, None, 0, None)
    assert bytes(number[4]) == bytes(8)
    assert code[6][0] == 1  # the number 0 has a text, so Arrow may have it


def test_the_last_value_is_taken_back_with_its_children() -> None:
    steps = [
        ("row",),
        ("struct", 0),
        ("null", NODES["id"]),
        *appends(ORDER.type.fields[1], NODES["lines"], [{"sku": b"old", "qty": 1}]),
        ("drop", NODES["id"]),
        ("drop", NODES["lines"]),
        *appends(ORDER, 0, order(5, [{"sku": b"new", "qty": 2}]))[1:],
    ]
    built = build(layout(ORDER), steps)[0]
    assert values_of(ORDER, built) == [order(5, [{"sku": b"new", "qty": 2}])]


def test_a_decoder_that_leaves_a_value_out_is_a_fault() -> None:
    with pytest.raises(SystemError, match="node 2 has 0 values, not 1"):
        build(layout(ORDER), [("struct", 0), ("null", 1)])


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 63, 64, 65, 1000])
def test_nulls_are_packed_into_bits(count: int) -> None:
    root = SchemaField("", INT)
    rows = [None if i % 3 == 0 else i for i in range(count)]
    assert values_of(root, build(layout(root), rows_of(root, rows))[0]) == rows


def test_texts_of_a_dictionary_are_kept_once_and_may_be_given_before() -> None:
    root = SchemaField("", CODES)
    texts = [f"text {i % 300}" for i in range(5000)]
    built = build(layout(root), rows_of(root, texts))[0]
    assert values_of(root, built) == texts
    assert built[6] is not None
    assert built[6][0] == 300
    given = [("index", 0, 1), ("text", 0, b"a"), ("text", 0, b""), ("null", 0)]
    built = build(layout(root), given, categories={0: ["a", "b"]})[0]
    assert values_of(root, built) == ["b", "a", "", None]


def test_errors_are_rows_of_sixty_four_bytes() -> None:
    steps = [("error", 2**40, 6, 3, 61, -7, [4, 5]), ("error", 1, 1, -1, 0, 0, range(20))]
    errors = build(layout(ORDER), steps)[1]
    assert errors is not None
    first, second = struct.iter_unpack("=qq4i8i", bytes(errors))
    assert first == (2**40, 61, 6, 3, -7, 2, 4, 5, 0, 0, 0, 0, 0, 0)
    assert second == (1, 0, 1, -1, 0, 8, *range(8))


# ------------------------------------------------------------------------------------------- limits


def test_a_row_over_its_limit_is_refused_and_the_next_one_is_not() -> None:
    """TC-36: one row over the limit of columns is too large; the other rows are not affected."""
    root = list_of(INT)
    good, bad = list(range(10)), list(range(2000))
    steps = [*rows_of(root, [bad]), ("roll_back",), *rows_of(root, [good])]
    built, _errors, results, _full, size = build(layout(root), steps, most_row_bytes=4096)
    assert TOO_LARGE in results
    assert values_of(root, built) == [good]
    assert size < 4 * 4096
    text = SchemaField("", BINARY)
    result = build(layout(text), [("row",), ("bytes", 0, bytes(5000))], most_row_bytes=4096)[2]
    assert result[-1] == TOO_LARGE


@pytest.mark.parametrize("rows", [1, 10_000])
def test_a_row_is_too_large_whatever_room_there_is(rows: int) -> None:
    """TC-180: the limit of a row is the same in columns that were reserved for many rows."""
    root = list_of(SchemaField("", BINARY).type)
    limit, made = 4096, [b"xyz"] * 100
    for value, is_good in ((made, True), (made * 6, False), ([b"x" * 5000], False)):
        given: list[Operation] = [*rows_of(root, [value]), ("end", 3 * len(value) + 5000)]
        results = build(
            layout(root), given, rows=rows, value_bytes=100 * rows, most_row_bytes=limit
        )[2]
        assert (TOO_LARGE not in results) is is_good, (len(value), results[-3:])


def test_no_more_memory_is_reserved_than_there_may_be() -> None:
    """TC-181: wide schemas and many rows reserve what the limit leaves, and say when it is used."""
    root = struct_of(*(SchemaField(f"n{i}", INT) for i in range(100)))
    rows = [dict.fromkeys((f"n{i}" for i in range(100)), row) for row in range(400)]
    most = 200_000
    *_rest, is_full, size = build(layout(root), [], rows=10**6, value_bytes=10**8, most_bytes=most)
    assert not is_full
    assert size <= most
    *_rest, is_full, size = build(
        layout(root), rows_of(root, rows[:250]), rows=10**6, most_bytes=most
    )
    assert is_full
    assert size < 1.3 * most
    built = build(layout(root), rows_of(root, rows), rows=10**6, most_bytes=most)[0]
    assert values_of(root, built) == rows


@pytest.mark.parametrize(
    ("root", "value"), [(list_of(INT), [1] * 60), (SchemaField("", BINARY), b"x" * 60)]
)
def test_offsets_that_are_used_up_end_the_decoding(root: SchemaField, value: Any) -> None:
    """TC-37: past 2**31 - 1 string bytes or items the rows are cut at a row's boundary."""
    steps = rows_of(root, [value, value])
    built, _errors, results, _full, _size = build(
        layout(root), [*steps, ("roll_back",)], most_items=100
    )
    assert results[-2] == FULL
    assert values_of(root, built) == [value]
    steps = [*rows_of(root, [value + value]), ("roll_back",)]
    assert build(layout(root), steps, most_items=100)[2][-2] == TOO_LARGE


def test_builders_say_when_they_have_passed_their_memory() -> None:
    root = SchemaField("", BINARY)
    rows = [b"x" * 1000] * 100
    *_rest, is_full, size = build(layout(root), rows_of(root, rows), most_bytes=50_000)
    assert is_full
    assert size >= 100_000
    assert not build(layout(root), rows_of(root, rows), most_bytes=10**6)[3]


def test_columns_like_those_before_take_the_memory_of_those_before() -> None:
    """Text that is more and less than was reserved for it, and hardly any."""
    root = struct_of(
        SchemaField("id", INT),
        SchemaField("long", BINARY),
        SchemaField("short", BINARY),
        SchemaField("flag", BINARY),
    )
    rows = 20_000
    row: list[Operation] = [("row",), ("struct", 0), ("fixed", 1, bytes(8))]
    row += [("bytes", 2, bytes(100)), ("bytes", 3, bytes(10)), ("bytes", 4, bytes(1))]
    operations = row * rows
    misses = []
    share = buffers.PoolShare(64 << 20)
    buffers.trim_pool()
    for _ in range(4):
        columns = build(layout(root), operations, rows, 400 * rows)[0]
        assert len(values_of(root, columns)) == rows
        del columns
        misses.append(buffers.pool_stats()["misses"])
    assert misses[1] == misses[2] == misses[3], misses
    del share


def test_memory_is_counted_and_given_back() -> None:
    gc.collect()
    before = buffers.live_bytes()
    root = struct_of(SchemaField("n", INT), SchemaField("b", BINARY))
    rows = [{"n": i, "b": b"abc"} for i in range(20_000)]
    built = build(layout(root), rows_of(root, rows), rows=40_000, value_bytes=10**6)[0]
    size = sum(len(part) for child in built[-1] for part in child[3:6] if part is not None)
    assert buffers.live_bytes() - before <= 1.3 * size
    del built
    assert buffers.live_bytes() == before


@pytest.mark.parametrize(
    "items",
    [
        [],
        [3, 0, 1, 0],
        [0, 8, 1, 0, 0, 8, 0, 0],
        [0, -1, 0, 0],
        [1, 4, 0, 0],
        [2, 0, 0, 0],
        [3, 0, 0, 0],
        [4, 8, 0, 0],
        [7, 0, 0, 0],
        [3, 0, 1, 0, 0, 8, 0, 0, 0, 8, 0, 0],
        [2, 0, 1, 1] * 200 + [0, 8, 0, 1],
    ],
)
def test_layouts_that_are_no_tree_are_refused(items: list[int]) -> None:
    with pytest.raises(ValueError, match=r"layout|root|levels"):
        build(array("i", items), [])


# ---------------------------------------------------------------------------------------- constants


def test_constants_are_appended_with_all_their_children() -> None:
    row = {
        "id": 7,
        "lines": [{"sku": b"a", "qty": 1}, None],
        "side": "buy",
        "tags": {b"k": 1, b"l": None},
    }
    raw = constant_bytes(ORDER, row)
    built, _errors, results, _full, _size = build(
        layout(ORDER), [("constant", 0, raw), ("constant", 0, constant_bytes(ORDER, None))] * 2
    )
    assert not any(results)
    expected = row | {"tags": [(b"k", 1), (b"l", None)]}
    assert values_of(ORDER, built) == [expected, None] * 2
    assert np.frombuffer(bytes(built[-1][0][4]), np.int64).tolist() == [7, 0, 7, 0]
