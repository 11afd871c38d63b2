"""LocalKafka itself, with confluent-kafka and Kafka's own tools as its clients."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

import psutil
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from kfast.errors import IllegalStateError, LocalKafkaError
from kfast.local.acl import Acl
from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import ConsoleConsumer, TopicFactory
from tests.integration.kafka_writer import CODECS, KafkaWriter, Message
from tests.integration.secured_clients import confluent_config

QUICK = ("-XX:TieredStopAtLevel=1",)


def consume(servers: str, topic: str, count: int, isolation: str = "read_uncommitted") -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "test",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        messages = consumer.consume(count, 20.0)
        return [(message.value() or b"").decode() for message in messages]
    finally:
        consumer.close()


def test_topics_are_there_at_once_and_gone_at_once(kafka: LocalKafka) -> None:
    kafka.create_topic("made", partitions=3, config={"cleanup.policy": "compact"})
    described = kafka.run_tool(
        "org.apache.kafka.tools.TopicCommand",
        *("--bootstrap-server", kafka.bootstrap_servers, "--describe", "--topic", "made"),
    )
    assert "PartitionCount: 3" in described
    assert "cleanup.policy=compact" in described
    with pytest.raises(LocalKafkaError, match='cannot create topic "made"') as raised:
        kafka.create_topic("made")
    assert "already exists" in str(raised.value)
    kafka.delete_topic("made")
    kafka.create_topic("made", partitions=1)
    kafka.delete_topic("made")
    with pytest.raises(LocalKafkaError, match='cannot delete topic "made"'):
        kafka.delete_topic("made")


def test_topics_without_confluent_kafka(kafka: LocalKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka.admin", None)
    kafka.create_topic("by-tool", partitions=2, config={"retention.ms": 1000})
    with pytest.raises(LocalKafkaError, match="exit status 1") as raised:
        kafka.create_topic("by-tool")
    assert "already exists" in str(raised.value)
    kafka.delete_topic("by-tool")


@pytest.mark.parametrize("codec", CODECS)
def test_records_of_every_codec(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, codec: str
) -> None:
    topic = new_topic()
    values = [f"value-{number}" for number in range(100)]
    offsets = writer.write(topic, [value.encode() for value in values], codec=codec)
    assert offsets == list(range(100))
    assert consume(kafka.bootstrap_servers, topic, 100) == values


def test_transactions_commit_and_abort(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    topic = new_topic()
    with writer.transaction("first") as transaction:
        transaction.write(topic, [b"kept"])
    with writer.transaction("second", commit=False) as transaction:
        transaction.write(topic, [b"aborted"])
    writer.write(topic, [b"last"])
    servers = kafka.bootstrap_servers
    assert consume(servers, topic, 2, "read_committed") == ["kept", "last"]
    assert consume(servers, topic, 3) == ["kept", "aborted", "last"]


def test_kafkas_own_consumer_reads_what_was_written(
    new_topic: TopicFactory, writer: KafkaWriter, console_consumer: ConsoleConsumer
) -> None:
    topic = new_topic()
    message = Message(b"v", b"k", [("h", b"1"), ("h", None)], timestamp_ms=1_700_000_000_000)
    writer.write(topic, [message])
    properties = [f"print.{what}=true" for what in ("key", "headers", "timestamp", "offset")]
    options = [word for text in properties for word in ("--formatter-property", text)]
    (line,) = console_consumer(topic, 1, *options)
    assert line == "CreateTime:1700000000000\tOffset:0\th:1,h:null\tk\tv"


def test_a_tool_that_fails_says_why(kafka: LocalKafka) -> None:
    with pytest.raises(LocalKafkaError) as raised:
        kafka.run_tool("org.apache.kafka.tools.TopicCommand", "--no-such-option")
    assert "no-such-option" in str(raised.value)


def test_without_an_authorizer_there_are_no_rules(kafka: LocalKafka) -> None:
    with pytest.raises(LocalKafkaError, match="cannot add ACLs") as raised:
        kafka.add_acl(Acl("User:app", "READ", topic="t"))
    assert str(raised.value).endswith("try: LocalKafka(acls=[]) has an authorizer")


def test_a_node_restarts_on_its_port_and_data(healed_kafka3: LocalKafka) -> None:
    cluster = healed_kafka3
    cluster.create_topic("survivor", partitions=3, replication_factor=3)
    writer = KafkaWriter(cluster.bootstrap_servers)
    writer.write("survivor", [b"before"])
    servers = cluster.bootstrap_servers
    cluster.kill_node(2)
    assert set(cluster.pids) == {1, 3}
    writer.write("survivor", [b"during"])
    cluster.restart_node(2)
    assert set(cluster.pids) == {1, 2, 3}
    assert cluster.bootstrap_servers == servers
    cluster.stop_node(1)
    writer.write("survivor", [b"after"])
    cluster.restart_node(1)
    assert consume(cluster.address(2), "survivor", 3) == ["before", "during", "after"]


def test_a_paused_node_does_not_answer(healed_kafka3: LocalKafka) -> None:
    cluster = healed_kafka3
    cluster.pause_node(3)
    assert psutil.Process(cluster.pids[3]).status() == psutil.STATUS_STOPPED
    assert "paused" in repr(cluster)
    cluster.resume_node(3)
    assert psutil.Process(cluster.pids[3]).status() != psutil.STATUS_STOPPED


def test_data_is_kept_in_a_folder_of_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    security = (folder, ("PLAINTEXT", "SASL_SSL"))
    with secured(*security, "first") as kafka:
        kafka.create_topic("kept")
        KafkaWriter(kafka.bootstrap_servers).write("kept", [b"still here"])
        kafka.set_server_certificate("expired")
    with secured(*security, "second") as kafka:
        assert consume(kafka.bootstrap_servers, "kept", 1) == ["still here"]
        assert "Kafka Server started" in kafka.log_tail(1, lines=1000)
        # Passwords and certificates are those of this run.
        admin = AdminClient(confluent_config(kafka, "SASL_SSL", "app"))
        assert "kept" in admin.list_topics(timeout=20).topics
    assert (folder / "node-1" / "data" / "meta.properties").exists()


def secured(folder: Path, security: Sequence[str], password: str) -> LocalKafka:
    users = {"app": password}
    return LocalKafka(log_dir=folder, java_options=QUICK, security=security, users=users)


def test_a_broker_that_cannot_start_shows_its_log() -> None:
    kafka = LocalKafka(config={"log.segment.bytes": "many"}, java_options=QUICK)
    with pytest.raises(LocalKafkaError) as raised:
        kafka.start()
    assert "log.segment.bytes" in str(raised.value)
    with pytest.raises(IllegalStateError, match="does not run"):
        _ = kafka.bootstrap_servers


PROGRAM = """
    import sys, time
    from kfast.local.local_kafka import LocalKafka
    kafka = LocalKafka(java_options=("-XX:TieredStopAtLevel=1",)).start()
    state = kafka._state
    print(state.folder, state.reaper.pid, *kafka.pids.values(), flush=True)
    {ending}
    time.sleep(1000)
