"""``kfast read`` without a broker: its options, and what it writes where."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kfast.application.read_bounds import END, Kind, Position, Range
from kfast.cli import read as cli_read
from kfast.cli.positions import Selection
from kfast.cli.read import ReadOptions, parse_partitions, read_to_output
from kfast.cli.reading import Reading
from kfast.cli.slices import Slice
from kfast.errors import ConfigurationError, KafkaError, MissingDependencyError
from kfast.types import TopicPartition
from tests.unit.cli.records import index_of

CONFIG = {"bootstrap.servers": "nowhere:9092"}
TP = TopicPartition("t", 0)


def slice_of(*values: bytes | None, partition: int = 0) -> Slice:
    """Return all rows of a chunk."""
    index = index_of(values)
    return Slice(TopicPartition("t", partition), index, 0, len(index))


def interrupted(_rows: Slice) -> int:
    """Receive a Ctrl-C where rows are counted, which have been written then."""
    signal.raise_signal(signal.SIGINT)
    return 0


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Let a read find the slices of a list; an exception in it is raised."""
    slices: list[Any] = [slice_of(b'{"a":1}', b"\xff\x00", None), slice_of(b"plain", b"\xc3\xbc")]

    def read(_self: Reading) -> Iterator[Slice]:
        for each in slices:
            if isinstance(each, BaseException):
                raise each
            yield each

    monkeypatch.setattr(Reading, "find", lambda _self: None)
    monkeypatch.setattr(Reading, "slices", read)
    return slices


def options(**changes: Any) -> ReadOptions:
    return ReadOptions(**{"topics": ("t",), "configs": CONFIG, **changes})


@pytest.mark.parametrize("limit", [1, 3, 4, 5, 6, None])
def test_a_limit_holds_across_slices(limit: int | None, found: list[Any], tmp_path: Path) -> None:
    target = tmp_path / "t.csv"
    count = read_to_output(options(output=str(target), limit=limit, columns=("key",)))
    assert count == min(limit or 5, 5)
    assert target.read_text(encoding="utf-8") == "key\n" + "k\n" * count


def test_an_error_leaves_the_old_file(tmp_path: Path, found: list[Any]) -> None:
    found.append(KafkaError("lost"))
    target = tmp_path / "t.csv"
    target.write_text("from before", encoding="utf-8")
    with pytest.raises(KafkaError, match="value is not UTF-8"):
        read_to_output(options(output=str(target)))
    with pytest.raises(KafkaError, match="lost"):
        read_to_output(options(output=str(target), columns=("key",)))
    assert target.read_text(encoding="utf-8") == "from before"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), KafkaError("lost"), SystemExit(143)])
