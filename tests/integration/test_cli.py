"""The command line against a real broker, each command as a process of its own."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfast.local.local_kafka import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message
from tests.integration.support import QUICK_JAVA_ENVIRONMENT

TIMEOUT = 120


def kfast(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kfast", *args],
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT,
        env=environment(),
        cwd=cwd,
    )


def environment(**more: str) -> dict[str, str]:
    own = {"PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100", **QUICK_JAVA_ENVIRONMENT}
    return {**os.environ, **own, **more}


@pytest.fixture
def orders(new_topic: TopicFactory, writer: KafkaWriter) -> str:
    topic = new_topic(partitions=2)
    start = 1_735_689_600_000
    messages = [
        Message(
            json.dumps({"order": number}).encode(),
            f"k{number}".encode(),
            [("source", b"web"), ("raw", b"\xff")],
            start + 1000 * number,
            number % 2,
        )
        for number in range(10)
    ]
    writer.write(topic, [*messages, Message(None, None, None, start + 10_000, 0)], codec="lz4")
    return topic


def read(kafka: LocalKafka, *args: str) -> str:
    done = kfast("read", "--bootstrap-servers", kafka.bootstrap_servers, *args)
    assert done.stderr == ""
    assert done.returncode == 0
    return done.stdout


def test_read_prints_json_lines(kafka: LocalKafka, orders: str) -> None:
    rows = [json.loads(line) for line in read(kafka, orders).splitlines()]
    assert len(rows) == 11
    first = next(row for row in rows if row["partition"] == 1)
    assert first == {
        "topic": orders,
        "partition": 1,
        "offset": 0,
        "timestamp": "2025-01-01T00:00:01.000Z",
        "key": "k1",
        "value": '{"order": 1}',
        "headers": [["source", "web"], ["raw", {"base64": "/w=="}]],
    }
    assert any(row["value"] is None and row["headers"] == [] for row in rows)


def test_read_takes_bounds_columns_types_and_a_limit(kafka: LocalKafka, orders: str) -> None:
    json_rows = read(kafka, orders, "--value", "json", "--columns", "value", "--start", "0=5,1=4")
    values = [json.loads(line)["value"] for line in json_rows.splitlines()]
    assert values in ([None, {"order": 9}], [{"order": 9}, None])
    by_time = read(
        *(kafka, orders, "--columns", "key", "--format", "jsonl"),
        *("--start", "2025-01-01T00:00:04", "--end", "@1735689606000"),
    )
    assert sorted(json.loads(line)["key"] for line in by_time.splitlines()) == ["k4", "k5"]
    assert len(read(kafka, orders, "--limit", "3").splitlines()) == 3
    one = read(kafka, orders, "-o", "0=2:3", "-c", "partition,offset,key")
    assert one == '{"partition":0,"offset":2,"key":"k4"}\n'
    newest = read(kafka, orders, "-p", "1", "-o", "-2", "-f", "tsv", "-c", "key,timestamp")
    assert newest == (
        "key\ttimestamp\nk7\t2025-01-01T00:00:07.000Z\nk9\t2025-01-01T00:00:09.000Z\n"
    )


def test_read_writes_csv(kafka: LocalKafka, orders: str, tmp_path: Path) -> None:
    target = tmp_path / "orders.csv"
    assert read(kafka, orders, "--output", str(target), "--columns", "offset,key,headers") == ""
    with io.StringIO(target.read_text(encoding="utf-8"), newline="") as text:
        rows = list(csv.DictReader(text))
    assert len(rows) == 11
    assert rows[0]["offset"] == "0"
    assert {"k0", "k9", ""} <= {row["key"] for row in rows}
    assert [path.name for path in tmp_path.iterdir()] == ["orders.csv"]


def test_read_writes_parquet(kafka: LocalKafka, orders: str, tmp_path: Path) -> None:
    target = tmp_path / "orders.parquet"
    read(kafka, orders, "--output", str(target), "--value", "text")
    table = pq.read_table(target)
    assert table.num_rows == 11
    assert table.column_names == [
        *("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    ]
    assert str(table.schema.field("value").type) == "string"
    assert pa.types.is_dictionary(table.schema.field("topic").type)
    assert {"order": 3} in [json.loads(text) for text in table["value"].to_pylist() if text]


def test_a_file_is_there_whole_or_not_at_all(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> None:
    topic = new_topic()
    writer.write(topic, [b"12345678", b"1234"])
    target = str(tmp_path / "numbers.csv")
    done = kfast(
        *("read", topic, "--bootstrap-servers", kafka.bootstrap_servers),
        *("--value", "int64", "--output", target),
    )
    assert done.returncode == 6
    assert f"{topic}-0 offset 1" in done.stderr
    assert done.stderr.endswith("try: --on-error null, or --on-error skip\n")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_errors_are_texts(kafka: LocalKafka, orders: str) -> None:
    done = kfast("read", f"{orders}s", "--bootstrap-servers", kafka.bootstrap_servers)
    assert done.returncode == 5
    lines = done.stderr.splitlines()
    assert lines[0].startswith(f'kfast: no topic "{orders}s" on this cluster')
    assert lines[-1] == f'try: did you mean "{orders}"?'
    assert done.stdout == ""


def test_topics_lists_partitions_and_offsets(kafka: LocalKafka, orders: str) -> None:
    done = kfast("topics", "--bootstrap-servers", kafka.bootstrap_servers)
    assert done.returncode == 0
    heading, *lines = done.stdout.splitlines()
    assert heading.split()[:5] == [
        *("topic", "partitions", "replication", "under_replicated", "offsets"),
    ]
    newest = "2025-01-01T00:00:10.000Z"
    assert [orders, "2", "1", "0", "11", newest, "false"] in [line.split() for line in lines]


def test_a_reader_that_goes_away_ends_the_command(kafka: LocalKafka, orders: str) -> None:
    command = [sys.executable, "-m", "kfast", "read", orders]
    with subprocess.Popen(
        [*command, "--bootstrap-servers", kafka.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("number", "status", "security"),
    [
        (signal.SIGINT, 0, []),
        (signal.SIGTERM, 143, ["--security", "SASL_SSL", "--user", "app:it's S3cr3t"]),
    ],
    ids=["interrupt", "terminate-secured"],
)
def test_local_runs_until_a_signal(
    number: signal.Signals, status: int, security: list[str], tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kfast", "local", "--topic", "made:2", *security],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(tmp_path)),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        servers = process.stdout.readline().strip()
        command = ["kfast", "topics", "--bootstrap-servers", servers]
        if security:  # the command that logs in is shown
            command = shlex.split(process.stderr.readline())
            assert command[:4] == ["kfast", "topics", "-b", servers]
        listed = kfast(*command[1:])
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        said = process.stderr.read()
    assert process.returncode == status  # Ctrl-C is the way to end it
    assert ["made", "2", "1", "0", "0"] in [line.split()[:5] for line in listed.stdout.splitlines()]
    assert "Traceback" not in said
    assert len(children) == 2
    assert psutil.wait_procs(children, timeout=20)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_the_demo_shows_records_columns_and_rates(tmp_path: Path) -> None:
    parquet = tmp_path / "events.parquet"
    done = kfast("demo", "--megabytes", "8", "--parquet", str(parquet))
    assert done.stderr == ""
    assert done.returncode == 0
    text = done.stdout
    for expected in (
        "Apache Kafka runs at 127.0.0.1:",
        "The first records of sensors-",
        'batch.values["temperature"]',
        "float32[",
        "readings of 500 sensors",
        "writer.write_batch(batch.to_arrow())",
        "confluent-kafka, tuned",
        "records/s",
        "Each member is a process and is assigned half of the partitions",
        "member-2 is stopped: member-1 has its partitions",
        "together 20,983 of 20,983",
        "the lag is now 0 in 6 partitions",
        "16,000 rows; the first ones",
        "trades-1 offset 333: value.qty is a string, not int32 (byte ",
        ': "twelve")',
        "Into a table of six columns",
    ):
        assert expected in text
    if "Avro is left out, there is no schema registry" not in text:
        assert "Apicurio Registry runs at http://127.0.0.1:" in text
        assert "1,600 rows with the columns of the registry's schema: id int64, ts time" in text
        assert len(re.findall(r"trades-avro +(?:kfast|confluent-kafka)", text)) == 2
    table = pq.read_table(parquet)
    assert table.num_rows == 8_000_000 * 8 // 10 // 305
    assert str(table.schema.field("value").type) == "string"


def test_the_demo_with_tls_and_a_login() -> None:
    done = kfast("demo", "--megabytes", "1", "--security", "SASL_SSL")
    assert done.stderr == ""
    assert done.returncode == 0
    assert "Apache Kafka with SASL_SSL runs at 127.0.0.1:" in done.stdout
    assert "member-2 is stopped: member-1 has its partitions" in done.stdout


def test_the_demo_reads_a_topic_of_the_users(kafka: LocalKafka, orders: str) -> None:
    before = kfast("topics", "--bootstrap-servers", kafka.bootstrap_servers).stdout
    done = kfast("demo", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", orders)
    assert done.stderr == ""
    assert done.returncode == 0
    assert f"The first records of {orders}-" in done.stdout
    assert "11 records" in done.stdout
    assert "skipped: a group commits offsets to the cluster" in done.stdout
    assert kfast("topics", "--bootstrap-servers", kafka.bootstrap_servers).stdout == before


def test_the_demo_creates_no_topic(kafka: LocalKafka) -> None:
    servers = kafka.bootstrap_servers
    done = kfast("demo", "--bootstrap-servers", servers, "--topic", "not-there")
    assert done.returncode == 5
    assert 'no topic "not-there" on this cluster' in done.stderr
    assert "not-there" not in kfast("topics", "--bootstrap-servers", servers).stdout


@pytest.mark.parametrize(
    ("moment", "megabytes", "processes"),
    [
        ("runs at", 12, 2),
        ("sensors, 6 partitions", 12, 2),
        ("reading sensors", 12, 2),
        ("Each member is a process", 4, 4),
    ],
)
def test_ctrl_c_ends_the_demo_and_leaves_nothing(
    moment: str, megabytes: int, processes: int, tmp_path: Path
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "kfast", "demo", "--megabytes", str(megabytes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TMPDIR=str(tmp_path)),
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        for line in process.stdout:
            if moment in line:
                break
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        said = process.stderr.read()
    assert process.returncode == 130
    assert said == ""
    assert len(children) == processes
    assert psutil.wait_procs(children, timeout=20)[1] == []
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_said_with_codes(kafka: LocalKafka, orders: str) -> None:
    """One code per kind of failure, at most six lines, the last one to type."""
    servers = kafka.bootstrap_servers
    for line, status, first, last in (
        (f"{orders} -p 77", 5, f"{orders} has partitions 0-1: there is no partition 77", ""),
        (f"{orders} -o 20250131", 6, "there is no offset 20250131 yet", "--start 2025-01-31 for"),
        ("no-such-*", 5, "none of the", "kfast topics lists them"),
        (f"{orders} --start 12:00", 2, "--start 12:00: a time of day without a day", "--start 20"),
        (f"{orders} --value int64", 6, f"{orders}-", ""),
    ):
        done = kfast("read", "-b", servers, *line.split())
        assert (done.returncode, done.stdout) == (status, ""), line
        assert done.stderr.startswith("kfast: ")
        assert first in done.stderr.splitlines()[0]
        assert last in done.stderr.splitlines()[-1]
        assert len(done.stderr.splitlines()) <= 6


def test_read_takes_globs_and_an_empty_range(
    kafka: LocalKafka, orders: str, tmp_path: Path
) -> None:
    rows = [json.loads(line) for line in read(kafka, f"{orders[:-1]}[!x]").splitlines()]
    assert len(rows) == 11
    target = tmp_path / "none.parquet"
    read(kafka, orders, "-o", "end", "--output", str(target), "--value", "int64")
    table = pq.read_table(target)
    assert table.num_rows == 0
    assert str(table.schema.field("value").type) == "int64"
    assert read(kafka, orders, "-o", "end", "-f", "csv", "-c", "key") == "key\n"


def test_a_full_disk_and_odd_surroundings(kafka: LocalKafka, orders: str) -> None:
    """The device stays a device, and the locale changes nothing."""
    done = kfast(
        "read", orders, "-b", kafka.bootstrap_servers, "-f", "raw", "--output", "/dev/full"
    )
    assert done.returncode == 7
    assert done.stderr.splitlines()[0] == ("kfast: cannot write /dev/full: No space left on device")
    assert Path("/dev/full").is_char_device()
    expected = read(kafka, orders)
    odd = subprocess.run(
        [sys.executable, "-m", "kfast", "read", orders, "-b", kafka.bootstrap_servers],
        capture_output=True,
        check=False,
        timeout=TIMEOUT,
        env=environment(PYTHONIOENCODING="ascii", LC_ALL="C"),
    )
    assert (odd.returncode, odd.stderr) == (0, b"")
    assert sorted(odd.stdout.splitlines()) == sorted(expected.encode().splitlines())
