"""The fake broker's assignors: whole, legal, even, and no more movement than needed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_broker.server_assignors import (
    SERVER_ASSIGNORS,
    AssignorInput,
    assign_range,
    assign_uniform,
)
from tests.soaking import examples

TOPICS = (b"t", b"u", b"v")
INPUTS = st.builds(
    AssignorInput,
    st.dictionaries(st.sampled_from("abcde"), st.frozensets(st.sampled_from(TOPICS)), min_size=1),
    st.dictionaries(st.sampled_from(TOPICS), st.integers(0, 6)),
    st.dictionaries(
        st.sampled_from("abcdef"),
        st.frozensets(st.tuples(st.sampled_from(TOPICS), st.integers(0, 8))),
    ),
)


def parts(topic: bytes, *numbers: int) -> set[tuple[bytes, int]]:
    return {(topic, number) for number in numbers}


@pytest.mark.parametrize("name", sorted(SERVER_ASSIGNORS))
@examples(200)
@given(given_=INPUTS)
def test_every_partition_goes_to_one_subscriber(name: str, given_: AssignorInput) -> None:
    found = SERVER_ASSIGNORS[name](given_)
    assert set(found) == set(given_.subscriptions)
    handed_out = [one for partitions in found.values() for one in partitions]
    wanted = frozenset[bytes]().union(*given_.subscriptions.values())
    expected = {
        (t, n) for t, count in given_.partitions.items() if t in wanted for n in range(count)
    }
    assert len(handed_out) == len(expected)
    assert set(handed_out) == expected
    for member, partitions in found.items():
        assert {topic for topic, _ in partitions} <= given_.subscriptions[member]


@examples(200)
@given(INPUTS)
def test_uniform_is_even_and_stays_as_it_is(given_: AssignorInput) -> None:
    found = assign_uniform(given_)
    for partitions in found.values():
        for other in found:
            movable = [one for one in partitions if one[0] in given_.subscriptions[other]]
            assert not movable or len(partitions) <= len(found[other]) + 1
    again = AssignorInput(given_.subscriptions, given_.partitions, found)
    assert assign_uniform(again) == found


def test_uniform_moves_only_what_it_must() -> None:
    topics = frozenset({b"t"})
    alone = {"a": frozenset(parts(b"t", 0, 1, 2, 3))}
    both = AssignorInput({"a": topics, "b": topics}, {b"t": 4}, alone)
    assert assign_uniform(both) == {"a": parts(b"t", 0, 1), "b": parts(b"t", 2, 3)}


def test_range_gives_runs() -> None:
    both, one = frozenset({b"t", b"u"}), frozenset({b"t"})
    given_ = AssignorInput({"a": both, "b": one}, {b"t": 5, b"u": 2}, {})
    expected = {"a": parts(b"t", 0, 1, 2) | parts(b"u", 0, 1), "b": parts(b"t", 3, 4)}
    assert assign_range(given_) == expected
