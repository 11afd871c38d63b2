"""Runs the cases of the Spark benchmark: contestants alternately, in one session, on one broker.

Every contestant runs its case once unmeasured, to warm up the JVM and the page cache. Then every
repetition runs all of them, in another order each time. At the end the rows are counted where that
is possible, so that no contestant is fast because it drops rows.

Right before it is timed, each runs its case on a small topic. Spark ends Python workers that were
idle for a minute, which is less than some contestants take: the next contestant would be timed with
the start of workers, and the others not.
"""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from bench.data import TopicSpec, write_topic
from bench.spark.reading import CASES, Bench, Case
from kfast.local.local_kafka import LocalKafka

Progress = Callable[[str], None]

WARM_RECORDS: Final = 1_500_000
"""Of the small topic: one row group of the ingest for each of six partitions."""


@dataclass(slots=True, frozen=True)
class CaseOptions:
    """What to run: ``cases`` and ``contestants`` are names."""

    cases: tuple[str, ...]
    contestants: tuple[str, ...]
    records: int
    partitions: int
    repetitions: int
    warm_ups: int
    file_records: int
    """Records of the cases that write files, in which Spark spends seconds before the first row."""

    def spec(self, case: str) -> TopicSpec:
        """Return the topic of a case."""
        records = self.file_records if CASES[case].writes_files else self.records
        return TopicSpec(CASES[case].kind, 100, "none", records, self.partitions)


def run_cases(
    kafka: LocalKafka, bench: Bench, options: CaseOptions, progress: Progress
) -> dict[str, Any]:
    """Run everything and return what goes into the JSON."""
    specs = {name: options.spec(name) for name in options.cases}
    for spec in dict.fromkeys([*specs.values(), *map(_small, specs.values())]):
        progress(f"writing {spec.name}")
        write_topic(kafka, spec)
    return {name: _run_case(bench, name, spec, options, progress) for name, spec in specs.items()}


def _small(spec: TopicSpec) -> TopicSpec:
    return replace(spec, records=min(spec.records, WARM_RECORDS))


def _run_case(
    bench: Bench, name: str, spec: TopicSpec, options: CaseOptions, progress: Progress
) -> dict[str, Any]:
    case = CASES[name]
    names = [each for each in case.contestants if each in options.contestants]
    seconds: dict[str, list[float]] = {each: [] for each in names}
    for each in names * options.warm_ups:
        progress(f"{name} {each}, not counted: {_timed(bench, case, each, spec):.2f} s")
    for repetition in range(options.repetitions):
        turn = repetition % max(1, len(names))
        for each in names[turn:] + names[:turn]:
            seconds[each].append(_timed(bench, case, each, spec))
            rate = spec.records / seconds[each][-1] / 1e6
            progress(f"{name} {repetition + 1}/{options.repetitions} {each}: {rate:.2f} M rows/s")
    counts = {
        each: count(bench, spec)
        for each in names
        if (count := case.contestants[each].count) is not None
    }
    wrong = {each: count for each, count in counts.items() if count != spec.records}
    if wrong:
        raise RuntimeError(f"{name}: {spec.records} records, but {wrong}")
    return {
        "title": case.title,
        "topic": asdict(spec),
        "counted": counts,
        "contestants": {
            each: {
                "title": case.contestants[each].title,
                "settings": dict(case.contestants[each].settings),
                "seconds": seconds[each],
                "million_rows_per_second": _spread(spec.records, seconds[each]),
            }
            for each in names
        },
    }


def _timed(bench: Bench, case: Case, contestant: str, spec: TopicSpec) -> float:
    prepare = case.contestants[contestant].prepare
    prepare(bench, _small(spec))()
    action = prepare(bench, spec)
    begin = time.perf_counter()
    action()
    taken = time.perf_counter() - begin
    shutil.rmtree(bench.folder, ignore_errors=True)
    return taken


def _spread(records: int, seconds: Sequence[float]) -> dict[str, float]:
    rates = [records / each / 1e6 for each in seconds]
    return {"median": statistics.median(rates), "min": min(rates), "max": max(rates)}


# --- goals ----------------------------------------------------------------------------------------

_GOALS: Final = (
    # case, contestant, the other's case, the other, at least so many times as fast
    ("full", "kfast", "full", "ceiling-receiving", 0.92),
    ("full", "kfast", "full", "kafka-tuned", 1.8),
    ("full", "kfast", "full", "kafka-best", 1.3),
    ("value", "kfast", "value", "ceiling-receiving", 0.92),
    ("value", "kfast", "value", "kafka-tuned", 3.0),
    ("value", "kfast", "value", "kafka-best", 2.5),
    ("struct", "kfast", "struct", "ceiling-receiving", 0.92),
    ("struct", "kfast", "struct", "kafka-tuned", 3.5),
    ("json", "kfast", "json", "from-json", 2.5),
    ("parquet", "ingest", "parquet", "kafka-tuned", 4.0),
    ("parquet", "ingest-zstd", "parquet", "kafka-tuned", 3.2),
    ("json-parquet", "ingest", "json-parquet", "from-json", 8.0),
)
TRIGGER_GOAL: Final = 1.3
"""Most that a trigger may take, as a multiple of the JVM connector's."""


def ratios(
    cases: Mapping[str, Mapping[str, Any]], micro: Mapping[str, Any] | None
) -> list[dict[str, Any]]:
    """Return the ratios of medians that have a goal, as far as both sides were measured."""
    found: list[dict[str, Any]] = []
    for case, name, other_case, other, goal in _GOALS:
        one = cases.get(case, {}).get("contestants", {}).get(name)
        two = cases.get(other_case, {}).get("contestants", {}).get(other)
        if one is None or two is None:
            continue
        pairs = [b / a for a, b in zip(one["seconds"], two["seconds"], strict=True)]
        ratio = statistics.median(pairs)
        found.append(
            {
                "what": f"{case}: {name} / {other}",
                "ratio": ratio,
                "each": pairs,
                "goal": f">= {goal}",
                "is_met": ratio >= goal,
            }
        )
    summary = (micro or {}).get("summary", {})
    times = {name: about.get("trigger_ms") for name, about in summary.items()}
    if times.get("kfast") and times.get("kafka"):
        ratio = times["kfast"] / times["kafka"]
        found.append(
            {
                "what": "micro-batch: time of kfast / kafka",
                "ratio": ratio,
                "goal": f"<= {TRIGGER_GOAL}",
                "is_met": ratio <= TRIGGER_GOAL,
            }
        )
    return found
