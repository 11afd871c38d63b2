"""The table of formats: names, what each takes, and what comes of it."""

from __future__ import annotations

from typing import Any

import pytest

import kfast
from kfast.deserializers.formats import deserializer_of, known_root
from kfast.errors import ConfigurationError
from kfast.schemas.formats import FORMATS, TYPED_FORMATS, format_named
from kfast.schemas.types import Kind

AVRO = '{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}'

PROTO = 'syntax = "proto3"; message A { int64 id = 1; }'


class Registry:
    """A source of schemas that is never asked."""

    def lookup(self, *_: object, **__: object) -> Any:
        raise AssertionError

    wait_for = lookup

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry)

    __hash__ = None  # type: ignore[assignment]


MADE: list[tuple[str, dict[str, Any], Any]] = [
    ("bytes", {}, None),
    ("binary", {}, None),
    ("text", {}, kfast.Utf8()),
    ("utf8", {}, kfast.Utf8()),
    ("int32", {}, kfast.Int32()),
    ("int64", {}, kfast.Int64()),
    ("float32", {}, kfast.Float32()),
    ("float64", {}, kfast.Float64()),
    ("uuid", {}, kfast.Uuid()),
    ("struct", {"schema": [("a", ">i4")]}, kfast.Struct([("a", ">i4")])),
    ("json", {"schema": {"a": "int64"}}, kfast.Json({"a": "int64"})),
    (
        "json",
        {"schema": "a BIGINT", "framing": "apicurio", "options": {"coerce": ["number_text"]}},
        kfast.Json({"a": "int64"}, framing="apicurio", coerce=["number_text"]),
    ),
    (
        "json",
        {"schema": "a BIGINT", "registry": Registry()},
        kfast.Json({"a": "int64"}, framing="confluent"),
    ),
    ("avro", {"schema": AVRO}, kfast.Avro(AVRO)),
    (
        "avro",
        {"schema": AVRO, "options": {"columns": ["id"], "reader": AVRO}},
        kfast.Avro(AVRO, reader=AVRO, columns=["id"]),
    ),
    (
        "avro",
        {"schema": AVRO, "framing": "avro-single-object"},
        kfast.Avro([AVRO], framing="avro-single-object"),
    ),
    (
        "avro",
        {"schema": AVRO, "registry": Registry()},
        kfast.Avro(reader=AVRO, registry=Registry()),
    ),
    (
        "avro",
        {"registry": Registry(), "framing": "apicurio", "options": {"reader": "latest"}},
        kfast.Avro(reader="latest", registry=Registry(), framing="apicurio"),
    ),
    (
        "protobuf",
        {"message": "A", "descriptor_set": PROTO, "options": {"absent": "null"}},
        kfast.Protobuf("A", descriptor_set=PROTO, absent="null"),
    ),
    ("protobuf", {"registry": Registry()}, kfast.Protobuf(registry=Registry())),
]


@pytest.mark.parametrize(("kind", "given", "made"), MADE)
def test_what_each_format_is(kind: str, given: dict[str, Any], made: Any) -> None:
    """TC-150."""
    assert deserializer_of(kind, column="value", **given) == made


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("jason", {}, 'value: there is no format "jason"; did you mean "json"?', "one of bytes, text"),
    ("zzz", {}, 'value: there is no format "zzz"', "one of bytes, text"),
    ("json", {}, "value: json needs a schema", "value_schema"),
    ("struct", {}, "value: struct needs a schema", "value_schema"),
    ("int32", {"schema": "a"}, "value_schema is not for values of the format int32", "leave it"),
    (
        "json",
        {"schema": "a int", "message": "x.Y"},
        "value_message is not for values of the format json",
        "it takes value_schema, registry, value_framing",
    ),
    (
        "json",
        {"schema": "a int", "options": {"coerc": []}},
        'value_options: json has no "coerc"; did you mean "coerce"?',
        "one of coerce, duplicates, allow_nan, max_depth",
    ),
    (
        "json",
        {"schema": "a int", "options": {"coerce": ["number_txt"]}},
        "value: coerce has no 'number_txt'; did you mean \"number_text\"?",
        "use one of",
    ),
    (
        "json",
        {"schema": "a int", "framing": "confluence"},
        "value: there is no framing 'confluence'",
        'framing="confluent"',
    ),
    ("text", {"options": {"a": 1}}, 'value_options: text has no "a"', "leave it out"),
    ("json", {"schema": {"a": "in64"}}, 'value: schema, "a": unknown type "in64"', 'write "int64"'),
    ("protobuf", {}, "value: protobuf needs a descriptor set", "value_descriptor_set"),
    ("protobuf", {"descriptor_set": PROTO}, "value: protobuf needs a message", "value_message"),
    ("avro", {}, "value: avro needs the writer's schema", "value_schema, or registry"),
    ("avro", {"framing": "confluent"}, "value: framing confluent needs a registry", "registry"),
    (
        "avro",
        {"schema": AVRO, "registry": Registry(), "options": {"reader": AVRO}},
        "value: value_schema and the option reader are both the reader's schema",
        "give one of them",
    ),
]


@pytest.mark.parametrize(("kind", "given", "message", "hint"), REFUSED)
def test_what_does_not_fit_is_refused(
    kind: str, given: dict[str, Any], message: str, hint: str
) -> None:
    """TC-150."""
    with pytest.raises(ConfigurationError) as raised:
        deserializer_of(kind, column="value", **given)
    assert raised.value.message.startswith(message)
    assert (raised.value.hint or "").startswith(hint)


def test_arguments_are_spelled_as_the_caller_says() -> None:
    """TC-150."""
    with pytest.raises(ConfigurationError) as raised:
        deserializer_of("json", column="key", spelled=lambda name: f"--key-{name}")
    assert str(raised.value) == "key: json needs a schema\ntry: --key-schema"


def test_names_are_listed_once() -> None:
    """TC-150."""
    names = [name for row in FORMATS.values() for name in (row.name, *row.aliases)]
    assert len(names) == len({*names})
    assert TYPED_FORMATS == ("json", "avro", "protobuf")
    assert format_named("utf8", "value") is FORMATS["text"]


def test_the_root_is_known_before_any_record() -> None:
    """TC-150."""
    for given in (kfast.Json({"id": "int64"}), kfast.Avro(AVRO)):
        root = known_root(given, "t", "value")
        assert root is not None
        assert [field.name for field in root.type.fields] == ["id"]
    root = known_root(kfast.Json("float64"), "t", "key")
    assert root is not None
    assert root.type.kind is Kind.FLOAT64
