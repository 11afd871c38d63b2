"""Deserializers: columns they make, values they cannot read, and what users may pass."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest

from kfast.deserializers import (
    Float32,
    Float64,
    Int32,
    Int64,
    Struct,
    Utf8,
    Uuid,
    as_deserializer,
)
from kfast.errors import ConfigurationError, DeserializationError
from kfast.records import (
    BuildResult,
    BytesColumn,
    StringColumn,
    UuidColumn,
    build_partition_records,
)
from tests.unit.records.sample_index import Sample, sample_index

POINT = [("x", ">i4"), ("y", "<f8")]


def point(x: int, y: float) -> bytes:
    return struct.pack(">i", x) + struct.pack("<d", y)


def build(
    values: Sequence[Sample | bytes | None], deserializer: Any, **options: Any
) -> BuildResult:
    index = sample_index(values, base_offset=1840)
    return build_partition_records("orders", 3, index, value_deserializer=deserializer, **options)


def values_of(result: BuildResult) -> Any:
    assert result.error is None
    return result.records.values


def masked_list(array: Any) -> list[Any]:
    return list(np.ma.MaskedArray(array).tolist())


def failure(values: Sequence[Sample | bytes | None], deserializer: Any) -> DeserializationError:
    error = build(values, deserializer).error
    assert error is not None
    return error


NUMBERS: list[tuple[Any, str, list[float]]] = [
    (Int32(), ">i", [1, -2, 2**31 - 1]),
    (Int64(), ">q", [1, -2, 2**63 - 1]),
    (Float32(), ">f", [0.5, -2.0, float("inf")]),
    (Float64(), ">d", [0.1, -2.0, 1e300]),
]


@pytest.mark.parametrize(("deserializer", "code", "numbers"), NUMBERS)
def test_numbers(deserializer: Any, code: str, numbers: list[float]) -> None:
    column = values_of(build([struct.pack(code, number) for number in numbers], deserializer))
    assert type(column) is np.ndarray
    assert column.dtype == np.dtype(code).newbyteorder("=")
    assert column.tolist() == numbers
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 0


@pytest.mark.parametrize(("deserializer", "code", "numbers"), NUMBERS)
def test_null_numbers_are_masked(deserializer: Any, code: str, numbers: list[float]) -> None:
    """D-02: a null is masked, not a number."""
    column = values_of(build([None, struct.pack(code, numbers[0])], deserializer))
    assert isinstance(column, np.ma.MaskedArray)
    assert masked_list(column) == [None, numbers[0]]
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 0


def test_text() -> None:
    column = values_of(build([b"a", None, b"", "ü".encode()], Utf8()))
    assert isinstance(column, StringColumn)
    assert column.to_list() == ["a", None, "", "ü"]


def test_uuids() -> None:
    one = UUID("00112233-4455-6677-8899-aabbccddeeff")
    column = values_of(build([str(one).encode(), None, one.bytes], Uuid()))
    assert isinstance(column, UuidColumn)
    assert column.to_list() == [one, None, one]


def test_structures() -> None:
    column = values_of(build([point(1, 0.5), point(-2, 1e300)], Struct(POINT)))
    assert column.dtype == np.dtype(POINT)
    assert column["x"].tolist() == [1, -2]
    assert column["y"].tolist() == [0.5, 1e300]


def test_null_structures_are_masked() -> None:
    column = values_of(build([None, point(1, 0.5)], Struct(POINT)))
    assert isinstance(column, np.ma.MaskedArray)
    assert column.mask.tolist() == [(True, True), (False, False)]
    assert column["x"].tolist() == [None, 1]


@pytest.mark.parametrize("dtype", ["i4", object, [("a", "i4"), ("b", object)], [], "nonsense"])
def test_structures_need_fields_without_objects(dtype: Any) -> None:
    """E-02: an impossible layout is refused at construction."""
    with pytest.raises(ConfigurationError, match="Struct"):
        Struct(dtype)


def test_callables() -> None:
    column = values_of(build([b'{"a": [1, 2]}', None, b"[1, 2]"], json.loads))
    assert column.dtype == object
    assert column.tolist() == [{"a": [1, 2]}, None, [1, 2]]
    assert column.shape == (3,)


def test_a_callable_never_sees_null() -> None:
    seen: list[bytes] = []
    build([b"a", None, b""], seen.append)
    assert seen == [b"a", b""]


class OldStyle:
    """kafka-python up to version 2."""

    def deserialize(self, topic: str, value: bytes) -> tuple[str, bytes]:
        return topic, value


class NewStyle:
    """kafka-python from version 3."""

    def deserialize(
        self, topic: str, headers: list[tuple[str, bytes]], data: bytes
    ) -> tuple[str, list[tuple[str, bytes]], bytes]:
        return topic, headers, data


def test_objects_with_deserialize() -> None:
    """Both generations of kafka-python's interface work."""
    assert values_of(build([b"v", None], OldStyle())).tolist() == [("orders", b"v"), None]
    rows = [Sample(b"v", None, [("h", b"x")]), Sample(b"w")]
    assert values_of(build(rows, NewStyle())).tolist() == [
        ("orders", [("h", b"x")], b"v"),
        ("orders", [], b"w"),
    ]
    assert values_of(build([b"v"], NewStyle(), columns=["value"])).tolist() == [
        ("orders", [], b"v")
    ]


