"""Texts of typed columns: what each kind is as JSON and as a cell, at its limits."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any

import numpy as np
import pytest

from kfast._native.column_text import ColumnTexts
from kfast.columns.column_data import ColumnData
from kfast.columns.column_text import text_source
from kfast.schemas.types import DataType, Kind, SchemaField
from tests.unit.records.typed_samples import typed

MAX64 = (1 << 63) - 1


def node_of(data_type: DataType, data: Any) -> ColumnData:
    """Return a column of fixed width over its memory."""
    return ColumnData(SchemaField("", data_type), len(data), data=data)


def texts_of(node: ColumnData, *, is_json: bool = True) -> list[str | None]:
    """Return the texts of all rows."""
    texts = ColumnTexts(is_json=is_json)
    texts.write(text_source(node))
    found = [texts[row] for row in range(len(texts))]
    return [None if text is None else text.decode() for text in found]


def both(schema: object, *rows: Any) -> list[tuple[str | None, str | None]]:
    """Return JSON and cell of some rows."""
    node = typed({"v": schema}, [{"v": row} for row in rows]).member("v")
    return [*zip(texts_of(node), texts_of(node, is_json=False), strict=True)]


def test_integers_have_all_digits() -> None:
    """CL-200"""
    assert both("int64", MAX64, -MAX64 - 1, 0) == [
        (str(MAX64), str(MAX64)),
        (str(-MAX64 - 1), str(-MAX64 - 1)),
        ("0", "0"),
    ]
    assert both("uint64", (1 << 64) - 1) == [(str((1 << 64) - 1),) * 2]
    assert both("uint32", (1 << 32) - 1) == [("4294967295",) * 2]
    assert both("int8", -128) == [("-128",) * 2]


@pytest.mark.parametrize(
    ("number", "json_text", "cell"),
    [
        (1877.67, "1877.67", "1877.67"),
        (0.1, "0.1", "0.1"),
        (-0.0, "-0.0", "-0.0"),
        (0.0, "0.0", "0.0"),
        (1e-4, "0.0001", "0.0001"),
        (9.9e-5, "9.9e-05", "9.9e-05"),
        (123456789012345.0, "123456789012345.0", "123456789012345.0"),
        (999999999999999.9, "999999999999999.9", "999999999999999.9"),
        (1e16, "1e+16", "1e+16"),
        (0.30000000000000004, "0.30000000000000004", "0.30000000000000004"),
        (2.5e-308, "2.5e-308", "2.5e-308"),
        (float("nan"), '"NaN"', "NaN"),
        (float("-inf"), '"-Infinity"', "-Infinity"),
    ],
)
def test_floats_are_the_fewest_digits(number: float, json_text: str, cell: str) -> None:
    """CL-200: every text is JSON."""
    assert both("float64", number) == [(json_text, cell)]


def test_floats_of_four_bytes() -> None:
    """CL-200"""
    assert both("float32", 0.1, 16777216.0, 1.5e-45, 0.333333343267) == [
        ("0.1", "0.1"),
        ("16777216.0", "16777216.0"),
        ("1e-45", "1e-45"),
        ("0.33333334", "0.33333334"),
    ]


@pytest.mark.parametrize("precision", [38, 76])
def test_decimals_have_all_their_digits(precision: int) -> None:
    """CL-200"""
    kind = Kind.DECIMAL128 if precision == 38 else Kind.DECIMAL256
    most = 10**precision - 1
    numbers = [most, -most, 0, 1, -1, 10**9, -(10**18), 999_999_999, 1_000_000_001]
    width = 16 if precision == 38 else 32
    data = np.frombuffer(
        b"".join(each.to_bytes(width, "little", signed=True) for each in numbers), f"V{width}"
    )
    for scale in (0, 2, precision, -3):
        node = node_of(DataType(kind, precision=precision, scale=scale), data)
        context = Context(prec=200)
        expected = [f"{Decimal(each).scaleb(-scale, context):f}" for each in numbers]
        assert texts_of(node) == expected


def test_times_are_those_of_rfc_3339() -> None:
    """CL-201: with the digits of their unit; what has no date of four digits is a number."""
    assert both("timestamp[ms, UTC]", 1_732_000_000_031, -1) == [
        ('"2024-11-19T07:06:40.031Z"', "2024-11-19T07:06:40.031Z"),
        ('"1969-12-31T23:59:59.999Z"', "1969-12-31T23:59:59.999Z"),
    ]
    assert both("timestamp[ns]", 1) == [
        ('"1970-01-01T00:00:00.000000001"', "1970-01-01T00:00:00.000000001")
    ]
    limits = (-62_167_219_200, 253_402_300_799)
    assert [text for text, _ in both("timestamp[s, UTC]", *limits)] == [
        '"0000-01-01T00:00:00Z"',
        '"9999-12-31T23:59:59Z"',
    ]
    outside = (limits[0] - 1, limits[1] + 1, MAX64)
    assert [text for text, _ in both("timestamp[s]", *outside)] == list(map(str, outside))
    assert both("date32", -719_528, 20_000, 2_932_896, 2_932_897)[0][0] == '"0000-01-01"'
    assert both("date32", 20_000, 2_932_897) == [
        ('"2024-10-04"', "2024-10-04"),
        ("2932897", "2932897"),
    ]
    assert both("time32[ms]", 86_399_999, 86_400_000, -1) == [
        ('"23:59:59.999"', "23:59:59.999"),
        ("86400000", "86400000"),
        ("-1", "-1"),
    ]
    assert both("duration[us]", -1_500_000) == [("-1500000", "-1500000")]


def test_text_and_bytes() -> None:
    """CL-202: JSON has strings with its own escapes, cells the text as it is."""
    text = 'a"b\\c\n\x00\x7fé\u2028\U0001f600'
    assert both("string", text, "", None) == [
        ('"a\\"b\\\\c\\n\\u0000\x7fé\u2028\U0001f600"', text),
        ('""', ""),
        (None, None),
    ]
    assert both("dictionary", "x", "y", "x", None) == [
        ('"x"', "x"),
        ('"y"', "y"),
        ('"x"', "x"),
        (None, None),
    ]
    assert both("binary", b"\x00\xff", b"") == [('"AP8="', "AP8="), ('""', "")]
    name = "0e0f1f2f-0000-4000-8000-1234567890ab"
    assert both("uuid", name) == [(f'"{name}"', name)]


def test_nested_values_are_json_in_cells_too() -> None:
    """CL-202"""
    schema = {"a": "int64", 'b"\n': ["string"], "m": "map<string, float64>"}
    row = {"a": None, 'b"\n': ["x", None], "m": [("k", 1.5), ("é", None)]}
    text = '{"a":null,"b\\"\\n":["x",null],"m":{"k":1.5,"é":null}}'
    assert both(schema, row, None) == [(text, text), (None, None)]
    keys = DataType(
        Kind.MAP,
        fields=(
            SchemaField("key", DataType(Kind.INT32), False),
            SchemaField("value", DataType(Kind.BOOL)),
        ),
    )
    node = typed(SchemaField("", keys), [[(-1, True), (2, None)], []]).node
    assert texts_of(node) == ['{"-1":true,"2":null}', "{}"]


def test_raw_json_is_compact_and_always_json() -> None:
    """CL-202: a decoder does not look at how numbers of such parts are spelled."""
    field = SchemaField("", DataType(Kind.RAW, is_json=True))
    raw = b'{"b" : [1.50,\n "x y"]}' + b"01"
    node = ColumnData(
        field,
        2,
        data=np.frombuffer(raw, np.uint8),
        offsets=np.array([0, len(raw) - 2, len(raw)], np.int32),
    )
    assert texts_of(node) == ['{"b":[1.50,"x y"]}', '"01"']
    assert texts_of(node, is_json=False) == ['{"b":[1.50,"x y"]}', "01"]


def test_memory_is_used_again_and_given_back() -> None:
    """CL-203: one object has the texts of one column after the other."""
    texts = ColumnTexts(is_json=True)
    for rows in (["x" * (9 << 20)], ["y"] * 1000, []):
        texts.write(text_source(typed({"v": "string"}, [{"v": row} for row in rows]).member("v")))
        assert len(texts) == len(rows)
        assert [texts[row] for row in range(len(rows))] == [f'"{row}"'.encode() for row in rows]
    with pytest.raises(IndexError):
        texts[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({4: 100}, "bytes for 100 rows"),
        ({5: b""}, "0 bytes of validity for 2 rows"),
        ({6: b"1234"}, "4 bytes for 2 rows of 8"),
        ({1: 77}, "77 digits"),
    ],
)
def test_memory_that_is_too_small_is_refused(change: dict[int, Any], message: str) -> None:
    """CL-203"""
    source = [*text_source(typed({"v": "int64"}, [{"v": 1}, {"v": 2}]).member("v"))]
    for place, value in change.items():
        source[place] = value
    with pytest.raises(ValueError, match=message):
        ColumnTexts(is_json=True).write(tuple(source))
