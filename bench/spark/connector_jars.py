"""``python -m bench.spark.connector_jars``: downloads Spark's jars of Kafka and of Avro."""

from __future__ import annotations

from kfast.local.spark import avro_jars, connector_jars

if __name__ == "__main__":
    print(len(connector_jars()) + len(avro_jars()), "jars")
