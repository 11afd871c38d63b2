"""The cost of an idle consumer: 1000 partitions without new records.

The harness measures from outside, since a consumer that measures itself is not idle: CPU time of
the client's and the broker's process over some seconds, and the bytes on the loopback interface
meanwhile, which are the client's only if nothing else runs.
``python -m bench.e2e.idle NAME SERVERS TOPIC PARTITIONS`` is the client.
"""

# ruff: noqa: PLC0415 - a client imports its own package and no other

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable

import psutil

from kfast.local.local_kafka import LocalKafka

_PROGRAM = (sys.executable, "-m", "bench.e2e.idle")
_MOST_SETTLE_SECONDS = 5.0


def _wait_kfast(servers: str, topic: str, partitions: int) -> None:
    import kfast

    with kfast.KafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([kfast.TopicPartition(topic, number) for number in range(partitions)])
        while True:
            consumer.poll(timeout_ms=1000)


def _wait_confluent(servers: str, topic: str, partitions: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "idle"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    while True:
        consumer.poll(1.0)


def _wait_kafka_python(servers: str, topic: str, partitions: int) -> None:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers)
    consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
    while True:
        consumer.poll(timeout_ms=1000)


CLIENTS: dict[str, Callable[[str, str, int], None]] = {
    "kfast": _wait_kfast,
    "confluent": _wait_confluent,
    "kafka-python": _wait_kafka_python,
}


def run_idle(
    kafka: LocalKafka, clients: list[str], partitions: int, seconds: float
) -> list[dict[str, object]]:
    """Measure each client on a topic of its own, which is deleted afterwards."""
    topic = f"idle-{partitions}"
    settle_seconds = min(_MOST_SETTLE_SECONDS, seconds)
    kafka.create_topic(topic, partitions)
    time.sleep(2 * settle_seconds)  # the broker works on the new partitions for a while
    (broker_pid,) = kafka.pids.values()
    rows = []
    for name in clients:
        process = subprocess.Popen(
            [*_PROGRAM, name, kafka.bootstrap_servers, topic, str(partitions)],
            stderr=subprocess.DEVNULL,
        )
        try:
            time.sleep(settle_seconds)
            client, broker = psutil.Process(process.pid), psutil.Process(broker_pid)
            before = _sample(client, broker)
            time.sleep(seconds)
            after = _sample(client, broker)
            rss_mb = client.memory_info().rss / 1e6
        finally:
            process.kill()
            process.wait()
        used = [(late - early) / seconds for early, late in zip(before, after, strict=True)]
        rows.append(
            {
                "client": name,
                "partitions": partitions,
                "seconds": seconds,
                "client_cpu_percent": 100 * used[0],
                "broker_cpu_percent": 100 * used[1],
                "loopback_bytes_per_second": used[2],
                "rss_mb": rss_mb,
            }
        )
    kafka.delete_topic(topic)
    return rows


def _sample(client: psutil.Process, broker: psutil.Process) -> tuple[float, float, float]:
    cpu = [process.cpu_times() for process in (client, broker)]
    interfaces = psutil.net_io_counters(pernic=True)
    loopback = interfaces["lo"].bytes_sent if "lo" in interfaces else 0
    return cpu[0].user + cpu[0].system, cpu[1].user + cpu[1].system, loopback


if __name__ == "__main__":
    CLIENTS[sys.argv[1]](sys.argv[2], sys.argv[3], int(sys.argv[4]))
