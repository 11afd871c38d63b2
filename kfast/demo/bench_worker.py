"""One client, once, in a process of its own: ``python -m kfast.demo.bench_worker < JOB``.

JOB is JSON: ``client``, ``config``, ``partitions`` (topic, partition, start, end), ``records``. It
comes by standard input because it may contain passwords. Prints one line of JSON. The clock starts
before the first Fetch may be sent and after connection and metadata. A client that has not read
all records after ``MOST_SECONDS`` is stopped: its rate is known then.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from kfast.demo.contestants import (
    Contestant,
    consume_confluent,
    getmany_aiokafka,
    poll_kafka_python,
    poll_kfast,
)
from kfast.types import TopicPartition

CONTESTANTS: Final[dict[str, Contestant]] = {
    "kfast": poll_kfast,
    "confluent-kafka": consume_confluent,
    "kafka-python": poll_kafka_python,
    "aiokafka": getmany_aiokafka,
}
MOST_SECONDS: Final = 10.0
_MOST_IDLE_SECONDS: Final = 5.0


def measure(batches: Iterator[int], total: int) -> dict[str, float]:
    """Run a contestant, whose first item says that the next one may send a Fetch."""
    next(batches)
    began, began_cpu = time.perf_counter(), time.process_time()
    done, seconds, last = 0, 0.0, 0.0
    for count in batches:
        seconds = time.perf_counter() - began
        done += count
        if count:
            last = seconds
        if done >= total or seconds > MOST_SECONDS or seconds - last > _MOST_IDLE_SECONDS:
            break
    return {
        "records": done,
        "seconds": last if done < total else seconds,
        "cpu_seconds": time.process_time() - began_cpu,
        "peak_rss_mb": _peak_rss_mb(),
    }


def _peak_rss_mb() -> float:
    """Return this process's peak memory; not that of its parent before the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    match = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(match[1]) / 1024 if match else 0.0


def main() -> None:
    """Measure and print."""
    job = json.load(sys.stdin)
    ends = {
        TopicPartition(topic, number): (start, end)
        for topic, number, start, end in job["partitions"]
    }
    measured = measure(CONTESTANTS[job["client"]](job["config"], ends), job["records"])
    sys.stdout.write(json.dumps(measured) + "\n")
    sys.stdout.flush()
    # Closing a consumer with a full queue takes long in some, and is not what is measured.
    os._exit(0)


if __name__ == "__main__":
    main()
