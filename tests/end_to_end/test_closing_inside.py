"""close() inside of another call: by the handler of a signal, wherever that runs, or a listener."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

import kfast
from kfast import ConsumerRecords, TopicPartition
from kfast.errors import IllegalStateError
from kfast.protocol.api_keys import ApiKey
from kfast.testing.faults import NeverAnswer
from tests.end_to_end.groups import GROUP, Notes, cluster_of, committed, member, read_all
from tests.end_to_end.stage import Stage, eventually
from tests.signals import signalled
from tests.unit.threads.interruptions import run_interrupted

MakeStage = Callable[..., Stage]

T0 = TopicPartition("t", 0)
STEP = 29


def check_closed(reader: kfast.KafkaConsumer) -> None:
    """Check that nothing is left of a consumer, and that it says so."""
    with pytest.raises(IllegalStateError, match="closed"):
        reader.poll()
    reader.close()
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith("kfast-") for name in names), names


@pytest.mark.parametrize("is_waiting", [False, True], ids=["with records", "at the end"])
def test_a_handler_closes_at_any_place(make_stage: MakeStage, is_waiting: bool) -> None:
    """L-02, A-02: no lock is waited for, and only what earlier polls returned is committed."""
    cluster = cluster_of(1)
    stage = make_stage(cluster)
    ended = returned = 0
    at, last = 1, 1
    while at < last + 80:
        reader = stage.consumer(group_id=GROUP, max_poll_records=4, fetch_max_wait_ms=5)
        reader.assign([T0])
        done = 10 if is_waiting else 4
        if is_waiting:
            read_all(reader, 10 - sum(committed(cluster).values()))
        else:
            reader.seek(T0, 0)
            assert reader.poll(timeout_ms=10_000).count() == 4
        found: list[ConsumerRecords] = []
        places: list[int] = []

        def poll(
            reader: kfast.KafkaConsumer = reader, found: list[ConsumerRecords] = found
        ) -> None:
            found.append(reader.poll(timeout_ms=20))

        def close(reader: kfast.KafkaConsumer = reader, places: list[int] = places) -> None:
            places.append(1)
            reader.close()

        try:
            run_interrupted(poll, close, at)
        except IllegalStateError:
            ended += 1
        else:
            returned += 1
            done += 0 if is_waiting else found[0].count()
        if places:
            last = at
            check_closed(reader)
        else:
            reader.close()
        stored = committed(cluster)[0]
        assert stored == done or (found and stored == 4), at
        at += STEP
    assert ended > 5
    assert returned > 1


def test_a_handler_ends_a_poll_that_waits(make_stage: MakeStage) -> None:
    """L-02: it neither spins nor waits out its time."""
    cluster = cluster_of(1)
    reader = make_stage(cluster).consumer(group_id=GROUP)
    reader.assign([T0])
    read_all(reader, 10)
    with (
        signalled(lambda *_: reader.close(), [0.2]),
        pytest.raises(IllegalStateError, match="closed") as caught,
    ):
        reader.poll(timeout_ms=600_000)
    assert caught.value.hint is not None
    check_closed(reader)
    assert committed(cluster) == {0: 10}


def test_what_a_handler_raises_comes_out_of_the_call(make_stage: MakeStage) -> None:
    """L-02: the way programs end on SIGTERM; the group is left and nobody hangs."""
    cluster = cluster_of(1)
    reader = member(make_stage(cluster))
    read_all(reader, 10)

    def handler(*_: object) -> None:
        reader.close()
        reader.close()
        raise SystemExit(3)

    with signalled(handler, [0.2]), pytest.raises(SystemExit):
        reader.poll(timeout_ms=600_000)
    check_closed(reader)
    assert committed(cluster) == {0: 10}
    group = cluster.groups.classic(GROUP)
    assert group is not None
    assert not group.members


@pytest.mark.parametrize(
    ("api", "call"),
    [
        (ApiKey.OFFSET_COMMIT, lambda reader: reader.commit({T0: 3}, timeout_ms=600_000)),
        (ApiKey.LIST_OFFSETS, lambda reader: reader.end_offsets([T0], timeout_ms=600_000)),
        (ApiKey.LIST_OFFSETS, lambda reader: reader.position(T0, timeout_ms=600_000)),
        (ApiKey.FETCH, next),
        (ApiKey.FETCH, lambda reader: next(reader.batches())),
    ],
    ids=["commit", "end_offsets", "position", "iteration", "batches"],
)
def test_any_blocked_call_is_ended(
    make_stage: MakeStage, api: ApiKey, call: Callable[[kfast.KafkaConsumer], object]
) -> None:
    """L-02: each says that the consumer is closed."""
    cluster = cluster_of(1)
    rule = cluster.faults.add(NeverAnswer(), api=api, times=None)
    reader = make_stage(cluster).consumer(group_id=GROUP, enable_auto_commit=False)
    reader.assign([T0])

    def handler(*_: object) -> None:
        if rule.hits:
            reader.close(timeout_ms=500)

    with (
        signalled(handler, [0.1] * 600),
        pytest.raises(IllegalStateError, match="closed"),
    ):
        call(reader)
    check_closed(reader)


@pytest.mark.parametrize("name", ["assigned", "revoked"])
def test_a_listener_may_close(make_stage: MakeStage, name: str) -> None:
    """L-02: done when the call is over; a listener called by close() itself changes nothing."""
    cluster = cluster_of(1)

    def act(called: str, _: object, reader: kfast.KafkaConsumer) -> None:
        if called == name:
            reader.close()

    reader = member(make_stage(cluster), listener=Notes(act))
    if name == "assigned":
        with pytest.raises(IllegalStateError, match="closed"):
            read_all(reader, 10)
    else:
        read_all(reader, 10)
        reader.close()
        assert committed(cluster) == {0: 10}
    check_closed(reader)
    eventually(lambda: cluster.connections == {})


class Closes:
    """Hooks of a program of which one closes the consumer, the first time it is called."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.reader: kfast.KafkaConsumer | None = None
        self.calls = 0

    def act(self, name: str) -> None:
        if name == self.name and self.reader is not None:
            self.calls += 1
            self.reader.close()

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        self.act("on_consume")
        return records

    def on_commit(self, _: object) -> None:
        self.act("on_commit")

    def on_partitions_assigned(self, _: object) -> None:
        self.act("assigned")

    def on_partitions_revoked(self, _: object) -> None:
        self.act("revoked")

    def value(self, raw: bytes) -> bytes:
        self.act("value")
        return raw

    def callback(self, *_: object) -> None:
        self.act("callback")


