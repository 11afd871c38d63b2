"""Z-01, Z-02, Z-03, Z-04: change events of Debezium as typed columns."""

from __future__ import annotations

import base64
import datetime
import json
import pickle
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import kfast
from kfast.errors import ConfigurationError, DeserializationError
from kfast.registry.registered_schema import AVRO, SchemaKey
from tests.reference.avro_encoder import encode
from tests.unit.deserializers.schema_source import Source, column

ROWS: dict[str, Any] = {"id": "int64", "name": "string", "price": "decimal(6, 2)"}
UTC = datetime.UTC


def event(op: str, after: Any, before: Any = None, **more: Any) -> dict[str, Any]:
    source = {"version": "3.0", "ts_ms": 7, "db": "shop", "table": "items", "lsn": 33}
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 9, **more}


def text(document: object) -> bytes:
    return json.dumps(document).encode()


def encoded(number: int) -> str:
    size = max(1, (number.bit_length() + 8) // 8)
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


KEY = '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}'


# --- JSON -----------------------------------------------------------------------------------------


def test_an_envelope_is_columns() -> None:
    """Z-01: op, time, both rows and what was chosen of the source; tombstones are null."""
    events = kfast.Debezium({"id": "int64", "name": "string"}, source=["lsn", "table"])
    values, errors = events.decode(
        [
            text(event("c", {"id": 1, "name": "a"})),
            text(event("u", {"id": 1, "name": None}, {"id": 1, "name": "a"})),
            text(event("d", None, {"id": 1})),
            None,
        ]
    )
    assert len(errors) == 0
    source = {"lsn": 33, "table": "items"}
    assert values.to_list() == [
        {"op": "c", "ts_ms": 9, "before": None, "after": {"id": 1, "name": "a"}, "source": source},
        {
            "op": "u",
            "ts_ms": 9,
            "before": {"id": 1, "name": "a"},
            "after": {"id": 1, "name": None},
            "source": source,
        },
        {
            "op": "d",
            "ts_ms": 9,
            "before": {"id": 1, "name": None},
            "after": None,
            "source": source,
        },
        None,
    ]


def test_documents_with_a_schema_and_a_payload() -> None:
    """Z-01: as JsonConverter writes them; read without payload= they are bad, not null."""
    document = text({"schema": {"type": "struct"}, "payload": event("r", {"id": 1})})
    events = kfast.Debezium(
        {"id": "int64"}, payload=True, source={"lsn": "int32"}, transaction=True
    )
    (row,) = events.decode([document]).values.to_list()
    assert row["after"] == {"id": 1}
    assert row["source"] == {"lsn": 33}
    assert row["transaction"] is None
    with pytest.raises(DeserializationError, match=r"value\.op is missing") as raised:
        kfast.Debezium({"id": "int64"}).decode([document])
    assert raised.value.code == "missing"


DIGITS = (0, 1, -1, 127, 128, -128, -129, 255, 256, -256, 99_999, 999_999, -999_999)


def test_decimals_are_exact() -> None:
    """Z-02: in each of the modes of the connector; what does not fit is an error at its path."""
    precise = kfast.Debezium(ROWS, decimals="precise")
    rows = [{"id": 1, "name": "x", "price": encoded(number)} for number in DIGITS]
    values = precise.decode([text(event("c", row)) for row in rows]).values
    array = pa.array(values)
    array.validate(full=True)
    assert array.type.field("after").type.field("price").type == pa.decimal128(6, 2)
    prices = [row["after"]["price"] for row in array.to_pylist()]
    assert prices == [Decimal(number).scaleb(-2) for number in DIGITS]
    for mode, price in (("string", "1250.50"), ("double", 1250.5)):
        events = kfast.Debezium(ROWS, decimals=mode)
        (row,) = events.decode([text(event("c", {"id": 1, "price": price}))]).values.to_list()
        assert row["after"]["price"] == Decimal("1250.50")


@pytest.mark.parametrize("number", [1_000_000, -1_000_000, 10**30, -(10**45)])
def test_a_decimal_that_does_not_fit_is_a_bad_value(number: int) -> None:
    """Z-02: its row is null, the others are not."""
    events = kfast.Debezium(ROWS, decimals="precise")
    good, bad = ({"id": 1, "price": encoded(each)} for each in (5, number))
    documents = [text(event("c", row)) for row in (good, bad, good)]
    values, errors = events.decode([None, *documents, b"{"], on_error="null")
    assert values.is_null.tolist() == [True, False, True, False, True]
    assert [(error.code, error.path) for error in errors] == [
        ("range", "after.price"),
        ("truncated", ""),
    ]
    with pytest.raises(
        DeserializationError, match=r"after\.price does not fit decimal128"
    ) as raised:
        events.decode(documents)
    assert raised.value.offset == 1


def test_decimals_of_many_digits_and_in_lists() -> None:
    """Z-02: 38 digits are 16 bytes; a bad item makes its own row bad."""
    events = kfast.Debezium({"big": "decimal(38, 0)", "all": ["decimal(3, 1)"]}, decimals="precise")
    most = 10**38 - 1
    rows = [
        {"big": encoded(most), "all": [encoded(5), None]},
        {"big": encoded(-most), "all": []},
        {"big": None, "all": [encoded(1), encoded(1000)]},
        {"big": encoded(0), "all": None},
    ]
    values, errors = events.decode([text(event("c", row)) for row in rows], on_error="null")
    after = [None if row is None else row["after"] for row in values.to_list()]
    assert after == [
        {"big": Decimal(most), "all": [Decimal("0.5"), None]},
        {"big": Decimal(-most), "all": []},
        None,
        {"big": Decimal(0), "all": None},
    ]
    assert [(error.offset, error.path) for error in errors] == [(2, "after.all[]")]


def connect(kind: str, name: str, logical: str = "", **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": name, **more} | (
        {"name": logical, "version": 1} if logical else {}
    )


CONNECT_ROW = [
    {"type": "int32", "optional": False, "field": "id"},
    connect("int32", "day", "io.debezium.time.Date"),
    connect("int32", "at", "io.debezium.time.Time"),
    connect("int64", "micro", "io.debezium.time.MicroTimestamp"),
    connect("int64", "nano", "io.debezium.time.NanoTimestamp"),
    connect("string", "zoned", "io.debezium.time.ZonedTimestamp"),
    connect("int64", "instant", "org.apache.kafka.connect.data.Timestamp"),
    connect(
        "bytes",
        "price",
        "org.apache.kafka.connect.data.Decimal",
        parameters={"scale": "2", "connect.decimal.precision": "8"},
    ),
    connect("string", "state", "io.debezium.data.Enum"),
    connect("int32", "year", "io.debezium.time.Year"),
    connect("array", "tags", items={"type": "string", "optional": True}),
    connect("bytes", "raw"),
]
CONNECT: dict[str, Any] = {
    "type": "struct",
    "name": "shop.public.items.Envelope",
    "fields": [
        {"type": "struct", "optional": True, "field": name, "fields": CONNECT_ROW}
        for name in ("before", "after")
    ]
    + [connect("string", "op"), connect("int64", "ts_ms")],
}


def test_a_schema_of_connect_says_what_numbers_are() -> None:
    """Z-03: logical types of Debezium and Connect become dates, times and decimals."""
    events = kfast.Debezium(CONNECT)
    row = {
        "id": 1,
        "day": 20_000,
        "at": 3_600_000,
        "micro": 1_500_000,
        "nano": 1_500,
        "zoned": "2026-01-31T12:00:00.5+02:00",
        "instant": 1_500,
        "price": encoded(12345),
        "state": "new",
        "year": 2026,
        "tags": ["a"],
        "raw": base64.b64encode(b"\0\1").decode(),
    }
    (made,) = events.decode(
        [text({"schema": CONNECT, "payload": event("c", row)})]
    ).values.to_list()
    assert made["after"] == {
        "id": 1,
        "day": datetime.date(2024, 10, 4),
        "at": datetime.time(1),
        "micro": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000),
        "nano": 1_500,
        "zoned": datetime.datetime(2026, 1, 31, 10, 0, 0, 500_000, UTC),
        "instant": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC),
        "price": Decimal("123.45"),
        "state": "new",
        "year": 2026,
        "tags": ["a"],
        "raw": b"\0\1",
    }
    assert made["op"] == "c"
    same = kfast.Debezium(made_schema(events), decimals="precise", payload=True)
    assert same.schema == events.schema
    copy = pickle.loads(pickle.dumps(events))
    assert copy == events
    assert copy.schema == events.schema


