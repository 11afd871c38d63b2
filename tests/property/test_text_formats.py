"""The text writer against its oracle, byte for byte."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kfast.cli.formats import COLUMNS, DEFAULT_COLUMNS, KINDS
from kfast.testing.batches import Record
from tests.reference import text_formats as oracle
from tests.reference.batches import encode_record_batch
from tests.reference.native import decode, records_of
from tests.soaking import examples
from tests.unit.cli.records import written

SCAN = 16
"""Bytes that are looked at at a time."""

FORMATS: dict[str, Callable[[oracle.Slice], bytes]] = {
    "jsonl": oracle.json_lines,
    "json": oracle.json_array,
    "csv": oracle.csv,
    "tsv": oracle.tsv,
}
PIECES = [
    *(b"plain", b"a" * SCAN, b"a" * (2 * SCAN - 1), b"", b"1", b"-0.5e+3", b" ", b"true", b"null"),
    *(bytes([code]) for code in (0, 7, 8, 9, 10, 12, 13, 27, 31, 34, 44, 92, 127)),
    *("é\x85\u061c\u200e\u2028\u202e\u2066\u0800\uffff\U0001f600\U0010ffff".encode(), b"\xc3\xa9"),
    *(b"\x80", b"\xff", b"\xc3", b"\xe2\x80", b"\xf0\x9f\x98", b"\xed\xa0\x80", b"\xc0\x80"),
    *(b"\xf4\x90\x80\x80", b"\xe0\x80\x80", b"\xf0\x80\x80\x80"),
    *(b'{"a": [1, "\\u0041\\n"]}', b'"\\ud800"', b"[", b"]", b"{", b"}", b'"', b":", b",", b"NaN"),
]
values = st.one_of(
    st.none(),
    st.binary(max_size=40),
    st.lists(st.sampled_from(PIECES), max_size=6).map(b"".join),
    st.text(max_size=20).map(lambda text: text.encode()),
    st.floats().map(lambda number: struct.pack(">d", number)),
    st.floats(width=32).map(lambda number: struct.pack(">f", number)),
    st.integers(-(1 << 63), (1 << 63) - 1).map(lambda number: struct.pack(">q", number)),
    st.uuids().map(lambda each: str(each).encode()),
)
times = st.one_of(st.just(-1), st.integers(0, 1 << 42), st.integers(-(1 << 45), 1 << 47))
headers = st.lists(st.tuples(values.map(lambda name: name or b"h"), values), max_size=3).map(tuple)
records = st.lists(st.builds(Record, values, values, headers, times), min_size=1, max_size=4)


@pytest.mark.parametrize("name", FORMATS)
@given(
    records=records,
    columns=st.one_of(
        st.just(DEFAULT_COLUMNS), st.lists(st.sampled_from(COLUMNS), min_size=1, unique=True)
    ),
    key=st.sampled_from(KINDS),
    value=st.sampled_from(KINDS),
    time=st.sampled_from(["iso", "ms"]),
    on_error=st.sampled_from(["fail", "null", "skip"]),
    is_terminal=st.booleans(),
    leader_epoch=st.integers(-1, 5),
    block_bytes=st.sampled_from([256, 1 << 20]),
)
@examples(150)
def test_the_writer_writes_what_the_oracle_does(
    name: str,
    records: list[Record],
    columns: Any,
    leader_epoch: int,
    block_bytes: int,
    **how: Any,
) -> None:
    """CL-30: in JSON, CSV and TSV every record is written as the format says."""
    (index,) = decode(encode_record_batch(records, leader_epoch=leader_epoch)).chunks
    text = oracle.Slice(records_of(index), "t\x1b", 3, leader_epoch, columns, **how)
    try:
        expected = FORMATS[name](text)
    except oracle.UndecodableError:
        expected = None
    arguments = {**how, "columns": tuple(columns), "block_bytes": block_bytes, "topic": "t\x1b"}
    if expected is None:
        with pytest.raises(ValueError, match=r"key|value"):
            written(name, index, **arguments)
    else:
        assert written(name, index, **arguments) == expected


@pytest.mark.parametrize("name", [*FORMATS, "raw"])
@pytest.mark.parametrize("is_terminal", [False, True])
def test_escapes_at_every_position_of_the_scan(name: str, is_terminal: bool) -> None:
    """CL-31: what is escaped, and what is not UTF-8, is found wherever it stands."""
    values = [
        b"x" * before + piece + b"y" * (SCAN + 3)
        for piece in PIECES
        for before in range(2 * SCAN + 1)
    ]
    values += [value[: -(SCAN + 3)] for value in values]
    (index,) = decode(encode_record_batch([Record(None, value) for value in values])).chunks
    write = FORMATS.get(name, oracle.raw)
    text = oracle.Slice(
        records_of(index), columns=["value"], is_terminal=is_terminal, on_error="null"
    )
    found = written(name, index, columns=("value",), is_terminal=is_terminal, on_error="null")
    assert found == write(text)


@given(st.lists(values, min_size=1, max_size=5), st.booleans())
@examples(200)
def test_raw_is_the_bytes_of_the_values(values: list[bytes | None], is_terminal: bool) -> None:
    (index,) = decode(encode_record_batch([Record(each, each) for each in values])).chunks
    for columns in (("value",), ("key", "value")):
        text = oracle.Slice(records_of(index), columns=columns, is_terminal=is_terminal)
        for block_bytes in (256, 1 << 20):
            found = written(
                "raw", index, columns=columns, is_terminal=is_terminal, block_bytes=block_bytes
            )
            assert found == oracle.raw(text)
