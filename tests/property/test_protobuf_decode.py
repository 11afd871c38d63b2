"""Any Protobuf schema and message: the columns have what the runtime (upb) reads, row by row."""

from __future__ import annotations

from random import Random
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from kfast.schemas.proto_schema import read_descriptor_set
from kfast.schemas.protobuf_columns import message_columns
from kfast.schemas.protobuf_plan import compile_plan
from kfast.schemas.selection import select
from kfast.schemas.types import Kind
from tests.fuzz.mutations import damaged
from tests.property.protobuf_rows import comparable, decode, plan_of, with_dicts
from tests.property.protobuf_schemas import INTERESTING, Schemas, bytes_of, row_of
from tests.reference.protobuf_decoder import BadMessageError
from tests.reference.protobuf_decoder import decode as reference_decode
from tests.soaking import examples

TYPE, RANGE, UTF8 = 6, 7, 5


@given(st.integers(0))
@examples(300)
def test_columns_have_what_the_runtime_reads(seed: int) -> None:
    """TC-88, TC-89, TC-90: any order, any number of times, in any number of parts."""
    rng = Random(seed)
    schemas = Schemas(rng)
    how = {"absent": "default", "enums": rng.choice(["name", "number"])}
    plan = plan_of(schemas, **how)
    values: list[bytes | None] = [
        bytes_of(rng, schemas.descriptor) for _ in range(rng.randint(1, 8))
    ]
    expected: list[Any] = [row_of(schemas.type.FromString(value), **how) for value in values]
    for _ in range(rng.randrange(3)):
        at = rng.randint(0, len(expected))
        values.insert(at, None)
        expected.insert(at, None)
    rows, errors = decode(plan, values)
    assert not errors
    assert len(rows) == len(values)
    assert comparable(rows) == comparable(expected)


@given(st.integers(0))
@examples(60)
def test_absent_fields_are_null_if_that_is_asked_for(seed: int) -> None:
    """TC-91: of what the runtime writes: a field that is there has a value that is no default."""
    rng = Random(seed)
    schemas = Schemas(rng)
    how = {"absent": "null", "enums": "name"}
    messages = [schemas.type.FromString(bytes_of(rng, schemas.descriptor)) for _ in range(4)]
    values = [message.SerializeToString() for message in messages]
    rows, errors = decode(plan_of(schemas, **how), values)
    assert not errors
    assert comparable(rows) == comparable([row_of(message, **how) for message in messages])


@given(st.integers(0))
@examples(120)
def test_some_columns_are_those_of_the_whole(seed: int) -> None:
    """TC-71, TC-97: what is not wanted is skipped, and still ends a oneof."""
    rng = Random(seed)
    schemas = Schemas(rng)
    names = [field.name for field in schemas.descriptor.fields]
    wanted = rng.sample(names, rng.randint(1, len(names)))
    values = [bytes_of(rng, schemas.descriptor) for _ in range(5)]
    rows, errors = decode(plan_of(schemas, columns=wanted), values)
    assert not errors
    expected = [row_of(schemas.type.FromString(value)) for value in values]
    some = [{name: row[name] for name in names if name in wanted} for row in expected]
    assert comparable(rows) == comparable(some)


@given(st.integers(0))
@examples(200)
def test_a_changed_byte_is_an_error_or_what_the_runtime_reads(seed: int) -> None:
    """TC-98: never another row's values."""
    rng = Random(seed)
    schemas = Schemas(rng, is_kept=True)
    plan = plan_of(schemas, enums="number")
    values = [bytes_of(rng, schemas.descriptor) for _ in range(3)]
    before, _ = decode(plan, values)
    if not values[1]:
        return
    damaged = bytearray(values[1])
    damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    values[1] = bytes(damaged)
    rows, errors = decode(plan, values)
    assert len(rows) == 3
    assert comparable([rows[0], rows[2]]) == comparable([before[0], before[2]])
    try:
        other = schemas.type.FromString(values[1])
    except Exception:
        event("the runtime refuses it")
        assert errors
        return
    if errors:
        event(f"error {errors[0][2]}")
        assert rows[1] is None
        # What the runtime takes for unknown fields, text of proto2, and times as they are.
        assert errors[0][2] in {TYPE, UTF8, RANGE}
        return
    assert comparable(rows[1]) == comparable(row_of(other, enums="number"))


@given(st.integers(0))
@examples(200)
def test_any_bytes_are_what_the_slow_decoder_makes_of_them(seed: int) -> None:
    """TC-88 to TC-98: the same row, or the same code, also of damaged bytes and some columns."""
    rng = Random(seed)
    schemas = Schemas(rng, has_raw=True)
    names = [field.name for field in schemas.descriptor.fields]
    wanted = None if rng.random() < 0.5 else rng.sample(names, rng.randint(1, len(names)))
    columns = message_columns(
        read_descriptor_set(schemas.descriptor_set), schemas.name, columns=select(wanted)
    )
    plan = compile_plan(columns)
    values = [bytes_of(rng, schemas.descriptor) for _ in range(4)]
    values = [damaged(rng, value, INTERESTING) if rng.random() < 0.7 else value for value in values]
    rows, errors = decode(plan, values)
    codes = {error[0]: error[2] for error in errors}
    for at, value in enumerate(values):
        code, expected = None, None
        try:
            expected = with_dicts(plan.column, reference_decode(columns, value))
        except BadMessageError as error:
            code = error.code
            event(f"error {code.name}")
        assert codes.get(at) == code
        assert comparable(rows[at]) == comparable(expected)


@given(st.integers(0))
@examples(60)
def test_two_messages_one_behind_the_other_are_merged(seed: int) -> None:
    """TC-90: as the runtime merges them, wherever the first one ends."""
    rng = Random(seed)
    schemas = Schemas(rng, has_raw=True)
    parts = [bytes_of(rng, schemas.descriptor) for _ in range(3)]
    whole = b"".join(parts)
    rows, errors = decode(plan_of(schemas), [whole])
    merged = schemas.type()
    for part in parts:
        merged.MergeFromString(part)
    again, others = decode(plan_of(schemas), [merged.SerializeToString()])
    if errors:  # damaged Structs, which are raw here
        return
    assert not others
    has_raw = any(f.type.kind is Kind.RAW for _, f in plan_of(schemas).column.nodes())
    if not has_raw:
        assert comparable(rows) == comparable(again)


def test_rows_are_the_same_however_a_column_is_cut() -> None:
    rng = Random(5)
    schemas = Schemas(rng)
    plan = plan_of(schemas)
    values = [bytes_of(rng, schemas.descriptor) for _ in range(100)]
    whole, errors = decode(plan, values)
    assert not errors
    for most_bytes in (1, 500, 5_000):
        rows: list[Any] = []
        while len(rows) < len(values):
            some, _ = decode(plan, values[len(rows) :], most_bytes=most_bytes)
            assert some
            rows += some
        assert comparable(rows) == comparable(whole)
