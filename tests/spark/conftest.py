"""One broker and one Spark for the tests of this folder, started when the first test needs them."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench.spark.session import spark_session
from kfast.local.local_kafka import LocalKafka
from kfast.local.spark import avro_jars, connector_jars
from kfast.table.arrow_batches import ArrowBatches
from tests.arrow_validation import validate_batches
from tests.class_archives import spark_java_options
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import QUICK_JAVA
from tests.spark.events import event_log_conf
from tests.spark.reading import Reads

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TopicFactory = Callable[..., str]

BROKER_CONFIG = {
    # Compaction, retention and expiry at a test's pace.
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.initial.task.delay.ms": 200,
    "log.retention.check.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}
WORKERS = Path(__file__).parent / "workers"
_numbers = itertools.count(1)
_REAL = ("kafka", "spark")

# Read by Spark's launcher: for this process's Spark and for those of the programs it starts.
for _name in ("SPARK_SUBMIT_OPTS", "SPARK_LAUNCHER_OPTS"):
    os.environ.setdefault(_name, spark_java_options())

validate_batches(ArrowBatches)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder, and those with a broker or Spark; let pyspark warn."""
    for item in items:
        if "tests/spark/" not in item.path.as_posix():
            continue
        item.add_marker(pytest.mark.spark)
        if any(name in getattr(item, "fixturenames", ()) for name in _REAL):
            item.add_marker(pytest.mark.integration)
        # pyspark itself warns of newer packages and leaves sockets to the collector.
        item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning:pyspark"))
        item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning:pyspark"))


@pytest.fixture(scope="package")
def kafka() -> Iterator[LocalKafka]:
    """A cluster of one node."""
    with LocalKafka(config=BROKER_CONFIG, java_options=QUICK_JAVA) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark on two cores, with the JVM's connector beside ours.

    Its workers validate batches, it keeps its events, and there is a folder for the settings of
    pyiceberg (``PYICEBERG_HOME``).
    """
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(WORKERS), os.pathsep)
        patch.setenv("PYICEBERG_HOME", str(folder))
        jars = ",".join(map(str, [*connector_jars(), *avro_jars()]))
        conf = {**event_log_conf(folder / "events"), "spark.jars": jars}
        with spark_session(folder, conf) as session:
            yield session


@pytest.fixture
def new_topic(kafka: LocalKafka, request: pytest.FixtureRequest) -> TopicFactory:
    """Make a topic of its own: ``new_topic(partitions=1, **config) -> name``."""
    prefix = re.sub(r"[^\w-]+", "-", request.node.name)[:80]

    def make(partitions: int = 1, **config: Any) -> str:
        name = f"{prefix}-{os.getpid()}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        kafka.create_topic(name, partitions, 1, settings)
        return name

    return make


@pytest.fixture
def writer(kafka: LocalKafka) -> KafkaWriter:
    """Write records."""
    return KafkaWriter(kafka.bootstrap_servers)


@pytest.fixture
def reads(spark: SparkSession, kafka: LocalKafka) -> Reads:
    """Read with Spark."""
    return Reads(spark, kafka.bootstrap_servers)
