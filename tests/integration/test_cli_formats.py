"""Every format of ``kfast read`` through the installed program, of one topic of a real broker."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kfast.local.local_kafka import LocalKafka
from tests.installed import environment, program
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter, Message

TIMEOUT: Final = 120
START_MS: Final = 1_769_860_800_123
"""2026-01-31T12:00:00.123Z"""

MESSAGES: Final = (
    Message("t\u00fcxt".encode(), b"k1", [("a", b"1"), ("b", b"\x00\xff")], START_MS, 0),
    Message(None, None, None, START_MS + 1, 0),
    Message(b'{"b": 1.50, "a":"\\ud800"}', b"", [("n", None), ("n", b"")], START_MS + 2, 0),
    Message(b'a\x00b\tc\nd"e,f\\', b"\xff", None, START_MS + 3, 0),
    Message(b"NaN", b"n", None, START_MS + 4, 0),
)


def kfast(*words: str) -> bytes:
    """Return what a command writes, in surroundings in which Python's own output is ASCII."""
    done = subprocess.run(
        [*program(), *words],
        capture_output=True,
        check=False,
        timeout=TIMEOUT,
        env=environment(LC_ALL="C", PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


@pytest.fixture
def odd(new_topic: TopicFactory, writer: KafkaWriter) -> str:
    topic = new_topic()
    assert writer.write(topic, MESSAGES) == [0, 1, 2, 3, 4]
    return topic


Golden = tuple[tuple[str, ...], str]

JSON_ROWS: Final = (
    '"offset":0,"timestamp":"2026-01-31T12:00:00.123Z","key":"k1","value":"t\u00fcxt",'
    '"headers":[["a","1"],["b",{"base64":"AP8="}]]}',
    '"offset":1,"timestamp":"2026-01-31T12:00:00.124Z","key":null,"value":null,"headers":[]}',
    '"offset":2,"timestamp":"2026-01-31T12:00:00.125Z","key":"",'
    '"value":"{\\"b\\": 1.50, \\"a\\":\\"\\\\ud800\\"}","headers":[["n",null],["n",""]]}',
    '"offset":3,"timestamp":"2026-01-31T12:00:00.126Z","key":{"base64":"/w=="},'
    '"value":"a\\u0000b\\tc\\nd\\"e,f\\\\","headers":[]}',
    '"offset":4,"timestamp":"2026-01-31T12:00:00.127Z","key":"n","value":"NaN","headers":[]}',
)

GOLDEN: Final[dict[str, Golden]] = {
    "jsonl": ((), "".join(f'{{"topic":"TOPIC","partition":0,{row}\n' for row in JSON_ROWS)),
    "json": (
        ("-c", "offset,value", "--value", "base64", "-n", "2"),
        '[\n{"offset":0,"value":"dMO8eHQ="},\n{"offset":1,"value":null}\n]\n',
    ),
    "csv": (
        ("-c", "offset,key,value,headers", "--key", "hex"),
        "offset,key,value,headers\n"
        '0,6b31,t\u00fcxt,"[[""a"",""1""],[""b"",{""base64"":""AP8=""}]]"\n'
        "1,,,[]\n"
        '2,"","{""b"": 1.50, ""a"":""\\ud800""}","[[""n"",null],[""n"",""""]]"\n'
        '3,ff,"a\x00b\tc\nd""e,f\\",[]\n'
        "4,6e,NaN,[]\n",
    ),
    "tsv": (
        ("-c", "offset,key,value", "--key", "hex"),
        "offset\tkey\tvalue\n"
        "0\t6b31\tt\u00fcxt\n"
        "1\t\\N\t\\N\n"
        '2\t\t{"b": 1.50, "a":"\\\\ud800"}\n'
        '3\tff\ta\x00b\\tc\\nd"e,f\\\\\n'
        "4\t6e\tNaN\n",
    ),
    "raw": ((), 't\u00fcxt\n\n{"b": 1.50, "a":"\\ud800"}\na\x00b\tc\nd"e,f\\\nNaN\n'),
    "%p:%o %K %k{hex} %S %s{json}\\n": (
        ("--null-as", "-"),
        '0:0 2 6b31 5 "t\u00fcxt"\n'
        "0:1 -1 - -1 null\n"
        '0:2 0  25 "{\\"b\\": 1.50, \\"a\\":\\"\\\\ud800\\"}"\n'
        '0:3 1 ff 12 "a\\u0000b\\tc\\nd\\"e,f\\\\"\n'
        '0:4 1 6e 3 "NaN"\n',
    ),
    "line": (
        ("-o", "0=0:2"),
        "12:00:00.123 0:0 k1 t\u00fcxt\n12:00:00.124 0:1 null null\n",
    ),
    "table": (
        ("-c", "offset,key,value"),
        "offset  key      value\n"
        "     0  k1       t\u00fcxt\n"
        "     1  null     null\n"
        '     2           {"b": 1.50, "a":"\\ud800"}\n'
        '     3  b"\\xff"  a\\x00b\\x09c\\x0ad"e,f\\\n'
        "     4  n        NaN\n",
    ),
}


@pytest.mark.parametrize("form", GOLDEN)
def test_text(form: str, kafka: LocalKafka, odd: str) -> None:
    """CL-232: byte by byte, in UTF-8, whatever the locale."""
    words, expected = GOLDEN[form]
    out = kfast("read", odd, "-b", kafka.bootstrap_servers, "-f", form, *words)
    assert out.decode() == expected.replace("TOPIC", odd)


def test_json_values_are_copied(kafka: LocalKafka, odd: str) -> None:
    """CL-232: a surrogate alone stays the six characters it is; what is no JSON can be null."""
    out = kfast(
        *("read", odd, "-b", kafka.bootstrap_servers, "-c", "value"),
        *("--value", "json", "--on-error", "null"),
    )
    assert out.decode().splitlines() == [
        *('{"value":null}', '{"value":null}', '{"value":{"b":1.50,"a":"\\ud800"}}'),
        *('{"value":null}', '{"value":null}'),
    ]


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_files_of_columns(form: str, kafka: LocalKafka, odd: str, tmp_path: Path) -> None:
    """CL-232: Parquet as a file, Arrow as a stream in a pipe."""
    words = ("read", odd, "-b", kafka.bootstrap_servers, "-f", form)
    if form == "parquet":
        target = tmp_path / "t.parquet"
        assert kfast(*words, "--output", str(target)) == b""
        table = pq.read_table(target)
    else:
        table = pa.ipc.open_stream(kfast(*words)).read_all()
    assert table["offset"].to_pylist() == [0, 1, 2, 3, 4]
    assert table["key"].to_pylist() == [message.key for message in MESSAGES]
    assert table["value"].to_pylist() == [message.value for message in MESSAGES]
    assert table["timestamp"].cast("int64").to_pylist() == [START_MS + n for n in range(5)]


# --- what comes back ------------------------------------------------------------------------------


def random_bytes(chooser: random.Random) -> bytes | None:
    """Return text of all planes, bytes, nothing, or null."""
    kind = chooser.random()
    length = chooser.randrange(40)
    if kind < 0.05:
        return None
    if kind < 0.4:
        return chooser.randbytes(length)
    letters = [chr(chooser.choice((0, 7, 10, 34, 92, 127, 0x85, 0x2028, 0x10FFFF))) for _ in "ab"]
    letters += [chr(chooser.randrange(0xD800)) for _ in range(length)]
    return "".join(letters).encode()


def of_json(cell: Any) -> bytes | None:
    if isinstance(cell, dict):
        return base64.b64decode(cell["base64"])
    return None if cell is None else str(cell).encode()


def as_it_is(lines: bytes) -> bytes:
    return lines


def through_jq(lines: bytes) -> bytes:
    if shutil.which("jq") is None:
        pytest.skip("no jq on this machine: JSON was read by Python only")
    return subprocess.run(["jq", "-c", "."], input=lines, capture_output=True, check=True).stdout


@pytest.mark.parametrize("read", [as_it_is, through_jq])
def test_keys_and_values_come_back(
    read: Callable[[bytes], bytes], kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """CL-233: a thousand of them, byte by byte."""
    chooser = random.Random(20)
    messages = [
        Message(random_bytes(chooser), random_bytes(chooser), [("h", random_bytes(chooser))])
        for _ in range(1_000)
    ]
    topic = new_topic()
    writer.write(topic, messages)
    lines = kfast("read", topic, "-b", kafka.bootstrap_servers, "-f", "jsonl").split(b"\n")
    assert lines.pop() == b""
    rows = [json.loads(line) for line in read(b"\n".join(lines)).split(b"\n") if line]
    for row, message in zip(rows, messages, strict=True):
        assert of_json(row["key"]) == message.key
        assert of_json(row["value"]) == message.value
        assert message.headers is not None
        assert [(name, of_json(value)) for name, value in row["headers"]] == message.headers


def test_large_values_and_many_headers(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter
) -> None:
    """CL-234: one record is one line, whatever its size."""
    topic = new_topic(max_message_bytes=16 << 20)
    value = random.Random(3).randbytes(5 << 20).hex().encode()
    headers = [(f"h{number}", b"%d" % number) for number in range(100)]
    writer.write(topic, [Message(value, None, headers), b"next"], message_max_bytes=16 << 20)
    lines = kfast("read", topic, "-b", kafka.bootstrap_servers).splitlines()
    first, second = map(json.loads, lines)
    assert first["value"] == value.decode()
    assert first["headers"] == [[name, text.decode()] for name, text in headers]
    assert second["value"] == "next"
