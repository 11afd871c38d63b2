"""SchemaLookups: what is fetched when, on a clock that only the test moves."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kfast.errors import (
    SchemaRegistryAuthenticationError,
    SchemaRegistryError,
)
from kfast.registry.api import (
    Absent,
    Failure,
    Outcome,
    RawSchema,
    RegistrySettings,
    status_failure,
    unreachable,
    url_of,
)
from kfast.registry.lookups import MAX_DEPTH, MISSES_PER_MINUTE, Lookup, SchemaLookups
from kfast.registry.registered_schema import RegisteredSchema, SchemaKey
from tests.fake_clock import FakeClock

URLS = (url_of("http://sr1:8081"), url_of("http://sr2:8081"))


class Registry:
    """Look-ups whose fetches are answered from a table; what it lacks is not found."""

    def __init__(self, schemas: Mapping[SchemaKey, Outcome] = {}, servers: int = 1, **limits: Any):
        self.clock = FakeClock()
        self.schemas = dict(schemas)
        self.fetched: list[SchemaKey] = []
        self.servers: list[int] = []
        self.forms: list[bool] = []
        limits = {"max_schemas": 100, **limits}
        self.lookups = SchemaLookups(RegistrySettings(URLS[:servers], **limits), self.clock)

    def lookup(self, *keys: SchemaKey, is_serialized: bool = False) -> Lookup:
        return self.lookups.lookup(keys, self.clock.now, None, is_serialized=is_serialized)

    def fetch(self) -> SchemaKey | None:
        """Begin the next fetch."""
        fetch = self.lookups.poll(self.clock.now)
        if fetch is None:
            return None
        self.fetched.append(fetch.key)
        self.servers.append(fetch.server)
        self.forms.append(fetch.is_serialized)
        return fetch.key

    def answer(self, outcome: Outcome) -> None:
        self.lookups.handle(outcome, self.clock.now)

    def run(self) -> None:
        """Make and answer fetches as long as there are any."""
        while (key := self.fetch()) is not None:
            self.answer(self.schemas.get(key, Absent.SCHEMA))

    def get(self, *keys: SchemaKey) -> Lookup:
        lookup = self.lookup(*keys)
        self.run()
        assert lookup.is_done
        return lookup


def ids(*numbers: int) -> list[SchemaKey]:
    return [SchemaKey.of_id(number) for number in numbers]


ONE, TWO = ids(1, 2)
DOWN = Failure(unreachable(URLS[0], "connection refused"))
REFUSED = Failure(unreachable(URLS[0], "connection refused"), is_refused=True)


def avro(text: str = '"int"', *references: tuple[str, int]) -> RawSchema:
    keys = tuple((f"t.{s}", SchemaKey.of_version(s, v)) for s, v in references)
    return RawSchema(RegisteredSchema("AVRO", text), keys)


def test_what_is_known_is_not_fetched_again() -> None:
    """TC-100"""
    registry = Registry({ONE: avro()})
    assert registry.get(ONE).schemas[ONE].text == '"int"'
    again = registry.lookup(ONE)
    assert again.is_done
    assert again.schemas[ONE].schema_type == "AVRO"
    assert registry.fetched == [ONE]
    assert len(registry.lookups.take_done()) == 1  # the second one never was pending


def test_lookups_of_one_id_share_its_request() -> None:
    """TC-101: single flight, also for what is asked while the answer is awaited."""
    registry = Registry()
    six = [registry.lookup(ONE) for _ in range(6)]
    assert registry.fetch() == ONE
    assert registry.fetch() is None
    late = registry.lookup(ONE)
    registry.answer(avro())
    assert registry.fetch() is None
    assert {lookup.schemas[ONE].text for lookup in (*six, late)} == {'"int"'}
    assert set(registry.lookups.take_done()) == {*six, late}
    assert registry.fetched == [ONE]


def test_10_000_ids_through_a_cache_of_100() -> None:
    """TC-102: an answer keeps its schemas, and the least recently used ones go."""
    keys = ids(*range(10_000))
    registry = Registry({key: avro(str(key.value)) for key in keys}, max_schemas=100)
    schemas = registry.get(*keys).schemas
    assert [schemas[key].text for key in keys] == [str(number) for number in range(10_000)]
    used = keys[-100]
    registry.get(used)
    registry.get(keys[0])
    registry.fetched.clear()
    registry.get(used, keys[0])
    assert registry.fetched == []
    registry.get(keys[-99])
    assert registry.fetched == [keys[-99]]


def test_an_unknown_id_is_remembered_then_found() -> None:
    """TC-103: no second request for miss_cache_ms."""
    registry = Registry()
    assert registry.get(ONE).not_found == {ONE}
    registry.schemas[ONE] = avro()
    registry.clock.advance(59_999)
    assert registry.get(ONE).not_found == {ONE}
    assert registry.fetched == [ONE]
    registry.clock.advance(1)
    assert registry.get(ONE).schemas
    assert registry.fetched == [ONE, ONE]
    assert registry.get(*ids(-1)).not_found
    assert registry.fetched == [ONE, ONE]


def test_many_unknown_ids_are_not_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """TC-104: after 100 misses within a minute, with one warning; known ids go on."""
    registry = Registry({ONE: avro()}, max_schemas=10_000)
    registry.get(ONE)
    registry.fetched.clear()
    random = ids(*range(1000, 2000))
    lookup = registry.get(ONE, *random)
    assert lookup.not_found == set(random)
    assert ONE in lookup.schemas
    assert len(registry.fetched) == MISSES_PER_MINUTE
    assert registry.get(*ids(3000)).not_found
    assert len(registry.fetched) == MISSES_PER_MINUTE
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 1
    assert "100 unknown schema ids within a minute" in warnings[0].getMessage()
    registry.clock.advance(60_000)
    registry.schemas[TWO] = avro()
    assert registry.get(TWO).schemas
    assert registry.get(SchemaKey.of_id(3000)).not_found
    assert registry.fetched[-1] == SchemaKey.of_id(3000)


def test_a_subject_is_asked_for_whatever_was_missed() -> None:
    """TC-104"""
    latest = SchemaKey.of_version("orders-value")
    registry = Registry({latest: avro()}, max_schemas=10_000)
    registry.get(*ids(*range(1000, 1100)))
    assert registry.get(latest).schemas
    registry.get(latest)
    assert registry.fetched[-2:] == [latest, latest]  # the latest one may be another one


def test_a_failure_that_may_pass_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    """TC-105: with back-off; one warning per change of state."""
    caplog.set_level(logging.INFO)
    registry = Registry({ONE: avro()})
    lookup = registry.lookup(ONE)
    waits = []
    for _ in range(4):
        assert registry.fetch() == ONE
        registry.answer(DOWN)
        assert registry.fetch() is None
        next_ms = registry.lookups.next_poll_ms()
        assert next_ms is not None
        waits.append(next_ms - registry.clock.now)
        registry.clock.advance(waits[-1] - 1)
        assert registry.fetch() is None
        registry.clock.advance(1)
    assert waits == [200, 400, 800, 1600]
    assert not lookup.is_done
    registry.run()
    assert lookup.schemas
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("WARNING", "no answer from the schema registry http://sr1:8081: connection refused"),
        ("INFO", "the schema registry http://sr1:8081 answers again"),
    ]


def test_the_deadline_ends_a_lookup_and_the_next_one_tries_again() -> None:
    """TC-106: with a retriable error that names the cause."""
    registry = Registry({ONE: avro()}, deadline_ms=1000)
    lookup = registry.lookup(ONE)
    while not lookup.is_done:
        if registry.fetch():
            registry.answer(DOWN)
        next_ms = registry.lookups.next_poll_ms()
        if next_ms is not None:
            registry.clock.now = next_ms
    assert registry.lookups.take_done() == [lookup]
    error = lookup.error
    assert isinstance(error, SchemaRegistryError)
    assert error.retriable
    assert str(error).splitlines()[:2] == [
        "no answer from the schema registry http://sr1:8081 for schema id 1 in 1 s",
        "cause: connection refused",
    ]
    assert registry.lookups.next_poll_ms() is None
    again = registry.lookup(ONE)
    registry.clock.advance(900)
    registry.run()
    assert registry.lookups.take_done() == [again]
    assert again.schemas


def test_a_lookup_ends_while_its_request_hangs() -> None:
    """TC-106: what the late answer has is kept for the next one."""
    registry = Registry(deadline_ms=1000)
    lookup = registry.lookup(ONE)
    registry.fetch()
    registry.clock.advance(1000)
    registry.lookups.expire(registry.clock.now)
    assert lookup.error is not None
    assert lookup.error.cause == "timed out"
    registry.answer(avro())
    assert registry.lookup(ONE).is_done


def test_retry_after_is_kept() -> None:
    """TC-107"""
    registry = Registry({ONE: avro()})
    lookup = registry.lookup(ONE)
    registry.fetch()
    registry.answer(Failure(unreachable(URLS[0], "it answers 429"), retry_after_ms=7000))
    registry.clock.advance(6999)
    assert registry.fetch() is None
    registry.clock.advance(1)
    registry.run()
    assert lookup.schemas


def test_servers_are_tried_in_turn() -> None:
    """TC-108: without back-off until each was tried."""
    registry = Registry({ONE: avro()}, servers=2)
    registry.lookup(ONE)
    for server in (0, 1):
        assert registry.fetch() == ONE
        assert registry.servers[-1] == server
        registry.answer(DOWN)
    assert registry.fetch() is None
    registry.clock.advance(200)
    registry.run()
    assert registry.servers == [0, 1, 0]


def test_known_ids_are_answered_while_the_registry_is_down() -> None:
    """TC-109"""
    registry = Registry({ONE: avro()})
    registry.get(ONE)
    lookup = registry.lookup(ONE, TWO)
    registry.fetch()
    registry.answer(DOWN)
    assert registry.lookup(ONE).schemas
    assert not lookup.is_done


def test_a_refusal_is_raised_at_once() -> None:
    """TC-110: and not asked for at the rate of polls."""
    registry = Registry()
    lookup, other = registry.lookup(ONE), registry.lookup(TWO)
    registry.fetch()
    refusal = status_failure(URLS[0], ONE, 401, "", "")
    assert refusal is not None
    registry.answer(refusal)
    assert isinstance(lookup.error, SchemaRegistryAuthenticationError)
    assert not lookup.error.retriable
    assert not other.is_done
    assert registry.fetch() is None
    registry.clock.advance(200)
    assert registry.fetch() == TWO


def test_a_form_that_a_registry_lacks_is_asked_for_once() -> None:
    """TC-111: format=serialized."""
    registry = Registry({ONE: avro(), TWO: avro()})
    lookup = registry.lookup(ONE, is_serialized=True)
    registry.fetch()
    registry.answer(Absent.FORM)
    registry.run()
    assert lookup.schemas
    registry.lookup(TWO, is_serialized=True)
    registry.run()
    assert registry.forms == [True, False, False]


# --- references -----------------------------------------------------------------------------------


def version(subject: str, number: int = 1) -> SchemaKey:
    return SchemaKey.of_version(subject, number)


def test_references_are_resolved() -> None:
    """TC-112: each once, those that others need first."""
    registry = Registry(
        {
            ONE: avro("order", ("line", 1), ("money", 1)),
            version("line"): avro("line", ("money", 1), ("sku", 2)),
            version("money"): avro("money"),
            version("sku", 2): avro("sku"),
        }
    )
    order = registry.get(ONE).schemas[ONE]
    assert [(reference.name, reference.schema.text) for reference in order.references] == [
        ("t.line", "line"),
        ("t.money", "money"),
    ]
    names = [reference.subject for reference in order.dependencies()]
    assert names == ["money", "sku", "line"]
    assert len(registry.fetched) == 4
    registry.schemas[TWO] = avro("refund", ("money", 1))
    registry.get(TWO)
    assert registry.fetched[-1] == TWO  # the reference is known


def test_schemas_that_are_fetched_at_once_share_references() -> None:
    """TC-112"""
    registry = Registry(
        {
            ONE: avro("one", ("a", 1)),
            TWO: avro("two", ("a", 1)),
            version("a"): avro("a", ("b", 1)),
            version("b"): avro("b"),
        }
    )
    lookup = registry.get(ONE, TWO)
    assert lookup.schemas[ONE].references[0].schema is lookup.schemas[TWO].references[0].schema
    assert len(registry.fetched) == 4


@pytest.mark.parametrize("length", [1, 2, 5])
def test_a_cycle_of_references_is_refused(length: int) -> None:
    """TC-113"""
    registry = Registry({ONE: avro("one", ("s0", 1))})
    for number in range(length):
        registry.schemas[version(f"s{number}")] = avro("s", (f"s{(number + 1) % length}", 1))
    error = registry.get(ONE).error
    assert error is not None
    assert "cannot be used: its references cannot be resolved" in str(error)
    assert "refers back to itself" in str(error)
    assert registry.get(ONE).error is not None  # nothing of it is left over


@pytest.mark.parametrize("is_known", [False, True])
def test_the_depth_of_references_is_limited(is_known: bool) -> None:
    """TC-113: 32 are resolved, 33 are refused, whatever of them is known before."""
    registry = Registry()
    for number in range(MAX_DEPTH + 2):
        below = () if number == 0 else ((f"s{number - 1}", 1),)
        registry.schemas[version(f"s{number}")] = avro(str(number), *below)
    registry.schemas[ONE] = avro("one", (f"s{MAX_DEPTH - 1}", 1))
    registry.schemas[TWO] = avro("two", (f"s{MAX_DEPTH}", 1))
    if is_known:
        registry.get(version("s20"))
    assert len(registry.get(ONE).schemas[ONE].dependencies()) == MAX_DEPTH
    error = registry.get(TWO).error
    assert error is not None
    assert "more than 32 deep" in str(error)


def test_a_reference_that_is_not_there() -> None:
    """TC-113: the schema cannot be used; its id is not unknown."""
    registry = Registry({ONE: avro("one", ("a", 1)), version("a"): avro("a", ("b", 3))})
    lookup = registry.get(ONE)
    assert lookup.error is not None
    assert not lookup.not_found
    assert 'does not have the version 3 of subject "b"' in str(lookup.error)
    registry.schemas[version("b", 3)] = avro("b")
    assert registry.get(ONE).schemas


def test_the_subject_of_a_reference_is_shown_as_text() -> None:
    """TC-113: it is the registry's, and may have escape codes in it."""
    registry = Registry({ONE: avro("one", ("\x1b[31m\n", 1))})
    error = registry.get(ONE).error
    assert error is not None
    assert error.cause == 'the registry does not have the version 1 of subject "?[31m?"'


