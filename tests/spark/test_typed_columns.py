"""Keys and values with schemas in queries of Spark: the plan, and what workers make of it."""

from __future__ import annotations

import base64
import logging
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfast.errors import ConfigurationError, DeserializationError, KafkaError, SchemaRegistryError
from kfast.records import build_partition_records
from kfast.schemas.ddl import field_of_ddl
from kfast.spark.source.schema import default_schema, project
from kfast.spark.source.value_schemas import _REGISTRIES, registry_of
from kfast.table.arrow_batches import ArrowBatches, deserializers_of
from kfast.table.offset_ranges import OffsetRange
from kfast.table.range_files import RangeFiles
from kfast.table.store import LocalStore
from kfast.table.value_types import in_spark, json_of
from tests.fake_registry.server import FakeRegistry
from tests.spark.arrow_rows import batches, schema
from tests.spark.support import options
from tests.spark.typed_orders import AVRO_TEXT, ORDER, avro, framed
from tests.unit.records.sample_index import Sample, sample_index

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")
fastavro = pytest.importorskip("fastavro")

JSON: dict[str, Any] = {"valueFormat": "json"}


def type_of(ddl: str) -> Any:
    """Return the JSON form of a struct with these columns."""
    return json_of(in_spark(field_of_ddl(ddl), "").type)


def rows_of(*samples: Sample) -> Any:
    return build_partition_records("top", 3, sample_index(list(samples))).records


def values(json_type: Any, raw: list[bytes | None], **more: Any) -> list[Any]:
    """Return the column ``value`` of some values."""
    (batch,) = batches(schema({"value": json_type}), rows_of(*map(Sample, raw)), **more)
    return list(batch.column(0).to_pylist())


# --- JSON -----------------------------------------------------------------------------------------


def test_the_type_of_value_is_the_schema() -> None:
    """TC-151: nested, with Spark's names of items and its nullability."""
    made = type_of(
        "id BIGINT NOT NULL, ts TIMESTAMP, d DATE, price DECIMAL(10,2), ok BOOLEAN, "
        "lines ARRAY<STRUCT<sku: STRING, qty: INT>>, tags MAP<STRING, STRING>, b BINARY"
    )
    document = (
        b'{"id": 1, "ts": "2026-01-02T03:04:05Z", "d": "2026-01-02", "price": 1.5, "ok": true, '
        b'"lines": [{"sku": "a", "qty": 3}, null], "tags": {"k": "v"}, "b": "AAE=", "more": {}}'
    )
    full, null, empty = values(made, [document, None, b'{"id": 2}'], **JSON)
    assert (full["id"], str(full["price"]), full["ok"], full["b"]) == (1, "1.50", True, b"\0\1")
    assert full["ts"].isoformat() == "2026-01-02T03:04:05+00:00"
    assert full["lines"] == [{"sku": "a", "qty": 3}, None]
    assert full["tags"] == [("k", "v")]
    assert null is None
    assert empty == {**dict.fromkeys(full), "id": 2}


@pytest.mark.parametrize(
    ("json_type", "raw", "value"),
    [
        ("double", b"1.5", 1.5),
        ("string", b'"a"', "a"),
        ({"type": "array", "elementType": "integer", "containsNull": False}, b"[1, 2]", [1, 2]),
    ],
)
def test_values_that_are_no_objects(json_type: Any, raw: bytes, value: object) -> None:
    """TC-151."""
    assert values(json_type, [raw, None], **JSON) == [value, None]


def test_options_of_the_deserializer_and_framings() -> None:
    """TC-151."""
    given = {**JSON, "valueOptions": '{"coerce": ["number_text"]}', "valueFraming": "confluent"}
    assert values(type_of("a INT"), [framed(1, b'{"a": "5"}')], **given) == [{"a": 5}]


BAD = [b'{"id": 1}', b'{"id": "x"}', b'{"id": 2', b'{"l": [1, {}]}', None]
LAYOUT = "id INT, l ARRAY<INT>"


