"""Runs contestants against one real broker, alternately, and measures broker and client.

Topics are written first and read once to warm the page cache, and over TLS twice, because Java
compiles the broker's encryption while it runs. Then every repetition runs every contestant on a
topic, in another order each time, each in a process of its own, so that a slow minute of the
machine affects all of them.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import psutil

from bench.data import TopicSpec, write_topic
from bench.e2e.contestants import AVRO, CONTESTANTS, Target
from kfast.demo.data import TRADE_AVRO
from kfast.local.local_kafka import LocalKafka
from tests.fake_registry.server import FakeRegistry

Progress = Callable[[str], None]
_PAIRS = (
    ("kfast-group", "kfast"),
    ("kfast-commits", "kfast"),
    ("kfast-tls", "confluent-tls"),
    ("kfast-tls", "drain-tls"),
    ("kfast-tls", "kfast"),
    ("kfast-tls-busy", "kfast-busy"),
    ("kfast-json", "confluent-orjson"),
    ("kfast-json", "kfast-duckdb"),
    ("kfast-json", "kfast-raw"),
    ("kfast-avro", "confluent-avro"),
    ("kfast-avro", "kfast-raw"),
)
"""Contestants that read the same in two ways, compared within each repetition."""
_CPU = "client_cpu_seconds_per_million"
_TIMEOUT_SECONDS = 600


@dataclass(slots=True, frozen=True)
class EndToEndOptions:
    """What to run: ``contestants`` are names from ``CONTESTANTS``."""

    contestants: tuple[str, ...]
    topics: tuple[TopicSpec, ...]
    repetitions: int = 3


@dataclass(slots=True, frozen=True)
class Run:
    """One run of a contestant on one topic."""

    contestant: str
    topic: str
    repetition: int
    """From 1."""
    measures: dict[str, float] = field(default_factory=dict)
    """The worker's report, and ``broker_cpu_seconds_per_million``; empty if it failed."""
    error: str = ""


def run_end_to_end(
    kafka: LocalKafka, options: EndToEndOptions, progress: Progress
) -> dict[str, object]:
    """Run everything and return what goes into the JSON."""
    runs: list[Run] = []
    with ExitStack() as stack:
        registry = ""
        if any(spec.kind == AVRO for spec in options.topics):
            served = stack.enter_context(FakeRegistry())
            served.register("trades-value", json.dumps(TRADE_AVRO))
            registry = served.url
        for spec in options.topics:
            progress(f"writing {spec.name}: {spec.records:,} records")
            write_topic(kafka, spec)
            for name in _warm_up(options.contestants):
                _run_one(kafka, spec, name, 0, registry)
            names = [each for each in options.contestants if spec.kind in CONTESTANTS[each].kinds]
            for repetition in range(1, options.repetitions + 1):
                turn = (repetition - 1) % len(names)
                for name in names[turn:] + names[:turn]:
                    run = _run_one(kafka, spec, name, repetition, registry)
                    runs.append(run)
                    done = f"{spec.name} {repetition}/{options.repetitions}"
                    progress(f"{done} {name}: {_in_short(run)}")
            kafka.delete_topic(spec.name)
    return {
        "topics": {spec.name: asdict(spec) for spec in options.topics},
        "contestants": {
            name: {"title": CONTESTANTS[name].title, "settings": CONTESTANTS[name].settings}
            for name in options.contestants
        },
        "runs": [asdict(run) for run in runs],
        "summary": summarise(runs),
        "pairs": pairs(runs),
    }


def _warm_up(contestants: Sequence[str]) -> tuple[str, ...]:
    return ("drain", "drain-tls", "drain-tls") if protocols(contestants)[1:] else ("drain",)


def protocols(contestants: Sequence[str]) -> tuple[str, ...]:
    """Return the security protocols that contestants need a listener for, PLAINTEXT first."""
    needed = (CONTESTANTS[name].security for name in contestants)
    return tuple(dict.fromkeys(("PLAINTEXT", *needed)))


