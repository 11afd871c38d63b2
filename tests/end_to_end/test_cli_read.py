"""``kfast read`` against the fake broker, in this process: ranges, limits, ends and files."""

from __future__ import annotations

import gzip
import json
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from kfast.errors import ErrorCode
from kfast.protocol.api_keys import ApiKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.faults import TopLevelError
from kfast.testing.request_log import LoggedRequest
from tests.end_to_end.cli_shell import PATIENCE_S, Shell
from tests.end_to_end.errors_support import cluster_of
from tests.end_to_end.groups import committed


@pytest.fixture
def shell(capfdbinary: pytest.CaptureFixture[bytes]) -> Iterator[Shell]:
    shell = Shell(cluster_of(batch_records=4), capfdbinary)
    with shell.server:
        yield shell


def values(lines: bytes) -> list[str]:
    return [json.loads(line)["value"] for line in lines.splitlines()]


def test_all_records_once_in_the_order_of_their_partitions(shell: Shell) -> None:
    """CL-41: a read writes each record of the range once and ends where the log did."""
    rows = [json.loads(line) for line in shell("read", "t").splitlines()]
    assert shell.error == b""
    for partition in (0, 1):
        found = [(row["offset"], row["value"]) for row in rows if row["partition"] == partition]
        assert found == [(offset, f"{partition}-{offset}") for offset in range(10)]
    assert len(rows) == 20


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-p", "1", "-o", "3:5"), ["1-3", "1-4"]),
        (("-o", "0=7"), ["0-7", "0-8", "0-9"]),
        (("-p", "0", "-o", "-2"), ["0-8", "0-9"]),
        (("-p", "0", "-n", "3"), ["0-0", "0-1", "0-2"]),
        (("-p", "0", "-o", "2:8", "-n", "1"), ["0-2"]),
        (("-p", "1", "--tail", "2"), ["1-8", "1-9"]),
        (
            (
                "-o",
                "end",
            ),
            [],
        ),
    ],
)
def test_ranges_and_limits(shell: Shell, words: tuple[str, ...], expected: list[str]) -> None:
    assert values(shell("read", "t", *words)) == expected


def test_a_topic_that_is_deleted_ends_a_read(shell: Shell) -> None:
    """CL-41, E-13: what is not in the log any more does not come by waiting."""
    shell.cluster.create_topic("big")
    shell.cluster.append("big", 0, [b"x" * 1_000] * 20_000, batch_records=10)

    def delete() -> None:
        requests = shell.cluster.requests
        assert requests.wait_for(lambda log: len(log.select(ApiKey.FETCH)) > 2, PATIENCE_S)
        shell.cluster.delete_topic("big")

    thread = threading.Thread(target=delete)
    thread.start()
    small = ("max.partition.fetch.bytes=20000", "buffer.memory.bytes=60000")
    lines = shell("read", "big", *(word for each in small for word in ("-X", each)), status=5)
    thread.join()
    assert b'no topic "big" on this cluster' in shell.error
    assert 0 < len(lines.splitlines()) < 20_000


def test_a_read_uses_one_consumer(shell: Shell) -> None:
    """CL-42: a read looks its range up and reads it over the same connections."""
    shell("read", "t", "-p", "0")
    assert shell.cluster.connections_made == 1  # the bootstrap server is the leader


def test_offsets_are_the_first_that_the_leader_is_asked_for(shell: Shell) -> None:
    """CL-42: the first request for metadata names the topic, so that its leader is known."""
    shell("read", "t", "-p", "0", "-n", "1")
    asked = [entry.api_key for entry in shell.cluster.requests.select(connection=1)]
    assert asked[:5] == [ApiKey.API_VERSIONS, *[ApiKey.METADATA] * 2, *[ApiKey.LIST_OFFSETS] * 2]
    assert asked[5] == ApiKey.FETCH


