"""J-01, J-02, J-03: what an ingest says on standard error, a terminal or not."""

from __future__ import annotations

import logging
import os
import pty
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from kfast import cli
from kfast._base.clock import SystemClock
from kfast.cli.ingest_report import IngestLines
from kfast.errors import StorageError
from kfast.table.ingest import Ingest
from kfast.table.ingest.options import IngestOptions
from kfast.table.publish import Publisher
from tests.end_to_end.ingests import Table, Truth
from tests.end_to_end.stage import eventually

Captured = pytest.CaptureFixture[str]
SECRET = "payload-that-no-log-may-have"


def fields(line: str) -> list[str]:
    return line.split(": ", 1)[1].split(", ")


def test_the_lines_of_cron(truth: Truth, table: Table, capsys: Captured) -> None:
    """J-01: a start with where the table goes on, and a summary; -q has neither."""
    assert cli.main(table.command()) == 0
    out, err = capsys.readouterr()
    assert out == ""
    begin, end = err.splitlines()
    assert begin == (
        f"{table.folder}: ingest of t begins, 2 partitions from t 0:0 1:0, 80 offsets to read; the "
        "table has 0 rows"
    )
    assert re.fullmatch(
        rf"{table.folder}: 80 rows, 0\.0 MB, 2 files, 2 partitions, [\d.]+ s", end
    ), end
    truth.write(0, 5)
    assert cli.main(table.command("-f", "json")) == 0
    out, err = capsys.readouterr()
    assert '"rows": 5' in out
    (begin,) = err.splitlines()
    assert "from t 0:50 1:30, 5 offsets to read; the table has 80 rows" in begin
    truth.write(0, 5)
    assert cli.main(table.command("-q")) == 0
    assert capsys.readouterr() == ("", "")
    table.check(truth)


