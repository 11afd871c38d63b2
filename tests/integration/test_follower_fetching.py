"""Reading from a follower in the consumer's own rack (KIP-392), on two brokers of its own.

With one of two controllers held or gone there is no quorum, so no other leader can be elected:
what is read while the leader is held can only come from the follower.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from kfast import TopicPartition
from kfast.local.local_kafka import LocalKafka
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import Reading, assigned, leader_of

pytestmark = pytest.mark.integration

COUNT: Final = 5_000
RACKS: Final = {
    "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "config.providers": "file",
    "config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
    # Each node's own id, out of its own settings in its working folder.
    "broker.rack": "${file:server.properties:node.id}",
}
SMALL: Final = {
    "max_partition_fetch_bytes": 20_000,
    "fetch_max_bytes": 20_000,
    "buffer_memory_bytes": 100_000,
    "max_poll_records": 100,
}


@pytest.fixture
def racks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKafka]:
    """Two nodes, each in the rack of its own number."""
    (tmp_path / "server.properties").write_text("node.id=1\n")  # where the data are prepared
    monkeypatch.chdir(tmp_path)
    with LocalKafka(2, config=RACKS, java_options=("-XX:TieredStopAtLevel=1",)) as cluster:
        yield cluster


def test_the_follower_of_the_own_rack(racks: LocalKafka) -> None:
    """F-17, F-11: the follower in the consumer's rack serves it while the leader is held."""
    topic = "racks"
    tp = TopicPartition(topic, 0)
    racks.create_topic(topic, 1, 2)
    servers = racks.bootstrap_servers
    values = [b"%d" % number * 30 for number in range(COUNT)]
    KafkaWriter(servers).write(topic, values, batch_records=50)
    leader = leader_of(servers, tp)
    follower = 3 - leader
    with assigned(servers, [tp], client_rack=str(follower), **SMALL) as consumer:
        reading = Reading(consumer).until_count(500)
        racks.pause_node(leader)
        try:
            # More than could be buffered before: it comes from the follower.
            reading.until_count(4_000)
        finally:
            racks.resume_node(leader)
        reading.until({tp: COUNT})
        assert reading.offsets(tp) == list(range(COUNT))
        assert reading.values(tp) == values
