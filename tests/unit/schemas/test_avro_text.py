"""Avro schemas: from their text to a tree of types."""

from __future__ import annotations

import json
import time
from typing import Any

import fastavro.schema
import pytest

from kfast.errors import ConfigurationError
from kfast.schemas.avro_text import (
    MAX_DEPTH,
    MAX_TEXT,
    AvroKind,
    AvroType,
    canonical_form,
    fingerprint,
    parse_avro,
)
from tests.unit.schemas.avro_records import record


def parsed(schema: Any, *references: Any) -> AvroType:
    return parse_avro(json.dumps(schema), [json.dumps(r) for r in references]).root


def field(root: AvroType, path: str) -> AvroType:
    for name in path.split("."):
        (root,) = (f.type for f in root.fields if f.name == name)
    return root


def test_names_of_types_are_found_in_their_namespaces() -> None:
    """TC-60: names, namespaces, references."""
    root = parsed(
        {
            "type": "record",
            "name": "Order",
            "namespace": "shop.v1",
            "aliases": ["Purchase", "old.Purchase"],
            "fields": [
                {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["buy"]}},
                {"name": "again", "type": "Side"},
                {"name": "full", "type": {"type": "shop.v1.Side"}},
                {"name": "hash", "type": {"type": "fixed", "name": "x.Hash", "size": 3}},
                {"name": "inner", "type": {**record("y.Inner", a="int"), "namespace": "ignored"}},
                {"name": "plain", "type": {**record("Plain", b="x.Hash"), "namespace": ""}},
                {"name": "later", "type": "Plain"},
            ],
        }
    )
    assert (root.name, root.aliases) == ("shop.v1.Order", ("shop.v1.Purchase", "old.Purchase"))
    assert field(root, "side").name == "shop.v1.Side"
    assert field(root, "again") is field(root, "full") is field(root, "side")
    assert field(root, "inner").name == "y.Inner"
    assert field(root, "plain.b") is field(root, "hash")
    # A name without namespace is looked for in the namespace around it first, then alone.
    assert field(root, "later") is field(root, "plain")


def test_types_of_references_are_known_before_the_schema() -> None:
    """TC-60: what the registry has as references."""
    address = {**record("Address", city="string"), "namespace": "a"}
    person = {**record("Person", home="Address"), "namespace": "a"}
    root = parsed(record("Pair", one="a.Person", other="a.Address"), address, person)
    assert field(root, "one.home") is field(root, "other")
    with pytest.raises(ConfigurationError, match="one has the unknown type"):
        parsed(record("Pair", one="a.Person"), address)


@pytest.mark.parametrize(
    ("schema", "logical"),
    [
        ({"type": "int", "logicalType": "date"}, "date"),
        ({"type": "long", "logicalType": "date"}, ""),
        ({"type": "int", "logicalType": "time-millis"}, "time-millis"),
        ({"type": "long", "logicalType": "time-micros"}, "time-micros"),
        ({"type": "long", "logicalType": "timestamp-nanos"}, "timestamp-nanos"),
        ({"type": "int", "logicalType": "timestamp-millis"}, ""),
        ({"type": "long", "logicalType": "local-timestamp-micros"}, "local-timestamp-micros"),
        ({"type": "long", "logicalType": "io.debezium.time.MicroTimestamp"}, ""),
        ({"type": "long", "connect.name": "io.debezium.time.Timestamp"}, ""),
        ({"type": "string", "logicalType": "uuid"}, "uuid"),
        ({"type": "string", "logicalType": ["uuid"]}, ""),
        ({"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}, "uuid"),
        ({"type": "fixed", "name": "U", "size": 15, "logicalType": "uuid"}, ""),
        ({"type": "fixed", "name": "D", "size": 12, "logicalType": "duration"}, "duration"),
        ({"type": "bytes", "logicalType": "duration"}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 76}, "decimal"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 77}, ""),
        ({"type": "bytes", "logicalType": "decimal"}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 0}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": True}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3}, ""),
        ({"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": -1}, ""),
        ({"type": "string", "logicalType": "decimal", "precision": 2}, ""),
        (
            {"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 9},
            "decimal",
        ),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 10}, ""),
        ({"type": "fixed", "name": "F", "size": 0, "logicalType": "decimal", "precision": 1}, ""),
        ({"type": {"type": "int", "logicalType": "date"}, "logicalType": "time-millis"}, "date"),
    ],
)
def test_a_logical_type_counts_if_it_is_known_and_fits(schema: Any, logical: str) -> None:
    """TC-60: a logical type that is unknown or does not fit counts as its base type."""
    assert parsed(schema).logical == logical


def test_a_logical_type_beside_a_field_is_not_one_of_its_type() -> None:
    root = parsed(
        {
            "type": "record",
            "name": "R",
            "fields": [{"name": "t", "type": "long", "logicalType": "timestamp-millis"}],
        }
    )
    assert root.fields[0].type.logical == ""


def test_a_record_in_itself_is_a_leaf() -> None:
    node = parse_avro(json.dumps(record("a.Node", value="int", next=["null", "Node"])))
    _, following = node.root.fields
    inside = following.type.types[1]
    assert inside.kind is AvroKind.RECURSION
    assert node.target(inside) is node.root
    # Outside of itself it is no leaf.
    twice = parsed([record("a.Node", next=["null", "Node"]), record("a.B", n="Node")])
    assert twice.types[1].fields[0].type is twice.types[0]