def test_the_newest_by_timestamp(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """CL-43: --tail gives the newest records of all partitions by timestamp, oldest first."""
    cluster = FakeCluster(1)
    cluster.create_topic("t", 2)
    for partition, times in ((0, [10, 40, 20]), (1, [30, 5, 50])):
        for ms in times:
            cluster.append("t", partition, [Record(None, b"%d" % ms, (), ms)])
    shell = Shell(cluster, capfdbinary)
    with shell.server:
        assert values(shell("read", "t", "--tail", "4")) == ["20", "30", "40", "50"]
        assert values(shell("read", "t", "--tail", "9")) == ["5", "10", "20", "30", "40", "50"]
        assert values(shell("read", "t", "--tail", "4", "-n", "2")) == ["20", "30"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("-f", "raw"), b"1-0\n1-1\n"),
        (("-f", "raw", "-0"), b"1-0\x001-1\x00"),
        (("-f", "raw", "--delimiter", ""), b"1-01-1"),
        (("-f", "raw", "--delimiter", "\udcff"), b"1-0\xff1-1\xff"),
        (("-f", "%t:%p:%o %s;"), b"t:1:0 1-0;t:1:1 1-1;"),
        (("-f", "json", "-c", "value"), b'[\n{"value":"1-0"},\n{"value":"1-1"}\n]\n'),
        (("-f", "csv", "-c", "offset,value"), b"offset,value\n0,1-0\n1,1-1\n"),
        (("-f", "table", "-c", "offset,value"), b"offset  value\n     0  1-0\n     1  1-1\n"),
    ],
)
def test_formats(shell: Shell, words: tuple[str, ...], expected: bytes) -> None:
    """CL-44: each format through the command, byte by byte."""
    assert shell("read", "t", "-p", "1", "-o", ":2", *words) == expected


@pytest.mark.parametrize("name", ["out.parquet", "out.arrow", "out.csv"])
def test_files(shell: Shell, name: str, tmp_path: Path) -> None:
    target = tmp_path / name
    for words, count in ((("-o", "0=2:7"), 5), (("-o", "end"), 0)):
        shell("read", "t", "--output", str(target), "-c", "offset,value,leader_epoch", *words)
        if name.endswith("csv"):
            assert target.read_bytes().count(b"\n") == 1 + count
            continue
        table = pq.read_table(target) if "parquet" in name else pa.ipc.open_file(target).read_all()
        assert table.column_names == ["offset", "value", "leader_epoch"]
        assert table.column("offset").to_pylist() == list(range(2, 2 + count))


def test_arrow_is_a_stream_but_in_files_of_arrow(shell: Shell, tmp_path: Path) -> None:
    for name, opened in (
        ("x.bin", pa.ipc.open_stream),
        ("x.arrow", pa.ipc.open_file),
        ("x.feather", pa.ipc.open_file),
    ):
        target = tmp_path / name
        shell("read", "t", "-f", "arrow", "--output", str(target))
        assert opened(target.read_bytes()).read_all().num_rows == 20


@pytest.mark.parametrize("ending", ["gz", "zst"])
def test_text_files_can_be_compressed(shell: Shell, ending: str, tmp_path: Path) -> None:
    """CL-239: by a second ending; with none of their records when the range is empty."""
    target = tmp_path / f"out.jsonl.{ending}"

    def read() -> bytes:
        if ending == "gz":
            return gzip.decompress(target.read_bytes())
        return zstandard.ZstdDecompressor().stream_reader(target.read_bytes()).read()

    shell("read", "t", "-p", "0", "--output", str(target))
    assert values(read()) == [f"0-{number}" for number in range(10)]
    shell("read", "t", "-o", "end", "--output", str(target))
    assert read() == b""
    wrong = str(tmp_path / f"out.parquet.{ending}")
    shell("read", "t", "--output", wrong, status=2)
    assert b"parquet is compressed inside" in shell.error
    assert [path.name for path in tmp_path.iterdir()] == [target.name]