def made_schema(events: kfast.Debezium) -> Any:
    return events.options["rows"]


def test_keys_and_flattened_rows() -> None:
    """Z-03: the same types without an envelope; keys are as values are."""
    rows = kfast.Debezium(ROWS | {"__deleted": "string"}, decimals="precise", envelope=False)
    (row,) = rows.decode(
        [text({"id": 1, "name": "a", "price": encoded(5), "__deleted": "false"})]
    ).values.to_list()
    assert row == {"id": 1, "name": "a", "price": Decimal("0.05"), "__deleted": "false"}
    events = kfast.Debezium(ROWS, decimals="precise", payload=True)
    keys = events.key_deserializer(["price", "id"])
    assert keys is not None
    document = text({"schema": {}, "payload": {"id": 7, "price": encoded(99)}})
    assert keys.decode([document]).values.to_list() == [{"price": Decimal("0.99"), "id": 7}]
    with pytest.raises(DeserializationError, match="id is missing"):
        keys.decode([text({"payload": {"price": encoded(1)}})])
    with pytest.raises(ConfigurationError, match="no column nam"):
        events.key_deserializer(["nam"])


@pytest.mark.parametrize(
    ("rows", "options", "message"),
    [
        (ROWS, {}, "decimals of JSON"),
        (ROWS, {"decimals": "exact"}, "no decimals 'exact'"),
        ("int64", {}, "a row is a struct"),
        ({"id": "int64"}, {"source": ["lns"]}, "the type of lns is not known"),
        ({"id": "int64"}, {"source": "lsn"}, "source is names"),
        ({"id": "int64"}, {"envelope": False, "transaction": True}, "members of envelopes"),
        ({"id": "int64"}, {"payloads": True}, "no argument payloads"),
        ({"type": "struct", "fields": CONNECT_ROW}, {}, "no envelope of Debezium"),
        (kfast.Avro('"string"'), {"payload": True}, "payload is for events of JSON"),
        (kfast.Avro(KEY, columns=["id"]), {}, "has columns of its own"),
    ],
)
def test_what_cannot_be_is_refused(rows: Any, options: dict[str, Any], message: str) -> None:
    """Z-01: when it is made."""
    with pytest.raises(ConfigurationError, match=message):
        kfast.Debezium(rows, **options)


