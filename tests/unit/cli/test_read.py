"""``kfast read`` without a broker: its options, and what it writes where."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kfast
from kfast.cli import read as cli_read
from kfast.cli.read import ReadOptions, parse_partitions, read_to_output
from kfast.errors import ConfigurationError, KafkaError, MissingDependencyError
from tests.unit.cli.records import Batch

CONFIG = {"bootstrap.servers": "nowhere:9092"}
TP = kfast.TopicPartition("t", 0)


class Consumer:
    """A consumer that is only opened and closed."""

    def __init__(self, config: object) -> None:
        assert config is CONFIG

    def __enter__(self) -> Consumer:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@pytest.fixture
def scanned(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Let ``scan_topic`` give two batches; what it was asked for is in the list."""
    asked: list[dict[str, Any]] = []

    def scan_topic(partitions: object, **options: Any) -> Iterator[Batch]:
        asked.append({"partitions": partitions, **options})
        yield Batch(0, [b'{"a":1}', b"\xff\x00", None])
        yield Batch(1, [b"plain", "süß".encode()])

    monkeypatch.setattr(kfast, "scan_topic", scan_topic)
    monkeypatch.setattr(kfast, "KafkaConsumer", Consumer)
    monkeypatch.setattr(cli_read, "matching_topics", lambda _, names: [*names])
    monkeypatch.setattr(cli_read, "resolve", lambda *_, **__: ({TP: (3, 8)}, {}))
    return asked


def options(**changes: Any) -> ReadOptions:
    return ReadOptions(**{"topics": ("t",), "configs": CONFIG, **changes})


def test_json_lines_are_the_default(
    scanned: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert read_to_output(options()) == 5
    rows = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert [row["value"] for row in rows] == [
        *('{"a":1}', {"base64": "/wA="}, None, "plain", "süß")
    ]
    (asked,) = scanned
    assert (asked["partitions"], asked["start"], asked["end"]) == ([TP], {TP: 3}, {TP: 8})
    assert asked["columns"] is None
    assert asked["config"] is CONFIG


def test_only_wanted_columns_are_read(
    scanned: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]
) -> None:
    assert read_to_output(options(columns=("offset", "partition"), limit=4)) == 4
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == '{"offset":0,"partition":0}'
    assert len(lines) == 4
    assert scanned[0]["columns"] == []


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 6, None])
def test_a_limit_holds_across_batches_and_blocks(
    limit: int | None,
    scanned: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(cli_read, "_BLOCK_ROWS", 2)
    target = tmp_path / "t.csv"
    count = read_to_output(options(output=str(target), limit=limit, columns=("key",)))
    assert count == min(limit or 5, 5)
    assert target.read_text(encoding="utf-8") == "key\n" + "k\n" * count


def test_an_error_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def batches(_self: object, *, progress: bool) -> Iterator[Batch]:
        yield Batch(0, [b"x"])
        raise KafkaError("lost")

    monkeypatch.setattr(cli_read._Reading, "batches", batches)
    target = tmp_path / "t.csv"
    target.write_text("from before", encoding="utf-8")
    with pytest.raises(KafkaError, match="lost"):
        read_to_output(options(output=str(target)))
    assert target.read_text(encoding="utf-8") == "from before"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), KafkaError("lost"), SystemExit(143)])
def test_what_was_interrupted_can_be_parsed(
    failure: BaseException, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def batches(_self: object, *, progress: bool) -> Iterator[Batch]:
        yield Batch(0, [b"x", b"y"])
        raise failure

    monkeypatch.setattr(cli_read._Reading, "batches", batches)
    with pytest.raises(type(failure)):
        read_to_output(options(format="json", columns=("value",)))
    assert json.loads(capfd.readouterr().out) == [{"value": "x"}, {"value": "y"}]


def test_an_interrupt_names_what_was_written(
    scanned: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> Iterator[Batch]:
        yield Batch(0, [b"x"] * 3)
        raise KeyboardInterrupt

    monkeypatch.setattr(kfast, "scan_topic", interrupt)
    for is_quiet, said in ((False, "interrupted after 3 records\n"), (True, "")):
        with pytest.raises(KeyboardInterrupt):
            read_to_output(options(is_quiet=is_quiet))
        assert capfd.readouterr().err == said


def test_lost_offsets_that_are_skipped_are_noted(
    scanned: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(cli_read, "resolve", lambda *_, **__: ({TP: (3, 8)}, {TP: 1200}))
    read_to_output(options(lost="skip"))
    assert capfd.readouterr().err == "t-0: 1,200 records are lost (retention)\n"


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"output": "t.txt"}, "unknown ending"),
        ({"output": "no/folder/t.csv"}, "cannot write no/folder/t.csv: there is no folder"),
    ],
)
def test_read_explains_what_it_cannot_do(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(KafkaError) as raised:
        read_to_output(options(**changes))
    assert complaint in str(raised.value)


def test_formats_follow_the_ending() -> None:
    endings = ("parquet", "CSV", "jsonl", "ndjson", "json", "tsv", "arrow")
    chosen = [cli_read._format(options(output=f"x.{ending}")) for ending in endings]
    assert chosen == ["parquet", "csv", "jsonl", "jsonl", "json", "tsv", "arrow"]
    assert cli_read._format(options(output="x.csv", format="jsonl")) == "jsonl"
    assert cli_read._format(options(output="-")) == "jsonl"


@pytest.mark.parametrize(("is_terminal", "rows"), [(True, 10), (False, 100)])
def test_a_table_has_an_end(
    is_terminal: bool,
    rows: int,
    scanned: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """On a terminal it is the default, and a note says how to see more."""
    monkeypatch.setattr(kfast, "scan_topic", lambda *_, **__: iter([Batch(0, [b"x"] * 1000)]))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    chosen = None if is_terminal else "table"
    assert read_to_output(options(format=chosen)) == rows
    shown = capfd.readouterr()
    assert len(shown.out.splitlines()) == 1 + rows
    assert shown.err == f"the first {rows} records; -n N shows more, -f jsonl all\n"


def test_no_binary_format_goes_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(ConfigurationError, match="parquet is not shown on a terminal"):
        read_to_output(options(format="parquet"))


def test_a_package_that_the_output_needs_is_missed_before_anything_is_read(
    scanned: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """E-11: what to install; no record was asked for, and no file is left behind."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="--format parquet needs pyarrow") as caught:
        read_to_output(options(output=str(tmp_path / "out.parquet")))
    assert caught.value.hint == 'pip install "kfast[arrow]"'
    assert (scanned, list(tmp_path.iterdir())) == ([], [])


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow"])
def test_an_empty_range_is_a_file_with_the_schema(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(cli_read._Reading, "batches", lambda _, progress: iter(()))
    target = tmp_path / name
    read_to_output(options(output=str(target), value="int64", columns=("offset", "value")))
    if name.endswith("parquet"):
        table = pq.read_table(target)
    else:
        table = pa.ipc.open_file(target).read_all()
    assert table.num_rows == 0
    assert [str(field.type) for field in table.schema] == ["int64", "int64"]


@pytest.mark.parametrize(
    ("text", "numbers"), [("0", (0,)), ("0,3-5", (0, 3, 4, 5)), ("2,1-2", (1, 2))]
)
def test_partitions(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_partitions(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "5-3", "1,", "-1", "0-99999999999", "1 2"])
def test_what_are_no_partitions(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not partitions\ntry: -p 0,3-5"):
        parse_partitions(text)
