"""A handler raises at every place of calls that move positions: they are as before or as after."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kfast.errors import KafkaError
from kfast.testing.server import BrokerServer
from tests.end_to_end.errors_support import T0, T1, cluster_of
from tests.injection.interrupter import OWN_KINDS, Interrupter, Place
from tests.injection.readers import Reader

RECORDS = 4_000
WAIT_MS = 2_000
BOTH = {T0, T1}


@dataclass(frozen=True, slots=True)
class Operation:
    """A call, the states that may be seen after it, and what brings the usual state back."""

    call: Callable[[Reader], object]
    state: Callable[[Reader], Any]
    after: Callable[[Any], Any]
    """Makes the state after the call of the one before it."""
    prepare: Callable[[Reader], object] = lambda _: None
    restore: Callable[[Reader], object] = lambda _: None


def positions(reader: Reader) -> tuple[int, ...]:
    """Return the positions of both partitions."""
    return tuple(reader.consumer.position(tp, WAIT_MS) for tp in sorted(BOTH))


def assign_both(reader: Reader) -> None:
    """Assign both partitions; one that is new begins where the group has committed."""
    reader.consumer.assign(sorted(BOTH))


OPERATIONS = {
    "seek": Operation(
        lambda reader: reader.consumer.seek(T0, 700), positions, lambda before: (700, before[1])
    ),
    "seek_to_beginning": Operation(
        lambda reader: reader.consumer.seek_to_beginning(), positions, lambda _: (0, 0)
    ),
    "pause": Operation(
        lambda reader: reader.consumer.pause(T0, T1),
        lambda reader: reader.consumer.paused(),
        lambda _: BOTH,
        restore=lambda reader: reader.consumer.resume(T0, T1),
    ),
    "resume": Operation(
        lambda reader: reader.consumer.resume(T0, T1),
        lambda reader: reader.consumer.paused(),
        lambda _: set(),
        prepare=lambda reader: reader.consumer.pause(T0, T1),
        restore=lambda reader: reader.consumer.resume(T0, T1),
    ),
    "assign": Operation(
        lambda reader: reader.consumer.assign([T0]),
        lambda reader: reader.consumer.assignment(),
        lambda _: {T0},
        restore=assign_both,
    ),
    "assign more": Operation(
        assign_both,
        lambda reader: reader.consumer.assignment(),
        lambda _: BOTH,
        prepare=lambda reader: reader.consumer.assign([T0]),
        restore=assign_both,
    ),
}


class Moved:
    """Carries an operation out on a reader, and checks the state and what is read then."""

    def __init__(self, reader: Reader, operation: Operation) -> None:
        self.reader = reader
        self.operation = operation
        self._before: Any = None

    def prepare(self) -> None:
        """Note the state before."""
        self.operation.prepare(self.reader)
        self._before = self.operation.state(self.reader)

    def step(self) -> None:
        """Carry it out."""
        self.operation.call(self.reader)

    def settle(self, place: Place) -> bool:
        """Check the state, and that everything is read from there; return whether all is well."""
        reader = self.reader
        try:
            state, after = self.operation.state(reader), self.operation.after(self._before)
            if state not in (self._before, after):
                detail = f"{state}, neither {self._before} nor {after}"
                reader.findings.add("the state is neither as before nor as after", place, detail)
                return False
            self.operation.restore(reader)
            now = dict(zip(sorted(BOTH), positions(reader), strict=True))
            if self.operation.state is not positions:
                for tp, at in now.items():  # one that was assigned anew begins at what is committed
                    if at > reader.ledger.next[tp]:
                        reader.findings.add("records were lost", place, f"{tp} {at}")
            reader.ledger.next.update(now)
        except KafkaError as error:
            reader.findings.add("a later call raised", place, str(error).splitlines()[0])
            return False
        return reader.go_on(place, wants_commit=False)


@pytest.mark.soak
@pytest.mark.parametrize("kind", OWN_KINDS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_states_are_as_before_or_as_after(name: str, kind: str) -> None:
    """I-12: positions, pauses and the assignment change in one step, and reading goes on."""
    interrupter = Interrupter(kind)
    findings = interrupter.findings
    begin = Place(0, "before any interruption", 0)
    with (
        BrokerServer(cluster_of(2, RECORDS, batch_records=2)) as server,
        interrupter.installed(),
    ):
        reader = Reader(server.cluster, server, interrupter, enable_auto_commit=False)
        moved = Moved(reader, OPERATIONS[name])
        try:
            passes = None
            for _ in range(6):
                reader.go_on(begin, wants_commit=False)
                moved.prepare()
                passed = interrupter.record(moved.step)
                passes = passed if passes is None else passes | passed
                assert moved.settle(begin)
            assert passes is not None
            findings.check()
            for place in interrupter.places(passes, suite=20):
                moved.prepare()
                interrupter.interrupt(moved.step, place)
                if not moved.settle(place):
                    reader.anew()
                    reader.go_on(begin, wants_commit=False)
                if findings.is_enough:
                    break
        finally:
            reader.close()
    assert findings.tried > 5
    findings.check()