def test_diamonds_of_references_take_linear_time() -> None:
    """TC-113: 2 ** 30 paths."""
    registry = Registry({ONE: avro("one", ("a30", 1), ("b30", 1))})
    for number in range(31):
        for letter in "ab":
            below = [(f"{name}{number - 1}", 1) for name in "ab"] if number else []
            registry.schemas[version(f"{letter}{number}")] = avro("x", *below)
    assert len(registry.get(ONE).schemas[ONE].dependencies()) == 62
    small = Registry(registry.schemas, max_schemas=1)
    assert len(small.get(ONE).schemas[ONE].dependencies()) == 62
    assert len(small.fetched) == 63
    registry.schemas[version("a0")] = Absent.SCHEMA
    fresh = Registry(registry.schemas)
    assert fresh.get(ONE).error is not None


def test_a_reference_that_fails_is_tried_again_behind_the_others() -> None:
    """TC-105, TC-112: and is fetched once for all that refer to it."""
    a = version("a")
    registry = Registry({ONE: avro("one", ("a", 1)), TWO: avro("two", ("a", 1)), a: avro("a")})
    first, second = registry.lookup(ONE), registry.lookup(TWO)
    assert registry.fetch() == ONE
    registry.answer(registry.schemas[ONE])
    assert registry.fetch() == a
    registry.answer(DOWN)
    registry.clock.advance(200)
    registry.run()
    assert registry.fetched == [ONE, a, TWO, a]
    assert first.schemas[ONE].references[0].schema is second.schemas[TWO].references[0].schema


