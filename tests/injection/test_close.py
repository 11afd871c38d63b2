"""A handler raises at every place of `close`: a second one completes what the first has left."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kfast import KafkaConsumer
from kfast.errors import KafkaError
from tests.conftest import kfast_threads
from tests.end_to_end.errors_support import T0, T1
from tests.end_to_end.groups import QUICK_MEMBER, Notes
from tests.fake_broker.server import FakeBrokerServer
from tests.injection.interrupter import KINDS, Interrupter
from tests.injection.ledger import Ledger
from tests.injection.readers import (
    SMALL,
    STUCK_S,
    committed_offsets,
    quick_cluster,
    within,
)

CASES: Final = ("assigned", "classic", "consumer")
CLOSE_MS: Final = 3_000


class Closings:
    """The `close` method of an interceptor, counted."""

    def __init__(self, interrupter: Interrupter) -> None:
        self._interrupter = interrupter
        self.count = 0

    def close(self) -> None:
        """Note the call."""
        self._interrupter.note_callback()
        self.count += 1


class Used:
    """A consumer that has read something, to be closed."""

    def __init__(self, server: FakeBrokerServer, case: str, interrupter: Interrupter) -> None:
        self.cluster = server.cluster
        settings: dict[str, Any] = {**SMALL, "auto_commit_interval_ms": 60_000}
        if case != "assigned":
            settings |= {"group_protocol": case, **QUICK_MEMBER[case]}
        self._group = f"g{len(self.cluster.groups.names())}"  # one of its own: others may remain
        settings["group_id"] = self._group
        self._files = open_files()
        self._threads = kfast_threads()
        self._closings = Closings(interrupter)
        self._notes = Notes(lambda *_: interrupter.note_callback())
        self.consumer = KafkaConsumer(
            bootstrap_servers=server.bootstrap_servers,
            interceptor_classes=[self._closings],
            **settings,
        )
        if case == "assigned":
            self.consumer.assign([T0, T1])
        else:
            self.consumer.subscribe(["t"], listener=self._notes)
        self._ledger = Ledger(dict.fromkeys((T0, T1), 0))
        assert within(STUCK_S, self._has_read)

    def _has_read(self) -> bool:
        self._ledger.take(self.consumer.poll(50))
        return all(self._ledger.next.values())

    def close(self) -> None:
        """Close the consumer."""
        self.consumer.close(CLOSE_MS)

    def past(self) -> list[tuple[str, str]]:
        """Return what is committed past what was handed out."""
        return self._ledger.past(committed_offsets(self.cluster, self._group))

    def wrong(self, *, is_called_once: bool = True) -> Iterator[tuple[str, str]]:
        """Yield what is not as it has to be once it is closed.

        Without ``is_called_once`` a listener or interceptor was interrupted itself.
        """
        yield from self.past()
        committed = committed_offsets(self.cluster, self._group)
        if any(committed.get(tp, 0) < at for tp, at in self._ledger.next.items()):
            yield "close did not commit", f"{committed}, not {self._ledger.next}"
        if not within(STUCK_S, lambda: self._state() == "EMPTY"):
            yield "the group was not left", self._state()
        if not within(STUCK_S, lambda: kfast_threads() <= self._threads):
            left = kfast_threads() - self._threads
            yield "threads were left", ", ".join(sorted(each.name for each in left))
        elif not within(STUCK_S, lambda: open_files() <= self._files):
            yield "sockets were left", f"{open_files()} files, not {self._files}"
        if not is_called_once:
            return
        if self._closings.count != 1:
            yield "an interceptor was not closed once", str(self._closings.count)
        revoked = [name for name, _ in self._notes.calls if name != "assigned"]
        if self._notes.calls and revoked != ["revoked"]:
            yield "the listener was not called once", str(self._notes.calls)

    def _state(self) -> str:
        with self.cluster.lock:
            return self.cluster.groups.summary(self._group)[0].upper()


def open_files() -> int:
    """Return how many file descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_a_second_close_completes_an_interrupted_one(case: str, kind: str) -> None:
    """I-06: offsets are committed, the group is left, threads and sockets are gone."""
    cluster = quick_cluster(20)
    interrupter = Interrupter(kind)
    findings = interrupter.findings
    with FakeBrokerServer(cluster) as server, interrupter.installed():
        passes: Counter[int] = Counter()
        for _ in range(5):
            used = Used(server, case, interrupter)
            passes |= interrupter.record(used.close)
            assert list(used.wrong()) == []
        for place in interrupter.places(passes, suite=25):
            used = Used(server, case, interrupter)
            outcome = interrupter.interrupt(used.close, place)
            for what, detail in used.past():
                findings.add(what, place, detail)
            try:
                used.close()
            except KafkaError as error:
                findings.add("the second close raised", place, str(error).splitlines()[0])
            if outcome.is_sent:
                for what, detail in used.wrong(is_called_once=not outcome.is_in_callback):
                    findings.add(what, place, detail)
            if findings.is_enough:
                break
    assert findings.tried > 5
    findings.check()
