"""Cases of the benchmark of typed columns: what is run, and which ratios are wanted."""

from __future__ import annotations

import ctypes
import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Case:
    """Contestants that make the same columns of the same values.

    By contestant, ``bars`` has the most that kfast's time may be of its time, and ``factors`` how
    many times kfast's time it has to take. ``most_memory`` is the most that kfast's peak of memory
    may be of the bytes of its columns, 0 if it is not measured. On several ``cores`` the time is
    that of the clock on the wall.
    """

    name: str
    records: int
    value_bytes: int
    contestants: Mapping[str, Callable[[], object]]
    bars: Mapping[str, float] = field(default_factory=dict)
    factors: Mapping[str, float] = field(default_factory=dict)
    most_memory: float = 0.0
    cores: int = 1


OWN = "kfast"
MOST_MEMORY = 1.6
_CORES = os.sched_getaffinity(0)


def run(case: Case, repetitions: int) -> dict[str, Any]:
    """Run all contestants of a case in turn, and return their times and ratios."""
    times: dict[str, list[float]] = {name: [] for name in case.contestants}
    memory = memory_share(case.contestants[OWN]) if case.most_memory else 0.0
    clock = time.process_time if case.cores == 1 else time.perf_counter
    keep_to(case.cores)
    for name, contestant in case.contestants.items():
        contestant()  # once for caches and pools of memory
        assert name in times
    for _ in range(repetitions):
        for name, contestant in case.contestants.items():
            gc.collect()
            begin = clock()
            made = contestant()
            times[name].append(clock() - begin)
            del made
    keep_to(1)
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
        "memory": memory,
        "most_memory": case.most_memory,
    }


def memory_share(contestant: Callable[[], object]) -> float:
    """Return kfast's peak of memory while it makes columns, as a share of their bytes."""
    import pyarrow as pa  # noqa: PLC0415  after the variables of thread pools

    from kfast._native.buffers import trim_pool  # noqa: PLC0415

    contestant()  # for modules that are imported when they are needed
    gc.collect()
    trim_pool()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak is what there is now
    before = peak_bytes()
    made: Any = contestant()
    peak = peak_bytes() - before
    return float(peak / pa.Array._import_from_c_capsule(*made).nbytes)


def peak_bytes() -> int:
    """Return the most memory that was in use since the peak was forgotten."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


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
    if result["memory"] > result["most_memory"]:
        found.append(
            f"{result['case']}: {result['memory']:.2f} bytes per byte of columns, "
            f"not {result['most_memory']}"
        )
    return found


def keep_to(cores: int) -> None:
    """Keep this thread, and those that it starts, to some cores, the last ones."""
    os.sched_setaffinity(0, sorted(_CORES)[-cores:])


def one_core() -> None:
    """Keep the process, and the libraries that are imported later, to one core."""
    keep_to(1)
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
        if result["most_memory"]:
            wanted = f"≤ {result['most_memory']}"
            what = "kfast's peak of memory ÷ bytes of its columns"
            rows.append([result["case"], what, "", f"{result['memory']:.2f}", wanted])
    return rows
