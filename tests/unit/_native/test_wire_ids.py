"""wire_ids: the schema of each value, by every framing, and bytes that are none."""

from __future__ import annotations

import struct
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kfast._native.wire_ids import FRAMINGS, WireIds, fingerprint, plans_of_rows, scan
from kfast.columns.bytes import BytesColumn
from tests.unit._native.framed_values import (
    GUID,
    NAME,
    Header,
    confluent,
    header_block,
    indexes,
    varint,
)

ONE_ID = confluent(1)


def scanned(
    values: Sequence[bytes | None],
    framing: str = "confluent",
    headers: Sequence[Sequence[Header]] | None = None,
    **more: Any,
) -> WireIds:
    spans = BytesColumn.from_values(values).spans
    if headers is not None:
        blocks = [header_block(each) for each in headers]
        ends = np.cumsum([0, *map(len, blocks)])[:-1].astype(np.int32)
        counts = np.array([len(each) for each in headers], np.int32)
        more |= {"headers": (b"".join(blocks), ends, counts), "header_name": NAME}
    return scan(framing, *spans, **more)


def runs(found: WireIds) -> list[Any]:
    return [found[number] for number in range(len(found))]


def status(value: bytes, framing: str = "confluent", **more: Any) -> str:
    [(_, _, key, _, what)] = runs(scanned([value], framing, **more))
    assert (key == -1) == (what != "value")
    return str(what)


# --- framings -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "plans", "prefixes"),
    [
        ([None, ONE_ID, None, ONE_ID], [3], [5]),
        ([ONE_ID, b""], [3, -1], [5, 0]),
        ([ONE_ID, confluent(2)], [3, -12], [5, 5]),
        ([b"\0", b"x", ONE_ID], [-2, -11, 3], [0, 0, 5]),
        ([None, None], None, [0, 0]),
        ([], [], []),
    ],
)
def test_what_all_rows_have_alike_is_there_once(
    values: list[bytes | None], plans: list[int] | None, prefixes: list[int]
) -> None:
    """TC-130: plans and offsets of rows; those of nulls are not looked at."""
    wire = scan("confluent", *BytesColumn.from_values(values).spans)
    found = plans_of_rows(wire, np.array([3, -12], np.int32))
    rows, offsets = (np.frombuffer(each.view(), np.int32).tolist() for each in found)
    assert plans is None or rows == plans
    assert offsets == prefixes
    with pytest.raises(ValueError, match="one plan per key"):
        plans_of_rows(scan("confluent", *BytesColumn.from_values([ONE_ID]).spans), np.zeros(0, "i"))


def test_runs_of_confluent_ids() -> None:
    """TC-130: rows that follow each other with the same id are one run; so are nulls."""
    values = [confluent(7)] * 3 + [None, None] + [confluent(7), confluent(8), confluent(7)]
    found = scanned(values)
    assert found.keys == [("id", 7, None), ("id", 8, None)]
    assert runs(found) == [
        (0, 3, 0, 5, "value"),
        (3, 2, -1, 0, "null"),
        (5, 1, 0, 5, "value"),
        (6, 1, 1, 5, "value"),
        (7, 1, 0, 5, "value"),
    ]
    assert found.key_rows() == [5, 1]
    rows = np.frombuffer(memoryview(found.row_keys()), np.int32).tolist()
    assert rows == [0, 0, 0, -1, -1, 0, 1, 0]
    assert found[-1] == found[4]
    assert repr(found) == "<WireIds runs=5 keys=[('id', 7, None), ('id', 8, None)]>"
    with pytest.raises(IndexError):
        found[5]


@pytest.mark.parametrize("number", [0, 1, 0x7FFFFFFF, -1, -0x80000000])
def test_any_id(number: int) -> None:
    """TC-130"""
    assert scanned([confluent(number, b"")]).keys == [("id", number, None)]