@pytest.mark.parametrize("form", ["jsonl", "arrow"])
def test_undecodable_values(
    capfdbinary: pytest.CaptureFixture[bytes], form: str, tmp_path: Path
) -> None:
    """CL-45: an undecodable value ends a read with its place, or is null, or leaves no record."""
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"1234", b"12345", b"5678", b"x", b"abcd"])
    shell = Shell(cluster, capfdbinary)
    target = tmp_path / f"out.{form}"
    words = ("read", "t", "--output", str(target), "--value", "int32", "-c", "offset,value")

    def offsets() -> list[int]:
        if form == "arrow":
            found: list[int] = pa.ipc.open_file(target).read_all()["offset"].to_pylist()
            return found
        return [json.loads(line)["offset"] for line in target.read_bytes().splitlines()]

    with shell.server:
        shell(*words, status=6)
        assert shell.error.splitlines() == [
            b"kfast: t-0 offset 1: value is not an Int32 (5 bytes, needs 4)",
            b"found: 31 32 33 34 35 (5 bytes)",
            b"try: --on-error null, or --on-error skip",
        ]
        assert not target.exists()
        shell(*words, "-n", "1")
        assert offsets() == [0]
        shell(*words, "--on-error", "null", "-v")
        assert offsets() == [0, 1, 2, 3, 4]
        assert b", 2 undecodable ones null" in shell.error
        shell(*words, "--on-error", "skip", "-v")
        assert offsets() == [0, 2, 4]
        assert b", 2 undecodable ones left out" in shell.error
        shell(*words, "--on-error", "skip", "-n", "2")
        assert offsets() == [0, 2]


def test_text_that_is_not_utf_8_has_no_cell_in_csv(
    capfdbinary: pytest.CaptureFixture[bytes],
) -> None:
    cluster = FakeCluster(1)
    cluster.create_topic("t", 1)
    cluster.append("t", 0, [b"a", b"\xff"])
    shell = Shell(cluster, capfdbinary)
    with shell.server:
        assert shell("read", "t", "-f", "csv", "-c", "value", status=6) == b"value\na\n"
        assert shell.error.splitlines()[-1] == b"try: --value base64"
        assert shell("read", "t", "-f", "json", "-c", "value", "--value", "json", status=6) == (
            b"[]\n"
        )
        assert b"value is not JSON (byte 0: 0x61)" in shell.error


# --- following ------------------------------------------------------------------------------------


