"""The machine's part of every benchmark result, and its output as JSON and markdown tables."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

from kfast.local.jars import DEFAULT_VERSION
from kfast.local.java import find_java

RESULTS = Path(__file__).parent / "results" / "tmp"
PACKAGES = (
    *("kfast", "numpy", "pyarrow", "confluent-kafka", "kafka-python", "aiokafka", "lz4"),
    *("zstandard", "crc32c", "cramjam", "isal", "pyspark"),
    *("orjson", "msgspec", "duckdb", "polars", "fastavro", "pyruhvro"),
)


def machine() -> dict[str, object]:
    """Return the machine, its software and its load."""
    times = psutil.cpu_times()
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "java": find_java().version,
        "kafka": DEFAULT_VERSION,
        "packages": {name: _version_of(name) for name in PACKAGES},
        "commit": commit_measured(),
        "load": os.getloadavg(),
        "stolen_cpu_seconds": getattr(times, "steal", 0.0),
    }


def finish(result: dict[str, Any]) -> dict[str, Any]:
    """Add the machine's load and stolen CPU time after the measurement."""
    before = result["machine"]
    result["machine_after"] = {
        "load": os.getloadavg(),
        "stolen_cpu_seconds": getattr(psutil.cpu_times(), "steal", 0.0)
        - before["stolen_cpu_seconds"],
    }
    return result


def _cpu_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return platform.processor()
    found = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return found.group(1) if found else platform.processor()


def _version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def commit_measured() -> str | None:
    """Return the commit measured, with ``-dirty`` behind it if a file of it was changed.

    The results of other runs do not count: they are published together.
    """
    commit = _git("describe", "--always")
    if commit is None:
        return None
    others = (":/", ":(top,exclude)bench/results")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", *others)
    return f"{commit}-dirty" if changed else commit


def _git(*arguments: str) -> str | None:
    try:
        done = subprocess.run(
            ["git", *arguments],
            capture_output=True,
            text=True,
            check=False,
            cwd=Path(__file__).parent,
        )
    except OSError:
        return None
    return None if done.returncode else done.stdout.strip()


def write(result: Mapping[str, Any], path: Path) -> tuple[Path, Path]:
    """Write JSON and, beside it, markdown; return both paths."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    text_path = path.with_suffix(".md")
    text_path.write_text(markdown(result), encoding="utf-8")
    return path, text_path


def save(result: dict[str, Any], prefix: str, path: Path | None) -> None:
    """Finish a result, write it to ``path`` or a file of the present time, and print it."""
    target = path or RESULTS / f"{prefix}{time.strftime('%Y%m%d-%H%M%S')}.json"
    files = write(finish(result), target)
    print(f"\n{markdown(result)}\n{files[0]}\n{files[1]}")


def progress(text: str) -> None:
    """Print a line on standard error."""
    print(text, file=sys.stderr, flush=True)


def markdown(result: Mapping[str, Any]) -> str:
    """Return a result as markdown: one section per kind of measurement it has."""
    sections = [_heading(result)]
    if "end_to_end" in result:
        sections.append(_end_to_end(result["end_to_end"]))
    if "connecting" in result:
        sections.append(_connecting(result["connecting"]))
    if "idle" in result:
        sections.append(_idle(result["idle"]))
    if "backlog" in result:
        sections.append(_backlog(result["backlog"]))
    if "latency" in result:
        sections.append(_latency(result["latency"]))
    if "cli" in result:
        sections.append(_cli(result["cli"]))
    if "spark" in result:
        sections.append(_spark(result["spark"]))
    return "\n".join(sections)


def _cli(cli: Mapping[str, Any]) -> str:
    """Return the table of the command line: medians, and the bars."""
    rows = []
    for row in cli["rows"]:
        others = [
            f"{name} {digits(found['seconds'])} s"
            for name, found in row["medians"].items()
            if name != "kfast"
        ]
        bars = [
            f"{bar['figure'].replace('_', ' ')} {_figure(row['figures'].get(bar['figure']))} "
            f"(at most {_figure(bar['most'])})"
            for bar in row["bars"]
        ]
        own = row["medians"]["kfast"]
        rows.append(
            [
                row["title"],
                f"{digits(own['seconds'])} s",
                f"{own['rss_mb']:.0f} MB",
                ", ".join(others) or "-",
                "; ".join(bars),
            ]
        )
    header = ["case", "kfast", "memory", "beside it", "figure and its bar"]
    return (
        f"## Command line\n\n{cli['records']:,} records of 100 bytes unless said, to a file; "
        f"medians of {cli['rounds']} rounds, from start to exit of a process; pyarrow writes what "
        "it has in memory; a ratio is kfast's seconds to those of the first beside it.\n\n"
        f"{table(header, rows)}"
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else digits(value)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a markdown table."""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _heading(result: Mapping[str, Any]) -> str:
    here, after = result["machine"], result["machine_after"]
    return (
        f"# Benchmark of {here['time']}\n\n"
        f"{here['cpu']}, {here['cores']} cores, {here['memory_gib']} GiB; {here['system']}; "
        f"Python {here['python']}, Kafka {here['kafka']} on Java {here['java']}; "
        f"commit {here['commit']}.\n"
        f"Load {here['load'][0]:.1f} before and {after['load'][0]:.1f} after; "
        f"{after['stolen_cpu_seconds']:.1f} CPU seconds stolen.\n"
    )


