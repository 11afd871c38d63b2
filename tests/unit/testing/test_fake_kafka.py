"""The public face of `kfast.testing`: what its document shows, and what it does not load."""

from __future__ import annotations

from typing import Any

import pytest

import kfast
from kfast.errors import ErrorCode
from kfast.protocol.api_keys import ApiKey
from kfast.testing import FakeKafka
from kfast.testing.faults import Delay, PartitionError
from kfast.testing.sasl import SaslListener, SaslSession
from tests.document_examples import examples
from tests.imported_modules import among, last_line_of


def test_the_document() -> None:
    (example,) = examples("docs/how-to/testing.md", "A Kafka in a test")
    names: dict[str, Any] = {}
    exec(example, names)
    names["test_orders_are_read_and_committed"]()


def test_faults_of_the_document() -> None:
    (example,) = examples("docs/how-to/testing.md", "When something goes wrong")
    names: dict[str, Any] = {}
    exec(example, names)
    kafka = names["kafka"]
    kafka.create_topic("t")
    kafka.produce("t", b"value")
    with kafka:
        records = kfast.read_topic("t", bootstrap_servers=kafka.bootstrap_servers)
        assert records.count() == 1
    rules = kafka.cluster.faults.rules
    assert [rule.faults for rule in rules] == [
        (PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER),),
        (Delay(500),),
    ]
    assert all(rule.hits for rule in rules)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_groups_of_both_protocols(protocol: Any) -> None:
    with FakeKafka() as kafka:
        kafka.create_topic("t", partitions=2)
        with kfast.KafkaConsumer(
            "t",
            bootstrap_servers=kafka.bootstrap_servers,
            group_id="g",
            group_protocol=protocol,
            enable_auto_commit=False,
        ) as consumer:
            while len(consumer.assignment()) < 2:
                consumer.poll(timeout_ms=50)
            offsets = {kfast.TopicPartition("t", number): number + 5 for number in (0, 1)}
            consumer.commit(offsets)
        assert kafka.committed("g") == offsets


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("token", [b"", b"\xff", b"n,,\x01", b"a\0b", b"n,,n=app"])
def test_a_malformed_token_is_refused(mechanism: str, token: bytes) -> None:
    session = SaslSession(SaslListener())
    assert session.handshake(mechanism) == 0
    error, _, answer, _ = session.authenticate(token, 0)
    assert (error, answer) == (ErrorCode.SASL_AUTHENTICATION_FAILED, b"")


def test_a_record_as_it_was_produced() -> None:
    with FakeKafka(release="3.9") as kafka:
        kafka.create_topic("t", partitions=2)
        kafka.produce("t", None, partition=1)
        offset = kafka.produce(
            "t", b"v", key=b"k", partition=1, headers=[("h", b"1")], timestamp_ms=77
        )
        (batch,) = kfast.read_topic("t", bootstrap_servers=kafka.bootstrap_servers).values()
        assert offset == 1
        tombstone, record = batch
        assert tombstone.value is None
        assert (record.key, record.value, record.timestamp) == (b"k", b"v", 77)
        assert list(record.headers) == [("h", b"1")]


def test_an_exception_in_the_server_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    kafka = FakeKafka()

    def fail(node_id: int) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(kafka.cluster, "api_versions", fail)
    with (
        pytest.raises(ZeroDivisionError),
        kafka,
        kfast.KafkaConsumer(bootstrap_servers=kafka.bootstrap_servers) as consumer,
        pytest.raises(kfast.errors.KafkaError),
    ):
        consumer.topics(timeout_ms=500)


def test_no_test_framework_is_needed() -> None:
    """The package is imported without pytest, and without what reads from Kafka."""
    program = "import json, sys, kfast.testing\nprint(json.dumps(sorted(sys.modules)))"
    modules = last_line_of(program)
    assert among(modules, "kfast.testing")
    assert among(modules, "pytest", "tests", "kfast.client", "kfast.network", "numpy") == []


def test_a_fault_hits_one_request_and_another_api_none() -> None:
    kafka = FakeKafka()
    rule = kafka.cluster.faults.add(Delay(1), api=ApiKey.SYNC_GROUP)
    kafka.create_topic("t")
    with kafka:
        kfast.read_topic("t", bootstrap_servers=kafka.bootstrap_servers)
    assert (rule.seen, rule.hits) == (0, 0)
