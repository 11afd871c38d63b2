"""``python -m bench.cli``: the command line against kcat, NumPy's import and pyarrow's writers.

Each round runs every contestant of a case once, in turns, each as a process whose standard output
is a file. The figures of a case are medians of its rounds; ratios are of the same round. kcat is
left out where it is not installed. The broker of this machine is started for the run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from bench import report
from bench.cli.cases import CASES, Bar, Case
from bench.data import TopicSpec, write_topic
from kfast import KafkaConsumer, TopicPartition
from kfast.demo.data import START_MS
from kfast.errors import KafkaError
from kfast.local.local_kafka import LocalKafka

_GROUPS: Final = 20
_LARGER: Final = 10
_TIMEOUT_S: Final = 600
_LOOK_S: Final = 0.02
"""How often the peak of the memory is read: looking takes time from what is measured."""
_PEAK: Final = re.compile(r"VmHWM:\s+(\d+) kB")
_WARM_UP_S: Final = 2.0
"""After which a command that follows has read what there is."""


@dataclass(slots=True, frozen=True)
class Ended:
    """One process."""

    seconds: float
    cpu_seconds: float
    rss_mb: float


def parser() -> argparse.ArgumentParser:
    """Return the command line."""
    made = argparse.ArgumentParser(prog="python -m bench.cli", description=__doc__)
    made.add_argument("--records", type=int, default=1_000_000, help="of 100 bytes")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--cases", default="", help="numbers, such as 1,3,5; default all")
    made.add_argument("--heap", default="512m", help="Java heap of the broker")
    made.add_argument("--output", type=Path, help="JSON file; .md is written beside it")
    return made


def run_cases(
    kafka: LocalKafka,
    numbers: set[int],
    records: int,
    rounds: int,
    progress: Callable[[str], None] = report.progress,
) -> dict[str, Any]:
    """Measure cases by their numbers; return what goes into the JSON."""
    small, large = TopicSpec(records=records), TopicSpec(records=records * _LARGER)
    trades = TopicSpec("trades", records=records)
    for word, spec in (("", small), ("{large}", large), ("{trades}", trades)):
        if word and not any(word in each.command for each in CASES if each.number in numbers):
            continue
        progress(f"writing {spec.name}: {spec.records:,} records")
        write_topic(kafka, spec)
    _make_groups(kafka, small)
    os.sync()  # what has been written to the disk is there before the first case
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        names = {
            "servers": kafka.bootstrap_servers,
            "refused": "127.0.0.1:1",
            "topic": small.name,
            "large": large.name,
            "trades": trades.name,
            "records": str(records),
            "middle": str(START_MS + large.records // 2),
            "target": f"{scratch}/target",
            "folder": f"{scratch}/table",
        }
        for case in CASES:
            if case.number in numbers:
                rows.append(_row(case, names, rounds, Path(scratch), rows))
                progress(f"{case.number}: {rows[-1]['figures']}")
    return {"records": records, "rounds": rounds, "rows": rows}


def _row(
    case: Case, names: Mapping[str, str], rounds: int, scratch: Path, rows: list[dict[str, Any]]
) -> dict[str, Any]:
    commands = {"kfast": case.command, **case.anchors}
    if shutil.which("kcat") is None:
        commands = {name: words for name, words in commands.items() if words[0] != "kcat"}
    runs: dict[str, list[Ended]] = {name: [] for name in commands}
    if case.prepare:
        words = [word.format_map(names) for word in case.prepare]
        subprocess.run(words, check=True, capture_output=True, env=_environment(scratch))
    for number in range(rounds):
        turn = number % len(commands)
        names_in_turn = [*commands][turn:] + [*commands][:turn]
        for name in names_in_turn:
            words = [word.format_map(names) for word in commands[name]]
            is_own = name == "kfast"
            runs[name].append(
                _timed(
                    words,
                    scratch,
                    case.status if is_own else 0,
                    case.follows_seconds if is_own else 0,
                    prints=case.prints_seconds and not is_own,
                    keeps=bool(case.prepare),
                )
            )
    _empty(scratch)
    found = {
        name: {
            figure: statistics.median(getattr(each, figure) for each in ended)
            for figure in ("seconds", "cpu_seconds", "rss_mb")
        }
        for name, ended in runs.items()
    }
    figures = _figures(case, runs, found, rows)
    return {
        "number": case.number,
        "title": case.title,
        "medians": found,
        "figures": figures,
        "bars": [
            asdict(bar) | {"holds": None if bar.figure not in figures else _holds(bar, figures)}
            for bar in case.bars
        ],
    }


def _holds(bar: Bar, figures: Mapping[str, float]) -> bool:
    return figures[bar.figure] <= bar.most


def _figures(
    case: Case,
    runs: Mapping[str, list[Ended]],
    found: Mapping[str, Mapping[str, float]],
    rows: list[dict[str, Any]],
) -> dict[str, float]:
    own = found["kfast"]
    figures = {"seconds": own["seconds"], "rss_mb": own["rss_mb"]}
    anchor = next(iter(case.anchors), None)
    if anchor is not None and anchor in runs and not case.follows_seconds:
        pairs = zip(runs["kfast"], runs[anchor], strict=True)
        figures["ratio"] = statistics.median(one.seconds / other.seconds for one, other in pairs)
    if case.follows_seconds:
        figures["cpu_share"] = own["cpu_seconds"] / case.follows_seconds
    if "numpy" in found:
        figures["rss_over_numpy_mb"] = own["rss_mb"] - found["numpy"]["rss_mb"]
    third = next((row for row in rows if row["number"] == 3), None)
    if case.number == 9 and third is not None:
        figures["times_case_3"] = own["seconds"] / third["medians"]["kfast"]["seconds"]
    return figures


def _timed(
    words: list[str],
    scratch: Path,
    status: int,
    follows_seconds: float,
    *,
    prints: bool,
    keeps: bool,
) -> Ended:
    """Run a command; its output is removed, what it has written too unless ``keeps``."""
    with (scratch / "out").open("wb") as out, tempfile.TemporaryFile() as errors:
        started = time.perf_counter()
        process = subprocess.Popen(words, stdout=out, stderr=errors, env=_environment(scratch))
        idle_cpu = 0.0
        if follows_seconds:
            idle_cpu = _cpu_while_idle(process, follows_seconds)
        watch = _Memory(process.pid)
        _, code, used = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - started
        peak_mb = watch.stop()
        process.returncode = os.waitstatus_to_exitcode(code)
        if process.returncode != status:
            errors.seek(0)
            raise RuntimeError(f"{words}: exit {process.returncode}: {errors.read()[-500:]!r}")
    text = (scratch / "out").read_bytes() if prints else b""
    if not keeps:
        _empty(scratch)
    cpu = idle_cpu if follows_seconds else used.ru_utime + used.ru_stime
    return Ended(float(text) if prints else seconds, cpu, peak_mb)


def _environment(scratch: Path) -> dict[str, str]:
    """Return the environment of commands: with files of bytecode, without those of the user."""
    own = {"XDG_CACHE_HOME": f"{scratch}/cache", "XDG_CONFIG_HOME": f"{scratch}/config"}
    return {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    } | own


def _empty(scratch: Path) -> None:
    for path in scratch.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()


class _Memory(threading.Thread):
    """Watches the most memory that a process has had.

    The kernel's figure for an ended process has that of the process it was forked from in it.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._path = Path(f"/proc/{pid}/status")
        self._peak_kb = 0
        self._is_over = threading.Event()
        self.start()

    def run(self) -> None:
        """Look until the process is gone."""
        while not self._is_over.wait(_LOOK_S):
            try:
                found = _PEAK.search(self._path.read_text(encoding="utf-8"))
            except OSError:
                return
            if found is not None:
                self._peak_kb = max(self._peak_kb, int(found[1]))

    def stop(self) -> float:
        """Return the peak in MB."""
        self._is_over.set()
        self.join()
        return self._peak_kb / 1024