def test_the_summary_of_an_ingest_that_fails(
    truth: Truth, table: Table, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    """J-01: it has what was published before the error, which comes behind it."""
    publish, calls = Publisher.publish, iter(range(9))

    def failing(self: Publisher, *arguments: Any) -> Any:
        if next(calls) == 2:
            raise StorageError("the disk is on fire", hint="run")
        return publish(self, *arguments)

    monkeypatch.setattr(Publisher, "publish", failing)
    words = table.command("--rows-per-file", "10", "-X", "max.poll.records=10")
    assert cli.main([*words, "-f", "json"]) == 7
    out, err = capsys.readouterr()
    assert out == ""
    _, summary, error = err.splitlines()
    rows = table.last.rows
    assert 0 < rows < 80
    assert summary.startswith(f"{table.folder}: {rows} rows, ")
    assert summary.endswith("; then it failed, and the next run goes on there")
    assert '"message": "the disk is on fire"' in error
    monkeypatch.undo()
    assert cli.main([*words, "-q"]) == 0
    table.check(truth)


def test_what_fails_before_it_begins_has_no_lines(table: Table, capsys: Captured) -> None:
    """J-01: the error is all there is to say."""
    assert cli.main(table.command(topics=("tt",))) == 5
    assert capsys.readouterr().err.startswith("kfast: no topic ")


def test_the_lines_of_a_follow(truth: Truth, table: Table) -> None:
    """J-01: they come while nothing else does, and what is not in the table is the lag."""
    lines: list[str] = []
    watcher = IngestLines(lines.append, SystemClock(), every_ms=1)
    options = IngestOptions(topics=("t",), to=str(table.folder), follow=True, every_ms=3_600_000)
    run = Ingest(options, {"bootstrap_servers": table.servers}, watchers=[watcher])
    thread = threading.Thread(target=run.run)
    thread.start()
    try:
        eventually(lambda: sum("80 rows since the start" in line for line in lines) > 2)
        assert fields(lines[-1])[0] == "0 rows"
        assert "lag 0" in fields(lines[-1])
        truth.write(0, 5)
        eventually(lambda: "lag 5" in fields(lines[-1]))
    finally:
        run.stop()
        thread.join(30)
    assert fields(lines[-1])[0] == "85 rows", "the summary"
    assert len([line for line in lines if " begins, " in line]) == 1
    table.check(truth)


def bad_values(truth: Truth) -> None:
    """Append values to the topic that are no numbers."""
    truth.cluster.append("t", 0, [SECRET.encode()] * 3, batch_records=2)


def test_warnings_of_the_function(
    truth: Truth, table: Table, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """J-02: one for each kind, whatever number of files; without keys and values."""
    bad_values(truth)
    summary = table.ingest(
        value="int32",
        on_error="null",
        to=str(tmp_path / "numbers"),
        dead_letter=str(tmp_path / "letters"),
        rows_per_file=10,
        max_poll_records=10,
    )
    assert summary.bad_records == summary.dead_letters > 3
    warned = [each for each in caplog.records if each.levelno >= logging.WARNING]
    kinds = [record.getMessage().split(": ")[1].split(" ", 1)[1][:12] for record in warned]
    assert set(kinds) == {"malformed ke", "dead letters"}
    assert all(record.name == "kfast.table.ingest_warnings" for record in warned)
    assert len(warned) <= 4, "a first and a last of each"
    counts = [int(record.getMessage().split(": ")[1].split()[0]) for record in warned]
    assert sum(counts) == summary.bad_records + summary.dead_letters
    assert SECRET not in caplog.text
    assert "value 1" not in caplog.text


def test_lost_offsets_are_a_warning(
    truth: Truth, table: Table, caplog: pytest.LogCaptureFixture
) -> None:
    """J-02: with the count, of the partition that it names."""
    table.ingest()
    truth.write(1, 10)
    truth.cluster.log("t", 1).delete_before(35)
    assert table.ingest(lost="skip").lost_offsets == 5
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.getMessage() == (
        f"{table.folder}: 5 offsets lost: retention had removed them before they were read "
        "(t-1 offsets 30 to 39)"
    )


@pytest.mark.parametrize("quiet", [[], ["-q"]])
def test_warnings_of_the_command(
    truth: Truth, table: Table, capsys: Captured, quiet: list[str]
) -> None:
    """J-02: on standard error, with -q too: it leaves out notes and progress only."""
    bad_values(truth)
    for _ in range(2):  # the second has no handler of the first
        words = table.command("--value", "int32", "--on-error", "skip", *quiet)
        assert cli.main(words) == 0
        err = capsys.readouterr().err
        lines = [line for line in err.splitlines() if " WARNING " in line]
        assert len(lines) == 1, err
        assert re.search(rf" WARNING [\w.]+: {table.folder}: \d+ malformed keys and values", err)
        assert SECRET not in err
        if quiet:
            assert err.splitlines() == lines
        bad_values(truth)


SHOWING = """
import logging
from tests.unit.cli.test_progress import Clock, Reading, progress_of
from kfast.cli.progress import Counts, can_draw, logged_warnings

clock = Clock()
progress = progress_of(Counts(5), Reading(1_000_000), clock, is_drawn=can_draw(2))
with logged_warnings("kfast.table"):
    for number in range(2):
        clock.now += 1
        progress.update()
        logging.getLogger("kfast.table.x").warning("records %d\\x1b[31m", number)
clock.now += 1
progress.update()
progress.clear()
"""


def screen(text: str) -> list[str]:
    """Return what a terminal shows in the end."""
    lines = [""]
    for piece in re.findall(r"\r\n|\r|\x1b\[K|[^\r\x1b]+|\x1b", text):
        if piece == "\r\n":
            lines.append("")
        elif piece == "\x1b[K":
            lines[-1] = ""
        elif piece != "\r":
            lines[-1] += piece
    return lines


def test_warnings_above_the_progress_line() -> None:
    """J-03: each is whole, on a line of its own, and the progress is drawn again below it."""
    master, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100"}
    environment["PYTHONPATH"] = os.pathsep.join(sys.path)
    process = subprocess.Popen([sys.executable, "-c", SHOWING], stderr=terminal, env=environment)
    os.close(terminal)
    received = b""
    while True:
        try:
            received += os.read(master, 4096)
        except OSError:  # how a terminal of Linux ends
            break
    os.close(master)
    assert process.wait(60) == 0, received
    text = received.decode()
    assert text.count("10 %") == 3, "the line was there"
    *lines, last = screen(text)
    assert last == ""
    assert [line.split(" ", 2)[2] for line in lines] == [
        f"WARNING kfast.table.x: records {number}\\x1b[31m" for number in range(2)
    ]
