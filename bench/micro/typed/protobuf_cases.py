"""Protobuf: flat and nested values with the prefix of a registry, next to readers of Protobuf."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import ptars
import pyarrow as pa
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

import kfast
from bench.micro.typed.cases import MOST_MEMORY, Case
from bench.micro.typed.json_cases import nested_rows
from kfast.columns.bytes import BytesColumn
from kfast.demo.data import trades

Field = descriptor_pb2.FieldDescriptorProto
TYPES = {
    "bool": Field.TYPE_BOOL,
    "double": Field.TYPE_DOUBLE,
    "int32": Field.TYPE_INT32,
    "int64": Field.TYPE_INT64,
    "string": Field.TYPE_STRING,
}
FLAT = {"id": "int64", "ts": "int64", "user": "string", "price": "double", "qty": "int32",
        "side": "string"}  # fmt: skip
MESSAGES: dict[str, dict[str, str]] = {
    "Trade": FLAT,
    "Head": {
        "id": "int64",
        "customer": "string",
        "city": "string",
        "total": "double",
        "paid": "bool",
    },
    "Line": {"sku": "string", "qty": "int32", "price": "double"},
    "Order": {
        "order": "Head",
        "lines": "Line*",
        "note": "string?",
        "comment": "string?",
        "channel": "string",
    },
}
PREFIX = b"\0\0\0\0\1"


def generated() -> dict[str, Any]:
    """Return the classes of all messages."""
    file = descriptor_pb2.FileDescriptorProto(name="bench.proto", package="b", syntax="proto3")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, text) in enumerate(fields.items(), 1):
            made = message.field.add(name=field, number=number, label=Field.LABEL_OPTIONAL)
            kind = text.rstrip("*?")
            if kind in TYPES:
                made.type = TYPES[kind]
            else:
                made.type, made.type_name = Field.TYPE_MESSAGE, f".b.{kind}"
            if text.endswith("*"):
                made.label = Field.LABEL_REPEATED
            elif text.endswith("?"):
                made.proto3_optional = True
                made.oneof_index = len(message.oneof_decl)
                message.oneof_decl.add(name=f"_{field}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"b.{name}"))
        for name in MESSAGES
    }


def own(payloads: list[bytes], kind: Any) -> Callable[[], object]:
    """Return kfast's contestant, with the prefix of a registry."""
    indexes = (b"\0", b"\2\2", b"\2\4", b"\2\6")[list(MESSAGES).index(kind.DESCRIPTOR.name)]
    column = BytesColumn.from_values([PREFIX + indexes + payload for payload in payloads])
    reader = kfast.Protobuf(kind, framing="confluent")

    def decode() -> object:
        made: Any = reader.deserialize_column(column, None, stop_at_first=True).values
        return made.__arrow_c_array__()

    return decode


def by_ptars(payloads: list[bytes], kind: Any) -> Callable[[], object]:
    """Return ptars' contestant."""
    handler = ptars.HandlerPool([kind.DESCRIPTOR.file]).get_for_message(kind.DESCRIPTOR)
    array = pa.array(payloads, pa.binary())
    return lambda: handler.array_to_record_batch(array)


def by_runtime(payloads: list[bytes], kind: Any, fields: dict[str, str]) -> Callable[[], object]:
    """Return the contestant of Protobuf's own runtime: a message per value."""
    read = kind.FromString
    arrow = pa.schema(kfast.Protobuf(kind).decode([]).values)

    def decode() -> object:
        rows = [read(payload) for payload in payloads]
        columns = [[getattr(row, name) for row in rows] for name in fields]
        return pa.table(columns, arrow)

    return decode


def cases(records: int) -> Iterator[Case]:
    """Yield the cases; ``records`` is the number of flat values."""
    generator = random.Random(18)
    kinds = generated()
    trade, order = kinds["Trade"], kinds["Order"]
    flat = [trade(**row).SerializeToString() for row in trades(records, generator)]
    few = flat[: records // 20]
    size = round(sum(map(len, flat)) / len(flat))
    yield Case(
        "Protobuf flat",
        records,
        size,
        {"kfast": own(flat, trade), "ptars": by_ptars(flat, trade)},
        bars={"ptars": 0.60},
        most_memory=MOST_MEMORY,
    )
    yield Case(
        "Protobuf flat, object per record",
        len(few),
        size,
        {"kfast": own(few, trade), "upb": by_runtime(few, trade, FLAT)},
    )
    rows = nested_rows(records // 4, generator)
    nested = [order(**row).SerializeToString() for row in rows]
    yield Case(
        "Protobuf nested",
        len(nested),
        round(sum(map(len, nested)) / len(nested)),
        {"kfast": own(nested, order), "ptars": by_ptars(nested, order)},
        bars={"ptars": 0.50},
        most_memory=MOST_MEMORY,
    )
