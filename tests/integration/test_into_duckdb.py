"""examples/into_duckdb.py, killed and started twice. RC-04, RC-05."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import duckdb
import pytest

from kfast import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.recipes import REPORTED, Recipe
from tests.soaking import soaking

PARTITIONS: Final = 3
RECORDS: Final = soaking(900, 9_000)
KILLS: Final = soaking(5, 40)


@pytest.fixture
def recipe(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, tmp_path: Path
) -> Iterator[Recipe]:
    """The example on a topic of its own, into a new file."""
    arguments = (kafka.bootstrap_servers, str(tmp_path / "a.duckdb"))
    with Recipe("into_duckdb", writer, new_topic(PARTITIONS), *arguments) as made:
        for number in range(PARTITIONS):
            made.produce(number, RECORDS // PARTITIONS)
        yield made


def check(recipe: Recipe, path: Path) -> None:
    """Check that each record is there once, and that the offsets are those after the last."""
    with duckdb.connect(path, read_only=True) as connection:
        rows = connection.execute(
            'SELECT partition, "offset", key, value FROM orders ORDER BY 1, 2'
        ).fetchall()
        assert rows == sorted(recipe.rows, key=lambda row: row[:2])
        stored = connection.execute("SELECT partition, next_offset FROM kafka_offsets").fetchall()
        assert dict(stored) == recipe.ends
        (first,) = connection.execute('SELECT epoch_ms(min("timestamp")) FROM orders').fetchall()
        assert first == (1_767_225_600_000,)


@pytest.mark.soak
def test_killed_at_random_moments(recipe: Recipe, tmp_path: Path) -> None:
    """RC-04: killed again and again; each record is there once."""
    recipe.run_with_deaths("into_duckdb.write", KILLS)
    check(recipe, tmp_path / "a.duckdb")


def test_a_second_process_is_refused(recipe: Recipe, tmp_path: Path) -> None:
    """RC-05: by DuckDB, before it has read anything; the first one goes on."""
    first = recipe.start(REPORTED.format(example="into_duckdb", function="into_duckdb.write"))
    assert first.stdout is not None
    assert first.stdout.readline().startswith("{")
    _, errors = recipe.start().communicate(timeout=60)
    assert "lock on file" in errors
    recipe.processes.pop()
    recipe.kill(first)
    recipe.run_with_deaths("into_duckdb.write", 0)
    check(recipe, tmp_path / "a.duckdb")
