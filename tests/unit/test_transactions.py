"""kfast.transactions: what confluent-kafka's producer is given."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import confluent_kafka
import pytest

from kfast import transactions
from kfast.errors import ConfigurationError
from kfast.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}


@pytest.mark.parametrize("instance_id", [None, "instance-1"])
@pytest.mark.parametrize("group_id", ["orders", "gr\u00fc\u00dfe"])
def test_a_membership_is_written_as_librdkafka_writes_it(
    group_id: str, instance_id: str | None
) -> None:
    """T-11: byte for byte what confluent-kafka's own consumer says of itself."""
    settings = {**NOWHERE, "group.id": group_id}
    if instance_id is not None:
        settings["group.instance.id"] = instance_id
    theirs = confluent_kafka.Consumer(settings)
    try:
        expected = theirs.consumer_group_metadata()
    finally:
        theirs.close()
    ours = ConsumerGroupMetadata(group_id, group_instance_id=instance_id)
    assert transactions.to_confluent(ours) == expected


def sent(offsets: list[Any], metadata: bytes) -> str:
    """Return the name of the error a producer without a transaction gives."""
    producer = confluent_kafka.Producer({**NOWHERE, "transactional.id": "t"})
    with pytest.raises(confluent_kafka.KafkaException) as caught:
        producer.send_offsets_to_transaction(offsets, metadata, 1)
    return str(caught.value.args[0].name())


def test_librdkafka_reads_what_it_is_given() -> None:
    """T-11: a live membership gets as far as the transaction, a damaged one does not."""
    metadata = transactions.to_confluent(ConsumerGroupMetadata("g", 17, "member-1", "i"))
    offsets = transactions.offsets_to_confluent({TopicPartition("t", 0): OffsetAndMetadata(5)})
    assert sent(offsets, metadata) == "_STATE"
    assert sent(offsets, metadata[:-3]) == "_BAD_MSG"


def test_offsets_carry_metadata_and_epoch() -> None:
    """C-10, P-16: nothing of an offset is lost on the way."""
    one, two = transactions.offsets_to_confluent(
        {
            TopicPartition("t", 1): OffsetAndMetadata(7, "text", 3),
            TopicPartition("t", 0): OffsetAndMetadata(5),
        }
    )
    assert (one.topic, one.partition, one.offset) == ("t", 0, 5)
    assert (two.partition, two.offset, two.metadata, two.leader_epoch) == (1, 7, "text", 3)
    assert (one.metadata, one.leader_epoch) == (None, None)


def test_a_producer_is_given_both() -> None:
    """T-11: with a timeout only if there is one, since librdkafka's default is its own."""

    class Producer:
        def __init__(self) -> None:
            self.calls: list[tuple[Any, ...]] = []

        def send_offsets_to_transaction(self, *arguments: Any) -> None:
            self.calls.append(arguments)

    producer = Producer()
    offsets = {TopicPartition("t", 0): OffsetAndMetadata(5)}
    membership = ConsumerGroupMetadata("g", 1, "m")
    transactions.send_offsets(producer, offsets, membership)
    transactions.send_offsets(producer, offsets, membership, 2.5)
    assert [len(call) for call in producer.calls] == [2, 3]
    assert producer.calls[1][1:] == (transactions.to_confluent(membership), 2.5)


def test_a_name_librdkafka_cannot_carry_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="NUL"):
        transactions.to_confluent(ConsumerGroupMetadata("a\0b"))


def test_confluent_kafka_is_needed_only_for_its_own_types() -> None:
    """E-11: kfast imports without it, and says what to install when it is missing."""
    script = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "import kfast\n"
        "kfast.transactions.to_confluent(kfast.ConsumerGroupMetadata('g'))\n"
        "try: kfast.transactions.offsets_to_confluent({})\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == [
        "transactions need a producer",
        "try: pip install confluent-kafka",
    ]
