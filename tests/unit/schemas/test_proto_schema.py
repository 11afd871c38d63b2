"""Pools of Protobuf of what a registry has: text or descriptors, with references."""

from __future__ import annotations

import base64

import pytest
from confluent_kafka.schema_registry.confluent.types import decimal_pb2
from google.protobuf import descriptor_pb2
from google.type import (
    calendar_period_pb2,
    color_pb2,
    date_pb2,
    datetime_pb2,
    dayofweek_pb2,
    expr_pb2,
    fraction_pb2,
    interval_pb2,
    latlng_pb2,
    money_pb2,
    month_pb2,
    phone_number_pb2,
    postal_address_pb2,
    quaternion_pb2,
    timeofday_pb2,
)
from google.type import decimal_pb2 as google_decimal_pb2

from kfast.errors import ConfigurationError
from kfast.registry.registered_schema import (
    AVRO,
    PROTOBUF,
    RegisteredSchema,
    SchemaKey,
    SchemaReference,
)
from kfast.registry.schema_registry import SchemaRegistry
from kfast.schemas.proto_builtin import builtin_file
from kfast.schemas.proto_files import link
from kfast.schemas.proto_schema import (
    parse_proto,
    read_descriptor_set,
    read_proto,
    registered_pool,
)
from tests.fake_registry.server import FakeRegistry
from tests.reference import protoc

SYNTAX = 'syntax = "proto3";\n'
ORDER = SYNTAX + 'package p; import "m/money.proto"; message Order { m.Money price = 1; }'
MONEY = SYNTAX + 'package m; import "code.proto"; message Money { Code code = 1; int64 units = 2; }'
CODE = SYNTAX + "package m; enum Code { NONE = 0; EUR = 1; }"


def registered(text: str, *references: SchemaReference) -> RegisteredSchema:
    return RegisteredSchema(PROTOBUF, text, references)


def reference(name: str, schema: RegisteredSchema, version: int = 1) -> SchemaReference:
    return SchemaReference(name, name, version, schema)


def money_descriptor(name: str) -> str:
    """Return `MONEY` as confluent-kafka's serializer registers it."""
    file = descriptor_pb2.FileDescriptorProto(name=name, package="m", syntax="proto3")
    file.dependency.append("code.proto")
    message = file.message_type.add(name="Money")
    message.field.add(name="code", number=1, type=14, type_name=".m.Code", label=1)
    message.field.add(name="units", number=2, type=3, label=1)
    return base64.b64encode(file.SerializeToString()).decode()


@pytest.mark.parametrize("is_text", [True, False])
def test_references_of_a_registry_s_schema_are_its_imports(is_text: bool) -> None:
    """TC-85: each schema in its own form; references have the names of the imports."""
    code = registered(CODE)
    text = MONEY if is_text else money_descriptor("name.of.its.own")
    money = registered(text, reference("code.proto", code))
    pool = registered_pool(registered(ORDER, reference("m/money.proto", money)))
    expected = parse_proto(ORDER, {"m/money.proto": MONEY, "code.proto": CODE})
    assert pool == expected
    assert pool.at_indexes([0]) == "p.Order"


def test_a_descriptor_is_the_main_file_too() -> None:
    """TC-85."""
    schema = registered(money_descriptor("money.proto"), reference("code.proto", registered(CODE)))
    pool = registered_pool(schema)
    assert pool.main == "money.proto"
    assert pool.at_indexes([0]) == "m.Money"
    assert pool.messages == parse_proto(MONEY, {"code.proto": CODE}).messages


def test_of_two_versions_of_a_reference_the_nearer_one_counts() -> None:
    """TC-85: files of one name can be there once only."""
    old = registered(CODE.replace("EUR", "OLD"))
    money = registered(MONEY, reference("code.proto", old))
    order = registered(
        ORDER, reference("m/money.proto", money), reference("code.proto", registered(CODE), 2)
    )
    assert registered_pool(order).enums["m.Code"].values == (("NONE", 0), ("EUR", 1))


@pytest.mark.parametrize("has_serialized", [True, False])
def test_a_schema_is_fetched_with_its_references(has_serialized: bool) -> None:
    """TC-85: in the form that the registry has."""
    texts = {"code.proto": CODE, "m/money.proto": MONEY, "order.proto": ORDER}
    compiled = protoc.descriptor_set(texts, "order.proto")
    assert compiled is not None
    files = descriptor_pb2.FileDescriptorSet.FromString(compiled).file
    assert [file.name for file in files] == list(texts)
    with FakeRegistry() as fake:
        fake.has_serialized = has_serialized
        for file in files:
            references = [(name, name, 1) for name in file.dependency]
            raw = file.SerializeToString()
            fake.register(file.name, texts[file.name], PROTOBUF, references, descriptor=raw)
        with SchemaRegistry(fake.url) as registry:
            key = SchemaKey.of_id(3)
            schema = registry.wait_for([key], is_serialized=True).schemas[key]
    forms = [each.schema.descriptor is not None for each in schema.dependencies()]
    assert forms == [has_serialized] * 2
    pool = registered_pool(schema)
    assert pool.messages == read_descriptor_set(compiled).messages
    assert pool.at_indexes([0]) == "p.Order"


