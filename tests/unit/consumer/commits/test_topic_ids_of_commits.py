"""Commits and the topic ids that their offsets were read under."""

from __future__ import annotations

import logging

import pytest

from kfast.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from kfast.protocol.messages.offset_commit import OffsetCommitRequest
from kfast.types import OffsetAndMetadata, OffsetOfTopic, format_uuid
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.commits.committing import assigned
from tests.unit.consumer.fakes import T0, T1
from tests.unit.consumer.group.coordinator_harness import LEADERS
from tests.unit.consumer.group.harness import GroupHarness

OLD, NEW = topic_id_of("t"), topic_id_of("t", 1)


def create_anew(harness: GroupHarness) -> None:
    harness.metadata.cluster = cluster(LEADERS, incarnation=1)


def test_offsets_of_an_earlier_topic_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """R-08, R-10: those without an id belong to the topic of now; one warning for all commits."""
    harness = assigned()
    create_anew(harness)
    for _ in range(2):
        offsets = {T0: OffsetOfTopic.of(7, "", 5, OLD), T1: OffsetAndMetadata(8)}
        result = harness.commits.commit(offsets, harness.now, harness.now + 1_000)
        request = harness.take(OffsetCommitRequest)
        assert harness.committing(request) == {T1: 8}
        assert request.message.topics[0].topic_id == NEW  # type: ignore[attr-defined]
        harness.reply_commit(request)
        assert result.is_done
    (text,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    assert all(part in text for part in (str(T0), format_uuid(OLD), format_uuid(NEW)))


def test_a_commit_with_nothing_left_ends_in_its_turn() -> None:
    """R-08, C-02: results come in the order of the commits."""
    harness = assigned()
    order: list[str] = []
    harness.commit({T0: 1}, None).add_callback(lambda _: order.append("first"))
    request = harness.take(OffsetCommitRequest)
    last = harness.commit({T0: 2}, None)
    create_anew(harness)
    last.add_callback(lambda _: order.append("last"))
    harness.turn()
    assert order == [], "the first one is in flight"
    harness.advance(harness.config.request_timeout_ms + 1)
    assert order == [], "it has nothing to time out"
    harness.reply_commit(request)
    harness.turn()
    assert order == ["first", "last"]
    assert last.value == {}
    assert harness.commits.metrics.commits == 1


def test_a_commit_is_not_sent_again_under_a_new_id() -> None:
    """R-08: also one whose offsets nobody has read, once it was made."""
    harness = assigned()
    result = harness.commit({T0: 1})
    harness.reply_commit(harness.take(OffsetCommitRequest), 100)
    create_anew(harness)
    harness.advance(1_000)
    assert harness.nothing_sent(OffsetCommitRequest)
    assert result.value == {}


def test_an_id_that_the_metadata_does_not_have_is_sent() -> None:
    """R-09: the coordinator knows whether it is gone; by its name only if that is the only way."""
    harness = assigned()
    harness.metadata.cluster = cluster({})
    harness.commits.commit({T0: OffsetOfTopic.of(7, "", 5, OLD)}, harness.now, harness.now + 60_000)
    (request,) = harness.waiting(OffsetCommitRequest)
    assert request.message.topics[0].topic_id == OLD  # type: ignore[attr-defined]
    assert request.max_version == 10


@pytest.mark.parametrize("wants_all_topics", [False, True])
def test_a_topic_is_gone_when_the_metadata_has_dropped_it(wants_all_topics: bool) -> None:
    """R-09: a response without it is not enough, as long as the topic is kept."""
    harness = assigned()
    harness.subscriptions.unsubscribe()
    metadata = harness.metadata
    metadata.set_topics(None if wants_all_topics else ["t"])
    response = MetadataResponse(
        brokers=[MetadataResponseBroker(2, "b2", 9092)],
        topics=[] if wants_all_topics else [MetadataResponseTopic(3, "t")],
        cluster_id="cluster",
    )
    for is_dropped in (False, False, True):
        metadata.update(response, harness.now)
        assert ("t" not in metadata.cluster.topics) is is_dropped
        offsets = {T0: OffsetOfTopic.of(7, "", 5, OLD)}
        result = harness.commits.commit(offsets, harness.now, harness.now + 1_000)
        harness.turn()
        assert result.is_done is is_dropped
        if not is_dropped:
            harness.reply_commit(harness.take(OffsetCommitRequest))
    assert result.value == {}
