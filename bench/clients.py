"""``python -m bench.clients``: what ``kfast bench`` prints, as a result that documents can show.

The same million records through kfast and every other client that is installed, in turns, each in
a process of its own; see ``kfast.cli.bench``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from bench import report

_WIDTH: Final = 40
_BAR: Final = "█"


def chart(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the rates as bars, the fastest first."""
    ordered = sorted(rows, key=lambda row: -row["records_per_second"])
    most = ordered[0]["records_per_second"]
    width = max(len(row["client"]) for row in ordered)
    return "".join(
        f"{row['client']:{width}}  {_BAR * max(1, round(_WIDTH * rate / most))} "
        f"{report.digits(rate / 1e6)}\n"
        for row in ordered
        for rate in [row["records_per_second"]]
    )


def main(argv: list[str] | None = None) -> int:
    """Run and report; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.clients", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--output", type=Path, help="JSON file; .md is written beside it")
    options = parser.parse_args(argv)
    result: dict[str, Any] = {"machine": report.machine(), "rounds": options.rounds}
    command = [sys.executable, "-m", "kfast", "bench", "-f", "json"]
    done = subprocess.run(
        [*command, "--rounds", str(options.rounds)], stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        return done.returncode
    result["clients"] = json.loads(done.stdout)
    report.save(result, "clients-", options.output)
    return 0


if __name__ == "__main__":
    sys.exit(main())
