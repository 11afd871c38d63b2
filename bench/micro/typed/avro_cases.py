"""Avro: flat and nested values with the prefix of a registry, next to readers of Avro."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Callable, Collection, Iterator
from typing import Any

import fastavro
import pyarrow as pa
import pyruhvro
from confluent_kafka.schema_registry import Schema, topic_subject_name_strategy
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext

import kfast
from bench.data import avro_values
from bench.micro.typed.cases import MOST_MEMORY, Case
from bench.micro.typed.json_cases import nested_rows
from kfast.columns.bytes import BytesColumn
from kfast.demo.data import TRADE_AVRO, trades
from kfast.registry.registered_schema import RegisteredSchema, SchemaAnswers, SchemaKey

PREFIX = 5


def _record(name: str, **fields: Any) -> dict[str, Any]:
    listed = [{"name": key, "type": value} for key, value in fields.items()]
    return {"type": "record", "name": name, "fields": listed}


OTHER_FLAT = _record(
    "Trade",
    side="string",
    qty="int",
    venue="string",
    ts={"type": "long", "logicalType": "timestamp-millis"},
    id="int",
    user="string",
    price="double",
)
NESTED = _record(
    "Order",
    order=_record(
        "Head", id="long", customer="string", city="string", total="double", paid="boolean"
    ),
    lines={"type": "array", "items": _record("Line", sku="string", qty="int", price="double")},
    note=["null", "string"],
    comment=["null", "string"],
    channel="string",
)


class Source:
    """A registry in memory."""

    def __init__(self, *schemas: Any) -> None:
        self._schemas = {
            SchemaKey.of_id(number): RegisteredSchema("AVRO", json.dumps(schema))
            for number, schema in enumerate(schemas, 1)
        }

    def wait_for(self, keys: Collection[SchemaKey], **_: object) -> SchemaAnswers:
        """Return the schemas."""
        return SchemaAnswers({key: self._schemas[key] for key in keys})

    lookup: Any = None


class Client:
    """What confluent-kafka's deserializer needs of a client of a registry."""

    def __init__(self, schema: Any) -> None:
        self._schema = Schema(json.dumps(schema), "AVRO")

    def get_schema(self, *_: object, **__: object) -> Schema:
        """Return the one schema."""
        return self._schema

    def config(self) -> dict[str, Any]:
        """Return nothing: there is no server."""
        return {}


def own(values: list[bytes], source: Source, reader: Any) -> Callable[[], object]:
    """Return kfast's contestant."""
    column = BytesColumn.from_values(values)
    avro = kfast.Avro(registry=source, reader=json.dumps(reader))
    avro.wait_for_schemas(column, None)

    def decode() -> object:
        made: Any = avro.deserialize_column(column, None, stop_at_first=True).values
        return made.__arrow_c_array__()

    return decode


def arrow_of(schema: Any) -> pa.Schema:
    """Return the Arrow schema of a schema's columns."""
    return pa.schema(kfast.Avro(schema).decode([]).values)


def by_fastavro(values: list[bytes], schema: Any) -> Callable[[], object]:
    """Return fastavro's contestant: an object per value."""
    parsed, arrow = fastavro.parse_schema(schema), arrow_of(schema)
    read = fastavro.schemaless_reader

    def decode() -> object:
        rows = []
        for value in values:
            stream = io.BytesIO(value)
            stream.seek(PREFIX)
            rows.append(read(stream, parsed, None))
        return pa.Table.from_pylist(rows, arrow)

    return decode


def by_confluent(values: list[bytes], schema: Any) -> Callable[[], object]:
    """Return confluent-kafka's contestant: its deserializer for each value."""
    named = {"subject.name.strategy": topic_subject_name_strategy}
    deserializer: Any = AvroDeserializer(Client(schema), conf=named)
    context, arrow = SerializationContext("trades", MessageField.VALUE), arrow_of(schema)
    return lambda: pa.Table.from_pylist([deserializer(v, context) for v in values], arrow)


def by_pyruhvro(values: list[bytes], schema: Any) -> Callable[[], object]:
    """Return pyruhvro's contestant, without prefixes: it knows none."""
    payloads, text = [value[PREFIX:] for value in values], json.dumps(schema)
    return lambda: pyruhvro.deserialize_array(payloads, text)


def cases(records: int) -> Iterator[Case]:
    """Yield the cases; ``records`` is the number of flat values."""
    generator = random.Random(18)
    rows = list(trades(records, generator))
    flat = avro_values(TRADE_AVRO, iter(rows))
    few = flat[: records // 20]
    size = round(sum(map(len, flat)) / len(flat))
    yield Case(
        "Avro flat",
        records,
        size,
        {
            "kfast": own(flat, Source(TRADE_AVRO), TRADE_AVRO),
            "pyruhvro": by_pyruhvro(flat, TRADE_AVRO),
        },
        bars={"pyruhvro": 0.70},
        most_memory=MOST_MEMORY,
    )
    yield Case(
        "Avro flat, object per record",
        len(few),
        size,
        {
            "kfast": own(few, Source(TRADE_AVRO), TRADE_AVRO),
            "fastavro": by_fastavro(few, TRADE_AVRO),
            "confluent AvroDeserializer": by_confluent(few, TRADE_AVRO),
        },
        factors={"confluent AvroDeserializer": 150.0},
    )
    nested = avro_values(NESTED, nested_rows(records // 4, generator))
    yield Case(
        "Avro nested",
        len(nested),
        round(sum(map(len, nested)) / len(nested)),
        {"kfast": own(nested, Source(NESTED), NESTED), "pyruhvro": by_pyruhvro(nested, NESTED)},
        bars={"pyruhvro": 0.70},
        most_memory=MOST_MEMORY,
    )
    other = avro_values(OTHER_FLAT, ({**row, "venue": "XNYS"} for row in rows), 2)
    mixed = [pair[row & 1] for row, pair in enumerate(zip(flat, other, strict=True))]
    both = Source(TRADE_AVRO, OTHER_FLAT)
    yield Case(
        "Avro flat, two writers alternating",
        records,
        round(sum(map(len, mixed)) / len(mixed)),
        {"kfast": own(mixed, both, TRADE_AVRO), "kfast, one writer": own(flat, both, TRADE_AVRO)},
        bars={"kfast, one writer": 1.5},
    )