def test_permissive_says_what_is_bad() -> None:
    """TC-153: bytes, and code and path."""
    wanted = {"value": type_of(LAYOUT), "_corrupt_record": "binary", "_corrupt_reason": "string"}
    (batch,) = batches(schema(wanted), rows_of(*map(Sample, BAD)), **JSON)
    assert batch.column("value").to_pylist() == [{"id": 1, "l": None}, None, None, None, None]
    assert batch.column("_corrupt_record").to_pylist() == [None, *BAD[1:4], None]
    assert batch.column("_corrupt_reason").to_pylist() == [
        *(None, "type id", "truncated", "type l[1]", None)
    ]


def test_a_bad_key_is_said_to_be_one() -> None:
    """TC-153: keys may have a format of their own."""
    wanted = {"key": type_of("k INT"), "value": "integer", "_corrupt_reason": "string"}
    rows = rows_of(
        Sample(b"\0\0\0\1", b'{"k": 1}'),
        Sample(b"\0\0\0\1", b'{"k": true}'),
        Sample(b"\0", b"{}"),
        Sample(b"\0", b"{"),
    )
    (batch,) = batches(schema(wanted), rows, keyFormat="json", valueFormat="int32")
    assert batch.column("key").to_pylist() == [{"k": 1}, None, {"k": None}, None]
    assert batch.column("value").to_pylist() == [1, 1, None, None]
    reasons = batch.column("_corrupt_reason").to_pylist()
    assert reasons == [None, "key type k", "type", "key truncated"]


def test_the_other_modes() -> None:
    """TC-153."""
    wanted, rows = schema({"offset": "long", "value": type_of(LAYOUT)}), rows_of(*map(Sample, BAD))
    (batch,) = batches(wanted, rows, **JSON, mode="DROPMALFORMED")
    assert batch.column("offset").to_pylist() == [100, 104]
    assert batch.column("value").to_pylist() == [{"id": 1, "l": None}, None]
    with pytest.raises(DeserializationError) as raised:
        batches(wanted, rows, **JSON, mode="FAILFAST")
    error = raised.value
    assert error.message == 'top-3 offset 101: value.id is a string, not int32 (byte 7: "x")'
    assert (error.cause, error.code, error.path) == ("code type", "type", "id")
    assert (error.byte_position, error.value_bytes) == (7, BAD[1])
    assert "PERMISSIVE" in str(error)


def test_what_a_json_query_needs() -> None:
    """TC-151."""
    for made in (
        lambda: default_schema(options(**JSON)),
        lambda: project(schema({"offset": "long"}), options(**JSON)),
        lambda: project(schema({"value": "void"}), options(**JSON)),
        lambda: project(
            schema({"value": "long"}), options(**JSON, valueOptions='{"coerce": ["x"]}')
        ),
    ):
        with pytest.raises(ConfigurationError, match="value"):
            made()


def test_small_values_may_be_large_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """TC-153: batches are cut at a row, and each record is in one of them, counted once."""
    monkeypatch.setattr("kfast.table.value_decoder.COLUMN_BYTES", 200)
    raw = [b'{"k": [%s]}' % b",".join([b"1"] * (n % 7)) for n in range(50)]
    raw[7], raw[30] = b"oops", b'{"k": [true]}'
    wanted = schema({"offset": "long", "key": type_of("k ARRAY<BIGINT>"), "value": "integer"})
    rows = rows_of(*(Sample(b"x" if n == 9 else b"\0\0\0\1", each) for n, each in enumerate(raw)))
    given: dict[str, Any] = {"keyFormat": "json", "valueFormat": "int32"}
    for mode, left_out in (("PERMISSIVE", set()), ("DROPMALFORMED", {7, 9, 30})):
        projection = project(wanted, options(**given, mode=mode))
        made = ArrowBatches(projection, "top", 3)
        found = [row for batch in made.batches(rows) for row in batch.to_pylist()]
        assert [row["offset"] for row in found] == [n + 100 for n in range(50) if n not in left_out]
        assert made.bad_records == 3
        for row in found:
            n = row["offset"] - 100
            assert row["key"] == (None if n in {7, 30} else {"k": [1] * (n % 7)})
    many = [batch.num_rows for batch in ArrowBatches(projection, "top", 3).batches(rows)]
    assert len(many) > 3


