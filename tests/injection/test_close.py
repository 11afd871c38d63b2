"""A handler raises at every place of `close` and of other calls that a consumer has few of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from itertools import product

import pytest

from kfast.errors import KafkaError
from kfast.testing.server import BrokerServer
from tests.injection.interrupter import CTRL_C, OWN_KINDS, Interrupter, Interruption
from tests.injection.readers import quick_cluster
from tests.injection.used_consumer import CASES, UsedConsumer

Wrong = list[tuple[str, str]]


def check(
    kind: str,
    case: str,
    step: Callable[[UsedConsumer], None],
    afterwards: Callable[[UsedConsumer], Wrong],
    *,
    has_read: bool = True,
    suite: int = 16,
) -> None:
    """Interrupt a call of one consumer after the other, and fail with what was found.

    ``afterwards`` goes on after the interruption and returns what is wrong; then the consumer is
    closed, and what has to hold of a closed one is checked.
    """
    interrupter = Interrupter(kind)
    findings = interrupter.findings

    def end(used: UsedConsumer, outcome: Interruption | None) -> Wrong:
        wrong = used.take() + used.past()
        try:
            wrong += afterwards(used)
            used.close()
        except KafkaError as error:
            wrong.append(("a later call raised", str(error).splitlines()[0]))
            used.close()
        wrong += used.wrong(is_called_once=outcome is None or not outcome.is_in_callback)
        return wrong

    with BrokerServer(quick_cluster(400, batch_records=2)) as server, interrupter.installed():
        passes: Counter[int] = Counter()
        for number in range(6):
            used = UsedConsumer(server, case, interrupter, has_read=has_read)
            passed = interrupter.record(partial(step, used))
            passes |= passed if number else Counter()  # not what is imported, once
            assert end(used, None) == []
        for place in interrupter.places(passes, suite):
            used = UsedConsumer(server, case, interrupter, has_read=has_read)
            outcome = interrupter.interrupt(partial(step, used), place)
            wrong = end(used, outcome)
            for what, detail in wrong if outcome.is_sent else []:
                findings.add(what, place, detail)
            if findings.is_enough:
                break
    assert findings.tried > 5
    findings.check()


@pytest.mark.soak
@pytest.mark.parametrize(("case", "kind"), [*product(CASES, OWN_KINDS), ("classic", CTRL_C)])
def test_a_second_close_completes_an_interrupted_one(case: str, kind: str) -> None:
    """I-06: offsets are committed, the group is left, threads and sockets are gone."""
    check(kind, case, UsedConsumer.close, lambda _: [])


@pytest.mark.soak
@pytest.mark.parametrize("kind", OWN_KINDS)
@pytest.mark.parametrize("case", CASES)
def test_a_second_unsubscribe_completes_an_interrupted_one(case: str, kind: str) -> None:
    """I-06: as for `close`; the consumer can be used again."""

    def afterwards(used: UsedConsumer) -> Wrong:
        used.unsubscribe()
        left = used.consumer.assignment(), used.consumer.subscription()
        return [] if left == (set(), None) else [("unsubscribe left something", f"{left}")]

    check(kind, case, UsedConsumer.unsubscribe, afterwards)


@pytest.mark.soak
@pytest.mark.parametrize("kind", OWN_KINDS)
@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_subscribe_can_be_repeated(case: str, kind: str) -> None:
    """I-12: there is a subscription or assignment, or there is none."""

    def afterwards(used: UsedConsumer) -> Wrong:
        used.begin()
        return used.has_read()

    check(kind, case, UsedConsumer.begin, afterwards, has_read=False)


@pytest.mark.soak
@pytest.mark.parametrize(("case", "kind"), [*product(CASES, OWN_KINDS), ("assigned", CTRL_C)])
def test_the_first_poll_can_be_repeated(case: str, kind: str) -> None:
    """I-09: threads run or are started by the next call, the group is joined, all is read."""

    def first_poll(used: UsedConsumer) -> None:
        used.poll()

    def begin(used: UsedConsumer) -> None:
        used.begin()
        first_poll(used)

    check(kind, case, begin, _begun_again, has_read=False)


def _begun_again(used: UsedConsumer) -> Wrong:
    if not (used.consumer.subscription() or used.consumer.assignment()):
        used.begin()
    return used.has_read()
