"""``kfast ingest`` as it is typed: what it prints, and with which status it ends."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

import kfast
from kfast import cli
from kfast.table.ingest import Ingest
from kfast.table.publish import Publisher
from tests.document_examples import blocks, examples, sections
from tests.end_to_end.ingests import START_MS, Table, Truth


def status(words: list[str]) -> int:
    """Run a command as its process does; return the exit status."""
    try:
        return cli.main(words)
    except SystemExit as ended:
        return int(str(ended.code))


def test_the_summary(truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """CL-136: a script reads the summary as JSON from standard output."""
    assert cli.main(table.command("--rows-per-file", "20", "-o", "start", "-q")) == 0
    assert capsys.readouterr() == ("", "")
    table.check(truth)
    truth.write(0, 2)
    assert cli.main(table.command("-f", "json")) == 0
    found, err = capsys.readouterr()
    summary = json.loads(found)
    assert len(err.splitlines()) == 1, "that it begins"
    assert summary.pop("seconds") < 30
    assert summary.pop("bytes") > 0
    assert summary == {
        "rows": 2,
        "files": 1,
        "batches": 1,
        "lost_offsets": 0,
        "bad_records": 0,
        "dead_letters": 0,
        "unknown_fields": 0,
        "ends": {"t": {"0": 52, "1": 30}},
    }
    truth.write(0, 1)
    assert cli.main(table.command("-v")) == 0
    lines = capsys.readouterr().err.splitlines()
    (said,) = [line for line in lines if line.startswith("published")]
    assert re.fullmatch(r"published 1 rows in 1 file, [\d,]+ rows/s, [\d,.]+ MB/s", said)
    assert lines[-1].startswith(f"{table.folder}: 1 rows, 0.0 MB, 1 files, 2 partitions, ")


def test_compact(truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """CL-260: a topic of that name stands behind --, as other words that are commands."""
    table.ingest(rows_per_file=20)
    before = len(table.names())
    words = ["ingest", "compact", "--to", str(table.folder)]
    assert cli.main([*words, "--target-file-bytes", "1G"]) == 0
    out, err = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(
        rf"{table.folder}: {before} files with [\d.]+ MB became 1 with [\d.]+ MB; folders show 1 "
        r"new files after the retention time, at the next compaction\n",
        err,
    )
    assert len(table.names()) == before
    assert cli.main([*words, "--retention", "0s", "-f", "json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["swapped"], summary["files"]) == (1, 0)
    assert len(table.names()) == 1
    table.check(truth)
    assert cli.main(["ingest", "compact", "--to", str(table.folder / "none"), "-f", "json"]) == 2
    assert (
        "is no table of plain files that an ingest"
        in json.loads(capsys.readouterr().err)["message"]
    )
    assert status(["ingest", "--to", str(table.folder), "-b", table.servers, "--", "compact"]) == 5


def test_a_dry_run(truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """CL-130: what would be read, and nothing is written."""
    assert cli.main(table.command("--dry-run")) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["topic", "partition", "from", "until", "records"]
    assert [line.split() for line in lines[1:]] == [
        ["t", "0", "0", "50", "50"],
        ["t", "1", "0", "30", "30"],
    ]
    assert not table.folder.exists()
    table.ingest()
    before = table.entries()
    truth.write(1, 3)
    assert cli.main(table.command("--dry-run", "-f", "json")) == 0
    assert json.loads(capsys.readouterr().out) == [
        {"topic": "t", "partition": 0, "from": 50, "until": 50, "records": 0},
        {"topic": "t", "partition": 1, "from": 30, "until": 33, "records": 3},
    ]
    assert table.entries() == before


@pytest.mark.parametrize(
    ("words", "first"),
    [
        (["-o", "0=45"], {0: 45}),
        (["-o", "-3"], {0: 47, 1: 27}),
        (["--start", f"@{START_MS + 60_000 * 20}"], {0: 20, 1: 20}),
        (["-o", "end"], {}),
    ],
)
def test_where_partitions_begin(
    truth: Truth, table: Table, words: list[str], first: dict[int, int]
) -> None:
    """CL-128: in the grammar of `kfast read`."""
    assert cli.main(table.command(*words)) == 0
    found: dict[int, int] = {}
    for _, partition, offset, *_ in table.rows() if table.names() else []:
        found.setdefault(partition, offset)
    assert found == first


def test_a_start_that_is_gone(
    truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-124: an error; skipped, its offsets are counted as those that the table has before."""
    with truth.cluster.changing():
        truth.cluster.log("t", 0).delete_before(14)
    assert cli.main(table.command("-o", "5")) == 6
    assert "offset 5 of t-0 is gone: the log now starts at 14" in capsys.readouterr().err
    assert cli.main(table.command("-o", "5", "--lost", "skip", "-f", "json")) == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["rows"], summary["lost_offsets"]) == (36 + 25, 9)