def _end_to_end(part: Mapping[str, Any]) -> str:
    topics, contestants = part["topics"], part["contestants"]
    cells = {(row["topic"], row["contestant"]): row for row in part["summary"]}
    text = [
        "## End to end\n\nMillion records per second: median (lowest - highest); in brackets CPU "
        "seconds per million records of client + broker; peak memory of the client.\n\n"
    ]
    titles = [_topic_title(spec) for spec in topics.values()]
    rows = [
        [about["title"], *(_cell(cells.get((topic, name))) for topic in topics)]
        for name, about in contestants.items()
    ]
    text.append(table(["consumer", *titles], rows))
    tuned: dict[str, list[str]] = {}
    for about in contestants.values():
        tuned.setdefault(about["settings"] or "defaults", []).append(about["title"])
    notes = [f"- {settings}: {'; '.join(titles)}\n" for settings, titles in tuned.items()]
    text.append(f"\nSettings:\n\n{''.join(notes)}")
    counts = {
        f"{spec['records']:,} records, {spec['partitions']} partitions" for spec in topics.values()
    }
    text.append(f"\nPer topic {'; '.join(sorted(counts))}.\n")
    text.append(_pairs(part.get("pairs", ()), topics, contestants))
    return "".join(text)


def _pairs(
    pairs: Sequence[Mapping[str, Any]], topics: Mapping[str, Any], contestants: Mapping[str, Any]
) -> str:
    if not pairs:
        return ""
    has_cpu = all("cpu_median" in pair for pair in pairs)
    lines = [
        [
            f"{contestants[pair['contestant']]['title']} / {contestants[pair['to']]['title']}",
            _topic_title(topics[pair["topic"]]),
            f"**{pair['median']:.2f}** {_spread(pair['ratios'])}".rstrip(),
            *(_cpu_ratio(pair) if has_cpu else ()),
            str(len(pair["ratios"])),
        ]
        for pair in pairs
    ]
    cpu = ("CPU seconds of the second / first",) if has_cpu else ()
    header = ["ratio of the rates within a repetition", "topic", "median", *cpu, "repetitions"]
    return f"\n{table(header, lines)}"


def _cpu_ratio(pair: Mapping[str, Any]) -> tuple[str]:
    return (f"{pair['cpu_median']:.2f} {_spread(pair['cpu_ratios'])}".rstrip(),)


def _topic_title(spec: Mapping[str, Any]) -> str:
    what = f"{spec['value_bytes']} B" if spec["kind"] == "text" else spec["kind"]
    return f"{what} {spec['codec']}"


def _cell(row: Mapping[str, Any] | None) -> str:
    if row is None or not row["measures"]:
        return "failed" if row and row["errors"] else "-"
    measures = row["measures"]
    rate = {key: value / 1e6 for key, value in measures["rate"].items()}
    client = measures["client_cpu_seconds_per_million"]["median"]
    broker = measures["broker_cpu_seconds_per_million"]["median"]
    memory = measures["peak_rss_mb"]["median"]
    spread = (
        f"({digits(rate['min'])}-{digits(rate['max'])}) " if len(set(rate.values())) > 1 else ""
    )
    return f"**{digits(rate['median'])}** {spread}[{client:.2f} + {broker:.2f}] {memory:.0f} MB"


def digits(value: float) -> str:
    """Return a figure with about three digits."""
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:.3f}"


def _connecting(rows: Sequence[Mapping[str, Any]]) -> str:
    header = ["a consumer made, asked for a topic, closed", "asked", "closed", "p90", "highest"]
    lines = [
        [
            f"{row['client']}, {row['connections']} times",
            *(f"{row[name]:.1f}" for name in ("connected_ms", "median_ms", "p90_ms", "max_ms")),
        ]
        for row in rows
    ]
    note = (
        "\nMilliseconds from the beginning; asked and closed are medians, p90 and highest are of "
        "closed. Over TLS 1.3 with SCRAM-SHA-512, 4096 iterations. The bare SSLSocket does these "
        "steps and nothing else.\n"
    )
    return f"## Connecting\n\n{table(header, lines)}{note}"


def _idle(rows: Sequence[Mapping[str, Any]]) -> str:
    header = ["idle, all partitions assigned", "CPU % of a core", "broker CPU %", "B/s", "RSS MB"]
    lines = [
        [
            f"{row['client']}, {row['partitions']} partitions",
            f"{row['client_cpu_percent']:.1f}",
            f"{row['broker_cpu_percent']:.1f}",
            f"{row['loopback_bytes_per_second']:,.0f}",
            f"{row['rss_mb']:.0f}",
        ]
        for row in rows
    ]
    note = "\nB/s: everything on the loopback interface, both ways.\n"
    return f"## Idle\n\n{table(header, lines)}{note}"


