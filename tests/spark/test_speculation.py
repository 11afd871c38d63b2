"""Q-12: of two attempts of a slow task of an ingest one counts.

A task writes its file and then waits: a copy of it, which Spark starts on the other worker, is done
first. Spark starts copies on other hosts only, so the workers have two addresses.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow.parquet as pq
import pytest

from kfast.local.local_kafka import LocalKafka
from tests.class_archives import spark_java_options
from tests.document_examples import ROOT
from tests.integration.kafka_writer import KafkaWriter
from tests.spark.clusters import CONF, environment, standalone
from tests.spark.conftest import TopicFactory
from tests.spark.events import event_log_conf
from tests.spark.tables import Table, places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")

PARTITIONS: Final = 6
RECORDS: Final = 50

SLOW: Final = """
import os, sys, time, uuid

_folder = os.environ["KFAST_TEST_SLOW"]
_uuid4 = uuid.uuid4


def _slow_rows(part_rows):
    def slow(parts):
        # For as long as Spark lets it: the other attempt ends the query.
        while not os.path.exists(_folder + "/ended"):
            time.sleep(0.05)
        return part_rows(parts)

    return slow


def uuid4():
    if sys._getframe(1).f_globals.get("__name__") == "kfast.table.range_files":
        try:
            os.close(os.open(_folder + "/slow", os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            pass
        else:
            task = sys.modules["kfast.spark.ingest.task"]
            task.part_rows = _slow_rows(task.part_rows)
    return _uuid4()


uuid.uuid4 = uuid4
"""

INGEST: Final = """
import json, sys
from pyspark.sql import SparkSession
import kfast.spark

url, servers, topic, folder, conf = sys.argv[1:]
builder = SparkSession.builder.master(url)
for name, value in json.loads(conf).items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
query = kfast.spark.ingest(
    spark,
    bootstrap_servers=servers,
    topics=topic,
    output=folder + "/table",
    checkpoint=folder + "/checkpoint",
    options={"minPartitions": 6},
)
assert query.awaitTermination(200), query.status
open(folder + "/ended", "w").close()
spark.stop()
"""


def test_a_slow_task_and_its_copy_write_each_record_once(
    spark: SparkSession,
    kafka: LocalKafka,
    new_topic: TopicFactory,
    writer: KafkaWriter,
    tmp_path: Path,
) -> None:
    """Q-12: the file of the slow attempt is no part of the table, and goes with the next start."""
    topic = new_topic(partitions=PARTITIONS)
    for number in range(PARTITIONS):
        writer.write(topic, [b"%d" % n for n in range(RECORDS)], partition=number)
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SLOW)
    given = environment(tmp_path)
    given["KFAST_TEST_SLOW"] = str(tmp_path)
    given["PYTHONPATH"] = os.pathsep.join((str(site), str(ROOT), given["PYTHONPATH"]))
    conf = {
        **CONF,
        **event_log_conf(tmp_path / "events"),
        "spark.executor.extraJavaOptions": spark_java_options(),
        "spark.speculation": "true",
        "spark.speculation.interval": "100ms",
        "spark.speculation.multiplier": "1.1",
        "spark.speculation.quantile": "0.5",
    }
    with standalone(tmp_path, given, ("127.0.0.1", "127.0.0.2")) as url:
        done = subprocess.run(
            [
                *(sys.executable, "-c", INGEST, url, kafka.bootstrap_servers, topic),
                *(str(tmp_path), json.dumps(conf)),
            ],
            cwd=tmp_path,
            env=given,
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr[-5000:]
    assert (tmp_path / "slow").exists()
    events = "".join(
        path.read_text() for path in (tmp_path / "events").rglob("*") if path.is_file()
    )
    assert '"Speculative":true' in events
    table = Table(spark, kafka.bootstrap_servers, tmp_path)
    written = pq.read_table(table.output, columns=["partition", "offset"]).to_pydict()
    expected = places(*[RECORDS] * PARTITIONS)
    assert sorted(zip(*written.values(), strict=True)) == expected
    writer.write(topic, [b"more"])
    table.ingest(topic, orphan_age_ms=0)
    assert table.staged() == []
    assert table.rows() == sorted([*expected, (0, RECORDS)])
    assert len(table.names()) == PARTITIONS + 1
