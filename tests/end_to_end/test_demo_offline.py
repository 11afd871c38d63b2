"""The demo without Kafka, and the broker that it brings."""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kfast
from kfast import TopicPartition, cli
from kfast.demo.main import DemoOptions
from kfast.demo.orders import GROUP, PARTITIONS, RECORDS, TOPIC, orders_kafka
from kfast.errors import CommitFailedError, UnknownTopicOrPartitionError
from kfast.testing import FakeKafka

TPS = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
EACH = RECORDS // PARTITIONS


@pytest.fixture(scope="module")
def kafka() -> Iterator[FakeKafka]:
    with orders_kafka() as running:
        yield running


def test_the_demo(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-70: each command is printed before its output; settings of the user's are left out."""
    monkeypatch.setenv("KFAST_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("KAFKA_BOOTSTRAP_SERVERS", "nowhere.invalid:9092")
    parquet = tmp_path / "orders.parquet"
    assert cli.main(["demo", "--parquet", str(parquet)]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    lines = out.splitlines()
    shown = [line.split()[2] for line in lines if line.startswith("$ kfast ")]
    assert shown == ["topics", "read", "read", "lag"]
    assert ">>> records" in lines
    assert f"orders: 1 000 000 records in {PARTITIONS} partitions" in out
    assert f"{RECORDS:,} records as columns in " in out
    assert f"{RECORDS:,} JSON documents as columns in " in out
    revenue = next(line for line in lines if line.startswith("["))
    assert len(json.loads(revenue)) == PARTITIONS
    assert sum(json.loads(revenue)) > 100 * RECORDS
    assert parquet.stat().st_size > 1_000_000
    assert [line.split()[6] for line in lines if line.startswith("billing ")] == [
        *("0", "0", "70000", "1000"),
    ]
    assert not [each for each in threading.enumerate() if each.name == "fake-kafka"]


def test_every_record_is_there_once(kafka: FakeKafka) -> None:
    """CL-70: offsets, checksums and timestamps are those of a log."""
    records = kfast.read_topic(TOPIC, bootstrap_servers=kafka.bootstrap_servers)
    assert records.count() == RECORDS
    for batch in records.values():
        assert (batch.offsets == np.arange(EACH)).all()
        assert (np.diff(batch.timestamps) == 1).all()
    last = records[TPS[0]][-1]
    assert last.key is not None
    assert last.key.startswith(b"user-")


def test_positions(kafka: FakeKafka) -> None:
    """CL-70: by offset and by time, in the middle of a batch and at the ends."""
    with kfast.KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
        newest = consumer.end_offsets(TPS)
        assert newest == dict.fromkeys(TPS, EACH)
        consumer.assign(TPS[:1])
        consumer.seek(TPS[0], 12_345)
        first = next(iter(consumer.poll(timeout_ms=10_000).values()))
        assert int(first.offsets[0]) == 12_345
        found = consumer.offsets_for_times({TPS[1]: int(first.timestamps[0])})[TPS[1]]
        assert found is not None
        assert found.offset == 12_345
        consumer.seek_to_end(TPS[0])
        assert consumer.poll(timeout_ms=50).count() == 0
        with pytest.raises(UnknownTopicOrPartitionError, match='no topic "order"'):
            kfast.read_topic("order", bootstrap_servers=kafka.bootstrap_servers)


def test_groups_and_topics(kafka: FakeKafka, capfd: pytest.CaptureFixture[str]) -> None:
    """CL-70: what the administrative commands ask is answered."""
    for words in (["groups"], ["groups", "describe", GROUP], ["topics", "describe", TOPIC]):
        assert cli.main(["-b", kafka.bootstrap_servers, *words]) == 0
    assert cli.main(["-b", kafka.bootstrap_servers, "doctor", TOPIC, "-g", GROUP]) == 0
    assert cli.main(["-b", kafka.bootstrap_servers, "groups", "describe", "bilinng"]) == 5
    assert capfd.readouterr().err.endswith('try: did you mean "billing"?\n')


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        struct.pack(">i", -1),
        struct.pack(">i", 1 << 30),
        struct.pack(">ihhih", 10, 3, 99, 1, -1),
        struct.pack(">ihhih", 10, 0, 7, 1, -1),
        struct.pack(">ihhih", 10, 1, 12, 1, 32_000),
        struct.pack(">i", 2) + b"\0\1",
    ],
)
def test_what_is_no_request_closes_the_connection(kafka: FakeKafka, data: bytes) -> None:
    """CL-70: and the broker goes on."""
    host, _, port = kafka.bootstrap_servers.partition(":")
    with socket.create_connection((host, int(port)), timeout=10) as sock:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(100) == b""
    with kfast.KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as consumer:
        assert consumer.topics() == {TOPIC}


def member_of(kafka: FakeKafka, group: str, **more: Any) -> kfast.KafkaConsumer:
    return kfast.KafkaConsumer(
        TOPIC,
        bootstrap_servers=kafka.bootstrap_servers,
        group_id=group,
        enable_auto_commit=False,
        auto_offset_reset="earliest",
        heartbeat_interval_ms=100,
        **more,
    )


def poll_until(members: Sequence[kfast.KafkaConsumer], sizes: Sequence[int]) -> None:
    """Poll members in turns until they have so many partitions."""
    deadline = time.monotonic() + 30
    while [len(each.assignment()) for each in members] != [*sizes]:
        assert time.monotonic() < deadline, [each.assignment() for each in members]
        for each in members:
            each.poll(timeout_ms=50, max_records=1)


def test_a_group_reads_all_and_commits(kafka: FakeKafka, capfd: pytest.CaptureFixture[str]) -> None:
    """CL-70: the loop of the tutorial ends with everything committed."""
    count = 0
    with member_of(kafka, "once") as consumer:
        while count < RECORDS:
            records = consumer.poll(timeout_ms=5_000)
            assert records
            count += records.count()
            consumer.commit(records.next_offsets())
        assert consumer.poll(timeout_ms=50).count() == 0
        assert cli.main(["-b", kafka.bootstrap_servers, "groups", "describe", "once"]) == 0
        assert f"once   {consumer.group_metadata().member_id}" in capfd.readouterr().out
    assert cli.main(["-b", kafka.bootstrap_servers, "lag", "once", "--sum", "-f", "csv"]) == 0
    assert capfd.readouterr().out.splitlines()[1].split(",")[2] == "0"


@pytest.mark.parametrize("protocol", ["range", "cooperative-sticky"])
def test_members_of_a_group_share_the_partitions(kafka: FakeKafka, protocol: str) -> None:
    """CL-70: one that comes takes its part, and the rest gets it back when it leaves."""
    more = {"partition_assignment_strategy": [protocol]}
    with member_of(kafka, protocol, **more) as first:
        poll_until([first], [PARTITIONS])
        with member_of(kafka, protocol, **more) as second:
            poll_until([first, second], [PARTITIONS // 2] * 2)
            assert not first.assignment() & second.assignment()
        poll_until([first], [PARTITIONS])


def test_a_member_that_is_gone_loses_its_partitions(kafka: FakeKafka) -> None:
    """CL-70: one that has crashed is waited for until its session is over."""
    first = member_of(kafka, "crash", session_timeout_ms=1_000)
    with member_of(kafka, "crash", session_timeout_ms=1_000) as second:
        poll_until([first, second], [PARTITIONS // 2] * 2)
        first.close(operation="remain_in_group")
        poll_until([second], [PARTITIONS])


def test_a_commit_of_no_member_is_refused_while_there_are_some(kafka: FakeKafka) -> None:
    """CL-70: and taken once they are gone."""
    with (
        member_of(kafka, "busy") as member,
        kfast.KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers, group_id="busy") as other,
    ):
        poll_until([member], [PARTITIONS])
        other.assign(TPS[:1])
        with pytest.raises(CommitFailedError):
            other.commit({TPS[0]: 5})
        member.close()
        other.commit({TPS[0]: 5})
        assert other.committed(TPS[0]) == 5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("demo a b", "the demo reads one topic"),
        ("demo --serve --kafka", "--serve is for the broker in this process"),
        ("demo orders", "--topic needs --bootstrap-servers"),
    ],
)
def test_mistakes(line: str, message: str, capfd: pytest.CaptureFixture[str]) -> None:
    """CL-70: exit 2."""
    assert cli.main(line.split()) == 2
    assert message in capfd.readouterr().err


def test_a_topic_of_the_users_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """CL-70: with the servers and the log-in of a file, by names that both clients have."""
    file = tmp_path / "c.properties"
    file.write_text(
        "bootstrap.servers=b1:9096,b2\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=app\nsasl.password=s3cr3t\ngroup.id=other\n"
    )
    seen: list[DemoOptions] = []
    monkeypatch.setattr("kfast.cli.demo.run_demo", seen.append)
    monkeypatch.setenv("PASSWORD", "s3cr3t")
    words = ["demo", "orders", "-F", str(file), "-X", "client.id=x"]
    assert cli.main(words) == 0
    assert cli.main([*words, "-X", "sasl.password=env:PASSWORD"]) == 0
    options, same = seen
    assert same == options
    assert (options.topic, options.bootstrap_servers) == ("orders", "b1:9096,b2:9092")
    assert options.config == {
        "bootstrap.servers": "b1:9096,b2:9092",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "app",
        "sasl.password": "s3cr3t",
        "client.id": "x",
    }
