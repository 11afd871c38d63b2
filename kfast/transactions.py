"""Exactly once: commits a consumer's offsets in the transaction of a producer (KIP-447).

kfast does not produce. This module converts a consumer's offsets and group metadata to the types of
confluent-kafka's transactional producer, so that the results of a batch and the offsets after it
are committed together or not at all. confluent-kafka is imported only when it is needed.

librdkafka passes group metadata between its bindings as bytes, which this module writes::

    "CGMDv2:"  generation_id (int32, byte order of the machine)  group_id NUL  member_id NUL
    1                                    without a group_instance_id
    0  group_instance_id NUL             with one

>>> producer.begin_transaction()
>>> # produce the results of the records
>>> kfast.transactions.send_offsets(producer, records.next_offsets(), consumer.group_metadata())
>>> producer.commit_transaction()
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from kfast._base.logs import get_logger as _get_logger
from kfast.errors import ConfigurationError, MissingDependencyError
from kfast.types import format_uuid as _format_uuid
from kfast.types import topic_id_of as _topic_id_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    import confluent_kafka

    from kfast.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

_logger = _get_logger(__name__)

_MAGIC: Final = b"CGMDv2:"
_GENERATION: Final = struct.Struct("=i")


def to_confluent(group_metadata: ConsumerGroupMetadata) -> bytes:
    """Return group metadata in the form of confluent-kafka's producer.

    Parameters
    ----------
    group_metadata : ConsumerGroupMetadata
        From `KafkaConsumer.group_metadata`, of the same time as the offsets.

    Raises
    ------
    ConfigurationError
        A name contains a NUL character, which librdkafka does not support.

    Examples
    --------
    >>> kfast.transactions.to_confluent(kfast.ConsumerGroupMetadata("billing"))[:7]
    b'CGMDv2:'
    """
    instance_id = group_metadata.group_instance_id
    return b"".join(
        (
            _MAGIC,
            _GENERATION.pack(group_metadata.generation_id),
            _text("group_id", group_metadata.group_id),
            _text("member_id", group_metadata.member_id),
            b"\x01" if instance_id is None else b"\x00" + _text("group_instance_id", instance_id),
        )
    )


def offsets_to_confluent(
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
) -> list[confluent_kafka.TopicPartition]:
    """Return offsets to commit, such as ``records.next_offsets()``, in confluent-kafka's type.

    confluent-kafka (2.16) stores ``metadata`` with a NUL character at its end.

    Raises
    ------
    MissingDependencyError
        confluent-kafka is not installed.

    Examples
    --------
    >>> (offset,) = kfast.transactions.offsets_to_confluent(
    ...     {kfast.TopicPartition("orders", 0): kfast.OffsetAndMetadata(42)}
    ... )
    >>> offset.topic, offset.offset
    ('orders', 42)
    """
    try:
        import confluent_kafka  # noqa: PLC0415 - optional
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "transactions need a producer", hint="pip install confluent-kafka"
        ) from error
    partitions = []
    for tp, at in sorted(offsets.items()):
        # Empty metadata would be stored as a NUL character, and -1 would be taken for an epoch.
        extra: dict[str, Any] = {"metadata": at.metadata} if at.metadata else {}
        if at.leader_epoch >= 0:
            extra["leader_epoch"] = at.leader_epoch
        partitions.append(
            confluent_kafka.TopicPartition(tp.topic, tp.partition, at.offset, **extra)
        )
    return partitions


def send_offsets(
    producer: Any,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    group_metadata: ConsumerGroupMetadata,
    timeout_s: float | None = None,
) -> None:
    """Add offsets to the current transaction of a producer.

    Offsets that were read of a topic which was deleted and created again since are left out, with a
    warning: they mean nothing in the new one. This is known of ``records.next_offsets()``.

    Parameters
    ----------
    producer : confluent_kafka.Producer
        With a ``transactional.id``, between ``begin_transaction`` and ``commit_transaction``.
    offsets : Mapping of TopicPartition to OffsetAndMetadata
        Offsets after the processed records: ``records.next_offsets()``.
    group_metadata : ConsumerGroupMetadata
        The consumer's membership when it read them. If it has been fenced since, the group
        coordinator rejects the offsets, and the transaction must be aborted.
    timeout_s : float, optional
        Longest wait; by default the producer's ``transaction.timeout.ms``.

    Raises
    ------
    confluent_kafka.KafkaException
        The producer's error; its ``args[0]`` says whether to retry or to abort.

    Examples
    --------
    >>> producer.begin_transaction()
    >>> kfast.transactions.send_offsets(producer, records.next_offsets(), consumer.group_metadata())
    >>> producer.commit_transaction()
    """
    kept = _of_present_topics(offsets, group_metadata)
    if offsets and not kept:
        return
    arguments = [offsets_to_confluent(kept), to_confluent(group_metadata)]
    producer.send_offsets_to_transaction(*arguments, *([] if timeout_s is None else [timeout_s]))


def _of_present_topics(
    offsets: Mapping[TopicPartition, OffsetAndMetadata], group_metadata: ConsumerGroupMetadata
) -> dict[TopicPartition, OffsetAndMetadata]:
    kept = {}
    for tp, at in offsets.items():
        topic_id, current = _topic_id_of(at), group_metadata.topic_ids.get(tp.topic)
        if topic_id is None or current is None or topic_id == current:
            kept[tp] = at
            continue
        _logger.warning(
            'offset %d of %s is not committed for group "%s": it was read under the topic id %s, '
            "and the topic of that name now has the id %s",
            at.offset,
            tp,
            group_metadata.group_id,
            _format_uuid(topic_id),
            _format_uuid(current),
        )
    return kept


def _text(name: str, value: str) -> bytes:
    if "\0" in value:
        raise ConfigurationError(
            f"{name} = {value!r} contains a NUL character", hint="use a name without it"
        )
    return value.encode() + b"\0"
