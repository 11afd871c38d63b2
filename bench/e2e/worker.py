"""One contestant, once, in a fresh process: ``python -m bench.e2e.worker NAME SERVERS ...``.

Prints one line of JSON. The clock starts when the first batch has been processed, so that
connecting, imports and the first look-ups are not in the rate; that batch is not counted either,
unless it is the only one. A contestant that has not read everything after ``MOST_SECONDS`` is
stopped: its rate is known by then.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

from bench.e2e.contestants import CONTESTANTS, Target

MOST_SECONDS = 10.0
_MOST_EMPTY = 30


def measure(name: str, target: Target, total: int) -> dict[str, float]:
    """Run a contestant until it has processed ``total`` records."""
    handled = first = 0
    started = started_cpu = ended = ended_cpu = 0.0
    empty = 0
    began, began_cpu = time.perf_counter(), time.process_time()
    for count in CONTESTANTS[name].run(target):
        ended, ended_cpu = time.perf_counter(), time.process_time()
        empty = 0 if count else empty + 1
        if not handled and count:
            first, started, started_cpu = count, ended, ended_cpu
        handled += count
        if handled >= total or ended - began > MOST_SECONDS or empty > _MOST_EMPTY:
            break
    if handled == first:  # one batch had all records
        first, started, started_cpu = 0, began, began_cpu
    seconds, counted = ended - started, handled - first
    return {
        "records": handled,
        "is_complete": handled >= total,
        "counted": counted,
        "seconds": seconds,
        "rate": counted / seconds if seconds else 0.0,
        "first_batch_seconds": started - began,
        "client_cpu_seconds_per_million": (ended_cpu - started_cpu) / counted * 1e6
        if counted
        else 0.0,
        "peak_rss_mb": peak_rss_mb(),
    }


def peak_rss_mb() -> float:
    """Return this process's peak memory; not that of its parent before the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found.group(1)) / 1024 if found else 0.0


def main(argv: list[str]) -> None:
    """Measure and print."""
    name, servers, topic, partitions, total = argv
    result = measure(name, Target(servers, topic, int(partitions)), int(total))
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    # Closing a consumer with a full queue takes long in some, and is not what is measured.

    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
