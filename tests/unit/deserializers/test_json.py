"""``kfast.Json``: arguments, decoding from memory, errors as users see them, inference."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import uuid
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

import kfast
from kfast.columns.bytes import BytesColumn
from kfast.deserializers import as_deserializer
from kfast.errors import ConfigurationError, DeserializationError
from kfast.records import ConsumerRecords, build_partition_records
from tests.unit.deserializers.schema_source import headers_of
from tests.unit.records.sample_index import Sample, sample_index

SCHEMA: dict[str, Any] = {
    "id": "int64",
    "ts": "timestamp[ms, UTC]",
    "user": "string",
    "price": "float64",
    "lines": [{"sku": "string", "qty": "int32"}],
}
ROW = {"id": 1, "ts": 1500, "user": "é", "price": 2.5, "lines": [{"sku": "a", "qty": 3}]}


def text(row: object) -> bytes:
    return json.dumps(row).encode()


def test_columns() -> None:
    """TC-19: documents in memory become columns over the decoder's memory, one row each."""
    values, errors = kfast.Json(SCHEMA).decode([text(ROW), None, b"null", b"{}"])
    assert len(values) == 4
    assert len(errors) == 0
    assert values.is_null.tolist() == [False, True, True, False]
    assert values["price"].tolist() == [2.5, None, None, None]
    assert values["lines"].items["qty"].tolist() == [3]
    assert values["lines"].offsets.tolist() == [0, 1, 1, 1, 1]
    made = values[0]
    assert made["lines"] == [{"sku": "a", "qty": 3}]
    assert made["ts"].isoformat() == "1970-01-01T00:00:01.500000+00:00"
    array = pa.array(values)
    array.validate(full=True)
    assert array.type.field("ts").type == pa.timestamp("ms", "UTC")
    assert array.to_pylist()[3] == dict.fromkeys(SCHEMA)


@pytest.mark.parametrize(
    ("schema", "values", "expected"),
    [
        ("float64", [b"1.5", b"null", b"-2"], [1.5, None, -2.0]),
        (["int32"], [b"[1,2]", b"[]"], [[1, 2], []]),
        ("map<string, bool>", [b'{"a":true}'], [{"a": True}]),
        ("string", [b'"x"'], ["x"]),
        ("decimal128(6, 2)", [b"1.5"], None),
        ("dictionary", [b'"x"', b'"y"', b'"x"'], ["x", "y", "x"]),
        ("raw", [b'{"a": 1}'], None),
        ("date32", [b'"2024-02-29"'], None),
        ("time64[us]", [b'"12:00:00.5"'], None),
        ("uuid", [b'"01234567-89ab-cdef-0123-456789abcdef"'], None),
        ("binary", [b'"AAE="'], [b"\0\1"]),
    ],
    ids=str,
)
def test_roots_of_any_type(schema: object, values: list[bytes], expected: Any) -> None:
    """TC-19"""
    column = kfast.Json(schema).decode(values).values
    made = column.tolist() if hasattr(column, "tolist") else column.to_list()
    assert len(made) == len(values)
    if expected is not None:
        assert made == expected


def test_other_libraries_read_the_columns() -> None:
    """TC-19: pyarrow and polars read what was decoded."""
    column = kfast.Json(SCHEMA).decode([text(ROW), text(ROW | {"user": None})]).values
    table = pa.table({"v": pa.array(column)})
    table.validate(full=True)
    assert table.num_rows == 2
    assert pl.Series(column).struct.field("user").to_list() == ["é", None]


def test_what_is_decoded() -> None:
    reader = kfast.Json({"a": "int8"})
    values = [b'{"a":1}', None]
    for given in (values, tuple(values), BytesColumn.from_values(values)):
        assert reader.decode(given).values["a"].tolist() == [1, None]
    with pytest.raises(ConfigurationError, match="takes a sequence of values"):
        reader.decode(b'{"a":1}')


BAD = text(ROW | {"lines": [{"qty": 1}, {}, {"qty": "12"}]})


