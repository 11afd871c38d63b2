"""The slow decoder of Protobuf against Google's runtime, and the compiled one against the slow one.

Schemas and messages are random; the columns are those that decoding uses, so that presence,
defaults, oneofs, maps and well-known types are compared too. Where the runtime is laxer or reads
something in another way, the slow decoder says what kfast reads, and which error a bad value is.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import (
    any_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    message_factory,
    struct_pb2,
    timestamp_pb2,
    wrappers_pb2,
)
from google.protobuf.message import Message
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from kfast.columns.record_errors import ErrorKind
from kfast.schemas.descriptors import ProtoType
from kfast.schemas.proto_schema import parse_proto, read_descriptor_set
from kfast.schemas.protobuf_columns import ProtoColumn, ProtoColumns, Role, message_columns
from kfast.schemas.protobuf_plan import compile_plan
from kfast.schemas.selection import select
from tests.property.protobuf_rows import comparable as comparable_rows
from tests.property.protobuf_rows import decode as compiled_rows
from tests.property.protobuf_rows import with_dicts
from tests.reference import protoc
from tests.reference.protobuf_decoder import SECOND, BadMessageError, decode
from tests.reference.protobuf_messages import messages, schemas
from tests.soaking import examples

WELL_KNOWN = (any_pb2, duration_pb2, empty_pb2, struct_pb2, timestamp_pb2, wrappers_pb2)


def runtime_class(data: bytes) -> Any:
    """Return the runtime's class of p.Root."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Root"))


def row_of(children: tuple[ProtoColumn, ...], message: Message) -> dict[str, Any]:
    return {child.field.name: column_of(child, message) for child in children}


def column_of(child: ProtoColumn, message: Message) -> Any:
    value = getattr(message, child.field.name)
    if child.role is Role.MAP:
        _, of_value = child.children
        return {key: value_of(of_value, value[key]) for key in value}
    if child.field.is_repeated:
        return [value_of(child, each) for each in value]
    if child.field.has_presence and not message.HasField(child.field.name):
        return child.default
    return value_of(child, value)


def value_of(child: ProtoColumn, value: Any) -> Any:
    if child.role is Role.ENUM:
        assert child.enum is not None
        return next((name for name, number in child.enum.values if number == value), str(value))
    if child.role is Role.MESSAGE:
        return row_of(child.children, value)
    if child.role is Role.RAW:
        return value
    if child.role is Role.WRAPPER:
        return value.value
    if child.role in {Role.TIMESTAMP, Role.DURATION}:
        return value.seconds * SECOND + value.nanos
    return value


def comparable(children: tuple[ProtoColumn, ...], row: Any, message: Message) -> Any:
    """Return a row with maps as dicts, and raw parts as messages of the runtime's."""
    return {
        child.field.name: _comparable(
            child, row[child.field.name], getattr(message, child.field.name)
        )
        for child in children
    }


def _comparable(child: ProtoColumn, value: Any, theirs: Any) -> Any:
    if value is None:
        return None
    if child.role is Role.MAP:
        _, of_value = child.children
        return {key: _single(of_value, part, theirs[key]) for key, part in value}
    if child.field.is_repeated:
        return [_single(child, *pair) for pair in zip(value, theirs, strict=True)]
    return _single(child, value, theirs)


def _single(child: ProtoColumn, value: Any, theirs: Any) -> Any:
    if child.role is Role.MESSAGE:
        return comparable(child.children, value, theirs)
    return type(theirs).FromString(value) if child.role is Role.RAW else value


def decoded(columns: ProtoColumns, raw: bytes) -> dict[str, Any] | None:
    """Return a row; None where the runtime is laxer: what is required, moments out of range."""
    try:
        return decode(columns, raw)
    except BadMessageError as error:
        if error.code in {ErrorKind.MISSING, ErrorKind.RANGE}:
            return None
        raise


@given(schemas(), st.data())
@settings(examples(30), suppress_health_check=list(HealthCheck))
def test_rows_are_those_of_the_runtime(text: str, data: st.DataObject) -> None:
    """TC-80, TC-83: the parser's pool is protoc's, and its columns have the runtime's values."""
    compiled = protoc.descriptor_set({"main.proto": text})
    assert compiled is not None
    pool = parse_proto(text)
    theirs = read_descriptor_set(compiled)
    assert all(pool.messages[name] == each for name, each in theirs.messages.items())
    columns = message_columns(pool, "p.Root")
    root = runtime_class(compiled)
    for _ in range(5):
        raw = data.draw(messages(pool, "p.Root", as_runtime=True))
        row = decoded(columns, raw)
        if row is None:
            continue
        message = root.FromString(raw)
        expected = row_of(columns.children, message)
        assert comparable(columns.children, row, message) == expected


def outcome(columns: ProtoColumns, raw: bytes) -> Any:
    """Return what the slow decoder makes of a value: a row, or the code of its error."""
    try:
        return with_dicts(columns.root, decode(columns, raw))
    except BadMessageError as error:
        return error.code


def damaged(data: st.DataObject, raw: bytes) -> bytes:
    """Return a value with some bytes changed, taken out or put in."""
    made = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(made)))
        made[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    return bytes(made)


@given(schemas(has_groups=True), st.data())
@settings(examples(40), suppress_health_check=list(HealthCheck))
def test_rows_and_errors_are_those_of_the_slow_decoder(text: str, data: st.DataObject) -> None:
    """TC-83, TC-84: whatever is chosen, and however bytes are damaged."""
    pool = parse_proto(text)
    groups = [f.name for f in pool.messages["p.Root"].fields if f.type is ProtoType.GROUP]
    names = [f.name for f in pool.messages["p.Root"].fields if f.name not in groups]
    assume(names)
    some = data.draw(st.lists(st.sampled_from(names)))
    wanted = some or (names if groups else None)
    columns = message_columns(
        pool,
        "p.Root",
        columns=select(wanted),
        enums=data.draw(st.sampled_from(["name", "number"])),
        absent=data.draw(st.sampled_from(["default", "null"])),
    )
    values = [data.draw(messages(pool, "p.Root")) for _ in range(6)]
    values[3:] = [damaged(data, raw) for raw in values[3:]]
    rows, errors = compiled_rows(compile_plan(columns), values)
    codes = {row: ErrorKind(code) for row, _, code, *_ in errors}
    found = [codes.get(row, value) for row, value in enumerate(rows)]
    assert comparable_rows(found) == comparable_rows([outcome(columns, raw) for raw in values])
