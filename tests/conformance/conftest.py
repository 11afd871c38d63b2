"""Finds the Java client whose schemas kfast is compared with."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kfast.errors import KafkaError
from kfast.local.local_kafka import resolve_jars
from tests.conformance.json_schema import Schemas


@pytest.fixture(scope="session")
def kafka_clients_jar() -> Path:
    """The kafka-clients jar of the Kafka that LocalKafka runs, fetched if need be.

    Without it the tests are skipped, but fail in CI: a comparison that is never made must not look
    like one that succeeded.
    """
    try:
        jars = resolve_jars()
    except KafkaError as error:
        message = f"no kafka-clients jar to compare with: {error}"
        if os.environ.get("CI", "").lower() in {"1", "true"}:
            pytest.fail(message)
        pytest.skip(message)
    (jar,) = (path for path in jars if path.name.startswith("kafka-clients-"))
    return jar


@pytest.fixture(scope="session")
def schemas(kafka_clients_jar: Path) -> Schemas:
    """Kafka's own message schemas."""
    return Schemas(kafka_clients_jar)
