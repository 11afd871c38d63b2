"""The time of a whole consumer: made, asked for the partitions of a topic, closed, 100 times.

Over TLS and with a log-in by SCRAM-SHA-512 (4096 iterations), which is most of it. Clients take
turns, so that a slow minute of the machine affects all of them; each has a process of its own.
``python -m bench.e2e.connecting NAME LOGIN COUNT`` is one turn; LOGIN is in JSON.
"""

# ruff: noqa: PLC0415 - a client imports its own package and no other

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

from bench.e2e.harness import run_worker
from kfast.demo.race import librdkafka
from kfast.local.local_kafka import LocalKafka

SECURITY = "SASL_SSL"
_TOPIC = "connecting"
_TURNS = 5


def _connect_kfast(login: Mapping[str, Any]) -> None:
    import kfast

    with kfast.KafkaConsumer(**login) as consumer:
        assert consumer.partitions_for_topic(_TOPIC) == {0}


def _connect_confluent(login: Mapping[str, Any]) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer({**librdkafka(login), "group.id": "connecting", "log_level": 0})
    assert list(consumer.list_topics(_TOPIC, 10).topics[_TOPIC].partitions) == [0]
    consumer.close()


CLIENTS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    "kfast": _connect_kfast,
    "confluent": _connect_confluent,
}


def run_connecting(kafka: LocalKafka, connections: int) -> list[dict[str, object]]:
    """Measure each client ``connections`` times."""
    kafka.create_topic(_TOPIC)
    login = json.dumps(kafka.client_config(SECURITY))
    each = max(1, connections // _TURNS)
    found: dict[str, list[float]] = {name: [] for name in CLIENTS}
    for _ in range(_TURNS):
        for name, values in found.items():
            values += run_worker("bench.e2e.connecting", name, login, str(each))["ms"]
    kafka.delete_topic(_TOPIC)
    return [
        {
            "client": name,
            "connections": len(values),
            "median_ms": statistics.median(values),
            "p90_ms": sorted(values)[len(values) * 9 // 10],
            "max_ms": max(values),
        }
        for name, values in found.items()
    ]


def main(argv: list[str]) -> None:
    """Connect and print the times."""
    name, text, count = argv
    login, connect = json.loads(text), CLIENTS[name]
    connect(login)  # imports
    times = []
    for _ in range(int(count)):
        began = time.perf_counter()
        connect(login)
        times.append(1000 * (time.perf_counter() - began))
    print(json.dumps({"ms": times}))


if __name__ == "__main__":
    main(sys.argv[1:])