def test_where_a_run_ends(truth: Truth, table: Table) -> None:
    """CL-128: an end is of the run; the next one goes on there, also with another end."""
    for words, ends in (
        (["-o", ":20"], {0: 20, 1: 20}),
        (["-o", "0=:25,1=:25"], {0: 25, 1: 25}),
        (["--end", f"@{START_MS + 60_000 * 28}"], {0: 28, 1: 28}),
        (["--end", "10"], {0: 28, 1: 28}),
        (["-o", ":99"], {0: 50, 1: 30}),
    ):
        assert cli.main(table.command(*words)) == 0
        assert {tp.partition: end for tp, end in table.last.ends.items()} == ends
    table.check(truth)


def test_a_range_of_a_new_table(truth: Truth, table: Table) -> None:
    """CL-128: its start is kept, and is refused when the table has the partition."""
    assert cli.main(table.command("-o", "12:15")) == 0
    assert [row[1:3] for row in table.rows()] == [(p, at) for p in (0, 1) for at in (12, 13, 14)]
    assert cli.main(table.command("-o", "12:20")) == 2
    assert cli.main(table.command("-o", ":20")) == 0
    assert len(table.rows()) == 16


@pytest.mark.parametrize(
    ("words", "status", "text"),
    [
        (["-o", "3:9", "--follow"], 2, "--follow has no end"),
        (["--end", "9", "--follow"], 2, "--follow has no end"),
        (["-o", "9:3"], 2, "the end is before the start"),
        (["-o", "3", "--start", "3"], 2, "-o with --start"),
        (["-o", "yesterday"], 2, "neither an offset nor a time"),
        (["--every", "5s"], 2, "--every is for --follow"),
        (["--once", "--follow"], 2, "--once with --follow"),
        (["--format", "parqet"], 2, "did you mean parquet?"),
        (["-c", "valeu"], 2, "did you mean value?"),
        (["--value", "avro"], 2, "value: avro needs the writer's schema"),
        (["--value", "tex"], 2, 'did you mean "text"?'),
        (["--rows-per-file", "many"], 2, '"many" is not a size'),
        (["--memory", "5k"], 2, "memory = 5120: too small"),
        (["--storage-option", "x"], 2, "--storage-option x: not KEY=VALUE"),
        (["-X", "auto.offset.reset=latest"], 2, "auto.offset.reset is not for an ingest"),
        (["-o", "0=7,5=1"], 5, "there is no partition 5"),
        (["-o", "99999999"], 6, "there is no offset 99999999 yet"),
    ],
)
def test_what_is_refused(
    table: Table, capsys: pytest.CaptureFixture[str], words: list[str], status: int, text: str
) -> None:
    """CL-135: the exit code says what kind of mistake it is."""
    assert cli.main(table.command(*words)) == status
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert len(err.splitlines()) <= 6
    assert table.names() == []


