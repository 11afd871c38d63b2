"""The scan for schema ids against a slow, obvious one, over framed, mutated and random values."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast._native.wire_ids import scan
from kfast.columns.bytes import BytesColumn
from tests.unit._native.test_wire_ids import GUID, NAME, confluent, header_block, indexes

Row = tuple[Any, int, str]
"""The key, None without one; the offset of the payload; the status."""


def reference(value: bytes | None, header: bytes | None, framing: str, has_indexes: bool) -> Row:
    """Return what is in front of one payload."""
    if value is None:
        return None, 0, "null"
    if header is not None:
        if header[:1] not in {b"\0", b"\1"}:
            return None, 0, "magic"
        size = 16 if header[0] else 4
        if len(header) < 1 + size:
            return None, 0, "truncated"
        raw = header[1 : 1 + size]
        path, end, wrong = path_of(header, 1 + size, has_indexes)
        if wrong:
            return None, 0, wrong
        if end != len(header):
            return None, 0, "magic"
        return (
            (*(("guid", raw) if size == 16 else ("id", *struct.unpack(">i", raw))), path),
            0,
            "value",
        )
    if not value:
        return None, 0, "empty"
    if framing == "avro-single-object":
        if value[0] != 0xC3 or value[1:2] not in {b"\1", b""}:
            return None, 0, "magic"
        if len(value) < 10:
            return None, 0, "truncated"
        return ("fingerprint", struct.unpack("<Q", value[2:10])[0], None), 10, "value"
    if value[0] != 0:
        is_glue = value[0] == 3 and len(value) >= 18 and value[1] in {0, 5}
        return None, 0, "glue" if is_glue else "magic"
    size, letter, kind = (4, "i", "id") if framing == "confluent" else (8, "q", "global_id")
    if len(value) < 1 + size:
        return None, 0, "truncated"
    path, end, wrong = path_of(value, 1 + size, has_indexes)
    if wrong:
        return None, 0, wrong
    return (kind, struct.unpack(">" + letter, value[1 : 1 + size])[0], path), end, "value"


def path_of(data: bytes, at: int, has_indexes: bool) -> tuple[tuple[int, ...] | None, int, str]:
    if not has_indexes:
        return None, at, ""
    numbers: list[int] = []
    wanted = 1
    while len(numbers) < wanted:
        number = shift = 0
        while True:
            if at == len(data):
                return None, at, "truncated"
            byte = data[at]
            at += 1
            if shift == 28 and byte > 0x0F:
                return None, at, "indexes"
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        number = (number >> 1) ^ -(number & 1)
        if number < 0 or (not numbers and number > 32):
            return None, at, "indexes"
        numbers.append(number)
        wanted = 1 + numbers[0]
    return tuple(numbers[1:]) or (0,), at, ""


paths = st.lists(st.integers(0, 300), max_size=4).map(lambda path: indexes(*path))
numbers = st.sampled_from([1, 2, 77, -1, 2**31 - 1])
rests = st.binary(max_size=6)
framed = st.builds(lambda number, path, rest: confluent(number, path + rest), numbers, paths, rests)
long_ids = st.builds(lambda number, rest: struct.pack(">bq", 0, number) + rest, numbers, rests)
objects = st.builds(
    lambda number, rest: b"\xc3\x01" + struct.pack("<q", number) + rest, numbers, rests
)
glue = st.just(b"\3\0" + GUID + b"x")
whole = st.one_of(framed, long_ids, objects, glue, st.binary(max_size=24))
values = st.one_of(
    st.none(), whole, st.builds(lambda value, end: value[:end], whole, st.integers(0, 24))
)
ids = st.builds(
    lambda start, path, end: (start + path)[:end],
    st.sampled_from([b"\1" + GUID, struct.pack(">bi", 0, 7), b"\2", b""]),
    st.one_of(st.just(b""), paths),
    st.integers(0, 40),
)
headers = st.lists(
    st.tuples(st.sampled_from([NAME, b"__key_schema_id", b""]), st.one_of(st.none(), ids)),
    max_size=2,
)
rows = st.lists(st.tuples(values, headers), min_size=1, max_size=5).flatmap(
    lambda rows: st.lists(st.sampled_from(rows), max_size=12)
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    rows,
    st.sampled_from(["confluent", "apicurio", "avro-single-object"]),
    st.booleans(),
    st.booleans(),
)
def test_the_scan_finds_what_the_reference_finds(
    rows: list[tuple[bytes | None, list[tuple[bytes, bytes | None]]]],
    framing: str,
    has_indexes: bool,
    has_headers: bool,
) -> None:
    """TC-136, TC-137"""
    has_indexes = has_indexes and framing != "avro-single-object"
    uses_headers = has_headers and framing == "confluent"
    expected = []
    for value, found in rows:
        named = [each for name, each in found if name == NAME]
        header = named[-1] if uses_headers and named else None
        expected.append(reference(value, header, framing, has_indexes))
    blocks = [header_block(found) for _, found in rows]
    spans = (
        b"".join(blocks),
        np.cumsum([0, *map(len, blocks)])[:-1].astype(np.int32),
        np.array([len(found) for _, found in rows], np.int32),
    )
    wire = scan(
        framing,
        *BytesColumn.from_values([value for value, _ in rows]).spans,
        headers=spans if has_headers else None,
        header_name=NAME,
        has_indexes=has_indexes,
    )
    made: list[Row] = []
    for number in range(len(wire)):
        first, count, key, offset, status = wire[number]
        assert first == len(made)
        made += [(None if key < 0 else wire.keys[key], offset, status)] * count
    assert made == expected
    assert len(set(wire.keys)) == len(wire.keys)
    assert sum(wire.key_rows()) == sum(key is not None for key, _, _ in expected)
    merged = sum((expected[row] != expected[row - 1]) for row in range(1, len(expected))) + bool(
        expected
    )
    assert len(wire) == merged
