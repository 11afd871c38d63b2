"""The examples of the documents do what the text beside them says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import confluent_kafka
import deltalake
import numpy as np
import pyarrow.parquet
import pytest

import kfast
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from tests.document_examples import examples
from tests.end_to_end.groups import cluster_of, committed
from tests.end_to_end.stage import Stage


def run(code: str, stage: Stage, **names: Any) -> dict[str, Any]:
    """Execute an example against a cluster; return the names it has made."""
    assert "localhost:9092" in code
    scope: dict[str, Any] = {"kfast": kfast, **names}
    exec(code.replace("localhost:9092", stage.server.bootstrap_servers), scope)
    return scope


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
    """Notes the calls of a transaction."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments, **more: self.calls.append((name, *arguments, *more.values()))


def test_a_group_reads_and_commits_with_columns() -> None:
    """C-04, K-04, T-11: the loop commits exactly what it read, and so does the transaction."""
    (loop,) = examples("docs/groups.md", "A loop with a listener")
    _, transaction = examples("README.md", "Consumer groups")
    assert examples("docs/how-to/exactly-once.md", "Into Kafka") == [transaction]
    cluster = orders("billing")
    with Stage(cluster) as stage:
        scope = run(loop, stage, running=Until(cluster, "billing"))
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
    """C-04: what the documents say of batch[:1000]."""
    cluster = orders("billing")
    with Stage(cluster, group_id="billing", enable_auto_commit=False) as stage:
        consumer = stage.consumer()
        consumer.assign([kfast.TopicPartition("orders", 0)])
        (batch,) = consumer.batches(timeout_ms=1_000)
        consumer.commit({batch.topic_partition: batch[:4].next_offset})
        assert committed(cluster, "billing") == {0: 4}
        consumer.commit()
        assert committed(cluster, "billing") == {0: 10}


def test_the_listener_of_the_documents_has_kafkas_methods() -> None:
    scope: dict[str, Any] = {"kfast": kfast}
    (loop,) = examples("docs/groups.md", "A loop with a listener")
    exec(loop.partition("\n\n\n")[0], scope)
    own = {name for name in vars(scope["Sums"]) if name.startswith("on_")}
    assert own == {name for name in vars(kfast.ConsumerRebalanceListener) if name[:3] == "on_"}


