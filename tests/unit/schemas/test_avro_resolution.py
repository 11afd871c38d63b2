"""Avro schema resolution, rule by rule; random pairs are in tests/property."""

from __future__ import annotations

import json
import math
import time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from kfast.errors import ConfigurationError
from kfast.schemas.avro_resolution import Action, Step, resolve
from kfast.schemas.avro_text import parse_avro
from tests.unit.schemas.avro_records import record


def resolved(writer: Any, reader: Any) -> Step:
    return resolve(parse_avro(json.dumps(writer)), parse_avro(json.dumps(reader)))


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "name": name, **more}


PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTIONS = {
    ("int", "long"), ("int", "float"), ("int", "double"), ("long", "float"), ("long", "double"),
    ("float", "double"), ("string", "bytes"), ("bytes", "string"),
}  # fmt: skip


@pytest.mark.parametrize("writer", PRIMITIVES)
def test_promotions_are_those_of_the_specification(writer: str) -> None:
    """TC-63: also in arrays, maps, unions and fields."""
    for reader in PRIMITIVES:
        fits = writer == reader or (writer, reader) in PROMOTIONS
        for wrapped in (
            lambda t: t,
            lambda t: {"type": "array", "items": t},
            lambda t: {"type": "map", "values": t},
            lambda t: ["null", {"type": "array", "items": t}],
            lambda t: record("R", a=t),
        ):
            if fits:
                assert not resolved(wrapped(writer), wrapped(reader)).is_partial
            else:
                with pytest.raises(ConfigurationError, match=f"{writer}.*{reader}"):
                    resolved(wrapped(writer), wrapped(reader))


def test_fields_go_by_name_then_by_the_readers_aliases() -> None:
    """TC-63: writer-only fields are skipped."""
    reader = record("Other", b="long", c="int", e="int", f="int")
    reader["fields"][1]["aliases"] = ["x", "a"]
    reader["fields"][2]["aliases"] = ["b"]  # taken by its name
    reader["fields"][3]["aliases"] = ["a"]  # taken by the field before
    reader["fields"][2]["default"] = reader["fields"][3]["default"] = 7
    step = resolved(record("R", a="int", b="int", d="string"), reader)
    assert step.targets == (1, 0, -1)
    assert step.defaults == ((2, 7), (3, 7))
    assert [part and part.action for part in step.parts] == [
        Action.VALUE,
        Action.VALUE,
        Action.SKIP,
    ]


def test_names_are_compared_without_namespace_and_not_at_the_root() -> None:
    """TC-63."""
    assert resolved(record("a.R", x="int"), record("b.Q", x="int")).targets == (0,)
    inner = {"fields": [{"name": "x", "type": "int"}]}
    for writer, reader, fits in (
        (named("record", "a.S", **inner), named("record", "b.S", **inner), True),
        (named("record", "S", **inner), named("record", "T", **inner), False),
        (named("record", "S", **inner), named("record", "T", aliases=["c.S"], **inner), True),
        (named("record", "S", aliases=["T"], **inner), named("record", "T", **inner), False),
        (named("fixed", "F", size=3), named("fixed", "x.F", size=3), True),
        (named("fixed", "F", size=3), named("fixed", "F", size=4), False),
        (named("fixed", "F", size=3), named("fixed", "G", size=3), False),
        (named("enum", "E", symbols=["a"]), named("enum", "D", symbols=["a"]), False),
    ):
        if fits:
            resolved(record("R", a=writer), record("R", a=reader))
        else:
            with pytest.raises(ConfigurationError, match=r"^a: the writer's schema has"):
                resolved(record("R", a=writer), record("R", a=reader))


def test_enums_go_by_symbol() -> None:
    writer = named("enum", "E", symbols=["a", "b", "c"])
    step = resolved(writer, named("enum", "E", symbols=["c", "a"]))
    assert (step.symbols, step.is_partial) == ((1, -1, 0), True)
    step = resolved(writer, named("enum", "E", symbols=["c", "a"], default="c"))
    assert (step.symbols, step.is_partial) == ((1, 0, 0), False)


def test_a_branch_of_the_writer_that_cannot_be_read_is_an_error_of_its_rows() -> None:
    """TC-67: at least one branch besides null can be read."""
    step = resolved(["null", "int", "string"], ["null", "long"])
    assert [part and part.action for part in step.parts] == [Action.NULL, Action.VALUE, None]
    assert step.is_partial
    assert resolved(["null", "int"], "int").parts[0] is None
    assert not resolved(["null", "int"], ["int", "null"]).is_partial
    for writer, reader in ((["null", "string"], ["null", "int"]), (["null", "int"], "string")):
        with pytest.raises(ConfigurationError, match="the writer's schema has"):
            resolved(writer, reader)
    assert not resolved(["null"], ["null", "int"]).is_partial


def test_a_branch_of_the_reader_is_the_same_type_before_a_promotion() -> None:
    """TC-63."""
    assert resolved("int", ["double", "long", "int"]).reader.kind.name == "INT"
    assert resolved("int", ["string", "double", "long"]).reader.kind.name == "DOUBLE"
    both = [record("A", x="string"), record("B", x="int")]
    assert resolved(record("B", x="int"), both).reader.name == "B"


