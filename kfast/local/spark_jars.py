"""Downloads the jars of ``format("kafka")``, for comparison.

The connector of pyspark 4.3 is not in the registries; that of 4.2 runs on it. Its token provider
4.2 is missing there too, so that resolving dependencies fails: the four jars that Spark itself does
not include are listed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from kfast.local.jars import JarSet, Progress, resolve_jar_set

CONNECTOR: Final = JarSet(
    "spark-sql-kafka-4.2.0",
    "Spark's Kafka connector 4.2.0",
    "10 MB",
    (
        ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
        ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
        ("org.apache.kafka", "kafka-clients", "3.9.2"),
        ("org.apache.commons", "commons-pool2", "2.12.1"),
    ),
    with_dependencies=False,
)


AVRO: Final = JarSet(
    "spark-avro-4.0.0",
    "Spark's Avro functions 4.0.0",
    "200 KB",
    (("org.apache.spark", "spark-avro_2.13", "4.0.0"),),
    with_dependencies=False,
)
"""For tests of ``from_avro``; those of Protobuf are not in the registries."""


def avro_jars(progress: Progress | None = None) -> list[Path]:
    """Return the jar of ``from_avro``, as `connector_jars` returns the connector's."""
    return resolve_jar_set(AVRO, progress=progress)


def connector_jars(progress: Progress | None = None) -> list[Path]:
    """Return the connector's jars, downloading them at the first use; see `resolve_jars`."""
    return resolve_jar_set(CONNECTOR, progress=progress)