def test_the_quick_start_reads_columns(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("docs/columns.md", "A batch")
    cluster = cluster_of(1)
    cluster.create_topic("readings", 1)
    readings = np.array(
        [(n, n / 2) for n in range(10)], dtype=[("sensor", ">i4"), ("celsius", ">f8")]
    )
    cluster.append("readings", 0, [reading.tobytes() for reading in readings])
    with Stage(cluster) as stage:
        scope = run(code.replace("5_000", "500"), stage)
    lines = capsys.readouterr().out.splitlines()
    assert "".join(lines[1::2]) == "2.25", lines
    assert lines[0].startswith("readings-0 0 ")
    assert lines[0].endswith(" 10")
    assert scope["table"].column("offset").to_pylist() == list(range(10))
    at = scope["records"].next_offsets()[kfast.TopicPartition("readings", 0)]
    assert at.offset == 10


def test_a_group_of_the_readme_commits_each_batch(capsys: pytest.CaptureFixture[str]) -> None:
    loop, _ = examples("README.md", "Consumer groups")
    cluster = orders("billing")
    with Stage(cluster) as stage:
        # A new group starts at the end of the logs unless told otherwise.
        earliest = 'group_id="billing", auto_offset_reset="earliest"'
        run(loop.replace('group_id="billing"', earliest).replace("60_000", "1_500"), stage)
    assert committed(cluster, "billing") == {0: 10, 1: 10}
    assert sum(int(line.split()[0]) for line in capsys.readouterr().out.splitlines()) == 20


def test_bulk_functions_read_a_topic_and_a_range_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("docs/columns.md", "Bounded reads")
    cluster = cluster_of(1)
    cluster.create_topic("events", 1)
    start = 1_767_225_600_000
    cluster.append("events", 0, [Record(value=b"before", timestamp=start - 1)] * 3)
    cluster.append("events", 0, [Record(value=b"after", timestamp=start)] * 2)
    with Stage(cluster) as stage:
        scope = run(code, stage)
    assert scope["events"].count() == scope["table"].num_rows == 5
    assert capsys.readouterr().out.split()[:1] == ["events-0"]
    assert scope["batch"].values.to_list() == [b"after"] * 2


def test_an_error_reads_as_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("docs/errors-and-logs.md", "What an error says")
    (shown,) = examples("docs/errors-and-logs.md", "What an error says", "")
    cluster = FakeCluster(1)
    for topic in ("orders", "events"):
        cluster.create_topic(topic, 1)
    with Stage(cluster) as stage:
        run(code, stage)
    assert capsys.readouterr().out == shown


def test_a_loop_of_kafka_python_works_and_so_do_columns() -> None:
    (code,) = examples("docs/porting.md", "From kafka-python")
    with Stage(orders("billing")) as stage:
        scope = run(code.replace("5_000", "1_500"), stage)
    assert scope["message"].value == b"x"
    assert scope["batch"].values.to_list()[0] == b"x"
    assert scope["total"] == 0


def test_settings_and_a_loop_of_confluent_kafka_work(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("docs/porting.md", "From confluent-kafka")
    cluster = orders("billing")
    with Stage(cluster) as stage:
        scope = run(code, stage)
    assert len(capsys.readouterr().out.splitlines()) == scope["records"].count() == 5
    assert sum(committed(cluster, "billing").values()) == 5


def amounts(records: int = 10) -> FakeCluster:
    """Return a cluster whose topic "orders" has JSON texts."""
    cluster = cluster_of(1)
    cluster.create_topic("orders", 2)
    for partition in range(2):
        cluster.append("orders", partition, [b'{"amount": %d}' % n for n in range(records)])
    return cluster


def test_the_tutorial_reads_a_topic_as_columns(capsys: pytest.CaptureFixture[str]) -> None:
    whole, scanned = examples("docs/tutorial.md", "As columns")
    with Stage(amounts()) as stage:
        scope = run(whole, stage)
        run(scanned, stage)
    assert capsys.readouterr().out == "20 records\n20 rows\n"
    assert scope["table"].column("value")[3].as_py() == '{"amount": 3}'


def test_the_tutorial_reads_as_a_member_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("docs/tutorial.md", "In a consumer group")
    cluster = amounts()
    with Stage(cluster) as stage:
        run(code.replace("5_000", "1_500"), stage)
    assert committed(cluster, "billing") == {0: 10, 1: 10}
    assert sum(int(line.split()[1]) for line in capsys.readouterr().out.splitlines()) == 20


def test_a_topic_becomes_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    parquet, others = examples("docs/how-to/files.md", "In Python")
    monkeypatch.chdir(tmp_path)
    with Stage(amounts()) as stage:
        scope = run(parquet, stage)
        run(others, stage, **{name: scope[name] for name in ("pyarrow",)})
    assert pyarrow.parquet.read_table("orders.parquet").num_rows == 20
    assert capsys.readouterr().out == "[(0, 10), (1, 10)]\n"
    assert deltalake.DeltaTable("orders-delta").to_pyarrow_table().num_rows == 20


def test_the_first_lines_of_the_readme_read_a_topic(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = examples("README.md", "In Python")
    with Stage(amounts()) as stage:
        scope = run(code, stage)
    heading, columns, *rows = capsys.readouterr().out.splitlines()
    assert heading.startswith("orders: 20 records in 2 partitions, ")
    assert columns.split() == ["partition", "offset", "timestamp", "key", "value"]
    assert len(rows) == 5 + 1 + 5
    assert scope["table"].num_rows == 20


def test_typed_columns_of_the_readme_name_what_is_bad(capsys: pytest.CaptureFixture[str]) -> None:
    """TC-20: the comment beside the example is the beginning of what it prints."""
    (code,) = examples("README.md", "Typed columns")
    cluster = cluster_of(1)
    cluster.create_topic("trades", 1)
    cluster.append("trades", 0, [b'{"id": 1, "price": 2.5}', b'{"id": 2}', b'{"id": "x"}'])
    producer = Producer()
    with Stage(cluster) as stage:
        scope = run(code, stage, producer=producer)
    [(name, topic, raw, headers)] = producer.calls
    assert (name, topic, raw) == ("produce", "trades.dlq", b'{"id": "x"}')
    assert ("__connect.errors.offset", b"2") in headers
    assert scope["table"].column("id").to_pylist() == [1, 2, None]
    assert scope["table"].column("price").to_pylist() == [2.5, None, None]
    (printed,) = capsys.readouterr().out.splitlines()
    (comment,) = [line.partition("# ")[2] for line in code.splitlines() if "print(" in line]
    assert comment.endswith(" ...")
    assert printed.startswith(comment.removesuffix(" ..."))
    assert {"offset", "timestamp", "key"} < {*scope["table"].column_names}
