"""The time of a whole consumer: made, asked for the partitions of a topic, closed, 100 times.

Over TLS and with a log-in by SCRAM-SHA-512 (4096 iterations), which is most of it; beside the
clients a bare SSLSocket that does these steps and nothing else. They take turns, so that a slow
minute of the machine affects all of them; each has a process of its own.
``python -m bench.e2e.connecting NAME LOGIN COUNT`` is one turn; LOGIN is in JSON.
"""

# ruff: noqa: PLC0415 - a client imports its own package and no other

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bench.e2e.harness import run_worker
from kfast.demo.contestants import librdkafka
from kfast.local.local_kafka import LocalKafka

SECURITY = "SASL_SSL"
_TOPIC = "connecting"
_TURNS = 5


def _connect_kfast(login: Mapping[str, Any]) -> Iterator[None]:
    import kfast

    with kfast.KafkaConsumer(**login) as consumer:
        assert consumer.partitions_for_topic(_TOPIC) == {0}
        yield


def _connect_confluent(login: Mapping[str, Any]) -> Iterator[None]:
    from confluent_kafka import Consumer

    consumer = Consumer({**librdkafka(login), "group.id": "connecting", "log_level": 0})
    assert list(consumer.list_topics(_TOPIC, 10).topics[_TOPIC].partitions) == [0]
    yield
    consumer.close()


def _connect_bare(login: Mapping[str, Any]) -> Iterator[None]:
    from bench.e2e.bare_login import BareLogin

    connection = BareLogin(login)
    assert connection.partitions(_TOPIC) == {0}
    yield
    connection.close()


CLIENTS: dict[str, Callable[[Mapping[str, Any]], Iterator[None]]] = {
    "kfast": _connect_kfast,
    "confluent": _connect_confluent,
    "bare SSLSocket": _connect_bare,
}
"""Each yields once it knows the topic's partitions."""


def run_connecting(kafka: LocalKafka, connections: int) -> list[dict[str, object]]:
    """Measure each client ``connections`` times."""
    kafka.create_topic(_TOPIC)
    login = json.dumps(kafka.client_config(SECURITY))
    each = max(1, connections // _TURNS)
    found: dict[str, list[list[float]]] = {name: [] for name in CLIENTS}
    for _ in range(_TURNS):
        for name, turns in found.items():
            turns += run_worker("bench.e2e.connecting", name, login, str(each))["ms"]
    kafka.delete_topic(_TOPIC)
    return [
        {
            "client": name,
            "connections": len(turns),
            "connected_ms": statistics.median(connected for connected, _ in turns),
            "median_ms": statistics.median(closed for _, closed in turns),
            "p90_ms": sorted(closed for _, closed in turns)[len(turns) * 9 // 10],
            "max_ms": max(closed for _, closed in turns),
        }
        for name, turns in found.items()
    ]


def main(argv: list[str]) -> None:
    """Connect and print the times."""
    name, text, count = argv
    login, connect = json.loads(text), CLIENTS[name]
    list(connect(login))  # imports
    times = []
    for _ in range(int(count)):
        began = time.perf_counter()
        client = connect(login)
        next(client)
        connected = time.perf_counter()
        next(client, None)
        times.append([1000 * (end - began) for end in (connected, time.perf_counter())])
    print(json.dumps({"ms": times}))


if __name__ == "__main__":
    main(sys.argv[1:])
