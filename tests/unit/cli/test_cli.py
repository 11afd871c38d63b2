"""The command line without a broker: arguments, bounds, formats, errors and exit statuses."""

from __future__ import annotations

import csv
import io
import json
import signal
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kfast
from kfast._program import pairs, run_program
from kfast.cli import read as cli_read
from kfast.cli import root as cli
from kfast.cli.read import ReadOptions, read_to_file
from kfast.errors import ConfigurationError, KafkaError, MissingDependencyError

CONFIG = {"bootstrap.servers": "nowhere:9092"}


class Batch:
    """As much of ``PartitionRecords`` as the text writers use."""

    topic = "t"

    def __init__(self, partition: int, values: list[bytes | None]) -> None:
        count = len(values)
        self.partition = partition
        self.offsets = np.arange(count, dtype=np.int64)
        self.datetimes = np.datetime64("2025-01-01T00:00:00.000") + np.arange(count)
        self.keys = kfast.BytesColumn.from_values([b"k"] * count)
        self.values = kfast.BytesColumn.from_values(values)
        self.headers: list[list[tuple[str, bytes | None]]] = [[("h", b"1")]] * count

    def __len__(self) -> int:
        return len(self.offsets)

    def select(self, rows: slice) -> Batch:
        return Batch(self.partition, self.values.to_list()[rows])


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let ``scan_topic`` give two batches; what it was asked for is in the list."""
    asked: list[dict[str, Any]] = []

    def scan_topic(topic: str, **options: Any) -> Iterator[Batch]:
        asked.append({"topic": topic, **options})
        yield Batch(0, [b'{"a":1}', b"\xff\x00", None])
        yield Batch(1, [b"plain", "süß".encode()])

    monkeypatch.setattr(kfast, "scan_topic", scan_topic)
    return asked


def options(**changes: Any) -> ReadOptions:
    given: dict[str, Any] = {
        "topic": "t",
        "start": "earliest",
        "end": "latest",
        "columns": None,
        "key": "auto",
        "value": "auto",
        "output": None,
        "format": None,
        "limit": None,
        "configs": CONFIG,
    }
    return ReadOptions(**{**given, **changes})


# --- read -----------------------------------------------------------------------------------------


def test_json_lines(scanned: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    read_to_file(options())
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == {
        "topic": "t",
        "partition": 0,
        "offset": 0,
        "timestamp": "2025-01-01T00:00:00.000Z",
        "key": "k",
        "value": '{"a":1}',
        "headers": [["h", "1"]],
    }
    assert [row["value"] for row in rows[1:]] == [{"base64": "/wA="}, None, "plain", "süß"]
    assert scanned[0]["columns"] == ["key", "value", "headers"]
    assert scanned[0]["config"] is CONFIG


def test_only_wanted_columns_are_read(
    scanned: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    read_to_file(options(columns=("offset", "partition"), limit=4))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == '{"offset":0,"partition":0}'
    assert len(lines) == 4
    assert scanned[0]["columns"] == []


def test_csv(scanned: list[dict[str, Any]], tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    read_to_file(options(output=str(target), columns=("value", "headers")))
    with io.StringIO(target.read_text(encoding="utf-8"), newline="") as text:
        rows = list(csv.reader(text))
    assert rows == [
        ["value", "headers"],
        ['{"a":1}', '[["h", "1"]]'],
        ["/wA=", '[["h", "1"]]'],
        ["", '[["h", "1"]]'],
        ["plain", '[["h", "1"]]'],
        ["süß", '[["h", "1"]]'],
    ]


def test_an_error_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def scan_topic(_topic: str, **_options: Any) -> Iterator[Batch]:
        yield Batch(0, [b"x"])
        raise KafkaError("lost")

    monkeypatch.setattr(kfast, "scan_topic", scan_topic)
    target = tmp_path / "t.csv"
    target.write_text("from before", encoding="utf-8")
    with pytest.raises(KafkaError, match="lost"):
        read_to_file(options(output=str(target)))
    assert target.read_text(encoding="utf-8") == "from before"
    assert list(tmp_path.iterdir()) == [target]


def test_values_can_be_said_to_be_bytes(
    scanned: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    read_to_file(options(columns=("value",), value="bytes", limit=1))
    assert capsys.readouterr().out == '{"value":{"base64":"eyJhIjoxfQ=="}}\n'
    assert scanned[0]["value_deserializer"] is None


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"columns": ("ofset",)}, 'no column "ofset"\ntry: did you mean "offset"?'),
        ({"columns": ("x" * 9,)}, "columns are topic, partition"),
        ({"output": "t.txt"}, "unknown suffix"),
        ({"format": "parquet"}, "give --output FILE.parquet"),
    ],
)
def test_read_explains_what_it_cannot_do(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        read_to_file(options(**changes))
    assert complaint in str(raised.value)


def test_formats_follow_the_ending() -> None:
    chosen = [
        cli_read._format(options(output=f"x.{ending}"))
        for ending in ("parquet", "CSV", "jsonl", "ndjson")
    ]
    assert chosen == ["parquet", "csv", "jsonl", "jsonl"]
    assert cli_read._format(options(output="x.csv", format="jsonl")) == "jsonl"


# --- arguments ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "bound"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("1735689600000", 1_735_689_600_000),
        ("2025-01-31T12:00", datetime(2025, 1, 31, 12, tzinfo=UTC)),
        ("2025-01-31", datetime(2025, 1, 31, tzinfo=UTC)),
        ("2025-01-31T12:00+00:00", datetime(2025, 1, 31, 12, tzinfo=UTC)),
        ("0:1500", {0: 1500}),
        ("0:1500,3:7", {0: 1500, 3: 7}),
    ],
)
def test_bounds(text: str, bound: object) -> None:
    assert cli._bound(text, "--start") == bound


@pytest.mark.parametrize("text", ["", "soon", "0:x", "1:2:3", "2025-13-01"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"--end .*: not understood"):
        cli._bound(text, "--end")


def test_settings_and_topics() -> None:
    assert pairs(["a.b=c=d", "e="], "--config") == {"a.b": "c=d", "e": ""}
    assert cli._topic("orders") == ("orders", 1)
    assert cli._topic("orders:6") == ("orders", 6)
    for bad in ("novalue", "=x"):
        with pytest.raises(ConfigurationError, match="not KEY=VALUE"):
            pairs([bad], "--config")
    for bad in (":3", "orders:", "orders:0", "orders:x"):
        with pytest.raises(ConfigurationError, match="not NAME or NAME:PARTITIONS"):
            cli._topic(bad)


# --- the ends of a command ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ["demo", "--topic", "t"],
        ["demo", "--bootstrap-servers", "h:1"],
        ["read", "t", "--start", "whenever"],
        ["read", "t", "--columns", "valeu"],
        ["read", "t", "--config", "fetch.min.bytez=1"],
        ["topics", "--config", "fetch.min.bytes=many"],
        ["local", "--topic", ":"],
    ],
)
def test_errors_are_texts_on_standard_error(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(argv) == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err
    assert "Traceback" not in printed.err


def test_misspelt_settings_are_recognised(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["read", "t", "--config", "fetch.min.bytez=1"]) == 1
    assert "did you mean fetch.min.bytes" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [[], ["nothing"], ["read"], ["read", "t", "--limit", "0"]])
def test_wrong_arguments_show_the_usage(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(argv)
    assert raised.value.code == 2
    assert "usage: kfast" in capsys.readouterr().err


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        cli.main(["--version"])
    assert raised.value.code == 0
    assert capsys.readouterr().out == f"kfast {kfast.__version__}\n"


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [
        (KafkaError("it broke", cause="why", hint="what"), 1, "it broke\ncause: why\ntry: what\n"),
        (KeyboardInterrupt(), 130, ""),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "/x/y: Permission denied\n"),
    ],
)
def test_how_commands_end(
    failure: BaseException,
    status: int,
    text: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(_options: object) -> None:
        raise failure

    monkeypatch.setattr(cli, "_topics", fail)
    before = signal.getsignal(signal.SIGTERM)
    assert cli.main(["topics"]) == status
    assert capsys.readouterr().err == text
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_program_that_is_terminated_takes_down_what_it_has_started() -> None:
    before = signal.getsignal(signal.SIGTERM)
    removed: list[str] = []

    def body() -> None:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            removed.append("broker")

    with pytest.raises(SystemExit) as ended:
        run_program(body)
    assert (ended.value.code, removed) == (143, ["broker"])
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_package_that_the_output_needs_is_missed_before_anything_is_read(
    scanned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """E-11: what to install; no record was asked for, and no file is left behind."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="writing Parquet needs pyarrow") as caught:
        read_to_file(options(output=str(tmp_path / "out.parquet")))
    assert caught.value.hint == 'pip install "kfast[arrow]"'
    assert (scanned, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize("given", ["0", "-1", "ten", "1.5", "²"])
def test_a_number_that_is_none_is_refused_in_plain_words(
    given: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """E-02: the message names the option and the value, not a function of the program."""
    with pytest.raises(SystemExit):
        cli.main(["read", "t", f"--limit={given}"])
    shown = capsys.readouterr().err
    assert shown.endswith(f'argument --limit: "{given}" is not a whole number of 1 or more\n')
