"""Processes that run a program of ``examples/`` on a topic, and are killed meanwhile."""

from __future__ import annotations

import json
import random
import subprocess
from collections import Counter
from typing import Any, Final, Self

from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import program, unique

_PROGRAM: Final = """
    import json, sys
    from examples import {example}
    settings = json.loads(sys.argv[1])
    {example}.TOPIC = settings.pop("topic")
    {example}.main(*settings.pop("arguments"), **settings)
"""
REPORTED: Final = """
    import json
    from examples import {example}

    def reported(*arguments, write={function}):
        write(*arguments)
        ends = arguments[-1].next_offsets()
        print(json.dumps({{str(tp.partition): at.offset for tp, at in ends.items()}}), flush=True)

    {function} = reported
"""
"""Has a function that writes what a poll returned print the offsets that it has written up to."""
_POLL_RECORDS: Final = 50
START_MS: Final = 1_767_225_600_000  # 2026-01-01

Row = tuple[int, int, str | None, str | None]
"""Partition, offset, key, value."""


class Recipe:
    """Processes of one example, which write a topic to a store; what was produced.

    Parameters
    ----------
    example : str
        Module of ``examples``.
    writer : KafkaWriter
        Of the cluster.
    topic : str
        What the processes read.
    *arguments : str
        Of the example's ``main``, servers first.
    **configs
        Settings of its consumers.
    """

    def __init__(
        self, example: str, writer: KafkaWriter, topic: str, *arguments: str, **configs: Any
    ) -> None:
        self.topic = topic
        self.rows: list[Row] = []
        self.processes: list[subprocess.Popen[str]] = []
        self._text = _PROGRAM.format(example=example)
        self._writer = writer
        self._settings = {
            "topic": topic,
            "arguments": arguments,
            "max_poll_records": _POLL_RECORDS,
            **configs,
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def produce(self, partition: int, count: int) -> None:
        """Write records; some keys and values are null."""
        start = self.ends.get(partition, 0)
        messages = []
        for number in range(start, start + count):
            key = None if number % 7 == 6 else f"key {number % 11}"
            value = None if number % 11 == 10 else f"{partition}: {number}, ü"
            messages.append(
                Message(
                    None if value is None else value.encode(),
                    None if key is None else key.encode(),
                    timestamp_ms=START_MS + number,
                )
            )
            self.rows.append((partition, number, key, value))
        offsets = self._writer.write(self.topic, messages, partition=partition)
        assert offsets == [*range(start, start + count)]

    def start(self, before: str = "", **configs: Any) -> subprocess.Popen[str]:
        """Start a process, with lines of code that run before the example."""
        settings = json.dumps({**self._settings, **configs})
        process = program(before + self._text, settings, PYTHONWARNINGS="ignore")
        self.processes.append(process)
        return process

    def kill(self, process: subprocess.Popen[str], after_seconds: float = 0.0) -> None:
        """End a process by SIGKILL after some time; it must not have ended by itself."""
        try:
            process.wait(after_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        _, errors = process.communicate()
        assert process.returncode == -9, errors
        self.processes.remove(process)

    def kill_one(self, seconds: float) -> None:
        """Kill a process at a random moment of a time, and start another."""
        self.kill(random.choice(self.processes), random.uniform(0, seconds))
        self.start()

    def run_with_deaths(self, function: str, kills: int) -> None:
        """Run one process at a time until all is written, killed so often soon after a write.

        For stores that no other process can read meanwhile. ``function`` is the one that writes.
        """
        reported = REPORTED.format(example=function.partition(".")[0], function=function)
        for _ in range(kills):
            self.produce(0, 4 * _POLL_RECORDS)  # at least four writes are to come
            process = self.start(reported)
            for _ in range(random.randint(0, 3)):
                _report(process)
            self.kill(process, random.uniform(0, 0.1))
        for partition in sorted({row[0] for row in self.rows}):
            self.produce(partition, 10)  # the last process has something to report of each
        process = self.start(reported)
        written: dict[int, int] = {}
        while written != self.ends:
            written.update(_report(process))
        self.kill(process)

    @property
    def ends(self) -> dict[int, int]:
        """Offsets after the last record of each partition."""
        return dict(Counter(row[0] for row in self.rows))

    def check_running(self) -> None:
        """Check that no process has ended."""
        ended = [process.communicate() for process in self.processes if process.poll() is not None]
        assert not ended


def _report(process: subprocess.Popen[str]) -> dict[int, int]:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    return {int(number): offset for number, offset in json.loads(line).items()}


def group(name: str = "recipe") -> dict[str, Any]:
    """Settings of a group of its own, whose dead members are removed soon."""
    return {
        "group_id": unique(name),
        "session_timeout_ms": 3_000,
        "heartbeat_interval_ms": 200,
        "fetch_max_wait_ms": 100,
    }
