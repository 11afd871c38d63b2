"""Single requests to one broker about groups, each on a connection of its own.

For what no client lets a test do: ask a certain broker for a coordinator while others are held, and
commit with a retention time, as clients did before Kafka 2.1. The latter is written out byte by
byte; the versions kfast speaks lack it::

    string group | int32 -1 | string "" | int64 retention | int32 1 | string topic
    int32 1 | int32 partition | int64 offset | int16 -1 (no metadata)
"""

from __future__ import annotations

import socket
import struct
from typing import Final

from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from kfast import TopicPartition
from kfast.protocol.headers import decode_response_header, encode_request
from kfast.protocol.messages.find_coordinator import (
    GROUP_KEY_TYPE,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tests.integration.support import PATIENCE_SECONDS, admin

_FIND_VERSION: Final = 4
_COMMIT: Final = (8, 2)
"""Key and version of an OffsetCommit with a retention time."""


def _exchange(address: str, frame: bytes) -> bytes:
    host, port = address.split(":")
    with socket.create_connection((host, int(port)), 10) as connection:
        connection.sendall(frame)
        (size,) = struct.unpack(">i", connection.recv(4, socket.MSG_WAITALL))
        return connection.recv(int(size), socket.MSG_WAITALL)


def find_coordinator(address: str, group_id: str) -> int:
    """Return which node coordinates a group as one broker sees it, -1 for none at the moment."""
    request = FindCoordinatorRequest(key_type=GROUP_KEY_TYPE, coordinator_keys=[group_id])
    frame = _exchange(address, encode_request(request, _FIND_VERSION, 1, "probe"))
    _, body = decode_response_header(frame, request.API_KEY, _FIND_VERSION)
    (found,) = FindCoordinatorResponse.decode(frame, _FIND_VERSION, body).coordinators
    return -1 if found.error_code else found.node_id


def commit_for(
    address: str, group_id: str, tp: TopicPartition, offset: int, retention_ms: int
) -> None:
    """Commit an offset that the coordinator forgets after a time."""
    body = b"".join(
        (
            struct.pack(">hhih", *_COMMIT, 1, -1),
            _string(group_id),
            struct.pack(">i", -1),
            _string(""),
            struct.pack(">qi", retention_ms, 1),
            _string(tp.topic),
            struct.pack(">iiqh", 1, tp.partition, offset, -1),
        )
    )
    answer = _exchange(address, struct.pack(">i", len(body)) + body)
    (code,) = struct.unpack_from(">h", answer, len(answer) - 2)
    assert code == 0, f"error {code}"


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def set_session_timeout(servers: str, group_id: str, timeout_ms: int) -> None:
    """Give one KIP-848 group a session timeout of its own."""
    entry = ConfigEntry(
        "consumer.session.timeout.ms",
        str(timeout_ms),
        incremental_operation=AlterConfigOpType.SET,
    )
    asked = ConfigResource(ResourceType.GROUP, group_id, incremental_configs=[entry])
    client = admin(servers)  # its answers go with it
    client.incremental_alter_configs([asked])[asked].result(PATIENCE_SECONDS)
