"""The command line's benchmark on a handful of records: that it measures, not what."""

from __future__ import annotations

from bench.cli.__main__ import parser, run_cases
from bench.cli.cases import CASES
from bench.report import machine, markdown
from kfast.local.local_kafka import LocalKafka


def test_a_small_run_gives_a_table(kafka: LocalKafka) -> None:
    """The cases that are quick: a ratio to NumPy, one to pyarrow, memory, and an exit status."""
    said: list[str] = []
    found = run_cases(kafka, {3, 6, 9, 11}, 1_000, 1, said.append)
    rows = {row["number"]: row for row in found["rows"]}
    assert set(rows) == {3, 6, 9, 11}
    assert rows[6]["figures"]["ratio"] > 0
    assert rows[9]["figures"]["times_case_3"] > 0
    assert rows[9]["figures"]["rss_mb"] > 10
    assert [bar["holds"] for bar in rows[9]["bars"]] == [True, True]
    assert len(said) == 2 + 4
    here = machine()
    text = markdown({"machine": here, "machine_after": here, "cli": found})
    assert "| a topic that is not there |" in text
    assert "numpy" in text
    assert sorted({case.number for case in CASES}) == list(range(1, 17))
    assert parser().parse_args([]).rounds == 5
