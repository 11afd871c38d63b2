"""The text formats of ``kfast read``, byte by byte."""

from __future__ import annotations

import base64
import csv
import io
import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.cli.formats import (
    DEFAULT_COLUMNS,
    Csv,
    JsonArray,
    JsonLines,
    Raw,
    Table,
    TextFormat,
    Tsv,
    check_columns,
    compact_json,
)
from kfast.errors import ConfigurationError
from tests.soaking import examples
from tests.unit.cli.records import Batch, text_of

VALUES = ("value",)


def decoded(values: Any, **more: Any) -> Batch:
    """Return a batch whose values a deserializer has made."""
    batch = Batch(0, [b""] * len(values), **more)
    batch.values = values
    return batch


# --- JSON -----------------------------------------------------------------------------------------


def test_json_lines() -> None:
    batch = Batch(3, [b'{"a":1}', b"\xff\x00", None, b"", "süß".encode()], headers=[("h", b"\xff")])
    lines = text_of(JsonLines, batch).decode().splitlines()
    assert lines[0] == (
        '{"topic":"t","partition":3,"offset":0,"timestamp":"2025-01-01T00:00:00.000Z","key":"k",'
        '"value":"{\\"a\\":1}","headers":[["h",{"base64":"/w=="}]]}'
    )
    values = [json.loads(line)["value"] for line in lines]
    assert values == ['{"a":1}', {"base64": "/wA="}, None, "", "süß"]


def test_json_keeps_the_order_of_the_columns() -> None:
    columns = ("value", "offset", "timestamp_type", "timestamp")
    text = text_of(JsonLines, Batch(0, [b"x"]), columns=columns, time="ms")
    assert text == (
        b'{"value":"x","offset":0,"timestamp_type":"CreateTime","timestamp":1735689600000}\n'
    )


def test_no_timestamp_is_null() -> None:
    batch = Batch(0, [b"x"], timestamps=[-1])
    for time in ("iso", "ms"):
        text = text_of(JsonLines, batch, columns=("timestamp",), time=time)
        assert text == b'{"timestamp":null}\n'


def test_every_byte_comes_back() -> None:
    values = [bytes([first, second]) for first in range(256) for second in (0, 0x41, 0x80, 0xFF)]
    for line, value in zip(
        text_of(JsonLines, Batch(0, values), columns=VALUES).splitlines(), values, strict=True
    ):
        cell = json.loads(line)["value"]
        back = cell.encode() if isinstance(cell, str) else base64.b64decode(cell["base64"])
        assert back == value


def test_an_array_is_json_whatever_is_in_it() -> None:
    one, none = Batch(0, [b"a", b"b"]), Batch(0, [])
    assert text_of(JsonArray, columns=VALUES) == b"[]\n"
    assert text_of(JsonArray, none, columns=VALUES) == b"[]\n"
    text = text_of(JsonArray, one, none, one, columns=VALUES)
    assert text == b'[\n{"value":"a"},\n{"value":"b"},\n{"value":"a"},\n{"value":"b"}\n]\n'


def test_kinds_of_binary() -> None:
    batch = Batch(0, [b"\x00\xff", None])
    for kind, cell in (("bytes", '{"base64":"AP8="}'), ("base64", '"AP8="'), ("hex", '"00ff"')):
        text = text_of(JsonLines, batch, columns=VALUES, value=kind).decode()
        assert text == f'{{"value":{cell}}}\n{{"value":null}}\n'


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("int64", np.array([(1 << 63) - 1, -1]), ["9223372036854775807", "-1"]),
        ("float64", np.array([0.1, 1e300, np.nan]), ["0.1", "1e+300", '"NaN"']),
        (
            "float32",
            np.array([0.1, np.inf, -np.inf, 3e38], np.float32),
            ["0.1", '"Infinity"', '"-Infinity"', "3e+38"],
        ),
        ("int32", np.ma.MaskedArray([1, 2], [False, True]), ["1", "null"]),
    ],
)
def test_numbers_are_json(kind: str, values: Any, expected: list[str]) -> None:
    text = text_of(JsonLines, decoded(values), columns=VALUES, value=kind).decode()
    assert text == "".join(f'{{"value":{cell}}}\n' for cell in expected)
    for line in text.splitlines():
        json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"b" : 1.50, "a":[1e0, 1E+5 ,-0],\n "b":2}', '{"b":1.50,"a":[1e0,1E+5,-0],"b":2}'),
        (b'"\\ud800 \\u00e9 \\" x"', '"\\ud800 \\u00e9 \\" x"'),
        (b" \t\r\n null ", "null"),
        ('["\u2028 ü"]'.encode(), '["\u2028 ü"]'),
        (b"1" * 5000, "1" * 5000),
    ],
)
def test_json_is_copied_as_it_came(raw: bytes, expected: str) -> None:
    assert compact_json(raw) == expected
    text = text_of(
        JsonLines, decoded(np.array([expected, None], object)), columns=VALUES, value="json"
    )
    assert text.decode() == f'{{"value":{expected}}}\n{{"value":null}}\n'


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"NaN",
        b"[Infinity]",
        b"\xef\xbb\xbf1",
        b"1 2",
        b"{'a':1}",
        b"\xff",
        b'"\n"',
        b"[" * 9999,
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        compact_json(raw)