def test_bad_rows() -> None:
    """TC-20: the first bad row is raised, or all of them are null or left out, and named."""
    reader = kfast.Json(SCHEMA)
    values = [text(ROW), BAD, b"", text(ROW)]
    with pytest.raises(DeserializationError) as caught:
        reader.decode(values)
    error = caught.value
    assert (error.offset, error.code, error.path) == (1, "type", "lines[2].qty")
    assert error.byte_position == BAD.index(b'"12"')
    assert error.message.startswith("row 1: value.lines[2].qty is a string, not int32 (byte ")
    assert error.message.endswith(': "12")')
    made, errors = reader.decode(values, on_error="null")
    assert made.is_null.tolist() == [False, True, True, False]
    assert [(each.offset, each.code, each.path) for each in errors] == [
        (1, "type", "lines[2].qty"),
        (2, "empty", ""),
    ]
    assert [each.raw for each in errors] == [BAD, b""]
    made, errors = reader.decode(values, on_error="skip")
    assert made["id"].tolist() == [1, 1]
    assert len(errors) == 2


@pytest.mark.parametrize(
    ("schema", "document", "expected"),
    [
        ({"a": "int8"}, b'{"a":300}', "value.a does not fit int8 (byte 5: 300)"),
        ({"a": "int8"}, b'{"a":[1]}', "value.a is an array, not int8 (byte 5: [1)"),
        ({"a": "int8 not null"}, b"{}", "value.a is missing, and required (byte 1: })"),
        ({"a": "string"}, b'{"a":"\xff"}', "value.a is not UTF-8 (byte 6: 0xff)"),
        ({"a": "int8"}, b'{"a":1', "value ends too early (byte 6)"),
        ({"a": "int8"}, b'{"a":1}{"a":2}', 'value has bytes after its end (byte 7: {"a")'),
        ({"a": "int8"}, b"", "value has no bytes"),
        ("raw", b"{'a': 1}", "value is not JSON (byte 1: 'a')"),
        (
            {"a": "string"},
            b'{"a":{"text":"' + b"x" * 50 + b'"}}',
            'value.a is an object, not string (byte 5: {"text")',
        ),
        ({"a": "int8"}, b'{"a":"' + b"x" * 50 + b'"}', '(byte 5: "' + "x" * 23 + "...)"),
    ],
    ids=str,
)
def test_texts_of_errors(schema: object, document: bytes, expected: str) -> None:
    """TC-20"""
    with pytest.raises(DeserializationError) as caught:
        kfast.Json(schema).decode([document])
    assert expected in caught.value.message
    assert len(str(caught.value).splitlines()) <= 6


def test_framed_documents() -> None:
    """TC-14: a frame that was not expected is named, and one that is noted in errors."""
    framed = b'\0\0\0\0\7{"a":1}'
    plain = kfast.Json({"a": "int8"})
    reader = kfast.Json({"a": "int8"}, framing="confluent")
    assert reader.decode([framed]).values["a"].tolist() == [1]
    with pytest.raises(DeserializationError) as caught:
        plain.decode([framed])
    assert "Confluent wire format, schema id 7" in str(caught.value)
    _, errors = plain.decode([framed], on_error="null")
    assert errors[0].code == "syntax"
    _, errors = reader.decode([b'{"a":1}', framed[:-1]], on_error="null")
    assert [(each.code, each.schema_id) for each in errors] == [("magic", None), ("truncated", 7)]
    apicurio = kfast.Json({"a": "int8"}, framing="apicurio")
    assert apicurio.decode([b'\0\0\0\0\0\0\0\1\2{"a":1}']).values["a"].tolist() == [1]
    _, errors = apicurio.decode([b"\0\0\0\0\0\0\0\1\2{"], on_error="null")
    assert errors[0].schema_id == 258
    not_framed = [b'{"a":1}', b"\0\0\0", b"", framed[:5], b'\1\0\0\0\7{"a":1}', b"\3" + bytes(17)]
    values, errors = reader.decode([*not_framed, framed, None], on_error="null")
    assert values.to_list() == [*[None] * 6, {"a": 1}, None]
    assert [(each.code, each.byte_position) for each in errors] == [
        ("magic", 0), ("truncated", 0), ("empty", 0), ("empty", 5), ("magic", 0), ("magic", 0),
    ]  # fmt: skip