def kinds(contestants: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of topics that contestants read."""
    needed = (kind for name in contestants for kind in CONTESTANTS[name].kinds)
    return tuple(dict.fromkeys(needed))


def _in_short(run: Run) -> str:
    if run.error:
        return f"failed: {run.error}"
    rate, cpu = run.measures["rate"] / 1e6, run.measures[_CPU]
    return f"{rate:.3f} M/s, {cpu:.2f} CPU s per M, {run.measures['peak_rss_mb']:.0f} MB"


def _run_one(kafka: LocalKafka, spec: TopicSpec, name: str, repetition: int, registry: str) -> Run:
    (broker_pid,) = kafka.pids.values()
    broker = psutil.Process(broker_pid)
    login = kafka.client_config(CONTESTANTS[name].security)
    target = Target(login.pop("bootstrap_servers"), spec.name, spec.partitions, login, registry)
    before = _cpu_seconds(broker)
    try:
        measures = run_worker(
            "bench.e2e.worker", name, json.dumps(asdict(target)), str(spec.records)
        )
    except RuntimeError as error:
        return Run(name, spec.name, repetition, error=str(error))
    broker_cpu = _cpu_seconds(broker) - before
    if not 0 < measures["records"] <= spec.records:
        return Run(name, spec.name, repetition, error=f"read {measures['records']:,.0f} records")
    measures["broker_cpu_seconds_per_million"] = broker_cpu / measures["records"] * 1e6
    return Run(name, spec.name, repetition, measures)


def run_worker(module: str, *args: str) -> dict[str, Any]:
    """Run a measuring program and return the JSON of its last line."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *args],
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took more than {_TIMEOUT_SECONDS} s") from None
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        errors = done.stderr.strip().splitlines()
        raise RuntimeError(errors[-1] if errors else f"exit status {done.returncode}")
    measures: dict[str, Any] = json.loads(lines[-1])
    return measures


def _cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def summarise(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return median, lowest and highest of every measure per topic and contestant."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.topic, run.contestant), []).append(run)
    summary: list[dict[str, object]] = []
    for (topic, contestant), members in groups.items():
        good = [run.measures for run in members if run.measures]
        measures = {
            name: {
                "median": statistics.median(values),
                "min": min(values),
                "max": max(values),
            }
            for name in (good[0] if good else {})
            for values in [[each[name] for each in good]]
        }
        errors = [run.error for run in members if run.error]
        summary.append(
            {"topic": topic, "contestant": contestant, "measures": measures, "errors": errors}
        )
    return summary


def pairs(runs: Sequence[Run]) -> list[dict[str, object]]:
    """Return the ratios of two ways to read the same, paired by repetition.

    ``ratios`` are those of the rates, ``cpu_ratios`` say how many times the client's CPU seconds
    the other one takes. The machine changes its speed from one minute to the next; within a
    repetition it changes least.
    """
    measures = {
        (run.topic, run.contestant, run.repetition): run.measures for run in runs if run.measures
    }
    found: list[dict[str, object]] = []
    for topic in dict.fromkeys(run.topic for run in runs):
        for name, other in _PAIRS:
            both = [
                (own, measures[topic, other, repetition])
                for (at, contestant, repetition), own in measures.items()
                if (at, contestant) == (topic, name) and (topic, other, repetition) in measures
            ]
            if both:
                ratios = [own["rate"] / its["rate"] for own, its in both]
                cpu_ratios = [its[_CPU] / own[_CPU] for own, its in both]
                found.append(
                    {
                        "topic": topic,
                        "contestant": name,
                        "to": other,
                        "ratios": ratios,
                        "median": statistics.median(ratios),
                        "cpu_ratios": cpu_ratios,
                        "cpu_median": statistics.median(cpu_ratios),
                    }
                )
    return found
