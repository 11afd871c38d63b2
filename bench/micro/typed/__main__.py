"""``python -m bench.micro.typed``: the benchmark of typed columns; see the package."""

from __future__ import annotations

import argparse
import json
import sys
from itertools import chain
from pathlib import Path
from typing import Any

from bench import report
from bench.micro.typed.cases import misses, one_core, run, table_rows


def main() -> int:
    """Run the cases, and write results as JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.micro.typed")
    parser.add_argument("--records", type=int, default=1_000_000, help="flat values")
    parser.add_argument("--repetitions", type=int, default=7)
    parser.add_argument("--cases", default="", help="a part of the names of the cases to run")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    one_core()
    from bench.micro.typed import (  # noqa: PLC0415  after the variables of thread pools
        avro_cases,
        json_cases,
        protobuf_cases,
    )
    from kfast._native.buffers import PoolShare  # noqa: PLC0415

    share = PoolShare(256 << 20)
    found: list[dict[str, Any]] = []
    result = {"machine": report.machine(), "repetitions": options.repetitions, "cases": found}
    with json_cases.in_memory_folder() as folder:
        made = (
            json_cases.cases(options.records, Path(folder)),
            avro_cases.cases(options.records),
            protobuf_cases.cases(options.records),
        )
        for case in chain(*made):
            if options.cases in case.name:
                found.append(run(case, options.repetitions))
                for row in table_rows(found[-1:]):
                    print(" | ".join(row), flush=True)
    del share
    report.finish(result)
    for line in (line for each in found for line in misses(each)):
        print("missed:", line)
    if options.output:
        options.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
