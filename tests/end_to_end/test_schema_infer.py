"""``kfast schema infer``: a schema of the newest documents of a topic, in five forms."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import kfast
from kfast import cli
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer

Said = tuple[int, str, str]
ROWS: list[Any] = [
    {"old": True},
    {"id": 1, "ts": "2024-01-31T10:00:00Z", "tags": {"a": 1}, "l": [1.5]},
    {"id": 2**70, "ts": None, "o": {"x": "y", "z": None}},
]


@pytest.fixture(scope="module")
def server() -> Iterator[BrokerServer]:
    """Serve "trades" with documents, "broken" with other values, and "empty"."""
    cluster = FakeCluster(1)
    for topic in ("trades", "broken", "empty"):
        cluster.create_topic(topic)
    values = [json.dumps(row).encode() for row in ROWS]
    cluster.append("trades", 0, [Record(b'"k"', value) for value in [*values, b"{"]])
    cluster.append("broken", 0, [Record(b"k", b"no json")])
    with BrokerServer(cluster) as running:
        yield running


@pytest.fixture
def run(server: BrokerServer, capfd: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    def said(*words: str) -> Said:
        status = cli.main(["-b", server.bootstrap_servers, *words])
        printed = capfd.readouterr()
        return status, printed.out, printed.err

    return said


def test_a_dict_to_paste(run: Callable[..., Said]) -> None:
    """TC-23: the command prints a schema of the newest documents, and says what it left out."""
    status, out, err = run("schema", "infer", "trades", "-n", "3", "--timestamps")
    assert status == 0
    made = kfast.Schema(eval(out))
    assert made.root.type_text == (
        "struct<id: decimal128(38, 0), ts: timestamp[us, UTC], tags: struct<a: int64>, "
        "l: list<float64>, o: struct<x: string, z: raw>>"
    )
    assert "1 of 3 documents cannot be read" in err
    assert "old" in run("schema", "infer", "trades")[1]
    _, out, err = run("schema", "infer", "trades", "--report")
    assert err.splitlines()[0] == "4 documents, 1 of them cannot be read"
    assert run("schema", "infer", "trades", "--column", "key")[1] == "'string'\n"


def test_other_forms(run: Callable[..., Said]) -> None:
    """TC-23"""
    words = ("schema", "infer", "trades", "-n", "3", "--timestamps")
    ddl = run(*words, "--ddl")[1].strip()
    assert ddl == (
        "id DECIMAL(38,0), ts TIMESTAMP, tags STRUCT<a: BIGINT>, l ARRAY<DOUBLE>, "
        "o STRUCT<x: STRING, z: STRING>"
    )
    assert run(*words, "--as", "spark")[1].strip() == ddl
    written = json.loads(run(*words, "--as", "json")[1])
    assert kfast.Schema(written) == kfast.Schema(eval(run(*words)[1]))
    arrow = run("schema", "trades", "-n", "3")[1].splitlines()
    assert arrow[1:3] == ["ts: string", "tags: struct<a: int64>"]
    polars = run(*words, "--as", "polars")[1]
    assert '    \'ts\': pl.Datetime("us", "UTC"),\n' in polars
    assert "pl.Struct({'x': pl.String, 'z': pl.String})" in polars


def test_nothing_to_infer(run: Callable[..., Said]) -> None:
    status, _, err = run("schema", "infer", "empty")
    assert status != 0
    assert '"empty" has no records' in err
    status, _, err = run("schema", "infer", "broken")
    assert status != 0
    assert "none of 1 documents can be read as JSON" in err


def test_names_of_members_move_no_cursor(
    server: BrokerServer, run: Callable[..., Said], monkeypatch: pytest.MonkeyPatch
) -> None:
    """CL-38: a terminal gets escapes, a pipe the names."""
    name = "\x1b[31m\x9b\u202e\x07"
    server.cluster.create_topic("hostile")
    server.cluster.append("hostile", 0, [json.dumps({name: 1}).encode()])
    for is_terminal in (False, True):
        monkeypatch.setattr("os.isatty", lambda _fd, found=is_terminal: found)
        for form in ("arrow", "spark", "json"):
            out = run("schema", "hostile", "--as", form)[1]
            unsafe = {each for each in out if each in name and not each.isprintable()}
            assert bool(unsafe) is not is_terminal
            if form == "json":
                assert json.loads(out) == {name: "int64"}
