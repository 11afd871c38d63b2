"""ConsumerRecord: one record as Python objects, compatible with kafka-python.

Owns the tuple's fields, their order and their meaning; columns are faster. Thread: any.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class ConsumerRecord(NamedTuple):
    """One record.

    Parameters
    ----------
    topic : str
        Topic it was read from.
    partition : int
        Partition it was read from.
    leader_epoch : int or None
        Epoch of the partition's leader when its batch was written; None when unknown (KIP-320).
    offset : int
        Its offset in the partition.
    timestamp : int
        Milliseconds since 1970 UTC, -1 for none.
    timestamp_type : int
        0 create time (the producer's clock), 1 log append time (the broker's).
    key, value : object
        Deserialized, or ``bytes`` without a deserializer; None for null.
    headers : list of (str, bytes or None)
        In the order they were sent, repeated keys included.
    checksum : None
        Always None; message format 2 has no checksum per record.
    serialized_key_size, serialized_value_size : int
        Bytes before deserialization, -1 for null.
    serialized_header_size : int
        Bytes of header keys and values, -1 without headers.

    Examples
    --------
    >>> orders = kfast.read_topic("orders", bootstrap_servers="localhost:9092")
    >>> record = orders[kfast.TopicPartition("orders", 0)][0]
    >>> record.offset, record.key, record.value
    (0, b'k1', b'{"id": 1, "price": 9.5}')
    """

    topic: str
    partition: int
    leader_epoch: int | None
    offset: int
    timestamp: int
    timestamp_type: int
    key: Any
    value: Any
    headers: list[tuple[str, bytes | None]]
    checksum: None
    serialized_key_size: int
    serialized_value_size: int
    serialized_header_size: int
