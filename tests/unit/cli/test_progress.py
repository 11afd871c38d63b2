"""The progress line of a read, and its summary."""

from __future__ import annotations

import os
import pty
import signal
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from kfast.cli.progress import Counts, Progress, can_draw
from kfast.cli.run import Stops


@dataclass
class Reading:
    """A read of which some is done."""

    done: int = 0
    total: int = 10_000_000
    lag: int | None = 1_234
    problem: str | None = None


class Clock:
    """A clock that is set."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def progress_of(counts: Counts, reading: Any, clock: Clock, **changes: bool) -> Progress:
    how = {"is_drawn": True, "is_quiet": False, "is_verbose": False, "has_end": True} | changes
    return Progress("orders\x1b", reading, counts, now=clock, **how)


def test_one_line_is_drawn_over_and_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-57: on a terminal progress is one line, at most ten times a second, gone at the end."""
    monkeypatch.setenv("COLUMNS", "100")
    clock, counts, reading = Clock(), Counts(), Reading()
    progress = progress_of(counts, reading, clock)
    progress.update()
    assert capsys.readouterr().err == ""
    clock.now += 1.5
    counts.records, counts.nbytes, reading.done = 6_150_000, 615_000_000, 6_200_000
    progress.update()
    assert capsys.readouterr().err == (
        "\r\x1b[Korders\\x1b  62 %  6.2 M of 10.0 M  4.1 M/s  410 MB/s  eta 1 s"
    )
    clock.now += 0.05
    progress.update()
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("COLUMNS", "20")
    clock.now += 0.1
    progress.update()
    assert capsys.readouterr().err == "\r\x1b[Korders\\x1b  62 %  …"
    progress.clear()
    assert capsys.readouterr().err == "\r\x1b[K"


def test_a_log_gets_a_plain_line_every_ten_seconds(capsys: pytest.CaptureFixture[str]) -> None:
    """CL-58: where standard error is no terminal a long read has one line per ten seconds."""
    clock, counts, reading = Clock(), Counts(), Reading()
    progress = progress_of(counts, reading, clock, is_drawn=False, has_end=False)
    for _ in range(21):
        clock.now += 1
        counts.records += 1_500
        progress.update()
    progress.clear()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "orders\\x1b  15 000 records  1.5 k/s  lag 1 234",
        "orders\\x1b  30 000 records  1.5 k/s  lag 1 234",
    ]
    counts.nbytes = 2_000_000
    assert progress.summary() == "orders\\x1b: 31 500 records, 2.0 MB, 21.0 s, 1.5 k/s"


def test_a_lag_that_is_not_known_is_not_zero(capsys: pytest.CaptureFixture[str]) -> None:
    """Y-07: a group that is not joined has the reason in its place."""
    clock, reading = Clock(), Reading(lag=None)
    progress = progress_of(Counts(), reading, clock, is_drawn=False, has_end=False)
    for problem in (None, 'group "g" was not joined (why)'):
        reading.problem = problem
        clock.now += 10
        progress.update()
    assert capsys.readouterr().err.splitlines() == [
        "orders\\x1b  0 records  0/s  lag unknown",
        'orders\\x1b  0 records  0/s  group "g" was not joined (why)',
    ]


def test_nothing_is_said_when_it_is_not_wanted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    progress = progress_of(Counts(), Reading(total=0), clock, is_drawn=False)
    clock.now += 9
    progress.update()
    assert progress.summary() is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert progress.summary() == "orders\\x1b: 0 records, 0 B, 9.0 s, 0/s"
    quiet = progress_of(Counts(), Reading(), clock, is_quiet=True, is_verbose=True)
    clock.now += 60
    quiet.update()
    assert quiet.summary() is None
    assert capsys.readouterr().err == ""


def test_a_summary_names_offsets_and_what_was_not_readable() -> None:
    clock = Clock()
    counts = Counts(10_000_000, 1_100_000_000, 0, 1_665_414, 6, nulled=2, skipped=1_000)
    progress = progress_of(counts, Reading(), clock, is_verbose=True)
    clock.now += 2.6
    assert progress.summary() == (
        "orders\\x1b: 10 000 000 records, 1.1 GB, offsets 0\N{EN DASH}1 665 414 (6 partitions), "
        "2.6 s, 3.8 M/s, 2 undecodable ones null, 1 000 undecodable ones left out"
    )


def test_a_process_that_goes_on_draws_again(capsys: pytest.CaptureFixture[str]) -> None:
    """CL-214: the line at once, and nothing where there was none."""
    clock = Clock()
    progress = progress_of(Counts(records=5), Reading(done=1), clock)
    with Stops(lambda: pytest.fail("nothing ends"), progress.draw_soon) as stops:
        signal.raise_signal(signal.SIGCONT)
        progress.update()
        assert capsys.readouterr().err == ""
        clock.now += 1
        progress.update()
        shown = capsys.readouterr().err
        progress.update()
        assert capsys.readouterr().err == ""
        signal.raise_signal(signal.SIGCONT)
        progress.update()
        assert capsys.readouterr().err == shown
    assert stops.received is None
    assert signal.getsignal(signal.SIGCONT) is signal.SIG_DFL


def test_the_line_is_drawn_where_the_cursor_can_be_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-57: not in a pipe, nor on a terminal that cannot do it."""
    master, terminal = pty.openpty()
    monkeypatch.setenv("TERM", "xterm")
    assert can_draw(terminal)
    monkeypatch.setenv("TERM", "dumb")
    assert not can_draw(terminal)
    os.close(terminal)
    os.close(master)
    reader, writer = os.pipe()
    monkeypatch.setenv("TERM", "xterm")
    assert not can_draw(writer)
    os.close(reader)
    os.close(writer)
