"""Avro: which schema a value is written with and which one it is read by; errors; pickling."""

from __future__ import annotations

import json
import logging
import pickle
from typing import Any
from uuid import UUID

import fastavro.schema
import pyarrow as pa
import pytest

import kfast
from kfast.deserializers.avro import Avro
from kfast.errors import ConfigurationError, DeserializationError
from kfast.records import PartitionRecords, build_partition_records
from kfast.records.building import empty_partition_records
from kfast.registry.registered_schema import AVRO, SchemaKey
from tests.fake_registry.server import fake_registry
from tests.reference.avro_encoder import encode, long, sized
from tests.unit.deserializers.schema_source import Source, column, headers_of
from tests.unit.records.sample_index import Sample, sample_index
from tests.unit.schemas.avro_records import record

FIRST = record("Order", id="int", name="string")
SECOND = record("Order", name="string", note=["null", "string"], id="long")
GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


@pytest.fixture
def source() -> Source:
    made = Source(AVRO)
    made.add(SchemaKey.of_id(1), FIRST)
    made.add(SchemaKey.of_id(2), SECOND)
    made.add(SchemaKey.of_guid(GUID), SECOND)
    made.add(SchemaKey.of_global_id(1 << 40), FIRST)
    made.add(SchemaKey.of_version("orders-value"), SECOND)
    made.add(SchemaKey.of_version("orders-key"), "long")
    made.add(SchemaKey.of_version("orders-value", 1), FIRST)
    return made


def framed(number: int, schema: Any, value: Any) -> bytes:
    return b"\0" + number.to_bytes(4, "big", signed=True) + encode(schema, value)


ONE = framed(1, FIRST, {"id": 5, "name": "a"})
TWO = framed(2, SECOND, {"id": 6, "name": "b", "note": (1, "n")})


def test_values_without_framing() -> None:
    avro = kfast.Avro(json.dumps(FIRST))
    decoded = avro.decode([ONE[5:], None])
    assert decoded.values.to_list() == [{"id": 5, "name": "a"}, None]
    assert not len(decoded.errors)
    batch = pa.record_batch(decoded.values[:1])
    batch.validate(full=True)
    assert batch.schema.field("id") == pa.field("id", pa.int32(), nullable=False)
    assert avro.schema is not None
    assert repr(avro.plan).splitlines()[1].split() == ["1", "INT", "id", "0", "0"]
    # A schema that was read is one too, and the reader may be another.
    assert kfast.Avro(FIRST, reader=record("Order", id="double")).decode(
        [ONE[5:]]
    ).values.to_list() == [{"id": 5.0}]


def test_several_writers_in_one_batch(source: Source) -> None:
    """TC-72, TC-75: rows stay in order, in the columns of the reader."""
    reader = record("Order", id="long", note=["null", "string"])
    reader["fields"][1]["default"] = None
    avro = Avro(registry=source, reader=json.dumps(reader))
    assert avro.needs_headers
    values = avro.decode([ONE, TWO, None, TWO, ONE]).values
    expected = [{"id": 5, "note": None}, {"id": 6, "note": "n"}, None]
    assert values.to_list() == [*expected, expected[1], expected[0]]
    assert sorted(key.value for key in source.asked) == [1, 2]
    avro.decode([TWO, ONE])
    assert len(source.asked) == 2


def test_one_field_with_two_types_under_two_ids(source: Source) -> None:
    """TC-72: the first id seen gives the columns, and later writers are resolved to it."""
    avro = Avro(registry=source)
    assert avro.schema is None
    decoded = avro.decode([TWO, ONE], on_error="null")
    # The note of the second schema has no default: the first cannot be read by it.
    assert decoded.values.to_list() == [{"name": "b", "note": "n", "id": 6}, None]
    ((error),) = decoded.errors
    assert (error.code, error.schema_id, error.byte_position) == ("resolution", 1, 0)
    other = Avro(registry=source, columns=["id"])
    assert other.decode([ONE, TWO], on_error="null").errors.code == ["resolution"]  # long to int


