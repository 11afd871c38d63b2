"""TC-74: whatever the bytes of an Avro value, rows are messages, and only the bad ones are bad."""

from __future__ import annotations

import json
from functools import partial
from random import Random
from typing import Any

from kfast.errors import ConfigurationError
from kfast.schemas.avro_columns import only
from kfast.schemas.avro_plan import compile_plan, target_of
from kfast.schemas.avro_text import parse_avro
from kfast.schemas.selection import select
from tests.fuzz.rounds import check_damaged, fuzz
from tests.property.avro_rows import comparable, decode
from tests.property.avro_schemas import LOGICAL, PRIMITIVES, Schemas, value_of
from tests.reference.avro_encoder import any_blocks, encode, long

ROUNDS = 700
VALUES = 6
INTERESTING = (
    *(long(number) for number in (-1, 0, 1, 2, 63, 64, 1 << 20, 1 << 31, 1 << 60, -(1 << 63))),
    *(b"\xff" * 9 + b"\x01", b"\xff" * 20, b"\x80" * 9, b"\xff", b"\x80\x00", b""),
)


def changed_schema(rng: Random, text: str) -> str:
    """The text of a schema with some of it exchanged."""
    words = ("int", "string", "null", "record", "array", "{", "]", ",", '"', "1e999", "\\ud800")
    for _ in range(rng.randint(1, 3)):
        at = rng.randint(0, len(text))
        text = text[:at] + rng.choice(words) + text[at + rng.randint(0, 8) :]
    return text


def check(rng: Random) -> None:
    check_schema(rng)
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
    check_damaged(rng, good, INTERESTING, partial(decode, target, [plan]), comparable)


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
    fuzz(check, ROUNDS)
