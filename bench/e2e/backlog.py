"""The memory of a consumer with a backlog while its application sleeps.

A topic has far more data than a consumer should buffer. The client connects, reads once, and then
does nothing; the harness samples its resident memory from outside, from before the first read. The
growth is what the consumer prefetches: with many partitions a limit per partition becomes visible.
``python -m bench.e2e.backlog NAME SERVERS TOPIC PARTITIONS`` is the client: it prints ``ready``,
waits for a line, reads once, prints ``read`` and sleeps.
"""

# ruff: noqa: PLC0415 - a client imports its own package and no other

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator

import psutil

from bench.data import text_values
from kfast.demo.data import START_MS, Record, produce
from kfast.local.local_kafka import LocalKafka

_PROGRAM = (sys.executable, "-m", "bench.e2e.backlog")
_LOOK_SECONDS = 0.05
_VALUE_BYTES = 1_000
_MOST_PER_BLOCK = 1_000

Read = Callable[[], int]


def _open_kfast(servers: str, topic: str, partitions: int) -> Read:
    import kfast

    consumer = kfast.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    tps = [kfast.TopicPartition(topic, number) for number in range(partitions)]
    consumer.end_offsets(tps)

    def read() -> int:
        if not consumer.assignment():  # it fetches from here on
            consumer.assign(tps)
        return consumer.poll(timeout_ms=1000).count()

    return read


def _open_confluent(servers: str, topic: str, partitions: int) -> Read:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "backlog"})
    consumer.list_topics(topic, timeout=10)

    def read() -> int:
        if not consumer.assignment():
            consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        return len(consumer.consume(1, 1.0))

    return read


def _open_kafka_python(servers: str, topic: str, partitions: int) -> Read:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
    tps = [TopicPartition(topic, number) for number in range(partitions)]
    consumer.end_offsets(tps)

    def read() -> int:
        if not consumer.assignment():
            consumer.assign(tps)
        return sum(map(len, consumer.poll(timeout_ms=1000).values()))

    return read


CLIENTS: dict[str, Callable[[str, str, int], Read]] = {
    "kfast": _open_kfast,
    "confluent": _open_confluent,
    "kafka-python": _open_kafka_python,
}


def run_backlog(
    kafka: LocalKafka, clients: list[str], megabytes: int, partitions: int, seconds: float
) -> list[dict[str, object]]:
    """Measure each client on a backlog of ``megabytes``; the topic is deleted afterwards."""
    topic = f"backlog-{megabytes}-{partitions}"
    kafka.create_topic(topic, partitions)
    produce(kafka.bootstrap_servers, topic, _records(megabytes, partitions))
    rows = []
    for name in clients:
        before, most = _watch(name, kafka.bootstrap_servers, topic, partitions, seconds)
        rows.append(
            {
                "client": name,
                "partitions": partitions,
                "megabytes": megabytes,
                "seconds": seconds,
                "rss_before_mb": before / 1e6,
                "rss_growth_mb": (most - before) / 1e6,
            }
        )
    kafka.delete_topic(topic)
    return rows


def _records(megabytes: int, partitions: int) -> Iterator[list[Record]]:
    """Yield blocks of one partition's records each, the partitions in turn."""
    values = text_values(_VALUE_BYTES)
    count = megabytes * 1_000_000 // _VALUE_BYTES
    size = max(1, min(_MOST_PER_BLOCK, count // partitions))
    for number, first in enumerate(range(0, count, size)):
        yield [
            (values[n % len(values)], n.to_bytes(8, "big"), number % partitions, START_MS + n, None)
            for n in range(first, min(first + size, count))
        ]


def _watch(name: str, servers: str, topic: str, partitions: int, seconds: float) -> tuple[int, int]:
    """Return a client's resident bytes before the first read, and their maximum after it."""
    with subprocess.Popen(
        [*_PROGRAM, name, servers, topic, str(partitions)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            _expect(process.stdout.readline(), "ready", name)
            client = psutil.Process(process.pid)
            before = most = client.memory_info().rss
            process.stdin.write("\n")
            process.stdin.flush()
            _expect(process.stdout.readline(), "read", name)
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                most = max(most, client.memory_info().rss)
                time.sleep(_LOOK_SECONDS)
        finally:
            process.kill()
    return before, most


def _expect(line: str, wanted: str, name: str) -> None:
    if line.strip() != wanted:
        raise RuntimeError(f"{name} printed {line!r}, not {wanted!r}")


def main(argv: list[str]) -> None:
    """Run the client."""
    name, servers, topic, partitions = argv
    read = CLIENTS[name](servers, topic, int(partitions))
    print("ready", flush=True)
    sys.stdin.readline()
    while not read():
        pass
    print("read", flush=True)
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main(sys.argv[1:])