def test_an_id_in_a_header() -> None:
    """TC-131: it counts before a prefix, the payload is bare, and the last one counts."""
    v0, v1 = struct.pack(">bi", 0, 7), b"\x01" + GUID
    found = scanned(
        [confluent(9), confluent(9), b"", confluent(9), b"bare", None],
        headers=[
            [(b"x", b"y"), (NAME, v1)],
            [(NAME, v1)],
            [(NAME, v0), (NAME, v1)],
            [(b"__key_schema_id", v1)],
            [(NAME, v0), (b"", None)],
            [(NAME, v1)],
        ],
    )
    assert found.keys == [("guid", GUID, None), ("id", 9, None), ("id", 7, None)]
    assert runs(found) == [
        (0, 3, 0, 0, "value"),
        (3, 1, 1, 5, "value"),
        (4, 1, 2, 0, "value"),
        (5, 1, -1, 0, "null"),
    ]


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (b"", "magic"),
        (b"\x02" + GUID, "magic"),
        (b"\x01" + GUID[:15], "truncated"),
        (b"\x00\x00\x00\x07", "truncated"),
        (b"\x01" + GUID + b"x", "magic"),
        (b"\x00\x00\x00\x00\x07\x00", "magic"),
    ],
)
def test_a_header_that_has_no_id(header: bytes, what: str) -> None:
    """TC-131: nothing is guessed from the value then."""
    [(_, _, _, _, found)] = runs(scanned([confluent(7)], headers=[[(NAME, header)]]))
    assert found == what


def test_a_header_without_a_value_is_none() -> None:
    """TC-131"""
    assert scanned([confluent(7)], headers=[[(NAME, None)]]).keys == [("id", 7, None)]


def test_headers_are_not_read_for_other_framings() -> None:
    """TC-132"""
    value = struct.pack(">bq", 0, 5)
    assert scanned([value], "apicurio", headers=[[(NAME, b"\x01" + GUID)]]).keys == [
        ("global_id", 5, None)
    ]


@pytest.mark.parametrize("number", [1, 2**40, 2**63 - 1, -1])
def test_apicurio(number: int) -> None:
    """TC-132: a global id of 8 bytes."""
    found = scanned([struct.pack(">bq", 0, number) + b"payload"], "apicurio")
    assert found.keys == [("global_id", number, None)]
    assert runs(found) == [(0, 1, 0, 9, "value")]


def test_avro_single_objects() -> None:
    """TC-133: a little-endian fingerprint."""
    value = b"\xc3\x01" + struct.pack("<Q", 2**63 + 5) + b"payload"
    found = scanned([value, value], "avro-single-object")
    assert found.keys == [("fingerprint", 2**63 + 5, None)]
    assert runs(found) == [(0, 2, 0, 10, "value")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Of Avro's specification: the fingerprints of its own test cases.
        (b'"null"', 7195948357588979594),
        (b'"boolean"', -6970731678124411036),
        (b'"int"', 8247732601305521295),
        (b'"long"', -3434872931120570953),
        (b'"float"', 5583340709985441680),
        (b'"double"', -8181574048448539266),
        (b'"bytes"', 5746618253357095269),
        (b'"string"', -8142146995180207161),
        (b"", 0xC15D213AA4D7A795 - 2**64),
    ],
)
def test_fingerprints(text: bytes, expected: int) -> None:
    """TC-133: CRC-64-AVRO."""
    assert fingerprint(text) == expected % 2**64


@pytest.mark.parametrize(
    ("framing", "value", "what"),
    [
        ("confluent", b"", "empty"),
        ("apicurio", b"", "empty"),
        ("avro-single-object", b"", "empty"),
        ("confluent", b"\0", "truncated"),
        ("confluent", b"\0\0\0\0", "truncated"),
        ("apicurio", b"\0" * 8, "truncated"),
        ("avro-single-object", b"\xc3", "truncated"),
        ("avro-single-object", b"\xc3\x01" + bytes(7), "truncated"),
        ("confluent", b'{"id":1}', "magic"),
        ("confluent", b"\x01" + GUID, "magic"),
        ("avro-single-object", b"\xc3\x02" + bytes(9), "magic"),
        ("avro-single-object", b"\0" + bytes(9), "magic"),
        ("confluent", b"\x03\x00" + GUID + b"payload", "glue"),
        ("confluent", b"\x03\x05" + GUID, "glue"),
        ("apicurio", b"\x03\x05" + GUID, "glue"),
        ("confluent", b"\x03\x05" + GUID[:15], "magic"),
        ("confluent", b"\x03\x07" + GUID, "magic"),
    ],
)
def test_what_is_not_framed(framing: str, value: bytes, what: str) -> None:
    """TC-134: each with its reason; Glue's framing is recognized."""
    assert status(value, framing) == what