def test_framing_is_named_where_it_is_missing() -> None:
    """TC-153."""
    rows = rows_of(Sample(framed(7, b'{"id": 1}')))
    with pytest.raises(DeserializationError) as raised:
        batches(schema({"value": type_of("id INT")}), rows, **JSON, mode="FAILFAST")
    assert "Confluent wire format, schema id 7" in str(raised.value)
    assert raised.value.hint == "set valueFraming to confluent"


# --- Avro -----------------------------------------------------------------------------------------


def test_avro_without_ids() -> None:
    """TC-154: the query's schema picks columns by name; what Spark has no type for is wider."""
    given: dict[str, Any] = {"valueFormat": "avro", "valueSchema": AVRO_TEXT}
    assert default_schema(options(**given)).split(", topic")[0] == (
        "key binary, value STRUCT<id: BIGINT NOT NULL, placed: TIMESTAMP NOT NULL, "
        "side: STRING NOT NULL, at: BIGINT NOT NULL, price: DOUBLE, lines: ARRAY<INT> NOT NULL>"
    )
    full = type_of("lines ARRAY<INT>, at BIGINT, side STRING, placed TIMESTAMP, id BIGINT NOT NULL")
    (row, null) = values(full, [avro(ORDER), None], **given)
    assert null is None
    assert row.pop("placed").timestamp() == 1
    assert row == {"lines": [1, 2], "at": 5, "side": "sell", "id": 7}
    projection = project(schema({"value": type_of("side STRING, id BIGINT")}), options(**given))
    (made,) = deserializers_of(projection).values()
    assert made.columns == ("side", "id")  # type: ignore[attr-defined]
    with pytest.raises(ConfigurationError, match=r"value\.id is bigint in the schema"):
        project(schema({"value": type_of("id STRING")}), options(**given))
    with pytest.raises(ConfigurationError, match='columns has "ident"'):
        project(schema({"value": type_of("ident BIGINT")}), options(**given))


def test_times_beyond_microseconds_are_bad_values() -> None:
    """TC-153: as such that cannot be read."""
    given: dict[str, Any] = {"valueFormat": "avro", "valueSchema": AVRO_TEXT}
    beyond = {**ORDER, "placed": 2**60}
    wanted = {"value": type_of("placed TIMESTAMP"), "_corrupt_reason": "string"}
    rows = rows_of(Sample(avro(ORDER)), Sample(avro(beyond)), Sample(b"\2"))
    (batch,) = batches(schema(wanted), rows, **given)
    assert [value is None for value in batch.column(0).to_pylist()] == [False, True, True]
    assert batch.column(1).to_pylist() == [None, "range placed", "truncated placed"]
    (batch,) = batches(schema(wanted), rows[:2], **given)
    assert batch.column(1).to_pylist() == [None, "range placed"]
    only = schema({"value": wanted["value"]})
    (batch,) = batches(only, rows, **given, mode="DROPMALFORMED")
    assert batch.num_rows == 1
    with pytest.raises(DeserializationError) as raised:
        batches(only, rows, **given, mode="FAILFAST")
    assert raised.value.message == (
        "top-3 offset 101: value.placed is a time that Spark's microseconds cannot hold"
    )


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake
    while _REGISTRIES:
        _REGISTRIES.popitem()[1].close()


def of_registry(registry: FakeRegistry, **more: str) -> dict[str, Any]:
    return {"valueFormat": "avro", "schemaRegistry__url": registry.url, **more}


OLD = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'


