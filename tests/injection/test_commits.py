"""A handler raises at every place of commits and of polls that run their callbacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kfast.errors import KafkaError
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import cluster_of
from tests.injection.interrupter import KINDS, OWN_KINDS, Interrupter, Place
from tests.injection.readers import STUCK_S, Reader, committed_offsets, within

RECORDS = 4_000
COMMIT_MS = 2_000


class Committer:
    """Commits by hand what a reader was given, and counts callbacks.

    Parameters
    ----------
    reader : Reader
        Without auto-commit.
    """

    def __init__(self, reader: Reader) -> None:
        self.reader = reader
        self._called: Counter[int] = Counter()
        self._begun = 0
        self._accepted: set[int] = set()
        self._steps: dict[str, Callable[[], None]] = {
            "commit": self._commit,
            "commit offsets": self._commit_offsets,
            "commit_async": self._commit_async,
            "callbacks": reader.step,
        }

    def step(self, name: str) -> Callable[[], None]:
        """Prepare for a step; return what is to be interrupted."""
        if name == "callbacks":
            self._commit_async()
            assert within(STUCK_S, self._is_committed)
        return self._steps[name]

    def wrong(self, *, is_called_once: bool) -> list[tuple[str, str]]:
        """Commit once more; return what is wrong afterwards."""
        wrong = []
        reader = self.reader
        try:
            reader.consumer.commit(timeout_ms=COMMIT_MS)
        except KafkaError as error:
            wrong.append(("a later commit raised", str(error).splitlines()[0]))
        if not self._is_committed():
            committed = committed_offsets(reader.cluster)
            wrong.append(("a later commit stored something else", f"{committed}"))
        calls = {number: self._called[number] for number in self._accepted}
        if is_called_once and set(calls.values()) - {1}:
            wrong.append(("a callback was not called once", f"{calls}"))
        if any(count > 1 for count in self._called.values()):
            wrong.append(("a callback was called twice", f"{self._called}"))
        self._called.clear()
        self._accepted.clear()
        return wrong

    def _commit(self) -> None:
        self.reader.consumer.commit(timeout_ms=COMMIT_MS)

    def _commit_offsets(self) -> None:
        self.reader.consumer.commit(self.reader.ledger.next, COMMIT_MS)

    def _commit_async(self) -> None:
        self._begun += 1
        number = self._begun

        def on_done(offsets: Mapping[Any, Any], error: KafkaError | None) -> None:
            self._called[number] += 1
            self.reader.interrupter.note_callback()

        self.reader.consumer.commit_async(callback=on_done)
        self._accepted |= {number}

    def _is_committed(self) -> bool:
        reader = self.reader
        return committed_offsets(reader.cluster) == reader.ledger.next


@pytest.mark.soak
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["commit", "commit offsets", "commit_async", "callbacks"])
def test_commits_go_on(name: str, kind: str) -> None:
    """I-05, I-10: nothing past what was handed out, later commits work, callbacks come once."""
    interrupter = Interrupter(kind)
    findings = interrupter.findings
    begin = Place(0, "before any interruption", 0)
    with (
        BrokerServer(cluster_of(2, RECORDS, batch_records=2)) as server,
        interrupter.installed(),
    ):
        reader = Reader(server.cluster, server, interrupter, enable_auto_commit=False)
        committer = Committer(reader)
        try:
            passes: Counter[int] = Counter()
            for _ in range(10):
                reader.go_on(begin, wants_commit=False)
                passes |= interrupter.record(committer.step(name))
                reader.take(begin)
                reader.note(begin, committer.wrong(is_called_once=True))
            findings.check()
            for place in interrupter.places(passes, suite=15):
                reader.go_on(place, wants_commit=False)
                outcome = interrupter.interrupt(committer.step(name), place)
                reader.take(place)
                reader.note(place, reader.ledger.past(committed_offsets(reader.cluster)))
                is_well = reader.go_on(place, wants_commit=False)
                wrong = committer.wrong(is_called_once=not outcome.is_in_callback)
                if reader.note(place, wrong) or not is_well:
                    reader.anew()
                if findings.is_enough:
                    break
        finally:
            reader.close()
    assert findings.tried > 5
    findings.check()


class Committed:
    """An interceptor that is told of commits."""

    def __init__(self, interrupter: Interrupter) -> None:
        self._interrupter = interrupter

    def on_commit(self, _: Mapping[Any, Any]) -> None:
        """Note which function calls it."""
        self._interrupter.note_callback()


@pytest.mark.soak
@pytest.mark.parametrize("kind", OWN_KINDS)
def test_auto_commit_goes_on_after_on_commit(kind: str) -> None:
    """I-10: interrupted in, or around, an interceptor that is told of it."""
    interrupter = Interrupter(kind)
    with (
        BrokerServer(cluster_of(2, RECORDS, batch_records=2)) as server,
        interrupter.installed(),
    ):
        reader = Reader(
            server.cluster, server, interrupter, interceptor_classes=[Committed(interrupter)]
        )
        try:
            for place in interrupter.places(reader.recorded(), suite=20):
                reader.interrupted_caught(place)
                if interrupter.findings.is_enough:
                    break
        finally:
            reader.close()
    interrupter.findings.check()