def test_a_header_names_the_schema_of_a_document() -> None:
    """TC-131: the id in the header comes before a prefix, and the document is all of the value."""
    framed, bare = b'\0\0\0\0\7{"a":1}', b'{"a":2}'
    guid = bytes(range(16))
    in_header = [(b"__value_schema_id", b"\1" + guid)]
    number = [(b"__value_schema_id", b"\0\0\0\0\5")]
    headers = headers_of([], in_header, number, in_header, [(b"x", b"y")])
    reader = kfast.Json({"a": "int8"}, framing="confluent")
    assert reader.needs_headers
    assert not kfast.Json({"a": "int8"}).needs_headers
    values, errors = reader.decode(
        [framed, bare, bare, framed, b"{"], headers=headers, on_error="null"
    )
    assert values.to_list() == [{"a": 1}, {"a": 2}, {"a": 2}, None, None]
    # A prefix left over behind a header is a decoding error like any other.
    assert [(each.offset, each.code, each.byte_position, each.schema_id) for each in errors] == [
        (3, "syntax", 0, str(uuid.UUID(bytes=guid))),
        (4, "magic", 0, None),
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"framing": "conflunt"}, 'framing="confluent"'),
        ({"framing": "glue"}, "known and not supported"),
        ({"framing": "avro-single-object"}, "there is no framing"),
        ({"coerce": ["number_texts"]}, 'did you mean "number_text"'),
        ({"duplicates": "first"}, "duplicates has no 'first'"),
        ({"max_depth": 0}, "1 to 1024"),
        ({"max_depth": 5000}, "1 to 1024"),
        ({"allow_nan": "yes"}, "True or False"),
    ],
    ids=str,
)
def test_arguments_are_checked(arguments: dict[str, Any], reason: str) -> None:
    """TC-21: what an argument cannot be is refused at construction, with the nearest name."""
    with pytest.raises(ConfigurationError, match=reason):
        kfast.Json({"a": "int8"}, **arguments)
    with pytest.raises(ConfigurationError, match="not the class Json"):
        as_deserializer(kfast.Json)


def test_equal_pickled_shown() -> None:
    """TC-21: a deserializer is compared, pickled and shown by its arguments."""
    reader = kfast.Json(SCHEMA, coerce="number_text", max_depth=5)
    again = pickle.loads(pickle.dumps(reader))
    assert again == reader
    assert hash(again) == hash(reader)
    assert again.decode([b'{"id":"7"}']).values["id"].tolist() == [7]
    assert reader != kfast.Json(SCHEMA)
    assert kfast.Json("a INT") == kfast.Json({"a": "int32"})
    assert eval(repr(reader), {"Json": kfast.Json, "kfast": kfast}) == reader
    assert reader.columns == tuple(SCHEMA)
    assert reader.schema == kfast.Schema(SCHEMA)
    assert len(repr(reader.plan).splitlines()) == 9


def test_inferred() -> None:
    """TC-03: a deserializer inferred from a sample reads the sample."""
    rows = [ROW, ROW | {"extra": "2024-01-01T00:00:00Z"}]
    sample = [text(row) for row in rows]
    for given in (sample, BytesColumn.from_values(sample), b"\n".join(sample).decode()):
        reader = kfast.Json.infer(given, timestamps=True)
        assert reader.report is not None
        assert reader.report.documents == 2
        assert str(reader.decode(sample).values["extra"][1]) == "2024-01-01T00:00:00.000000"
        assert "timestamp[us, UTC]" in repr(reader.schema)
    assert kfast.Json(SCHEMA).report is None
    with pytest.raises(ConfigurationError, match="documents as bytes or text"):
        kfast.Json.infer(5)


def test_nothing_typed_is_imported_with_kfast() -> None:
    """TC-22: ``import kfast`` and untyped deserializers load nothing of typed columns."""
    program = (
        "import sys, kfast; kfast.Utf8(); kfast.KafkaConsumer\n"
        "names = ('kfast.schemas', 'kfast._native.json_decode', 'kfast._native.builders')\n"
        "typed = [name for name in sys.modules if name.startswith(names)]\n"
        "sys.exit(str(typed) if typed else 0)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_inferred_of_batches() -> None:
    """TC-03: a batch, and records of several partitions, are samples."""
    index = sample_index([Sample(value, b"k") for value in (b'{"a":1}', None, b'{"a":2.5}')])
    batch = build_partition_records("orders", 3, index).records
    for sample in (batch, ConsumerRecords({batch.topic_partition: batch})):
        reader = kfast.Json.infer(sample)
        assert reader.schema == kfast.Schema({"a": "float64"})
        assert reader.report is not None
        assert reader.report.documents == 3
        assert batch.decode(values=reader).values["a"].tolist() == [1.0, None, 2.5]
