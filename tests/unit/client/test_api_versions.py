"""NodeApiVersions and the ApiVersions handshake."""

from __future__ import annotations

import re

import pytest

from kfast.client.api_versions import (
    ApiVersionsHandshake,
    NodeApiVersions,
    newest_version_of_release,
    software_version,
)
from kfast.client.cluster import Node
from kfast.errors import KafkaError, ProtocolError, UnsupportedVersionError
from kfast.protocol.api_keys import API_VERSIONS, ApiKey
from kfast.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from kfast.testing.releases import RELEASES
from tests.unit.client.frames import body

NODE = Node(3, "b3", 9092)
PATTERN = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def offer(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=ApiKey[name.upper()], min_version=low, max_version=high)
            for name, (low, high) in ranges.items()
        ]
    )


def refusal(highest: int | None) -> ApiVersionsResponse:
    answer = ApiVersionsResponse(error_code=35)
    if highest is not None:
        answer.api_keys = [ApiVersion(api_key=18, min_version=0, max_version=highest)]
    return answer


# --- choice ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("broker", "expected"), [((0, 12), 12), ((4, 18), 18), ((0, 30), 18), ((0, 10), 10)]
)
def test_the_highest_common_version(broker: tuple[int, int], expected: int) -> None:
    """N-01: min of both maxima."""
    versions = NodeApiVersions({1: broker})
    assert versions.usable_version(1, "Fetch", 10, 18, NODE) == expected


@pytest.mark.parametrize("broker", [(0, 9), (19, 20), None])
def test_ranges_that_do_not_meet(broker: tuple[int, int] | None) -> None:
    """N-01: names the API, both ranges and the node, and only when the API is asked for."""
    versions = NodeApiVersions({} if broker is None else {1: broker})
    with pytest.raises(UnsupportedVersionError) as caught:
        versions.usable_version(1, "Fetch", 10, 18, NODE)
    error = caught.value
    assert (error.api, error.client_range, error.broker_range) == ("Fetch", (10, 18), broker)
    assert error.node == 3
    assert "Fetch" in str(error)
    assert "10 to 18" in str(error)
    assert str(error).startswith("broker 3 (b3:9092) does not support Fetch ")


