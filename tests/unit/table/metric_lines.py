"""Metrics of an ingest, read from their text."""

from __future__ import annotations

import re


def values(text: str) -> dict[str, float]:
    """Return the values by name and labels, and check the form of every line."""
    found: dict[str, float] = {}
    typed: set[str] = set()
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            _, _, name, kind = line.split()
            assert kind == ("counter" if name.endswith("_total") else "gauge")
            typed.add(name)
        elif not line.startswith("# HELP kfast_ingest_"):
            match = re.fullmatch(r"(kfast_ingest_(\w+)(?:\{[^}]+\})?) ([\d.]+)", line)
            assert match, line
            assert match[1].partition("{")[0] in typed
            found[match[1].removeprefix("kfast_ingest_")] = float(match[3])
    assert text.endswith("\n")
    return found
