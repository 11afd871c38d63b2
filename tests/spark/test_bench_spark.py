"""The Spark benchmark: what it makes of its measurements, and that it runs at all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from bench.report import machine, markdown
from bench.spark.__main__ import chosen, main, measure, parser
from bench.spark.harness import ratios
from bench.spark.reading import CASES
from kfast.local.local_kafka import LocalKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_result_has_its_tables() -> None:
    def contestant(title: str, *seconds: float, **settings: str) -> dict[str, Any]:
        rates = {"median": 1 / seconds[0], "min": 0.5, "max": 2.0}
        return {
            "title": title,
            "settings": settings,
            "seconds": list(seconds),
            "million_rows_per_second": rates,
        }

    contestants = {
        "kfast": contestant('format("kfast")', 1.0, 1.0),
        "kafka-tuned": contestant('format("kafka"), tuned', 2.0, 2.0, records="10000"),
        "ceiling": contestant("ceiling", 0.9, 0.9),
    }
    about = {
        "triggers": 2,
        "trigger_ms": 500,
        "trigger_ms_each": [500, 510],
        "rows": 2000,
        "phases_ms": {"addBatch": 300},
    }
    topic = {"records": 1_000_000, "partitions": 6}
    case = {"title": "noop", "topic": topic, "contestants": contestants}
    micro = {"per_second": 1000, "partitions": 6, "interval_ms": 2000, "summary": {"kfast": about}}
    part = {
        "session": {
            "pyspark": "4.3.0",
            "master": "local[2]",
            "driver_memory": "4g",
            "connector": ["spark-sql-kafka 4.2.0"],
        },
        "cases": {"full": case},
        "micro_batches": micro,
        "ratios": ratios({"full": case}, None),
    }
    text = markdown({"machine": machine(), "machine_after": machine(), "spark": part})
    for line in (
        "pyspark 4.3.0, local[2] with a heap of 4g; the connector is spark-sql-kafka 4.2.0 "
        "(that of 4.3.0 was not available; 4.2.0 runs on it). ",
        '| format("kfast") | **1.00** (0.50-2.00) | 0.90 |',
        '| format("kafka"), tuned | **0.50** (0.50-2.00) | 0.45 |',
        '| format("kfast") | 500 (500.00-510.00) | 2000 | 2 | addBatch 300 |',
        "| full: kfast / kafka-tuned | 2.00 | >= 1.8 | met |",
        '- records=10000: format("kafka"), tuned',
    ):
        assert line in text


def test_ratios_are_of_pairs_and_know_their_goal() -> None:
    def took(*seconds: float) -> dict[str, list[float]]:
        return {"seconds": list(seconds)}

    cases = {
        "full": {"contestants": {"kfast": took(2, 2, 4), "ceiling-receiving": took(1.9, 1, 3.8)}},
        "parquet": {"contestants": {"ingest": took(1, 1, 1), "kafka-tuned": took(3, 3, 5)}},
    }
    micro = {"summary": {"kfast": {"trigger_ms": 500}, "kafka": {"trigger_ms": 400}}}
    rows = {row["what"]: (row["ratio"], row["is_met"]) for row in ratios(cases, micro)}
    assert rows == {
        "full: kfast / ceiling-receiving": (0.95, True),
        "parquet: ingest / kafka-tuned": (3.0, False),
        "micro-batch: time of kfast / kafka": (1.25, True),
    }
    assert ratios({}, None) == []


def test_names_are_checked(capsys: pytest.CaptureFixture[str]) -> None:
    parts, contestants = chosen(parser().parse_args([]))
    assert parts == [*CASES, "micro"]
    assert "ceiling" in contestants
    with pytest.raises(SystemExit):
        main(["nothing"])
    assert "nothing: not among full" in capsys.readouterr().err


def test_a_tiny_run_comes_to_its_end(spark: SparkSession, kafka: LocalKafka) -> None:
    line = [
        *(
            "struct",
            "json",
            "parquet",
            "json-parquet",
            "micro",
            "--contestants",
            "kfast,kafka,from-json,ceiling,ceiling-receiving,bare,ingest,bare-files",
        ),
        *("--records", "700", "--partitions", "2", "--repetitions", "1", "--warm-ups", "0"),
        *("--triggers", "1", "--interval-ms", "200", "--per-second", "500"),
    ]
    said: list[str] = []
    result = measure(spark, kafka, parser().parse_args(line), said.append)
    assert {name: case["counted"] for name, case in result["cases"].items()} == {
        "struct": {"kfast": 700, "ceiling": 700, "ceiling-receiving": 700, "bare": 700},
        "json": {"kfast": 700, "from-json": 700},
        "parquet": {"bare-files": 1400},
        "json-parquet": {},
    }
    micro = result["micro_batches"]["summary"]
    assert {name: about["triggers"] >= 1 for name, about in micro.items()} == {
        "kfast": True,
        "kafka": True,
    }
    whats = {row["what"] for row in result["ratios"]}
    assert whats == {
        "struct: kfast / ceiling-receiving",
        "json: kfast / from-json",
        "json-parquet: ingest / from-json",
        "micro-batch: time of kfast / kafka",
    }
    text = markdown({"machine": machine(), "machine_after": machine(), "spark": result})
    assert "spark-sql-kafka-0-10_2.13 4.2.0" in text
    assert "kfast.spark.ingest, snappy" in text
    assert any(line.startswith("micro-batches: kfast, kafka") for line in said)