# --- message indexes ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "path"),
    [
        (b"\0", (0,)),
        (b"\x02\0", (0,)),
        (b"\x02\x02", (1,)),
        (indexes(1, 0, 5), (1, 0, 5)),
        (indexes(2**31 - 1), (2**31 - 1,)),
        (indexes(*range(32)), tuple(range(32))),
    ],
)
def test_message_indexes(given: bytes, path: tuple[int, ...]) -> None:
    """TC-135: behind the id, in the value or in the header."""
    found = scanned([confluent(7, given + b"payload")], has_indexes=True)
    assert found.keys == [("id", 7, path)]
    assert found[0][3] == 5 + len(given)
    header = [[(NAME, b"\x01" + GUID + given)]]
    found = scanned([b"payload"], headers=header, has_indexes=True)
    assert found.keys == [("guid", GUID, path)]
    assert found[0][3] == 0


def test_two_spellings_of_a_path_are_one_key() -> None:
    """TC-135: the payloads lie elsewhere, so they are two runs."""
    values = [confluent(7, each + b"payload") for each in (b"\0", b"\x02\0", b"\0")]
    found = scanned(values, has_indexes=True)
    assert found.keys == [("id", 7, (0,))]
    assert runs(found) == [(0, 1, 0, 6, "value"), (1, 1, 0, 7, "value"), (2, 1, 0, 6, "value")]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        (b"", "truncated"),
        (b"\x80", "truncated"),
        (b"\x04\x02", "truncated"),
        (b"\x04\x02\x80", "truncated"),
        (varint(33) + b"\0" * 33, "indexes"),
        (varint(-1), "indexes"),
        (indexes(0, -1), "indexes"),
        (b"\xff" * 10, "indexes"),
        (b"\x02" + b"\xff" * 5, "indexes"),
        (varint(2**31 - 1), "indexes"),
    ],
)
def test_message_indexes_that_cannot_be(given: bytes, what: str) -> None:
    """TC-135"""
    assert status(confluent(7, given), has_indexes=True) == what
    headers = [[(NAME, b"\0\0\0\0\7" + given)]]
    [(_, _, key, _, found)] = runs(scanned([b"x"], headers=headers, has_indexes=True))
    assert (key, found) == (-1, what)


# --- the rest -------------------------------------------------------------------------------------


def test_many_keys() -> None:
    """TC-136: every row another one."""
    count = 5000
    found = scanned([confluent(number * 65537) for number in range(count)] * 2)
    assert found.keys == [("id", number * 65537, None) for number in range(count)]
    assert found.key_rows() == [2] * count
    assert [run[2] for run in runs(found)] == [*range(count)] * 2


INVERSE = pow(0xFF51AFD7ED558CCD, -1, 1 << 64)


@pytest.mark.parametrize(
    ("framing", "prefixes"),
    [
        # Of a path the last index is the same; of a product the bits that a slot is chosen by.
        ("confluent", [b"\0\0\0\0\1" + indexes(at, 0) for at in range(40_000)]),
        (
            "avro-single-object",
            [
                b"\xc3\1" + struct.pack("<Q", (at << 32 | at) * INVERSE % (1 << 64) ^ 3)
                for at in range(40_000)
            ],
        ),
    ],
    ids=["message indexes", "fingerprints"],
)
def test_keys_that_are_made_to_share_a_slot(framing: str, prefixes: list[bytes]) -> None:
    """TC-136: whatever the ids are, the time is linear: six seconds here if all share a slot."""
    begin = time.process_time()
    found = scanned(prefixes, framing, has_indexes=framing == "confluent")
    assert time.process_time() - begin < 2
    assert len(found.keys) == len(prefixes)


def test_no_rows() -> None:
    for framing in FRAMINGS:
        found = scanned([], framing)
        assert (len(found), found.keys, found.key_rows()) == (0, [], [])
        assert len(found.row_keys()) == 0


def test_arguments_are_checked() -> None:
    """TC-137"""
    with pytest.raises(KeyError):
        scanned([b"x"], "confluence")
    with pytest.raises(ValueError, match="differ in length"):
        scanned([b"x"], headers=[])
    starts, lengths = np.array([5], np.int32), np.array([9], np.int32)
    with pytest.raises(ValueError, match="row 0"):
        scan("confluent", b"short", starts, lengths)
    with pytest.raises(TypeError):
        WireIds()


@pytest.mark.parametrize("start", [-1, 3, 2**31 - 1])
@pytest.mark.parametrize("count", [-1, 1, 2**31 - 1])
def test_headers_outside_of_the_data(start: int, count: int) -> None:
    """TC-137: count as none."""
    spans = b"abc", np.array([start], np.int32), np.array([count], np.int32)
    found = scan(
        "confluent",
        *BytesColumn.from_values([confluent(7)]).spans,
        headers=spans,
        header_name=NAME,
    )
    assert found.keys == [("id", 7, None)]
