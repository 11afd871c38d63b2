"""examples/into_postgresql.py on a real PostgreSQL: killed, raced and held up.

RC-01, RC-02, RC-03. The table has no key that would hide a record that was written twice.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from typing import Any, Final

import pytest
from adbc_driver_postgresql import dbapi

from kfast import LocalKafka
from tests.integration.conftest import TopicFactory
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.local_postgres import LocalPostgres
from tests.integration.recipes import Recipe, group
from tests.integration.support import unique, until
from tests.soaking import soaking

PARTITIONS: Final = 4
RECORDS: Final = soaking(4_000, 40_000)
KILLS: Final = soaking(6, 40)
HELD_UP: Final = """
    import sys
    from examples import into_postgresql
    write = into_postgresql.PostgresTable.write

    def wait(self, records):
        into_postgresql.PostgresTable.write = write
        print("read", records.count(), flush=True)
        sys.stdin.readline()
        write(self, records)
        print("written", flush=True)

    into_postgresql.PostgresTable.write = wait
"""


@pytest.fixture(scope="module")
def postgres() -> Iterator[LocalPostgres]:
    """A server."""
    with LocalPostgres() as server:
        yield server


class Database:
    """A database, as another client sees it."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Return rows."""
        with dbapi.connect(self.uri) as connection, connection.cursor() as cursor:
            cursor.execute(statement)
            return [*cursor.fetchall()]

    def count(self) -> int:
        """Return how many rows there are, 0 while there is no table."""
        if self.query("SELECT to_regclass('orders') IS NULL")[0][0]:
            return 0
        return int(self.query("SELECT count(*) FROM orders")[0][0])

    def check(self, recipe: Recipe) -> None:
        """Check that each record is there once, and that the offsets are those after the last."""
        statement = 'SELECT partition, "offset", key, value FROM orders ORDER BY 1, 2'
        assert self.query(statement) == sorted(recipe.rows, key=lambda row: row[:2])
        stored = dict(self.query("SELECT partition, next_offset FROM kafka_offsets"))
        assert stored == {**dict.fromkeys(range(PARTITIONS), 0), **recipe.ends}
        times = self.query('SELECT min("timestamp")::text, max("offset") FROM orders')
        assert times[0][0].startswith("2026-01-01 00:00:00")


@pytest.fixture
def database(postgres: LocalPostgres) -> Database:
    """An empty database."""
    return Database(postgres.create_database(unique("db").replace("-", "_")))


@pytest.fixture
def recipe(
    kafka: LocalKafka, new_topic: TopicFactory, writer: KafkaWriter, database: Database
) -> Iterator[Recipe]:
    """The example on a topic of its own, into an empty database."""
    servers = kafka.bootstrap_servers
    topic = new_topic(PARTITIONS)
    with Recipe("into_postgresql", writer, topic, servers, database.uri, **group()) as made:
        yield made


def wait(recipe: Recipe, database: Database) -> None:
    """Wait until as many rows are there as were produced."""

    def is_there() -> bool:
        recipe.check_running()
        return database.count() >= len(recipe.rows)

    until(is_there, "all records", 60)


@pytest.mark.soak
def test_killed_at_random_moments(recipe: Recipe, database: Database) -> None:
    """RC-01: two processes of a group, killed again and again; each record is there once."""
    for number in range(PARTITIONS):
        recipe.produce(number, RECORDS // PARTITIONS)
    for _ in range(2):
        recipe.start()
    until(database.count, "the first transaction")
    for _ in range(KILLS):
        recipe.kill_one(1.5)
    for number in range(PARTITIONS):
        recipe.produce(number, 10)
    wait(recipe, database)
    database.check(recipe)


def test_an_expelled_process_writes_nothing(recipe: Recipe, database: Database) -> None:
    """RC-02: it wakes up when another one has written its records; then it works on."""
    recipe.produce(0, 40)
    slow = recipe.start(HELD_UP)
    assert slow.stdin is not None
    assert slow.stdout is not None
    assert slow.stdout.readline() == "read 40\n"
    other = recipe.start()
    slow.send_signal(signal.SIGSTOP)
    wait(recipe, database)
    slow.send_signal(signal.SIGCONT)
    slow.stdin.write("\n")
    slow.stdin.flush()
    assert slow.stdout.readline() == "written\n"
    database.check(recipe)
    recipe.kill(other)
    for number in range(PARTITIONS):
        recipe.produce(number, 20)
    wait(recipe, database)
    database.check(recipe)


def test_two_processes_with_the_same_partitions(recipe: Recipe, database: Database) -> None:
    """RC-03: groups of different names are no members of each other, and race for each record."""
    for number in range(PARTITIONS):
        recipe.produce(number, RECORDS // PARTITIONS)
    rivals = [recipe.start(HELD_UP, **group("rival")) for _ in range(2)]
    for process in rivals:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("read")
    for process in rivals:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    wait(recipe, database)
    database.check(recipe)
