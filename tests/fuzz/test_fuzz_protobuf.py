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
from tests.property.protobuf_schemas import Schemas, bytes_of, damaged
from tests.property.test_protobuf_decode import comparable, decode, plan_of

ROUNDS = 500
VALUES = 6


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