def test_the_deserializer_of_kafka_python() -> None:
    """The real class, not only one that looks like it."""
    serializer = pytest.importorskip("kafka.serializer")
    assert values_of(build([b'{"a": 1}'], serializer.JsonSerializer())).tolist() == [{"a": 1}]


@pytest.mark.parametrize("given", [5, "utf8", b"x", [Utf8()]])
def test_what_is_no_deserializer(given: object) -> None:
    """E-02: refused at construction, not at the first record."""
    with pytest.raises(ConfigurationError, match="is no deserializer"):
        as_deserializer(given)


def test_a_class_in_place_of_an_object() -> None:
    with pytest.raises(ConfigurationError) as caught:
        as_deserializer(Utf8)
    assert "try: write Utf8(...) instead of Utf8" in str(caught.value)


def test_builtins_and_types_are_callables() -> None:
    assert values_of(build([b"12"], int)).tolist() == [12]
    assert values_of(build([b"12"], len)).tolist() == [2]
    assert as_deserializer(None) is None
    made = as_deserializer(len)
    assert as_deserializer(made) is made
    assert as_deserializer(Int64()) == Int64()


# --- what cannot be read --------------------------------------------------------------------------


def test_malformed_text() -> None:
    """E-08: the error names the record and shows where its text breaks."""
    error = failure([b"ok", Sample(b"ab\xffcd", b"k"), b"ok"], Utf8())
    assert str(error).splitlines() == [
        "orders-3 offset 1841: value is not UTF-8 (byte 2: 0xff)",
        "found: 61 62 ff 63 64 (5 bytes)",
        'try: seek past it, or set on_deserialization_error to "null" or "skip"',
    ]
    assert (error.topic, error.partition, error.offset) == ("orders", 3, 1841)
    assert error.column == "value"
    assert (error.key_bytes, error.value_bytes) == (b"k", b"ab\xffcd")
    assert not error.retriable


def test_confluents_wire_format_is_recognised() -> None:
    """E-08: an Avro value read as text says so, with its schema id."""
    error = failure([b"ok"] * 5 + [b"\x00\x00\x00\x00\x07\x02\xfe\xff"], Utf8())
    lines = str(error).splitlines()
    assert lines[0] == "orders-3 offset 1845: value is not UTF-8 (byte 0: 0x00)"
    assert lines[1] == ("found: 00 00 00 00 07 … \N{EN DASH} Confluent wire format, schema id 7")
    assert lines[2].startswith("try: ")


@pytest.mark.parametrize(
    ("deserializer", "raw", "line", "found"),
    [
        (Int32(), b"abc", "value is not an Int32 (3 bytes, needs 4)", "61 62 63 (3 bytes)"),
        (
            Int32(),
            bytes(8),
            "value is not an Int32 (8 bytes, needs 4)",
            "00 00 00 00 00 00 00 00 (8 bytes)",
        ),
        (Int64(), b"", "value is not an Int64 (0 bytes, needs 8)", "(0 bytes)"),
        (
            Float32(),
            b"123456789",
            "value is not a Float32 (9 bytes, needs 4)",
            "31 32 33 34 35 36 37 38 … (9 bytes)",
        ),
        (
            Float64(),
            b"\0\0\0\0\1xyz01",
            "value is not a Float64 (10 bytes, needs 8)",
            "00 00 00 00 01 … \N{EN DASH} Confluent wire format, schema id 1",
        ),
        (
            Uuid(),
            b"abc",
            "value is not a UUID (36 characters of text, or 16 bytes)",
            "61 62 63 (3 bytes)",
        ),
        (Struct(POINT), b"abc", "value is not a Struct (3 bytes, needs 12)", "61 62 63 (3 bytes)"),
        (Utf8(), b"\xff", "value is not UTF-8 (byte 0: 0xff)", "ff (1 bytes)"),
    ],
)
def test_messages(deserializer: Any, raw: bytes, line: str, found: str) -> None:
    error = failure([raw], deserializer)
    assert str(error).splitlines()[0] == f"orders-3 offset 1840: {line}"
    assert error.found == found


