"""A program that SIGTERM ends while it polls, again and again, by ``sys.exit`` and ``finally``.

Started as ``python -m tests.integration.terminated_reader SERVERS TOPIC PREFIX RUNS SEED``. Every
run is a consumer in a group of its own, and ends by a signal at a random moment. Writes one line of
JSON for each: the next offsets after what `poll` had returned, and what the group has committed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from typing import Any, Final

from kfast import ConsumerRecords, KafkaConsumer, TopicPartition

PARTITIONS: Final = 2
FIRST_S, LAST_S = 0.02, 0.35
"""When the signal comes: from before the first records to the middle of reading."""
SETTINGS: Final[dict[str, Any]] = {
    "auto_offset_reset": "earliest",
    "auto_commit_interval_ms": 5,
    "max_poll_records": 20,
}


def note(records: ConsumerRecords, handed_out: dict[str, int]) -> None:
    """Note the next offset of each partition."""
    for tp, batch in records.items():
        handed_out[str(tp.partition)] = batch.next_offset


def run(servers: str, topic: str, group: str, after_s: float, *, is_subscribed: bool) -> None:
    """Read until the signal comes, then write what was handed out and committed."""
    tps = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    handed_out: dict[str, int] = {}
    records = None
    consumer = KafkaConsumer(bootstrap_servers=servers, group_id=group, **SETTINGS)
    timer = threading.Timer(after_s, os.kill, (os.getpid(), signal.SIGTERM))
    try:
        timer.start()
        try:
            if is_subscribed:
                consumer.subscribe([topic])
            else:
                consumer.assign(tps)
            while True:
                records = consumer.poll(500)
                note(records, handed_out)
        finally:
            consumer.close()
    except SystemExit:
        pass
    if records is not None:  # the signal may have come behind the poll
        note(records, handed_out)
    with KafkaConsumer(bootstrap_servers=servers, group_id=group, **SETTINGS) as asking:
        committed = {str(tp.partition): at.offset for tp, at in asking.committed(tps).items() if at}
    sys.stdout.write(json.dumps({"handed_out": handed_out, "committed": committed}) + "\n")


def main() -> None:
    """Make the runs that the command line asks for."""
    servers, topic, prefix, runs, seed = sys.argv[1:]
    moments = random.Random(int(seed))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    for number in range(int(runs)):
        after_s = moments.uniform(FIRST_S, LAST_S)
        run(servers, topic, f"{prefix}-{number}", after_s, is_subscribed=number % 2 == 1)


if __name__ == "__main__":
    main()
