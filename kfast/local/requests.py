"""Requests to one broker of a LocalKafka, over its plaintext listener, written out byte by byte.

Owns the layout of the few requests that set a cluster up; the brokers of tests must not depend on
the code under test. A request and its response are::

    int32 size | int16 api_key | int16 version | int32 correlation_id = 1 | int16 -1 (no client id)
        | byte 0 (no tagged fields; flexible versions only) | body
    int32 size | int32 correlation_id | byte 0 (flexible versions only) | body

In flexible versions (KIP-482) strings, bytes and arrays have their length + 1 as an unsigned varint
before them, and every structure ends with its tagged fields: one zero byte.

Topics are created and deleted through confluent-kafka when it is installed, else with Kafka's
``TopicCommand``, which takes a second or two longer. The brokers' metadata is updated one after
another, so each is asked until it has the topic.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from kfast.errors import LocalKafkaError

_METADATA: Final = (3, 1)
"""API key and version."""
_UNKNOWN_TOPIC: Final = 3
_CHECK_SECONDS: Final = 0.02
_TOOL: Final = "org.apache.kafka.tools.TopicCommand"

RunTool = Callable[..., str]


def create_topic(
    run_tool: RunTool,
    bootstrap_servers: str,
    name: str,
    partitions: int,
    replication_factor: int,
    config: Mapping[str, str],
) -> None:
    """Create a topic; the metadata of other brokers may not have it yet."""
    try:
        from confluent_kafka.admin import AdminClient, NewTopic  # noqa: PLC0415 - optional
    except ImportError:
        options = [f"{key}={value}" for key, value in config.items()]
        run_tool(
            *(_TOOL, "--bootstrap-server", bootstrap_servers, "--create", "--topic", name),
            *("--partitions", str(partitions), "--replication-factor", str(replication_factor)),
            *(word for option in options for word in ("--config", option)),
        )
        return
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    topic = NewTopic(name, partitions, replication_factor, config=dict(config))
    _finish(f'cannot create topic "{name}"', admin.create_topics([topic])[name])


def delete_topic(run_tool: RunTool, bootstrap_servers: str, name: str) -> None:
    """Delete a topic; the metadata of other brokers may still have it."""
    try:
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - optional
    except ImportError:
        run_tool(_TOOL, "--bootstrap-server", bootstrap_servers, "--delete", "--topic", name)
        return
    admin = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    _finish(f'cannot delete topic "{name}"', admin.delete_topics([name])[name])


def _finish(failure: str, future: Any) -> None:
    try:
        future.result(TIMEOUT_SECONDS)
    except Exception as error:
        reason = error.args[0] if error.args else error
        text = getattr(reason, "str", None)
        raise LocalKafkaError(failure, cause=text() if text else str(reason)) from error


def wait_for_topic(
    addresses: Sequence[Address], name: str, partitions: int | None, timeout_ms: int
) -> None:
    """Wait until every broker has the topic with all its leaders, or no broker has it any more.

    ``partitions`` is the number there must be; None waits for the topic to be gone.
    """
    deadline = time.monotonic() + timeout_ms / 1000
    for address in addresses:
        while True:
            error, leaders = topic_leaders(address, name)
            if partitions is None:
                is_settled = error == _UNKNOWN_TOPIC
            else:
                is_settled = not error and len(leaders) == partitions and min(leaders) >= 0
            if is_settled:
                break
            if time.monotonic() > deadline:
                state = "not deleted" if partitions is None else "not ready"
                raise LocalKafkaError(
                    f'topic "{name}" is {state} on {address[0]}:{address[1]}'
                    f" after {timeout_ms / 1000:.0f} s",
                    found=f"error {error}, leaders {leaders}",
                )
            time.sleep(_CHECK_SECONDS)


def topic_leaders(address: Address, name: str) -> tuple[int, list[int]]:
    """Request a topic's metadata of one broker: error code, and each partition's leader or -1."""
    response = send_request(address, *_METADATA, array([string(name)]))
    response.array(_skip_broker)
    response.number(">i")  # controller id
    ((error, leaders),) = response.array(_read_topic)
    return error, leaders


def _skip_broker(response: Reader) -> None:
    response.number(">i")  # id
    response.string()  # host
    response.number(">i")  # port
    response.string()  # rack


def _read_topic(response: Reader) -> tuple[int, list[int]]:
    error = response.number(">h")
    response.string()  # name
    response.number(">b")  # is internal
    return error, response.array(_read_leader)


def _read_leader(response: Reader) -> int:
    response.number(">h")  # error
    response.number(">i")  # partition
    leader = response.number(">i")
    for _ in range(2):  # replicas, in-sync replicas
        response.array(lambda reader: reader.number(">i"))
    return leader


T = TypeVar("T")

TIMEOUT_SECONDS: Final = 30
NO_TAGS: Final = b"\x00"

Address = tuple[str, int]


def send_request(
    address: Address, api_key: int, version: int, body: bytes, *, is_flexible: bool = False
) -> Reader:
    """Send one request over a connection of its own and return the response's body."""
    header = struct.pack(">hhih", api_key, version, 1, -1) + (NO_TAGS if is_flexible else b"")
    with socket.create_connection(address, TIMEOUT_SECONDS) as connection:
        connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            reader = Reader(stream.read(size))
    reader.number(">i")  # correlation id
    if is_flexible:
        reader.tags()
    return reader


class Reader:
    """Reads the values of a response one after another."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def _take(self, size: int) -> bytes:
        self._position += size
        return self._data[self._position - size : self._position]

    def number(self, layout: str) -> int:
        """Read one number, by its ``struct`` format."""
        value: int = struct.unpack_from(layout, self._data, self._position)[0]
        self._position += struct.calcsize(layout)
        return value

    def string(self) -> str | None:
        """Read a string; None for null."""
        size = self.number(">h")
        return None if size < 0 else self._take(size).decode()

    def array(self, read: Callable[[Reader], T]) -> list[T]:
        """Read an array whose elements ``read`` reads."""
        return [read(self) for _ in range(self.number(">i"))]

    def _varint(self) -> int:
        value = shift = 0
        while True:
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def compact_string(self) -> str | None:
        """Read a string of a flexible version; None for null."""
        size = self._varint() - 1
        return None if size < 0 else self._take(size).decode()

    def compact_array(self, read: Callable[[Reader], T]) -> list[T]:
        """Read an array of a flexible version."""
        return [read(self) for _ in range(self._varint() - 1)]

    def tags(self) -> None:
        """Skip the tagged fields that end a structure."""
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())


def string(text: str | None) -> bytes:
    """Return a string as it is written, or null."""
    if text is None:
        return struct.pack(">h", -1)
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def array(elements: Iterable[bytes]) -> bytes:
    """Return an array of written elements."""
    written = list(elements)
    return struct.pack(">i", len(written)) + b"".join(written)


def compact_bytes(data: bytes) -> bytes:
    """Return bytes, or the bytes of a string, as flexible versions write them."""
    return _varint(len(data) + 1) + data


def compact_array(elements: Iterable[bytes]) -> bytes:
    """Return an array of written elements as flexible versions write it."""
    written = list(elements)
    return _varint(len(written) + 1) + b"".join(written)


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