def test_an_exception_of_user_code_is_the_cause() -> None:
    """E-08: the original exception is kept, and the record's bytes."""
    error = failure([b"1", Sample(b"x\ny", b"key")], int)
    assert isinstance(error.__cause__, ValueError)
    lines = str(error).splitlines()
    assert lines[0] == "orders-3 offset 1841: value cannot be read by int"
    assert lines[1].startswith("cause: ValueError: invalid literal")
    assert (error.key_bytes, error.value_bytes) == (b"key", b"x\ny")


def test_user_code_is_named() -> None:
    class Parser:
        def deserialize(self, topic: str, value: bytes) -> int:
            raise LookupError

    assert "cannot be read by Parser\ncause: LookupError" in str(failure([b"1"], Parser()))
    assert "cannot be read by loads" in str(failure([b"{"], json.loads))


def test_errors_pickle() -> None:
    """E-09: with everything they carry."""
    error = failure([Sample(b"\xff", b"k")], Utf8())
    again = pickle.loads(pickle.dumps(error))
    assert (str(again), again.offset, again.value_bytes) == (str(error), 1840, b"\xff")


def test_keyboard_interrupt_is_not_swallowed() -> None:
    def interrupted(raw: bytes) -> object:
        raise KeyboardInterrupt

    for on_error in ("raise", "null", "skip"):
        with pytest.raises(KeyboardInterrupt):
            build([b"x"], interrupted, on_error=on_error)


# --- raise, null, skip ----------------------------------------------------------------------------

BAD_CASES: list[tuple[Any, bytes, bytes, Callable[[Any], list[Any]]]] = [
    (Utf8(), b"ok", b"\xff", lambda column: column.to_list()),
    (Int32(), b"\0\0\0\1", b"\1", masked_list),
    (Struct([("x", ">i4")]), b"\0\0\0\1", b"", lambda column: masked_list(column["x"])),
    (Uuid(), bytes(16), b"x", lambda column: column.to_list()),
    (int, b"7", b"x", lambda column: column.tolist()),
]


@pytest.mark.parametrize(("deserializer", "good", "bad", "listed"), BAD_CASES)
def test_raise_gives_the_records_before(
    deserializer: Any, good: bytes, bad: bytes, listed: Callable[[Any], list[Any]]
) -> None:
    """E-08: records before the bad one come first, and the position stays at it."""
    result = build([good, None, bad, good, bad], deserializer)
    assert result.error is not None
    assert result.error.offset == 1842
    assert result.records.offsets.tolist() == [1840, 1841]
    assert result.records.next_offset == 1842
    assert len(listed(result.records.values)) == 2
    assert result.records.deserialization_errors == 0
    assert [record.offset for record in result.records] == [1840, 1841]


@pytest.mark.parametrize(("deserializer", "good", "bad", "listed"), BAD_CASES)
def test_null_keeps_the_row(
    deserializer: Any, good: bytes, bad: bytes, listed: Callable[[Any], list[Any]]
) -> None:
    """E-08: on request a bad value becomes null and is counted."""
    result = build([good, None, bad, good, bad], deserializer, on_error="null")
    assert result.error is None
    values = listed(result.records.values)
    assert [value is None for value in values] == [False, True, True, False, True]
    assert values[0] == values[3]
    assert result.records.deserialization_errors == 2
    assert result.records.next_offset == 1845
    result.records.to_arrow().validate(full=True)


@pytest.mark.parametrize(("deserializer", "good", "bad", "listed"), BAD_CASES)
def test_skip_leaves_the_row_out(
    deserializer: Any, good: bytes, bad: bytes, listed: Callable[[Any], list[Any]]
) -> None:
    """E-07, E-08: on request a bad record is left out and counted; no row stands for it."""
    result = build([good, None, bad, good, bad], deserializer, on_error="skip")
    assert result.error is None
    assert result.records.offsets.tolist() == [1840, 1841, 1843]
    assert [value is None for value in listed(result.records.values)] == [False, True, False]
    assert result.records.deserialization_errors == 2
    assert result.records.next_offset == 1845
    result.records.to_arrow().validate(full=True)


