"""Logging in with a password: PLAIN and SCRAM."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kfast import KafkaConsumer, TopicPartition
from kfast.errors import SaslAuthenticationError
from kfast.local.local_kafka import LocalKafka
from kfast.testing import FakeKafka
from kfast.testing.sasl import SaslListener
from tests.integration.conftest import USERS
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import unique, until

PROTOCOL = "SASL_PLAINTEXT"
Login = Callable[[str, str], dict[str, Any]]

passwords = pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])


@pytest.fixture(scope="module")
def real_login(secured_kafka: LocalKafka) -> tuple[Login, str]:
    topic = unique("login")
    secured_kafka.create_topic(topic)
    KafkaWriter(secured_kafka.bootstrap("PLAINTEXT")).write(topic, [b"hello"])
    return lambda user, mechanism: secured_kafka.client_config(PROTOCOL, user, mechanism), topic


@pytest.fixture(scope="module")
def fake_login() -> Iterator[tuple[Login, str]]:
    with FakeKafka() as kafka:
        kafka.cluster.sasl = SaslListener(users=USERS)
        kafka.create_topic("login")
        kafka.produce("login", b"hello")

        def login(user: str, mechanism: str) -> dict[str, Any]:
            return {
                "bootstrap_servers": kafka.bootstrap_servers,
                "security_protocol": PROTOCOL,
                "sasl_mechanism": mechanism,
                "sasl_plain_username": user,
                "sasl_plain_password": USERS[user],
            }

        yield login, "login"


@pytest.fixture(params=["real_login", "fake_login"])
def secured(request: pytest.FixtureRequest) -> tuple[Login, str]:
    """Settings of a consumer by user and mechanism, and a topic with one record."""
    login: tuple[Login, str] = request.getfixturevalue(request.param)
    return login


@passwords
@pytest.mark.parametrize("user", ["app", "odd,na=me"])
def test_a_password_logs_in(secured: tuple[Login, str], mechanism: str, user: str) -> None:
    """S-04: a comma and an equals sign in the name, a roman numeral in the password."""
    login, topic = secured
    with KafkaConsumer(**login(user, mechanism), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = until(lambda: consumer.poll(200), "the record")
        assert [row.value for batch in records.values() for row in batch] == [b"hello"]


@passwords
@pytest.mark.parametrize("user", ["app", "nosuchuser"])
def test_a_wrong_password_is_refused(secured: tuple[Login, str], mechanism: str, user: str) -> None:
    """S-06"""
    settings = secured[0]("app", mechanism)
    settings |= {"sasl_plain_username": user, "sasl_plain_password": "wrong"}
    with (
        KafkaConsumer(**settings) as consumer,
        pytest.raises(SaslAuthenticationError) as caught,
    ):
        consumer.topics()
    lines = str(caught.value).splitlines()
    assert lines[0].startswith(f'login failed for user "{user}" ({mechanism}) on ')
    assert lines[1].endswith("SASL_AUTHENTICATION_FAILED (error 58)")
    assert lines[2].startswith('found: "Authentication failed')
    assert lines[3] == "try: check sasl_plain_username and sasl_plain_password"
