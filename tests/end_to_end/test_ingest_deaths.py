"""``kfast ingest`` that is killed: the next run finishes what it began, each record once."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from kfast.testing.server import BrokerServer
from tests.end_to_end.ingest_processes import Death, Starter, starter
from tests.end_to_end.ingests import Table, Truth
from tests.soaking import soaking

KILLS = soaking(30, 60)
STORE = "kfast.table.store:LocalStore"
LOG = "kfast.table.manifest_log:ManifestLog"
DELTA = "kfast.table.delta_log:DeltaLog"
PENDING = "kfast.table.pending:PendingFiles"


@pytest.fixture(scope="module")
def processes() -> Iterator[Starter]:
    with starter() as made:
        yield made


@pytest.fixture
def truth() -> Truth:
    found = Truth(partitions=3)
    for number in range(3):
        found.write(number, 60 + 10 * number)
    return found


@pytest.mark.parametrize(
    "death",
    [
        Death("kfast.table.range_files:RangeFiles.write", 3),
        Death(f"{STORE}.open_output", 2, is_after=True),
        Death(f"{STORE}.fsync", 2),
        Death(f"{STORE}.fsync_names", 6),
        Death(f"{LOG}.begin"),
        Death(f"{LOG}.begin", is_after=True),
        Death("kfast.table.publish:Publisher.sweep"),
        Death(f"{LOG}._create", 2),
        Death(f"{LOG}._create", 2, is_after=True),
        Death(f"{STORE}.rename", 1),
        Death(f"{STORE}.rename", 2),
        Death(f"{STORE}.rename", 2, is_after=True),
        Death(f"{DELTA}._create", is_after=True),
        Death(f"{DELTA}.append"),
        Death(f"{DELTA}.append", 2, is_after=True),
        Death(f"{PENDING}.begin", is_after=True),
        Death("deltalake:DeltaTable.create_write_transaction"),
        Death("deltalake:DeltaTable.create_write_transaction", 2, is_after=True),
        Death(f"{PENDING}.end"),
        Death("kfast.table.staged_files:StagedFiles.rename", is_after=True),
        Death(f"{LOG}._finish", is_after=True),
        Death("kfast.table.group_commits:GroupCommits.commit"),
        Death("kfast.table.group_commits:GroupCommits.commit", is_after=True),
    ],
    ids=lambda death: f"{death.method.rpartition(':')[2]}-{death.number}{'+' * death.is_after}",
)
def test_a_run_that_dies_at_a_step_is_finished_by_the_next(
    processes: Starter, truth: Truth, tmp_path: Path, death: Death
) -> None:
    """CL-121, W-20: wherever it stands between the staged file and the committed group."""
    is_delta = death.method.startswith((DELTA, PENDING, "deltalake"))
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = table.command("--rows-per-file", "25", "-g", "watched")
        if is_delta:
            pytest.importorskip("deltalake")
            words += ["--format", "delta"]
        assert processes.run(words, death) == -signal.SIGKILL
        assert processes.run(words) == 0
        table.check(truth)
        if is_delta:
            import deltalake  # noqa: PLC0415 - optional

            listed = deltalake.DeltaTable(str(table.folder)).file_uris()
            assert len(listed) == len(set(listed)) == len(table.names())


@pytest.mark.soak
@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_runs_that_die_at_any_instant_are_finished_by_the_next(
    processes: Starter, truth: Truth, tmp_path: Path, format: str
) -> None:
    """CL-121, W-24: the topic grows meanwhile; nothing is read twice and nothing is left out."""
    chance = random.Random(7)
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = table.command("--rows-per-file", "25", "--format", format)
        began = time.monotonic()
        assert processes.run(words) == 0
        whole = time.monotonic() - began
        killed = 0
        for _ in range(KILLS):
            for number in range(3):
                truth.write(number, chance.randrange(40))
            child = processes.start(words)
            time.sleep(chance.uniform(0, whole))
            os.kill(child, signal.SIGKILL)
            killed += processes.wait() == -signal.SIGKILL
            if chance.random() < 0.5:
                assert processes.run(words) == 0
                table.check(truth)
        assert processes.run(words) == 0
        table.check(truth)
        if format == "delta":
            deltalake = pytest.importorskip("deltalake")
            listed = deltalake.DeltaTable(str(table.folder)).file_uris()
            assert len(listed) == len(set(listed)) == len(table.names())
    assert killed > KILLS // 3, "most of them were not at their end yet"


@pytest.mark.parametrize(
    "death",
    [
        Death("kfast.table.compaction.merging:Merger._write", is_after=True),
        Death("kfast.table.compaction.manifests:CompactionLog.publish", is_after=True),
        Death("kfast.table.compaction.manifests:CompactionLog.decide", is_after=True),
        Death(f"{STORE}.remove", 2),
        Death(f"{STORE}.copy", is_after=True),
    ],
    ids=lambda death: f"{death.method.rpartition(':')[2]}-{death.number}{'+' * death.is_after}",
)
def test_a_compaction_that_dies_beside_an_ingest(
    processes: Starter, truth: Truth, tmp_path: Path, death: Death
) -> None:
    """CL-263, CL-264: the ingest goes on, and the next compaction does the rest."""
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = table.command("--rows-per-file", "25")
        assert processes.run(words) == 0
        compact = ["ingest", "compact", "--to", str(table.folder), "--retention", "0s"]
        assert processes.run(compact, death) == -signal.SIGKILL
        assert table.listed_rows() == sorted(truth.rows, key=lambda row: row[:3])
        truth.write(0, 30)
        assert processes.run(words) == 0
        assert table.listed_rows() == sorted(truth.rows, key=lambda row: row[:3])
        assert processes.run(compact) == 0
        table.check(truth)
        assert processes.run(words) == 0
        table.check(truth)
        assert len(table.names()) == 1


def test_a_follow_ends_by_ctrl_c_and_by_sigterm(
    processes: Starter, truth: Truth, tmp_path: Path
) -> None:
    """CL-129: what was read is published; the status is 0."""
    with BrokerServer(truth.cluster) as server:
        table = Table(tmp_path / "t", server.bootstrap_servers)
        words = table.command("--follow", "--every", "20ms")
        for number in (signal.SIGINT, signal.SIGTERM):
            child = processes.start(words)
            deadline = time.monotonic() + 30
            while not table.folder.exists() or table.names() == []:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            truth.write(1, 5)
            while table.last.rows < len(truth.rows):
                assert time.monotonic() < deadline
                time.sleep(0.01)
            os.kill(child, number)
            assert processes.wait() == 0
            table.check(truth)
