"""A real schema registry: what it answers, what the fake one answers, and what producers write."""

from __future__ import annotations

import base64
import http.client
import json
import struct
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import psutil
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient, header_schema_id_serializer
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from kfast import Protobuf, SchemaRegistry, TopicPartition, cli, read_topic
from kfast._native.wire_ids import scan
from kfast.columns.bytes import BytesColumn
from kfast.errors import LocalKafkaError, SchemaRegistryError
from kfast.local.local_kafka import LocalKafka
from kfast.local.local_registry import LocalRegistry
from kfast.registry.registered_schema import RegisteredSchema, SchemaKey
from tests.fake_registry.server import FakeRegistry
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter

PATIENCE_MS = 120_000
"""Of a machine that does other work, with a Java that has just started."""
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "int"}, {"name": "price", "type": "double"}],
}
JSON_SCHEMA = '{"$schema":"http://json-schema.org/draft-07/schema#","type":"object"}'
SOURCE = 'syntax = "proto3"; message A { int64 id = 1; } message B { int64 id = 1; }'


@pytest.fixture(scope="module")
def registry() -> Iterator[LocalRegistry]:
    made = LocalRegistry()
    try:
        made.start()
    except LocalKafkaError as error:
        pytest.skip(f"no Apicurio Registry, the fake one was tested only: {error.message}")
    yield made
    made.stop()


@pytest.fixture
def client(registry: LocalRegistry) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": registry.url}) as made:
        yield made


def patient(url: str) -> SchemaRegistry:
    """Return a registry that is asked for long enough."""
    return SchemaRegistry(url, timeout_ms=PATIENCE_MS, deadline_ms=PATIENCE_MS)


