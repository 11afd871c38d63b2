"""Commits through the public API: what is committed, when, and who is told."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from typing import Any

import pytest

import kfast
from kfast import OffsetAndMetadata, TopicPartition
from kfast.errors import (
    ConfigurationError,
    IllegalStateError,
    KafkaError,
    KafkaTimeoutError,
    RebalanceInProgressError,
)
from kfast.protocol.api_keys import ApiKey
from kfast.testing.faults import Delay, NeverAnswer, PartitionError, TopLevelError
from tests.end_to_end.groups import (
    GROUP,
    Notes,
    cluster_of,
    committed,
    join,
    member,
    poll_until,
    read_all,
)
from tests.end_to_end.stage import Stage, eventually

MakeStage = Callable[..., Stage]

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)

MANUAL: dict[str, Any] = {"enable_auto_commit": False}
AT_ONCE: dict[str, Any] = {"auto_commit_interval_ms": 0}
"""Auto-commit in every poll."""


def by_hand(stage: Stage, **configs: Any) -> kfast.KafkaConsumer:
    """Return a consumer that reads t-0 by hand and commits for the group."""
    consumer = stage.consumer(group_id=GROUP, **configs)
    consumer.assign([T0])
    return consumer


# --- commit ---------------------------------------------------------------------------------------


def test_commit_stores_what_was_handed_out(make_stage: MakeStage) -> None:
    """C-01, C-03, C-11, P-16: the next offset with its epoch; nothing for nothing."""
    cluster = cluster_of()
    consumer = by_hand(make_stage(cluster), max_poll_records=4, **MANUAL)
    consumer.commit()
    assert cluster.requests.select(ApiKey.OFFSET_COMMIT) == []
    assert consumer.poll(timeout_ms=10_000).count() == 4
    consumer.commit()
    assert committed(cluster) == {0: 4}
    assert consumer.committed(T0) == 4
    assert consumer.committed(T0, metadata=True) == OffsetAndMetadata(4, "", 0)
    assert consumer.committed([T0, T1]) == {T0: OffsetAndMetadata(4, "", 0), T1: None}
    assert consumer.committed(T1) is None
    (request,) = cluster.requests.select(ApiKey.OFFSET_COMMIT)
    assert request.message.member_id == ""
    assert request.message.generation_id_or_member_epoch == -1


def test_commit_counts_what_iteration_has_yielded(make_stage: MakeStage) -> None:
    """C-03, C-04: never more than was handed out; a batch's own next offsets are exact."""
    cluster = cluster_of()
    consumer = by_hand(make_stage(cluster), **MANUAL)
    for record in consumer:
        if record.offset == 3:
            break
    consumer.commit()
    assert committed(cluster) == {0: 4}
    rest = consumer.poll(timeout_ms=0, max_records=2)
    consumer.commit(rest.next_offsets())
    assert committed(cluster) == {0: 6}
    consumer.commit()
    assert committed(cluster) == {0: 6}


@pytest.mark.parametrize(
    ("offsets", "kind"),
    [
        ({T0: -1}, IllegalStateError),
        ({T0: OffsetAndMetadata(-5)}, IllegalStateError),
        ({T0: "7"}, ConfigurationError),
        ({T0: True}, ConfigurationError),
        ({T0: OffsetAndMetadata(1, b"x")}, ConfigurationError),  # type: ignore[arg-type]
        ({T0: OffsetAndMetadata(1, "", "7")}, ConfigurationError),  # type: ignore[arg-type]
        ({T0: OffsetAndMetadata(1, "", 1 << 31)}, ConfigurationError),
        ({"t": 7}, ConfigurationError),
        ([(T0, 7)], ConfigurationError),
    ],
)
def test_bad_offsets_are_refused_here(
    make_stage: MakeStage, offsets: Any, kind: type[KafkaError]
) -> None:
    """C-10, R-13: before anything is sent."""
    cluster = cluster_of()
    consumer = by_hand(make_stage(cluster), **MANUAL)
    for call in (consumer.commit, consumer.commit_async):
        with pytest.raises(kind):
            call(offsets)
    assert cluster.requests.select(ApiKey.OFFSET_COMMIT) == []


