"""TC-74: whatever the bytes of an Avro value, rows are messages, and only the bad ones are bad.

``KFAST_FUZZ_SECONDS`` and ``KFAST_FUZZ_SEED`` are those of the decoder's fuzzing.
"""

from __future__ import annotations

import json
import time
from random import Random
from typing import Any

import numpy as np

from kfast._native.buffers import live_count
from kfast.errors import ConfigurationError
from kfast.schemas.avro_columns import only
from kfast.schemas.avro_plan import compile_plan, target_of
from kfast.schemas.avro_text import parse_avro
from kfast.schemas.selection import select
from tests.fuzz.test_fuzz_decode import SECONDS, SEED
from tests.property.avro_schemas import LOGICAL, PRIMITIVES, Schemas, value_of
from tests.property.test_avro_decode import comparable, decode
from tests.reference.avro_encoder import any_blocks, encode, long

ROUNDS = 700
VALUES = 6
INTERESTING = (
    *(long(number) for number in (-1, 0, 1, 2, 63, 64, 1 << 20, 1 << 31, 1 << 60, -(1 << 63))),
    *(b"\xff" * 9 + b"\x01", b"\xff" * 20, b"\x80" * 9, b"\xff", b"\x80\x00", b""),
)


def damaged(rng: Random, value: bytes) -> bytes:
    """The value with a few bytes changed, replaced by a count, removed or doubled."""
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


def changed_schema(rng: Random, text: str) -> str:
    """The text of a schema with some of it exchanged."""
    words = ("int", "string", "null", "record", "array", "{", "]", ",", '"', "1e999", "\\ud800")
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(words) + text[at + rng.randint(0, 8) :]
    return text


def check(rng: Random) -> None:
    schemas = Schemas(rng, (*PRIMITIVES, *LOGICAL), are_columns=rng.random() < 0.7)
    schema: Any = schemas.record(rng.randint(1, 4))
    writer = parse_avro(json.dumps(schema))
    names = [field["name"] for field in schema["fields"]]
    wanted = None if rng.random() < 0.5 else rng.sample(names, rng.randint(1, len(names)))
    try:
        target = target_of(only(writer, select(wanted)))
        plan = compile_plan(writer, target, 64)
    except ConfigurationError:
        return
    good = [encode(schema, value_of(schema, rng), any_blocks(rng)) for _ in range(VALUES)]
    bad = {row for row in range(VALUES) if rng.random() < 0.5}
    values = [damaged(rng, value) if row in bad else value for row, value in enumerate(good)]
    before, errors = decode(target, [plan], good)
    assert not errors
    rows, errors = decode(target, [plan], values)
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
    again, other = decode(target, [plan], padded, prefixes=prefixes)
    assert comparable(again) == comparable(rows)
    assert [(e[0], e[1] - len(noise[e[0]]), *e[2:]) for e in other] == errors


def check_schema(rng: Random) -> None:
    text = changed_schema(rng, json.dumps(Schemas(rng, (*PRIMITIVES, *LOGICAL)).record()))
    try:
        writer = parse_avro(text)
        target = target_of(writer)
        compile_plan(writer, target, 64)
    except ConfigurationError:
        pass


def test_damaged_values_are_errors_of_their_rows_alone() -> None:
    """TC-61, TC-74."""
    begin, count, blocks = time.monotonic(), 0, live_count()
    while count < ROUNDS if not SECONDS else time.monotonic() - begin < SECONDS:
        seed = SEED + count
        count += 1
        try:
            check(Random(seed))
            check_schema(Random(seed))
        except BaseException as error:
            error.add_note(f"KFAST_FUZZ_SEED={seed}")
            raise
    assert live_count() == blocks
