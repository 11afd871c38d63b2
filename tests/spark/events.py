"""The event log of Spark: what it keeps of queries, for the searches of tests."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_FOLDER = "spark.eventLog.dir"


def event_log_conf(folder: Path) -> dict[str, str]:
    """Return the settings of a session that writes its events to a folder, as text."""
    folder.mkdir(parents=True)
    return {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        _FOLDER: folder.as_uri(),
    }


def event_log(spark: SparkSession) -> str:
    """Return all events so far."""
    folder = Path(urlsplit(str(spark.sparkContext.getConf().get(_FOLDER))).path)
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return "".join(path.read_text(encoding="utf-8") for path in files)