def test_a_leader_epoch_of_none_is_an_unknown_one(make_stage: MakeStage) -> None:
    """R-13: kafka-python gives it for records of old formats."""
    cluster = cluster_of()
    consumer = by_hand(make_stage(cluster), **MANUAL)
    consumer.commit({T0: OffsetAndMetadata(3, "", None)})  # type: ignore[arg-type]
    consumer.commit({T1: (4, None, None)})  # type: ignore[dict-item]
    assert committed(cluster) == {0: 3, 1: 4}


def test_commit_obeys_its_timeout_and_wakeup(make_stage: MakeStage) -> None:
    """C-02, L-03: told what was not committed; a wakeup ends the wait."""
    cluster = cluster_of()
    consumer = by_hand(make_stage(cluster), **MANUAL)
    consumer.poll(timeout_ms=10_000)
    consumer.commit()
    cluster.faults.add(NeverAnswer(), api=ApiKey.OFFSET_COMMIT, times=None)
    with pytest.raises(KafkaTimeoutError, match="t-0"):
        consumer.commit({T0: 2}, timeout_ms=200)
    asked = len(cluster.requests.select(ApiKey.OFFSET_COMMIT))

    def wake() -> None:
        cluster.requests.wait_for(lambda log: len(log.select(ApiKey.OFFSET_COMMIT)) > asked, 5)
        consumer.wakeup()

    timer = threading.Thread(target=wake)
    timer.start()
    with pytest.raises(kfast.errors.WakeupError):
        consumer.commit({T0: 3}, timeout_ms=60_000)
    timer.join(10)


# --- commit_async ---------------------------------------------------------------------------------


def test_callbacks_come_in_order_on_the_application_thread(make_stage: MakeStage) -> None:
    """C-02: once each, with offsets and error, before a later commit returns."""
    cluster = cluster_of()
    calls: list[tuple[int, bool]] = []
    threads: set[int] = set()

    def callback(offsets: dict[TopicPartition, OffsetAndMetadata], error: object) -> None:
        threads.add(threading.get_ident())
        calls.append((offsets[T0].offset, error is None))

    consumer = by_hand(make_stage(cluster), default_offset_commit_callback=callback, **MANUAL)
    consumer.poll(timeout_ms=10_000)
    cluster.faults.add(PartitionError(28), api=ApiKey.OFFSET_COMMIT, times=1)
    consumer.commit_async({T0: 1})
    consumer.commit_async({T0: OffsetAndMetadata(2)}, callback)
    consumer.commit_async({T0: 3})
    consumer.commit({T0: 4})
    assert calls == [(1, False), (2, True), (3, True)]
    assert threads == {threading.get_ident()}
    assert committed(cluster) == {0: 4}
    consumer.commit_async()
    consumer.close()
    assert len(calls) == 4