@pytest.mark.parametrize(
    ("name", "call", "stored"),
    [
        ("value", "poll", 0),
        ("value", "iterate", 0),
        ("on_consume", "poll", 0),
        ("on_consume", "iterate", 0),
        ("assigned", "poll", None),
        ("callback", "commit", 7),
        ("on_commit", "commit", 7),
        ("callback", "poll after commit_async", 7),
        ("revoked", "unsubscribe", 10),
    ],
)
def test_a_callback_closes(make_stage: MakeStage, name: str, call: str, stored: int | None) -> None:
    """U-14: the call raises IllegalStateError, then the consumer is closed; the records that the
    call was about to return are not committed, and the group is left."""
    cluster = cluster_of(1)
    hooks = Closes(name)
    reader = make_stage(cluster).consumer(
        group_id=GROUP, interceptor_classes=[hooks], value_deserializer=hooks.value
    )
    reader.subscribe(["t"], listener=hooks)
    if stored:
        read_all(reader, 10)
    hooks.reader = reader

    def poll() -> None:
        while True:
            reader.poll(timeout_ms=100)

    def poll_after_commit_async() -> None:
        reader.commit_async({T0: 7}, hooks.callback)
        poll()

    def commit() -> None:
        reader.commit_async({T0: 6}, hooks.callback)
        reader.commit({T0: 7})
        reader.commit({T0: 7})

    calls: dict[str, Callable[[], object]] = {
        "poll": poll,
        "iterate": lambda: next(reader),
        "commit": commit,
        "poll after commit_async": poll_after_commit_async,
        "unsubscribe": reader.unsubscribe,
    }
    with pytest.raises(IllegalStateError, match="closed") as caught:
        calls[call]()
    assert "close() was called inside this call" in (caught.value.cause or "")
    assert hooks.calls >= 1
    check_closed(reader)
    found = committed(cluster).get(0)
    assert found == stored or (stored == 7 and found == 10)
    group = cluster.groups.classic(GROUP)
    assert group is None or not group.members
