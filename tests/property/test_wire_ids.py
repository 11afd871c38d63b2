"""The scan for schema ids against a slow, obvious one, over framed, mutated and random values."""

from __future__ import annotations

import struct

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kfast._native.wire_ids import scan
from kfast.columns.bytes import BytesColumn
from tests.property.wire_id_rows import Row, glue, numbers, reference
from tests.unit._native.framed_values import GUID, NAME, confluent, header_block, indexes

paths = st.lists(st.integers(0, 300), max_size=4).map(lambda path: indexes(*path))
rests = st.binary(max_size=6)
framed = st.builds(lambda number, path, rest: confluent(number, path + rest), numbers, paths, rests)
long_ids = st.builds(lambda number, rest: struct.pack(">bq", 0, number) + rest, numbers, rests)
objects = st.builds(
    lambda number, rest: b"\xc3\x01" + struct.pack("<q", number) + rest, numbers, rests
)
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
