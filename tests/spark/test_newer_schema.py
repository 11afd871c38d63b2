"""H-07 in the ingest of Spark: versions of schemas that are registered while a query runs."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import kfast.spark
from kfast.local.local_kafka import LocalKafka
from kfast.schemas.ddl import field_of_ddl
from kfast.spark.ingest.newer_schema import NewerSchema
from kfast.spark.ingest.plan import IngestPlan, plan_of, plan_of_text
from kfast.spark.source.schema import default_schema, project
from kfast.spark.source.value_schemas import _REGISTRIES
from kfast.table.batches import DataFile, ReadRange, batch_part_dict
from kfast.table.entries import TableShape, Writer
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore
from kfast.table.table_log import STAGING
from kfast.table.value_types import json_of
from tests.fake_registry.server import FakeRegistry, answer
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import until
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import Death, end, start_ingest
from tests.spark.support import options
from tests.spark.tables import Table, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kfast.spark.source.options import SourceOptions

pytest.importorskip("pyspark")
fastavro = pytest.importorskip("fastavro")
pq = pytest.importorskip("pyarrow.parquet")

WRITER: Final = Writer("w", "/c", 0)


def record(**fields: Any) -> str:
    """Return a schema of Avro with fields; one that may be null has that as its default."""
    rows = [
        {"name": name, "type": kind, **({"default": None} if isinstance(kind, list) else {})}
        for name, kind in fields.items()
    ]
    return json.dumps({"type": "record", "name": "R", "fields": rows})


FIRST: Final = record(id="int", price="float")
ADDED: Final = record(id="int", price="float", user=["null", "string"])
WIDER: Final = record(id="long", price="double", user=["null", "string"])
NEWEST: Final = record(id="long", price="double", user=["null", "string"], n=["null", "int"])
SHORTER: Final = record(id="long")


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with FakeRegistry() as fake:
        yield fake
    while _REGISTRIES:
        _REGISTRIES.popitem()[1].close()


def started(registry: FakeRegistry, folder: Path, format: str) -> tuple[SourceOptions, IngestPlan]:
    """Return the options and the plan of a query that has begun a table."""
    source = options(is_stream=True, valueFormat="avro", schemaRegistry__url=registry.url)
    columns = field_of_ddl(default_schema(source, ("offset", "value"))).type.fields
    fields = [
        {"name": column.name, "type": json_of(column.type), "nullable": True} for column in columns
    ]
    projection = project({"fields": fields}, source)
    shape = TableShape(format, projection.ddl)
    url, checkpoint = str(folder / "table"), str(folder / "checkpoint")
    plan = IngestPlan(url, checkpoint, WRITER, shape, projection, follows_schema=True)
    assert plan.log().begin(WRITER, shape, projection, None)
    return source, plan


@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_version_that_adds_columns_is_taken(
    registry: FakeRegistry, tmp_path: Path, format: str
) -> None:
    """H-07: with one request as long as there is none."""
    if format == "delta":
        pytest.importorskip("deltalake")
    registry.register("t-value", FIRST)
    source, plan = started(registry, tmp_path, format)
    newer = NewerSchema(source, plan)
    before = len(registry.paths)
    assert newer.plan() is newer.plan() is plan
    assert len(registry.paths) == before + 2
    registry.register("t-value", ADDED)
    added = newer.plan()
    assert added.shape.schema == "offset bigint, value struct<id:int,price:float,user:string>"
    assert added.projection.ddl == added.shape.schema
    assert added.projection.value.arguments["options"]["reader"] == "t-value:2"
    assert plan_of_text(added.text, {}) == added == plan_of(added.options())
    assert newer.plan() is added
    if format == "delta":
        import deltalake  # noqa: PLC0415 - optional

        schema = deltalake.DeltaTable(plan.url).schema().to_json()
        assert '"name":"user"' in schema.replace(" ", "")


def test_a_version_that_the_table_cannot_take_is_named_once(
    registry: FakeRegistry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """H-07: records are read as before, also while the registry gives no answer."""
    registry.register("t-value", FIRST)
    source, plan = started(registry, tmp_path, "parquet")
    newer = NewerSchema(source, plan)
    registry.register("t-value", SHORTER)
    for _ in range(3):
        assert newer.plan() is plan
    registry.answer_next(answer(404, {"error_code": 40402, "message": "gone"}))
    assert newer.plan() is plan
    texts = [text.getMessage() for text in caplog.records if text.name.endswith("newer_schema")]
    assert len(texts) == 2
    assert "a newer schema is not used" in texts[0]
    assert "cannot look for newer schemas" in texts[1]
    registry.register("t-value", WIDER)
    assert "value struct<id:bigint,price:double,user:string>" in newer.plan().shape.schema


def test_the_sink_publishes_by_the_plan_of_the_batch(tmp_path: Path) -> None:
    """H-07: it comes with the rows of the tasks."""
    from kfast.spark.ingest.source import IngestSource, TaskParts  # noqa: PLC0415 - needs pyspark

    url = str(tmp_path / "table")
    shape = TableShape("parquet", "offset bigint")
    projection = project({"fields": [{"name": "offset", "type": "long"}]}, options())
    plan = IngestPlan(url, str(tmp_path / "c"), WRITER, shape, projection)
    log = plan.log()
    assert log.begin(WRITER, shape, projection, None)
    newer = replace(plan, shape=replace(shape, schema="offset bigint, key binary"))
    sink = IngestSource(plan.options()).streamWriter(None, False)
    for batch_id, plans in enumerate(((), (newer.text,), (newer.text, newer.text))):
        staged = f"{STAGING}/w/{batch_id}"
        assert log.store.create(staged, b"x")
        part = ReadRange("t", 0, batch_id, batch_id + 1, (DataFile(staged, f"{batch_id}.x", 1, 1),))
        rows = [json.dumps({"plan": text}) for text in plans]
        message = sink.write(iter((row,) for row in (*rows, json.dumps(batch_part_dict(part)))))
        assert isinstance(message, TaskParts)
        sink.commit([message], batch_id)
        last = log.last()
        assert last is not None
        expected = newer if plans else plan
        assert (last.batch_id, last.shape) == (batch_id, expected.shape)


class Producer:
    """Writes values of a topic, each with the id of its schema."""

    def __init__(self, writer: KafkaWriter, registry: FakeRegistry, topic: str) -> None:
        self._writer = writer
        self._registry = registry
        self._topic = topic
        self.count = 0

    def write(self, text: str, **row: Any) -> None:
        """Register a schema, and write a value by it to each of two partitions."""
        number = self._registry.register(f"{self._topic}-value", text)
        out = io.BytesIO()
        fastavro.schemaless_writer(out, json.loads(text), row)
        value = b"\0" + number.to_bytes(4, "big") + out.getvalue()
        for partition in (0, 1):
            self._writer.write(self._topic, [value], partition=partition)
        self.count += 1


def rows_of(table: Table) -> list[dict[str, Any]]:
    """Return the rows of all files, with null for columns that a file lacks."""
    rows: list[dict[str, Any]] = []
    for name in table.names():
        file = pq.ParquetFile(table.output / name)
        rows += file.read().to_pylist()
    return sorted(rows, key=lambda row: (row["partition"], row["offset"]))


def values(rows: Sequence[dict[str, Any]], partition: int) -> list[dict[str, Any]]:
    return [row["value"] for row in rows if row["partition"] == partition]


def published(table: Table) -> int:
    """Return how many rows the table has."""
    last = ManifestLog(LocalStore(table.output)).last()
    return 0 if last is None else last.rows


def test_a_query_takes_columns_that_are_registered(
    spark: SparkSession,
    kafka: LocalKafka,
    registry: FakeRegistry,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
) -> None:
    """H-07: between micro-batches; killed before one with new columns is published, and on."""
    topic = new_topic(partitions=2)
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    producer = Producer(writer, registry, topic)
    producer.write(FIRST, id=1, price=1.5)
    settings: dict[str, Any] = {
        "value_format": "avro",
        "options": {"schemaRegistry.url": registry.url},
        "trigger": "500ms",
    }
    query = kfast.spark.ingest(
        spark,
        bootstrap_servers=kafka.bootstrap_servers,
        topics=topic,
        output=str(table.output),
        checkpoint=str(table.checkpoint),
        **settings,
    )
    try:
        until(lambda: published(table) == 2 or not query.isActive, "the first batch", 120)
        for text, row in (
            (ADDED, {"id": 2, "price": 2.5, "user": "ann"}),
            (FIRST, {"id": 3, "price": 3.5}),
            (WIDER, {"id": 2**40, "price": 0.1, "user": None}),
        ):
            producer.write(text, **row)
            count = 2 * producer.count
            until(lambda: published(table) == count or not query.isActive, "a batch", 60)  # noqa: B023
    finally:
        query.stop()
    assert query.exception() is None
    last = ManifestLog(LocalStore(table.output)).last()
    assert last is not None
    assert "value struct<id:bigint,price:double,user:string>" in last.shape.schema
    # Another one, whose first batch is not published: the program dies before its manifest.
    arguments = table.arguments(
        *(topic, "--value", "avro", "--schema-registry", registry.url, "--follow", "--every"),
        *("500ms", "--on-error", "null"),
    )
    process = start_ingest(tmp_path, arguments, Death("link", "_kfast/log", 2))
    try:
        producer.write(WIDER, id=5, price=5.5, user="bob")
        until(lambda: published(table) == 10 or process.poll() is not None, "a batch", 300)
        producer.write(NEWEST, id=6, price=6.5, user="eve", n=7)
        output, errors = process.communicate(timeout=300)
    finally:
        end(process)
    assert process.returncode == -signal.SIGKILL, (output, errors)
    assert published(table) == 10
    table.ingest(topic, **{**settings, "trigger": "available-now"}, orphan_age_ms=0)
    rows = rows_of(table)
    assert [(row["partition"], row["offset"]) for row in rows] == places(6, 6)
    for partition in (0, 1):
        first, added, again, *wider, newest = values(rows, partition)
        assert first == {"id": 1, "price": 1.5}
        assert added == {"id": 2, "price": 2.5, "user": "ann"}
        assert again == {"id": 3, "price": 3.5, "user": None}
        assert wider == [
            {"id": 2**40, "price": 0.1, "user": None},
            {"id": 5, "price": 5.5, "user": "bob"},
        ]
        assert newest == {"id": 6, "price": 6.5, "user": "eve", "n": 7}
    assert table.staged() == []
