"""Writes the figures of BENCHMARKS.md and README.md: ``python -m bench.documents``.

Owns what stands between the ``bench`` marks of the two files. It is made of the results committed
in ``bench/results`` and of nothing else, and a test compares the two: a figure that no run has
measured cannot stand there. A result whose run did not have a clean working tree, or does not
record its commit, is refused: no one could measure the same code again.

=================  ===========================================================================
result             made by
=================  ===========================================================================
consumers.json     ``python -m bench e2e idle latency --values 100,1000 --output ...``
cli.json           ``python -m bench.cli --output bench/results/cli.json``
clients.json       ``python -m bench.clients --output bench/results/clients.json``
decode.json        ``python -m bench.micro.report RUN bench/results/decode.json``, see there
groups.json        ``python -m bench e2e --contestants kfast,kfast-group,kfast-commits ...``
tls.json           ``python -m bench e2e connect --contestants tls --output ...``
spark.json         ``python -m bench.spark --output bench/results/spark.json``
typed.json         ``python -m bench.micro.typed --output bench/results/typed.json``
typed-e2e.json     ``python -m bench e2e --contestants typed --codecs none --records 1000000
                   --repetitions 7 --output bench/results/typed-e2e.json``
=================  ===========================================================================
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import report
from bench.clients import chart
from bench.micro.report import ROWS
from bench.micro.typed.cases import table_rows

ROOT: Final = Path(__file__).parent.parent
RESULTS: Final = ROOT / "bench" / "results"
START, END = "<!-- bench:start -->", "<!-- bench:end -->"

RECORDED_BEFORE: Final[Mapping[str, str | None]] = {}
"""Results that are older than the rule, with the commit they record. They are shown with it until
they are measured again; a row that no result needs any more fails a test."""

NO_COMMIT: Final = "commit not recorded"


class UnusableResultError(Exception):
    """A result that cannot be published."""


def load(name: str, folder: Path = RESULTS) -> dict[str, Any]:
    """Return a result that may be published.

    Raises
    ------
    UnusableResultError
        It was not measured on a commit.
    """
    result: dict[str, Any] = json.loads((folder / name).read_text(encoding="utf-8"))
    commit = commit_of(result)
    is_clean = commit is not None and not commit.endswith("-dirty")
    if not is_clean and (name not in RECORDED_BEFORE or commit != RECORDED_BEFORE[name]):
        raise UnusableResultError(
            f"{name} was measured on {commit or 'an unknown commit'}: commit first, then run "
            "the benchmark again"
        )
    return result


def commit_of(result: Mapping[str, Any]) -> str | None:
    """Return the commit a result records, with ``-dirty`` behind it if files had changed."""
    found = result["machine"].get("commit")
    return None if found is None else str(found)


# --- BENCHMARKS.md --------------------------------------------------------------------------------


def benchmarks() -> str:
    """Return the tables of BENCHMARKS.md: one section per result, each with where it was made."""
    made = (make(load(name)) for name, make in SECTIONS.items() if (RESULTS / name).exists())
    return "\n".join(made)


def _typed(result: Mapping[str, Any]) -> str:
    """Return the table of typed columns: each case, kfast first, then the others."""
    machine = result["machine"]
    header = ["values", "", "ns per record", "kfast ÷ it", "wanted"]
    return (
        f"## Typed columns from memory\n\nMeasured on {machine['time']}\n\n"
        f"{machine['cpu']}, one core unless said; Python {machine['python']}; "
        f"commit {commit_of(result)}.\n\n"
        "CPU time from a raw column to columns exported to Arrow, with two threads that of the "
        "clock; contestants in turn over the same values, medians of "
        f"{result['repetitions']} repetitions, ratios within a repetition. Memory is what the "
        "process has grown by at most."
        f"\n\n{report.table(header, table_rows(result['cases']))}"
    )


def _whole(result: Mapping[str, Any], title: str) -> str:
    text = report.markdown(result).replace("\n## ", "\n### ")
    return f"## {title}\n\n{text.replace('# Benchmark of', 'Measured on', 1).strip()}\n"


def _section(result: Mapping[str, Any], section: str, title: str) -> str:
    machine, _, tables = report.markdown(result).partition(f"## {section}\n")
    machine = machine.replace("# Benchmark of", "Measured on", 1)
    return f"## {title}\n\n{machine.strip()}\n{tables}"


def _decode(result: Mapping[str, Any]) -> str:
    """Return the table of decoding from memory: uncompressed, 1000 records per batch."""
    cells: Sequence[Mapping[str, Any]] = result["cells"]
    chosen = [
        cell for cell in cells if (cell.get("codec"), cell.get("per_batch")) == ("none", 1000)
    ]
    sizes = sorted({int(cell["value_bytes"]) for cell in chosen})
    found = {(cell["row"], int(cell["value_bytes"])): cell["ns_per_record"] for cell in chosen}
    rows = [
        [name, *(_ns(found.get((name, size))) for size in sizes)]
        for name in ROWS
        if any((name, size) in found for size in sizes)
    ]
    header = ["ns per record", *(f"{size} B" for size in sizes)]
    machine, commit = result["machine"], commit_of(result)
    return (
        f"## Decode from memory\n\nMeasured on {result['time'][:19]}Z\n\n"
        f"{machine['brand_raw']}, {machine['count']} cores; Python "
        f"{machine['python_version'].split('.final')[0]}; "
        f"{NO_COMMIT if commit is None else f'commit {commit}'}.\n\n"
        "One core, uncompressed batches of 1000 records in slices of "
        "1 MiB, as one partition's part of a response has with default settings; the CRC is "
        "checked unless said; gather is index plus a copy of every key and value in Arrow's "
        "layout, also of slices that leave the second-level cache; fastest round."
        f"\n\n{report.table(header, rows)}"
    )


def _ns(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


SECTIONS: Final[Mapping[str, Callable[[Mapping[str, Any]], str]]] = {
    "consumers.json": lambda result: _whole(result, "Consumers"),
    "tls.json": lambda result: _whole(result, "Over TLS"),
    "groups.json": lambda result: _section(result, "End to end", "In a group"),
    "decode.json": _decode,
    "typed.json": _typed,
    "typed-e2e.json": lambda result: _section(result, "End to end", "Typed columns from a broker"),
    "spark.json": lambda result: _section(result, "Spark", "Spark"),
    "cli.json": lambda result: _section(result, "Command line", "Command line"),
}
"""By the result that each is made of; a result that is not there has none."""


# --- README.md ------------------------------------------------------------------------------------


def readme() -> str:
    """Return the chart of the README and its table; with the chart the table is shorter."""
    bars = _chart() if (RESULTS / "clients.json").exists() else ""
    consumers, spark = load("consumers.json"), load("spark.json")
    rates = {
        (_topic(consumers, row["topic"]), row["contestant"]): _millions(row["measures"]["rate"])
        for row in consumers["end_to_end"]["summary"]
    }
    rows = [
        [f"{title}, {topic}", rates[topic, own], rates[topic, other], about]
        for title, own, other, about in (
            ("columns", "kfast", "confluent", "confluent-kafka `consume()`, tuned"),
            ("into Arrow", "kfast-arrow", "columns-today", "confluent-kafka, then pyarrow"),
        )
        for topic in ("100 B", "100 B lz4", "1000 B", "1000 B lz4")
        if not bars or "lz4" not in topic
    ]
    typed = load("typed-e2e.json")
    made = {
        row["contestant"]: _millions(row["measures"]["rate"])
        for row in typed["end_to_end"]["summary"]
    }
    rows += [
        [f"{title} to six typed columns", made[own], made[other], f"confluent-kafka, {about}"]
        for title, own, other, about in (
            ("JSON", "kfast-json", "confluent-orjson", "orjson, pyarrow"),
            ("Avro", "kfast-avro", "confluent-avro", "`AvroDeserializer`, pyarrow"),
        )
    ]
    cases = spark["spark"]["cases"]
    tuned = '`format("kafka")`, tuned'
    writer = '`format("kafka")`, Spark\'s writer'
    for case, own, other, title, about in (
        ("full", "kfast", "kafka-tuned", "Spark, all columns, 100 B", tuned),
        ("value", "kfast", "kafka-tuned", "Spark, values only, 100 B", tuned),
        ("parquet", "ingest", "kafka-tuned", "Spark, to Parquet, 100 B", writer),
        ("json-parquet", "ingest", "from-json", "Spark, JSON to typed Parquet", "`from_json`"),
    ):
        found = {
            name: report.digits(each["million_rows_per_second"]["median"])
            for name, each in cases[case]["contestants"].items()
        }
        rows.append([title, found[own], found[other], about])
    medians = {row["client"]: f"{row['p50_ms']:.2f} ms" for row in consumers["latency"]}
    about = "confluent-kafka (less is better)"
    rows.append(["median latency, 200 msg/s", medians["kfast"], medians["confluent"], about])
    header = ["million records per second", "kfast", "other", "which"]
    lines = [header, ["---", "---:", "---:", "---"], *rows]
    table = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    here = consumers["machine"]
    return (
        f"{bars}{table}\nMedians; {here['cpu']}, {here['cores']} cores, Kafka {here['kafka']} on "
        f"the same machine; consumers at commit {commit_of(consumers)}, typed columns at commit "
        f"{commit_of(typed)}, Spark at commit {commit_of(spark)}.\n"
    )


def _chart() -> str:
    """Return the bars of ``kfast bench``."""
    result = load("clients.json")
    machine = result["machine"]
    return (
        "<!-- not run: measured by `kfast bench`, on a quiet machine -->\n"
        f"```text\n{chart(result['clients'])}```\n\n"
        f"Million records of 100 bytes per second into columns or objects, by `kfast bench` on "
        f"{machine['cpu']}, {machine['cores']} cores, at commit {commit_of(result)}.\n\n"
    )


def _topic(result: Mapping[str, Any], name: str) -> str:
    spec = result["end_to_end"]["topics"][name]
    return f"{spec['value_bytes']} B{'' if spec['codec'] == 'none' else ' ' + spec['codec']}"


def _millions(rate: Mapping[str, float]) -> str:
    return report.digits(rate["median"] / 1e6)


# --- both -----------------------------------------------------------------------------------------

DOCUMENTS: Final[Mapping[Path, Callable[[], str]]] = {
    ROOT / "BENCHMARKS.md": benchmarks,
    ROOT / "README.md": readme,
}


def updated(text: str, figures: str) -> str:
    """Return a document with its figures replaced."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{figures}{END}{after}"


def main() -> int:
    """Update both documents."""
    try:
        texts = {
            path: updated(path.read_text(encoding="utf-8"), figures())
            for path, figures in DOCUMENTS.items()
        }
    except UnusableResultError as error:
        print(error, file=sys.stderr)
        return 1
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
