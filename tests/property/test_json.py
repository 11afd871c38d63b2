"""JSON columns over random schemas, values and ways of writing them."""

from __future__ import annotations

import json
import random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kfast.columns.record_errors import ErrorKind
from kfast.schemas.field import Field
from kfast.schemas.json_plan import json_plan
from kfast.schemas.schema import Schema
from tests.reference.built_values import decode_json
from tests.reference.json_text import Writer, schemas, values
from tests.soaking import examples


@st.composite
def documents(draw: Any) -> tuple[Any, list[Any], list[bytes]]:
    schema = draw(schemas())
    rows = draw(st.lists(values(schema), min_size=1, max_size=6))
    writer = Writer(draw(st.integers(0, 2**32)))
    return schema, rows, [writer.document(schema, row) for row in rows]


@examples(150)
@given(documents())
def test_rows_are_the_values_that_were_written(made: tuple[Any, list[Any], list[bytes]]) -> None:
    """TC-16: whatever a legal document looks like, its row is its value."""
    schema, rows, texts = made
    root = Schema(schema).root
    found, errors = decode_json(json_plan(root), root, texts)
    assert len(found) == len(rows)
    assert not errors, (texts, errors)
    assert repr(found) == repr(rows)
    # In two runs, and with tombstones between.
    cut = len(texts) // 2
    first, _ = decode_json(json_plan(root), root, [None, *texts[:cut]])
    second, _ = decode_json(json_plan(root), root, [*texts[cut:], None])
    assert repr(first[1:] + second[:-1]) == repr(rows)
    last, errors = decode_json(json_plan(root, duplicates_last=True), root, texts)
    assert not errors
    assert repr(last) == repr(rows)


PATHS = st.lists(st.sampled_from("abc"), min_size=1, max_size=3).map(tuple)
OBJECTS = st.recursive(
    st.none() | st.integers(0, 9),
    lambda inner: st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=12,
)


def apart(paths: list[tuple[str, ...]]) -> bool:
    """Whether no path begins with another one."""
    return not any(a != b and a == b[: len(a)] for a in paths for b in paths)


def found_at(document: Any, path: tuple[str, ...]) -> Any:
    """Return what stands at a path of objects; raises TypeError where it is something else."""
    for step in path:
        if document is None:
            return None
        if not isinstance(document, dict):
            raise TypeError(path)
        document = document.get(step)
    if isinstance(document, dict):
        raise TypeError(path)
    return document


@examples(150)
@given(st.lists(PATHS, min_size=1, max_size=4, unique=True).filter(apart), st.lists(OBJECTS))
def test_lifted_paths(paths: list[tuple[str, ...]], rows: list[Any]) -> None:
    """TC-10, TC-16: objects on the way to columns may be null, missing or something else."""
    root = Schema({"/".join(path): Field("int64", source=path) for path in paths}).root
    expected: list[Any] = []
    for row in rows:
        try:
            made = {"/".join(path): found_at(row, path) for path in paths}
            expected.append(None if row is None else made)
        except TypeError:
            expected.append(TypeError)
    texts = [json.dumps(row).encode() for row in rows]
    for is_last in (False, True):
        found, errors = decode_json(json_plan(root, duplicates_last=is_last), root, texts)
        assert {each.code for each in errors} <= {ErrorKind.TYPE}
        bad = {each.row for each in errors}
        shown = [TypeError if at in bad else row for at, row in enumerate(found)]
        assert shown == expected


@examples(100)
@given(documents(), st.integers(0, 2**32))
def test_a_changed_byte_is_an_error_or_what_json_reads(
    made: tuple[Any, list[Any], list[bytes]], seed: int
) -> None:
    """TC-17: damaged documents are bad rows or have the value of what stands there; no other row
    changes."""
    schema, rows, texts = made
    generator = random.Random(seed)
    damaged = bytearray(generator.choice(texts))
    at = generator.randrange(len(damaged))
    action = generator.randrange(3)
    if action == 0:
        damaged[at] = generator.choice(b'"\\{}[]:, 0x\xff\x00-')
    elif action == 1:
        del damaged[at]
    else:
        del damaged[at:]
    root = Schema(schema).root
    found, errors = decode_json(json_plan(root), root, [texts[0], bytes(damaged), texts[-1]])
    assert len(found) == 3
    assert repr([found[0], found[2]]) == repr([rows[0], rows[-1]])
    if not errors:
        try:
            json.loads(bytes(damaged).decode())
        except ValueError:
            # Numbers and words of other members are the one thing that is not checked.
            assert isinstance(schema, dict)
            assert b"unwanted" in damaged or action == 0
    else:
        assert [each.row for each in errors] == [1]
        assert 0 <= errors[0].position <= len(damaged)
