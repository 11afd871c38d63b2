"""``python -m bench.pipeline``: the client's cost of a Fetch response, by its size.

The tests' fake broker, in a process of its own, serves one partition; the client reads it
repeatedly, with responses of one size per row. CPU microseconds per response, of the client's
process: for a consumer, with ``poll`` and the values' lengths, and for the bare drain of
``bench.e2e``, which receives and reads batch headers only. The difference is the consumer's own:
planning, passing data between threads, decoding and making columns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from bench import report
from bench.data import text_values
from bench.e2e.drain import Drain, first_address
from kfast import KafkaConsumer, TopicPartition
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer

TOPIC = "replay"
BATCH_RECORDS = 8
BATCHES = 12_000
SIZES = "1024,16384,131072,1048576"

Answers = Callable[[str, int], Iterator[int]]


def serve() -> None:
    """Serve the topic until standard input ends."""
    cluster = FakeCluster()
    cluster.create_topic(TOPIC)
    values = text_values(100, count=BATCH_RECORDS)
    with cluster.writing(TOPIC, 0) as writer:
        for _ in range(BATCHES):
            writer.append(values)
    with BrokerServer(cluster) as server:
        print(server.bootstrap_servers, flush=True)
        sys.stdin.read()


@contextmanager
def server() -> Iterator[str]:
    """Start a process that serves the topic; yield its address."""
    command = (sys.executable, "-m", "bench.pipeline", "--serve")
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.stdin.close()


def consumer_answers(servers: str, size: int) -> Iterator[int]:
    """Yield the number of records of each batch that ``poll`` returns."""
    tp = TopicPartition(TOPIC, 0)
    with KafkaConsumer(bootstrap_servers=servers, max_partition_fetch_bytes=size) as consumer:
        consumer.assign([tp])
        while True:
            consumer.seek_to_beginning(tp)
            position = 0
            while position < BATCHES * BATCH_RECORDS:
                for batch in consumer.poll(timeout_ms=10_000).batches():
                    position = batch.next_offset
                    yield len(batch.values.lengths)


def drain_answers(servers: str, size: int) -> Iterator[int]:
    """Yield the number of records of each response."""
    while True:
        position = 0
        for count in Drain(first_address(servers), TOPIC, [0], size).batches():
            position += count
            yield count
            if position >= BATCHES * BATCH_RECORDS:
                break


CLIENTS: dict[str, Answers] = {"kfast": consumer_answers, "drain": drain_answers}


def measure(answers: Answers, servers: str, size: int, seconds: float) -> tuple[float, float]:
    """Return CPU microseconds per response and per thousand records."""
    reading = answers(servers, size)
    for _ in range(20):
        next(reading)
    records = count = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    while time.perf_counter() - began < seconds:
        records += next(reading)
        count += 1
    used = (time.process_time() - began_cpu) * 1e6
    reading.close()  # type: ignore[attr-defined]
    return used / count, used / records * 1e3


def main() -> int:
    """Measure and print."""
    line = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    line.add_argument("--sizes", default=SIZES, help="most bytes per response")
    line.add_argument("--seconds", type=float, default=2.0, help="seconds per figure")
    line.add_argument("--repetitions", type=int, default=3)
    line.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = line.parse_args()
    if options.serve:
        serve()
        return 0
    rows = []
    with server() as servers:
        for size in map(int, options.sizes.split(",")):
            found: dict[str, list[tuple[float, float]]] = {name: [] for name in CLIENTS}
            for _ in range(options.repetitions):
                for name, answers in CLIENTS.items():
                    found[name].append(measure(answers, servers, size, options.seconds))
            row = [f"{size // 1024} KiB"]
            for runs in found.values():
                each = [answer for answer, _ in runs]
                row.append(f"{statistics.median(each):.0f} ({min(each):.0f}-{max(each):.0f})")
            row.append(f"{statistics.median(thousand for _, thousand in found['kfast']):.1f}")
            rows.append(row)
            print(", ".join(row), file=sys.stderr, flush=True)
    header = [
        "response",
        *(f"{name}, CPU us" for name in CLIENTS),
        "kfast, CPU us per 1000 records",
    ]
    print(report.table(header, rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
