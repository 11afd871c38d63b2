"""PollTimer: max_poll_interval_ms."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from kfast.config import ConsumerConfig
from kfast.consumer.group.membership import RebalanceStep
from kfast.consumer.group.poll_timer import PollTimer


@dataclass
class Application:
    """A `StepPort` that says when it polled."""

    last_poll_ms: int = 1_000

    def post(self, step: RebalanceStep) -> None:
        raise AssertionError(step)

    def withdraw(self) -> bool:
        raise AssertionError


def make_timer(application: Application) -> PollTimer:
    config = ConsumerConfig(bootstrap_servers="h:1", group_id="g", max_poll_interval_ms=300_000)
    timer = PollTimer(config, application)
    timer.update()
    return timer


def test_it_expires_at_the_limit() -> None:
    timer = make_timer(Application())
    assert (timer.remaining_ms(1_000), timer.is_expired(1_000)) == (300_000, False)
    assert (timer.remaining_ms(300_999), timer.is_expired(300_999)) == (1, False)
    assert (timer.remaining_ms(301_000), timer.is_expired(301_000)) == (0, True)
    assert timer.remaining_ms(342_000) == 0


def test_a_poll_counts_from_the_next_update_on() -> None:
    application = Application()
    timer = make_timer(application)
    application.last_poll_ms = 200_000
    assert timer.remaining_ms(201_000) == 100_000
    timer.update()
    assert timer.remaining_ms(201_000) == 299_000


@pytest.mark.parametrize(("late_ms", "words"), [(41_300, "41 s"), (50, "0.05 s"), (0, "0 s")])
def test_it_logs_leaving_and_once_how_late_the_next_poll_came(
    late_ms: int, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    application = Application()
    timer = make_timer(application)
    timer.left()
    assert caplog.messages == [
        "Group g: no poll() for 300 s (max.poll.interval.ms): leaving the group until the next "
        "poll()"
    ]
    caplog.clear()
    timer.update()  # still away
    assert caplog.messages == []
    application.last_poll_ms += 300_000 + late_ms
    timer.update()
    timer.update()
    assert caplog.messages == [
        f"max.poll.interval.ms 300 s exceeded by {words}: the member left the group; "
        "poll fewer records (max_poll_records) or raise it"
    ]


def test_a_member_that_left_meanwhile_logs_no_late_poll(
    caplog: pytest.LogCaptureFixture,
) -> None:
    application = Application()
    timer = make_timer(application)
    timer.left()
    caplog.clear()
    timer.reset()
    application.last_poll_ms += 400_000
    timer.update()
    assert caplog.messages == []
