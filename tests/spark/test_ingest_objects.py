"""Publishing to an object store that fails: whatever request does, each offset is there once."""

from __future__ import annotations

import io
import json
import sys
from contextlib import suppress
from typing import Any

import pytest

from kfast.errors import KafkaError
from kfast.spark.ingest.checkpoint import open_table
from kfast.spark.ingest.plan import IngestPlan, plan_of
from kfast.spark.ingest.source import IngestSource
from kfast.spark.source.schema import project
from kfast.table.batches import DataFile, ReadRange, batch_part_dict
from kfast.table.entries import TableShape, Writer
from kfast.table.fsspec_store import FsspecStore, open_store
from kfast.table.manifest_log import ManifestLog
from kfast.table.offset_ranges import OffsetRange
from kfast.table.projection import Projection
from kfast.table.range_files import RangeFiles
from kfast.table.table_log import STAGING, is_hidden
from tests.spark.arrow_rows import ALL, records, schema
from tests.spark.support import options
from tests.unit.table.tables import Checkpoint

pytest.importorskip("fsspec")
from tests.spark.object_store import Bucket, Fault, ObjectStore, StoreError

URL = "s3://bucket/table"
CHECKPOINT = "s3://bucket/checkpoint"
SHAPE = TableShape("parquet", "offset bigint")

Range = tuple[int, int, int]
"""Partition, first offset, end."""

FIRST: tuple[Range, ...] = ((0, 0, 5), (1, 0, 3))
SECOND: tuple[Range, ...] = ((0, 5, 9), (1, 3, 4), (2, 0, 2))
AGAIN: tuple[Range, ...] = ((0, 5, 7), (0, 7, 9), (1, 3, 4), (2, 0, 2))
"""The second batch in another plan."""

REQUESTS = 40
"""More than a start and a batch make."""


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The only bucket of a new object store, which ``s3://`` is."""
    new = Bucket()
    monkeypatch.setattr(ObjectStore, "bucket", new)
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "s3", ObjectStore)
    return new


class Query:
    """A query without Spark: what Spark calls of it, in the order it does.

    Parameters
    ----------
    name : str
        Of its checkpoint.
    """

    def __init__(self, name: str = "w") -> None:
        self._name = name
        self._attempts = 0

    def start(self, *, age_ms: int = 0, take_over: bool = False) -> Writer:
        """Open the table as the start of a query does: it recovers and sweeps."""
        log = ManifestLog(open_store(URL))
        return open_table(
            log,
            log.last(),
            Checkpoint(self._name),
            SHAPE,
            Projection(()),
            open_store,
            take_over=take_over,
            orphan_age_ms=age_ms,
        ).writer

    def run(self, writer: Writer, batch_id: int, *ranges: Range) -> None:
        """Run a batch: its tasks, then its commit or, if that raises, its abort."""
        sink = IngestSource(
            IngestPlan(URL, CHECKPOINT, writer, SHAPE, Projection(())).options()
        ).streamWriter(None, False)
        messages: list[Any] = [None] * len(ranges)
        try:
            for number, each in enumerate(ranges):
                messages[number] = sink.write(iter([self._task(each)]))
            sink.commit(messages, batch_id)
        except Exception:
            with suppress(Exception):  # Spark logs it
                sink.abort(messages, batch_id)
            raise

    def _task(self, wanted: Range) -> tuple[Any, ...]:
        """Write one range as an attempt of a task; return the row it sends."""
        number, start, stop = wanted
        self._attempts += 1
        staged = f"{STAGING}/w/{number}-{start}.{self._attempts}"
        data = "".join(f"{number}:{offset}\n" for offset in range(start, stop)).encode()
        store = open_store(URL)
        try:
            with store.open_output(staged) as output:
                output.write(data)
        except BaseException:
            store.remove(staged)
            raise
        file = DataFile(staged, f"t-{number}-{start}-{stop}.parquet", stop - start, len(data))
        part = ReadRange("t", number, start, stop, (file,))
        return (json.dumps(batch_part_dict(part)),)


def keys(bucket: Bucket, *, are_hidden: bool) -> list[str]:
    """Return the table's objects that readers see, or the others."""
    names = [name.removeprefix("bucket/table/") for name in bucket.objects]
    return sorted(name for name in names if is_hidden(name) == are_hidden)