def test_an_error_is_json_where_the_summary_is(
    table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-136: with the exit code in it."""
    assert cli.main(table.command("-f", "json", "--lost", "maybe")) == 2
    assert cli.main(table.command("-f", "json", topics=("tt",))) == 5
    said = json.loads(capsys.readouterr().err.splitlines()[-1])
    assert (said["error"], said["exit"]) == ("UNKNOWN_TOPIC_OR_PARTITION", 5)


def test_a_topic_that_is_not_there(table: Table, capsys: pytest.CaptureFixture[str]) -> None:
    """CL-135: no folder is left."""
    assert cli.main(table.command(topics=("tt",))) == 5
    assert 'did you mean "t"?' in capsys.readouterr().err
    assert not table.folder.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_bounded_run_that_is_interrupted(
    truth: Truth,
    table: Table,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
) -> None:
    """CL-129: what is complete is published, the rest is read again by the next run."""
    publish = Publisher.publish

    def interrupted(self: Publisher, *arguments: Any) -> Any:
        signal.raise_signal(number)
        return publish(self, *arguments)

    monkeypatch.setattr(Publisher, "publish", interrupted)
    words = table.command("--rows-per-file", "20", "-X", "max.poll.records=8")
    assert status(words) == 128 + number
    begin, summary, end = capsys.readouterr().err.splitlines()
    assert " begins, 2 partitions from t 0:0 1:0" in begin
    assert summary.startswith(f"{table.folder}: 20 rows, ")
    assert end == "interrupted after 20 rows were published"
    assert len(table.rows()) == 20
    assert table.staged() == []
    monkeypatch.undo()
    assert cli.main(words) == 0
    table.check(truth)


def test_a_second_signal_ends_it_at_once(
    truth: Truth, table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-129: nothing more is published."""
    read = Ingest._read

    def interrupted(self: Ingest, *arguments: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        read(self, *arguments)

    monkeypatch.setattr(Ingest, "_read", interrupted)
    assert cli.main(table.command("--follow")) == 130
    assert table.names() == []
    monkeypatch.undo()
    assert cli.main(table.command()) == 0
    table.check(truth)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a file system")
def test_a_disk_that_is_full(
    truth: Truth, table: Table, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-126: a file system of a megabyte, as large as it says."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("this machine does not let root mount file systems")
    try:
        table.folder = folder / "t"
        assert cli.main(table.command()) == 0
        table.check(truth)
        truth.cluster.append("t", 0, [os.urandom(1000) for _ in range(1500)], batch_records=100)
        assert cli.main(table.command()) == 7
        _, _, error = capsys.readouterr().err.partition("kfast: ")
        assert "No space left on device" in error
        assert len(error.splitlines()) <= 6
        table.check(truth)
        assert cli.main(table.command("--rows-per-file", "300")) == 7
        assert len(table.rows()) > 80, "what fitted is published"
        assert table.staged() == []
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_the_page_of_the_documents(
    truth: Truth, table: Table, capsys: pytest.CaptureFixture[str]
) -> None:
    """CL-120: its commands, its files and its Python."""
    truth.cluster.create_topic("orders", 2)
    truth.write(0, 50, "orders")
    truth.write(1, 30, "orders")
    shown = [
        shlex.split(line)
        for heading in ("A table", "Small files into large ones", "Together with Spark")
        for language, content in blocks(sections("docs/ingest.md")[heading])
        for line in content.splitlines()
        if not language and line.startswith("kfast ") and "--spark" not in line
    ]
    assert len(shown) == 5
    for words in shown:
        there = [word.replace("/data/orders", str(table.folder)) for word in words[1:]]
        assert cli.main([*there, "-b", table.servers]) == 0
    assert len(kfast.table_files(str(table.folder))) == 1
    for line in blocks(sections("docs/ingest.md")["A table"])[1][1].splitlines():
        name = line.split()[0].removeprefix("/data/orders/")
        assert (table.folder / name).exists(), name
    example, typed = examples("docs/ingest.md", "From Python")
    truth.cluster.create_topic("trades", 1)
    truth.write(0, 3, "trades")
    capsys.readouterr()
    scope: dict[str, Any] = {}
    for each in (example, typed):
        code = each.replace("/data/orders", str(table.folder))
        code = code.replace("/data/trades", str(table.folder / "../trades"))
        exec(code.replace("localhost:9092", table.servers), scope)
    first, second = capsys.readouterr().out.splitlines()
    assert first.startswith("0 {TopicPartition(topic='orders', partition=0): 50")
    assert second == "3", "none of them is JSON"
