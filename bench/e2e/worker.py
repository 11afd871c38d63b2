"""One contestant, once, in a fresh process: ``python -m bench.e2e.worker NAME TARGET RECORDS``.

TARGET is a ``Target`` in JSON. Prints one line of JSON. The clock starts when the contestant is
connected and knows the topic, and before it may send a Fetch, so that neither imports nor
connecting are in the rate and every record that is counted was fetched while the clock ran. A
contestant that has not read everything after ``MOST_SECONDS`` is stopped: its rate is known then.
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
    batches = CONTESTANTS[name].run(target)
    handled = empty = 0
    first_batch = 0.0
    next(batches)
    started, started_cpu = time.perf_counter(), time.process_time()
    for count in batches:
        seconds = time.perf_counter() - started
        if count and not handled:
            first_batch = seconds
        handled += count
        empty = 0 if count else empty + 1
        if handled >= total or seconds > MOST_SECONDS or empty > _MOST_EMPTY:
            break
    cpu = time.process_time() - started_cpu
    return {
        "records": handled,
        "is_complete": handled >= total,
        "seconds": seconds,
        "rate": handled / seconds,
        "first_batch_seconds": first_batch,
        "client_cpu_seconds_per_million": cpu / handled * 1e6 if handled else 0.0,
        "peak_rss_mb": peak_rss_mb(),
    }


def peak_rss_mb() -> float:
    """Return this process's peak memory; not that of its parent before the fork."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    return int(found.group(1)) / 1024 if found else 0.0


def main(argv: list[str]) -> None:
    """Measure and print."""
    name, target, total = argv
    result = measure(name, Target(**json.loads(target)), int(total))
    print(json.dumps(result), flush=True)
    sys.stdout.flush()
    # Closing a consumer with a full queue takes long in some, and is not what is measured.

    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
