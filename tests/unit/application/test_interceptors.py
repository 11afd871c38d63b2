"""Interceptors and listeners: what is accepted, in which order it is called."""

from __future__ import annotations

from typing import Any

import pytest

from kfast import ConsumerRebalanceListener, TopicPartition
from kfast.application.interceptors import Interceptors
from kfast.application.rebalance_listener import check_listener
from kfast.deserializers import Int64
from kfast.errors import ConfigurationError
from kfast.records import ConsumerRecords, empty_partition_records

T0 = TopicPartition("t", 0)


class Chain:
    """Puts its name into a list, and passes on another result."""

    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls
        self.records = ConsumerRecords()

    def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
        self.calls.append(self.name)
        return self.records

    def close(self) -> None:
        self.calls.append(f"{self.name} closed")


def test_each_is_given_what_the_one_before_returned() -> None:
    """O-05: chained in order; one that returns nothing usable is passed over."""
    calls: list[str] = []
    first, last = Chain("first", calls), Chain("last", calls)

    class Forgetful:
        def on_consume(self, records: Any) -> None:
            assert records is first.records

    chain = Interceptors([first, Forgetful(), last])
    assert chain.sees_records
    assert chain.on_consume(ConsumerRecords()) is last.records
    chain.close()
    chain.close()
    assert calls == ["first", "last", "first closed", "last closed"]


@pytest.mark.parametrize("replace", [dict, ConsumerRecords, list], ids=lambda kind: kind.__name__)
def test_nothing_left_has_the_columns_of_what_there_was(replace: Any) -> None:
    """O-05, B-14: an interceptor that takes all records away leaves their types."""

    class Filter:
        def on_consume(self, records: ConsumerRecords) -> Any:
            return replace()

    template = empty_partition_records(value_deserializer=Int64(), columns=["offset", "value"])
    left = Interceptors([Filter()]).on_consume(ConsumerRecords(template=template))
    assert left.to_arrow().schema == template.to_arrow().schema


@pytest.mark.parametrize("given", [object(), "a.b.C", 5])
def test_what_is_no_interceptor_is_refused(given: object) -> None:
    """E-02: at construction, saying what belongs there."""
    with pytest.raises(ConfigurationError, match="is no interceptor"):
        Interceptors([given])


def test_a_class_is_made_into_an_object() -> None:
    """O-05: as in kafka-python; one that needs arguments is refused with the reason."""

    class Simple:
        def on_commit(self, offsets: object) -> None: ...

    class Demanding:
        def __init__(self, name: str) -> None: ...

        def on_commit(self, offsets: object) -> None: ...

    assert not Interceptors([Simple]).sees_records
    with pytest.raises(ConfigurationError, match=r"Demanding\(\) failed"):
        Interceptors([Demanding])


def test_listeners() -> None:
    """G-12, G-13: kfast's base class, anything with its methods, and nothing else."""

    class Mine(ConsumerRebalanceListener):
        def __init__(self) -> None:
            self.revoked: list[TopicPartition] = []

        def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
            self.revoked = revoked

    mine = Mine()
    assert check_listener(mine) is mine
    mine.on_partitions_assigned([T0])
    mine.on_partitions_lost([T0])
    assert mine.revoked == [T0]
    assert check_listener(None) is None
    for wrong in (object(), Mine, lambda: None):
        with pytest.raises(ConfigurationError, match="not a rebalance listener"):
            check_listener(wrong)


def test_a_listener_nobody_would_await_is_refused() -> None:
    class Waits(ConsumerRebalanceListener):
        async def on_partitions_lost(  # type: ignore[override]
            self, lost: list[TopicPartition]
        ) -> None:
            raise AssertionError(lost)

    with pytest.raises(ConfigurationError, match=r"on_partitions_lost\(\) is a coroutine"):
        check_listener(Waits())