def test_the_least_size_of_a_value() -> None:
    empty = {"type": "record", "name": "E", "fields": []}
    assert parsed(empty).min_size == 0
    assert parsed(record("R", a="null", b=empty, c={"type": "array", "items": "E"})).min_size == 1
    assert parsed(record("R", a="double", b=["long", "null"])).min_size == 9
    assert parsed(record("R", a={"type": "fixed", "name": "F", "size": 0})).min_size == 0
    # What contains itself has at least one byte, or no end.
    inner = parsed(record("R", a={"type": "array", "items": record("S", r="R")}))
    assert inner.fields[0].type.types[0].min_size == 1


@pytest.mark.parametrize("text", ["string", ' "string" ', '{"type": "string"}'])
def test_a_primitive_is_a_schema(text: str) -> None:
    assert parse_avro(text).root.kind is AvroKind.STRING


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("nul", 'unknown type "nul"\ntry: did you mean "null"'),
        (record("R", a="Strin"), "a has the unknown type"),
        (record("R", a={"items": "int"}), 'a has an object without "type"'),
        (record("R", a={"type": "array"}), 'a is of type array without "items"'),
        (record("R", a={"type": "map"}), 'a is of type map without "values"'),
        (record("R", a={"type": "array", "items": 3}), r"a\[\] has 3 for its type"),
        (record("R", a=[]), "a is a union without branches"),
        (record("R", a=["int", ["null"]]), "a is a union directly inside of a union"),
        (record("R", a=["int", "int"]), "a is a union with two branches of type int"),
        (record("R", a=record("R")), "a defines R a second time"),
        (record("int"), "defines int"),
        ({"type": "record", "name": "R"}, 'without a list "fields"'),
        ({"type": "record", "fields": []}, "its name is None"),
        ({"type": "record", "name": "a..b", "fields": []}, "its name is"),
        ({"type": "record", "name": "R", "namespace": 3, "fields": []}, "has the namespace 3"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "field without a type"),
        ({"type": "record", "name": "R", "fields": ["a"]}, "field without a type"),
        ({"type": "record", "name": "R", "fields": [{"name": "a.b", "type": "int"}]}, "whose name"),
        (
            {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}] * 2},
            "two fields with the name a",
        ),
        ({"type": "enum", "name": "E", "symbols": []}, "not distinct names"),
        ({"type": "enum", "name": "E", "symbols": ["a", "a"]}, "not distinct names"),
        ({"type": "enum", "name": "E", "symbols": "ab"}, "no list of names"),
        ({"type": "enum", "name": "E", "symbols": ["a"], "default": "b"}, "is no symbol"),
        ({"type": "enum", "name": "E", "symbols": ["a"], "default": ["a"]}, "is no symbol"),
        ({"type": "fixed", "name": "F", "size": -1}, "of size -1"),
        ({"type": "fixed", "name": "F", "size": True}, "of size True"),
        ({"type": "fixed", "name": "F", "size": 1 << 40}, "of size"),
        (3, "the root has 3 for its type"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_path(schema: Any, message: str) -> None:
    """TC-61."""
    with pytest.raises(ConfigurationError, match=message):
        parsed(schema)


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


def chain(levels: int) -> str:
    """Records that are flat in the text and contain each other."""
    records = [record("R0", a="int"), *(record(f"R{n}", a=f"R{n - 1}") for n in range(1, levels))]
    return json.dumps(records)


def doubling(levels: int) -> str:
    """Records of two of the one before: 2 to the power of ``levels`` values."""
    records = [record("R0", a="int")]
    records += [record(f"R{n}", a=f"R{n - 1}", b=f"R{n - 1}") for n in range(1, levels)]
    return json.dumps(records)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orders.avsc",
        "[1" * 100_000,
        nested(MAX_DEPTH),
        nested(100_000),
        chain(MAX_DEPTH + 1),
        '"' + "x" * MAX_TEXT + '"',
        '{"type":"fixed","name":"F","size":1' + "0" * 5000 + "}",
        '{"type":"record","name":"R","fields":[{"name":"\\ud800","type":"int"}]}',
    ],
    ids=[
        *("empty", "file", "no json", "deep", "very deep", "deep by name", "long", "number"),
        "surrogate",
    ],
)
def test_a_hostile_text_ends_in_a_configuration_error(text: str) -> None:
    """TC-61: size and depth are bounded."""
    with pytest.raises(ConfigurationError) as raised:
        parse_avro(text)
    assert str(raised.value).encode()


def test_a_schema_that_multiplies_is_read_in_no_time() -> None:
    """TC-61: the tree has the size of the text."""
    begin = time.process_time()
    root = parse_avro(doubling(60)).root
    assert root.types[-1].depth == 61
    assert root.types[-1].min_size == 1 << 31
    assert len(canonical_form(root)) < 10_000
    assert time.process_time() - begin < 1
    assert parse_avro(nested(MAX_DEPTH - 1)).root.depth == MAX_DEPTH


@pytest.mark.parametrize(
    "schema",
    [
        "int",
        ["null", "string"],
        {"type": "map", "values": {"type": "array", "items": "long"}},
        {"type": "fixed", "name": "F", "namespace": "a.b", "size": 12, "logicalType": "duration"},
        {"type": "enum", "name": "E", "symbols": ["b", "a"], "doc": "x", "default": "a"},
        record("a.Node", value={"type": "long", "logicalType": "timestamp-millis"}, next="Node"),
        record("R", one=record("x.S", t="int"), two="x.S", three=["null", "x.S"]),
    ],
)
def test_canonical_form_and_fingerprint_are_those_of_fastavro(schema: Any) -> None:
    """TC-75: a schema is named by its CRC-64-AVRO."""
    form = fastavro.schema.to_parsing_canonical_form(schema)
    assert canonical_form(parsed(schema)) == form
    expected = fastavro.schema.fingerprint(form, "CRC-64-AVRO")
    assert fingerprint(parsed(schema)).to_bytes(8, "little").hex() == expected