def test_keys_and_values_together() -> None:
    """E-08: the first bad record wins, whichever of its columns is bad; the key goes first."""
    rows = [
        Sample(b"\0\0\0\1", b"k"),
        Sample(b"bad!!", b"k"),
        Sample(b"\0\0\0\2", b"\xff"),
        Sample(b"bad!!", b"\xff"),
    ]
    options: dict[str, Any] = {"key_deserializer": Utf8()}
    raised = build(rows, Int32(), **options)
    assert raised.error is not None
    assert (raised.error.offset, raised.error.column) == (1841, "value")
    assert raised.records.offsets.tolist() == [1840]
    assert raised.records.keys[:].to_list() == ["k"]
    both = build(rows[3:], Int32(), **options)
    assert both.error is not None
    assert both.error.column == "key"
    assert len(both.records) == 0
    assert both.records.next_offset == 1840
    key_first = build(rows[2:], Int32(), **options)
    assert key_first.error is not None
    assert (key_first.error.offset, key_first.error.column) == (1840, "key")
    nulled = build(rows, Int32(), on_error="null", **options)
    assert nulled.records.deserialization_errors == 4
    skipped = build(rows, Int32(), on_error="skip", **options)
    assert skipped.records.offsets.tolist() == [1840]
    assert skipped.records.deserialization_errors == 3


def test_values_behind_a_bad_key_are_not_looked_at() -> None:
    seen: list[bytes] = []
    rows = [Sample(b"1", b"k"), Sample(b"2", b"\xff"), Sample(b"3", b"k")]
    build(rows, seen.append, key_deserializer=Utf8())
    assert seen == [b"1"]


def test_unasked_columns_are_not_deserialized() -> None:
    seen: list[bytes] = []
    result = build([b"\xff"], seen.append, columns=["offset", "key"])
    assert seen == []
    assert result.error is None
    assert len(result.records) == 1


# --- exports of deserialized columns --------------------------------------------------------------


@pytest.mark.parametrize(
    ("deserializer", "raw", "kind", "expected"),
    [
        (Utf8(), [b"a", None], pa.string(), ["a", None]),
        (Int32(), [b"\0\0\0\1", None], pa.int32(), [1, None]),
        (Float64(), [bytes(8), None], pa.float64(), [0.0, None]),
        (Uuid(), [bytes(16), None], pa.uuid(), [UUID(int=0), None]),
        (
            Struct(POINT),
            [point(1, 0.5), None],
            pa.struct([("x", pa.int32()), ("y", pa.float64())]),
            [{"x": 1, "y": 0.5}, None],
        ),
        (int, [b"1", None], pa.int64(), [1, None]),
        (float, [b"1", None], pa.float64(), [1.0, None]),
        (lambda raw: raw == b"1", [b"1", b"2", None], pa.bool_(), [True, False, None]),
        (bytes.decode, [b"a", None], pa.string(), ["a", None]),
        (bytes.upper, [b"a", None], pa.binary(), [b"A", None]),
        (lambda raw: None, [b"a", None], pa.null(), [None, None]),
        (lambda raw: 2**70, [b"a"], None, None),
        (json.loads, [b'{"a": [1]}', None], None, [{"a": [1]}, None]),
        (json.loads, [b"1", b"2.5", None], pa.float64(), [1.0, 2.5, None]),
    ],
)
def test_to_arrow(
    deserializer: Any, raw: list[bytes | None], kind: Any, expected: list[Any] | None
) -> None:
    result = build(raw, deserializer)
    if expected is None:
        with pytest.raises(DeserializationError, match='column "value" holds Python objects'):
            result.records.to_arrow()
        return
    column = result.records.to_arrow().column("value")
    column.validate(full=True)
    if kind is not None:
        assert column.type == kind
    assert column.to_pylist() == expected


def test_objects_of_several_types_have_no_arrow_form() -> None:
    result = build([b'"a"', b"1"], json.loads)
    with pytest.raises(DeserializationError) as caught:
        result.records.to_arrow()
    assert caught.value.found == "int, str"


