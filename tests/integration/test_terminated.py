"""Programs that SIGTERM ends while they poll, with a handler that calls ``sys.exit``."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from typing import Final

import pytest

from kfast import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.terminated_reader import PARTITIONS
from tests.soaking import soaking

RUNS: Final = soaking(16, 200)
RECORDS: Final = 60_000


@pytest.mark.soak
def test_nothing_is_committed_past_what_was_polled(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """I-11: auto-commit and close() in ``finally`` store what the program was given, or less."""
    topic = new_topic(PARTITIONS)
    for partition in range(PARTITIONS):
        writer.write(
            topic, (b"%d" % n for n in range(RECORDS)), partition=partition, batch_records=500
        )
    seed = random.randrange(1 << 32)
    command = [sys.executable, "-m", "tests.integration.terminated_reader"]
    arguments = [kafka.bootstrap_servers, topic, topic, str(RUNS), str(seed)]
    program = subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=60 + 3 * RUNS, check=False
    )
    assert program.returncode == 0, program.stderr
    runs = [json.loads(line) for line in program.stdout.splitlines()]
    assert len(runs) == RUNS
    past = [
        (number, partition, offset, run["handed_out"].get(partition, 0))
        for number, run in enumerate(runs)
        for partition, offset in run["committed"].items()
        if offset > run["handed_out"].get(partition, 0)
    ]
    assert not past, f"seed {seed}: (run, partition, committed, handed out): {past}"
    assert sum(bool(run["committed"]) for run in runs) > RUNS // 3, runs
