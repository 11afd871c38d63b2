"""RC-08: examples/merge_into_delta.py as a program that is killed between the MERGE and Spark."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Final

import deltalake
import pytest

from kfast.local.local_kafka import LocalKafka
from kfast.local.spark import spark_conf, spark_environment
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import until
from tests.spark.conftest import TopicFactory
from tests.spark.crashing import end

pytest.importorskip("pyspark")

_PROGRAM: Final = """
import os, signal, sys
from examples import merge_into_delta

def merge_and_die(*arguments, merge=merge_into_delta.merge):
    merge(*arguments)
    os.killpg(0, signal.SIGKILL)

topic, is_dying, *arguments = sys.argv[1:]
merge_into_delta.TOPIC = topic
if is_dying == "True":
    merge_into_delta.merge = merge_and_die
merge_into_delta.main(*arguments)
"""
SECONDS: Final = 120

Totals = dict[str, tuple[int, float]]
"""Orders and amount by customer."""


def totals_in(path: Path) -> Totals:
    """Return the table, empty while there is none."""
    if not deltalake.DeltaTable.is_deltatable(str(path)):
        return {}
    rows = deltalake.DeltaTable(path).to_pyarrow_table().to_pylist()
    totals = {row["customer"]: (row["orders"], row["amount"]) for row in rows}
    assert len(totals) == len(rows)
    return totals


def test_each_order_counts_once(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    """RC-08: after deaths at that place and elsewhere the totals are those of all orders."""
    topic, path = new_topic(2), tmp_path / "totals"
    totals: defaultdict[str, tuple[int, float]] = defaultdict(lambda: (0, 0.0))
    conf = " ".join(f"--conf {name}={value}" for name, value in spark_conf(tmp_path).items())
    environment = {
        **os.environ,
        **spark_environment(tmp_path),
        "PYSPARK_SUBMIT_ARGS": f"{conf} pyspark-shell",
    }

    def produce(count: int) -> None:
        messages = []
        for number in range(count):
            customer, amount = f"c{number % 7}", float(random.randrange(100))
            orders, amounts = totals[customer]
            totals[customer] = (orders + 1, amounts + amount)
            value = json.dumps({"customer": customer, "amount": amount}).encode()
            messages.append(Message(value, partition=number % 2))
        writer.write(topic, messages)

    def start(*, is_dying: bool = False) -> subprocess.Popen[str]:
        arguments = (topic, is_dying, kafka.bootstrap_servers, path, tmp_path / "checkpoint")
        return subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *map(str, arguments)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    produce(20)
    program = start(is_dying=True)
    try:
        assert program.wait(SECONDS) == -signal.SIGKILL
    finally:
        end(program)
    assert totals_in(path) == totals  # and Spark's checkpoint lacks the batch
    program = start()
    try:
        until((tmp_path / "checkpoint/commits/0").exists, "batch 0", SECONDS)
        produce(20)
        until(lambda: totals_in(path) == totals, "all orders", SECONDS)
        assert program.poll() is None
        produce(5)  # may be merged, or not, when the program is killed
    finally:
        end(program)
    program = start()
    try:
        until(lambda: totals_in(path) == totals, "all orders", SECONDS)
    finally:
        end(program)