"""


@pytest.mark.parametrize(
    ("ending", "act"),
    [
        ("sys.exit()", None),
        ("raise ValueError", None),
        ("del kafka, state; import gc; gc.collect(); print(end='', flush=True)", "close"),
        ("import os; os._exit(3)", None),
        ("", signal.SIGINT),
        ("", signal.SIGTERM),
        ("", signal.SIGKILL),
        ("kafka.pause_node(1); print('paused', flush=True)", signal.SIGKILL),
    ],
    ids=["exit", "raise", "collected", "abrupt", "interrupt", "terminate", "kill", "kill-paused"],
)
def test_nothing_stays_behind(ending: str, act: signal.Signals | str | None) -> None:
    program = textwrap.dedent(PROGRAM).format(ending=ending)
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with process:
        assert process.stdout is not None
        folder, *numbers = process.stdout.readline().split()
        left = [found for number in numbers if (found := find_process(int(number)))]
        if isinstance(act, signal.Signals):
            if "paused" in ending:
                process.stdout.readline()
            process.send_signal(act)
        if act == "close":  # the program goes on, the cluster must not
            _, alive = psutil.wait_procs(left, timeout=20)
            assert not alive
            process.kill()
        process.wait(30)
    _, alive = psutil.wait_procs(left, timeout=20)
    assert not alive
    for _ in range(2000):  # the folder goes after the processes
        if not Path(folder).exists():
            break
        psutil.wait_procs([psutil.Process()], timeout=0.01)
    assert not Path(folder).exists()


def find_process(number: int) -> psutil.Process | None:
    try:
        return psutil.Process(number)
    except psutil.NoSuchProcess:
        return None