def test_a_callback_that_raises_loses_nothing(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    """N-15, C-02: it is logged, those after it still run."""
    cluster = cluster_of()
    calls: list[int] = []

    def broken(*_: object) -> None:
        calls.append(1)
        raise ValueError("a mistake of mine")

    consumer = by_hand(make_stage(cluster), **MANUAL)
    consumer.commit_async({T0: 1}, broken)
    consumer.commit_async({T0: 2}, lambda *_: calls.append(2))
    eventually(lambda: (consumer.poll(timeout_ms=20), len(calls) == 2)[1])
    assert calls == [1, 2]
    assert "callback of a commit failed" in caplog.text


def test_a_callback_left_waiting_is_told_at_close(make_stage: MakeStage) -> None:
    """C-02: once, with an error, when the coordinator never answered."""
    cluster = cluster_of()
    outcomes: list[object] = []
    consumer = by_hand(make_stage(cluster), **MANUAL)
    consumer.poll(timeout_ms=10_000)
    consumer.commit({T0: 1})
    cluster.faults.add(NeverAnswer(), api=ApiKey.OFFSET_COMMIT, times=None)
    consumer.commit_async({T0: 2}, lambda _, error: outcomes.append(error))
    consumer.close(timeout_ms=200)
    (error,) = outcomes
    assert isinstance(error, KafkaTimeoutError)


def test_interceptors_hear_of_every_commit(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    """O-05: after success only; what they raise is only logged."""
    cluster = cluster_of()
    heard: list[int] = []

    class Listening:
        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            heard.append(offsets[T0].offset)

    class Broken:
        def on_commit(self, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
            raise ValueError("broken")

        def close(self) -> None:
            raise ValueError("broken too")

    consumer = by_hand(
        make_stage(cluster), interceptor_classes=[Broken(), Listening], auto_commit_interval_ms=0
    )
    cluster.faults.add(PartitionError(28), api=ApiKey.OFFSET_COMMIT, times=1)
    with pytest.raises(KafkaError):
        consumer.commit({T0: 1})
    consumer.commit({T0: 2})
    consumer.commit_async({T0: 3})
    consumer.commit({T0: 4})
    assert heard == [2, 3, 4]
    read_all(consumer, 10)
    consumer.close()
    assert heard[-1] == 10
    assert "Broken.on_commit failed" in caplog.text
    assert "Broken.close failed" in caplog.text


# --- auto-commit ----------------------------------------------------------------------------------


def test_auto_commit_covers_earlier_polls_only(make_stage: MakeStage) -> None:
    """A-01, A-02: a crash while a batch is processed loses nothing of it."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), max_poll_records=4, **AT_ONCE)
    before = [{}, {0: 0}]
    for count, then in ((4, {0: 4}), (4, {0: 8}), (2, {0: 10})):
        assert consumer.poll(timeout_ms=10_000).count() == count
        assert committed(cluster) in before
        consumer.pause(T0)  # a commit waits for the one before
        eventually(lambda then=then: (consumer.poll(timeout_ms=0), committed(cluster) == then)[1])  # type: ignore[misc]
        consumer.resume(T0)
        before = [then]


def test_auto_commit_waits_for_its_interval(make_stage: MakeStage) -> None:
    """A-01: no commit before the interval is over, whatever is polled."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), auto_commit_interval_ms=3_600_000)
    read_all(consumer, 10)
    for _ in range(5):
        consumer.poll(timeout_ms=0)
    assert cluster.requests.select(ApiKey.OFFSET_COMMIT) == []
    consumer.assign([T0, T1])  # a change of the assignment is an occasion
    eventually(lambda: committed(cluster) == {0: 10})


def test_auto_commit_counts_what_iteration_has_yielded(make_stage: MakeStage) -> None:
    """A-02: close in the middle of a batch commits behind the record in hand."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster))
    for record in consumer:
        if record.offset == 6:
            break
    consumer.close()
    assert committed(cluster) == {0: 7}


def test_a_failed_auto_commit_is_logged_and_tried_again(
    make_stage: MakeStage, caplog: pytest.LogCaptureFixture
) -> None:
    """A-04: at warning, never out of poll."""
    cluster = cluster_of(1)
    consumer = by_hand(make_stage(cluster), **AT_ONCE)
    cluster.faults.add(PartitionError(12), api=ApiKey.OFFSET_COMMIT, times=2)
    read_all(consumer, 10)
    eventually(lambda: (consumer.poll(timeout_ms=20), committed(cluster) == {0: 10})[1])
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    failed = [r for r in warnings if r.getMessage().startswith("auto-commit failed")]
    assert len(failed) == 2


def test_auto_commit_comes_before_a_revocation(make_stage: MakeStage) -> None:
    """A-01, A-03, G-08: delivery has stopped, so nothing delivered is missing in it."""
    cluster = cluster_of(2, 200)
    stored: list[dict[int, int]] = []

    def act(name: str, partitions: list[TopicPartition], consumer: kfast.KafkaConsumer) -> None:
        if name == "revoked":
            stored.append(committed(cluster))
            assert [consumer.position(tp) for tp in partitions] == [
                stored[-1][tp.partition] for tp in partitions
            ]

    stage = make_stage(cluster)
    first = member(stage, listener=Notes(act), max_poll_records=7)
    seen: dict[int, list[int]] = {}
    for tp, batch in first.poll(timeout_ms=10_000).items():
        seen.setdefault(tp.partition, []).extend(batch.offsets.tolist())
    second = member(stage)
    later = poll_until(lambda: bool(stored), first, second)
    join(first, second)
    assert stored
    assert later is not None


def test_leaving_the_block_by_an_exception_commits_what_was_done(make_stage: MakeStage) -> None:
    """A-02: the batch of the last poll may not have been processed."""
    cluster = cluster_of(1)
    stage = make_stage(cluster)

    def work() -> None:
        with by_hand(stage, max_poll_records=5) as consumer:
            assert consumer.poll(timeout_ms=10_000).count() == 5
            assert consumer.poll(timeout_ms=10_000).count() == 5
            raise ValueError("while processing")

    with pytest.raises(ValueError, match="while processing"):
        work()
    assert committed(cluster) == {0: 5}
    with by_hand(stage) as consumer:
        assert read_all(consumer, 5) == {0: [5, 6, 7, 8, 9]}
    assert committed(cluster) == {0: 10}


def test_leaving_by_an_exception_takes_no_commit_back(make_stage: MakeStage) -> None:
    """C-05: what the application has committed itself stays."""
    cluster = cluster_of(1)

    def work() -> None:
        with by_hand(make_stage(cluster), max_poll_records=5) as consumer:
            consumer.poll(timeout_ms=10_000)
            consumer.commit({T0: 3})
            raise ValueError("while processing")

    with pytest.raises(ValueError, match="while processing"):
        work()
    assert committed(cluster) == {0: 3}


def test_a_commit_amid_a_rebalance_says_so(make_stage: MakeStage) -> None:
    """C-06: RebalanceInProgress while the others are waited for; poll goes on."""
    cluster = cluster_of()
    consumer = member(make_stage(cluster), **MANUAL)
    read_all(consumer, 20)
    rule = cluster.faults.add(Delay(60_000), api=ApiKey.JOIN_GROUP, times=None)
    consumer.enforce_rebalance()
    eventually(lambda: (consumer.poll(timeout_ms=20), rule.hits > 0)[1])
    with pytest.raises(RebalanceInProgressError):
        consumer.commit({T0: 3}, timeout_ms=5_000)
    outcomes: list[object] = []
    consumer.commit_async({T0: 3}, lambda _, error: outcomes.append(error))
    eventually(lambda: (consumer.poll(timeout_ms=20), bool(outcomes))[1])
    assert isinstance(outcomes[0], RebalanceInProgressError)


def test_a_bulk_read_commits_only_when_told_to(make_stage: MakeStage) -> None:
    """A-01, C-11: reading a range again and again leaves the group where it is."""
    cluster = cluster_of(1)
    servers = make_stage(cluster).server.bootstrap_servers
    assert kfast.read_topic("t", bootstrap_servers=servers, group_id=GROUP).count() == 10
    assert committed(cluster) == {}
    told: dict[str, Any] = {"group_id": GROUP, "enable_auto_commit": True}
    assert kfast.read_topic("t", bootstrap_servers=servers, **told).count() == 10
    assert committed(cluster) == {0: 10}


# --- metrics --------------------------------------------------------------------------------------


def test_metrics_of_a_member(make_stage: MakeStage) -> None:
    """O-03, O-06: records, bytes, latency, lag, lead, commits, joins; what is revoked vanishes."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    consumer = member(stage, **MANUAL)
    read_all(consumer, 20)
    consumer.commit()
    eventually(lambda: consumer.metrics()["consumer-coordinator-metrics"]["heartbeat-total"] > 0)
    metrics = consumer.metrics()
    fetching = metrics["consumer-fetch-manager-metrics"]
    assert fetching["records-consumed-total"] == 20
    assert fetching["bytes-consumed-total"] > 20
    assert fetching["fetch-latency-avg"] >= 0
    assert fetching["records-lag-max"] == 0
    assert fetching["records-lead-min"] == 10
    coordinator = metrics["consumer-coordinator-metrics"]
    assert coordinator["commit-total"] == 1
    assert coordinator["join-total"] >= 1
    assert (coordinator["rebalance-total"], coordinator["assigned-partitions"]) == (1, 2)
    assert coordinator["rebalance-latency-total"] == coordinator["rebalance-latency-max"] >= 0
    assert coordinator["failed-rebalance-total"] == 0
    assert coordinator["failed-rebalance-rate-per-hour"] == 0
    assert coordinator["rebalance-rate-per-hour"] > 0
    assert coordinator["last-rebalance-seconds-ago"] >= 0
    assert 0 <= metrics["consumer-metrics"]["poll-idle-ratio-avg"] <= 1
    one = metrics["consumer-fetch-manager-metrics.t-0"]
    assert (one["records-lag"], one["records-lead"]) == (0, 10)
    assert one["ingest-latency-ms"] > 0
    join(consumer, member(stage, **MANUAL))
    (gone,) = {T0, T1} - consumer.assignment()
    metrics = consumer.metrics()
    assert f"consumer-fetch-manager-metrics.{gone}" not in metrics
    coordinator = metrics["consumer-coordinator-metrics"]
    assert coordinator["rebalance-total"] == 2
    assert coordinator["rebalance-latency-avg"] * 2 == coordinator["rebalance-latency-total"]
    assert coordinator["last-rebalance-seconds-ago"] >= 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_rebalances_are_measured_under_either_protocol(
    make_stage: MakeStage, protocol: str
) -> None:
    """O-03: nothing before the first one; then how long, how many, how many failed."""
    cluster = cluster_of()
    cluster.faults.add(TopLevelError(14), api=ApiKey.JOIN_GROUP)
    consumer = member(make_stage(cluster), protocol)

    def measured(name: str) -> float:
        return consumer.metrics()["consumer-coordinator-metrics"][name]

    assert (measured("rebalance-total"), measured("last-rebalance-seconds-ago")) == (0, -1)
    assert math.isnan(measured("rebalance-latency-avg"))
    read_all(consumer, 20)
    eventually(lambda: measured("rebalance-total") == 1)
    assert measured("rebalance-latency-max") == measured("rebalance-latency-avg") >= 0
    assert measured("last-rebalance-seconds-ago") >= 0
    assert measured("failed-rebalance-total") == (1 if protocol == "classic" else 0)


def test_metrics_can_be_had_in_detail_under_another_name_or_not_at_all(
    make_stage: MakeStage,
) -> None:
    """O-03: metrics_enabled, metrics_recording_level and metric_group_prefix are honoured."""
    stage = make_stage(cluster_of())
    consumer = stage.consumer("t", metric_group_prefix="reader", metrics_recording_level="DEBUG")
    read_all(consumer, 20)
    eventually(lambda: "reader-request-metrics.fetch" in consumer.metrics())
    metrics = consumer.metrics()
    assert metrics["reader-request-metrics.fetch"]["response-total"] > 0
    assert metrics["reader-metrics"]["connection-count"] > 0
    silent = stage.consumer("t", metrics_enabled=False)
    read_all(silent, 20)
    assert silent.metrics() == {}