def test_a_key_that_is_another_name_of_an_id() -> None:
    """TC-114: a global id of Apicurio."""
    key = SchemaKey.of_global_id(77)
    registry = Registry({key: ONE, ONE: avro()})
    assert registry.get(key).schemas[key].text == '"int"'
    assert registry.fetched == [key, ONE]
    assert registry.get(ONE).schemas
    assert registry.fetched == [key, ONE]


def test_nothing_is_fetched_for_a_lookup_that_was_cancelled() -> None:
    """TC-101: unless another one waits for it."""
    registry = Registry({ONE: avro("one", ("a", 1)), TWO: avro(), version("a"): avro()})
    first, second = registry.lookup(ONE, TWO), registry.lookup(TWO)
    assert registry.fetch() == ONE
    registry.lookups.cancel(first)
    registry.answer(registry.schemas[ONE])
    registry.run()
    assert second.schemas
    assert registry.fetched == [ONE, TWO]
    assert registry.lookups.take_done() == [second]
    assert registry.get(ONE).schemas  # and the key is looked up anew


def test_all_lookups_can_be_ended() -> None:
    """TC-106"""
    registry = Registry()
    lookups = [registry.lookup(ONE), registry.lookup(TWO)]
    registry.lookups.fail_all(SchemaRegistryError("closed"))
    assert [str(lookup.error) for lookup in lookups] == ["closed", "closed"]
    assert registry.fetch() is None