def _cpu_while_idle(process: subprocess.Popen[bytes], seconds: float) -> float:
    """Return the CPU seconds that a process uses while nothing comes, and interrupt it."""
    import psutil  # noqa: PLC0415 - of one case

    time.sleep(_WARM_UP_S)
    watched = psutil.Process(process.pid)
    first = sum(watched.cpu_times()[:2])
    time.sleep(seconds)
    used: float = sum(watched.cpu_times()[:2]) - first
    process.send_signal(signal.SIGINT)
    return used


def _make_groups(kafka: LocalKafka, spec: TopicSpec) -> None:
    """Let groups have read half of a topic."""
    offsets = {
        TopicPartition(spec.name, number): spec.records // spec.partitions // 2
        for number in range(spec.partitions)
    }
    for number in range(_GROUPS):
        with KafkaConsumer(
            bootstrap_servers=kafka.bootstrap_servers, group_id=f"bench-{number}"
        ) as consumer:
            consumer.assign([*offsets])
            consumer.commit(offsets)


def main(argv: list[str] | None = None) -> int:
    """Run and report; the exit status."""
    options = parser().parse_args(argv)
    numbers = {int(each) for each in options.cases.split(",") if each} or {
        case.number for case in CASES
    }
    result: dict[str, Any] = {"arguments": vars(options) | {"output": str(options.output)}}
    result["machine"] = report.machine()
    try:
        with LocalKafka(heap=options.heap, progress=report.progress) as kafka:
            result["cli"] = run_cases(kafka, numbers, options.records, options.rounds)
    except KafkaError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    report.save(result, "cli-", options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