def test_the_first_schema_is_that_of_each_topic_and_column(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-76: kept for the life of the object, and logged."""
    avro = Avro(registry=source, columns=["id"])
    with caplog.at_level(logging.INFO, "kfast"):
        for values, topic, kind in (([ONE], "a", "int32"), ([TWO], "b", "int64")):
            given = column(values, topic)
            avro.wait_for_schemas(given, None)
            made: Any = avro.deserialize_column(given, stop_at_first=True).values
            assert f"'id': '{kind} not null'" in repr(made.schema)
    assert "the schema of values of a is that of schema id 1" in caplog.text


def test_named_readers(source: Source) -> None:
    """TC-76: latest of the topic, a version of a subject."""
    avro = Avro(registry=source, reader="latest", framing="confluent", columns=["id"])
    given = column([ONE, TWO])
    avro.wait_for_schemas(given, None)
    made: Any = avro.deserialize_column(given, stop_at_first=True).values
    assert made.to_list() == [{"id": 5}, {"id": 6}]
    assert SchemaKey.of_version("orders-value") in source.asked
    key = Avro(registry=source, reader="latest")
    assert SchemaKey.of_version("orders-key") in key.prepare(column([], name="key"), None)
    pinned = Avro(registry=source, reader="orders-value:1")
    assert pinned.decode([ONE]).values.to_list() == [{"id": 5, "name": "a"}]
    latest = Avro(registry=source, reader="orders-value:latest", columns=["name"])
    assert latest.decode([ONE, TWO]).values.to_list() == [{"name": "a"}, {"name": "b"}]
    with pytest.raises(ConfigurationError, match="values in memory have none"):
        Avro(registry=source, reader="latest").decode([ONE])
    with pytest.raises(ConfigurationError, match="no Avro schema for reader='none:2'"):
        Avro(registry=source, reader="none:2").decode([ONE])


def test_framings(source: Source) -> None:
    """TC-75: a header before the prefix, Apicurio's global ids, single objects."""
    avro = Avro(registry=source, reader=json.dumps(record("Order", id="long")))
    guid = (b"__value_schema_id", b"\1" + GUID.bytes)
    number = (b"__value_schema_id", b"\0\0\0\0\1")
    other = (b"__key_schema_id", b"\0\0\0\0\2")
    headers = headers_of([guid], [other, number], [], [guid])
    decoded = avro.decode([TWO[5:], ONE[5:], ONE, TWO], headers=headers, on_error="null")
    assert decoded.values.to_list() == [{"id": 6}, {"id": 5}, {"id": 5}, None]
    # A prefix left over behind a header is a decoding error like any other.
    ((error),) = decoded.errors
    assert (error.offset, error.schema_id) == (3, str(GUID))

    apicurio = Avro(registry=source, framing="apicurio")
    value = b"\0" + (1 << 40).to_bytes(8, "big") + ONE[5:]
    assert apicurio.decode([value]).values.to_list() == [{"id": 5, "name": "a"}]
    assert not apicurio.needs_headers

    marks = []
    for schema in (FIRST, SECOND):
        form = fastavro.schema.to_parsing_canonical_form(schema)
        marks.append(b"\xc3\1" + bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO")))
    single = Avro([FIRST, SECOND], framing="avro-single-object", columns=["name"])
    decoded = single.decode(
        [marks[0] + ONE[5:], marks[1] + TWO[5:], b"\xc3\1" + bytes(8) + b"\0", b"\xc3\2\0"],
        on_error="null",
    )
    assert decoded.values.to_list() == [{"name": "a"}, {"name": "b"}, None, None]
    assert decoded.errors.code == ["unknown_schema", "magic"]
    assert decoded.errors.schema_id == ["0" * 16, None]
    assert "which no schema that was given has" in decoded.errors[0].message


def test_values_that_are_not_framed_so(source: Source) -> None:
    """TC-75: nothing is guessed."""
    avro = Avro(registry=source)
    values = [ONE, b"", b"\0\0", b"\1" + ONE[1:], b"{}", framed(9, "int", 3), ONE + b"\0"]
    decoded = avro.decode(values, on_error="null")
    assert [value is None for value in decoded.values.to_list()] == [False] + [True] * 6
    assert decoded.errors.code == [
        "empty", "truncated", "magic", "magic", "unknown_schema", "trailing",
    ]  # fmt: skip
    assert decoded.errors.schema_id == [None, None, None, None, 9, 1]
    assert source.asked.count(SchemaKey.of_id(9)) == 1
    # What the registry did not have is asked for again, what it had is not.
    source.add(SchemaKey.of_id(9), FIRST)
    assert avro.decode([framed(9, FIRST, {"id": 1, "name": "x"}), ONE]).values[0]["id"] == 1
    assert source.asked.count(SchemaKey.of_id(1)) == 1
    plain = Avro(json.dumps(FIRST))
    with pytest.raises(DeserializationError, match="schema id 1\ntry:") as caught:
        plain.decode([ONE])
    assert caught.value.offset == 0


def test_no_schema_is_known_yet(source: Source) -> None:
    avro = Avro(registry=source)
    decoded = avro.decode([None, framed(7, "int", 3)], on_error="null")
    assert decoded.values.to_list() == [None, None]
    assert decoded.errors.code == ["unknown_schema"]
    assert avro.decode([]).values.to_list() == []
    nothing = pa.array(avro.decode([None, None]).values[1:])
    nothing.validate(full=True)
    assert (nothing.type, len(nothing), nothing.null_count) == (pa.null(), 1, 1)
    assert repr(decoded.values) == "<NullColumn null n=2 nulls=2 [null, null]>"


def test_no_rows_need_no_schema(source: Source) -> None:
    """TC-75: an empty result asks the registry for nothing."""
    for avro in (Avro(registry=source), Avro(registry=source, reader="latest")):
        batch = empty_partition_records("orders", 0, key_deserializer=avro, value_deserializer=avro)
        assert len(batch.values) == 0
        assert batch.to_arrow().num_rows == 0
    assert not source.asked


def test_rows_before_the_first_schema_are_joined_with_others(source: Source) -> None:
    """TC-76: they are null in the columns that are known then, of any kind."""
    key, tags = {"type": "map", "values": "int"}, {"type": "array", "items": "string"}
    side = {"type": "enum", "name": "Side", "symbols": ["a", "b"]}
    source.add(SchemaKey.of_id(8), record("R", key=key, tags=tags, side=side, n=["null", "int"]))
    value = b"\0\0\0\0\10" + long(0) + long(1) + sized(b"t") + long(0) + long(1) + b"\0"
    row: dict[str, Any] = {"key": {}, "tags": ["t"], "side": "b", "n": None}
    source.add(SchemaKey.of_id(9), "double")
    source.add(SchemaKey.of_id(10), "string")
    source.add(SchemaKey.of_id(11), {"type": "string", "logicalType": "uuid"})
    source.add(SchemaKey.of_id(12), "bytes")
    for raw, expected in (
        (value, row),
        (b"\0\0\0\0\x09" + bytes(8), 0.0),
        (b"\0\0\0\0\x0a\2x", "x"),
        (b"\0\0\0\0\x0b" + sized(str(GUID).encode()), GUID),
        (b"\0\0\0\0\x0c\2x", b"x"),
    ):
        avro = Avro(registry=source)
        batches = []
        for values in ([None, None], [raw], [None]):
            index = sample_index([Sample(value=v) for v in values])
            records = build_partition_records("orders", 0, index).records
            batches.append(records.decode(values=avro))
        joined = PartitionRecords.concat([batches[0], batches[1], batches[0]])
        assert [r.value for r in joined] == [None, None, expected, None, None]
        assert [r.value for r in PartitionRecords.concat(batches[:1] * 2)] == [None] * 4
        joined.to_arrow().validate(full=True)


def test_schemas_of_a_registry_that_cannot_be_used(
    source: Source, caplog: pytest.LogCaptureFixture
) -> None:
    source.add(SchemaKey.of_id(3), "nonsense")
    source.add(SchemaKey.of_id(4), {"type": "object"}, "JSON")
    size = {"type": "fixed", "name": "x.Id", "size": 1}
    source.add(SchemaKey.of_id(5), record("Order", id="x.Id", name="string"), id=size)
    avro = Avro(registry=source, reader=json.dumps(FIRST))
    values = [ONE, b"\0\0\0\0\3\0", b"\0\0\0\0\4\0", b"\0\0\0\0\5a\2b"]
    decoded = avro.decode(values, on_error="skip")
    assert decoded.values.to_list() == [{"id": 5, "name": "a"}]
    assert decoded.errors.code == ["schema", "schema", "resolution"]
    assert "id 3, whose schema is none of Avro" in decoded.errors[0].message
    assert "schema id 5 cannot be read: id: the writer's schema has fixed x.Id" in caplog.text
    assert "schema id 4 is a schema of JSON" in caplog.text
    whole = Avro(registry=source)
    assert whole.decode([values[3]]).values.to_list() == [{"id": b"a", "name": "b"}]


def test_10_000_ids_of_which_100_are_kept(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-77: what is kept of schemas is bounded."""
    monkeypatch.setattr("kfast.deserializers.framed.MOST_KNOWN", 100)
    monkeypatch.setattr("kfast.deserializers.framed.RECENT_TURNS", 1)
    for number in range(1000, 2000):
        source.add(SchemaKey.of_id(number), FIRST)
    avro = Avro(registry=source, reader=json.dumps(FIRST))
    for begin in range(1000, 2000, 50):
        values = [b"\0" + n.to_bytes(4, "big") + ONE[5:] for n in range(begin, begin + 50)]
        assert avro.decode(values).values.to_list() == [{"id": 5, "name": "a"}] * 50
    assert len(avro._known) <= 150
    assert len(avro._plans) <= 150


def test_what_a_batch_needs_is_not_dropped_for_what_it_has_learned(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TC-77: ids that were known before are known to the batch that has others besides."""
    monkeypatch.setattr("kfast.deserializers.framed.MOST_KNOWN", 10)
    monkeypatch.setattr("kfast.deserializers.framed.RECENT_TURNS", 1)
    for number in range(10, 60):
        source.add(SchemaKey.of_id(number), FIRST)
    values = [framed(number, FIRST, {"id": number, "name": "x"}) for number in range(10, 60)]
    avro = Avro(registry=source)
    for begin, end in ((0, 10), (0, 15), (5, 30), (0, 50), (20, 25), (0, 50)):
        decoded = avro.decode(values[begin:end])
        assert decoded.values["id"].tolist() == [*range(10 + begin, 10 + end)]
        assert len(avro._known) <= 50
    avro.decode(values[:1])
    avro.decode(values[:1])
    assert len(avro._known) <= 10
    asked = len(source.asked)
    avro.decode(values[40:50])
    assert len(source.asked) <= asked + 10


def test_objects_are_equal_by_their_arguments_and_pickle() -> None:
    text = json.dumps(FIRST)
    avro = Avro(text, columns=["id"], max_depth=5)
    again = pickle.loads(pickle.dumps(avro))
    assert again == avro
    assert hash(again) == hash(avro)
    assert again.decode([ONE[5:]]).values.to_list() == [{"id": 5}]
    assert avro != Avro(text)
    assert (avro.columns, Avro(text).columns) == (("id",), None)
    assert repr(Avro("int", max_depth=3)) == "Avro(schema='int', max_depth=3)"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs the writer's schema"),
        ({"schema": ["int", "long"]}, "found: 2 schemas"),
        ({"schema": "in"}, "the Avro schema is not JSON"),
        ({"schema": 3}, "a schema is its JSON text or a dict, not int"),
        ({"schema": "int", "framing": "confluent"}, "needs a registry"),
        ({"schema": "int", "registry": Source(AVRO)}, "is the one that a value names"),
        ({"schema": "int", "registry": "http://x"}, "registry is a SchemaRegistry, not str"),
        ({"framing": "avro-single-object"}, "needs the schemas"),
        ({"schema": "int", "framing": "confluant"}, 'try: framing="confluent"'),
        ({"schema": "int", "framing": "glue"}, "is known and not supported"),
        ({"schema": "int", "reader": "latest"}, "reader='latest' needs a registry"),
        ({"registry": Source(AVRO), "reader": "orders:x"}, "is no schema and no version"),
        ({"registry": Source(AVRO), "reader": "orders:0"}, "is no schema and no version"),
        ({"schema": "int", "reader": "string"}, "the writer's schema has int, the reader's string"),
        ({"schema": "int", "max_depth": 0}, "max_depth is 1 to 256"),
        ({"schema": "int", "max_depth": "5"}, "max_depth is a number"),
        ({"schema": json.dumps(FIRST), "columns": ["ids"]}, 'did you mean "id"'),
        ({"schema": json.dumps(record("R", a=["int", "string"]))}, "a is no column"),
    ],
)
def test_arguments_that_cannot_be_used(arguments: dict[str, Any], message: str) -> None:
    """TC-62, TC-63: at construction, which does no I/O."""
    with pytest.raises(ConfigurationError, match=message):
        Avro(**arguments)


def test_rows_past_the_limit_of_memory_are_decoded_in_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """TC-74: a column that is cut is joined in order, with its errors."""
    values: list[bytes | None] = [sized(b"x" * 1000 + str(n).encode()) for n in range(500)]
    values[400] = b"\4\xff\xff"
    monkeypatch.setattr("kfast.deserializers.typed.NO_LIMIT", 100_000)
    decoded = Avro("string").decode(values, on_error="null")
    assert [v and v[1000:] for v in decoded.values.to_list()] == [
        None if n == 400 else str(n) for n in range(500)
    ]
    assert decoded.errors.offset.tolist() == [400]


def test_single_types_are_columns() -> None:
    assert Avro("double").decode([b"\0" * 8]).values.tolist() == [0.0]
    array = Avro('{"type": "array", "items": "int"}').decode([long(1) + long(4) + long(0)])
    assert array.values.to_list() == [[4]]


def test_schemas_come_from_a_registry() -> None:
    """TC-75, TC-76: over HTTP, each id once, in a batch and from memory."""
    with fake_registry() as server, kfast.SchemaRegistry(server.url) as registry:
        one = server.register("orders-value", json.dumps(FIRST))
        two = server.register("orders-value", json.dumps(SECOND))
        values = [
            framed(one, FIRST, {"id": 5, "name": "a"}),
            framed(two, SECOND, {"id": 6, "name": "b", "note": (0, None)}),
            framed(77, SECOND, {"id": 6, "name": "b", "note": (0, None)}),
        ]
        avro = kfast.Avro(registry=registry, reader="latest", columns=["id", "name"])
        raw = build_partition_records("orders", 3, sample_index([Sample(value=v) for v in values]))
        batch = raw.records.decode(values=avro, on_error="null")
        assert batch.values.to_list() == [{"id": 5, "name": "a"}, {"id": 6, "name": "b"}, None]
        ((error),) = batch.errors
        assert (error.topic, error.partition, error.code) == ("orders", 3, "unknown_schema")
        assert error.schema_id == 77
        assert sorted(server.paths) == [
            "/schemas/ids/1",
            "/schemas/ids/2",
            "/schemas/ids/77",
            "/subjects/orders-value/versions/latest",
        ]
        with pytest.raises(DeserializationError, match="schema id 77") as caught:
            raw.records.decode(values=avro)
        assert caught.value.offset == 102
        again = pickle.loads(pickle.dumps(avro))
        assert again == avro
        assert "latest" in repr(avro)