def test_what_was_interrupted_can_be_parsed(
    failure: BaseException, found: list[Any], capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-49: a JSON array is closed whatever ends the read."""
    found[:] = [slice_of(b"x", b"y"), failure]
    with pytest.raises(type(failure)):
        read_to_output(options(format="json", columns=("value",)))
    assert json.loads(capfd.readouterr().out) == [{"value": "x"}, {"value": "y"}]


def test_a_signal_is_acted_on_behind_a_whole_record(
    found: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-50: Ctrl-C ends a bounded read with a whole record, and says how many there were."""

    monkeypatch.setattr(Slice, "nbytes", property(interrupted))
    before = signal.getsignal(signal.SIGINT)
    index = index_of([b"x"] * 3)
    for is_quiet, said in ((False, "interrupted after 3 records\n"), (True, "")):
        found[:] = [Slice(TP, index, 0, 3), slice_of(b"y")]
        with pytest.raises(KeyboardInterrupt):
            read_to_output(options(is_quiet=is_quiet, format="raw"))
        assert tuple(capfd.readouterr()) == ("x\n" * 3, said)
    assert signal.getsignal(signal.SIGINT) is before
    assert read_to_output(options(follow=True, tail=1, format="raw")) == 3
    assert tuple(capfd.readouterr()) == ("x\n" * 3, "")


def test_an_interrupted_file_is_as_it_was(
    found: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    target = tmp_path / "t.csv"
    found[:] = [slice_of(b"y")]
    monkeypatch.setattr(Slice, "nbytes", property(interrupted))
    with pytest.raises(KeyboardInterrupt):
        read_to_output(options(output=str(target), is_quiet=True))
    assert list(tmp_path.iterdir()) == []
    assert read_to_output(options(output=str(target), follow=True)) == 1
    assert target.exists()


def test_lost_offsets_that_are_skipped_are_noted(
    found: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Reading, "find", lambda self: self.skipped.update({TP: 1200}))
    read_to_output(options(lost="skip"))
    assert capfd.readouterr().err == "t-0: 1,200 records are lost (retention)\n"


def test_a_summary(
    found: list[Any], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """CL-51: a summary says what was read, on a terminal or when it is asked for."""
    read_to_output(options())
    assert capfd.readouterr().err == ""
    read_to_output(options(is_verbose=True))
    summary = capfd.readouterr().err
    assert summary.startswith("t: 5 records, ")
    assert " B, offsets 0\N{EN DASH}2 (1 partition), 0.0 s, " in summary
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    read_to_output(options(output=None))
    assert capfd.readouterr().err.startswith("t: 5 records, ")
    read_to_output(options(is_quiet=True))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"output": "t.txt"}, "unknown ending"),
        ({"output": "no/folder/t.csv"}, "cannot write no/folder/t.csv: there is no folder"),
        ({"format": "%x"}, "there is no %x"),
        ({"format": "%s", "columns": ("key",)}, "--columns has no effect on -f %s"),
        ({"format": "table", "follow": True}, "a table needs an end"),
        ({"format": "csv", "compression": "lz4"}, "--compression has no effect on csv"),
        ({"output": "a.jsonl", "errors": "./a.jsonl"}, "--errors ./a.jsonl: the records are"),
        ({"format": "jsonl", "null_as": "-"}, "--null-as has no effect on jsonl"),
        ({"no_commit": True}, "--no-commit without a group"),
        ({"group": "g", "partitions": (0,)}, "-g reads what the group has not read"),
        ({"group": "g", "tail": 3}, "-g reads what the group has not read"),
        (
            {"group": "g", "selection": Selection(Range(Position(Kind.OFFSET, 3), END))},
            "-g reads what the group has not read",
        ),
        (
            {"follow": True, "selection": Selection(Range(end=Position(Kind.OFFSET, 3)))},
            "--follow has no end",
        ),
    ],
)
def test_read_explains_what_it_cannot_do(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(KafkaError) as raised:
        read_to_output(options(**changes))
    assert complaint in str(raised.value)


def test_formats_follow_the_ending() -> None:
    endings = ("parquet", "CSV", "jsonl", "ndjson", "json", "tsv", "arrow", "feather")
    chosen = [cli_read._format(options(output=f"x.{ending}")) for ending in endings]
    assert chosen == ["parquet", "csv", "jsonl", "jsonl", "json", "tsv", "arrow", "arrow"]
    assert cli_read._format(options(output="x.csv", format="jsonl")) == "jsonl"
    assert cli_read._format(options(output="-")) == "jsonl"


@pytest.mark.parametrize(("is_terminal", "rows"), [(True, 10), (False, 100)])
def test_a_table_has_an_end(
    is_terminal: bool,
    rows: int,
    found: list[Any],
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """On a terminal it is the default, and a note says how to see more; logs have none."""
    found[:] = [slice_of(*[b"x"] * 1000)]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    chosen = None if is_terminal else "table"
    assert read_to_output(options(format=chosen)) == rows
    shown = capfd.readouterr()
    assert len(shown.out.splitlines()) == 1 + rows
    note = f"the first {rows} records; -n N shows more, -f jsonl all"
    assert shown.err.splitlines()[-1:] == ([note] if is_terminal else [])


def test_no_binary_format_goes_to_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    with pytest.raises(ConfigurationError, match="parquet is not shown on a terminal"):
        read_to_output(options(format="parquet"))


def test_a_package_that_the_output_needs_is_missed_before_anything_is_read(
    found: list[Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """E-11: what to install; no record was asked for, and no file is left behind."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match="--format parquet needs pyarrow") as caught:
        read_to_output(options(output=str(tmp_path / "out.parquet")))
    assert caught.value.hint == 'pip install "kfast[arrow]"'
    assert list(tmp_path.iterdir()) == []


def test_settings_of_a_read() -> None:
    """What a user gives counts, but in a group offsets are committed by this command only."""
    plain = cli_read._configs(options())
    assert plain == {**CONFIG, "enable.auto.commit": False, "auto.offset.reset": "none"}
    assert cli_read._configs(options(lost="skip"))["auto.offset.reset"] == "earliest"
    given = {**CONFIG, "auto_offset_reset": "latest", "enable_auto_commit": True}
    assert cli_read._configs(options(configs=given)) == given
    group = cli_read._configs(options(group="g", selection=Selection(), read_committed=True))
    assert group == {
        **CONFIG,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "group.id": "g",
    }
    assert "auto.offset.reset" not in cli_read._configs(options(group="g"))


@pytest.mark.parametrize(
    ("text", "numbers"), [("0", (0,)), ("0,3-5", (0, 3, 4, 5)), ("2,1-2", (1, 2))]
)
def test_partitions(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_partitions(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "5-3", "1,", "-1", "0-99999999999", "1 2"])
def test_what_are_no_partitions(text: str) -> None:
    with pytest.raises(ConfigurationError, match="not partitions\ntry: -p 0,3-5"):
        parse_partitions(text)
