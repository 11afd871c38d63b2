"""Queries over SASL_SSL, with the options of Spark's own source: PEM files and a line for JAAS."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import QUICK_JAVA
from tests.spark.events import event_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PASSWORD = "S3cr3t-of-app"
JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="app" password="{PASSWORD}";'
)


@pytest.fixture(scope="module")
def secured() -> Iterator[LocalKafka]:
    """A cluster that is reached over SASL_SSL only, with 100 records in topic "t"."""
    with LocalKafka(
        security="SASL_SSL",
        users={"app": PASSWORD},
        mechanisms=["SCRAM-SHA-512"],
        java_options=QUICK_JAVA,
    ) as kafka:
        kafka.create_topic("t", 2)
        writer = KafkaWriter(kafka.bootstrap("PLAINTEXT"))
        writer.write("t", [b"%d" % number for number in range(100)])
        yield kafka


def options_of(kafka: LocalKafka, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": kafka.bootstrap("SASL_SSL"),
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(kafka.certificates.ca),
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": JAAS,
        "subscribe": "t",
        "startingOffsets": "earliest",
        **more,
    }


def shown(*texts: str) -> None:
    """Check that no form of the password is in what users, logs and files show."""
    marks = [PASSWORD, base64.b64encode(PASSWORD.encode()).decode()]
    for text in texts:
        assert not [mark for mark in marks if mark in text]


def test_a_batch_and_a_stream(spark: SparkSession, secured: LocalKafka, tmp_path: Path) -> None:
    """S-01, S-04, S-09, TC-157: and the password is in no plan, progress, event or checkpoint."""
    reader = spark.read.format("kfast").options(**options_of(secured))
    frame = reader.load().selectExpr("CAST(value AS STRING) AS value")
    assert sorted(int(row.value) for row in frame.collect()) == list(range(100))
    execution: Any = frame._jdf
    shown(execution.queryExecution().toString(), repr(frame))

    stream = spark.readStream.format("kfast").options(**options_of(secured)).load()
    checkpoint, output = tmp_path / "checkpoint", tmp_path / "output"
    query = (
        stream.selectExpr("CAST(value AS STRING) AS value")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(output))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    written = spark.read.schema("value string").parquet(str(output)).collect()
    assert sorted(int(row.value) for row in written) == list(range(100))
    shown(*(progress.json for progress in query.recentProgress))
    files = [path for path in checkpoint.rglob("*") if path.is_file()]
    assert len(files) > 3
    shown(*(path.read_bytes().decode("latin-1") for path in files))
    events = event_log(spark)
    assert query.runId in events
    shown(events)


def test_a_wrong_password_ends_the_query(spark: SparkSession, secured: LocalKafka) -> None:
    """S-06, S-09: when it is planned, and with the reason."""
    wrong = {"kafka.sasl.jaas.config": JAAS.replace(PASSWORD, "wrong-S3cr3t")}
    began = time.monotonic()
    with pytest.raises(Exception, match='login failed for user "app"') as caught:
        spark.read.format("kfast").options(**options_of(secured, **wrong)).load().collect()
    assert time.monotonic() - began < 20
    assert "wrong-S3cr3t" not in str(caught.value)


def test_a_java_keystore_is_refused(
    spark: SparkSession, secured: LocalKafka, tmp_path: Path
) -> None:
    """S-02: when the query is planned, with the command that converts it."""
    (tmp_path / "trust.jks").write_bytes(b"\xfe\xed\xfe\xed" + bytes(20))
    store = {
        "kafka.ssl.truststore.location": str(tmp_path / "trust.jks"),
        "kafka.ssl.truststore.type": "JKS",
    }
    with pytest.raises(Exception, match="keytool -exportcert") as caught:
        spark.read.format("kfast").options(**options_of(secured, **store)).load().collect()
    assert "kafka.ssl.truststore.location" in str(caught.value)
    shown(str(caught.value))