def test_a_controller_listener_is_named_by_its_address() -> None:
    """E-04: an address of bootstrap_servers without the API of metadata is a controller's."""
    versions = NodeApiVersions({18: (0, 4), 60: (0, 2)})
    with pytest.raises(UnsupportedVersionError) as caught:
        versions.usable_version(ApiKey.METADATA, "Metadata", 9, 13, Node(-1, "c1", 9093))
    assert str(caught.value).splitlines() == [
        "c1:9093 does not support Metadata versions 9 to 13",
        "cause: it looks like a controller listener, which has no topics",
        "try: give bootstrap_servers the listener of a broker, usually port 9092",
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_every_release_can_be_consumed_from(release: str) -> None:
    """N-03: brokers 2.1 to 4.3 offer a usable version of every API kfast speaks.

    Except those of KIP-848 groups, which came with 3.7 and are not needed for classic groups.
    """
    versions = NodeApiVersions(RELEASES[release])
    for key, (low, high) in API_VERSIONS.items():
        if key not in RELEASES[release]:
            assert key in {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE}
            assert release in {"2.1", "2.8", "3.5"}
            assert newest_version_of_release(key, tuple(map(int, release.split(".")))) == -1
            continue
        chosen = versions.usable_version(key, key.name, low, high, NODE)
        broker_low, broker_high = RELEASES[release][key]
        assert max(low, broker_low) <= chosen <= min(high, broker_high)
        major, minor = map(int, release.split("."))
        if key is not ApiKey.API_VERSIONS:
            assert newest_version_of_release(key, (major, minor)) == chosen


def test_a_release_as_ceiling() -> None:
    assert newest_version_of_release(ApiKey.FETCH, (2, 1)) == 10
    assert newest_version_of_release(ApiKey.FETCH, (3, 1, 0)) == 13
    assert newest_version_of_release(ApiKey.FETCH, (9,)) == 18
    assert newest_version_of_release(ApiKey.FETCH, (2,)) == 10
    assert newest_version_of_release(999, (3, 1)) is None


# --- handshake ------------------------------------------------------------------------------------


def test_the_newest_version_is_asked_first() -> None:
    """N-02: version 4, with name and version of the software."""
    handshake = ApiVersionsHandshake("1.2.3")
    assert handshake.version == 4
    request = handshake.request()
    assert request.client_software_name == "kfast"
    assert request.client_software_version == "1.2.3"
    answer = offer(fetch=(4, 18))
    answer.throttle_time_ms = 20
    answer.finalized_features = [
        FinalizedFeatureKey(name="group.version", max_version_level=1, min_version_level=1)
    ]
    assert handshake.receive(body(answer, 4), 0, 1)
    assert handshake.result is not None
    assert handshake.result.ranges == {1: (4, 18)}
    assert handshake.result.finalized_features == {"group.version": 1}
    assert 1 in handshake.result.ranges
    assert 3 not in handshake.result.ranges
    assert handshake.throttle_ms == 20
    assert handshake.max_version_after_success() == 0


@pytest.mark.parametrize(("highest", "next_version"), [(3, 3), (2, 2), (0, 0), (None, 0)])
def test_a_refusal_is_read_as_version_0(highest: int | None, next_version: int) -> None:
    """N-02: retried once with the broker's newest, or 0 if it does not say (before 2.4)."""
    handshake = ApiVersionsHandshake("1")
    assert not handshake.receive(body(refusal(highest), 0), 0, 1)
    assert handshake.version == next_version
    sent = handshake.request()
    assert bool(sent.client_software_name) == (next_version >= 3)
    assert handshake.receive(body(offer(fetch=(0, 10)), next_version), 0, 1)


@pytest.mark.parametrize("highest", [4, 9])
def test_only_a_strictly_lower_version_is_tried(highest: int) -> None:
    """N-02: no loop with a broker that refuses what it offers."""
    handshake = ApiVersionsHandshake("1")
    with pytest.raises(KafkaError) as caught:
        handshake.receive(body(refusal(highest), 0), 0, 1)
    assert caught.value.code == 35


def test_it_is_tried_once_only() -> None:
    """N-02: a second refusal ends it."""
    handshake = ApiVersionsHandshake("1")
    assert not handshake.receive(body(refusal(3), 0), 0, 1)
    with pytest.raises(KafkaError):
        handshake.receive(body(refusal(2), 0), 0, 1)


def test_a_refused_software_name_is_left_out() -> None:
    """N-02: error 42 comes in the version asked."""
    handshake = ApiVersionsHandshake("1")
    assert not handshake.receive(body(ApiVersionsResponse(error_code=42), 4), 0, 1)
    assert handshake.version == 2


def test_a_close_leads_to_version_0_and_back() -> None:
    """N-02: servers that close on a version they do not know; and those that close on all."""
    assert ApiVersionsHandshake("1").max_version_after_close() == 0
    assert ApiVersionsHandshake("1", 0).max_version_after_close() is None


def test_version_0_is_kept_only_where_it_was_needed() -> None:
    for highest, kept in ((4, None), (2, 2), (0, 0)):
        handshake = ApiVersionsHandshake("1", 0)
        answer = offer(fetch=(4, 18), api_versions=(0, highest))
        assert handshake.receive(body(answer, 0), 0, 1)
        assert handshake.max_version_after_success() == kept


def test_an_empty_offer_is_no_offer() -> None:
    with pytest.raises(ProtocolError):
        ApiVersionsHandshake("1").receive(body(ApiVersionsResponse(), 4), 0, 1)


@pytest.mark.parametrize(
    "version", ["0.1.0", "1.0+local.7", "1_0", "1.0-", "+", "", "...", "1.0.dev3+g12_ab-", "é"]
)
def test_the_software_version_fits_the_pattern(version: str) -> None:
    """N-02: whatever the packaging made of the version."""
    assert PATTERN.fullmatch(software_version(version))