FIELDS = [
    ("bool", "?", [True, False], pa.bool_()),
    ("i1", "i1", [1, -1], pa.int8()),
    ("u2", ">u2", [1, 65535], pa.uint16()),
    ("u8", "<u8", [1, 2**64 - 1], pa.uint64()),
    ("f2", ">f2", [0.5, -1.0], pa.float16()),
    ("text", "S3", [b"abc", b"d\0\0"], pa.binary(3)),
    ("raw", "V2", [b"ab", b"cd"], pa.binary(2)),
    ("wide", ">U2", ["ab", "ü"], pa.string()),
    ("when", ">M8[ms]", [1, 2], pa.timestamp("ms")),
    ("day", "M8[D]", [1, 2], pa.date32()),
    ("hour", "M8[h]", [1, 2], pa.timestamp("s")),
    ("ten", "M8[10us]", [1, 2], pa.timestamp("us")),
    ("span", "m8[ns]", [1, 2], pa.duration("ns")),
    ("list", ">i4", [[1, 2, 3], [4, 5, 6]], pa.list_(pa.int32(), 3)),
    ("complex", ">c8", [1 + 2j, 3 - 4j], pa.list_(pa.float32(), 2)),
]


@pytest.mark.parametrize(("name", "dtype", "items", "kind"), FIELDS, ids=[f[0] for f in FIELDS])
def test_field_types(name: str, dtype: str, items: list[Any], kind: pa.DataType) -> None:
    full = np.dtype([("pad", "u1"), (name, dtype, (3,) if name == "list" else ())])
    table = np.zeros(2, full)
    for row, item in enumerate(items):
        table[name][row] = item
    result = build([row.tobytes() for row in table], Struct(full))
    assert values_of(result)[name].tolist() == table[name].tolist()
    column = result.records.to_arrow().column("value").field(name)
    column.validate(full=True)
    assert column.type == kind
    if name in {"bool", "i1", "u2", "u8", "f2", "text", "raw", "wide", "list"}:
        assert column.to_pylist() == items


def test_not_a_time_is_null() -> None:
    table = np.array([("NaT", "NaT")], [("t", "M8[s]"), ("d", "m8[W]")])
    column = build([table.tobytes()], Struct(table.dtype)).records.to_arrow().column("value")
    assert column.to_pylist() == [{"t": None, "d": None}]


def test_nested_structures() -> None:
    inner = np.dtype([("a", ">i2"), ("b", [("c", "u1")])])
    outer = np.dtype([("in", inner)])
    column = build([b"\0\1\2"], Struct(outer)).records.to_arrow().column("value")
    assert column.to_pylist() == [{"in": {"a": 1, "b": {"c": 2}}}]


TEXT_STRUCT = np.dtype([("id", "<i4"), ("inner", [("name", "<U2", (2,))]), ("other", ">U1")])


def text_struct(*points: int, other: int = 65) -> bytes:
    return struct.pack("<i4I", 7, *points) + struct.pack(">I", other)


@pytest.mark.parametrize(
    "bad", [text_struct(65, 0, 66, 0x110000), text_struct(65, 0, 66, 0, other=0xFFFFFFFF)]
)
def test_struct_with_impossible_code_points(bad: bytes) -> None:
    """B-16, E-08: a code point that does not exist is an error of its record, not a SystemError."""
    good = text_struct(0x1F600, 65, 0x10FFFF, 0)
    result = build([good, None, bad], Struct(TEXT_STRUCT))
    assert len(result.records) == 2
    assert result.error is not None
    assert "offset 1842: value has text with a code point past U+10FFFF" in str(result.error)
    assert result.error.value_bytes == bad
    nulled = build([good, bad, None, b"?"], Struct(TEXT_STRUCT), on_error="null")
    assert nulled.records.deserialization_errors == 2
    first, *others = nulled.records.to_arrow().column("value").to_pylist()
    assert first["inner"]["name"] == ["\U0001f600A", "\U0010ffff"]
    assert others == [None] * 3
    assert str(nulled.records.values.data["inner"]["name"][1].tolist()) == "['', '']"


def test_view_of_impossible_code_points() -> None:
    """B-16: a view as text refuses them too."""
    column = BytesColumn.from_values([struct.pack("<I", 65), struct.pack("<I", 0x110000)])
    assert column[:1].view("<U1").tolist() == ["A"]
    with pytest.raises(DeserializationError, match="row 1: value has text with a code point past"):
        column.view("<U1")
