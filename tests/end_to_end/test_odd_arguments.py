"""Odd values at every public method: refused at the call, and the consumer works on."""

from __future__ import annotations

import contextlib
import copy
import enum
import math
import pickle
import re
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
import pytest

import kfast
from kfast import KafkaConsumer, OffsetAndMetadata, SubscriptionPattern, TopicPartition
from kfast.errors import ConfigurationError, IllegalStateError, KafkaError
from tests.end_to_end.stage import Stage, offsets, read
from tests.end_to_end.virtual import T0, make_cluster

MakeStage = Callable[..., Stage]


class Name(enum.StrEnum):
    TOPIC = "t"


NUMBERS: Final = (True, -1, 1 << 31, 1 << 63, 1 << 70, 1.5, math.nan, np.int64(3), np.array([1, 2]))
TEXTS: Final = ("", "t", "a\ud800", "a\nb", "x" * 40_000, b"t", Name.TOPIC)
OTHERS: Final[tuple[Any, ...]] = (
    object(),
    int,
    lambda: 1,
    re.compile(b"t"),
    re.compile("t"),
    range(3),
    [None],
    {},
)
PARTITIONS: Final = (
    ("t", 1 << 31),
    ("t", -1),
    ("t", True),
    ("t", np.array([1, 2])),
    ("t", np.array([1.5])),
    ("t", "0"),
    ["t", 0],
    (b"t", 0),
    ("a\ud800", 0),
    TopicPartition("t", 1 << 63),
    ("t", 0, 0),
)
OFFSETS: Final = (
    OffsetAndMetadata(1, "", None),  # type: ignore[arg-type]
    OffsetAndMetadata(1, "", 1 << 31),
    OffsetAndMetadata(1, "", "0"),  # type: ignore[arg-type]
    OffsetAndMetadata(1 << 63),
    OffsetAndMetadata(-1),
    OffsetAndMetadata(None),  # type: ignore[arg-type]
    OffsetAndMetadata(np.array([1, 2])),  # type: ignore[arg-type]
    OffsetAndMetadata(1, "a\ud800"),
    OffsetAndMetadata(1, "x" * 40_000),
    OffsetAndMetadata(1, b""),  # type: ignore[arg-type]
    (1, "", -1, 0),
    (),
)
VALUES: Final = (*NUMBERS, *TEXTS, *OTHERS, *PARTITIONS, *OFFSETS, None)
SHORT: Final = tuple(each for each in VALUES if not (isinstance(each, int) and each > 1_000))
LISTS: Final = (*VALUES, *([each] for each in PARTITIONS))


def hashable(values: Iterable[Any]) -> list[Any]:
    found = []
    for each in values:
        with contextlib.suppress(TypeError):
            hash(each)
            found.append(each)
    return found


OF_PARTITIONS: Final = [{each: 1} for each in hashable(PARTITIONS)]
OF_T0: Final = [{T0: each} for each in (*NUMBERS, *TEXTS, *OTHERS, *OFFSETS, None)]

CALLS: Final[dict[str, tuple[Callable[[KafkaConsumer, Any], object], Iterable[Any]]]] = {
    "subscribe": (lambda c, value: c.subscribe(value), LISTS),
    "subscribe pattern": (
        lambda c, value: c.subscribe(pattern=value),
        (*VALUES, SubscriptionPattern("a\ud800"), SubscriptionPattern("t")),
    ),
    "subscribe listener": (lambda c, value: c.subscribe(["t"], listener=value), VALUES),
    "assign": (lambda c, value: c.assign(value), LISTS),
    "poll": (lambda c, value: c.poll(value), SHORT),
    "poll max_records": (lambda c, value: c.poll(0, value), VALUES),
    "poll update_offsets": (lambda c, value: c.poll(0, None, value), (0, None, "")),
    "batches": (lambda c, value: c.batches(value), VALUES),
    "position": (lambda c, value: c.position(value), VALUES),
    "position timeout": (lambda c, value: c.position(T0, value), VALUES),
    "seek": (lambda c, value: c.seek(value, 0), VALUES),
    "seek offset": (lambda c, value: c.seek(T0, value), VALUES),
    "seek_to_beginning": (lambda c, value: c.seek_to_beginning(value), VALUES),
    "seek_to_end": (lambda c, value: c.seek_to_end(value), VALUES),
    "pause": (lambda c, value: c.pause(value), VALUES),
    "resume": (lambda c, value: c.resume(value), VALUES),
    "highwater": (lambda c, value: c.highwater(value), VALUES),
    "current_lag": (lambda c, value: c.current_lag(value), VALUES),
    "commit": (lambda c, value: c.commit(value), (*VALUES, *OF_PARTITIONS, *OF_T0)),
    "commit timeout": (lambda c, value: c.commit({T0: 1}, value), VALUES),
    "commit_async": (lambda c, value: c.commit_async(value), (*VALUES, *OF_PARTITIONS, *OF_T0)),
    "commit_async callback": (lambda c, value: c.commit_async({T0: 1}, value), VALUES),
    "committed": (lambda c, value: c.committed(value), LISTS),
    "enforce_rebalance": (lambda c, value: c.enforce_rebalance(value), VALUES),
    "beginning_offsets": (lambda c, value: c.beginning_offsets(value), LISTS),
    "end_offsets": (lambda c, value: c.end_offsets(value), LISTS),
    "offsets_for_times": (
        lambda c, value: c.offsets_for_times(value),
        (*VALUES, *OF_PARTITIONS, *OF_T0),
    ),
    "partitions_for_topic": (lambda c, value: c.partitions_for_topic(value), VALUES),
    "topics": (lambda c, value: c.topics(value), VALUES),
    "close timeout": (lambda c, value: c.close(value, operation="?"), VALUES),  # type: ignore[arg-type]
    "close autocommit": (lambda c, value: c.close(1.5, autocommit=value), VALUES),  # type: ignore[arg-type]
    "close operation": (lambda c, value: c.close(operation=value), VALUES),
}


