"""Processes that run a program of ``examples/`` on a topic, and are killed meanwhile."""

from __future__ import annotations

import json
import random
import subprocess
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
        self._settings = {"topic": topic, "arguments": arguments, "max_poll_records": 50, **configs}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()

    def produce(self, partition: int, count: int) -> None:
        """Write records; some keys and values are null."""
        start = sum(row[0] == partition for row in self.rows)
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

    def check_running(self) -> None:
        """Check that no process has ended."""
        ended = [process.communicate() for process in self.processes if process.poll() is not None]
        assert not ended


def group(name: str = "recipe") -> dict[str, Any]:
    """Settings of a group of its own, whose dead members are removed soon."""
    return {
        "group_id": unique(name),
        "session_timeout_ms": 3_000,
        "heartbeat_interval_ms": 200,
        "fetch_max_wait_ms": 100,
    }
