"""A handler raises at every place of reads of ranges: nothing of them is left behind."""

from __future__ import annotations

import gc
from collections import Counter

import pytest

import kfast
from kfast.testing.server import BrokerServer
from tests.conftest import kfast_threads
from tests.end_to_end.errors_support import T0, T1, cluster_of
from tests.injection.interrupter import KINDS, Interrupter
from tests.injection.ledger import Ledger
from tests.injection.readers import STUCK_S, within
from tests.injection.used_consumer import open_files

RECORDS = 12


class RangeReader:
    """Reads all of a topic, as one result or batch by batch."""

    def __init__(self, server: BrokerServer) -> None:
        self._servers = server.bootstrap_servers
        self.ledger = Ledger(dict.fromkeys((T0, T1), 0))

    def read(self) -> None:
        """Read all at once."""
        records = kfast.read_topic("t", bootstrap_servers=self._servers)
        for tp in (T0, T1):
            self.ledger.next[tp] = records[tp].next_offset

    def scan(self) -> None:
        """Read batch by batch."""
        for batch in kfast.scan_topic("t", bootstrap_servers=self._servers):
            self.ledger.next[batch.topic_partition] = batch.next_offset

    def is_complete(self) -> bool:
        """Return whether everything was read."""
        return set(self.ledger.next.values()) == {RECORDS}


@pytest.mark.soak
@pytest.mark.filterwarnings("ignore:.*was not closed:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("by", ["read", "scan"])
def test_interrupted_reads_of_ranges_leave_nothing(by: str, kind: str) -> None:
    """I-08: threads and sockets end, the exception comes out, and the next read has all."""
    interrupter = Interrupter(kind)
    findings = interrupter.findings
    with (
        BrokerServer(cluster_of(2, RECORDS, batch_records=4)) as server,
        interrupter.installed(),
    ):
        passes: Counter[int] = Counter()
        for number in range(6):
            reader = RangeReader(server)
            passed = interrupter.record(getattr(reader, by))
            passes |= passed if number else Counter()  # not what is imported, once
            assert reader.is_complete()
        for place in interrupter.places(passes, suite=20):
            threads, files = kfast_threads(), open_files()
            reader = RangeReader(server)
            outcome = interrupter.interrupt(getattr(reader, by), place)
            is_sent = outcome.is_sent
            del outcome
            interrupter.forget()
            gc.collect()  # a consumer that was interrupted in its own end
            if is_sent and not within(STUCK_S, lambda: kfast_threads() <= threads):  # noqa: B023
                findings.add("threads were left", place)
            elif is_sent and not within(STUCK_S, lambda: open_files() <= files):  # noqa: B023
                findings.add("sockets were left", place, f"{open_files()}, not {files}")
            again = RangeReader(server)
            again.read()
            if not again.is_complete():
                findings.add("records were lost", place, f"{again.ledger.next}")
            if findings.is_enough:
                break
    assert findings.tried > 5
    findings.check()
