"""MemoryAccount: what counts, and for how long."""

from __future__ import annotations

from kfast._runtime.memory_account import MemoryAccount, frame_share


def test_frames_and_chunks_count_and_are_released() -> None:
    """B-05: the sum of frames being received, frames and decoded chunks."""
    account = MemoryAccount(1000, 100)
    answer = account.fetch_sent(0)
    assert account.admit(300, may_overdraw=False)
    assert (account.used, account.is_receiving) == (300, True)
    hold = account.fetch_answered(answer, 300, 2)
    assert hold is not None
    account.add_chunk(50, 100)
    assert account.used == 350
    assert not account.release_slice(hold)
    assert account.release_slice(hold)
    account.release_chunk(50)
    assert (account.used, account.is_receiving, account.has_requests) == (0, False, False)


def test_room_for_frames_leaves_a_share_to_decoded_data() -> None:
    account = MemoryAccount(1000, 100)
    assert account.frame_room() == frame_share(1000) == 800
    account.add_chunk(500, 100)
    assert account.frame_room() == 500
    account.fetch_answered(account.fetch_sent(0), 600, 1)
    assert account.frame_room() == -100


def test_a_frame_without_slices_does_not_count() -> None:
    """B-05: its reservation ends."""
    account = MemoryAccount(1000, 100)
    answer = account.fetch_sent(0)
    assert account.admit(300, may_overdraw=False)
    assert account.fetch_answered(answer, 300, 0) is None
    assert (account.used, account.is_receiving, account.has_requests) == (0, False, False)


def test_the_expansion_by_decoding_is_estimated() -> None:
    """B-05: after chunks ten times their raw size, decoding ahead needs more free memory."""
    account = MemoryAccount(1000, 10_000)
    assert account.may_decode_ahead(100)
    for _ in range(50):
        account.add_chunk(1000, 100)
        account.release_chunk(1000)
    assert account.may_decode_ahead(90)
    assert not account.may_decode_ahead(110)


def test_a_request_that_ends_twice_counts_once() -> None:
    account = MemoryAccount(1000, 100)
    answers = [account.fetch_sent(100), account.fetch_sent(100)]
    under_way = []
    for answer in (answers[0], answers[0], answers[1]):
        account.fetch_ended(answer)
        under_way.append(account.has_requests)
    assert under_way == [True, True, False]
    assert "0 of 1000 bytes" in repr(account)
