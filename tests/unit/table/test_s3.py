"""W-04: tables on S3, through s3fs: nothing is believed that an earlier listing showed."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from kfast.spark.ingest.progress import IngestProgress
from kfast.table.compaction.files import paths_of
from kfast.table.fsspec_store import open_store
from kfast.table.leftovers import probe_store
from kfast.table.manifest_log import ManifestLog
from kfast.table.publish import Publisher
from kfast.table.store import TableStore
from tests.unit.table.compacted_tables import HOUR_MS, check, compactor, made, places, visible
from tests.unit.table.s3_server import s3_server
from tests.unit.table.tables import FIRST, SECOND, Tasks, rows, seen, table

s3fs = pytest.importorskip("s3fs")
pytest.importorskip("moto.server")

pytestmark = [
    pytest.mark.slow,
    # aiobotocore and aiohttp leave connections to the collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def s3_options() -> Iterator[dict[str, str]]:
    """Serve S3; return the options of its filesystem."""
    with s3_server() as options:
        yield options


@pytest.fixture
def client(s3_options: dict[str, str], request: pytest.FixtureRequest) -> Iterator[Any]:
    """Another process's client, with caches of its own, and a new bucket."""
    system = s3fs.S3FileSystem(**s3_options, skip_instance_cache=True)
    system.mkdir("bucket")
    yield system
    system.rm("bucket", recursive=True)


@pytest.fixture
def store(s3_options: dict[str, str], client: Any) -> TableStore:
    return open_store("s3://bucket/table", s3_options)


def put(client: Any, path: str, data: bytes) -> None:
    client.pipe_file(f"bucket/table/{path}", data)


def test_a_table_is_compacted(store: TableStore) -> None:
    """CL-260: by requests that an object store has."""
    small = made(store)
    compactor(store, HOUR_MS).run()
    assert places(store, paths_of(store)) == small.places
    small.publish()
    assert compactor(store).run().files == 4
    check(small)
    assert len(visible(store)) == 2


def test_a_file_that_another_process_created_after_a_listing_is_there(
    store: TableStore, client: Any
) -> None:
    put(client, "log/0", b"zero")
    assert [file.path for file in store.files("log")] == ["log/0"]
    put(client, "log/1", b"one")
    assert store.read("log/1") == b"one"
    assert [file.path for file in store.files("log")] == ["log/0", "log/1"]
    put(client, "log/2", b"two")
    found = store.stat("log/2")
    assert found is not None
    assert found.bytes == 3
    put(client, "log/3", b"three")
    store.rename("log/3", "log/4")
    assert store.read("log/4") == b"three"
    assert store.read("log/3") is None


def test_a_file_that_another_process_created_is_not_created_again(
    store: TableStore, client: Any
) -> None:
    put(client, "log/0", b"zero")
    assert len(store.files("log")) == 1
    put(client, "log/1", b"another writer's")
    assert not store.create("log/1", b"mine")
    assert store.read("log/1") == b"another writer's"


def test_a_file_that_another_process_removed_is_gone(store: TableStore, client: Any) -> None:
    put(client, "log/0", b"zero")
    assert len(store.files("log")) == 1
    client.rm_file("bucket/table/log/0")
    assert store.read("log/0") is None
    assert store.stat("log/0") is None
    assert store.create("log/0", b"mine")


def test_progress_sees_the_batches_that_the_sink_publishes(
    store: TableStore, s3_options: dict[str, str]
) -> None:
    """The sink has a process of its own, and the command has listed the log before."""
    writer = table(store).writer
    progress = IngestProgress(ManifestLog(store))
    sink = open_store("s3://bucket/table", {**s3_options, "skip_instance_cache": "true"})
    tasks = Tasks(sink)
    for batch_id, ranges in enumerate((FIRST, SECOND)):
        assert ManifestLog(store).last() is not None
        Publisher(ManifestLog(sink)).publish(writer, batch_id, tasks.run(*ranges))
        source = SimpleNamespace(startOffset=None, endOffset=None, latestOffset=None)
        done: Any = SimpleNamespace(
            batchId=batch_id, batchDuration=1, durationMs={}, sources=[source]
        )
        progress.update([done])
        assert progress.totals.batches == batch_id + 1
    assert seen(store) == rows(*FIRST, *SECOND)


def test_batches_and_starts_take_turns(store: TableStore) -> None:
    tasks = Tasks(store)
    for batch_id, ranges in enumerate((FIRST, SECOND)):
        opened = table(store)
        assert probe_store(store) > 0
        entry = Publisher(ManifestLog(store)).publish(opened.writer, batch_id, tasks.run(*ranges))
        assert table(store).last == entry
    assert seen(store) == rows(*FIRST, *SECOND)
    for file in store.files(""):
        if file.path.endswith(".parquet"):
            store.remove(file.path)
    assert table(store).last.rows == 15, "W-01: finished files are the user's"
    assert seen(store) == []