# --- Avro and Protobuf ----------------------------------------------------------------------------


def optional(kind: Any) -> list[Any]:
    return ["null", kind]


def avro_row(name: str = "Value") -> dict[str, Any]:
    def named(kind: str, logical: str) -> dict[str, Any]:
        return {"type": kind, "connect.version": 1, "connect.name": logical}

    return {
        "type": "record",
        "name": name,
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "day", "type": named("int", "io.debezium.time.Date")},
            {
                "name": "micro",
                "type": optional(named("long", "io.debezium.time.MicroTimestamp")),
                "default": None,
            },
            {
                "name": "zoned",
                "type": optional(named("string", "io.debezium.time.ZonedTimestamp")),
                "default": None,
            },
            {
                "name": "price",
                "type": {
                    "type": "bytes",
                    "scale": 2,
                    "precision": 8,
                    "logicalType": "decimal",
                    "connect.name": "org.apache.kafka.connect.data.Decimal",
                },
            },
        ],
    }


def avro_envelope(*, is_named: bool) -> dict[str, Any]:
    """Return the schema of envelopes; ``before`` has the row, which ``after`` names."""
    return {
        "type": "record",
        "name": "Envelope",
        "namespace": "shop.items",
        "fields": [
            {"name": "before", "type": optional(avro_row()), "default": None},
            {
                "name": "after",
                "type": optional("Value" if is_named else avro_row("Other")),
                "default": None,
            },
            {
                "name": "source",
                "type": {
                    "type": "record",
                    "name": "Source",
                    "fields": [
                        {"name": "lsn", "type": optional("long"), "default": None},
                        {"name": "db", "type": "string"},
                    ],
                },
            },
            {"name": "op", "type": "string"},
            {"name": "ts_ms", "type": optional("long"), "default": None},
            {"name": "extra", "type": optional("string"), "default": None},
        ],
    }


