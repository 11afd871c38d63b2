"""What each kind of process that Spark starts imports: it pays for its own part only.

Spark starts Python processes for a query's schema, for its plan, for its tasks, and one more for
the commit of each micro-batch. All of them are given the data source.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.imported_modules import among, last_line_of

CONSUMER = ("kfast.kafka_consumer", "kfast.records", "kfast._native", "numpy", "pyarrow")
"""What reads records."""

GROUP = (
    "kfast.consumer.group.coordinator_finder",
    "kfast.consumer.group.assignors",
    "kfast.consumer.commits.commit_request_manager",
)
PLANNING = (
    "kfast.spark.source.driver",
    "kfast.table.group_commits",
    "kfast.spark.source.stream_offsets",
)
WORKING = (
    "kfast.table.arrow_batches",
    "kfast.spark.ingest.task",
    "kfast.table.range_files",
    "kfast.spark.source.range_reader",
    "kfast.spark.source.read_task",
)
ELSEWHERE = ("pandas", "fsspec", "deltalake", "kfast.local.local_kafka", "kfast.cli", "kfast.bulk")
"""What none of them has any use for."""

BEGIN = """
import json, sys
from pathlib import Path
import pyspark.worker
import pyspark.sql.worker.python_streaming_sink_runner
folder = sys.argv[1]
before = set(sys.modules)
kafka = {"kafka.bootstrap.servers": "localhost:1", "subscribe": "t"}
kafka |= {f"kafka.{name}.timeout.ms": "600" for name in ("default.api", "request")}  # nothing there
kafka["fetchOffset.numRetries"] = "0"
"""
END = """
print(json.dumps(sorted(set(sys.modules) - before)))
"""

SCHEMA = """
from kfast.spark.source.source import KafkaDataSource
assert "offset" in KafkaDataSource(kafka).schema()
"""
READER = """
from pyspark.sql.types import StructType
from kfast.spark.source.source import KafkaDataSource
source = KafkaDataSource(kafka)
reader = source.{reader}(StructType().add("offset", "long"))
"""
BATCH_PLAN = (
    READER.format(reader="reader")
    + """
from kfast.errors import KafkaError
try:
    reader.partitions()
except KafkaError:
    pass
"""
)
STREAM_PLAN = (
    READER.format(reader="streamReader")
    + """
assert reader._offsets
reader.stop()
"""
)
TASK = """
import pickle
from kfast.table.offset_ranges import OffsetRange
from pyspark.sql.datasource import InputPartition
reader = pickle.loads(bytes.fromhex(sys.argv[2]))
try:
    next(reader.read(InputPartition((OffsetRange("t", 0, 0, 0),))))
except StopIteration:
    pass
"""
PICKLED = (
    """
import pickle
"""
    + READER
    + """
print(json.dumps([pickle.dumps(reader).hex()]))
"""
)
COMMIT = """
from kfast.spark.ingest.plan import IngestPlan
from kfast.spark.ingest.source import IngestSource
from kfast.table.entries import TableShape, Writer
from kfast.table.projection import Projection
from kfast.table.manifest_log import ManifestLog
from kfast.table.store import LocalStore
shape = TableShape()
log = ManifestLog(LocalStore(Path(folder)))
table = log.begin(Writer("w", folder, 0), shape, Projection(()), None)
plan = IngestPlan(folder, folder, table.writer, shape, Projection(()))
writer = IngestSource(plan.options()).streamWriter(None, False)
Path(folder, "staged").write_bytes(b"12345")
file = {"staged": "staged", "path": "part-0", "rows": 5, "bytes": 5}
read = {"topic": "t", "partition": 0, "from_offset": 0, "until_offset": 5, "files": [file]}
empty = {"topic": "t", "partition": 0, "from_offset": 5, "until_offset": 9}
for batch_id, part in enumerate((read, empty)):
    writer.commit([writer.write(iter([(json.dumps(part),)]))], batch_id)
assert log.last().ends == {("t", 0): 9}
writer.abort([], 2)
"""


def imported(program: str, folder: Path, *arguments: str) -> list[str]:
    """Return what a process imports on top of what Spark itself does."""
    found: list[str] = last_line_of(BEGIN + program + END, str(folder), *arguments)
    return found


def test_the_schema(tmp_path: Path) -> None:
    found = imported(SCHEMA, tmp_path)
    assert among(found, *CONSUMER, *PLANNING, *WORKING, *GROUP, *ELSEWHERE) == []


@pytest.mark.parametrize("program", [BATCH_PLAN, STREAM_PLAN], ids=["batch", "stream"])
def test_the_plan(tmp_path: Path, program: str) -> None:
    found = imported(program, tmp_path)
    assert among(found, *WORKING, *GROUP, *ELSEWHERE) == []
    assert among(found, "kfast.kafka_consumer", "kfast.spark.source.driver")


@pytest.mark.parametrize("reader", ["reader", "streamReader"])
def test_a_task(tmp_path: Path, reader: str) -> None:
    (pickled,) = last_line_of(BEGIN + PICKLED.format(reader=reader), str(tmp_path))
    found = imported(TASK, tmp_path, pickled)
    assert among(found, *PLANNING, *GROUP, *ELSEWHERE, "kfast.table.publish") == []
    assert among(found, "kfast.kafka_consumer", "kfast.table.arrow_batches")


def test_the_commit_of_a_batch(tmp_path: Path) -> None:
    found = imported(COMMIT, tmp_path)
    assert among(found, *CONSUMER, *PLANNING, *WORKING, *GROUP, *ELSEWHERE) == []
