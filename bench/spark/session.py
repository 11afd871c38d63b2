"""Spark sessions on this machine: two cores, no user interface, everything in one folder.

Owns what has to be set before the JVM starts: Java, the Python of the workers, where kfast is
imported from, the jars of the connector. One session at a time and process.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.spark.connector_jars import connector_jars
from bench.spark.java_home import spark_java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).resolve().parents[2]

_CONF: Final = {
    "spark.master": "local[2]",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.metricsEnabled": "false",
    "spark.log.level": "ERROR",
}


def spark_environment(folder: Path) -> dict[str, str]:
    """Return what to set in the environment of a program that starts Spark.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    """
    paths = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "JAVA_HOME": str(spark_java_home(folder / "java")),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(paths)),
        "SPARK_LOCAL_DIRS": str(folder / "local"),
    }


def spark_conf(folder: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the configuration of a session.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    more : Mapping, optional
        Over the defaults.
    """
    return {
        **_CONF,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.jars": ",".join(map(str, connector_jars())),
        **(more or {}),
    }


@contextmanager
def spark_session(folder: Path, more: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Start Spark, and stop it with its JVM at the end.

    Parameters
    ----------
    folder : Path
        Of its own, to write to.
    more : Mapping, optional
        Configuration over the defaults.
    """
    os.environ.update(spark_environment(folder))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what Spark makes of newer packages
        from pyspark import SparkContext  # noqa: PLC0415 - takes a second
        from pyspark.sql import SparkSession  # noqa: PLC0415 - takes a second

        builder = SparkSession.builder
        for key, value in spark_conf(folder, more).items():
            builder = builder.config(key, value)
        session = builder.getOrCreate()
    gateway = SparkContext._gateway
    try:
        yield session
    finally:
        session.stop()
        if gateway is not None:
            gateway.shutdown()
            gateway.proc.stdin.close()  # the JVM ends with its standard input
            gateway.proc.wait(30)
        SparkContext._gateway = SparkContext._jvm = None