@pytest.mark.parametrize(
    ("writer", "reader", "fits"),
    [
        (("long", "timestamp-millis"), ("long", "timestamp-micros"), False),
        (("long", "timestamp-millis"), ("long", "local-timestamp-millis"), False),
        (("int", "date"), ("long", "timestamp-millis"), False),
        (("long", "timestamp-millis"), ("long", "timestamp-millis"), True),
        (("long", ""), ("long", "timestamp-micros"), True),
        (("long", "timestamp-micros"), ("double", ""), True),
        (("string", "uuid"), ("bytes", ""), True),
    ],
)
def test_logical_types_are_not_read_as_others(
    writer: tuple[str, str], reader: tuple[str, str], fits: bool
) -> None:
    """TC-63: milliseconds are not read as microseconds."""
    pair = [{"type": kind, "logicalType": logical} for kind, logical in (writer, reader)]
    if fits:
        resolved(*pair)
    else:
        with pytest.raises(ConfigurationError, match=f"{writer[1]}.*{reader[1]}"):
            resolved(*pair)


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_decimals_are_read_with_their_own_precision_and_scale_only() -> None:
    """TC-68."""
    resolved(decimal(9, 2), decimal(9, 2))
    for other in (decimal(9, 3), decimal(10, 2)):
        with pytest.raises(ConfigurationError, match=r"decimal\(9, 2\)"):
            resolved(decimal(9, 2), other)
    resolved(decimal(9, 2), "bytes")


def test_a_recursive_writer_is_read_as_deep_as_the_reader_goes() -> None:
    writer = record("Node", value="int", next=["null", "Node"])
    two = record("Node", value="long")
    one = record("Node", value="long", next=["null", {**two, "namespace": "inner"}])
    step = resolved(writer, one)
    inner = step.parts[1].parts[1] if step.parts[1] else None
    assert inner
    assert inner.targets == (0, -1)
    with pytest.raises(ConfigurationError, match="next: the writer's schema has record Node"):
        resolved(writer, writer)


INNER = record("In", p="int", q="string")
INNER["fields"][1]["default"] = "x"


@pytest.mark.parametrize(
    ("kind", "default", "value"),
    [
        ("int", 3, 3),
        ("long", -(1 << 63), -(1 << 63)),
        ("double", 3, 3.0),
        ("double", "Infinity", math.inf),
        ("boolean", True, True),
        ("string", "é", "é"),
        ("bytes", "\u00ff\u0000", b"\xff\0"),
        (named("fixed", "F", size=2), "ab", b"ab"),
        (named("enum", "E", symbols=["a", "b"]), "b", "b"),
        (["null", "int"], None, None),
        (["null", "int"], 3, 3),
        (["int", "null"], None, None),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": ["null", "int"]}, {"k": None}, {"k": None}),
        (INNER, {"p": 1}, {"p": 1, "q": "x"}),
        (decimal(4, 2), "\u0001\u0000", Decimal("2.56")),
        (decimal(4, 2), "\u00ff", Decimal("-0.01")),
        (
            {"type": "string", "logicalType": "uuid"},
            "00000000-0000-0000-0000-000000000001",
            UUID(int=1),
        ),
        ({"type": "int", "logicalType": "date"}, 19_000, 19_000),
    ],
)
def test_a_field_that_only_the_reader_has_takes_its_default(
    kind: Any, default: Any, value: Any
) -> None:
    """TC-64."""
    reader = record("R", a="int", new=kind)
    reader["fields"][1]["default"] = default
    assert resolved(record("R", a="int"), reader).defaults == ((1, value),)


@pytest.mark.parametrize(
    ("kind", "default"),
    [
        ("int", "3"),
        ("int", 1 << 31),
        ("int", True),
        ("int", 3.0),
        ("long", None),
        ("double", "x"),
        ("double", 10**400),
        ("string", "\ud800"),
        ("bytes", "\u0100"),
        (named("fixed", "F", size=2), "abc"),
        (named("enum", "E", symbols=["a"]), "b"),
        (["null", "int"], "x"),
        ({"type": "array", "items": "int"}, {}),
        ({"type": "map", "values": "int"}, {"k": "v"}),
        (INNER, {"q": "y"}),
        (decimal(1, 0), "\u0064"),
        ({"type": "string", "logicalType": "uuid"}, "x"),
        ({"type": "int", "logicalType": "time-millis"}, 86_400_000),
    ],
)
def test_a_default_that_is_not_of_its_type_is_refused_if_it_is_needed(
    kind: Any, default: Any
) -> None:
    """TC-64."""
    reader = record("R", new=kind)
    reader["fields"][0]["default"] = default
    with pytest.raises(ConfigurationError, match="new: the default"):
        resolved(record("R"), reader)
    resolved(record("R", new=kind), reader)


def test_a_field_without_default_is_refused_by_name() -> None:
    writer = record("R", lines={"type": "array", "items": record("L", sku="string")})
    reader = record("R", lines={"type": "array", "items": record("L", sku="string", qty="int")})
    with pytest.raises(ConfigurationError, match=r"lines\[\].qty: the writer's schema lacks"):
        resolved(writer, reader)


def test_defaults_and_unions_that_multiply_are_refused() -> None:
    """TC-61."""
    begin = time.process_time()
    inner: Any = record("R0", a="string")
    inner["fields"][0]["default"] = "x" * 1000
    for level in range(1, 40):
        inner = record(f"R{level}", a=inner, b=f"R{level - 1}")
        for field in inner["fields"]:
            field["default"] = {}
    reader = record("Top", new=inner)
    reader["fields"][0]["default"] = {}
    with pytest.raises(ConfigurationError, match="too large"):
        resolved(record("Top"), reader)

    writer, other = record("W0", a="int"), record("V0", a="int")
    reader = {**record("R", a="int"), "aliases": ["W0", "V0"]}
    for level in range(1, 30):
        names = [f"W{level - 1}", f"V{level - 1}"]
        writer, other = record(f"W{level}", a=[writer, other]), record(f"V{level}", a=names)
        reader = {**record(f"R{level}", a=reader), "aliases": [f"W{level}", f"V{level}"]}
    with pytest.raises(ConfigurationError, match="more than 50000 pairs"):
        resolved(writer, reader)
    assert time.process_time() - begin < 5
