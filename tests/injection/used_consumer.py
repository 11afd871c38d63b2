"""Consumers that are interrupted once in their life: what has to hold when they are closed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any, Final

from kfast import ConsumerRecords, KafkaConsumer
from kfast.errors import KafkaError
from kfast.testing.server import BrokerServer
from tests.conftest import kfast_threads
from tests.end_to_end.errors_support import T0, T1
from tests.end_to_end.groups import QUICK_MEMBER, Notes
from tests.injection.interrupter import Interrupter
from tests.injection.ledger import Ledger
from tests.injection.readers import SMALL, STUCK_S, committed_offsets, within

CASES: Final = ("assigned", "classic", "consumer")
CLOSE_MS: Final = 2_000


class Closings:
    """The `close` method of an interceptor, counted."""

    def __init__(self, interrupter: Interrupter) -> None:
        self._interrupter = interrupter
        self.count = 0

    def close(self) -> None:
        """Note the call."""
        self._interrupter.note_callback()
        self.count += 1


class UsedConsumer:
    """A consumer in a group of its own, and what has to hold once it is closed.

    Parameters
    ----------
    server : BrokerServer
        Serves topic "t" of two partitions.
    case : str
        One of ``CASES``: how its partitions are assigned.
    interrupter : Interrupter
        Interrupts it.
    has_read : bool
        Whether it has read something, or was not polled yet.
    """

    def __init__(
        self,
        server: BrokerServer,
        case: str,
        interrupter: Interrupter,
        *,
        has_read: bool = True,
    ) -> None:
        self.cluster = server.cluster
        settings: dict[str, Any] = {**SMALL, "auto_commit_interval_ms": 60_000}
        if case != "assigned":
            settings |= {"group_protocol": case, **QUICK_MEMBER[case]}
        self._group = f"g{len(self.cluster.groups.names())}"  # one of its own: others may remain
        settings["group_id"] = self._group
        self._files = open_files()
        self._threads = kfast_threads()
        self._closings = Closings(interrupter)
        self.notes = Notes(lambda *_: interrupter.note_callback())
        self.consumer = KafkaConsumer(
            bootstrap_servers=server.bootstrap_servers,
            interceptor_classes=[self._closings],
            **settings,
        )
        self._case = case
        self._ledger = Ledger(dict.fromkeys((T0, T1), 0))
        self._polled: ConsumerRecords | None = None
        if has_read:
            self.begin()
            assert self.has_read() == []

    def begin(self) -> None:
        """Assign partitions, or subscribe."""
        if self._case == "assigned":
            self.consumer.assign([T0, T1])
        else:
            self.consumer.subscribe(["t"], listener=self.notes)

    def poll(self) -> None:
        """Poll; `take` says what is wrong with what came."""
        self._polled = self.consumer.poll(200)

    def take(self) -> list[tuple[str, str]]:
        """Note what was polled, if the poll returned; return what is wrong with it."""
        polled, self._polled = self._polled, None
        return [] if polled is None else self._ledger.take(polled)

    def has_read(self) -> list[tuple[str, str]]:
        """Read until every partition has got on; return what is wrong."""
        before = dict(self._ledger.next)
        wrong: list[tuple[str, str]] = []

        def has_got_on() -> bool:
            self.poll()
            wrong.extend(self.take())
            return all(at > before[tp] for tp, at in self._ledger.next.items())

        try:
            if not within(STUCK_S, has_got_on):
                wrong.append(("a partition was stuck", f"{before}, {self._ledger.next}"))
        except KafkaError as error:
            wrong.append(("a later poll raised", str(error).splitlines()[0]))
        return wrong

    def unsubscribe(self) -> None:
        """Unsubscribe."""
        self.consumer.unsubscribe()

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
        revoked = [name for name, _ in self.notes.calls if name != "assigned"]
        if self.notes.calls and revoked != ["revoked"]:
            yield "the listener was not called once", str(self.notes.calls)

    def _state(self) -> str:
        with self.cluster.lock:
            return self.cluster.groups.summary(self._group)[0].upper()


def open_files() -> int:
    """Return how many file descriptors this process has."""
    return len(os.listdir("/proc/self/fd"))
