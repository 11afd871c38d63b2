"""MemoryAccount: what counts, and for how long."""

from __future__ import annotations

from kfast._runtime.memory_account import MemoryAccount, frame_share


def test_frames_and_chunks_count_and_are_released() -> None:
    """B-05: the sum of frames being received, frames and decoded chunks."""
    account = MemoryAccount(1000, 100)
    answer = account.fetch_sent(0)
    assert account.admit(300, 300, may_overdraw=False)
    assert (account.used, account.is_receiving) == (300, True)
    hold = account.fetch_answered(answer, 300, 300, 2)
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
    account.fetch_answered(account.fetch_sent(0), 600, 600, 1)
    assert account.frame_room() == -100


def test_a_frame_without_slices_does_not_count() -> None:
    """B-05: its reservation ends."""
    account = MemoryAccount(1000, 100)
    answer = account.fetch_sent(0)
    assert account.admit(300, 300, may_overdraw=False)
    assert account.fetch_answered(answer, 300, 300, 0) is None
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


def test_a_decode_under_way_counts() -> None:
    """B-05: memory for its chunk is set aside, so that others do not count on it."""
    account = MemoryAccount(1000, 800)
    own = account.begin_decode(300, is_ahead=False)
    assert (own, account.used, account.frame_room()) == (300, 300, 700)
    assert account.may_decode_ahead(700)
    ahead = account.begin_decode(300, is_ahead=True)
    assert ahead == 450
    assert not account.may_decode_ahead(300)
    assert account.may_decode_ahead(250)
    assert account.begin_decode(250, is_ahead=True) == 250
    assert not account.admit(1, 1, may_overdraw=False)
    account.end_decode(own)
    account.end_decode(ahead)
    assert account.used == 250
    assert "decoding 250" in repr(account)


def test_a_decode_ahead_of_a_small_slice_is_given_more_than_the_estimate() -> None:
    """B-05: a slice may be small and expand a lot; an eighth of the cap is not missed."""
    account = MemoryAccount(1000, 100_000)
    assert account.begin_decode(10, is_ahead=True) == 125
    account.fetch_sent(800)
    assert account.begin_decode(10, is_ahead=True) == 75
    assert MemoryAccount(1000, 50).begin_decode(10, is_ahead=True) == 50


def test_chunks_beyond_the_normal_size_are_expected_once_there_were_some() -> None:
    """B-05: batches may be larger; one among others does not end the decoding ahead of them."""
    account = MemoryAccount(10_000, 100)
    assert account.begin_decode(5000, is_ahead=False) == 100
    account.add_chunk(4000, 100)
    assert 500 < account.begin_decode(100, is_ahead=False) < 600
    assert account.begin_decode(5000, is_ahead=False) == 4000, "no chunk was larger"
    for _ in range(60):
        account.add_chunk(4000, 100)
    assert account.begin_decode(100, is_ahead=False) > 3900
    for _ in range(60):
        account.add_chunk(0, 100)
    assert account.begin_decode(5000, is_ahead=False) < 150


def test_frames_count_as_what_was_allocated() -> None:
    """B-05: from the moment their reception is allowed, when it is known within a quarter."""
    account = MemoryAccount(1000, 100)
    answer = account.fetch_sent(0)
    assert not account.admit(900, 1001, may_overdraw=False)
    assert account.admit(600, 750, may_overdraw=False)
    assert account.used == 750
    hold = account.fetch_answered(answer, 600, 640, 1)
    assert hold is not None
    assert account.used == hold.nbytes == 640
    assert account.release_slice(hold)
    assert account.used == 0
