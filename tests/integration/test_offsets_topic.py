"""A broker that cannot create the topic of committed offsets."""

from __future__ import annotations

import pytest

from kfast import KafkaConsumer, LocalKafka
from kfast.errors import KafkaTimeoutError
from tests.integration.support import QUICK_JAVA


def test_an_offsets_topic_that_cannot_be_created() -> None:
    """Y-03: one broker, and a replication factor of three: the reason, and what to do."""
    settings = {"offsets.topic.replication.factor": 3}
    with LocalKafka(config=settings, java_options=QUICK_JAVA) as cluster:
        cluster.create_topic("t")
        for protocol in ("classic", "consumer"):
            with KafkaConsumer(
                "t",
                bootstrap_servers=cluster.bootstrap_servers,
                group_id="g",
                group_protocol=protocol,
                consumer_timeout_ms=1_000,
            ) as consumer:
                with pytest.raises(KafkaTimeoutError) as caught:
                    next(consumer)
                assert "COORDINATOR_NOT_AVAILABLE" in str(consumer.health().problem)
            assert "COORDINATOR_NOT_AVAILABLE" in (caught.value.cause or "")
            assert "offsets.topic.replication.factor=1" in (caught.value.hint or "")
