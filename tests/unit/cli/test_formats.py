"""The text formats of ``kfast read``, byte by byte."""

from __future__ import annotations

import base64
import csv
import io
import itertools
import json
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kfast._native.column_text import ColumnTexts
from kfast._native.text_writer import TextWriter
from kfast.cli.binary import compact_json
from kfast.cli.formats import (
    DEFAULT_COLUMNS,
    TextOptions,
    TypedColumn,
    check_columns,
    has_json_texts,
    table,
    text_format,
)
from kfast.columns.column_text import text_source
from kfast.errors import ConfigurationError
from tests.reference import text_formats as oracle
from tests.unit.cli.records import index_of, written
from tests.unit.records.typed_samples import typed

VALUES = ("value",)


# --- JSON -----------------------------------------------------------------------------------------


def test_json_lines() -> None:
    index = index_of(
        [b'{"a":1}', b"\xff\x00", None, b"", "süß".encode()], headers=(("h", b"\xff"),)
    )
    lines = written("jsonl", index).decode().splitlines()
    assert lines[0] == (
        '{"topic":"t","partition":3,"offset":0,"timestamp":"2025-01-01T00:00:00.000Z","key":"k",'
        '"value":"{\\"a\\":1}","headers":[["h",{"base64":"/w=="}]]}'
    )
    values = [json.loads(line)["value"] for line in lines]
    assert values == ['{"a":1}', {"base64": "/wA="}, None, "", "süß"]


def test_json_keeps_the_order_of_the_columns() -> None:
    columns = ("value", "offset", "timestamp_type", "timestamp", "leader_epoch")
    text = written("jsonl", index_of([b"x"], leader_epoch=7), columns=columns, time="ms")
    assert text == (
        b'{"value":"x","offset":0,"timestamp_type":"CreateTime","timestamp":1735689600000,'
        b'"leader_epoch":7}\n'
    )


def test_no_timestamp_is_null() -> None:
    index = index_of([b"x"], timestamps=[-1])
    for time in ("iso", "ms"):
        text = written("jsonl", index, columns=("timestamp",), time=time)
        assert text == b'{"timestamp":null}\n'
        assert written("csv", index, columns=("timestamp",), time=time) == b"timestamp\n\n"


@pytest.mark.parametrize(
    ("ms", "expected"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-2, "1969-12-31T23:59:59.998Z"),
        (951_782_400_123, "2000-02-29T00:00:00.123Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00.000Z"),
        (-62_167_219_200_001, "-0001-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "10000-01-01T00:00:00.000Z"),
        ((1 << 63) - 1, "292278994-08-17T07:12:55.807Z"),
        (-(1 << 63), "-292275055-05-16T16:47:04.192Z"),
    ],
)
def test_times_of_all_years(ms: int, expected: str) -> None:
    index = index_of([b"x"], timestamps=[ms])
    text = written("jsonl", index, columns=("timestamp",))
    assert text.decode() == f'{{"timestamp":"{expected}"}}\n'


def test_every_byte_comes_back() -> None:
    values = [bytes([first, second]) for first in range(256) for second in (0, 0x41, 0x80, 0xFF)]
    for line, value in zip(
        written("jsonl", index_of(values), columns=VALUES).splitlines(), values, strict=True
    ):
        cell = json.loads(line)["value"]
        back = cell.encode() if isinstance(cell, str) else base64.b64decode(cell["base64"])
        assert back == value


