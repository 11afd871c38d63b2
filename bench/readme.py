"""Writes the figures of the README: ``python -m bench.readme``.

Owns the sections of README.md between its ``bench`` marks. They are made of the committed results
in ``bench/results`` and of nothing else, and a test compares the two: a figure that no run has
measured cannot stand there.

=================  ===========================================================================
result             made by
=================  ===========================================================================
consumers.json     ``python -m bench e2e idle latency --values 100,1000 --output ...``
decode.json        ``python -m bench.micro.report RUN bench/results/decode.json``, see there
groups.json        ``python -m bench e2e --contestants kfast,kfast-group,kfast-commits ...``
spark.json         ``python -m bench.spark --output bench/results/spark.json``
=================  ===========================================================================
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import report
from bench.micro.report import ROWS

RESULTS: Final = Path(__file__).parent / "results"
README: Final = Path(__file__).parent.parent / "README.md"
START, END = "<!-- bench:start -->", "<!-- bench:end -->"


def section() -> str:
    """Return the text between the marks."""
    consumers = json.loads((RESULTS / "consumers.json").read_text(encoding="utf-8"))
    text = report.markdown(consumers).replace("\n## ", "\n### ")
    text = text.replace("# Benchmark of", "Measured on", 1)
    decode = json.loads((RESULTS / "decode.json").read_text(encoding="utf-8"))
    group = _other("groups.json", "End to end", "In a group")
    spark = _other("spark.json", "Spark", "Spark")
    return f"{text.strip()}\n\n{group}\n{_decode(decode)}\n{spark}"


def _other(file: str, section: str, title: str) -> str:
    """Return a section that was measured at another time, with what it was measured on."""
    text = report.markdown(json.loads((RESULTS / file).read_text(encoding="utf-8")))
    machine, _, tables = text.partition(f"## {section}\n")
    machine = machine.replace("# Benchmark of", "Measured on", 1)
    return f"### {title}\n\n{machine.strip()}\n{tables}"


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
    return (
        "### Decode from memory\n\nOne core, uncompressed batches of 1000 records in slices of "
        "1 MiB, as one partition's part of an answer has with default settings; the CRC is "
        "checked unless said; gather is index plus a copy of every key and value in Arrow's "
        "layout, also of slices that leave the second-level cache; fastest round."
        f"\n\n{report.table(header, rows)}"
    )


def _ns(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def updated(text: str) -> str:
    """Return a README with its figures up to date."""
    before, _, rest = text.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{section()}{END}{after}"


def main() -> int:
    """Update README.md."""
    README.write_text(updated(README.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
