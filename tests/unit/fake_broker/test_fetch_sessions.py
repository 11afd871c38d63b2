"""The fake broker's fetch sessions follow KIP-227."""

from __future__ import annotations

from tests.fake_broker.fetch_sessions import (
    MAX_EPOCH,
    FetchSessionCache,
    FetchWish,
    PartitionKey,
    PartitionOutcome,
    SessionRequest,
    note_answer,
)

A: PartitionKey = ("t", bytes(16), 0)
B: PartitionKey = ("t", bytes(16), 1)
QUIET = PartitionOutcome(0, 0, 10, 0)


def full(cache: FetchSessionCache, session_id: int = 0, epoch: int = 0) -> SessionRequest:
    wishes = {A: FetchWish(0, 100), B: FetchWish(0, 100)}
    return cache.open_request(session_id, epoch, wishes, (), uses_topic_ids=False)


def incremental(
    cache: FetchSessionCache,
    session_id: int,
    epoch: int,
    wishes: dict[PartitionKey, FetchWish] | None = None,
    forgotten: tuple[PartitionKey, ...] = (),
    uses_topic_ids: bool = False,
) -> SessionRequest:
    return cache.open_request(
        session_id, epoch, wishes or {}, forgotten, uses_topic_ids=uses_topic_ids
    )


def test_a_full_request_opens_a_session_with_its_partitions() -> None:
    cache = FetchSessionCache()
    opened = full(cache)
    assert opened.session_id > 0
    assert not opened.is_incremental
    later = incremental(cache, opened.session_id, 1)
    assert list(later.wishes) == [A, B]
    assert later.is_incremental


def test_changes_and_forgotten_partitions_are_applied() -> None:
    cache = FetchSessionCache()
    session_id = full(cache).session_id
    later = incremental(cache, session_id, 1, {A: FetchWish(5, 100)}, (B,))
    assert later.wishes == {A: FetchWish(5, 100)}
    assert incremental(cache, session_id, 2, {B: FetchWish(7, 1)}).wishes == {
        A: FetchWish(5, 100),
        B: FetchWish(7, 1),
    }


def test_wrong_epochs_and_unknown_sessions() -> None:
    cache = FetchSessionCache()
    session_id = full(cache).session_id
    assert incremental(cache, session_id, 2).error == 71
    assert incremental(cache, 1, 1).error == 70
    assert incremental(cache, session_id, 1, uses_topic_ids=True).error == 106
    assert incremental(cache, session_id, 1).error == 0  # errors leave the session alive
    cache.evict(session_id)
    assert incremental(cache, session_id, 2).error == 70


def test_epochs_wrap_to_one() -> None:
    cache = FetchSessionCache()
    session_id = full(cache).session_id
    cache.sessions[session_id].epoch = MAX_EPOCH
    assert incremental(cache, session_id, MAX_EPOCH).error == 0
    assert incremental(cache, session_id, 1).error == 0


def test_closing_and_replacing() -> None:
    cache = FetchSessionCache()
    first = full(cache).session_id
    second = full(cache, first, 0).session_id
    assert set(cache.sessions) == {second}
    closed = cache.open_request(second, -1, {}, (), uses_topic_ids=False)
    assert (closed.session_id, closed.error, cache.sessions) == (0, 0, {})


def test_sessionless_requests_and_a_full_cache_get_id_zero() -> None:
    cache = FetchSessionCache(max_sessions=1)
    assert full(cache, 0, -1).session_id == 0
    assert full(cache).session_id > 0
    assert full(cache).session_id == 0


def test_a_session_without_partitions_ends() -> None:
    cache = FetchSessionCache()
    session_id = full(cache).session_id
    ended = incremental(cache, session_id, 1, forgotten=(A, B))
    assert (ended.session_id, cache.sessions) == (0, {})


def test_an_incremental_answer_lists_only_what_changed() -> None:
    cache = FetchSessionCache()
    opened = full(cache)
    assert note_answer(opened, A, QUIET)
    assert note_answer(opened, B, QUIET)
    later = incremental(cache, opened.session_id, 1)
    assert not note_answer(later, A, QUIET)
    assert note_answer(later, A, PartitionOutcome(0, 0, 11, 0))
    assert note_answer(later, A, PartitionOutcome(0, 0, 11, 3))
    assert note_answer(later, A, PartitionOutcome(0, 50, 11, 3))
    assert note_answer(later, A, PartitionOutcome(6, 0, -1, 3))
    assert note_answer(later, A, PartitionOutcome(0, 0, 11, 3))
    assert not note_answer(later, A, PartitionOutcome(0, 0, 11, 3))
    assert note_answer(later, A, PartitionOutcome(0, 0, 11, 3, preferred_read_replica=2))
    assert note_answer(later, A, PartitionOutcome(0, 0, 11, 3, is_diverging=True))


def test_a_partition_that_gave_data_goes_to_the_end() -> None:
    cache = FetchSessionCache()
    opened = full(cache)
    note_answer(opened, A, PartitionOutcome(0, 50, 11, 0))
    assert list(incremental(cache, opened.session_id, 1).wishes) == [B, A]
