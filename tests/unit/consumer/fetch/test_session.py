"""FetchSessionHandler: every row of the state table (KIP-227)."""

from __future__ import annotations

import pytest

from kfast._native.buffers import copy_of
from kfast._native.fetch_response import FetchResponseView, parse_fetch_response
from kfast.consumer.fetch.session import (
    INITIAL,
    MAX_EPOCH,
    SESSIONLESS,
    FetchSessionHandler,
    FetchTarget,
    SessionMetadata,
    SessionRequest,
)
from kfast.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from kfast.types import ZERO_UUID, TopicPartition
from tests.unit.consumer.fakes import T0, T1, T2

ID_A = b"a" * 16
ID_B = b"b" * 16


def target(offset: int = 0, *, topic_id: bytes = ID_A, version: int = 1) -> FetchTarget:
    return FetchTarget(topic_id, offset, 5, 1 << 20, version)


def handler(*partitions: TopicPartition, is_enabled: bool = True) -> FetchSessionHandler:
    session = FetchSessionHandler(1, is_enabled=is_enabled)
    for tp in partitions:
        session.add(tp, target())
    return session


def reply(
    session_id: int,
    *parts: tuple[str | bytes, int],
    error: int = 0,
    throttle_ms: int = 0,
) -> FetchResponseView:
    """Return a reply about partitions, each by its topic's name or id and its number."""
    uses_ids = all(isinstance(topic, bytes) for topic, _ in parts)
    topics = [
        FetchableTopicResponse(
            topic=topic if isinstance(topic, str) else "",
            topic_id=topic if isinstance(topic, bytes) else ZERO_UUID,
            partitions=[PartitionData(partition_index=number)],
        )
        for topic, number in parts
    ]
    message = FetchResponse(throttle_ms, error, session_id, topics)
    version = 16 if uses_ids else 12
    return parse_fetch_response(copy_of(message.encode(version)), 0, version)


def answer(
    session: FetchSessionHandler, session_id: int, *answered: TopicPartition | None, error: int = 0
) -> bool:
    """Answer about partitions of the topic with id A, None being a foreign one."""
    parts = [(ID_B, 9) if tp is None else (ID_A, tp.partition) for tp in answered]
    return session.handle_response(reply(session_id, *parts, error=error)) is not None


def understood(session: FetchSessionHandler, topic: str | bytes, number: int) -> bool:
    """Return whether a reply about a partition, the only one asked, is found to be about it."""
    found = session.handle_response(reply(0, (topic, number)))
    if found is None:
        return False
    ((tp, (sent, part)),) = found.items()
    assert (tp, part.partition) == (T0, T0.partition)
    assert type(tp) is TopicPartition
    assert sent is session.sent(T0)
    return True


def opened(*partitions: TopicPartition, session_id: int = 77) -> FetchSessionHandler:
    """Return a handler whose first request was answered with a session."""
    session = handler(*partitions)
    session.build(uses_topic_ids=True)
    assert answer(session, session_id, *partitions)
    return session


def sent(request: SessionRequest) -> list[TopicPartition]:
    return [tp for tp, _ in request.to_send]


def forgotten(request: SessionRequest) -> list[TopicPartition]:
    return [tp for tp, _ in request.to_forget]


def test_the_first_request_is_full_and_opens_a_session() -> None:
    """F-13: (0, 0) lists every partition."""
    request = handler(T0, T1).build(uses_topic_ids=True)
    assert request.metadata == INITIAL == (0, 0)
    assert sent(request) == [T0, T1]
    assert request.to_forget == ()


def test_later_requests_list_changes_only() -> None:
    """F-13: epoch n + 1; changed and added partitions are sent, removed ones forgotten."""
    session = opened(T0, T1)
    session.add(T0, target(10))
    session.add(T2, target())
    session.drop(T1)
    request = session.build(uses_topic_ids=True)
    assert request.metadata == (77, 1)
    assert sorted(sent(request)) == [T0, T2]
    assert request.to_forget == ((T1, ID_A),)
    assert answer(session, 77)
    assert session.build(uses_topic_ids=True) == SessionRequest(SessionMetadata(77, 2), (), ())


