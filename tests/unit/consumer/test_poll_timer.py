"""PollTimer: max_poll_interval_ms."""

from __future__ import annotations

from kfast.consumer.poll_timer import PollTimer


def test_it_expires_at_the_limit_and_tells_how_late() -> None:
    timer = PollTimer(300_000)
    assert (timer.remaining_ms(1_000, 1_000), timer.is_expired(1_000, 1_000)) == (300_000, False)
    assert (timer.remaining_ms(1_000, 300_999), timer.is_expired(1_000, 300_999)) == (1, False)
    assert (timer.remaining_ms(1_000, 301_000), timer.is_expired(1_000, 301_000)) == (0, True)
    assert (timer.remaining_ms(1_000, 342_000), timer.late_by_ms(1_000, 342_000)) == (0, 41_000)
    assert timer.late_by_ms(1_000, 2_000) == 0


def test_the_words() -> None:
    timer = PollTimer(300_000)
    assert timer.late_message(41_300) == (
        "max.poll.interval.ms 300 s exceeded by 41 s: the member left the group; "
        "take less per poll (max_poll_records) or raise it"
    )
    assert "exceeded by 0.05 s" in timer.late_message(50)
    assert timer.expired_message().startswith("no poll() for 300 s (max.poll.interval.ms)")
    assert repr(timer) == "PollTimer(300000)"
