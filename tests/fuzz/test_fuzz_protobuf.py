"""TC-98: whatever the bytes of a message, rows are messages, and only the bad ones are bad.

``KFAST_FUZZ_SECONDS`` and ``KFAST_FUZZ_SEED`` are those of the decoder's fuzzing.
"""

from __future__ import annotations

import gc
import time
from random import Random

import numpy as np

from kfast._native.buffers import live_count
from tests.fuzz.test_fuzz_decode import SECONDS, SEED
from tests.property.protobuf_schemas import Schemas, bytes_of, varint
from tests.property.test_protobuf_decode import comparable, decode, plan_of

ROUNDS = 500
VALUES = 6
INTERESTING = (
    *(varint(number) for number in (0, 1, 2, 7, 127, 1 << 20, 1 << 31, (1 << 64) - 1)),
    *(b"\xff" * 9 + b"\x01", b"\xff" * 20, b"\x80" * 9, b"\xff", b"\x80\x00", b"", b"\x0b" * 5),
    *(bytes([number << 3 | wire]) for number in (1, 2, 3) for wire in range(8)),
)


def damaged(rng: Random, value: bytes) -> bytes:
    """The value with a few bytes changed, replaced, removed or doubled."""
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randint(0, len(value)), rng.randint(0, 4)
        kind = rng.randrange(4)
        if kind == 0 and at < len(value):
            value = value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
        elif kind == 1:
            value = value[:at] + rng.choice(INTERESTING) + value[at + size :]
        elif kind == 2:
            value = value[:at] if rng.random() < 0.5 else value[:at] + value[at + size :]
        else:
            value = value[: at + size] + value[at:]
    return value


def check(rng: Random) -> None:
    schemas = Schemas(rng, has_raw=True)
    names = [field.name for field in schemas.descriptor.fields]
    wanted = None if rng.random() < 0.5 else rng.sample(names, rng.randint(1, len(names)))
    how = {"enums": rng.choice(["name", "number"]), "absent": rng.choice(["default", "null"])}
    plan = plan_of(schemas, columns=wanted, **how)
    good = [bytes_of(rng, schemas.descriptor) for _ in range(VALUES)]
    bad = {row for row in range(VALUES) if rng.random() < 0.5}
    values = [damaged(rng, value) if row in bad else value for row, value in enumerate(good)]
    before, errors = decode(plan, good)
    assert not errors
    rows, errors = decode(plan, values)
    assert len(rows) == VALUES
    failed = {error[0] for error in errors}
    assert failed <= bad
    for row in range(VALUES):
        if row in failed:
            assert rows[row] is None
        elif row not in bad:
            assert comparable(rows[row]) == comparable(before[row])
    for row, position, *_ in errors:
        assert 0 <= position <= len(values[row])
    # What stands around a value does not matter.
    noise = [rng.randbytes(rng.randint(0, 30)) for _ in values]
    padded = [around + value for around, value in zip(noise, values, strict=True)]
    prefixes = np.array([len(around) for around in noise], np.int32)
    again, other = decode(plan, padded, prefixes=prefixes)
    assert comparable(again) == comparable(rows)
    assert [(e[0], e[1] - len(noise[e[0]]), *e[2:]) for e in other] == errors


def test_damaged_messages_are_errors_of_their_rows_alone() -> None:
    """TC-98."""
    gc.collect()
    begin, count, blocks = time.monotonic(), 0, live_count()
    while count < ROUNDS if not SECONDS else time.monotonic() - begin < SECONDS:
        seed = SEED + count
        count += 1
        try:
            check(Random(seed))
        except BaseException as error:
            error.add_note(f"KFAST_FUZZ_SEED={seed}")
            raise
    gc.collect()
    assert live_count() == blocks
