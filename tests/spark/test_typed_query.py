"""Typed columns in real Spark: queries, streams and tables, and what is seen of their secrets."""

from __future__ import annotations

import base64
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kfast
from kfast.errors import ConfigurationError
from kfast.local.local_kafka import LocalKafka
from tests.document_examples import sections
from tests.fake_registry.server import FakeRegistry
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.spark.conftest import TopicFactory
from tests.spark.events import event_log
from tests.spark.reading import Reads
from tests.spark.tables import Table
from tests.spark.typed_orders import AVRO_TEXT, ORDER, avro, framed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

PASSWORD = "S3cr3t-of-reader"
LAYOUT = "id long, price double, name string"


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    """A registry that asks for a password."""
    with FakeRegistry() as fake:
        fake.authorization = "Basic " + base64.b64encode(f"reader:{PASSWORD}".encode()).decode()
        yield fake


def secret(registry: FakeRegistry) -> dict[str, str]:
    return {
        "valueFormat": "avro",
        "schemaRegistry__url": registry.url,
        "schemaRegistry__basic__auth__user__info": f"reader:{PASSWORD}",
    }


def shown(*texts: str) -> None:
    """Check that no form of the password is in what users, logs and files show."""
    for text in texts:
        assert PASSWORD not in text
        assert base64.b64encode(PASSWORD.encode()).decode()[:-3] not in text