def test_an_idle_session_lists_nothing() -> None:
    """F-23: a thousand unchanged partitions cost no byte in the request."""
    partitions = [TopicPartition("t", number) for number in range(1000)]
    session = opened(*partitions)
    for _ in range(3):
        request = session.build(uses_topic_ids=True)
        assert (request.to_send, request.to_forget) == ((), ())
        assert answer(session, 77)


def test_a_change_of_version_alone_is_not_sent_but_remembered() -> None:
    session = opened(T0)
    session.add(T0, target(version=2))
    request = session.build(uses_topic_ids=True)
    assert request.to_send == ()
    remembered = session.sent(T0)
    assert remembered is not None
    assert remembered.version == 2


def test_a_partition_dropped_and_wanted_again_between_requests_is_unchanged() -> None:
    session = opened(T0, T1)
    session.drop(T0)
    session.add(T0, target())
    request = session.build(uses_topic_ids=True)
    assert (request.to_send, request.to_forget) == ((), ())


def test_the_epoch_wraps_to_one() -> None:
    """F-13: after 2^31-1 comes 1, never 0 or a negative number."""
    session = opened(T0)
    session._epoch = MAX_EPOCH
    assert session.build(uses_topic_ids=True).metadata == (77, MAX_EPOCH)
    assert answer(session, 77)
    assert session.next_metadata == (77, 1)


def test_session_id_zero_keeps_full_requests() -> None:
    """F-14: a broker without a free slot is asked in full, for ever and without error."""
    session = handler(T0, T1)
    for _ in range(3):
        request = session.build(uses_topic_ids=True)
        assert request.metadata == INITIAL
        assert sent(request) == [T0, T1]
        assert answer(session, 0, T0, T1)


def test_sessions_switched_off_send_sessionless_requests() -> None:
    """F-14: (0, -1) for ever, whatever the broker answers."""
    session = handler(T0, is_enabled=False)
    for session_id, error in ((0, 0), (9, 0), (0, 70), (0, 71)):
        request = session.build(uses_topic_ids=True)
        assert request.metadata == SESSIONLESS == (0, -1)
        assert sent(request) == [T0]
        answer(session, session_id, T0, error=error)
    session.handle_error()
    assert session.build(uses_topic_ids=True).metadata == SESSIONLESS
    assert session.close() is None


def test_error_70_starts_without_a_session() -> None:
    """F-15: FETCH_SESSION_ID_NOT_FOUND: (0, 0)."""
    session = opened(T0)
    session.build(uses_topic_ids=True)
    assert not answer(session, 0, error=70)
    request = session.build(uses_topic_ids=True)
    assert request.metadata == (0, 0)
    assert sent(request) == [T0]


@pytest.mark.parametrize("error", [71, 106, -1, 42])
def test_other_top_level_errors_close_the_session_and_open_another(error: int) -> None:
    """F-15: (id, 0) and everything listed again."""
    session = opened(T0, T1)
    session.build(uses_topic_ids=True)
    assert not answer(session, 0, error=error)
    request = session.build(uses_topic_ids=True)
    assert request.metadata == (77, 0)
    assert sent(request) == [T0, T1]


def test_a_disconnect_restarts_the_session() -> None:
    """F-15: after a disconnect the epoch of the broker is unknown."""
    session = opened(T0)
    session.add(T0, target(10))
    session.build(uses_topic_ids=True)
    session.handle_error()
    request = session.build(uses_topic_ids=True)
    assert request.metadata == (77, 0)
    assert request.to_send == ((T0, target(10)),)


@pytest.mark.parametrize("answered", [(T0,), (T0, T1, None), (T0, T0), (T0, T1, T1), ()])
def test_a_full_reply_with_other_partitions_is_not_used(
    answered: tuple[TopicPartition | None, ...],
) -> None:
    """D-26: omitted, unasked and duplicate partitions restart the session."""
    session = handler(T0, T1)
    session.build(uses_topic_ids=True)
    assert not answer(session, 88, *answered)
    request = session.build(uses_topic_ids=True)
    assert request.metadata == (88, 0)
    assert sent(request) == [T0, T1]


@pytest.mark.parametrize("answered", [(None,), (T0, T0)])
def test_an_incremental_reply_with_foreign_partitions_is_not_used(
    answered: tuple[TopicPartition | None, ...],
) -> None:
    """D-26: partitions outside the session, or twice, restart it."""
    session = opened(T0)
    session.build(uses_topic_ids=True)
    assert not answer(session, 77, *answered)
    assert session.build(uses_topic_ids=True).metadata == (77, 0)