def texts_with_quotes(other: str) -> Iterator[str]:
    """Yield texts with quotation marks or backslashes at some places, and one other letter."""
    for size, mark, step in itertools.product(range(1, 40), '"\\', (1, 2, 7, 16)):
        for first in range(size):
            letters = ["b"] * size
            for place in range(first, size, step):
                letters[place] = mark
            letters[size // 2] = other
            yield "".join(letters)


@pytest.mark.parametrize("is_terminal", [False, True])
@pytest.mark.parametrize("other", ["a", "\n", "\x7f", "\u00e9"])
def test_quotes_are_escaped_wherever_they_are(other: str, is_terminal: bool) -> None:
    """In blocks of 16 bytes, at their edges, at the end of the text and of the data."""
    texts = [*texts_with_quotes(other)]
    index = index_of([each.encode() for each in texts])
    lines = written("jsonl", index, columns=VALUES, is_terminal=is_terminal).splitlines()
    assert [json.loads(line)["value"] for line in lines] == texts


def test_an_array_is_json_whatever_is_in_it() -> None:
    """CL-32: the format json is one array, also without records and after a part of them."""
    one = index_of([b"a", b"b"])
    assert written("json", columns=VALUES) == b"[]\n"
    text = written("json", one, one, columns=VALUES)
    assert text == b'[\n{"value":"a"},\n{"value":"b"},\n{"value":"a"},\n{"value":"b"}\n]\n'


def test_kinds_of_binary() -> None:
    index = index_of([b"\x00\xff", None])
    for kind, cell in (("bytes", '{"base64":"AP8="}'), ("base64", '"AP8="'), ("hex", '"00ff"')):
        text = written("jsonl", index, columns=VALUES, value=kind).decode()
        assert text == f'{{"value":{cell}}}\n{{"value":null}}\n'


@pytest.mark.parametrize(
    ("kind", "form", "numbers", "expected"),
    [
        ("int64", ">q", [(1 << 63) - 1, -(1 << 63)], ["9223372036854775807", str(-(1 << 63))]),
        ("int32", ">i", [0, -1, 99, 100], ["0", "-1", "99", "100"]),
        ("float64", ">d", [0.1, 1e300, float("nan"), 5e-324], ["0.1", "1e+300", '"NaN"', "5e-324"]),
        (
            "float32",
            ">f",
            [0.1, float("inf"), float("-inf"), 3e38, 1e-45, 16777216.0],
            ["0.1", '"Infinity"', '"-Infinity"', "3e+38", "1e-45", "16777216.0"],
        ),
    ],
)
def test_numbers_are_json(kind: str, form: str, numbers: list[Any], expected: list[str]) -> None:
    """CL-33: a number has all its digits, the fewest that give it again; NaN is a string."""
    index = index_of([struct.pack(form, number) for number in numbers])
    text = written("jsonl", index, columns=VALUES, value=kind).decode()
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
        (b"{}", "{}"),
        (b'[[],{"a":{}}, true,false]', '[[],{"a":{}},true,false]'),
        (b"[" * 1024 + b"]" * 1024, "[" * 1024 + "]" * 1024),
    ],
)
def test_json_is_copied_as_it_came(raw: bytes, expected: str) -> None:
    """CL-34: a JSON value keeps its digits, the order of its keys and its escapes."""
    text = written("jsonl", index_of([raw, None]), columns=VALUES, value="json")
    assert text.decode() == f'{{"value":{expected}}}\n{{"value":null}}\n'
    if len(raw) != 2048:
        assert compact_json(raw) == oracle.compact_json(raw) == expected


@pytest.mark.parametrize(
    "raw",
    [
        *(b"", b"NaN", b"[Infinity]", b"\xef\xbb\xbf1", b"1 2", b"{'a':1}", b"\xff", b'"\n"'),
        *(b"[" * 1025 + b"]" * 1025, b"01", b"1.", b".5", b"+1", b"1e", b"-", b"tru", b'"\\x"'),
        *(b'"\\u12g4"', b'"abc', b"[1,]", b'{"a":1,}', b'{"a"}', b"{1:2}", b"]", b"[1}", b"[1 2]"),
        *(b'"\xed\xa0\x80"', b"[", b'{"a":', b'"\\', b'"\\u00'),
    ],
)
def test_what_is_not_json_is_refused(raw: bytes) -> None:
    with pytest.raises(ValueError, match=r"0, 'value'"):
        written("jsonl", index_of([raw]), columns=VALUES, value="json")
    if len(raw) != 2050:
        with pytest.raises(ValueError, match=r"."):
            compact_json(raw)


