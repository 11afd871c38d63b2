"""TC-137: whatever the bytes of values and headers, each row is in one run, and nothing is read
outside of them.
"""

from __future__ import annotations

from random import Random

import numpy as np

from kfast._native.wire_ids import FRAMINGS, scan
from tests.fuzz.rounds import fuzz
from tests.property.wire_id_rows import Row, reference
from tests.unit._native.framed_values import GUID, NAME, confluent, header_block, indexes

ROUNDS = 500
PARTS = (
    confluent(7, indexes(1, 2)),
    confluent(7, indexes(0)),
    b"\x03\x05" + GUID,
    b"\xc3\x01" + GUID[:8],
    header_block([(NAME, b"\x01" + GUID), (b"", None), (NAME, confluent(1, b""))]),
    b"",
)


def mutated(rng: Random) -> bytearray:
    data = bytearray(b"".join(rng.choices(PARTS, k=rng.randrange(8))))
    for _ in range(rng.randrange(6) if data else 0):
        data[rng.randrange(len(data))] = rng.randrange(256)
    return data[: rng.randrange(len(data) + 1)] if rng.random() < 0.5 else data


def check(rng: Random) -> None:
    data, header_data = mutated(rng), mutated(rng)
    count = rng.randrange(12)
    starts = [rng.randrange(len(data) + 1) for _ in range(count)]
    lengths = [rng.randrange(-1, len(data) - start + 1) for start in starts]
    header_starts = [rng.randrange(-2, len(header_data) + 3) for _ in range(count)]
    counts = [rng.choice((0, 1, 2, 3, 2**31 - 1, -1)) for _ in range(count)]
    framing = rng.choice([*FRAMINGS])
    has_headers, has_indexes = rng.random() < 0.5, rng.random() < 0.5
    wire = scan(
        framing,
        bytes(data),
        np.array(starts, np.int32),
        np.array(lengths, np.int32),
        headers=(
            bytes(header_data),
            np.array(header_starts, np.int64),
            np.array(counts, np.int32),
        )
        if has_headers
        else None,
        header_name=NAME,
        has_indexes=has_indexes,
    )
    found: list[Row] = []
    for number in range(len(wire)):
        first, rows, key, offset, status = wire[number]
        assert first == len(found)
        assert rows > 0
        found += [(None if key < 0 else wire.keys[key], offset, status)] * rows
    assert len(found) == count
    for start, length, row in zip(starts, lengths, found, strict=True):
        assert 0 <= row[1] <= max(length, 0)
        if not has_headers or framing != "confluent":
            value = None if length < 0 else bytes(data[start : start + length])
            assert row == reference(value, None, framing, has_indexes)


def test_fuzz() -> None:
    """TC-137"""
    fuzz(check, ROUNDS)