# --- CSV, TSV, raw --------------------------------------------------------------------------------


def test_csv_tells_null_from_the_empty_text() -> None:
    values = [b"", None, b'a"b', b"a,b", b"a\nb", b"plain"]
    text = text_of(Csv, Batch(0, values), columns=("offset", "value")).decode()
    assert text == 'offset,value\n0,""\n1,\n2,"a""b"\n3,"a,b"\n4,"a\nb"\n5,plain\n'


def test_csv_has_headers_as_one_json_cell() -> None:
    text = text_of(Csv, Batch(0, [b"x"]), columns=("headers", "timestamp")).decode()
    (row,) = csv.DictReader(io.StringIO(text))
    assert row == {"headers": '[["h","1"]]', "timestamp": "2025-01-01T00:00:00.000Z"}


def test_tsv_is_what_copy_reads() -> None:
    values = [b"a\tb\\c\nd\re", None, b""]
    text = text_of(Tsv, Batch(0, values), columns=("offset", "value"))
    assert text == b"offset\tvalue\n0\ta\\tb\\\\c\\nd\\re\n1\t\\N\n2\t\n"


def test_raw_values() -> None:
    batch = Batch(0, [b"\xff\n", None, b"x"])
    assert text_of(Raw, batch) == b"k\t\xff\n\nk\t\nk\tx\n"
    assert text_of(Raw, batch, columns=VALUES, delimiter=b"\0") == b"\xff\n\0\0x\0"


def test_a_table() -> None:
    batch = Batch(0, [b"long " * 10, None, b"\xff"])
    text = text_of(Table, batch, batch, columns=("offset", "key", "value"))
    assert text.decode().splitlines() == [
        "offset  key  value",
        *(
            "     0  k    long long long long long long l…",
            "     1  k    null",
            '     2  k    b"\\xff"',
        )
        * 2,
    ]
    assert text_of(Table, columns=("key",)) == b"key\n"


# --- terminals ------------------------------------------------------------------------------------

HOSTILE = "\x1b[31m\x07\x9b\u202e\u2066x"


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (JsonLines, r'{"value":"\u001b[31m\u0007\u009b\u202e\u2066x"}'),
        (Csv, r"\x1b[31m\x07\x9b\u202e\u2066x"),
        (Raw, r"\x1b[31m\x07\x9b\u202e\u2066x"),
    ],
)
def test_a_terminal_is_shown_no_controls(make: type[TextFormat], shown: str) -> None:
    batch = Batch(0, [HOSTILE.encode()])
    on_terminal = text_of(make, batch, columns=VALUES, is_terminal=True).decode()
    assert on_terminal.splitlines()[-1] == shown
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(on_terminal)
    assert HOSTILE[-1].encode() in text_of(make, batch, columns=VALUES)
    if make is not JsonLines:
        assert HOSTILE.encode() in text_of(make, batch, columns=VALUES)


def test_bytes_that_are_not_utf_8_are_shown_as_such() -> None:
    text = text_of(Raw, Batch(0, [b"a\xffb"]), columns=VALUES, is_terminal=True)
    assert text == b"a\\xffb\n"


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=10).map(str.encode))))
@examples(200)
def test_formats_can_be_read_back(values: list[bytes | None]) -> None:
    batch = Batch(0, values)
    for is_terminal in (False, True):
        lines = text_of(JsonLines, batch, columns=VALUES, is_terminal=is_terminal).split(b"\n")
        assert lines.pop() == b""
        assert json.loads(text_of(JsonArray, batch, columns=VALUES)) == [*map(json.loads, lines)]
        assert len(lines) == len(values)
        for line, value in zip(lines, values, strict=True):
            cell = json.loads(line)["value"]
            assert isinstance(cell, dict) or (cell and cell.encode()) == (value or cell)
    texts = [None if value is None else value.hex().encode() for value in values]
    rows = [
        *csv.reader(
            io.StringIO(text_of(Csv, Batch(0, texts), columns=("offset", "value")).decode())
        )
    ]
    assert [row[1] for row in rows[1:]] == [(text or b"").decode() for text in texts]


def test_columns_are_checked() -> None:
    assert check_columns(["value", "offset"]) == ("value", "offset")
    assert check_columns(DEFAULT_COLUMNS) == DEFAULT_COLUMNS
    for name, hint in (("ofset", 'did you mean "offset"?'), ("x" * 9, "columns are topic, part")):
        with pytest.raises(ConfigurationError) as raised:
            check_columns([name])
        assert f'no column "{name}"\ntry: {hint}' in str(raised.value)
