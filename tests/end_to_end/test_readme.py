"""The README's examples of consumer groups do what the text beside them says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import confluent_kafka

import kfast
from tests.end_to_end.groups import cluster_of, committed
from tests.end_to_end.stage import Stage
from tests.fake_broker.cluster import FakeCluster

README = Path(__file__).resolve().parents[2] / "README.md"


def examples(heading: str) -> list[str]:
    """Return the Python of one section."""
    text = README.read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {heading}\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)


def orders(group: str) -> FakeCluster:
    cluster = cluster_of(1)
    cluster.create_topic("orders", 2)
    for partition in range(2):
        cluster.append("orders", partition, [b"x"] * 10)
    assert committed(cluster, group) == {}
    return cluster


class Until:
    """True until everything is committed; gives up some time."""

    def __init__(self, cluster: FakeCluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._turns = 30

    def __bool__(self) -> bool:
        self._turns -= 1
        return self._turns > 0 and committed(self._cluster, self._group) != {0: 10, 1: 10}


class Producer:
    """Notes what a transaction is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: self.calls.append((name, *arguments))


def test_a_group_reads_and_commits_with_columns() -> None:
    """C-04, K-04, T-11: the loop commits exactly what it read, and so does the transaction."""
    loop, transaction = examples("Consumer groups")
    cluster = orders("billing")
    with Stage(cluster) as stage:
        assert '"localhost:9092"' in loop
        scope: dict[str, Any] = {"kfast": kfast, "running": Until(cluster, "billing")}
        exec(loop.replace("localhost:9092", stage.server.bootstrap_servers), scope)
        consumer: kfast.KafkaConsumer = scope["consumer"]
        try:
            assert committed(cluster, "billing") == {0: 10, 1: 10}
            assert cluster.groups.consumer("billing") is not None
            producer = scope["producer"] = Producer()
            exec(transaction, scope)
            metadata = consumer.group_metadata()
        finally:
            consumer.close()
    names = [name for name, *_ in producer.calls]
    assert names == [
        *("begin_transaction", "produce", "send_offsets_to_transaction", "commit_transaction")
    ]
    _, offsets, member = producer.calls[2]
    assert all(isinstance(at, confluent_kafka.TopicPartition) for at in offsets)
    assert {(at.topic, at.offset) for at in offsets} == {("orders", 10)}
    assert member == kfast.transactions.to_confluent(metadata)


def test_a_part_of_a_batch_has_a_next_offset_of_its_own() -> None:
    """C-04: what the README says of batch[:1000]."""
    cluster = orders("billing")
    with Stage(cluster, group_id="billing", enable_auto_commit=False) as stage:
        consumer = stage.consumer()
        consumer.assign([kfast.TopicPartition("orders", 0)])
        (batch,) = consumer.batches(timeout_ms=1_000)
        consumer.commit({batch.topic_partition: batch[:4].next_offset})
        assert committed(cluster, "billing") == {0: 4}
        consumer.commit()
        assert committed(cluster, "billing") == {0: 10}


def test_the_listener_of_the_readme_has_kafkas_methods() -> None:
    scope: dict[str, Any] = {"kfast": kfast}
    loop, _ = examples("Consumer groups")
    exec(loop.partition("\n\n\n")[0], scope)
    own = {name for name in vars(scope["Sums"]) if name.startswith("on_")}
    assert own == {name for name in vars(kfast.ConsumerRebalanceListener) if name[:3] == "on_"}
