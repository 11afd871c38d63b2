"""Kafka's own console consumer as a member of a group, telling partition and offset per record."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from kfast import TopicPartition
from kfast.local.java import find_java
from kfast.local.local_kafka import resolve_jars
from kfast.local.node import TOOL_FLAGS, Runtime
from tests.integration.support import CONSOLE_CONSUMER

_FORMAT: Final = {"print.partition": "true", "print.offset": "true", "print.value": "false"}
_LINE: Final = re.compile(r"Partition:(\d+)\tOffset:(\d+)$")


class ConsoleMember:
    """A console consumer in a process of its own.

    Parameters
    ----------
    servers, topic : str
        What it reads.
    properties : Mapping of str to object
        Settings of its consumer, under Kafka's names.
    """

    def __init__(self, servers: str, topic: str, properties: Mapping[str, object]) -> None:
        self.topic = topic
        self.lines: list[str] = []
        settings = [word for key, value in properties.items() for word in _option(key, value)]
        layout = [w for k, v in _FORMAT.items() for w in ("--formatter-property", f"{k}={v}")]
        command = Runtime(find_java(), tuple(resolve_jars()), 0).command(
            TOOL_FLAGS,
            CONSOLE_CONSUMER,
            *("--bootstrap-server", servers, "--topic", topic),
            *settings,
            *layout,
        )
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        self.lines.extend(self._process.stdout)

    def offsets(self) -> dict[TopicPartition, list[int]]:
        """Return what it has read so far, by partition and in its order."""
        found: dict[TopicPartition, list[int]] = {}
        for line in list(self.lines):
            match = _LINE.match(line.strip())
            if match is not None:
                tp = TopicPartition(self.topic, int(match[1]))
                found.setdefault(tp, []).append(int(match[2]))
        return found

    def leave(self) -> None:
        """Have it end in good order (SIGTERM); everything it printed is there afterwards."""
        self._process.terminate()
        self._process.wait(30)
        self._thread.join()

    def end(self) -> None:
        """Leave nothing behind."""
        self._process.kill()
        self._thread.join()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._process.wait()


def _option(key: str, value: object) -> tuple[str, str]:
    return "--command-property", f"{key}={value}"


@contextmanager
def console_member(
    servers: str, topic: str, properties: Mapping[str, object]
) -> Iterator[ConsoleMember]:
    """Give a console consumer that has ended at the end."""
    member = ConsoleMember(servers, topic, properties)
    try:
        yield member
    finally:
        member.end()