def request(url: str, path: str, body: object = None) -> tuple[int, Any]:
    """Return status and JSON of an answer; None for no body."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=PATIENCE_MS / 1000)
    data = None if body is None else json.dumps(body)
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    connection.request("GET" if body is None else "POST", parts.path + path, data, headers)
    with connection.getresponse() as response:
        text = response.read()
    connection.close()
    return response.status, json.loads(text) if text else None


def test_the_process(registry: LocalRegistry) -> None:
    """TC-140: it inherits nothing, and is gone when the program is killed (the reaper's test)."""
    process = psutil.Process(registry.pid)
    assert process.cmdline()[-1].endswith("quarkus-run.jar")
    assert registry.url in repr(registry)
    assert "Listening on" in registry.log_tail(100)


# --- the fake one ---------------------------------------------------------------------------------

TALK: list[tuple[str, object]] = [
    ("/subjects/none-value/versions/latest", None),
    ("/schemas/ids/4711", None),
    ("/subjects/fake-money/versions", {"schema": '"double"'}),
    ("/subjects/fake-other/versions", {"schema": '"double"'}),
    (
        "/subjects/fake-order/versions",
        {
            "schema": '{"type":"record","name":"O","fields":[{"name":"a","type":"int"}]}',
            "references": [{"name": "t.Money", "subject": "fake-money", "version": 1}],
        },
    ),
    ("/subjects/fake-proto/versions", {"schema": SOURCE, "schemaType": "PROTOBUF"}),
    ("/subjects/fake-json/versions", {"schema": JSON_SCHEMA, "schemaType": "JSON"}),
    ("/subjects/fake-money/versions/1", None),
    ("/subjects/fake-other/versions/latest", None),
    ("/subjects/fake-order/versions/latest", None),
    ("/subjects/fake-proto/versions/1", None),
    ("/subjects/fake-json/versions/latest", None),
    ("/subjects/fake-money/versions/9", None),
    ("/schemas/ids/{fake-money}", None),
    ("/schemas/ids/{fake-order}", None),
    ("/schemas/ids/{fake-proto}", None),
    ("/schemas/ids/{fake-json}", None),
    ("/schemas/ids/-5", None),
    ("/schemas/guids/8f2b2c4e-0000-4000-8000-1234567890ab", None),
]


def talk(url: str) -> list[tuple[str, int, Any]]:
    """Return what a registry answers, with numbers in the place of ids."""
    ids: dict[str, int] = {}
    said = []
    for path, body in TALK:
        asked = path
        for subject, number in ids.items():
            asked = asked.replace(f"{{{subject}}}", str(number))
        status, found = request(url, asked, body)
        if isinstance(found, dict) and "error_code" not in found and "id" in found:
            if body is not None:
                ids[path.split("/")[2]] = found["id"]
            found["id"] = sorted(set(ids.values())).index(found["id"])
        elif isinstance(found, dict) and "error_code" in found:
            found = {"error_code": found["error_code"]}
        said.append((path, status, found))
    return said


def test_the_fake_registry_answers_as_the_real_one(registry: LocalRegistry) -> None:
    """TC-141"""
    with FakeRegistry() as fake:
        fake.has_guids = False
        assert talk(fake.url) == talk(registry.url)


# --- the client -----------------------------------------------------------------------------------


def test_schemas_of_the_real_one(registry: LocalRegistry) -> None:
    """TC-114, TC-142: references, global ids, what is not there, and forms that it lacks."""
    url = registry.url
    request(url, "/subjects/r-money/versions", {"schema": '"double"'})
    references = [{"name": "t.Money", "subject": "r-money", "version": 1}]
    body = {"schema": '{"type":"fixed","name":"F","size":3}', "references": references}
    number = request(url, "/subjects/r-order/versions", body)[1]["id"]
    twin = request(url, "/subjects/r-twin/versions", body)[1]["id"]
    assert twin == number
    proto = request(
        url, "/subjects/r-proto/versions", {"schema": SOURCE, "schemaType": "PROTOBUF"}
    )[1]["id"]
    with patient(url) as client:
        found = client.schema(number)
        assert [(each.name, each.schema.text) for each in found.references] == [
            ("t.Money", '"double"')
        ]
        assert client.latest("r-twin").id == number
        key = SchemaKey.of_id(proto)
        answers = client.wait_for([key], is_serialized=True)
        assert answers.schemas[key].schema_type == "PROTOBUF"
        assert answers.schemas[key].descriptor is None
        wanted = client.latest("r-twin").text
        global_ids = [SchemaKey.of_global_id(each) for each in range(1, 10)]
        texts = [schema.text for schema in client.wait_for(global_ids).schemas.values()]
        assert texts.count(wanted) == 2  # one per version of a subject, and one id
        with pytest.raises(SchemaRegistryError, match="has no schema id 4711"):
            client.schema(4711)
        with pytest.raises(SchemaRegistryError, match="has no latest version"):
            client.latest("r-none")
        guid = "8f2b2c4e-0000-4000-8000-1234567890ab"
        with pytest.raises(SchemaRegistryError, match="has no schemas by GUID"):
            client.schema(guid)
    with (
        patient(url.replace("/v7", "/v7/nothing")) as lost,
        pytest.raises(SchemaRegistryError, match="is not a schema registry: is the path right"),
    ):
        lost.schema(number)


# --- what producers write -------------------------------------------------------------------------


def messages() -> tuple[Any, Any]:
    """Return the generated classes of a file with two messages."""
    file = descriptor_pb2.FileDescriptorProto(name="fills.proto", package="x", syntax="proto3")
    for name in ("First", "Fill"):
        message = file.message_type.add(name=name)
        message.field.add(name="id", number=1, type=3, label=1)
        message.field.add(name="price", number=2, type=1, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    first, fill = (pool.FindMessageTypeByName(f"x.{name}") for name in ("First", "Fill"))
    return message_factory.GetMessageClass(first), message_factory.GetMessageClass(fill)


def written(
    serializer: Callable[..., bytes | None], value: Any, topic: str, headers: Any = None
) -> bytes:
    found = serializer(value, SerializationContext(topic, MessageField.VALUE, headers))
    assert found is not None
    return found


def schema_of(url: str, value: bytes, **more: Any) -> tuple[RegisteredSchema, Any, int]:
    """Return the schema of a value, the path of its message, and where the payload is."""
    wire = scan("confluent", *BytesColumn.from_values([value]).spans, **more)
    [(kind, number, path)] = wire.keys
    assert (kind, wire[0][4]) == ("id", "value")
    assert isinstance(number, int)
    with patient(url) as client:
        return client.schema(number), path, wire[0][3]


def test_avro_as_confluent_kafka_writes_it(
    registry: LocalRegistry, client: SchemaRegistryClient
) -> None:
    """TC-142"""
    write = AvroSerializer(client, json.dumps(ORDER))
    value = written(write, {"id": 1, "price": 2.5}, "orders")
    schema, path, offset = schema_of(registry.url, value)
    assert schema.schema_type == "AVRO"
    assert json.loads(schema.text)["fields"] == ORDER["fields"]
    assert path is None
    assert value[offset:] == b"\x02" + struct.pack("<d", 2.5)


def test_json_as_confluent_kafka_writes_it(
    registry: LocalRegistry, client: SchemaRegistryClient
) -> None:
    """TC-142"""
    text = JSON_SCHEMA.replace('"type"', '"title":"Order","type"')
    value = written(JSONSerializer(text, client), {"id": 1, "price": 2.5}, "json-orders")
    schema, _, offset = schema_of(registry.url, value)
    assert schema.schema_type == "JSON"
    assert json.loads(value[offset:]) == {"id": 1, "price": 2.5}


def test_protobuf_as_confluent_kafka_writes_it(
    registry: LocalRegistry, client: SchemaRegistryClient
) -> None:
    """TC-142: the schema is base64 of the descriptor, and the second message has the path [1]."""
    first, second = messages()
    for kind, path, prefix in ((first, (0,), b"\0"), (second, (1,), b"\x02\x02")):
        write = ProtobufSerializer(kind, client, {"use.deprecated.format": False})
        value = written(write, kind(id=1, price=2.5), f"fills-{path[0]}")
        schema, found, offset = schema_of(registry.url, value, has_indexes=True)
        assert schema.schema_type == "PROTOBUF"
        assert schema.descriptor == base64.b64decode(schema.text)
        file = descriptor_pb2.FileDescriptorProto.FromString(schema.descriptor)
        assert [message.name for message in file.message_type] == ["First", "Fill"]
        assert found == path
        assert value[5:offset] == prefix
        assert kind.FromString(value[offset:]).id == 1


def test_protobuf_of_another_program_becomes_columns(
    registry: LocalRegistry,
    client: SchemaRegistryClient,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
) -> None:
    """TC-99, TC-142: written by confluent-kafka, through a broker and the registry."""
    first, fill = messages()
    topic = new_topic()
    options = {"use.deprecated.format": False}
    write, other = (ProtobufSerializer(kind, client, options) for kind in (fill, first))
    values = [written(write, fill(id=n, price=n / 2), topic) for n in range(50)]
    values[7] = written(other, first(id=7), topic)
    writer.write(topic, [*values, None])
    with patient(registry.url) as source:
        for deserializer in (
            Protobuf(registry=source),
            Protobuf(fill, registry=source, columns=["id", "price"]),
        ):
            batch = read_topic(
                topic,
                value_deserializer=deserializer,
                on_deserialization_error="null",
                bootstrap_servers=kafka.bootstrap_servers,
            )[TopicPartition(topic, 0)]
            good = [None if n == 7 else {"id": n, "price": n / 2} for n in range(50)]
            assert batch.values.to_list() == [*good, None]
            ((error),) = batch.errors
            assert (error.code, error.offset) == ("schema", 7)
            assert deserializer.message == "x.Fill"


def test_headers_as_confluent_kafka_writes_them() -> None:
    """TC-131: a GUID in the header, and the payload bare. The real registry has no GUIDs."""
    with FakeRegistry() as fake:
        number = fake.register("orders-value", json.dumps(ORDER))
        guid = fake.guid(number)
        serialized = header_schema_id_serializer
        headers: list[tuple[str, bytes]] = []
        from confluent_kafka.schema_registry.serde import SchemaId  # noqa: PLC0415

        for kind, indexes in (("AVRO", None), ("PROTOBUF", [1, 2])):
            headers.clear()
            context: Any = SerializationContext("orders", MessageField.VALUE, headers)
            payload = serialized(b"payload", context, SchemaId(kind, number, guid, indexes))
            [(name, value)] = headers
            block = bytes([len(name) * 2]) + name.encode() + bytes([len(value) * 2]) + value
            spans = (block, struct.pack("i", 0), struct.pack("i", 1))
            wire = scan(
                "confluent",
                *BytesColumn.from_values([payload]).spans,
                headers=spans,
                header_name=b"__value_schema_id",
                has_indexes=indexes is not None,
            )
            [(found, raw, path)] = wire.keys
            assert (found, path) == ("guid", None if indexes is None else (1, 2))
            assert isinstance(raw, bytes)
            with SchemaRegistry(fake.url) as client:
                key = SchemaKey.of_guid(raw)
                assert client.wait_for([key]).schemas[key].guid == guid


# --- the command line -----------------------------------------------------------------------------


def test_what_producers_wrote_is_read_as_text(
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    registry: LocalRegistry,
    client: SchemaRegistryClient,
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    """CL-208, CL-210: two versions of an Avro schema, and the second message of a file."""
    topic = new_topic()
    later = {**ORDER, "fields": [*ORDER["fields"], {"name": "n", "type": "int", "default": 5}]}
    for schema, row in ((ORDER, {"id": 1, "price": 2.5}), (later, {"id": 2, "price": 0.1, "n": 6})):
        write = AvroSerializer(client, json.dumps(schema))
        writer.write(topic, [written(write, row, topic)])
    writer.write(topic, [b"\0\0\1\0\0bad"])
    _, fill = messages()
    fills = new_topic()
    write = ProtobufSerializer(fill, client, {"use.deprecated.format": False})
    writer.write(fills, [written(write, fill(id=7, price=1.5), fills)])

    def run(*words: str) -> tuple[int, list[str], str]:
        status = cli.main(
            [*words, "-b", kafka.bootstrap_servers, "--schema-registry", registry.url]
        )
        out, err = capfdbinary.readouterr()
        return status, out.decode().splitlines(), err.decode()

    flat = ("--value-schema", "latest", "--flatten", "-c", "offset,value", "-f", "csv")
    words = ("read", topic, "--value", "avro")
    status, lines, _ = run(*words, *flat, "--on-error", "skip")
    assert (status, lines) == (0, ["offset,id,price,n", "0,1,2.5,5", "1,2,0.1,6"])
    status, lines, err = run(*words, "-f", "%o %s\\n")
    assert (status, lines) == (6, ['0 {"id":1,"price":2.5}', '1 {"id":2,"price":0.1}'])
    assert f"{topic}-0 offset 2: value has schema id 65536" in err
    status, lines, _ = run("read", fills, "--value", "protobuf", "-f", "jsonl", "-c", "value")
    assert (status, lines) == (0, ['{"value":{"id":7,"price":1.5}}'])
    status, lines, _ = run("schema", topic)
    assert (status, lines) == (
        0,
        ["id: int32 not null", "price: float64 not null", "n: int32 not null"],
    )
    status, lines, _ = run("schema", "show", topic, "-f", "jsonl")
    found = [json.loads(line) for line in lines]
    assert [(row["records"], row["status"], row["latest"]) for row in found] == [
        (1, "found", False),
        (1, "found", True),
        (1, "unknown", None),
    ]
