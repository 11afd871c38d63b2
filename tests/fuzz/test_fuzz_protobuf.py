"""TC-98: whatever the bytes of a message, rows are messages, and only the bad ones are bad."""

from __future__ import annotations

from functools import partial
from random import Random

from tests.fuzz.rounds import check_damaged, fuzz
from tests.property.protobuf_rows import comparable, decode, plan_of
from tests.property.protobuf_schemas import INTERESTING, Schemas, bytes_of

ROUNDS = 500
VALUES = 6


def check(rng: Random) -> None:
    schemas = Schemas(rng, has_raw=True)
    names = [field.name for field in schemas.descriptor.fields]
    wanted = None if rng.random() < 0.5 else rng.sample(names, rng.randint(1, len(names)))
    how = {"enums": rng.choice(["name", "number"]), "absent": rng.choice(["default", "null"])}
    plan = plan_of(schemas, columns=wanted, **how)
    good = [bytes_of(rng, schemas.descriptor) for _ in range(VALUES)]
    check_damaged(rng, good, INTERESTING, partial(decode, plan), comparable)


def test_damaged_messages_are_errors_of_their_rows_alone() -> None:
    """TC-98."""
    fuzz(check, ROUNDS)