def test_a_version_is_looked_up_once(
    registry: FakeRegistry, caplog: pytest.LogCaptureFixture
) -> None:
    """TC-155: on the driver, and logged; what is registered later changes nothing."""
    old = registry.register("t-value", OLD)
    new = registry.register("t-value", AVRO_TEXT)
    given = options(**of_registry(registry))
    assert "value STRUCT<id: BIGINT NOT NULL, placed" in default_schema(given)
    wanted = schema({"value": type_of("id BIGINT, price DOUBLE")})
    with caplog.at_level(logging.INFO, "kfast.spark"):
        projection = project(wanted, given)
    assert f'values are read by AVRO schema id {new} subject "t-value" version 2' in caplog.text
    registry.register("t-value", '"string"')
    sent = pickle.loads(pickle.dumps(projection))
    deserializers = deserializers_of(sent, registry_of(given.registry))
    made = ArrowBatches(sent, "top", 3, deserializers)
    rows = rows_of(Sample(framed(new, avro(ORDER))), Sample(framed(99, b"")), Sample(b"{}"))
    (batch,) = made.batches(rows)
    assert batch.column(0).to_pylist() == [{"id": 7, "price": 2.5}, None, None]
    assert made.bad_records == 2
    (batch,) = made.batches(rows_of(Sample(framed(old, b"\4"))))
    assert batch.column(0).to_pylist() == [{"id": 2, "price": None}]


def test_one_registry_of_a_process(registry: FakeRegistry) -> None:
    """TC-155: tasks share its cache."""
    number = registry.register("t-value", AVRO_TEXT)
    given = options(**of_registry(registry))
    projection = project(schema({"value": type_of("id BIGINT")}), given)
    for _ in range(3):
        again = pickle.loads(pickle.dumps((given, projection)))
        deserializers = deserializers_of(again[1], registry_of(again[0].registry))
        made = ArrowBatches(projection, "top", 3, deserializers)
        (batch,) = made.batches(rows_of(Sample(framed(number, avro(ORDER)))))
        assert batch.column(0).to_pylist() == [{"id": 7}]
    assert registry.paths.count(f"/schemas/ids/{number}") == 1
    assert registry_of({}) is None


def test_subject_and_version_are_chosen(registry: FakeRegistry) -> None:
    """TC-155."""
    registry.register("orders", OLD)
    registry.register("orders", AVRO_TEXT)
    first = of_registry(registry, valueSubject="orders", valueVersion="1")
    assert "value STRUCT<id: INT NOT NULL>" in default_schema(options(**first))
    key = {name.replace("value", "key"): value for name, value in first.items()}
    assert "key STRUCT<id: INT NOT NULL>, value binary" in default_schema(options(**key))
    by_text = of_registry(registry, valueSchema='{"type": "record", "name": "R", "fields": []}')
    with pytest.raises(ConfigurationError):
        default_schema(options(**by_text))
    by_text["valueSchema"] = OLD
    assert "value STRUCT<id: INT NOT NULL>" in default_schema(options(**by_text))


@pytest.mark.parametrize(
    ("more", "kind", "message"),
    [
        ({"subscribe": "a,b"}, ConfigurationError, "the query has several topics"),
        ({"valueSubject": "none"}, SchemaRegistryError, 'no latest version of subject "none"'),
        (
            {"valueSubject": "proto"},
            ConfigurationError,
            "has a schema of PROTOBUF, and",
        ),
        ({"valueFraming": "none"}, ConfigurationError, "avro needs the writer's schema"),
        ({"valueFraming": "glue"}, ConfigurationError, "glue"),
    ],
)
def test_a_schema_that_is_not_there(
    registry: FakeRegistry, more: dict[str, str], kind: type[KafkaError], message: str
) -> None:
    """TC-155: the query fails when it is planned."""
    registry.register("proto", 'syntax = "proto3"; message A {}', "PROTOBUF")
    with pytest.raises(kind, match=message):
        default_schema(options(**of_registry(registry, **more)))


