"""What cannot be read, in streams: an error that names the place, and a checkpoint as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfast.testing.server import BrokerServer
from tests.end_to_end.virtual import make_cluster
from tests.integration.kafka_writer import KafkaWriter
from tests.integration.support import until
from tests.spark.conftest import TopicFactory
from tests.spark.reading import Reads
from tests.spark.streams import run

pytest.importorskip("pyspark")

NUMBERS = {"schema": "partition int, offset long, value int", "valueFormat": "int32"}
IMPATIENT = {
    "fetchOffset__numRetries": 1,
    "kafka__request__timeout__ms": 1000,
    "kafka__default__api__timeout__ms": 1500,
}


def failure(reads: Reads, topic: str, checkpoint: Path, **more: Any) -> str:
    """Return the error of a query that goes on with a checkpoint."""
    with pytest.raises(Exception) as raised:  # noqa: PT011 - pyspark has several
        run(reads.stream(topic, **more), checkpoint)
    return str(raised.value)


def test_a_checkpoint_outlives_all_kinds_of_failures(
    new_topic: TopicFactory, writer: KafkaWriter, reads: Reads, tmp_path: Path
) -> None:
    topic, checkpoint = new_topic(), tmp_path / "c"
    good = [n.to_bytes(4, "big") for n in range(20)]
    writer.write(topic, good[:10])
    first = run(reads.stream(topic, startingOffsets="earliest", **NUMBERS), checkpoint)
    assert first.places == [(0, n) for n in range(10)]
    writer.write(topic, [*good[10:15], b"bad", *good[16:]])
    refused = failure(
        reads, topic, checkpoint, kafka__bootstrap__servers="127.0.0.1:9", **IMPATIENT, **NUMBERS
    )
    assert "cannot connect to 127.0.0.1:9: connection refused" in refused
    other = failure(reads, f"{topic}x", checkpoint, **IMPATIENT, **NUMBERS)
    assert f"the checkpoint has {topic}-0, and this query reads topics {topic}x" in other
    unknown = failure(reads, topic, checkpoint, schema="ofset long")
    assert "did you mean offset?" in unknown
    strict = failure(reads, topic, checkpoint, mode="FAILFAST", **NUMBERS)
    assert f"{topic}-0 offset 15: value is not an Int32 (3 bytes, needs 4)" in strict
    # Nothing of the batch that failed was kept, nothing before it comes again.
    found = run(reads.stream(topic, mode="DROPMALFORMED", **NUMBERS), checkpoint)
    assert found.places == [(0, n) for n in range(10, 20) if n != 15]


def test_a_corrupt_batch_is_named_and_read_once_it_is_whole_again(
    reads: Reads, tmp_path: Path
) -> None:
    cluster = make_cluster(nodes=1, records=30)
    log, checkpoint = cluster.log("t", 0), tmp_path / "c"
    whole = log.batch_at(12).data
    log.replace_batch(12, whole[:-1] + bytes([whole[-1] ^ 1]))
    with BrokerServer(cluster) as server:
        servers = server.bootstrap_servers
        frame = reads.stream("t", kafka__bootstrap__servers=servers, startingOffsets="earliest")
        for _ in range(2):
            with pytest.raises(Exception, match="STREAM_FAILED") as raised:
                run(frame, checkpoint)
            assert "t-0: the batch at offset 10 is corrupt" in str(raised.value)
            assert "its checksum does not match" in str(raised.value)
        log.replace_batch(12, whole)
        assert run(frame, checkpoint).places == [(0, n) for n in range(30)]


def test_what_is_lost_skipped_or_malformed_is_counted(
    reads: Reads, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Q-03, Q-04: per micro-batch, at the listener."""
    from kfast.spark import LagListener  # noqa: PLC0415 - needs pyspark
    from kfast.spark.source.query_lag import QueryLag  # noqa: PLC0415 - what a callback is given

    cluster = make_cluster(nodes=1, records=30)
    log = cluster.log("t", 0)
    whole = log.batch_at(12).data
    log.replace_batch(12, whole[:-1] + bytes([whole[-1] ^ 1]))
    with cluster.changing():
        log.delete_before(3)
    reported: list[QueryLag] = []
    listener = LagListener(reported.append)
    reads.spark.streams.addListener(listener)
    try:
        with BrokerServer(cluster) as server:
            frame = reads.stream(
                "t",
                kafka__bootstrap__servers=server.bootstrap_servers,
                startingOffsets='{"t":{"0":0}}',
                failOnDataLoss=False,
                skipCorruptBatches=True,
                maxRecordsPerPartition=12,
                **NUMBERS,
            )
            found = run(frame, tmp_path / "c")
        until(lambda: bool(reported), "the listener")
    finally:
        reads.spark.streams.removeListener(listener)
    assert found.places == [(0, n) for n in range(3, 30) if not 10 <= n < 15]
    counts = reported[0].counts
    assert counts is not None
    assert (counts.rows, counts.lost_offsets, counts.bad_records) == (22, 3, 22)
    (skipped,) = counts.skipped_batches
    assert str(skipped) == "t-0 offsets 10 to 14 (its checksum does not match)"
    assert not reported[0].is_complete
    assert "3 lost offsets, 1 skipped batch, 22 malformed records" in caplog.text


def test_continuous_and_real_time_modes_are_refused(
    new_topic: TopicFactory, reads: Reads, tmp_path: Path
) -> None:
    topic = new_topic()
    for number, trigger in enumerate(({"continuous": "1 second"}, {"realTime": "5 minutes"})):
        query = reads.stream(topic).writeStream.format("noop")
        checkpoint = str(tmp_path / str(number))
        with pytest.raises(Exception, match=r"(?i)continuous|real.?time"):
            query.option("checkpointLocation", checkpoint).trigger(**trigger).start().stop()
