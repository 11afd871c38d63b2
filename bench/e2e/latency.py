"""Latency from ``produce()`` to the consumer's application, at a slow, constant rate.

Each value is the time at which it was given to the producer (``time.time_ns``, as int64), which
sends it at once (``linger.ms`` 0, acks 1). Every client returns bytes, which the program unpacks.
Producer and consumer are processes of one machine and share its clock. ``python -m
bench.e2e.latency NAME SERVERS TOPIC COUNT`` is the consumer: it prints ``ready`` when it is at the
end of the topic, then the latencies as JSON.

The clients ``receiver`` and ``receiver-2`` are not consumers but limits: a blocking socket with one
Fetch in flight, whose responses are decoded by kfast's compiled code alone. The first does both on
one thread; the second passes the responses to a waiting thread, as a consumer must do that sends
heartbeats while the application computes.
"""

# ruff: noqa: PLC0415 - a client imports its own package and no other

from __future__ import annotations

import json
import queue
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from bench.e2e.drain import Drain, first_address
from kfast._native.buffers import OwnedBuffer
from kfast._native.columns import gather
from kfast.local.local_kafka import LocalKafka

_PROGRAM = (sys.executable, "-m", "bench.e2e.latency")
_WARM_UP = 100
_NANOSECONDS = struct.Struct(">q")


def _read_kfast(servers: str, topic: str) -> Iterator[list[int]]:
    import kfast

    with kfast.KafkaConsumer(bootstrap_servers=servers) as consumer:
        consumer.assign([kfast.TopicPartition(topic, 0)])
        consumer.seek_to_end()
        consumer.position(kfast.TopicPartition(topic, 0))
        while True:
            polled = consumer.poll(timeout_ms=200)
            values = [value for batch in polled.batches() for value in batch.values.to_list()]
            yield [_NANOSECONDS.unpack(value)[0] for value in values]


def _read_confluent(servers: str, topic: str) -> Iterator[list[int]]:
    from confluent_kafka import OFFSET_END, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "latency"})
    consumer.assign([TopicPartition(topic, 0, OFFSET_END)])
    while True:
        message = consumer.poll(0.2)
        yield [] if message is None else [_NANOSECONDS.unpack(message.value())[0]]


def _read_kafka_python(servers: str, topic: str) -> Iterator[list[int]]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=servers)
    consumer.assign([TopicPartition(topic, 0)])
    consumer.seek_to_end()
    consumer.position(TopicPartition(topic, 0))
    while True:
        polled = consumer.poll(timeout_ms=200)
        yield [_NANOSECONDS.unpack(item.value)[0] for part in polled.values() for item in part]


def _receive(servers: str, topic: str) -> Iterator[list[int]]:
    drain = _drain(servers, topic)
    while True:
        drain.send()
        yield _values(drain.receive(), drain)


def _receive_and_hand_over(servers: str, topic: str) -> Iterator[list[int]]:
    drain = _drain(servers, topic)
    answers: queue.SimpleQueue[OwnedBuffer] = queue.SimpleQueue()
    go_on = threading.Semaphore(0)

    def run() -> None:
        while True:
            drain.send()
            answers.put(drain.receive())
            go_on.acquire()

    threading.Thread(target=run, daemon=True).start()
    while True:
        values = _values(answers.get(), drain)
        go_on.release()
        yield values


def _drain(servers: str, topic: str) -> Drain:
    return Drain(first_address(servers), topic, [0])


def _values(frame: OwnedBuffer, drain: Drain) -> list[int]:
    import numpy as np

    values: list[int] = []
    for index in drain.decode(frame):
        payload = gather(index.data, index.value_starts, index.value_lengths)[1]
        values += np.frombuffer(memoryview(payload), ">i8").tolist()
    return values


CLIENTS: dict[str, Callable[[str, str], Iterator[list[int]]]] = {
    "kfast": _read_kfast,
    "confluent": _read_confluent,
    "kafka-python": _read_kafka_python,
    "receiver": _receive,
    "receiver-2": _receive_and_hand_over,
}

LIMITS: Final = ("receiver", "receiver-2")
"""Clients that are not consumers: the latency without one."""


def run_latency(
    kafka: LocalKafka, clients: list[str], per_second: int, seconds: float, repetitions: int = 1
) -> list[dict[str, object]]:
    """Measure each client at ``per_second`` messages for some seconds, in turns.

    Returns
    -------
    list of dict
        Per client the median over the repetitions of each figure, and ``p50_ms_each``.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in clients}
    for turn in range(repetitions):
        for name in clients[turn % len(clients) :] + clients[: turn % len(clients)]:
            latencies = _run_one(kafka, name, per_second, int(per_second * seconds))
            if len(latencies) >= 100:
                cuts = statistics.quantiles(latencies, n=100)
                figures = {"p50_ms": cuts[49], "p99_ms": cuts[98], "max_ms": latencies[-1]}
                found[name].append(figures | {"messages": len(latencies)})
    return [_row(name, per_second, runs) for name, runs in found.items()]


def _row(name: str, per_second: int, runs: list[dict[str, float]]) -> dict[str, object]:
    if not runs:
        return {"client": name, "error": "it received too little"}
    row: dict[str, object] = {"client": name, "per_second": per_second}
    for figure in ("p50_ms", "p99_ms", "max_ms"):
        row[figure] = statistics.median(run[figure] for run in runs)
    row["messages"] = sum(int(run["messages"]) for run in runs)
    row["p50_ms_each"] = [run["p50_ms"] for run in runs]
    return row


def _run_one(kafka: LocalKafka, name: str, per_second: int, count: int) -> list[float]:
    topic = f"latency-{name}"
    kafka.create_topic(topic)
    process = subprocess.Popen(
        [*_PROGRAM, name, kafka.bootstrap_servers, topic, str(count)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        process.stdout.readline()  # ready
        _send(kafka.bootstrap_servers, topic, count + _WARM_UP, per_second)
        latencies = sorted(json.loads(process.stdout.readline() or "[]"))
    kafka.delete_topic(topic)
    return latencies


def _send(servers: str, topic: str, count: int, per_second: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, "acks": 1})
    producer.list_topics(topic, 10)
    start = time.perf_counter()
    for number in range(count):
        wait = start + number / per_second - time.perf_counter()
        if wait > 0:
            time.sleep(wait)
        producer.produce(topic, _NANOSECONDS.pack(time.time_ns()), partition=0)
        producer.poll(0)
    producer.flush(10)


def _consume(name: str, servers: str, topic: str, count: int) -> None:
    latencies: list[float] = []
    batches = CLIENTS[name](servers, topic)
    for _ in range(5):  # connected, positioned and waiting at the end
        next(batches)
    print("ready", flush=True)
    patience = time.monotonic() + 30
    for sent in batches:
        now = time.time_ns()
        latencies += [(now - each) / 1e6 for each in sent]
        if sent:
            patience = time.monotonic() + 10
        if len(latencies) >= count + _WARM_UP or time.monotonic() > patience:
            break
    print(json.dumps(latencies[_WARM_UP:]), flush=True)


if __name__ == "__main__":
    _consume(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
