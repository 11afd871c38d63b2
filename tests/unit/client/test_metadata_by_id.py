"""Metadata of topics that are known by id only, as a KIP-848 assignment names them."""

from __future__ import annotations

from typing import cast

import pytest

from kfast._native.buffers import copy_of
from kfast.client.metadata import Metadata, MetadataScope
from kfast.client.metadata_manager import MetadataManager
from kfast.client.request import ClientResponse, UnsentRequest
from kfast.errors import DisconnectError
from kfast.protocol.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseTopic,
)
from tests.fake_clock import FakeClock
from tests.unit.client.frames import metadata, partition, topic, topic_id
from tests.unit.configs import config

UNKNOWN_TOPIC_ID = 100
BY_ID = MetadataScope(frozenset({"t"}), frozenset({topic_id(8)}))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def view(clock: FakeClock) -> Metadata:
    """A client that knows topic t with id 7 and needs nothing."""
    made = Metadata(config(), clock)
    made.set_topics({"t"})
    made.update(metadata(topic("t", partition(0))), clock.now)
    return made


def unknown(number: int) -> MetadataResponse:
    return metadata(
        MetadataResponseTopic(
            error_code=UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id(number), partitions=[]
        )
    )


def test_an_id_without_a_name_is_looked_up_at_once(view: Metadata, clock: FakeClock) -> None:
    """K-05: the name is found, and the topic kept as long as its id is wanted."""
    view.set_topic_ids({topic_id(7), topic_id(8)})
    assert view.unresolved_topic_ids == {topic_id(8)}
    assert view.is_update_needed
    assert view.time_to_next_update(clock.now) == 0
    assert view.scope() == BY_ID
    assert view.update(metadata(topic("u", partition(0), id_number=8)), clock.now, scope=BY_ID)
    assert view.cluster.topic_names.get(topic_id(8)) == "u"
    is_update_needed: bool = view.is_update_needed
    assert (view.unresolved_topic_ids, is_update_needed) == (frozenset(), False)
    assert view.topics == frozenset({"t", "u"}), "refreshed by name from now on"
    assert set(view.cluster.topics) == {"t", "u"}
    view.set_topic_ids(())
    assert view.topics == frozenset({"t"})
    view.update(metadata(topic("t", partition(0))), clock.now, scope=MetadataScope(view.topics))
    assert set(view.cluster.topics) == {"t"}


def test_an_id_nobody_knows_is_asked_for_again_and_again(view: Metadata, clock: FakeClock) -> None:
    """K-05: with growing pauses; what is known by name stays, with its errors."""
    view.set_topics({"t", "x"})
    view.update(
        metadata(topic("t", partition(0)), topic("x", error=29)), clock.now, scope=view.scope()
    )
    view.read_topics = frozenset({"t"})
    view.set_topic_ids({topic_id(8)})
    waits = []
    for _ in range(6):
        assert view.scope().topic_ids == {topic_id(8)}
        view.update(unknown(8), clock.now, scope=view.scope())
        waits.append(view.time_to_next_update(clock.now))
        clock.advance(waits[-1])
    assert waits == [100, 200, 400, 800, 1000, 1000]
    assert set(view.cluster.topics) == {"t"}
    assert dict(view.topic_errors) == {"x": 29}
    view.set_topic_ids(())
    assert not view.is_update_needed


def test_names_and_ids_take_turns(view: Metadata, clock: FakeClock) -> None:
    """Neither waits for the other, also when the look-up by id fails."""
    view.set_topic_ids({topic_id(8)})
    view.request_update()
    assert view.scope() == BY_ID
    view.update(unknown(8), clock.now, scope=BY_ID)
    assert view.is_update_needed
    by_name = view.scope()
    assert by_name == MetadataScope(frozenset({"t"}))
    view.update(metadata(topic("t", partition(0))), clock.now, scope=by_name)
    assert view.scope() == BY_ID
    view.failed(DisconnectError("gone"), clock.now)
    assert view.scope() == by_name
    view.update(metadata(topic("t", partition(0))), clock.now, scope=by_name)
    assert view.scope() == BY_ID


def test_a_look_up_by_id_does_not_put_off_the_refresh_by_age(
    view: Metadata, clock: FakeClock
) -> None:
    view.set_topic_ids({topic_id(8)})
    clock.advance(299_000)
    view.update(metadata(topic("u", partition(0), id_number=8)), clock.now, scope=BY_ID)
    assert view.time_to_next_update(clock.now) == 1_000
    clock.advance(1_000)
    assert view.scope() == MetadataScope(frozenset({"t", "u"}))


def test_a_topic_created_anew_is_found_under_its_new_id(view: Metadata, clock: FakeClock) -> None:
    """The broker may tell the new id before metadata does."""
    view.set_topic_ids({topic_id(8)})
    view.update(metadata(topic("t", partition(0), id_number=8)), clock.now, scope=BY_ID)
    assert view.cluster.topic_id("t") == topic_id(8)
    view.update(metadata(topic("t", partition(0), id_number=7)), clock.now)
    assert view.cluster.topic_id("t") == topic_id(8), "a broker that is behind"


def test_all_topics_bring_the_names_along(view: Metadata, clock: FakeClock) -> None:
    view.set_topics(None)
    view.set_topic_ids({topic_id(8)})
    assert view.scope() == MetadataScope(None)
    view.update(metadata(topic("t", partition(0))), clock.now, scope=view.scope())
    assert view.is_update_needed, "not there yet"
    view.update(
        metadata(topic("t", partition(0)), topic("u", partition(0), id_number=8)),
        clock.now,
        scope=view.scope(),
    )
    assert not view.is_update_needed


def test_the_request_holds_ids_only_and_needs_version_12(view: Metadata, clock: FakeClock) -> None:
    """A broker ignores the names beside an id, and the ids below version 12."""
    view.set_topic_ids({topic_id(9), topic_id(8)})
    manager = MetadataManager(config(allow_auto_create_topics=True), view)
    (request,) = cast("list[UnsentRequest]", manager.poll(clock.advance(100)).requests)
    message = cast("MetadataRequest", request.message)
    assert [(t.topic_id, t.name) for t in message.topics or ()] == [
        (topic_id(8), None),
        (topic_id(9), None),
    ]
    assert not message.allow_auto_topic_creation
    assert request.min_version == 12
    message.encode(12)
    answer = metadata(topic("u", partition(0), id_number=8), topic("v", id_number=9))
    response = ClientResponse(answer, 12, 1, copy_of(b""), 1)
    manager.handle_response(request, response, clock.now)
    assert view.cluster.topic_names == {
        topic_id(n): name for n, name in ((7, "t"), (8, "u"), (9, "v"))
    }