def seen(bucket: Bucket) -> list[str]:
    """Return what a reader of the table sees: every offset, with its partition, sorted."""
    visible = keys(bucket, are_hidden=False)
    assert all(name.endswith(".parquet") for name in visible)
    texts = [bucket.objects[f"bucket/table/{name}"][0].decode() for name in visible]
    return sorted(row for text in texts for row in text.split())


def rows(*ranges: Range) -> list[str]:
    """Return what should be seen."""
    return sorted(f"{p}:{offset}" for p, start, stop in ranges for offset in range(start, stop))


def staged(bucket: Bucket) -> list[str]:
    """Return what is in the staging folder."""
    return [name for name in keys(bucket, are_hidden=True) if name.startswith(STAGING)]


def test_batches_become_visible_in_turn(bucket: Bucket) -> None:
    query = Query()
    writer = query.start()
    query.run(writer, 0, *FIRST)
    assert seen(bucket) == rows(*FIRST)
    before = len(bucket.requests)
    query.run(query.start(), 1, *SECOND)
    assert len(bucket.requests) - before < REQUESTS
    assert seen(bucket) == rows(*FIRST, *SECOND)
    assert staged(bucket) == []
    assert {kind for kind, _ in bucket.requests} == {"put", "get", "head", "list", "copy", "delete"}


@pytest.mark.parametrize("is_lagging", [False, True], ids=["", "lagging"])
@pytest.mark.parametrize("number", range(REQUESTS))
@pytest.mark.parametrize("fault", ["refused", "answer lost", "late"])
def test_exactly_once_whatever_request_fails(
    bucket: Bucket, fault: Fault, number: int, is_lagging: bool
) -> None:
    query = Query()
    query.run(query.start(), 0, *FIRST)
    bucket.settle()
    bucket.is_lagging = is_lagging
    bucket.fail_nth(fault, number)
    is_done = False
    with suppress(StoreError, KafkaError):
        query.run(query.start(), 1, *SECOND)
        is_done = True
    bucket.heal()
    assert set(seen(bucket)) <= set(rows(*FIRST, *SECOND))
    assert len(seen(bucket)) == len(set(seen(bucket)))
    if is_done:
        assert seen(bucket) == rows(*FIRST, *SECOND)
    # Spark repeats the batch: before what is late is done, after it, and in another plan.
    for ranges in (SECOND, AGAIN):
        query.run(query.start(), 1, *ranges)
        assert seen(bucket) == rows(*FIRST, *SECOND)
        bucket.settle()
    query.run(query.start(), 2, (0, 9, 11))
    bucket.settle()
    query.start()
    assert seen(bucket) == rows(*FIRST, *SECOND, (0, 9, 11))
    assert staged(bucket) == []


def test_a_put_that_is_late_and_a_driver_that_is_gone(bucket: Bucket) -> None:
    """A manifest must not come to be after its query has given the files up."""
    query = Query()
    writer = query.start()
    bucket.fail("late", lambda kind, key: kind == "put" and "/log/" in key)
    query.run(writer, 0, *FIRST)
    assert len(bucket.late) == 1
    bucket.settle()
    query.run(query.start(), 0, *FIRST)
    assert seen(bucket) == rows(*FIRST)


@pytest.mark.parametrize("settles", ["before the start", "after the start", "after the batch"])
def test_a_manifest_that_is_late_after_every_try(bucket: Bucket, settles: str) -> None:
    """Its files wait for it: whenever it comes to be, each offset is there once."""
    query = Query()
    writer = query.start()
    bucket.fail("late", lambda kind, key: kind == "put" and "/log/" in key, is_lasting=True)
    with pytest.raises(KafkaError, match=f"cannot publish batch 0 of {URL}") as caught:
        query.run(writer, 0, *FIRST)
    assert isinstance(caught.value.__cause__, StoreError)
    bucket.heal()
    assert len(bucket.late) == 2
    if settles == "before the start":
        bucket.settle()
    writer = query.start(age_ms=60_000)
    if settles == "after the start":
        bucket.settle()
    query.run(writer, 0, *FIRST)
    bucket.settle()
    query.run(query.start(age_ms=60_000), 1, *SECOND)
    assert seen(bucket) == rows(*FIRST, *SECOND)
    query.start()
    assert staged(bucket) == []


