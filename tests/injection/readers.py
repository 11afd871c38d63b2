"""One consumer of a fake cluster that is interrupted again and again, and the rules it must keep.

Owns the consumer and its ledger. After every interruption the consumer goes on as a program does
that has caught the exception, or is closed and followed by the next of its group, as by one that
has not.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kfast import (
    ConsumerRecord,
    ConsumerRecords,
    KafkaConsumer,
    PartitionRecords,
    TopicPartition,
)
from kfast.errors import DeserializationError, KafkaError
from kfast.testing.cluster import FakeCluster
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, T1, cluster_of
from tests.end_to_end.stage import QUICK
from tests.injection.interrupter import Interrupter, Interruption, Place
from tests.injection.ledger import Ledger

GROUP: Final = "g"
STUCK_S: Final = 10.0
"""Far longer than the next records take; a partition without any for so long is stuck."""
CLOSE_MS: Final = 10_000
"""Twice what closing may take; what waits for something that does not come takes all of it."""

SMALL: Final[dict[str, Any]] = {
    **QUICK,
    "group_id": GROUP,
    "auto_commit_interval_ms": 0,
    "max_partition_fetch_bytes": 100,
    "max_poll_records": 3,
}
"""Settings under which one poll returns a part of what one response has, and commits each time."""


class Reader:
    """Reads two partitions of topic "t", interrupted at chosen places.

    Parameters
    ----------
    cluster, server : FakeCluster, BrokerServer
        What it reads.
    interrupter : Interrupter
        Interrupts it.
    timeout_ms : int
        Of the polls that are interrupted.
    passes : callable, optional
        Which offsets the interceptors let pass.
    is_at_end : bool
        Whether it reads at the ends of the logs, where records come one by one.
    by : str
        How it reads: by "poll", "rows" (``for record in consumer``) or "batches".
    tries : int
        Steps until one passes the place: one may find nothing, or another state.
    **configs
        Settings, on top of ``SMALL``.
    """

    def __init__(
        self,
        cluster: FakeCluster,
        server: BrokerServer,
        interrupter: Interrupter,
        *,
        timeout_ms: int = 20,
        passes: Callable[[int], bool] | None = None,
        is_at_end: bool = False,
        by: str = "poll",
        tries: int = 8,
        **configs: Any,
    ) -> None:
        self.cluster = cluster
        self.server = server
        self.interrupter = interrupter
        self.findings = interrupter.findings
        self._timeout_ms = timeout_ms
        self._configs = {**SMALL, **configs}
        self.step: Callable[[], None] = getattr(self, by)
        """Reads, and does nothing after it that a signal could interrupt."""
        self.result: ConsumerRecords | PartitionRecords | ConsumerRecord | None = None
        """What the last step has read and `take` has not noted."""
        self._iterator: Iterator[PartitionRecords] = iter(())
        self._passes = passes
        self._tries = tries
        self._is_at_end = is_at_end
        self.consumer = self._opened()
        self.ledger = Ledger(dict.fromkeys((T0, T1), 0), passes)

    def _opened(self) -> KafkaConsumer:
        consumer = KafkaConsumer(bootstrap_servers=self.server.bootstrap_servers, **self._configs)
        consumer.assign([T0, T1])
        self._iterator = iter(())
        return consumer

    # --- steps ------------------------------------------------------------------------------------

    def poll(self) -> None:
        """Poll once."""
        self.result = self.consumer.poll(self._timeout_ms)

    def rows(self) -> None:
        """Read the next record."""
        for record in self.consumer:
            self.result = record
            break

    def batches(self) -> None:
        """Read the next batch."""
        for batch in self._iterator:
            self.result = batch
            return
        self._iterator = self.consumer.batches()

    def take(self, place: Place) -> None:
        """Note what was read, if the call has come that far."""
        read, self.result = self.result, None
        if isinstance(read, ConsumerRecords):
            self.note(place, self.ledger.take(read))
        elif isinstance(read, PartitionRecords):
            self.note(place, self.ledger.take_batch(read.topic_partition, read))
        elif read is not None:
            tp = TopicPartition(read.topic, read.partition)
            self.note(place, self.ledger.take_offsets(tp, [read.offset]))
        end = self.cluster.log("t", 0).log_end_offset
        if not self._is_at_end and max(self.ledger.next.values()) > end * 3 // 4:
            self._go_back()

    def _take_interrupted(self, outcome: Interruption) -> None:
        if outcome.is_users_error and self._passes is not None:  # records as they were, logged
            read, self.result = self.result, None
            for tp, batch in read.items() if isinstance(read, ConsumerRecords) else ():
                self.ledger.next[tp] = batch.next_offset
        self.take(outcome.place)

    def note(self, place: Place, wrong: Iterable[tuple[str, str]]) -> bool:
        """Add findings; return whether there are any."""
        is_wrong = False
        for kind, detail in wrong:
            self.findings.add(kind, place, detail)
            is_wrong = True
        return is_wrong

    def _feed(self) -> None:
        """At the ends of the logs, have a record more than was read in each."""
        for tp, at in self.ledger.next.items():
            if self._is_at_end and at == self.cluster.log("t", tp.partition).log_end_offset:
                self.cluster.append("t", tp.partition, [b"x"])

    def _close(self, place: Place) -> None:
        begun_s = time.monotonic()
        try:
            self.consumer.close(CLOSE_MS)
        except KafkaError as error:
            self.findings.add("close raised", place, str(error).splitlines()[0])
        if time.monotonic() - begun_s > CLOSE_MS / 2_000:
            self.findings.add("close was stuck", place)

    def _go_back(self) -> None:
        """Begin anew, with a new consumer: positions and committed offsets go back."""
        self.consumer.close(CLOSE_MS)
        forget_committed(self.cluster)
        self.consumer = self._opened()
        self.ledger = Ledger(dict.fromkeys((T0, T1), 0), self._passes)

    def close(self) -> None:
        """Close the consumer."""
        self.consumer.close(CLOSE_MS)

    # --- rounds -----------------------------------------------------------------------------------

    def recorded(self) -> Counter[int]:
        """Return the places that polls pass, once everything they import is there."""
        begin = Place(0, "before any interruption", 0)
        for _ in range(3):
            self.go_on(begin)
        passes: Counter[int] = Counter()
        for number in range(12 + self._tries):
            if number % 2:
                self._feed()
            passes |= self.interrupter.record(self.step)
            self.take(begin)
        return passes

    def go_on(
        self, place: Place, *, wants_commit: bool = True, is_users_error: bool = False
    ) -> bool:
        """Read until every partition has got on and auto-commit has; return whether it did.

        With ``is_users_error`` a deserializer may seem to have failed: a value is read again.
        """
        self._feed()
        before = dict(self.ledger.next)
        deadline = time.monotonic() + STUCK_S
        try:
            while True:
                try:
                    self.step()
                except DeserializationError:
                    if not is_users_error:
                        raise
                    for tp, at in self.ledger.next.items():
                        self.consumer.seek(tp, at)
                ledger = self.ledger
                self.take(place)
                if ledger is not self.ledger:
                    return True
                late = {tp for tp, at in before.items() if self.ledger.next[tp] == at}
                committed = committed_offsets(self.cluster)
                uncommitted = {tp for tp, at in before.items() if committed.get(tp, 0) < at}
                if self.note(place, self.ledger.past(committed)):
                    return False
                if not late and not (wants_commit and uncommitted):
                    return True
                if time.monotonic() > deadline:
                    break
        except KafkaError as error:
            self.findings.add("a later poll raised", place, str(error).splitlines()[0])
            return False
        if late:
            self.findings.add("a partition was stuck", place, ", ".join(map(str, sorted(late))))
        else:
            self.findings.add("auto-commit stopped", place, f"{committed}, not {before}")
        return False

    def anew(self) -> None:
        """Replace a consumer that is of no more use, behind what was handed out."""
        self._go_back()

    def interrupted_caught(self, place: Place) -> bool:
        """Interrupt a call, at one of several tries, and go on; return whether it was."""
        for number in range(self._tries):
            if number % 2:
                self._feed()
            outcome = self.interrupter.interrupt(self.step, place)
            self._take_interrupted(outcome)
            if outcome.is_sent:
                if not self.go_on(place, is_users_error=outcome.is_users_error):
                    self.anew()
                return True
        return False

    def interrupted_uncaught(self, place: Place) -> bool:
        """Interrupt a call, close the consumer as ``finally`` does, and go on with the next."""
        for number in range(self._tries):
            if number % 2:
                self._feed()
            outcome = self.interrupter.interrupt(self.step, place)
            self._take_interrupted(outcome)
            if outcome.is_sent:
                self._close(place)
                self.note(place, self.ledger.past(committed_offsets(self.cluster)))
                short = {
                    tp: at
                    for tp, at in self.ledger.next.items()
                    if committed_offsets(self.cluster).get(tp, 0) < at
                }
                if short:
                    detail = f"{committed_offsets(self.cluster)}, not {short}"
                    self.findings.add("close did not commit what was handed out", place, detail)
                self.consumer = self._opened()
                self.ledger = Ledger(
                    {tp: committed_offsets(self.cluster).get(tp, 0) for tp in self.ledger.next},
                    self._passes,
                )
                self.go_on(place, wants_commit=False)
                return True
        return False


def within(limit_s: float, condition: Callable[[], bool]) -> bool:
    """Return whether something that is asked again and again becomes true in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        threading.Event().wait(0.001)
    return True


def quick_cluster(records: int, **settings: Any) -> FakeCluster:
    """Return a cluster with a topic "t" of two partitions, whose groups rebalance at once."""
    cluster = cluster_of(2, records, **settings)
    cluster.features["group.version"] = 1
    cluster.groups.settings.group_consumer_heartbeat_interval_ms = 20
    cluster.groups.settings.group_initial_rebalance_delay_ms = 0
    return cluster


def committed_offsets(cluster: FakeCluster, group: str = GROUP) -> dict[TopicPartition, int]:
    """Return what a group has committed."""
    with cluster.lock:
        return dict(cluster.groups.committed(group))


def forget_committed(cluster: FakeCluster) -> None:
    """Drop what the group has committed."""
    with cluster.lock:
        for tp in (T0, T1):
            cluster.groups.offsets(GROUP).forget(tp)
