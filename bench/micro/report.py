"""Prints the decode benchmarks of a saved run as tables.

    python -m pytest bench/micro --benchmark-only --benchmark-json run.json
    python -m bench.micro.report run.json [bench/results/decode.json]

One table per codec: rows are operations, columns are value sizes and records per batch, cells are
nanoseconds per record (fastest round). Then the rates of decompression and buffers. With a second
file the figures of the tables, without the single rounds, are written to it as JSON.
"""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

ROWS: Final = (
    "index",
    "index, no CRC",
    "gather",
    "gather, 4 MiB",
    "struct",
    "aiokafka",
    "kafka-python",
)

Table = dict[str, dict[tuple[int, int], float]]


def decode_tables(benchmarks: list[dict[str, Any]]) -> dict[str, Table]:
    """Return ``{codec: {row: {(value bytes, records per batch): ns per record}}}``."""
    tables: dict[str, Table] = defaultdict(lambda: defaultdict(dict))
    for entry in benchmarks:
        info = entry["extra_info"]
        if "per_batch" in info:
            cell = (info["value_bytes"], info["per_batch"])
            tables[info["codec"]][info["row"]][cell] = info["ns_per_record"]
    return tables


def print_table(codec: str, table: Table) -> None:
    cells = sorted({cell for row in table.values() for cell in row})
    print(f"\n{codec}: ns per record")
    print(f"{'value bytes':24}" + "".join(f"{value:>9}" for value, _ in cells))
    print(f"{'records per batch':24}" + "".join(f"{batch:>9}" for _, batch in cells))
    for row in sorted(table, key=lambda name: ROWS.index(name) if name in ROWS else len(ROWS)):
        figures = [table[row].get(cell) for cell in cells]
        texts = ["-" if figure is None else f"{figure:.1f}" for figure in figures]
        print(f"{row:24}" + "".join(f"{text:>9}" for text in texts))


def print_rates(benchmarks: list[dict[str, Any]]) -> None:
    rows: dict[str, dict[int, float]] = defaultdict(dict)
    for entry in benchmarks:
        info = entry["extra_info"]
        if "bytes" in info and "gb_per_s" in info:
            rows[info["row"]][info["bytes"]] = info["gb_per_s"]
    if rows:
        print("\nGB/s of uncompressed bytes, by size in bytes")
    for row, figures in sorted(rows.items()):
        print(f"{row:36}" + "  ".join(f"{size}: {rate:.2f}" for size, rate in figures.items()))


def main() -> int:
    if len(sys.argv) not in {2, 3}:
        print(__doc__)
        return 2
    run = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    benchmarks = run["benchmarks"]
    if len(sys.argv) == 3:
        cells = [entry["extra_info"] for entry in benchmarks if entry["extra_info"]]
        machine = {**run["machine_info"]["cpu"], "commit": run["machine_info"].get("commit")}
        about = {"machine": machine, "time": run["datetime"], "cells": cells}
        Path(sys.argv[2]).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    for codec, table in decode_tables(benchmarks).items():
        print_table(codec, table)
    print_rates(benchmarks)
    return 0


if __name__ == "__main__":
    sys.exit(main())
