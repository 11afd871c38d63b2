"""The benchmark harness on a handful of records: that it measures, not what."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.__main__ import main, topics
from bench.data import TopicSpec, parse_list, text_values
from bench.e2e.harness import Run, pairs
from bench.e2e.latency import LIMITS
from bench.report import markdown
from tests.integration.support import QUICK_JAVA_ENVIRONMENT

CONTESTANTS = (
    *("drain", "drain2", "kfast", "kfast-group", "kfast-arrow"),
    *("confluent", "columns-today", "aiokafka", "kafka-python"),
)
ARGUMENTS = (
    *("--records", "20000", "--repetitions", "2", "--codecs", "lz4", "--values", "100"),
    *("--contestants", ",".join(CONTESTANTS)),
    *("--idle-partitions", "10", "--seconds", "0.5"),
    *("--backlog-mb", "2", "--backlog-partitions", "3"),
)


def test_a_small_run_gives_json_and_tables(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in QUICK_JAVA_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    target = tmp_path / "result.json"
    assert main([*ARGUMENTS, "--output", str(target)]) == 0
    result = json.loads(target.read_text(encoding="utf-8"))
    assert result["machine"]["cores"]
    runs = result["end_to_end"]["runs"]
    assert len(runs) == 2 * len(CONTESTANTS)
    assert [run["error"] for run in runs if run["error"]] == []
    # Every contestant starts a repetition once before another one does so twice.
    assert [run["contestant"] for run in runs][:: len(CONTESTANTS)] == ["drain", "drain2"]
    assert [len(pair["ratios"]) for pair in result["end_to_end"]["pairs"]] == [2]
    for run in runs:
        assert run["measures"]["records"] == 20_000
        assert run["measures"]["rate"] == 20_000 / run["measures"]["seconds"]
        assert 0 < run["measures"]["first_batch_seconds"] <= run["measures"]["seconds"]
        assert run["measures"]["peak_rss_mb"] > 5
    assert [row["client"] for row in result["idle"]] == ["kfast", "confluent"]
    latencies = [(row["client"], row["messages"]) for row in result["latency"]]
    # 200 per second for half a second, in two repetitions.
    assert latencies == [(name, 200) for name in ("kfast", "confluent", *LIMITS)]
    assert [row["client"] for row in result["backlog"]] == ["kfast", "confluent"]
    for row in result["backlog"]:
        assert row["rss_before_mb"] > 10
        assert 0 <= row["rss_growth_mb"] < 500
    text = target.with_suffix(".md").read_text(encoding="utf-8")
    assert text == markdown(result)
    for line in (
        "| consumer | 100 B lz4 |",
        "kfast, all gathered into Arrow",
        "| kfast poll(), in a group / kfast poll(): columns indexed | 100 B lz4 |",
        "p99 ms",
        "## Idle",
        "## Memory",
    ):
        assert line in text
    assert text in capsys.readouterr().out


def test_reading_over_tls_is_compared_within_a_repetition(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JDK_JAVA_OPTIONS", raising=False)
    target = tmp_path / "result.json"
    size = ("--records", "20000", "--repetitions", "1", "--codecs", "none")
    names = "kfast-tls,confluent-tls,drain-tls"
    more = ("--contestants", names, "--connections", "5", "--output", str(target))
    assert main(["e2e", "connect", *size, *more]) == 0
    result = json.loads(target.read_text(encoding="utf-8"))
    connecting = result["connecting"]
    assert [row["client"] for row in connecting] == ["kfast", "confluent", "bare SSLSocket"]
    assert [row["connections"] for row in connecting] == [5, 5, 5]
    assert all(0 < row["connected_ms"] <= row["max_ms"] for row in connecting)
    assert "| kfast, 5 times |" in target.with_suffix(".md").read_text(encoding="utf-8")
    found = result["end_to_end"]
    assert [run["error"] for run in found["runs"] if run["error"]] == []
    assert [run["measures"]["records"] for run in found["runs"]] == [20_000] * 3
    pairs_of = [(pair["contestant"], pair["to"]) for pair in found["pairs"]]
    assert pairs_of == [("kfast-tls", name) for name in ("confluent-tls", "drain-tls")]


def test_typed_columns_are_compared_on_topics_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in QUICK_JAVA_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    target = tmp_path / "result.json"
    size = ("--records", "3000", "--repetitions", "1", "--codecs", "none", "--partitions", "2")
    assert main(["e2e", *size, "--contestants", "typed", "--output", str(target)]) == 0
    found = json.loads(target.read_text(encoding="utf-8"))["end_to_end"]
    assert [run["error"] for run in found["runs"] if run["error"]] == []
    names = [run["contestant"] for run in found["runs"]]
    assert names == [
        *("kfast-json", "kfast-raw", "kfast-duckdb", "confluent-orjson"),
        *("kfast-raw", "kfast-avro", "confluent-avro"),
    ]
    assert {run["measures"]["records"] for run in found["runs"]} == {3000}
    pairs_of = [(pair["contestant"], pair["to"]) for pair in found["pairs"]]
    assert ("kfast-json", "confluent-orjson") in pairs_of
    assert ("kfast-avro", "confluent-avro") in pairs_of
    assert len(pairs_of) == 5
    assert all(pair["cpu_median"] > 0 for pair in found["pairs"])
    text = target.with_suffix(".md").read_text(encoding="utf-8")
    assert "| kfast.Json: six columns / confluent-kafka, orjson → Arrow | trades none |" in text
    assert "| CPU seconds of the second / first |" in text


def test_a_broker_that_encrypts_slowly_is_not_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in QUICK_JAVA_ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SystemExit):
        main(["--contestants", "tls"])
    assert "the broker encrypts 15 times slower" in capsys.readouterr().err


def test_texts_have_the_length_asked_for_and_do_not_change() -> None:
    for size in (1, 10, 100, 1000):
        values = text_values(size, 50)
        assert {len(value) for value in values} == {size}
        assert values == text_values(size, 50)
        assert len(set(values)) > 5


def test_two_ways_to_read_the_same_are_compared_within_a_repetition() -> None:
    def run(contestant: str, repetition: int, rate: float | None) -> Run:
        cpu = {"client_cpu_seconds_per_million": repetition / (rate or 1)}
        return Run(contestant, "t", repetition, {} if rate is None else {"rate": rate} | cpu)

    runs = [
        *(run("kfast", 1, 2.0), run("kfast-group", 1, 1.0), run("drain", 1, 9.0)),
        *(run("kfast-group", 2, 8.0), run("kfast", 2, 4.0)),
        *(run("kfast", 3, None), run("kfast-group", 3, 5.0)),
    ]
    expected = {"topic": "t", "contestant": "kfast-group", "to": "kfast", "median": 1.25}
    expected |= {"cpu_ratios": [0.5, 2.0], "cpu_median": 1.25}
    assert pairs(runs) == [expected | {"ratios": [0.5, 2.0]}]
    assert pairs([run("drain", 1, 9.0)]) == []


def test_topics_have_about_the_same_size() -> None:
    assert topics("text", "100,1000", ["none", "lz4"], 1000, 6) == (
        TopicSpec("text", 100, "none", 1000, 6),
        TopicSpec("text", 100, "lz4", 1000, 6),
        TopicSpec("text", 1000, "none", 200, 6),
        TopicSpec("text", 1000, "lz4", 200, 6),
    )


def test_lists_are_checked() -> None:
    assert parse_list("a, b", "abc") == ["a", "b"]
    with pytest.raises(ValueError, match="d: not among a, b, c"):
        parse_list("a,d", "abc")


def test_wrong_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--contestants", "unknown"])
    assert "unknown: not among drain" in capsys.readouterr().err


def test_what_an_answer_costs_is_a_table() -> None:
    """The replaying broker is a process of its own, and ends with the measurement."""
    command = (sys.executable, "-m", "bench.pipeline", "--sizes", "16384", "--repetitions", "1")
    done = subprocess.run(
        (*command, "--seconds", "0.05"), capture_output=True, text=True, check=True, timeout=60
    )
    header, _, row = done.stdout.strip().splitlines()
    assert header.startswith("| response | kfast, CPU us | drain, CPU us |")
    assert row.startswith("| 16 KiB |")
