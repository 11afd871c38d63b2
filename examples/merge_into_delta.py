"""Totals per customer in a Delta table, by MERGE in foreachBatch: each order counts exactly once.

Spark may call the function of foreachBatch again with a batch that is in the table already: after a
crash between the two. So the commit of the MERGE has the batch's number, as Delta's "txn" of an
application, and a batch that the table has is left out. Such a number belongs to one checkpoint: a
query with a new checkpoint needs another name in its place.

    pip install 'kfast[spark,delta]'
    python examples/merge_into_delta.py localhost:9092 /data/totals /data/totals-checkpoint

Orders are JSON: {"customer": "c1", "amount": 12.5}.
"""

from __future__ import annotations

import contextlib
import sys

import deltalake
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

TOPIC = "orders"
QUERY = "totals-1"  # another one for each new checkpoint
SCHEMA = "value struct<customer: string, amount: double>"
BATCH = """
    SELECT value.customer, count(*) AS orders, sum(value.amount) AS amount
    FROM {orders} WHERE value.customer IS NOT NULL GROUP BY value.customer
"""


def merge(orders: DataFrame, batch: int, path: str) -> None:
    """Add the orders of a micro-batch to the totals, unless the table has this batch."""
    table = DeltaTable(path)
    version = table.transaction_version(QUERY)
    if version is not None and version >= batch:
        return
    # One row per customer: to the driver as Arrow, without a Python object per row.
    totals = orders.sparkSession.sql(BATCH, orders=orders).toArrow()
    merger = table.merge(
        totals,
        "t.customer = s.customer",
        source_alias="s",
        target_alias="t",
        commit_properties=deltalake.CommitProperties(
            app_transactions=[deltalake.Transaction(QUERY, batch)]
        ),
    )
    sums = {name: f"t.{name} + s.{name}" for name in ("orders", "amount")}
    merger.when_matched_update(sums).when_not_matched_insert_all().execute()


def main(bootstrap_servers: str, path: str, checkpoint: str) -> None:
    """Run until interrupted."""
    spark = SparkSession.builder.appName(QUERY).getOrCreate()
    empty = spark.createDataFrame([], "customer string, orders long, amount double").toArrow()
    DeltaTable.create(path, empty.schema, mode="ignore")
    orders = (
        spark.readStream.format("kfast")
        .schema(SCHEMA)
        .option("valueFormat", "json")
        .option("kafka.bootstrap.servers", bootstrap_servers)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000_000)
        .load()
    )
    query = (
        orders.writeStream.foreachBatch(lambda frame, batch: merge(frame, batch, path))
        .option("checkpointLocation", checkpoint)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
