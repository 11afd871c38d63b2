"""``python -m bench.spark.connector_jars``: downloads the jars of ``format("kafka")``."""

from __future__ import annotations

from kfast.local.spark_jars import connector_jars

if __name__ == "__main__":
    print(len(connector_jars()), "jars")
