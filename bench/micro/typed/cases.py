"""Cases of the benchmark of typed columns: what is run, and which ratios are wanted."""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """Contestants that make the same columns of the same values.

    By contestant, ``bars`` has the most that kfast's time may be of its time, and ``factors`` how
    many times kfast's time it has to take.
    """

    name: str
    records: int
    value_bytes: int
    contestants: Mapping[str, Callable[[], object]]
    bars: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)


OWN = "kfast"


def run(case: Case, repetitions: int) -> dict[str, Any]:
    """Run all contestants of a case in turn, and return their times and ratios."""
    times: dict[str, list[float]] = {name: [] for name in case.contestants}
    for name, contestant in case.contestants.items():
        contestant()  # once for caches and pools of memory
        assert name in times
    for _ in range(repetitions):
        for name, contestant in case.contestants.items():
            gc.collect()
            begin = time.process_time()
            made = contestant()
            times[name].append(time.process_time() - begin)
            del made
    return {
        "case": case.name,
        "records": case.records,
        "value_bytes": case.value_bytes,
        "ns_per_record": {
            name: statistics.median(each) / case.records * 1e9 for name, each in times.items()
        },
        "ratios": {
            name: statistics.median(
                own / other for own, other in zip(times[OWN], each, strict=True)
            )
            for name, each in times.items()
            if name != OWN
        },
        "bars": dict(case.bars),
        "factors": dict(case.factors),
    }


def misses(result: Mapping[str, Any]) -> list[str]:
    """Return what a case's ratios miss, one line each."""
    ratios = result["ratios"]
    found = [
        f"{result['case']}: {ratios[name]:.2f} of {name}, not {bar}"
        for name, bar in result["bars"].items()
        if ratios[name] > bar
    ]
    found += [
        f"{result['case']}: {1 / ratios[name]:.1f} times {name}, not {factor}"
        for name, factor in result["factors"].items()
        if 1 / ratios[name] < factor
    ]
    return found


def one_core() -> None:
    """Keep the process, and the libraries that are imported later, to one core."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    for name in ("POLARS_MAX_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[name] = "1"


def table_rows(results: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row per case and contestant: name, its time, the ratio, what is wanted of it."""
    rows = []
    for result in results:
        times = result["ns_per_record"]
        rows.append([result["case"], OWN, f"{times[OWN]:.0f}", "", ""])
        for name, ratio in result["ratios"].items():
            bar = result["bars"].get(name)
            factor = result["factors"].get(name)
            wanted = f"≤ {bar}" if bar else f"≤ {1 / factor:.3f}" if factor else ""
            shown = f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.3f}"
            rows.append([result["case"], name, f"{times[name]:.0f}", shown, wanted])
    return rows