# --- CSV, TSV, raw, line --------------------------------------------------------------------------


def test_csv_tells_null_from_the_empty_text() -> None:
    """CL-35: in CSV a null is an empty field and the empty text is two quotes."""
    values = [b"", None, b'a"b', b"a,b", b"a\nb", b"plain"]
    text = written("csv", index_of(values), columns=("offset", "value")).decode()
    assert text == 'offset,value\n0,""\n1,\n2,"a""b"\n3,"a,b"\n4,"a\nb"\n5,plain\n'


def test_csv_has_headers_as_one_json_cell() -> None:
    text = written("csv", index_of([b"x"]), columns=("headers", "timestamp")).decode()
    (row,) = csv.DictReader(io.StringIO(text))
    assert row == {"headers": '[["h","1"]]', "timestamp": "2025-01-01T00:00:00.000Z"}


def test_tsv_is_what_copy_reads() -> None:
    values = [b"a\tb\\c\nd\re", None, b""]
    text = written("tsv", index_of(values), columns=("offset", "value"))
    assert text == b"offset\tvalue\n0\ta\\tb\\\\c\\nd\\re\n1\t\\N\n2\t\n"


def test_raw_values() -> None:
    index = index_of([b"\xff\n", None, b"x"])
    assert written("raw", index) == b"\xff\n\n\nx\n"
    assert written("raw", index, columns=("key", "value")) == b"k\t\xff\n\nk\t\nk\tx\n"
    assert written("raw", index, delimiter=b"\0") == b"\xff\n\0\0x\0"
    with pytest.raises(ConfigurationError, match="raw has only key and value"):
        written("raw", index, columns=("offset",))


