"""The shared part of typed deserializers: decoding from memory, and errors that name the place."""

from __future__ import annotations

import gc
import pickle
from typing import Any

import pyarrow as pa
import pytest

import kfast
from kfast.columns.bytes import BytesColumn
from kfast.deserializers import as_deserializer, needs_headers
from kfast.deserializers.deserializer import NativeDeserializer, is_native
from kfast.deserializers.typed import values_of
from kfast.errors import ConfigurationError, DeserializationError
from kfast.schemas.schema import Schema
from tests.unit.deserializers.sample_format import SCHEMA, Lines

VALUES = [b"1 a", None, b"x b", b"2 c", b"3", b"4 d"]


def row(number: int, text: str) -> dict[str, Any]:
    return {"id": {"n": number}, "text": text}


@pytest.mark.parametrize("piece", [1, 2, 5, 100])
def test_bad_rows_are_null_and_named(piece: int) -> None:
    """TC-44: a bad value is named by row, code, path and byte; rows stay those of the values."""
    values, errors = Lines(piece=piece).decode(VALUES, on_error="null")
    assert values.to_list() == [row(1, "a"), None, None, row(2, "c"), None, row(4, "d")]
    assert errors.offset.tolist() == [2, 4]
    assert errors.code == ["type", "missing"]
    assert errors.path == ["id.n", "text"]
    assert errors.byte_position.tolist() == [0, 1]
    assert errors.schema_id == [102, 104]
    assert errors.raw.to_list() == [b"x b", b"3"]
    assert errors.message == [
        'row 2: value.id.n is a word, not int64 (byte 0: "x b")',
        'row 4: value.text is missing, and required (byte 1: "")',
    ]


def test_bad_rows_can_be_left_out() -> None:
    values, errors = Lines().decode(VALUES, on_error="skip")
    assert values.to_list() == [row(1, "a"), None, row(2, "c"), row(4, "d")]
    assert len(errors) == 2


@pytest.mark.parametrize("piece", [1, 100])
def test_the_first_bad_row_is_raised(piece: int) -> None:
    with pytest.raises(DeserializationError) as caught:
        Lines(piece=piece).decode(VALUES)
    error = caught.value
    assert (error.offset, error.code, error.path, error.byte_position) == (2, "type", "id.n", 0)
    assert (error.schema_id, error.value_bytes, error.column) == (102, b"x b", "value")
    assert str(error).splitlines()[-1] == 'try: on_error="null" or "skip" reads the others'
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.code, copy.path, str(copy)) == ("type", "id.n", str(error))


def test_good_values_have_no_errors() -> None:
    values, errors = Lines().decode([b"7 x", None])
    assert values.to_list() == [row(7, "x"), None]
    assert len(errors) == 0
    assert Lines().decode([]).values.to_list() == []
    assert Lines().decode(BytesColumn.from_values([b"7 x"])).values.to_list() == [row(7, "x")]


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.string(), pa.large_string()], ids=str
)
def test_arrow_arrays_are_read_in_place(kind: pa.DataType) -> None:
    """TC-57: Arrow arrays of binary and text are decoded in place, slices and nulls included."""
    array = pa.array(["9 z", "1 a", None, "2 b", ""], kind)
    for given, rows in (
        (array[:3], [row(9, "z"), row(1, "a"), None]),
        (array[1:4], [row(1, "a"), None, row(2, "b")]),
        (array[2:3], [None]),
        (array[:0], []),
        (pa.array([], kind), []),
    ):
        assert Lines().decode(given).values.to_list() == rows
    column = values_of(array)
    assert column.to_list() == [b"9 z", b"1 a", None, b"2 b", b""]
    assert column.data.ctypes.data == array.buffers()[2].address
    before = pa.total_allocated_bytes()
    del array, given
    gc.collect()
    assert column.to_list()[3] == b"2 b"
    del column
    gc.collect()
    assert pa.total_allocated_bytes() <= before


def test_other_arrow_arrays_are_refused() -> None:
    with pytest.raises(ConfigurationError, match='format "l"'):
        Lines().decode(pa.array([1]))
    with pytest.raises(ConfigurationError, match="cast it to binary"):
        Lines().decode(pa.array(["a"], pa.string_view()))


def test_framed_values_read_as_plain_are_recognized() -> None:
    """TC-45: what begins as Confluent's wire format is recognized, with what to do."""
    with pytest.raises(DeserializationError) as caught:
        Lines().decode([b"\x00\x00\x00\x00\x07{}"])
    assert "Confluent wire format, schema id 7" in str(caught.value)
    bad = Lines().explain(b"\x00\x00\x00\x00\x07{}")
    assert bad.hint.startswith('framing="confluent"')
    assert "Confluent" not in Lines(framing="confluent").explain(b"\x00\x00\x00\x00\x07{}").found


@pytest.mark.parametrize(
    ("values", "text"),
    [(b"1 a", "sequence of values"), ("1 a", "sequence"), ([b"", "x"], "row 1 is str")],
)
def test_what_decode_does_not_take(values: Any, text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        Lines().decode(values)


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="on_error"):
        Lines().decode([], on_error="ignore")


def test_deserializers_are_values() -> None:
    """TC-46: deserializers are immutable, comparable, picklable, and name their schema."""
    made = Lines(piece=3)
    assert pickle.loads(pickle.dumps(made)) == made == Lines(piece=3) != Lines()
    assert len({made, Lines(piece=3)}) == 1
    assert repr(made) == "Lines(piece=3)"
    assert made.schema == Schema(SCHEMA)
    assert isinstance(made, NativeDeserializer)
    assert is_native(made)
    assert not needs_headers(made)
    assert as_deserializer(made) is made


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda **given: kfast.Json("int64", **given), "Json has no argument frameing; did you"),
        (lambda **given: kfast.Avro('"long"', **given), "Avro has no argument frameing; did you"),
        (lambda **given: kfast.Protobuf("M", **given), "Protobuf has no argument frameing; did"),
    ],
)
def test_an_unknown_argument_is_refused_with_the_nearest_name(make: Any, text: str) -> None:
    """TC-21"""
    with pytest.raises(ConfigurationError) as raised:
        make(frameing="none")
    assert raised.value.message.startswith(text)
    assert raised.value.message.endswith("mean framing?")
