"""W-14, W-16, W-21: Delta tables with the commits of other clients, and without old ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

deltalake = pytest.importorskip("deltalake")

from kfast.errors import TableError  # noqa: E402
from kfast.table.delta_log import DeltaLog  # noqa: E402
from kfast.table.store import LocalStore, TableStore  # noqa: E402
from kfast.types import TopicPartition  # noqa: E402
from tests.unit.table.delta_tables import (  # noqa: E402
    FIRST,
    FOREIGN,
    SECOND,
    Ingest,
    by_other,
    delta,
    rows,
    seen,
)

pytestmark = pytest.mark.slow  # hundreds of small tables on disk

SPARK = (
    {"version": "1", "timestamp": None},
    {"version": None, "timestamp": "2023-11-14 22:13:21.5"},
)
"""What Spark says of a RESTORE."""
THIRD = ((0, 9, 12),)


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "table")


def age(store: TableStore, *, kept: int) -> None:
    """Make a checkpoint, and remove the commits before it, as Delta does with old ones."""
    table = delta(store)
    table.create_checkpoint()
    for version in range(int(table.version()) - kept + 1):
        store.remove(f"_delta_log/{version:020d}.json")


@pytest.mark.parametrize("parameters", [*SPARK, {}, {"timestamp": "at noon"}])
def test_a_restore_by_another_client_is_followed(
    store: LocalStore, parameters: Mapping[str, str | None]
) -> None:
    """W-14: by version, or by the files that the table has since."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    ingest.publish(*SECOND)
    ingest.publish(*THIRD)
    delta(store).restore(1)
    path = Path(store.url, "_delta_log", f"{4:020d}.json")
    lines = path.read_text().splitlines()
    info = json.loads(lines[0])
    info["commitInfo"]["operationParameters"] = parameters
    path.write_text("\n".join([*lines[1:], json.dumps(info)]))
    by_other(store, "append")
    again = Ingest(store)
    assert again.entry.ends == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 3}
    again.publish(*SECOND)
    assert seen(store) == sorted([(9, 99), *rows(*FIRST, *SECOND)])


def test_a_commit_that_says_nothing_of_itself_is_of_another_client(store: LocalStore) -> None:
    """W-14."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    by_other(store, "append")
    path = Path(store.url, "_delta_log", f"{2:020d}.json")
    path.write_text("\n".join(path.read_text().splitlines()[1:]))
    again = Ingest(store)
    assert again.entry.ends == ingest.entry.ends
    again.publish(*SECOND)
    assert seen(store) == sorted([(9, 99), *rows(*FIRST, *SECOND)])


@pytest.mark.parametrize("foreign", [1, 2])
def test_offsets_outlive_the_commits_that_have_them(store: LocalStore, foreign: int) -> None:
    """W-21."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    ingest.publish(*SECOND, topic="u:1")
    for _ in range(foreign):
        by_other(store, "append")
    age(store, kept=foreign)
    assert not store.stat("_delta_log/00000000000000000002.json")
    again = Ingest(store)
    assert again.entry.ends == ingest.entry.ends
    assert again.entry.sequence == ingest.entry.sequence
    assert not again.entry.topic_ids
    again.publish(*THIRD, topic="u:1")
    last = DeltaLog(store).last()
    assert last is not None
    assert last.ends == {**ingest.entry.ends, TopicPartition("u:1", 0): 12}
    assert len(seen(store)) == 8 + 7 + 3 + foreign


def test_offsets_after_a_restore_outlive_the_commits_too(store: LocalStore) -> None:
    """W-21: what was undone does not come back."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    ingest.publish((0, 5, 8))
    ingest.publish(*SECOND, topic="u")
    delta(store).restore(1)
    again = Ingest(store)
    again.publish((1, 3, 4))
    by_other(store, "append")
    age(store, kept=1)
    last = DeltaLog(store).last()
    assert last is not None
    assert last.ends == {TopicPartition("t", 0): 5, TopicPartition("t", 1): 4}


def test_commits_that_deltalake_removes_itself(store: LocalStore) -> None:
    """W-21: with its own clean-up, after a retention time of none."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    delta(store).alter.set_table_properties({"delta.logRetentionDuration": "interval 0 days"})
    by_other(store, "append")
    delta(store).create_checkpoint()
    delta(store).cleanup_metadata()
    assert not store.stat("_delta_log/00000000000000000001.json")
    again = Ingest(store)
    assert again.entry.ends == ingest.entry.ends
    again.publish(*SECOND)
    assert seen(store) == sorted([(9, 99), *rows(*FIRST, *SECOND)])


def test_a_restored_version_that_cannot_be_read_any_more_is_refused(store: LocalStore) -> None:
    """W-21: rather than taking offsets of which the table has no rows."""
    ingest = Ingest(store)
    ingest.publish(*FIRST)
    ingest.publish(*SECOND)
    delta(store).restore(1)
    for _ in range(2):
        by_other(store, "append")
    delta(store).create_checkpoint()
    for version in range(2):
        store.remove(f"_delta_log/{version:020d}.json")
    with pytest.raises(TableError, match="does not say which offsets it has") as caught:
        Ingest(store)
    assert store.url in str(caught.value)


def test_a_table_of_others_without_its_commits_begins_as_usual(store: LocalStore) -> None:
    """W-16, W-21."""
    deltalake.write_deltalake(store.url, FOREIGN)
    by_other(store, "append")
    age(store, kept=1)
    ingest = Ingest(store)
    assert ingest.entry.ends == {}
    ingest.publish(*FIRST)
    assert seen(store) == sorted([(9, 99), (9, 99), *rows(*FIRST)])