def test_json_and_from_json_over_the_same_documents(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    """TC-158, TC-159: the table of the documents."""
    rows = table_rows("docs/spark.md", "JSON, and `from_json`")
    documents = [document for document, _, _ in rows]
    topic = new_topic()
    writer.write(topic, [Message(document.encode()) for document in documents])
    typed = reads.frame(
        topic,
        schema=f"offset long, value struct<{LAYOUT}>, _corrupt_reason string",
        valueFormat="json",
    ).selectExpr("offset", "to_json(value, map('ignoreNullFields', 'false'))", "_corrupt_reason")
    found = [text or reason or "null" for _, text, reason in sorted(typed.collect())]
    assert [json_of(text) for text in found] == [json_of(ours) for _, _, ours in rows]
    theirs = reads.frame(topic, schema="offset long, value string", valueFormat="utf8").selectExpr(
        "offset",
        f"to_json(from_json(value, '{LAYOUT}'), map('ignoreNullFields', 'false'))",
    )
    found = [text or "null" for _, text in sorted(theirs.collect())]
    assert [json_of(text) for text in found] == [json_of(spark) for _, spark, _ in rows]


def test_avro_and_from_avro_over_the_same_values(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads
) -> None:
    """TC-194: the table of the documents."""
    from pyspark.sql.avro.functions import from_avro  # noqa: PLC0415 - only here

    members = [{"name": "id", "type": "long"}, {"name": "name", "type": "string"}]
    text = json.dumps({"type": "record", "name": "R", "fields": members})
    rows = table_rows("docs/spark.md", "Avro, and `from_avro`")
    topic = new_topic()
    writer.write(topic, [Message(bytes.fromhex(value)) for value, _, _ in rows])
    shown = "to_json({}, map('ignoreNullFields', 'false'))".format
    typed = reads.frame(
        topic,
        schema="offset long, value struct<id: long, name: string>, _corrupt_reason string",
        valueFormat="avro",
        valueSchema=text,
    ).selectExpr("offset", shown("value"), "_corrupt_reason")
    found = [value or reason for _, value, reason in sorted(typed.collect())]
    raw = reads.frame(topic, schema="offset long, value binary")
    theirs = raw.select("offset", from_avro("value", text, {"mode": "PERMISSIVE"}).alias("value"))
    others = [value for _, value in sorted(theirs.selectExpr("offset", shown("value")).collect())]
    assert [json_of(each) for each in found] == [json_of(ours) for _, _, ours in rows]
    assert [json_of(each) for each in others] == [json_of(spark) for _, spark, _ in rows]


def table_rows(document: str, heading: str) -> list[tuple[str, str, str]]:
    """Return the cells of the first table of a section, which are code."""
    lines = [line for line in sections(document)[heading].splitlines() if line.startswith("| `")]
    cells = [re.fullmatch(r"\| `+ ?(.*?) ?`+ \| `(.*)` \| `(.*)` \|", line) for line in lines]
    assert all(cells), lines
    return [(found[1], found[2], found[3]) for found in cells if found is not None]


def json_of(text: str) -> Any:
    """Return the row that a cell is, or the words in place of one."""
    try:
        return repr(json.loads(text))
    except ValueError:
        return text


def test_avro_by_id_in_a_batch_and_a_stream(
    new_topic: TopicFactory,
    writer: KafkaWriter,
    reads: Reads,
    registry: FakeRegistry,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """TC-157, TC-159: the schema is that of the topic's subject; no secret is seen anywhere."""
    topic = new_topic(2)
    number = registry.register(f"{topic}-value", AVRO_TEXT)
    writer.write(topic, [framed(number, avro({**ORDER, "id": n})) for n in range(20)])
    given = secret(registry)
    with caplog.at_level(logging.DEBUG, "kfast"):  # py4j logs what it sends
        frame = reads.frame(topic, **given)
        kind = frame.schema["value"].dataType.simpleString()
        assert kind.startswith("struct<id:bigint,placed:timestamp,side:string,at:bigint,price")
        picked = reads.frame(topic, schema="value struct<side: string, id: long>", **given)
        assert sorted(row.id for row in picked.select("value.id").collect()) == [*range(20)]
        stream = reads.stream(
            topic, schema="value struct<id: long>", startingOffsets="earliest", **given
        )
        checkpoint = tmp_path / "checkpoint"
        query = (
            stream.select("value.id")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(checkpoint))
            .option("path", str(tmp_path / "output"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
    assert reads.spark.read.parquet(str(tmp_path / "output")).count() == 20
    execution: Any = picked._jdf
    shown(execution.queryExecution().toString(), repr(picked), caplog.text)
    shown(*(progress.json for progress in query.recentProgress))
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    shown(*(path.read_bytes().decode("latin-1") for path in files))
    events = event_log(reads.spark)
    assert query.runId in events
    shown(events)


def test_a_wrong_password_names_the_registry(
    new_topic: TopicFactory, reads: Reads, registry: FakeRegistry
) -> None:
    """TC-157: when the query is planned."""
    given = {**secret(registry), "schemaRegistry__basic__auth__user__info": f"x:{PASSWORD}"}
    with pytest.raises(Exception, match="401") as raised:
        reads.frame(new_topic(), **given)
    assert registry.url in str(raised.value)
    shown(str(raised.value))


def test_tables_of_typed_columns(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
) -> None:
    """TC-156, TC-159: Spark's ingest and that of one process make the same columns."""
    topic, table = new_topic(), Table(spark, kafka.bootstrap_servers, tmp_path)
    writer.write(topic, [b'{"id": %d, "name": "n"}' % n for n in range(5)])
    columns = f"offset long, value struct<{LAYOUT}>"
    table.ingest(topic, value_format="json", schema=columns)
    writer.write(topic, [b'{"id": 5, "price": 0.5}', b"oops"])
    given: dict[str, Any] = {
        "to": str(table.output),
        "bootstrap_servers": kafka.bootstrap_servers,
        "columns": ["offset", "value"],
        "take_over": True,
        "on_error": "null",
    }
    other = kfast.Json({"id": "int64", "price": "string", "name": "string"})
    with pytest.raises(ConfigurationError, match=r"the column value\.price of type double"):
        kfast.ingest(topic, value=other, **given)
    same = kfast.Json({"id": "int64", "price": "float64", "name": "string"})
    summary = kfast.ingest(topic, value=same, **given)
    assert (summary.rows, summary.bad_records) == (2, 1)
    found = table.rows("offset", "value.id", "value.price", "value.name")
    assert found[:5] == [(n, n, None, "n") for n in range(5)]
    assert found[5:] == [(5, 5, 0.5, None), (6, None, None, None)]