def test_an_incremental_reply_of_another_session_is_not_used() -> None:
    """F-15: an impossible session id restarts."""
    session = opened(T0)
    session.build(uses_topic_ids=True)
    assert not answer(session, 78)
    assert session.next_metadata == (77, 0)


def test_an_incremental_reply_with_id_zero_ends_the_session() -> None:
    session = opened(T0)
    session.build(uses_topic_ids=True)
    assert answer(session, 0, T0)
    assert session.build(uses_topic_ids=True).metadata == INITIAL


def test_a_throttled_empty_full_reply_changes_nothing() -> None:
    """F-24: the broker did not look at the request; it is sent again as it was."""
    session = handler(T0)
    session.build(uses_topic_ids=True)
    assert session.handle_response(reply(0, throttle_ms=100)) is None
    request = session.build(uses_topic_ids=True)
    assert request.metadata == INITIAL
    assert sent(request) == [T0]


def test_switching_between_names_and_ids_restarts() -> None:
    """F-16: a session holds names or ids, not both."""
    session = opened(T0)
    request = session.build(uses_topic_ids=False)
    assert request.metadata == (77, 0)
    assert sent(request) == [T0]


def test_a_new_topic_id_replaces_the_old_one() -> None:
    """F-16: the old id is forgotten, the new one added."""
    session = opened(T0)
    session.add(T0, target(topic_id=ID_B))
    request = session.build(uses_topic_ids=True)
    assert request.to_forget == ((T0, ID_A),)
    assert request.to_send == ((T0, target(topic_id=ID_B)),)


def test_ids_count_only_when_every_topic_has_one() -> None:
    """F-16: one topic without an id makes the whole request use names."""
    session = handler(T0)
    seen = [session.has_all_topic_ids]
    session.add(T1, target(topic_id=ZERO_UUID))
    seen.append(session.has_all_topic_ids)
    session.add(T1, target(topic_id=ID_B))
    seen.append(session.has_all_topic_ids)
    session.add(T1, target(topic_id=ZERO_UUID))
    session.drop(T1)
    seen.append(session.has_all_topic_ids)
    assert seen == [True, False, True, True]


def test_answers_are_resolved_by_id_or_by_name() -> None:
    session = handler(T0)
    session.build(uses_topic_ids=True)
    assert understood(session, ID_A, 0)
    assert not understood(session, ID_B, 0)
    assert not understood(session, ID_A, 1)
    session.build(uses_topic_ids=False)
    assert understood(session, "t", 0)
    assert not understood(session, "u", 0)


def test_the_id_before_a_replacement_is_foreign() -> None:
    session = opened(T0)
    session.add(T0, target(topic_id=ID_B))
    session.build(uses_topic_ids=True)
    assert not understood(session, ID_A, 0)
    session.add(T0, target(1, topic_id=ID_B))
    session.build(uses_topic_ids=True)
    assert understood(session, ID_B, 0)


def test_a_served_partition_is_listed_last_in_full_requests() -> None:
    """F-09: what delivered goes to the end."""
    session = handler(T0, T1, T2)
    session.build(uses_topic_ids=True)
    answer(session, 0, T0, T1, T2)
    session.move_to_end(T0)
    assert sent(session.build(uses_topic_ids=True)) == [T1, T2, T0]


def test_close_names_the_session_once() -> None:
    session = opened(T0)
    assert session.close() == (77, -1)
    assert session.close() is None


def test_repr_shows_id_and_epoch() -> None:
    assert "node=1 next=(77, 1) partitions=1 sent=1" in repr(opened(T0))


def test_names_of_topics_that_come_and_go_are_not_kept() -> None:
    """U-10: a session that lives for years has the topics of now."""
    session = handler(T0)
    session.build(uses_topic_ids=True)
    assert answer(session, 9, T0)
    for number in range(1_000):
        tp = TopicPartition(f"x{number}", 0)
        session.add(tp, target(topic_id=number.to_bytes(16)))
        session.build(uses_topic_ids=True)
        assert answer(session, 9)
        session.drop(tp)
        session.build(uses_topic_ids=True)
        assert answer(session, 9)
    assert len(session._topic_names) < 100
    assert not session._log_offsets.keys() - {T0}