@pytest.fixture
def fifo(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """Give a FIFO, and a file that has what is written to it."""
    pipe, copy = tmp_path / "pipe", tmp_path / "copy"
    os.mkfifo(pipe)
    copy.touch()

    def drain() -> None:
        with pipe.open("rb", 0) as source, copy.open("ab", 0) as target:
            while data := source.read(1 << 16):
                target.write(data)

    thread = threading.Thread(target=drain)
    thread.start()
    yield pipe, copy
    thread.join(PATIENCE_S)


def interrupt() -> None:
    signal.raise_signal(signal.SIGINT)


@pytest.mark.parametrize("is_skipped", [True, False])
def test_offsets_that_are_removed_while_they_are_read(shell: Shell, is_skipped: bool) -> None:
    """P-10: an error; with --lost skip they are counted, wherever in the range they are."""

    def remove(entry: LoggedRequest) -> bool:
        topics = entry.message.topics
        offsets = [part.fetch_offset for topic in topics for part in topic.partitions]
        if 4 in offsets:
            shell.cluster.log("t", 0).delete_before(8)
        return False

    shell.cluster.faults.add(api=ApiKey.FETCH, where=remove, times=None)
    words = ("read", "t", "-p", "0", "-X", "max.partition.fetch.bytes=1")
    if is_skipped:
        assert values(shell(*words, "--lost", "skip")) == [f"0-{n}" for n in (0, 1, 2, 3, 8, 9)]
        assert shell.error == b"t-0: 4 records are lost (retention)\n"
    else:
        shell(*words, status=6)
        assert b"offset 4 of t-0 is gone: the log now starts at 8 (retention)" in shell.error
        assert b"try: -o start, or --lost skip" in shell.error


def test_following_begins_with_the_newest_and_goes_on(
    shell: Shell, fifo: tuple[Path, Path]
) -> None:
    """CL-46: --follow begins with the 10 newest records and ends with status 0 at Ctrl-C."""
    pipe, copy = fifo
    thread = shell.later(lambda: shell.cluster.append("t", 0, [b"new"]), 10, copy)
    other = shell.later(lambda: os.kill(os.getpid(), signal.SIGINT), 11, copy)
    shell("read", "t", "--follow", "--output", str(pipe), "-f", "raw")
    thread.join()
    other.join()
    lines = copy.read_bytes().splitlines()
    assert len(lines) == 11
    assert lines[-1] == b"new"


def test_new_partitions_and_topics_are_followed(
    shell: Shell, fifo: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-47: new topics of a glob join a read that follows, from their first record on."""
    monkeypatch.setattr("kfast.cli.reading._REFRESH_MS", 50)
    pipe, copy = fifo

    def add() -> None:
        shell.cluster.create_topic("two", 1)
        shell.cluster.append("two", 0, [b"second"])

    threads = [
        shell.later(add, 20, copy),
        shell.later(lambda: os.kill(os.getpid(), signal.SIGTERM), 21, copy),
    ]
    shell_words = ("read", "t*", "-o", "start", "--follow", "--output", str(pipe), "-f", "%t %s\n")
    with pytest.raises(SystemExit) as ended:
        shell(*shell_words)
    for thread in threads:
        thread.join()
    assert ended.value.code == 143
    lines = copy.read_bytes().splitlines()
    assert len(lines) == 21
    assert lines[-1] == b"two second"


def test_a_group_goes_on_where_it_was(shell: Shell, fifo: tuple[Path, Path]) -> None:
    """CL-48: a member of a group commits what has been written, and goes on there."""
    assert len(values(shell("read", "t", "-g", "g", "-o", "start", "-n", "7"))) == 7
    pipe, copy = fifo
    thread = shell.later(lambda: os.kill(os.getpid(), signal.SIGINT), 13, copy)
    shell("read", "t", "-g", "g", "-o", "start", "--output", str(pipe), "-f", "raw")
    thread.join()
    assert len(copy.read_bytes().splitlines()) == 13
    assert committed(shell.cluster, "g") == {0: 10, 1: 10}


def test_a_member_says_what_it_has_lost(shell: Shell, fifo: tuple[Path, Path]) -> None:
    """CL-214: such as after Ctrl-Z, longer than the session timeout."""
    pipe, copy = fifo

    def throw_out() -> None:
        groups = shell.cluster.groups
        (member,) = groups._classic["g"].members
        groups.expire_member("g", member)
        # It joins again, and begins where the group's offsets are: the start.
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until and copy.read_bytes().count(b"\n") < 40:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    thread = shell.later(throw_out, 20, copy)
    words = ("read", "t", "-g", "g", "--no-commit", "-o", "start", "-X", "heartbeat.interval.ms=50")
    shell(*words, "--output", str(pipe), "-f", "raw")
    thread.join()
    assert copy.read_bytes().count(b"\n") == 40
    assert b"the group has taken 2 partitions from this member, which did not answer" in shell.error


def test_a_group_without_offsets_begins_as_the_settings_say(shell: Shell, tmp_path: Path) -> None:
    """CL-215: and where it has offsets, there."""
    file = tmp_path / "app.properties"
    file.write_text("auto.offset.reset=earliest\nenable.auto.commit=true\ngroup.id=other\n")
    words = ("read", "t", "-F", str(file), "-p", "0", "-f", "raw")
    shell(*words, "-g", "g", status=2)  # a group decides about partitions
    words = ("read", "t", "-F", str(file), "-g", "g", "-f", "raw")
    assert len(shell(*words, "-n", "7").splitlines()) == 7
    assert len(shell(*words, "-n", "13").splitlines()) == 13
    assert committed(shell.cluster, "g") == {0: 10, 1: 10}
    assert committed(shell.cluster, "other") == {}


def test_a_group_without_a_coordinator_is_an_error(shell: Shell) -> None:
    """Y-07: after bootstrap_timeout_ms, with what to do."""
    unavailable = TopLevelError(int(ErrorCode.COORDINATOR_NOT_AVAILABLE))
    shell.cluster.faults.add(unavailable, api=ApiKey.FIND_COORDINATOR, times=None)
    shell("read", "t", "-g", "g", "-X", "bootstrap.timeout.ms=300", "--no-commit", status=3)
    assert b"COORDINATOR_NOT_AVAILABLE" in shell.error
    assert b"offsets.topic.replication.factor" in shell.error


def test_a_group_that_commits_nothing(shell: Shell) -> None:
    for _ in range(2):
        lines = shell("read", "t", "-g", "g", "--no-commit", "-o", "start", "-n", "20")
        assert len(values(lines)) == 20
