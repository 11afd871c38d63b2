"""Spark sessions for tests and benchmarks, with the JVM's Kafka connector beside kfast."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from kfast.local import spark as local_spark
from kfast.local.spark import connector_jars, spark_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["spark_conf", "spark_environment", "spark_session"]


def spark_conf(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the configuration of a session with the connector."""
    return local_spark.spark_conf(folder, {**_connector(), **(more or {})})


@contextmanager
def spark_session(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark with the connector, and stop it with its JVM at the end."""
    with local_spark.spark_session(folder, {**_connector(), **(more or {})}) as session:
        yield session


def _connector() -> dict[str, str]:
    return {"spark.jars": ",".join(map(str, connector_jars()))}
