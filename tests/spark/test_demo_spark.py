"""``make demo-spark``, with a few records: what it shows, and that Ctrl-C leaves nothing."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.support import until
from tests.spark.crashing import end
from tests.spark.processes import session_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytest.importorskip("pyspark")
rich_console = pytest.importorskip("rich.console")

RECORDS = 2_000


def test_the_demo_shows_tables_progress_and_a_race(
    spark: SparkSession, kafka: LocalKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kfast.demo import main  # noqa: PLC0415 - needs rich
    from kfast.demo import spark as demo  # noqa: PLC0415 - needs pyspark
    from kfast.demo.show import Show  # noqa: PLC0415 - needs rich

    monkeypatch.setattr(demo, "ROUNDS", 1)
    shown = io.StringIO()
    show = Show(rich_console.Console(file=shown, width=100, highlight=False), tmp_path)
    counts = demo.topic_counts(RECORDS)
    assert counts == {"sensors": 1600, "events": 400}
    main.write_topics(show, kafka, **counts, partitions=demo.PARTITIONS)
    demo.show_all(demo.Stage(show, spark, kafka.bootstrap_servers, tmp_path), counts, True)
    text = shown.getvalue()
    lines = [line.strip() for line in text.splitlines()]
    assert any(line.startswith("batch 0 | 1,600 rows | ") for line in lines), text
    assert any(line.startswith("400 rows in ") for line in lines), text
    assert "Spark SQL over the table" in text
    for topic in counts:
        for runner in (
            *("kfast.spark.ingest", 'format("kfast")'),
            *('format("kafka"), defaults', 'format("kafka"), tuned'),
        ):
            found = [line for line in lines if line.startswith(topic) and runner in line]
            assert len(found) == 2, (topic, runner, text)
            assert found[0].endswith(" rows/s")
            assert found[1].endswith("x"), "in the table, with its ratio"


def test_ctrl_c_ends_the_demo_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kfast.demo.spark", "--records", str(RECORDS)],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        assert any(line.startswith("batch 0 | ") for line in lines), process.communicate(timeout=60)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does
        _, errors = process.communicate(timeout=90)
        until(lambda: not session_of(process.pid), "the end of all processes")
    finally:
        end(process)
    assert process.returncode == 130
    # Spark's gateway may log the command that was interrupted; that is all there may be.
    assert errors == "" or (errors.startswith("ERROR:root:") and "py4j" in errors)
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("kfast-")] == []