def test_files_that_registries_know_need_no_reference() -> None:
    """TC-87: as Confluent's registry and Connect's converter take them for granted."""
    text = (
        SYNTAX
        + """
    import "google/type/money.proto"; import "confluent/meta.proto";
    import "confluent/type/decimal.proto"; import "google/protobuf/timestamp.proto";
    message A {
      google.type.Money a = 1; google.protobuf.Timestamp b = 2;
      confluent.type.Decimal c = 3 [(confluent.field_meta) = { params: [{ key: "x" }] }];
    }"""
    )
    pool = registered_pool(registered(text))
    assert [f.type_name for f in pool.messages["A"].fields] == [
        "google.type.Money", "google.protobuf.Timestamp", "confluent.type.Decimal",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "module",
    [
        calendar_period_pb2, color_pb2, date_pb2, datetime_pb2, dayofweek_pb2, expr_pb2,
        fraction_pb2, interval_pb2, latlng_pb2, money_pb2, month_pb2, phone_number_pb2,
        postal_address_pb2, quaternion_pb2, timeofday_pb2, google_decimal_pb2, decimal_pb2,
    ],
    ids=lambda module: module.__name__.rpartition(".")[2],
)  # fmt: skip
def test_built_in_files_are_those_of_the_generated_classes(module: object) -> None:
    """TC-87."""
    theirs = read_descriptor_set(module.DESCRIPTOR.serialized_pb)  # type: ignore[attr-defined]
    name = theirs.main if theirs.main.startswith("google") else "confluent/type/decimal.proto"
    file = builtin_file(name)
    assert file is not None
    pool = link([file], builtin_file)
    assert (pool.messages, pool.enums) == (theirs.messages, theirs.enums)


def test_a_schema_that_is_none_of_protobuf() -> None:
    """TC-85."""
    with pytest.raises(ConfigurationError, match="AVRO schema id 7 is no schema of Protobuf"):
        registered_pool(RegisteredSchema(AVRO, '"int"', id=7))
    with pytest.raises(ConfigurationError, match="the bytes are no descriptor of Protobuf"):
        registered_pool(registered("AAAA"))
    with pytest.raises(ConfigurationError, match="field price has the unknown type"):
        registered_pool(registered(ORDER))


def test_text_and_bytes_are_read_alike() -> None:
    """TC-85: as files of either kind are."""
    data = base64.b64decode(money_descriptor("money.proto"))
    assert read_proto(CODE) == parse_proto(CODE)
    with pytest.raises(ConfigurationError, match="field code has the unknown type"):
        read_proto(data)
    files = descriptor_pb2.FileDescriptorSet()
    files.file.add(name="code.proto", package="m", syntax="proto3").enum_type.add(
        name="Code"
    ).value.add(name="NONE", number=0)
    files.file.add().ParseFromString(data)
    assert read_proto(files.SerializeToString()).main == "money.proto"


def test_files_that_import_each_other_are_refused() -> None:
    """TC-190: as protoc refuses them; the main file has its name if it is given with the others."""
    files = {
        "a.proto": SYNTAX + 'import "b.proto"; message A {}',
        "b.proto": SYNTAX + 'import public "c.proto"; message B {}',
        "c.proto": SYNTAX + 'import "b.proto"; message C {}',
    }
    with pytest.raises(ConfigurationError) as raised:
        parse_proto(files["a.proto"], files)
    first, found, hint = str(raised.value).splitlines()
    assert first in {f"{name}.proto: files import each other" for name in "bc"}
    assert found in {
        "found: b.proto imports c.proto, which imports b.proto",
        "found: c.proto imports b.proto, which imports c.proto",
    }
    assert hint == "try: move what they share to a file of its own"
    own = SYNTAX + 'import "own.proto"; message A {}'
    with pytest.raises(ConfigurationError, match=r"found: own.proto imports own.proto\n"):
        parse_proto(own, {"own.proto": own + "\n"})
    del files["c.proto"]
    assert parse_proto(files["a.proto"] + "\n", files).main == "a.proto"
    assert protoc.descriptor_set({"main.proto": own.replace("own", "main")}) is None


def test_a_type_of_two_files_is_refused() -> None:
    """TC-190: with the name of the other file."""
    main = SYNTAX + 'package m; import "money.proto"; message Money {}'
    with pytest.raises(ConfigurationError) as raised:
        parse_proto(main, {"money.proto": MONEY.replace('import "code.proto";', "")})
    assert "m.Money is defined twice" in str(raised.value)
    with pytest.raises(ConfigurationError, match=r"p\.Money is in c\.proto, which is not imported"):
        parse_proto(
            SYNTAX + 'import "b.proto"; message A { p.Money m = 1; }',
            {
                "b.proto": SYNTAX + 'import "c.proto"; message B { p.Money m = 1; }',
                "c.proto": SYNTAX + "package p; message Money {}",
            },
        )


def test_what_a_schema_imports_is_bounded() -> None:
    """TC-81."""
    names = [f"f{n}.proto" for n in range(9)]
    text = SYNTAX + "".join(f'import "{name}";' for name in names)
    half = SYNTAX + " " * (2 << 20)
    with pytest.raises(ConfigurationError, match="the imports have more than"):
        parse_proto(text, dict.fromkeys(names, half))
    references = tuple(reference(name, registered(half)) for name in names)
    with pytest.raises(ConfigurationError, match="and its references are too large"):
        registered_pool(registered(text, *references))