def _backlog(rows: Sequence[Mapping[str, Any]]) -> str:
    header = ["backlog, application asleep", "RSS growth MB", "RSS before MB"]
    lines = [
        [
            f"{row['client']}, {row['megabytes']} MB in {row['partitions']} partitions",
            f"{row['rss_growth_mb']:.0f}",
            f"{row['rss_before_mb']:.0f}",
        ]
        for row in rows
    ]
    return f"## Memory\n\n{table(header, lines)}"


def _spread(values: Sequence[float]) -> str:
    return f"({min(values):.2f}-{max(values):.2f})" if len(values) > 1 else ""


def _latency(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = [
        [row["client"], row["error"], "-", "-"]
        if "error" in row
        else [
            f"{row['client']}, {row['per_second']} msg/s, {row['messages']} messages",
            f"{row['p50_ms']:.2f} {_spread(row.get('p50_ms_each', ()))}".rstrip(),
            *(f"{row[name]:.2f}" for name in ("p99_ms", "max_ms")),
        ]
        for row in rows
    ]
    header = ["latency", "p50 ms", "p99 ms", "highest ms"]
    about = (
        "\nThe receivers are limits, no consumers: a blocking socket and the decoder, on one"
        " thread, and with a hand-over to a second one.\n"
        if any(str(row["client"]).startswith("receiver") for row in rows)
        else ""
    )
    return f"## Latency\n\n{table(header, lines)}{about}"


def _spark(part: Mapping[str, Any]) -> str:
    session = part["session"]
    known = {name for case in part["cases"].values() for name in case["contestants"]}
    receiving = (
        "; one of them also receives the topic and does nothing with it, which no source that "
        "reads Kafka here can beat"
        if "ceiling-receiving" in known
        else ""
    )
    bare = (
        " The source without a consumer receives, decodes and hands over, with no errors, metadata,"
        " groups or threads: what it lacks to the ceiling is the price of reading Kafka at all."
        if "bare" in known
        else ""
    )
    text = [
        f"## Spark\n\npyspark {session['pyspark']}, {session['master']} with a heap of "
        f"{session['driver_memory']}; the connector is "
        f"{', '.join(session['connector'])}{_gap(session)}. The ceiling is a Python source that "
        f"yields Arrow batches made before{receiving}.{bare} Million rows per second, median "
        "(lowest - highest); the share of the ceiling: median of the repetitions' ratios.\n"
    ]
    tuned: dict[str, list[str]] = {}
    for case in part["cases"].values():
        text.append(f"\n{_spark_case(case)}")
        for about in case["contestants"].values():
            settings = ", ".join(f"{name}={value}" for name, value in about["settings"].items())
            titles = tuned.setdefault(settings or "defaults", [])
            titles += [] if about["title"] in titles else [about["title"]]
    if "micro_batches" in part:
        text.append(f"\n{_micro_batches(part['micro_batches'])}")
    if part["ratios"]:
        lines = [
            [row["what"], f"{row['ratio']:.2f}", row["goal"], "met" if row["is_met"] else "missed"]
            for row in part["ratios"]
        ]
        text.append(f"\n{table(['ratio', 'measured', 'goal', ''], lines)}")
    if tuned:
        notes = [f"- {settings}: {'; '.join(titles)}\n" for settings, titles in tuned.items()]
        text.append(f"\nSettings:\n\n{''.join(notes)}")
    return "".join(text)


def _gap(session: Mapping[str, Any]) -> str:
    """Return a remark if the connector is not the one of this Spark."""
    version = str(session["connector"][0]).rpartition(" ")[2]
    if version == session["pyspark"]:
        return ""
    return f" (that of {session['pyspark']} was not available; {version} runs on it)"


def _spark_case(case: Mapping[str, Any]) -> str:
    ceiling = case["contestants"].get("ceiling")
    lines = []
    for about in case["contestants"].values():
        rate = about["million_rows_per_second"]
        share = "-"
        if ceiling is not None:
            pairs = zip(ceiling["seconds"], about["seconds"], strict=True)
            share = f"{statistics.median(best / own for best, own in pairs):.2f}"
        spread = f"({digits(rate['min'])}-{digits(rate['max'])})"
        lines.append([about["title"], f"**{digits(rate['median'])}** {spread}", share])
    spec = case["topic"]
    size = f"{spec['records']:,} records, {spec['partitions']} partitions"
    return table([f"{case['title']}; {size}", "M rows/s", "of the ceiling"], lines)


def _micro_batches(part: Mapping[str, Any]) -> str:
    lines = [
        [
            f'format("{name}")',
            f"{about['trigger_ms']:.0f} {_spread(about['trigger_ms_each'])}".rstrip(),
            f"{about['rows']:.0f}",
            f"{about['triggers']}",
            ", ".join(f"{phase} {value:.0f}" for phase, value in about["phases_ms"].items()),
        ]
        for name, about in part["summary"].items()
        if about["triggers"]
    ]
    title = (
        f"micro-batches, {part['per_second']} msg/s, {part['partitions']} partitions, "
        f"a trigger every {part['interval_ms'] / 1000:g} s"
    )
    return table([title, "trigger ms", "rows", "triggers", "of which"], lines)
