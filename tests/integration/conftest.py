"""Real brokers for the tests in this folder, shared by all of them and started when needed.

``kafka`` is one node, ``kafka3`` is three, for failover, replicas and leader moves. A test that
kills or pauses a node of ``kafka3`` gets it through ``healed_kafka3``, which puts it right again.

``secured_kafka`` is one node with a listener for every security protocol, users and an authorizer;
``secured_clients`` has other clients' settings for it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kfast.local.acl import Acl
from kfast.local.local_kafka import LocalKafka
from tests.integration import kerberos
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import CONSOLE_CONSUMER, QUICK_JAVA

TopicFactory = Callable[..., str]
ConsoleConsumer = Callable[..., list[str]]

HERE = Path(__file__).parent
BROKER_CONFIG = {
    # Compaction, retention and expiry at a test's pace.
    "log.cleaner.backoff.ms": 200,
    "log.cleaner.min.cleanable.ratio": 0.01,
    "log.initial.task.delay.ms": 200,
    "log.retention.check.interval.ms": 500,
    "offsets.retention.check.interval.ms": 500,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.consumer.min.session.timeout.ms": 1000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.session.timeout.ms": 5000,
}
USERS = {"app": 'S3cr3t "app" \\ Ⅸ', "noacl": "S3cr3t-noacl", "odd,na=me": "S3cr3t-odd"}
"""Of ``secured_kafka``: ``app`` and ``odd,na=me`` may do everything, ``noacl`` nothing."""
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
"""Of ``secured_kafka``, and GSSAPI where it can be."""
SHORT_SESSIONS_MS = 2000
"""Sessions over SASL_PLAINTEXT with SCRAM-SHA-256; others have no end."""
LOG_REFUSALS = "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.network.Selector=info"
"""Has ``secured_kafka`` log each log-in and handshake that it refuses: "Failed authentication"."""
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test of this folder."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.integration)


def _cluster(nodes: int) -> Iterator[LocalKafka]:
    with LocalKafka(nodes, config=BROKER_CONFIG, java_options=QUICK_JAVA) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def one_node() -> Iterator[LocalKafka]:
    """A cluster of one node, also for tests whose ``kafka`` may be another one."""
    yield from _cluster(1)


@pytest.fixture
def kafka(one_node: LocalKafka) -> LocalKafka:
    """A cluster of one node."""
    return one_node


@pytest.fixture(scope="package")
def kafka3() -> Iterator[LocalKafka]:
    """A cluster of three nodes; leave them as they are."""
    yield from _cluster(3)


@pytest.fixture
def healed_kafka3(kafka3: LocalKafka) -> Iterator[LocalKafka]:
    """The cluster of three nodes, to be maltreated: after the test every node runs again."""
    yield kafka3
    for node_id in kafka3.node_ids:
        kafka3.resume_node(node_id)
    for node_id in kafka3.node_ids:
        if node_id not in kafka3.pids:
            kafka3.restart_node(node_id)


@pytest.fixture(scope="package")
def _kdc_if_installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kerberos.Kdc | None]:
    if not kerberos.is_installed():
        yield None
        return
    kdc = kerberos.Kdc(tmp_path_factory.mktemp("kdc"))
    yield kdc
    kdc.close()


@pytest.fixture(scope="package")
def kdc(_kdc_if_installed: kerberos.Kdc | None) -> kerberos.Kdc:
    """The realm of ``secured_kafka``; a machine without Kerberos skips the test."""
    if _kdc_if_installed is None:
        pytest.skip("no krb5kdc on this machine: GSSAPI was not tested")
    return _kdc_if_installed


@pytest.fixture(scope="package")
def secured_kafka(_kdc_if_installed: kerberos.Kdc | None) -> Iterator[LocalKafka]:
    """A cluster of one node with every security protocol, ``USERS`` and an authorizer.

    A test that changes something (certificate, client authentication, passwords, ACLs of these
    users) puts it right again; ACLs for users of its own may stay.
    """
    kdc = _kdc_if_installed
    everything: list[dict[str, str]] = [{"topic": "*"}, {"group": "*"}, {"transactional_id": "*"}]
    short = "listener.name.sasl_plaintext.scram-sha-256.connections.max.reauth.ms"
    with LocalKafka(
        security=("SASL_SSL", "SASL_PLAINTEXT", "SSL"),
        users=USERS,
        mechanisms=(*MECHANISMS, *(() if kdc is None else ("GSSAPI",))),
        acls=[
            Acl(f"User:{user}", "ALL", **resource)
            for user in ("app", "odd,na=me")
            for resource in (*everything, {})
        ],
        config={
            **BROKER_CONFIG,
            short: SHORT_SESSIONS_MS,
            "num.network.threads": 1,  # each takes a quarter of a second to get a certificate
            **({} if kdc is None else kdc.broker_config("SASL_PLAINTEXT", "SASL_SSL")),
        },
        java_options=[*QUICK_JAVA, LOG_REFUSALS, *(() if kdc is None else kdc.java_options)],
    ) as cluster:
        yield cluster


@pytest.fixture
def new_secured_topic(secured_kafka: LocalKafka) -> TopicFactory:
    """Make a topic of its own on ``secured_kafka``."""
    return _topic_factory(secured_kafka, 1)


@pytest.fixture
def secured_writer(secured_kafka: LocalKafka) -> KafkaWriter:
    """Write records to ``secured_kafka``, over its listener without security."""
    return KafkaWriter(secured_kafka.bootstrap("PLAINTEXT"))


@pytest.fixture
def new_topic(kafka: LocalKafka) -> TopicFactory:
    """Make a topic of its own on ``kafka``: ``new_topic(partitions=1, **config) -> name``."""
    return _topic_factory(kafka, 1)


@pytest.fixture
def new_topic3(kafka3: LocalKafka) -> TopicFactory:
    """Make a topic with three replicas on ``kafka3``."""
    return _topic_factory(kafka3, 3)


def _topic_factory(cluster: LocalKafka, default_replication_factor: int) -> TopicFactory:
    test = os.environ.get("PYTEST_CURRENT_TEST", "test").rpartition("::")[2].split(" ")[0]
    prefix = re.sub(r"[^\w-]+", "-", test)[:80]

    def make(
        partitions: int = 1, replication_factor: int = default_replication_factor, **config: Any
    ) -> str:
        name = f"{prefix}-{next(_numbers)}"
        settings = {key.replace("_", "."): value for key, value in config.items()}
        cluster.create_topic(name, partitions, replication_factor, settings)
        return name

    return make


@pytest.fixture
def writer(kafka: LocalKafka) -> KafkaWriter:
    """Write records to ``kafka``."""
    return KafkaWriter(kafka.bootstrap_servers)


@pytest.fixture
def writer3(kafka3: LocalKafka) -> KafkaWriter:
    """Write records to ``kafka3``."""
    return KafkaWriter(kafka3.bootstrap_servers)


@pytest.fixture
def console_consumer(kafka: LocalKafka) -> ConsoleConsumer:
    """Read a topic of ``kafka`` with Kafka's own console consumer, as lines."""

    def read(topic: str, count: int, *options: str) -> list[str]:
        text = kafka.run_tool(
            CONSOLE_CONSUMER,
            *("--bootstrap-server", kafka.bootstrap_servers, "--topic", topic),
            *("--from-beginning", "--max-messages", str(count), "--timeout-ms", "20000"),
            *options,
        )
        return text.splitlines()

    return read