def test_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-36: a line has the time of day, partition, offset, key and value, cut to the width."""
    index = index_of([b"a\nb\xff", None, "ü漢字".encode() * 9], keys=[b"k", None, b""])
    monkeypatch.setenv("COLUMNS", "40")
    whole = ["00:00:00.000 3:0 k a\\x0ab\\xff", "00:00:00.001 3:1 null null"]
    assert written("line", index).decode().splitlines() == [
        *whole,
        "00:00:00.002 3:2  " + "ü漢字" * 9,
    ]
    *lines, last = written("line", index, is_terminal=True).decode().splitlines()
    assert lines == whole
    assert last == "00:00:00.002 3:2  " + "ü漢字" * 4 + "ü…"
    assert written("line", index_of([b"x"], timestamps=[-1])) == b"--:--:--.--- 3:0 k x\n"


def test_a_table() -> None:
    index = index_of([b"long " * 10, None, b"\xff", b'"\x1b'])
    options = TextOptions(columns=("offset", "key", "value"))
    cells = written("table", index, columns=options.columns)
    headings = text_format("table", options).headings
    assert table(cells, headings, is_terminal=False).decode().splitlines() == [
        "offset  key  value",
        "     0  k    long long long long long long l…",
        "     1  k    null",
        '     2  k    b"\\xff"',
        '     3  k    "\\x1b',
    ]
    assert table(b"", [TypedColumn("key")], is_terminal=False) == b"key\n"
    cells = written("table", index_of([b'{"a" :1.50}']), columns=("value", "headers"), value="json")
    shown = table(cells, [TypedColumn("value"), TypedColumn("headers")], is_terminal=False)
    assert shown.splitlines()[1] == b'{"a":1.50}  [["h","1"]]'


# --- typed columns --------------------------------------------------------------------------------

NAMES = [TypedColumn('a,"\u202e\x07'), TypedColumn("b")]
ROWS: list[dict[str, Any]] = [
    {"a": "x,\x1b\u202e", "b": 1},
    {"a": None, "b": None},
    {"a": "", "b": 2},
]


def typed_text(name: str, **more: Any) -> bytes:
    """Return the text of two typed columns."""
    is_json = has_json_texts(name)
    is_terminal = more.pop("is_terminal", False)
    options = TextOptions(columns=("value",), typed={"value": NAMES}, is_terminal=is_terminal)
    form = text_format(name, options)
    writer = TextWriter(form.operations, is_terminal=is_terminal)
    column = typed({"a": "string", "b": "int8"}, ROWS)
    texts = [ColumnTexts(is_json=is_json) for _ in NAMES]
    for each, member in zip(texts, ("a", "b"), strict=True):
        each.write(text_source(column.member(member)))
    writer.write(index_of([b"-"] * 4), b"t", 0, 1, 4, columns=texts, first=1, **more)
    return form.begin + bytes(writer) + (form.end if writer.records else form.end_of_none)


def test_typed_columns_in_json() -> None:
    """CL-205: names and strings are escaped as JSON has it, nothing else."""
    rows = [json.loads(line) for line in typed_text("jsonl").splitlines()]
    names = [column.name for column in NAMES]
    assert rows == [dict(zip(names, row.values(), strict=True)) for row in ROWS]
    assert '"x,\\u001b\u202e"'.encode() in typed_text("jsonl")


def test_typed_columns_in_csv() -> None:
    """CL-205"""
    assert typed_text("csv").decode() == ('"a,""\u202e\x07",b\n"x,\x1b\u202e",1\n,\n"",2\n')
    assert typed_text("tsv").decode() == ('a,"\u202e\x07\tb\nx,\x1b\u202e\t1\n\\N\t\\N\n\t2\n')


@pytest.mark.parametrize("name", ["jsonl", "json", "csv", "tsv"])
def test_typed_columns_are_safe_on_a_terminal(name: str) -> None:
    """CL-38: names of members and values; JSON is the same JSON."""
    shown = typed_text(name, is_terminal=True)
    assert not {*"\x1b\x07\u202e"} & {*shown.decode()}
    if name.startswith("json"):
        lines = shown if name == "json" else b"[" + b",".join(shown.splitlines()) + b"]"
        names = [column.name for column in NAMES]
        assert json.loads(lines) == [dict(zip(names, row.values(), strict=True)) for row in ROWS]


def test_rows_that_are_left_out() -> None:
    """CL-207"""
    assert typed_text("csv", left_out=b"\0\1\0").splitlines()[1:] == [
        '"x,\x1b\u202e",1'.encode(),
        b'"",2',
    ]
    assert typed_text("json", left_out=b"\1\1\1") == b"[]\n"


def test_typed_columns_have_to_be_there() -> None:
    """CL-203: with all rows that are written."""
    writer = TextWriter([("column", "text", "csv", b"1", b"")])
    texts = ColumnTexts(is_json=False)
    texts.write(text_source(typed({"b": "int8"}, ROWS).member("b")))
    index = index_of([b"-"] * 9)
    for columns, first, start, stop in (
        (None, 0, 0, 1),
        ([texts], 0, 0, 1),
        ([texts] * 2, 0, 0, 4),
        ([texts] * 2, 2, 1, 4),
    ):
        with pytest.raises(ValueError, match=r"column 1|rows"):
            writer.write(index, b"t", 0, start, stop, columns=columns, first=first)
    with pytest.raises(ValueError, match="marks"):
        writer.write(index, b"t", 0, 0, 3, columns=[texts] * 2, left_out=b"\0")
    assert writer.write(index, b"t", 0, 6, 9, columns=[texts] * 2, first=6) == 9
    assert bytes(writer) == b"12"


# --- the buffer -----------------------------------------------------------------------------------


def test_a_block_ends_with_a_record() -> None:
    """CL-37: text goes out in blocks that end with a record; one may be larger than a block."""
    index = index_of([b"x" * size for size in (10, 300, 100_000, 1, 2)])
    writer = TextWriter(text_format("raw", TextOptions()).operations, block_bytes=1000)
    blocks, row = [], 0
    while row < 5:
        row = writer.write(index, b"t", 0, row, 5)
        blocks.append(bytes(writer))
        writer.clear()
    assert b"".join(blocks) == b"".join(b"x" * size + b"\n" for size in (10, 300, 100_000, 1, 2))
    assert all(block.endswith(b"\n") for block in blocks)
    assert len(blocks) > 2
    assert writer.records == 5


def test_a_writer_stops_at_the_limit_and_at_a_bad_value() -> None:
    index = index_of([b"1", b"\xff", b"3", b"4"])
    form = text_format("csv", TextOptions(columns=VALUES)).operations
    writer = TextWriter(form)
    assert writer.write(index, b"t", 0, 0, 4, 1) == 1
    assert writer.write(index, b"t", 0, 1, 4) == 1
    assert (writer.bad, bytes(writer)) == ((1, "value", 0), b"1\n")
    skipping = TextWriter(form, on_error="skip")
    assert skipping.write(index, b"t", 0, 0, 4, 2) == 3
    assert (bytes(skipping), skipping.skipped, skipping.records) == (b"1\n3\n", 1, 2)
    nulling = TextWriter(form, on_error="null")
    assert nulling.write(index, b"t", 0, 0, 4) == 4
    assert (bytes(nulling), nulling.nulled) == (b"1\n\n3\n4\n", 1)


def test_the_text_cannot_change_while_it_is_in_use() -> None:
    index = index_of([b"1"])
    writer = TextWriter(text_format("raw", TextOptions()).operations)
    writer.write(index, b"t", 0, 0, 1)
    view = memoryview(writer)
    for change in (writer.clear, lambda: writer.write(index, b"t", 0, 0, 1)):
        with pytest.raises(BufferError, match="still in use"):
            change()
    view.release()
    with pytest.raises(ValueError, match="rows 0 to 2 of 1"):
        writer.write(index, b"t", 0, 0, 2)
    writer.clear()
    assert not len(writer)


# --- terminals ------------------------------------------------------------------------------------

HOSTILE = "\x1b[31m\x07\x9b\u202e\u2066x"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("jsonl", r'{"value":"\u001b[31m\u0007\u009b\u202e\u2066x"}'),
        ("csv", r"\x1b[31m\x07\x9b\u202e\u2066x"),
        ("raw", r"\x1b[31m\x07\x9b\u202e\u2066x"),
        ("%s\n", r"\x1b[31m\x07\x9b\u202e\u2066x"),
    ],
)
def test_a_terminal_is_shown_no_controls(name: str, shown: str) -> None:
    """CL-38: on a terminal no record moves the cursor, sets a colour or rings."""
    index = index_of([HOSTILE.encode()])
    columns = None if "%" in name else VALUES
    on_terminal = written(name, index, columns=columns, is_terminal=True).decode()
    assert on_terminal.splitlines()[-1] == shown
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & set(on_terminal)
    if name != "jsonl":
        assert HOSTILE.encode() in written(name, index, columns=columns)


def test_a_json_value_on_a_terminal_stays_json() -> None:
    value = '{"a" : "\u202e\x7f"}'.encode()
    text = written("jsonl", index_of([value]), columns=VALUES, value="json", is_terminal=True)
    assert text == b'{"value":{"a":"\\u202e\\u007f"}}\n'


def test_bytes_that_are_not_utf_8_are_shown_as_such() -> None:
    text = written("raw", index_of([b"a\xffb"]), columns=VALUES, is_terminal=True)
    assert text == b"a\\xffb\n"


def test_columns_are_checked() -> None:
    assert check_columns(["value", "offset"]) == ("value", "offset")
    assert check_columns(DEFAULT_COLUMNS) == DEFAULT_COLUMNS
    for name, hint in (("ofset", 'did you mean "offset"?'), ("x" * 9, "columns are topic, part")):
        with pytest.raises(ConfigurationError) as raised:
            check_columns([name])
        assert f'no column "{name}"\ntry: {hint}' in str(raised.value)
