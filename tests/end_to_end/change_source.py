"""A source table under random changes, and its events as Debezium's connectors write them.

Each change is made in a dict of rows and appended to a topic of a fake cluster: a snapshot,
inserts, updates, deletions with their tombstones, and changed keys, which are a deletion and an
insert. Events of a key are in one partition, as Kafka's default partitioner puts them.
"""

from __future__ import annotations

import base64
import json
import random
import zlib
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from tests.delta_reading import delta_rows

TOPIC: Final = "shop.items"
SCHEMA: Final = "id bigint, name string, price decimal(12, 2), tags array<string>"
"""Of the rows, in Spark's DDL."""

Row = tuple[str | None, Decimal | None, list[str] | None]


class ChangeSource:
    """Rows by key, and a topic with their changes; ``is_wrapped`` as with ``schemas.enable``."""

    def __init__(self, seed: int, partitions: int = 3, *, is_wrapped: bool = False) -> None:
        self.cluster = FakeCluster()
        self.cluster.create_topic(TOPIC, partitions)
        self.rows: dict[int, Row] = {}
        self._partitions = partitions
        self._is_wrapped = is_wrapped
        self._chance = random.Random(seed)
        self._waiting: dict[int, list[Record]] = {}
        self._next = 0

    def snapshot(self, count: int) -> None:
        """Begin with some rows, which a connector reads from the table."""
        for _ in range(count):
            self.rows[self._next] = self._row()
            self._event("r", self._next, after=self.rows[self._next])
            self._next += 1
        self.flush()

    def change(self, count: int) -> None:
        """Make random changes, some of the same rows again and again."""
        for _ in range(count):
            kind = self._chance.choice(("insert", "update", "update", "delete", "key"))
            if kind == "insert" or not self.rows:
                self._insert(self._new_key())
                continue
            key = self._chance.choice([*self.rows])
            before = self.rows[key]
            if kind == "update":
                self.rows[key] = self._row()
                self._event("u", key, before, self.rows[key])
                continue
            self._delete(key)
            if kind == "key":
                key = self._new_key()
                self.rows[key] = before
                self._event("c", key, after=before)
        self.flush()

    def flush(self) -> None:
        """Append the events, in batches of a few records."""
        for partition, records in self._waiting.items():
            self.cluster.append(TOPIC, partition, records, batch_records=5)
        self._waiting = {}

    def _insert(self, key: int) -> None:
        self.rows[key] = self._row()
        self._event("c", key, after=self.rows[key])

    def _delete(self, key: int) -> None:
        self._event("d", key, before=self.rows.pop(key))
        self._record(key, None)

    def _new_key(self) -> int:
        """A key that was never there, or one that was deleted."""
        if self._chance.random() < 0.3:
            free = [key for key in range(self._next) if key not in self.rows]
            if free:
                return self._chance.choice(free)
        self._next += 1
        return self._next - 1

    def _row(self) -> Row:
        number = self._chance.randrange(-(10**6), 10**6)
        return (
            None if number % 7 == 0 else f"é{number}",
            None if number % 5 == 0 else Decimal(number).scaleb(-2),
            None if number % 3 == 0 else [str(number), "x"],
        )

    def _event(
        self, op: str, key: int, before: Row | None = None, after: Row | None = None
    ) -> None:
        self._record(
            key,
            {
                "before": None if before is None else _columns(key, before),
                "after": None if after is None else _columns(key, after),
                "source": {"connector": "postgresql", "db": "shop", "table": "items"},
                "op": op,
                "ts_ms": 1_767_225_600_000,
                "transaction": None,
            },
        )

    def _record(self, key: int, event: dict[str, Any] | None) -> None:
        raw_key = self._text({"id": key})
        partition = zlib.crc32(raw_key) % self._partitions
        value = None if event is None else self._text(event)
        self._waiting.setdefault(partition, []).append(Record(raw_key, value))

    def _text(self, document: dict[str, Any]) -> bytes:
        if self._is_wrapped:
            document = {"schema": {"type": "struct"}, "payload": document}
        return json.dumps(document).encode()


def _columns(key: int, row: Row) -> dict[str, Any]:
    name, price, tags = row
    return {"id": key, "name": name, "price": _encoded(price), "tags": tags}


def _encoded(price: Decimal | None) -> str | None:
    """The unscaled number in base64, as a converter of Connect writes decimals."""
    if price is None:
        return None
    number = int(price.scaleb(2))
    size = (number.bit_length() + 8) // 8
    return base64.b64encode(number.to_bytes(size, "big", signed=True)).decode()


def table_rows(folder: Path) -> dict[int, Row]:
    """The rows that a reader of a table sees, each key once."""
    rows = delta_rows(folder)
    by_key = {row["id"]: (row["name"], row["price"], row["tags"]) for row in rows}
    assert len(by_key) == len(rows)
    return by_key
