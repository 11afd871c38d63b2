"""Micro-batches: the duration of a trigger at a slow, constant rate of records.

A thread produces at a constant rate; contestants read the topic alternately, each as a new query
from the end of the log, with a trigger per interval. The first triggers of a query, which start
workers and compile plans, are not counted; neither are triggers without records.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from bench.data import text_values
from bench.spark.reading import Bench

_PHASES: Final = ("latestOffset", "queryPlanning", "walCommit", "addBatch", "commitOffsets")
_TICK_SECONDS: Final = 0.02
_TIMEOUT_SECONDS: Final = 60.0
UNCOUNTED: Final = 2


@dataclass(slots=True, frozen=True)
class TrickleOptions:
    """What to measure: ``contestants`` are of ``kfast`` and ``kafka``."""

    contestants: tuple[str, ...]
    per_second: int = 1000
    """Records produced."""
    interval_ms: int = 2000
    """Of the trigger."""
    triggers: int = 5
    """Counted per query."""
    repetitions: int = 3
    """Queries per contestant."""
    partitions: int = 6


@contextmanager
def trickle(servers: str, topic: str, per_second: int, partitions: int) -> Iterator[None]:
    """Produce at a constant rate for the length of the block."""
    from confluent_kafka import Producer  # noqa: PLC0415 - optional

    values = text_values(100)
    done = threading.Event()
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, "log_level": 0})

    def run() -> None:
        sent, begin = 0, time.monotonic()
        while not done.wait(_TICK_SECONDS):
            due = int((time.monotonic() - begin) * per_second)
            for number in range(sent, due):
                producer.produce(topic, values[number % len(values)], partition=number % partitions)
            sent = due
            producer.poll(0)

    thread = threading.Thread(target=run, name="trickle", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        producer.flush(10)


def run_micro_batches(bench: Bench, topic: str, options: TrickleOptions) -> dict[str, Any]:
    """Measure all contestants alternately; return the part of the result."""
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in options.contestants}
    with trickle(bench.servers, topic, options.per_second, options.partitions):
        for repetition in range(options.repetitions):
            turn = repetition % len(options.contestants)
            for name in options.contestants[turn:] + options.contestants[:turn]:
                runs[name].append(_run(bench, name, topic, options))
    return {
        "per_second": options.per_second,
        "interval_ms": options.interval_ms,
        "partitions": options.partitions,
        "summary": {name: _summary(found) for name, found in runs.items()},
        "runs": runs,
    }


def _run(bench: Bench, source: str, topic: str, options: TrickleOptions) -> dict[str, Any]:
    stream = bench.spark.readStream.format(source).options(
        **{"kafka.bootstrap.servers": bench.servers, "subscribe": topic}
    )
    query = (
        stream.load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(bench.new_folder()))
        .trigger(processingTime=f"{options.interval_ms} milliseconds")
        .start()
    )
    seen: dict[int, Mapping[str, Any]] = {}
    give_up = time.monotonic() + _TIMEOUT_SECONDS + options.triggers * options.interval_ms / 1000
    try:
        while len(seen) < UNCOUNTED + options.triggers and time.monotonic() < give_up:
            if not query.isActive:
                raise query.exception() or RuntimeError(f"{source}: the query ended")
            for progress in query.recentProgress:
                if progress.numInputRows:
                    seen[progress.batchId] = {
                        "rows": progress.numInputRows,
                        **progress.durationMs,
                    }
            time.sleep(0.1)
    finally:
        query.stop()
    counted = [seen[batch] for batch in sorted(seen)][UNCOUNTED:]
    return {
        "trigger_ms": [each["triggerExecution"] for each in counted],
        "rows": [each["rows"] for each in counted],
        "phases_ms": {
            name: statistics.median(each.get(name, 0) for each in counted) if counted else 0
            for name in _PHASES
        },
    }


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    times = [value for run in runs for value in run["trigger_ms"]]
    medians = [statistics.median(run["trigger_ms"]) for run in runs if run["trigger_ms"]]
    if not medians:
        return {"triggers": 0}
    return {
        "triggers": len(times),
        "trigger_ms": statistics.median(times),
        "trigger_ms_each": medians,
        "rows": statistics.median(value for run in runs for value in run["rows"]),
        "phases_ms": {
            name: statistics.median(run["phases_ms"][name] for run in runs) for name in _PHASES
        },
    }