# --- servers that refuse --------------------------------------------------------------------------


def failing(registry: Registry, outcomes: Sequence[Outcome], until_ms: int) -> None:
    """Answer one fetch after the other with these outcomes, over and over."""
    turns = itertools.cycle(outcomes)
    while registry.clock.now < until_ms:
        if registry.fetch() is not None:
            registry.answer(next(turns))
        registry.clock.now += 50


def test_servers_that_all_refuse_are_asked_for_a_second() -> None:
    """TC-147"""
    registry = Registry(servers=2)
    begun_ms = registry.clock.now
    lookup = registry.lookup(ONE)
    failing(registry, [REFUSED], begun_ms + 950)
    assert not lookup.is_done
    assert registry.lookups.next_poll_ms() == begun_ms + 1_000
    failing(registry, [REFUSED], begun_ms + 1_050)
    assert isinstance(lookup.error, SchemaRegistryError)
    assert lookup.error.message.endswith("for schema id 1 in 1 s")
    assert lookup.error.retriable
    assert {*registry.servers} == {0, 1}


@pytest.mark.parametrize("last", [DOWN, REFUSED])
def test_a_server_that_may_come_is_waited_for(last: Outcome) -> None:
    """TC-147: one of two is no certain refusal, nor is one that has answered before."""
    registry = Registry({ONE: avro()}, servers=1 if last is REFUSED else 2)
    if last is REFUSED:
        registry.get(ONE)
    lookup = registry.lookup(TWO)
    begun_ms = registry.clock.now
    outcomes = [REFUSED] if last is REFUSED else [REFUSED, DOWN]
    failing(registry, outcomes, begun_ms + 5_000)
    assert not lookup.is_done
    failing(registry, outcomes, begun_ms + 30_100)
    assert lookup.error is not None


def test_a_later_look_up_asks_again() -> None:
    """TC-147: a refusal from before it began does not count."""
    registry = Registry()
    registry.lookup(ONE)
    failing(registry, [REFUSED], registry.clock.now + 5_000)
    asked = len(registry.fetched)
    lookup = registry.lookup(TWO)
    failing(registry, [REFUSED], registry.clock.now + 12_000)
    assert len(registry.fetched) > asked
    assert lookup.error is not None
