"""Two members of a group, one of which is interrupted while the other joins and leaves.

Owns the members, the records that were appended and who was given which. Records are appended a few
at a time, so that the interrupted member reads at the ends of the logs and a rebalance takes a few
polls only.
"""

from __future__ import annotations

import itertools
import time
from collections import Counter
from typing import Any, Final

from kfast import ConsumerRecords, KafkaConsumer, TopicPartition
from kfast.errors import KafkaError
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, T1
from tests.end_to_end.groups import QUICK_MEMBER, Notes
from tests.end_to_end.stage import QUICK
from tests.injection.interrupter import Interrupter, Place
from tests.injection.ledger import Ledger
from tests.injection.readers import CLOSE_MS, STUCK_S, committed_offsets

PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "eager": {"group_protocol": "classic", "partition_assignment_strategy": ["range"]},
    "cooperative": {
        "group_protocol": "classic",
        "partition_assignment_strategy": ["cooperative-sticky"],
    },
    "consumer": {"group_protocol": "consumer"},
}
BOTH: Final = frozenset({T0, T1})

_numbers = itertools.count()


class Member:
    """A consumer in the group, what it was given, and what its listener was told."""

    def __init__(self, pair: Pair) -> None:
        self._pair = pair
        self.notes = Notes(pair.called)
        self.consumer = KafkaConsumer(
            bootstrap_servers=pair.server.bootstrap_servers, **pair.settings
        )
        self.notes.consumer = self.consumer
        self.ledger = Ledger({})
        self.owned: set[int] = set()
        self._seen = 0
        self._polled: ConsumerRecords | None = None

    def join(self) -> None:
        """Subscribe."""
        self.consumer.subscribe(["t"], listener=self.notes)

    def poll(self) -> None:
        """Poll, for a rebalance or for records."""
        self._polled = self.consumer.poll(10)

    def take(self, place: Place, *, is_certain: bool = True) -> None:
        """Note what the listener was told and what was polled.

        Without ``is_certain`` a callback was interrupted, which may not have noted its call.
        """
        findings = self._pair.interrupter.findings
        for name, numbers in self.notes.calls[self._seen :]:
            before = set(self.owned)
            if name == "assigned":
                self.owned |= set(numbers)
                is_wrong = not before.isdisjoint(numbers)
                for number in numbers:  # from the committed offset on, at most what was read
                    self.ledger.next.pop(TopicPartition("t", number), None)
            else:
                self.owned -= set(numbers)
                is_wrong = not before.issuperset(numbers)
            if is_wrong and is_certain:
                detail = f"{name} {numbers} with {sorted(before)}"
                findings.add("the listener was not called once", place, detail)
        self._seen = len(self.notes.calls)
        if not is_certain:
            self.owned = {tp.partition for tp in self.consumer.assignment()}
            self.ledger.next.clear()
        polled, self._polled = self._polled, None
        for tp, batch in polled.items() if polled is not None else ():
            offsets = batch.offsets.tolist()
            handed_out = self._pair.handed_out
            self.ledger.next.setdefault(tp, min(offsets[0], handed_out[tp]))
            for what, detail in self.ledger.take_offsets(tp, offsets):
                findings.add(what, place, detail)
            handed_out[tp] = max(handed_out[tp], offsets[-1] + 1)


