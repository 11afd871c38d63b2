"""Servers that are no Kafka, and short ways to say what the error tests expect.

Owns no state of its own: every server lives as long as its ``with`` block. Times are measured to
prove that a call kept its promise, always with seconds of slack; nothing sleeps.
"""

from __future__ import annotations

import http.server
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import pytest

import kfast
from kfast import TopicPartition
from kfast.errors import KafkaError
from kfast.testing.cluster import FakeCluster

HOST: Final = "127.0.0.1"
T0: Final = TopicPartition("t", 0)
T1: Final = TopicPartition("t", 1)

SLACK_S: Final = 5.0
"""How much later than promised a call may return on a machine that is busy elsewhere."""

ErrorT = TypeVar("ErrorT", bound=KafkaError)


def consumer(bootstrap_servers: str, **configs: Any) -> kfast.KafkaConsumer:
    """Return a consumer that starts at the beginning and retries quickly."""
    settings: dict[str, Any] = {
        "auto_offset_reset": "earliest",
        "retry_backoff_ms": 20,
        "reconnect_backoff_ms": 20,
    }
    return kfast.KafkaConsumer(bootstrap_servers=bootstrap_servers, **(settings | configs))


def cluster_of(
    partitions: int = 2, records: int = 10, nodes: int = 1, *, batch_records: int | None = None
) -> FakeCluster:
    """Return a cluster with a topic "t" whose values are ``b"<partition>-<offset>"``."""
    cluster = FakeCluster(nodes)
    cluster.create_topic("t", partitions)
    for partition in range(partitions):
        values = [b"%d-%d" % (partition, offset) for offset in range(records)]
        cluster.append("t", partition, values, batch_records=batch_records)
    return cluster


def raised(
    kind: type[ErrorT], call: Callable[[], object], within_ms: int | None = None
) -> tuple[ErrorT, list[str]]:
    """Return the error a call raises and the lines of its text, having checked its shape.

    Parameters
    ----------
    kind : type
        The class, which has to be met exactly.
    call : callable
        What is to raise.
    within_ms : int, optional
        The time the call was given.
    """
    started = time.monotonic()
    with pytest.raises(kind) as caught:
        call()
    if within_ms is not None:
        assert time.monotonic() - started < within_ms / 1000 + SLACK_S
    error = caught.value
    assert type(error) is kind
    lines = str(error).splitlines()
    assert len(lines) <= 6
    assert lines[-1].startswith("try: "), lines
    assert str(threading.get_ident()) not in str(error)
    return error, lines


def polled_until_error(
    kind: type[ErrorT], reader: kfast.KafkaConsumer, tries: int = 40
) -> tuple[ErrorT, list[str], dict[TopicPartition, list[int]]]:
    """Poll until an error comes; return it, its lines and the offsets that came before."""
    seen: dict[TopicPartition, list[int]] = {}

    def poll_on() -> None:
        for _ in range(tries):
            note(seen, reader.poll(timeout_ms=500))

    error, lines = raised(kind, poll_on)
    return error, lines, seen


def note(seen: dict[TopicPartition, list[int]], records: kfast.ConsumerRecords) -> None:
    """Add the offsets of a poll to those seen."""
    for tp, batch in records.items():
        seen.setdefault(tp, []).extend(batch.offsets.tolist())


def read_until(
    reader: kfast.KafkaConsumer, wanted: dict[TopicPartition, int], timeout_s: float = 20.0
) -> dict[TopicPartition, list[int]]:
    """Poll, past all errors, until so many offsets of each partition were seen; return them."""
    seen: dict[TopicPartition, list[int]] = {}
    deadline = time.monotonic() + timeout_s
    while any(len(seen.get(tp, ())) < count for tp, count in wanted.items()):
        assert time.monotonic() < deadline, seen
        try:
            note(seen, reader.poll(timeout_ms=200))
        except KafkaError:
            continue
    return seen


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return what was logged by kfast as a warning or worse."""
    return [
        record.getMessage()
        for record in caplog.records
        if record.levelno >= logging.WARNING and record.name.startswith("kfast")
    ]


def dead_port() -> int:
    """Return a port nothing listens on."""
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port


@contextmanager
def web_server() -> Iterator[str]:
    """Run Python's web server; give its address."""

    class Quiet(http.server.BaseHTTPRequestHandler):
        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer((HOST, 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"{HOST}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


@contextmanager
def raw_server(answer: bytes | None, *, reads_first: bool = True) -> Iterator[str]:
    """Run a server that sends some bytes and closes, or with None says nothing for ever."""
    listener = socket.create_server((HOST, 0))
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            if answer is None:
                held.append(sock)
                continue
            with sock:
                try:
                    if reads_first:
                        sock.recv(1024)
                    sock.sendall(answer)
                except OSError:
                    continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"{HOST}:{listener.getsockname()[1]}"
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        for sock in held:
            sock.close()