def test_what_no_manifest_can_name_is_removed_at_once(bucket: Bucket) -> None:
    query = Query()
    writer = query.start()
    bucket.fail("refused", lambda kind, key: kind == "put" and "/1-" in key)
    with pytest.raises(StoreError):
        query.run(writer, 0, *FIRST)
    assert staged(bucket) == [], "a task failed, so nothing was published"


def test_a_listing_that_lags_hides_no_published_batch_from_the_sweep(bucket: Bucket) -> None:
    query = Query()
    writer = query.start()
    bucket.settle()
    bucket.fail("refused", lambda kind, _: kind == "copy")
    with pytest.raises(KafkaError, match=f"cannot publish batch 0 of {URL}"):
        query.run(writer, 0, *FIRST)
    assert len(staged(bucket)) == 2, "published, not renamed"
    bucket.listed = {key: at for key, at in bucket.objects.items() if "/log/" not in key}
    bucket.listed |= {key: at for key, at in bucket.objects.items() if key.endswith("0.json")}
    bucket.is_lagging = True
    query.start()
    bucket.settle()
    assert seen(bucket) == rows(*FIRST)


def test_a_listing_that_shows_nothing_yet(bucket: Bucket) -> None:
    bucket.is_lagging = True
    query = Query()
    writer = query.start()
    assert query.start() == writer
    query.run(writer, 0, *FIRST)
    assert query.start() == writer
    assert seen(bucket) == rows(*FIRST)


def test_a_query_that_takes_over_begins_behind_what_listings_show(bucket: Bucket) -> None:
    old = Query()
    writer = old.start()
    bucket.settle()
    bucket.is_lagging = True
    old.run(writer, 0, *FIRST)
    new = Query("new")
    taken = new.start(take_over=True)
    assert taken.begin == 2
    new.run(taken, 0, *SECOND)
    with pytest.raises(KafkaError, match="another ingest has taken over"):
        old.run(writer, 1, *SECOND)
    assert seen(bucket) == rows(*FIRST, *SECOND)


def test_a_store_that_has_its_own_word_for_nothing_there(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A batch is finished again though its staged files are gone, whatever the copy raises."""
    query = Query()
    query.run(query.start(), 0, *FIRST)

    def copy(self: ObjectStore, path1: str, path2: str, **_: Any) -> None:
        raise StoreError("404 BlobNotFound")

    monkeypatch.setattr(ObjectStore, "cp_file", copy)
    query.run(query.start(), 0, *FIRST)
    assert seen(bucket) == rows(*FIRST)


# --- workers --------------------------------------------------------------------------------------


def range_files(store: FsspecStore) -> RangeFiles:
    projection = project(schema(ALL), options(includeHeaders="true"))
    return RangeFiles(store, projection, OffsetRange("top", 3, 0, 9), "w")


def object_store() -> FsspecStore:
    store = open_store(URL)
    assert isinstance(store, FsspecStore)
    return store


def test_a_worker_writes_parquet(bucket: Bucket) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = range_files(object_store())
    files.write(records())
    assert staged(bucket) == [], "no reader sees half a file"
    read = files.close()
    (file,) = read.files
    data, _ = bucket.objects[f"bucket/table/{file.staged}"]
    assert len(data) == file.bytes
    assert parquet.read_table(io.BytesIO(data)).num_rows == file.rows == len(records())
    publish(read)
    assert keys(bucket, are_hidden=False) == [file.path]


def publish(part: ReadRange) -> None:
    """Publish a range as the sink of a query does."""
    writer = Query().start(age_ms=60_000)
    plan = IngestPlan(URL, CHECKPOINT, writer, SHAPE, Projection(()))
    assert plan_of(plan.options()) == plan
    sink = IngestSource(plan.options()).streamWriter(None, False)
    sink.commit([sink.write(iter([(json.dumps(batch_part_dict(part)),)]))], 0)


@pytest.mark.parametrize("fault", ["refused", "answer lost"])
def test_a_worker_whose_upload_fails_leaves_nothing(bucket: Bucket, fault: Fault) -> None:
    files = range_files(object_store())
    files.write(records())
    bucket.fail(fault, lambda kind, _: kind == "put")
    with pytest.raises(KafkaError, match=f"cannot write {URL}/{STAGING}/w/top-3-0-9") as caught:
        files.close()
    assert isinstance(caught.value.__cause__, StoreError)
    files.discard()
    assert bucket.objects == {}