class Pair:
    """The two members, and the rules they must keep.

    Parameters
    ----------
    server : BrokerServer
        Serves topic "t" of two partitions.
    interrupter : Interrupter
        Interrupts the first member.
    protocol : str
        One of ``PROTOCOLS``.
    """

    def __init__(self, server: BrokerServer, interrupter: Interrupter, protocol: str) -> None:
        self.server = server
        self.interrupter = interrupter
        self.group = f"g{next(_numbers)}"
        self.settings: dict[str, Any] = {
            **QUICK,
            **QUICK_MEMBER[PROTOCOLS[protocol]["group_protocol"]],
            **PROTOCOLS[protocol],
            "group_id": self.group,
            "auto_commit_interval_ms": 60_000,
        }
        if protocol != "consumer":
            self.settings["heartbeat_interval_ms"] = 15
        self.handed_out = self._ends()
        with server.cluster.lock:
            for tp, end in self.handed_out.items():
                server.cluster.groups.offsets(self.group).commit(tp, end)
        self.is_sent = False
        self._passes: Counter[int] | None = None
        self.first, self.second = Member(self), Member(self)
        self.first.join()

    def called(self, *_: object) -> None:
        """Note which function of kfast calls a listener."""
        self.interrupter.note_callback()

    def feed(self) -> None:
        """Append two records to each partition."""
        for tp in BOTH:
            self.server.cluster.append("t", tp.partition, [b"x", b"x"])

    def close(self) -> None:
        """Close both."""
        self.first.consumer.close(CLOSE_MS)
        self.second.consumer.close(CLOSE_MS)

    def recorded(self, cycles: int = 3) -> Counter[int]:
        """Return the places of polls with a rebalance that other polls do not pass."""
        begin = Place(0, "before any interruption", 0)
        self.rebalance(begin, is_caught=True)
        others: Counter[int] = Counter()
        for _ in range(20):
            self.feed()
            others |= self.interrupter.record(self.first.poll)
            self.first.take(begin)
        self._passes = Counter()
        for _ in range(cycles):
            self.rebalance(begin, is_caught=True)
        passes, self._passes = self._passes, None
        return Counter({place: n for place, n in passes.items() if place not in others})

    def rebalance(self, place: Place, *, is_caught: bool) -> bool:
        """Have the second member join and leave, and interrupt the first at a place, once.

        Both read everything meanwhile. Returns whether that ended well.
        """
        self.is_sent = False
        return self._until_shared(place, 1, is_caught=is_caught) and self._until_shared(
            place, 2, is_caught=is_caught
        )

    def _until_shared(self, place: Place, share: int, *, is_caught: bool) -> bool:
        findings = self.interrupter.findings
        deadline = time.monotonic() + STUCK_S
        try:
            if share == 1:
                self.second.join()
            else:
                self.second.consumer.unsubscribe()
                self.second.take(place)
            self.feed()
            while not (self._is_shared(share) and self.handed_out == self._ends()):
                if time.monotonic() > deadline:
                    findings.add("the rebalance or a partition was stuck", place, self._state())
                    return False
                self._poll_first(place, is_caught=is_caught)
                if share == 1:
                    self.second.poll()
                    self.second.take(place)
        except KafkaError as error:
            findings.add("a later call raised", place, str(error).splitlines()[0])
            return False
        return True

    def _poll_first(self, place: Place, *, is_caught: bool) -> None:
        if self._passes is not None:
            self._passes |= self.interrupter.record(self.first.poll)
        elif place.number and not self.is_sent:
            outcome = self.interrupter.interrupt(self.first.poll, place)
            self.is_sent = outcome.is_sent
            self.first.take(place, is_certain=not outcome.is_in_callback)
            if outcome.is_sent:
                self._after(place, is_caught=is_caught)
            return
        else:
            self.first.poll()
        self.first.take(place)

    def _after(self, place: Place, *, is_caught: bool) -> None:
        """Check what is committed; if it was not caught, close and begin anew."""
        findings = self.interrupter.findings
        if not is_caught:
            begun_s = time.monotonic()
            self.first.consumer.close(CLOSE_MS)
            if time.monotonic() - begun_s > CLOSE_MS / 2_000:
                findings.add("close was stuck", place)
            self.first = Member(self)
            self.first.join()
        for what, detail in Ledger(self.handed_out).past(self._committed()):
            findings.add(what, place, detail)

    def _committed(self) -> dict[TopicPartition, int]:
        return committed_offsets(self.server.cluster, self.group)

    def _ends(self) -> dict[TopicPartition, int]:
        cluster = self.server.cluster
        return {tp: cluster.log("t", tp.partition).log_end_offset for tp in BOTH}

    def _is_shared(self, share: int) -> bool:
        shares = [self.first.consumer.assignment(), self.second.consumer.assignment()]
        return len(shares[0]) == share and sum(map(len, shares)) == 2

    def _state(self) -> str:
        return (
            f"{sorted(self.first.consumer.assignment())} and "
            f"{sorted(self.second.consumer.assignment())}, "
            f"read {sorted(self.handed_out.values())} of {sorted(self._ends().values())}"
        )