PROTO = """syntax = "proto3"; package shop;
message Order { int64 id = 1; uint64 cents = 2; repeated Line lines = 3; Side side = 4; }
message Line { string sku = 1; uint32 qty = 2; }
enum Side { BUY = 0; SELL = 1; }
"""
VALUE = b"\x08\x07\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01\x1a\x05\x0a\x01a\x10\x03\x20\x01"
LARGE = 2**64 - 1


def test_protobuf_by_its_descriptors(tmp_path: Path) -> None:
    """TC-151, TC-154: text or descriptors, as a file of the driver or base64."""
    (tmp_path / "shop.proto").write_text(PROTO, encoding="utf-8")
    given: dict[str, Any] = {
        "valueFormat": "protobuf",
        "valueMessage": "shop.Order",
        "valueDescriptorSet": str(tmp_path / "shop.proto"),
    }
    assert "value STRUCT<id: BIGINT NOT NULL, cents: DECIMAL(20,0) NOT NULL, lines: ARRAY<" in (
        default_schema(options(**given))
    )
    wanted = type_of(
        "lines ARRAY<STRUCT<qty: BIGINT, sku: STRING>>, cents DECIMAL(20,0), side STRING"
    )
    (row,) = values(wanted, [VALUE], **given)
    assert (row["lines"], int(row["cents"]), row["side"]) == (
        [{"qty": 3, "sku": "a"}],
        LARGE,
        "SELL",
    )
    given["valueOptions"] = '{"absent": "null"}'
    assert values(type_of("id BIGINT"), [b"", None], **given) == [{"id": None}, None]
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    file = descriptor_pb2.FileDescriptorProto(name="a.proto", syntax="proto3")
    file.message_type.add(name="A").field.add(name="n", number=1, type=5, label=1)
    raw = descriptor_pb2.FileDescriptorSet(file=[file]).SerializeToString()
    (tmp_path / "a.desc").write_bytes(raw)
    for form in (str(tmp_path / "a.desc"), base64.b64encode(raw).decode()):
        more = {"valueFormat": "protobuf", "valueMessage": "A", "valueDescriptorSet": form}
        assert values(type_of("n INT"), [b"\x08\x05"], **more) == [{"n": 5}]
    with pytest.raises(ConfigurationError, match="valueDescriptorSet is neither a file nor base64"):
        default_schema(options(**{**given, "valueDescriptorSet": "/no/where"}))
    with pytest.raises(ConfigurationError) as raised:
        default_schema(options(valueFormat="protobuf"))
    assert str(raised.value).endswith("try: valueDescriptorSet")


def test_imports_of_proto_files(tmp_path: Path, registry: FakeRegistry) -> None:
    """TC-190: in folders of the driver; references in a registry may be texts."""
    line = PROTO.splitlines()[2]
    main = PROTO.replace(line, "").replace(
        "package shop;", 'package shop; import "shop/line.proto";'
    )
    (tmp_path / "main.proto").write_text(main, encoding="utf-8")
    (tmp_path / "more" / "shop").mkdir(parents=True)
    text = f'syntax = "proto3"; package shop; {line}'
    (tmp_path / "more/shop/line.proto").write_text(text, encoding="utf-8")
    given: dict[str, Any] = {
        "valueFormat": "protobuf",
        "valueMessage": "shop.Order",
        "valueDescriptorSet": str(tmp_path / "main.proto"),
    }
    wanted, lines = type_of("lines ARRAY<STRUCT<sku: STRING>>"), [{"sku": "a"}]
    folders = f"{tmp_path / 'none'},{tmp_path / 'more'}"
    assert values(wanted, [VALUE], **given, valueImports=folders) == [{"lines": lines}]
    with pytest.raises(ConfigurationError, match=r"imported and not given: shop/line\.proto"):
        default_schema(options(**given))
    for more in ({"valueDescriptorSet": "CgA="}, {"valueDescriptorSet": None}):
        words = {name: each for name, each in {**given, **more}.items() if each is not None}
        with pytest.raises(ConfigurationError, match=r"option valueImports is for a \.proto file"):
            default_schema(options(**words, valueImports=folders))
    registry.register("line", text, "PROTOBUF")
    references = [("shop/line.proto", "line", 1)]
    number = registry.register("t-value", main, "PROTOBUF", references)
    looked_up = options(**of_registry(registry, valueFormat="protobuf"))
    projection = project(schema({"value": wanted}), looked_up)
    deserializers = deserializers_of(projection, registry_of(looked_up.registry))
    made = ArrowBatches(projection, "top", 3, deserializers)
    (batch,) = made.batches(rows_of(Sample(framed(number, b"\0" + VALUE))))
    assert batch.column(0).to_pylist() == [{"lines": lines}]


