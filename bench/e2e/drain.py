"""Drain, the limit: receives Fetch responses and reads their batch headers, nothing else.

One connection, one Fetch in flight, 1 MiB per partition; no decompression, no checksums, no
records. The bytes go from the socket into a recycled frame and the headers are read in compiled
code, so that a Fetch of several MiB runs a few dozen lines of Python. No consumer on this machine
with this broker can be faster. Over TLS it is a bare ``SSLSocket``, which hands out one TLS record
(16 KiB at most) per call.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

from kfast._native.buffers import OwnedBuffer
from kfast._native.fetch_response import parse_fetch_response, scan_batches
from kfast._native.frame import FrameReceiver
from kfast._native.record_batch import RecordIndex, SliceDecoder
from kfast.protocol.headers import decode_response_header, encode_request
from kfast.protocol.messages.fetch import (
    LAST_VERSION_WITH_TOPIC_NAMES,
    FetchPartition,
    FetchRequest,
    FetchTopic,
)

_VERSION = LAST_VERSION_WITH_TOPIC_NAMES
_PARTITION_BYTES = 1 << 20
_RESPONSE_BYTES = 100 << 20


def first_address(servers: str) -> tuple[str, int]:
    """Return the first of some ``host:port``."""
    host, _, port = servers.split(",", maxsplit=1)[0].rpartition(":")
    return host, int(port)


class Drain:
    """One connection that reads partitions of a topic from their start, all led by one broker.

    ``partition_bytes`` is ``max.partition.fetch.bytes``; ``ca``, a PEM file, is for TLS.
    """

    def __init__(
        self,
        address: tuple[str, int],
        topic: str,
        partitions: list[int],
        partition_bytes: int = _PARTITION_BYTES,
        ca: str | None = None,
    ) -> None:
        self._socket = socket.create_connection(address)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if ca is not None:
            context = ssl.create_default_context(cafile=ca)
            self._socket = context.wrap_socket(self._socket, server_hostname=address[0])
        self._frames = FrameReceiver(_RESPONSE_BYTES)
        self._topic = topic
        self._partition_bytes = partition_bytes
        self._positions = dict.fromkeys(partitions, 0)
        self._correlation_id = 0

    def fileno(self) -> int:
        """Return the socket's descriptor, for selectors."""
        return self._socket.fileno()

    def batches(self) -> Iterator[int]:
        """Yield the number of records of each response, without end."""
        while True:
            self.send()
            frame = self.receive()
            count = self.walk(frame)
            del frame  # before the next one is received: its memory is used again
            yield count

    def send(self) -> None:
        """Send a Fetch at the present positions."""
        self._correlation_id += 1
        partitions = [
            FetchPartition(
                partition=partition, fetch_offset=offset, partition_max_bytes=self._partition_bytes
            )
            for partition, offset in self._positions.items()
        ]
        request = FetchRequest(
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=_RESPONSE_BYTES - 1024,
            topics=[FetchTopic(topic=self._topic, partitions=partitions)],
        )
        self._socket.sendall(encode_request(request, _VERSION, self._correlation_id, "drain"))

    def receive(self) -> OwnedBuffer:
        """Read from the socket until the response is complete, and return it."""
        while (frame := self.receive_some()) is None:
            pass
        return frame

    def receive_some(self) -> OwnedBuffer | None:
        """Read once from the socket; return the response when it is complete."""
        count = self._socket.recv_into(self._frames.next_view())
        if not count:
            raise ConnectionError("the broker closed the connection")
        return self._frames.advance(count)

    def decode(self, frame: OwnedBuffer) -> Iterator[RecordIndex]:
        """Yield the records of a response, checksums verified, and advance the positions."""
        _, start = decode_response_header(frame, FetchRequest.API_KEY, _VERSION)
        for part in parse_fetch_response(frame, start, _VERSION).partitions:
            decoder = SliceDecoder(
                frame,
                part.records_start,
                part.records_end,
                topic=self._topic,
                partition=part.partition,
                position=self._positions[part.partition],
            )
            while not decoder.finished:
                yield decoder.decode(self._partition_bytes)
            self._positions[part.partition] = decoder.next_offset

    def walk(self, frame: OwnedBuffer) -> int:
        """Read the batch headers of a response; return its number of records."""
        _, start = decode_response_header(frame, FetchRequest.API_KEY, _VERSION)
        response = parse_fetch_response(frame, start, _VERSION)
        records = 0
        for part in response.partitions:
            if part.error_code:
                raise RuntimeError(f"{self._topic}-{part.partition}: error {part.error_code}")
            scan = scan_batches(frame, part.records_start, part.records_end)
            if scan.next_offset > self._positions[part.partition]:
                records += scan.next_offset - self._positions[part.partition]
                self._positions[part.partition] = scan.next_offset
        return records
