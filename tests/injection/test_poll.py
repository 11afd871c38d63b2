"""A handler raises at every place of a poll: records come once, in order, and are committed."""

from __future__ import annotations

from contextlib import closing
from itertools import product
from typing import Any, Final

import pytest

from kfast import ConsumerRecords, PartitionRecords
from kfast.deserializers import Utf8
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import cluster_of
from tests.injection.interrupter import CTRL_C, OWN_KINDS, Interrupter
from tests.injection.readers import Reader
from tests.reference.compression import Codec
from tests.simulation.old_formats import append_batch

RECORDS: Final = 4_000
UNBOUNDED: Final[dict[str, Any]] = {"max_poll_records": None, "max_partition_fetch_bytes": 2_000}
CASES: Final = ("plain", "lz4", "utf8", "callable", "interceptor", "empty")
BOTH_ENDS: Final = ("caught", "not caught")
WAYS: Final = ("rows", "rows of large polls", "batches")


def cluster_for(case: str) -> FakeCluster:
    """Return the cluster of a case."""
    if case != "lz4":
        return cluster_of(2, 0 if case == "empty" else RECORDS, batch_records=2)
    cluster = cluster_of(2, 0)
    for partition in range(2):
        values = [b"%d-%d" % (partition, offset) for offset in range(RECORDS)]
        with cluster.writing("t", partition) as writer:
            for start in range(0, RECORDS, 20):
                append_batch(writer, values[start : start + 20], codec=Codec.LZ4)
    return cluster


def passes(offset: int) -> bool:
    """Return whether the interceptor leaves a record in."""
    return offset % 3 != 1


class Dropping:
    """An interceptor that replaces what a poll returns."""

    def __init__(self, interrupter: Interrupter) -> None:
        self._interrupter = interrupter

    def on_consume(self, records: ConsumerRecords) -> list[PartitionRecords]:
        """Drop some records."""
        self._interrupter.note_callback()
        return selection(records)


def selection(records: ConsumerRecords) -> list[PartitionRecords]:
    """Return one batch for each record that passes."""
    return [
        batch[row : row + 1]
        for batch in records.values()
        for row in range(len(batch))
        if passes(int(batch.offsets[row]))
    ]


def reader_of(case: str, server: BrokerServer, interrupter: Interrupter) -> Reader:
    """Return the reader of a case."""

    def as_text(raw: bytes) -> str:
        interrupter.note_callback()
        return raw.decode()

    settings: dict[str, dict[str, Any]] = {
        "lz4": UNBOUNDED,
        "utf8": {"value_deserializer": Utf8()},
        "callable": {"value_deserializer": as_text},
        "empty": {"is_at_end": True, "timeout_ms": 5},
        "interceptor": {"interceptor_classes": [Dropping(interrupter)], "passes": passes},
    }
    return Reader(server.cluster, server, interrupter, **settings.get(case, {}))


def check(reader: Reader, end: str) -> None:
    """Interrupt a reader at every place, or those chosen, and fail with what was found."""
    interrupter = reader.interrupter
    with closing(reader):
        tried = reader.interrupted_caught if end == "caught" else reader.interrupted_uncaught
        for place in interrupter.places(reader.recorded(), suite=25):
            tried(place)
            if interrupter.findings.is_enough:
                break
    assert interrupter.findings.tried > 10
    interrupter.findings.check()


@pytest.mark.soak
@pytest.mark.parametrize(("case", "kind"), [*product(CASES, OWN_KINDS), ("plain", CTRL_C)])
@pytest.mark.parametrize("end", BOTH_ENDS)
def test_polls_lose_nothing(case: str, end: str, kind: str) -> None:
    """I-01: what comes out is the handler's exception, and the consumer or the next goes on."""
    interrupter = Interrupter(kind)
    with BrokerServer(cluster_for(case)) as server, interrupter.installed():
        check(reader_of(case, server, interrupter), end)


@pytest.mark.soak
@pytest.mark.parametrize(("by", "kind"), [*product(WAYS, OWN_KINDS), ("rows", CTRL_C)])
@pytest.mark.parametrize("end", BOTH_ENDS)
def test_iteration_loses_nothing(by: str, end: str, kind: str) -> None:
    """I-03, I-04: a record or batch comes once, and auto-commit is where iteration is."""
    interrupter = Interrupter(kind)
    settings: dict[str, Any] = {**UNBOUNDED, "tries": 200} if by == "rows of large polls" else {}
    with BrokerServer(cluster_for("plain")) as server, interrupter.installed():
        reader = Reader(
            server.cluster,
            server,
            interrupter,
            by=by.partition(" ")[0],
            consumer_timeout_ms=20,
            **settings,
        )
        check(reader, end)
