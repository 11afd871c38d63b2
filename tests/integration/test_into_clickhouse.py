"""examples/into_clickhouse.py on chdb, which is ClickHouse in a process: killed. RC-06, RC-07."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import clickhouse_connect
import pytest

from kfast import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.recipes import Recipe, group
from tests.soaking import soaking

PARTITIONS: Final = 2
RECORDS: Final = soaking(600, 6_000)
KILLS: Final = soaking(3, 30)
DIES_BETWEEN: Final = """
    import os, signal
    from examples import into_clickhouse

    class DyingClient:
        def __init__(self, client):
            self.client = client

        def insert_arrow(self, *arguments):
            self.client.insert_arrow(*arguments)
            os.kill(os.getpid(), signal.SIGKILL)

    write = into_clickhouse.ClickHouseTable.write

    def write_rows(self, records):
        self.client = DyingClient(self.client)
        write(self, records)

    into_clickhouse.ClickHouseTable.write = write_rows
"""


@pytest.fixture
def recipe(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> Iterator[Recipe]:
    """The example on a topic of its own, into a new folder."""
    arguments = (kafka.bootstrap_servers, f"chdb://{tmp_path}/a")
    configs = {**group(), "fetch_min_bytes": 1}
    with Recipe("into_clickhouse", writer, new_topic(PARTITIONS), *arguments, **configs) as made:
        for number in range(PARTITIONS):
            made.produce(number, RECORDS // PARTITIONS)
        yield made


def query(folder: Path, *statements: str) -> list[list[Any]]:
    """Return the rows of some queries, by a client of their own."""
    with clickhouse_connect.get_client(dsn=f"chdb://{folder}/a") as client:
        return [[*client.query(statement).result_rows] for statement in statements]


def check(recipe: Recipe, folder: Path) -> int:
    """Check that each record is there once; return how many rows are stored."""
    rows, stored, count = query(
        folder,
        "SELECT partition, offset, key, value FROM orders FINAL ORDER BY 1, 2",
        "SELECT partition, next_offset FROM kafka_offsets FINAL",
        "SELECT count() FROM orders",
    )
    assert rows == sorted(recipe.rows, key=lambda row: row[:2])
    assert dict(stored) == recipe.ends
    return int(count[0][0])


@pytest.mark.soak
def test_killed_at_random_moments(recipe: Recipe, tmp_path: Path) -> None:
    """RC-06: killed again and again; each record is there once."""
    recipe.run_with_deaths("into_clickhouse.ClickHouseTable.write", KILLS)
    check(recipe, tmp_path)


def test_killed_between_the_rows_and_the_offsets(recipe: Recipe, tmp_path: Path) -> None:
    """RC-07: the rows are inserted again, and read once."""
    process = recipe.start(DIES_BETWEEN)
    process.wait(60)
    recipe.kill(process)
    rows, stored = query(
        tmp_path, "SELECT count() FROM orders", "SELECT partition FROM kafka_offsets"
    )
    assert rows[0][0] > 0
    assert stored == []
    recipe.run_with_deaths("into_clickhouse.ClickHouseTable.write", 0)
    check(recipe, tmp_path)