@pytest.mark.parametrize("name", CALLS)
def test_odd_values_are_refused_at_the_call(make_stage: MakeStage, name: str) -> None:
    """U-01: a KafkaError at the call or none, never one of the network thread, and no harm."""
    call, values = CALLS[name]
    stage = make_stage(
        make_cluster(nodes=1),
        group_id="g",
        default_api_timeout_ms=400,
        request_timeout_ms=300,
        enable_auto_commit=False,
    )
    consumer = stage.consumer()
    if name.startswith("enforce"):
        consumer.subscribe(["t"])
    else:
        consumer.assign([T0])
    read(consumer, 1)
    raised = []
    for value in values:
        if name.startswith(("subscribe", "assign")):
            consumer.unsubscribe()
        try:
            call(consumer, value)
            if name.startswith(("subscribe", "enforce")):
                consumer.poll(timeout_ms=5)
        except KafkaError as error:
            raised.append(str(error))
    assert not [text for text in raised if "thread" in text or "internal" in text]
    assert "t" in consumer.topics(timeout_ms=10_000)  # the network thread goes on
    consumer.unsubscribe()
    consumer.assign([T0])
    consumer.seek(T0, 0)
    assert offsets(read(consumer, 20)) == list(range(20))


@pytest.mark.parametrize(
    "call",
    [
        lambda c: c.offsets_for_times({T0: 1 << 63}),
        lambda c: c.seek(T0, 1 << 63),
        lambda c: c.seek(T0, OffsetAndMetadata(1, "", None)),  # type: ignore[arg-type]
        lambda c: c.seek(T0, OffsetAndMetadata(1, "", 1 << 31)),
        lambda c: c.commit({T0: 1 << 63}),
        lambda c: c.commit({T0: OffsetAndMetadata(1, "", None)}),  # type: ignore[arg-type]
        lambda c: c.commit({T0: OffsetAndMetadata(1, "", 1 << 31)}),
        lambda c: c.commit({T0: OffsetAndMetadata(1, "a\ud800")}),
        lambda c: c.committed([("t", 1 << 31)]),
        lambda c: c.end_offsets([("t", 1 << 31)]),
        lambda c: c.enforce_rebalance(5),
        lambda c: c.subscribe(pattern=re.compile(b"t")),
        lambda c: c.subscribe(pattern=SubscriptionPattern("\ud800")),
        lambda c: c.subscribe(None),
        lambda c: c.close(autocommit="no"),
    ],
)
def test_what_the_protocol_cannot_carry_is_a_configuration_error(
    call: Callable[[Any], object],
) -> None:
    """U-02: numbers beyond their width and texts that are not UTF-8, before anything is sent."""
    with KafkaConsumer(bootstrap_servers="localhost:1", group_id="g") as consumer:
        with pytest.raises(ConfigurationError) as caught:
            call(consumer)
        assert caught.value.hint


def test_names_of_an_enum_are_taken_by_their_value(make_stage: MakeStage) -> None:
    """U-01: a subclass of str is the text that it is."""
    consumer = make_stage(make_cluster(nodes=1)).consumer()
    consumer.subscribe([Name.TOPIC])
    assert len(read(consumer, 20)) == 1
    assert consumer.assignment() == {T0}
    assert all(type(tp.topic) is str for tp in consumer.assignment())


@pytest.mark.parametrize(
    "act", [copy.copy, copy.deepcopy, pickle.dumps], ids=["copy", "deepcopy", "pickle"]
)
def test_a_consumer_is_not_copied(make_stage: MakeStage, act: Callable[[Any], object]) -> None:
    """U-03: the copy would share sockets and threads; the consumer itself reads on."""
    consumer = make_stage(make_cluster(nodes=1)).consumer("t")
    read(consumer, 20)
    with pytest.raises(IllegalStateError, match="cannot be copied or pickled") as caught:
        act(consumer)
    assert "ConsumerConfig" in (caught.value.hint or "")
    consumer.seek(T0, 0)
    read(consumer, 20)
    config = kfast.ConsumerConfig(bootstrap_servers="b1")
    assert pickle.loads(pickle.dumps(config)).bootstrap_servers == (("b1", 9092),)
