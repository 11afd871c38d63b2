"""The rates of the demo and of the benchmarks, measured on a consumer without a broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import kfast
from bench.e2e.contestants import CONTESTANTS, Target
from bench.e2e.worker import measure
from kfast.demo.contestants import time_kfast

TOTAL = 1_000_000
FETCH_SECONDS = 0.05
TOPIC = "t"


class _Polled(int):
    count = int.__int__


class BufferedConsumer:
    """Has fetched all records when the first poll returns, ``FETCH_SECONDS`` after it may fetch."""

    calls: list[str]

    def __init__(self, *topics: str, **_: Any) -> None:
        type(self).calls = ["made", *topics]

    def __enter__(self) -> BufferedConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.calls.append("closed")

    def partitions_for_topic(self, topic: str) -> set[int]:
        self.calls.append(f"metadata of {topic}")
        return {0}

    def assign(self, partitions: object) -> None:
        self.calls.append("fetching")

    def subscribe(self, topics: object) -> None:
        self.calls.append("fetching")

    def seek(self, partition: object, offset: int) -> None:
        assert offset == 0

    def poll(self, timeout_ms: int) -> _Polled:
        if self.calls[-1] == "fetching":
            time.sleep(FETCH_SECONDS)
            self.calls.append("polled")
            return _Polled(TOTAL)
        return _Polled(0)


def _demo() -> float:
    ends = {kfast.TopicPartition(TOPIC, 0): (0, TOTAL)}
    return time_kfast({}, ends, lambda _: None).records_per_second


def _bench(contestant: str) -> Callable[[], float]:
    return lambda: measure(contestant, Target("b1:9092", TOPIC, 1), TOTAL)["rate"]


@pytest.fixture
def _buffered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kfast, "KafkaConsumer", BufferedConsumer)


METERS = {"demo": _demo} | {name: _bench(name) for name in ("kfast", "kfast-group")}


@pytest.mark.usefixtures("_buffered")
@pytest.mark.parametrize("meter", METERS.values(), ids=METERS)
def test_a_rate_counts_from_the_first_request(meter: Callable[[], float]) -> None:
    """O-08: not from the end of the first batch: what was buffered by then was not timed."""
    began = time.perf_counter()
    rate = meter()
    assert TOTAL / (time.perf_counter() - began) <= rate <= TOTAL / FETCH_SECONDS
    assert BufferedConsumer.calls[:4] == ["made", f"metadata of {TOPIC}", "fetching", "polled"]


@pytest.mark.usefixtures("_buffered")
@pytest.mark.parametrize("name", [name for name in CONTESTANTS if name.startswith("kfast")])
def test_nothing_is_fetched_before_the_clock_starts(name: str) -> None:
    target = Target("b1:9092", TOPIC, 1, registry="http://b1:8081")
    batches = CONTESTANTS[name].run(target)
    assert next(batches) == 0
    assert BufferedConsumer.calls == ["made", f"metadata of {TOPIC}"]
