"""Properties of what group members exchange: it is read back, and no bytes break anything."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st

from kfast.errors import ProtocolError
from kfast.protocol.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kfast.types import TopicPartition
from tests.property.protocol_messages import damaged
from tests.soaking import examples

NAMES = st.text(max_size=4)
USER_DATA = st.none() | st.binary(max_size=6)
PARTITIONS = st.lists(
    st.builds(TopicPartition, NAMES, st.integers(0, 2**31 - 1)), unique=True, max_size=6
).map(sorted)
SUBSCRIPTIONS = st.builds(
    ConsumerProtocolSubscription,
    st.lists(NAMES, unique=True, max_size=4).map(sorted),
    USER_DATA,
    PARTITIONS,
    st.integers(-1, 2**31 - 1),
    st.none() | NAMES,
)
ASSIGNMENTS = st.builds(ConsumerProtocolAssignment, PARTITIONS, USER_DATA)


@examples(100)
@given(SUBSCRIPTIONS, ASSIGNMENTS, st.integers(0, 3))
def test_what_is_encoded_is_decoded(
    subscription: ConsumerProtocolSubscription,
    assignment: ConsumerProtocolAssignment,
    version: int,
) -> None:
    assert ConsumerProtocolSubscription.decode(subscription.encode()) == subscription
    assert ConsumerProtocolAssignment.decode(assignment.encode(version)) == assignment
    older = ConsumerProtocolSubscription.decode(subscription.encode(version))
    assert (older.topics, older.user_data) == (subscription.topics, subscription.user_data)


@examples(300)
@given(
    (SUBSCRIPTIONS | ASSIGNMENTS).map(lambda value: value.encode()).flatmap(damaged)
    | st.binary(max_size=40)
)
def test_damage_gives_sound_values_or_a_protocol_error(data: bytes) -> None:
    """G-19: whatever another member sends, partitions are valid and named once."""
    found: list[TopicPartition] = []
    with contextlib.suppress(ProtocolError):
        found += ConsumerProtocolSubscription.decode(data).owned_partitions
    assert len(found) == len(set(found))
    try:
        assigned = ConsumerProtocolAssignment.decode(data).partitions
    except ProtocolError:
        assigned = []
    assert len(assigned) == len(set(assigned))
    assert all(partition >= 0 for _, partition in [*found, *assigned])