@pytest.mark.parametrize("is_serialized", [False, True])
def test_protobuf_of_a_registry(registry: FakeRegistry, is_serialized: bool) -> None:
    """TC-155: the first message of the file, or the one that is named; as text or descriptors."""
    descriptor = None
    if is_serialized:
        descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
        file = descriptor_pb2.FileDescriptorProto(
            name="shop.proto", package="shop", syntax="proto3"
        )
        order = file.message_type.add(name="Order")
        order.field.add(name="id", number=1, type=3, label=1)
        line = file.message_type.add(name="Line")
        line.field.add(name="sku", number=1, type=9, label=1)
        descriptor = file.SerializeToString()
    number = registry.register("t-value", PROTO, "PROTOBUF", descriptor=descriptor)
    registry.has_serialized = is_serialized
    given = of_registry(registry, valueFormat="protobuf")
    orders, lines = framed(number, b"\0" + VALUE), framed(number, b"\2\2" + b"\x0a\x01b")
    for message, sql, expected in (
        ({}, "id BIGINT", [{"id": 7}, None]),
        ({"valueMessage": "shop.Line"}, "sku STRING", [None, {"sku": "b"}]),
    ):
        parsed = options(**{**given, **message})
        assert "NOT NULL" in default_schema(parsed)
        projection = project(schema({"value": type_of(sql)}), parsed)
        sent = pickle.loads(pickle.dumps(projection))
        deserializers = deserializers_of(sent, registry_of(parsed.registry))
        made = ArrowBatches(sent, "top", 3, deserializers)
        (batch,) = made.batches(rows_of(Sample(orders), Sample(lines)))
        assert batch.column(0).to_pylist() == expected


# --- files ----------------------------------------------------------------------------------------


def test_files_of_typed_columns(tmp_path: Path) -> None:
    """TC-156: as batches have them, with statistics of numbers and dictionaries of texts."""
    parquet = pytest.importorskip("pyarrow.parquet")
    made = type_of("id BIGINT, lines ARRAY<STRUCT<sku: STRING>>, tags MAP<STRING, INT>")
    wanted = schema({"offset": "long", "value": made})
    projection = project(wanted, options(**JSON))
    documents = [b'{"id": %d, "lines": [{"sku": "a"}], "tags": {"k": 1}}' % n for n in range(9)]
    rows = rows_of(*map(Sample, [*documents, None, b"{"]))
    files = RangeFiles(LocalStore(tmp_path), projection, OffsetRange("top", 3, 0, 9), "w")
    files.write(rows)
    written = files.close()
    (file,) = written.files
    assert (file.rows, written.bad_records) == (11, 1)
    with (tmp_path / file.staged).open("rb") as opened:
        read = parquet.ParquetFile(opened)
        (batch,) = batches(wanted, rows, **JSON)
        assert read.read().to_pylist() == batch.to_pylist()
        group = read.metadata.row_group(0)
        columns = {group.column(n).path_in_schema: group.column(n) for n in range(5)}
        assert columns["value.id"].statistics.max == 8
        assert columns["value.lines.list.element.sku"].has_dictionary_page
        assert columns["value.tags.key_value.value"].statistics.max == 1