AVRO_ROW = {
    "id": 1,
    "day": 20_000,
    "micro": (1, 1_500_000),
    "zoned": (1, "2026-01-31T12:00:00Z"),
    "price": (12345).to_bytes(2, "big", signed=True),
}
AVRO_AFTER = {
    "id": 1,
    "day": datetime.date(2024, 10, 4),
    "micro": datetime.datetime(1970, 1, 1, 0, 0, 1, 500_000),
    "zoned": datetime.datetime(2026, 1, 31, 12, 0, tzinfo=UTC),
    "price": Decimal("123.45"),
}


def avro_event(**after: Any) -> bytes:
    return encode(
        avro_envelope(is_named=False),
        {
            "before": (0, None),
            "after": (1, {**AVRO_ROW, **after}),
            "source": {"lsn": (1, 33), "db": "shop"},
            "op": "c",
            "ts_ms": (1, 9),
            "extra": (0, None),
        },
    )


def test_envelopes_of_avro() -> None:
    """Z-04: names of Connect are types; other members of the envelope are left out."""
    inner = kfast.Avro(avro_envelope(is_named=True))
    events = kfast.Debezium(inner, source=["lsn"])
    values = events.decode([avro_event(), None, avro_event(zoned=(0, None))]).values
    pa.array(values).validate(full=True)
    first, tombstone, last = values.to_list()
    assert first == {
        "before": None,
        "after": AVRO_AFTER,
        "source": {"lsn": 33},
        "op": "c",
        "ts_ms": 9,
    }
    assert tombstone is None
    assert last["after"] == {**AVRO_AFTER, "zoned": None}
    values, errors = events.decode([avro_event(zoned=(1, "noon")), avro_event()], on_error="null")
    assert [row is None for row in values.to_list()] == [True, False]
    assert [error.path for error in errors] == ["after.zoned"]
    assert pickle.loads(pickle.dumps(events)) == events


def test_envelopes_of_avro_in_a_registry() -> None:
    """Z-04: schemas that values and the reader name are those of events; keys are looked up."""
    registry = Source(AVRO)
    schema = avro_envelope(is_named=True)
    registry.add(SchemaKey.of_version("orders-value"), schema)
    registry.add(SchemaKey.of_id(5), schema)
    events = kfast.Debezium(kfast.Avro(registry=registry, reader="latest"))
    rows = column([b"\0\0\0\0\5" + avro_event()])
    events.wait_for_schemas(rows, None)
    decoded = events.deserialize_column(rows, None, stop_at_first=True)
    assert decoded.errors is None
    (row,) = pa.array(decoded.values).to_pylist()
    assert row["after"] == AVRO_AFTER
    assert row["source"] == {"lsn": 33, "db": "shop"}
    assert events.root is not None
    keys = events.key_deserializer(["id"])
    assert keys is not None
    key = json.loads(KEY)
    registry.add(SchemaKey.of_version("orders-key"), key)
    registry.add(SchemaKey.of_id(6), key)
    rows = column([b"\0\0\0\0\6\x0e"], name="key")
    keys.wait_for_schemas(rows, None)
    decoded = keys.deserialize_column(rows, None, stop_at_first=True)
    assert pa.array(decoded.values).to_pylist() == [{"id": 7}]


PROTO = """
syntax = "proto3";
message Row { int64 id = 1; string name = 2; }
message Source { int64 lsn = 1; string db = 2; }
message Envelope {
  Row before = 1; Row after = 2; Source source = 3; string op = 4; optional int64 ts_ms = 5;
}
"""


def test_envelopes_of_protobuf() -> None:
    """Z-04: with the columns that are wanted."""
    inner = kfast.Protobuf("Envelope", descriptor_set=PROTO)
    events = kfast.Debezium(inner, source=["db"])
    document = b"\x12\x05\x08\x07\x12\x01a" + b"\x1a\x06\x12\x04shop" + b"\x22\x01c" + b"\x28\x09"
    rows = events.decode([document, None]).values.to_list()
    assert rows == [
        {
            "before": None,
            "after": {"id": 7, "name": "a"},
            "source": {"db": "shop"},
            "op": "c",
            "ts_ms": 9,
        },
        None,
    ]
    assert events.key_deserializer(["id"]) is None
