"""Rules between settings: order of time-outs, groups, refusals, values that depend on others."""

from __future__ import annotations

import re
import threading

import pytest

from tests.unit.configs import config, refusal


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"fetch.max.wait.ms": 30000},
            "fetch.max.wait.ms (30000) must be less than request_timeout_ms (30000)",
        ),
        (
            {"request_timeout_ms": 400},
            "fetch_max_wait_ms (500) must be less than request_timeout_ms (400)",
        ),
        (
            {"request_timeout_ms": 540000},
            "request_timeout_ms (540000) must be less than connections_max_idle_ms (540000)",
        ),
        (
            {"default.api.timeout.ms": 29999},
            "request_timeout_ms (30000) must be at most default.api.timeout.ms (29999)",
        ),
        (
            {"heartbeat_interval_ms": 45000},
            "heartbeat_interval_ms (45000) must be less than session_timeout_ms (45000)",
        ),
    ],
)
def test_times_in_order(settings: dict[str, object], message: str) -> None:
    """E-02: broken cross rules raise at construction, naming both settings and values."""
    lines = refusal(settings).splitlines()
    assert lines[0] == message
    assert lines[-1].startswith("try: lower ")


def test_idle_connections_may_be_kept_for_ever() -> None:
    assert config(connections_max_idle_ms=-1).connections_max_idle_ms == -1


def test_api_timeout_follows_the_request_timeout_when_not_given() -> None:
    assert config(request_timeout_ms=305_000).default_api_timeout_ms == 305_000
    assert config(request_timeout_ms=10_000).default_api_timeout_ms == 60_000
    same = config(request_timeout_ms=20_000, default_api_timeout_ms=20_000)
    assert same.default_api_timeout_ms == 20_000


def test_a_maximum_below_its_base_gives_way() -> None:
    value = config(reconnect_backoff_ms=5000, retry_backoff_ms=7000)
    assert (value.reconnect_backoff_max_ms, value.retry_backoff_max_ms) == (5000, 7000)
    value = config(reconnect_backoff_ms=50, reconnect_backoff_max_ms=10)
    assert value.reconnect_backoff_max_ms == 50


def test_auto_commit_needs_a_group() -> None:
    """A-05, E-02: off by default without group_id, an error when switched on."""
    assert config().enable_auto_commit is False
    assert config(enable_auto_commit=False).enable_auto_commit is False
    assert "group_id is not set" in refusal({"enable.auto.commit": "true"})


def test_a_group_needs_a_name() -> None:
    """E-02: the id of a group is a text that is not empty, and a static member needs one."""
    assert config({"group.id": "g"}).enable_auto_commit is True
    assert config(group_id=None).group_id is None
    assert "bad value for group.id: ''" in refusal({"group.id": ""})
    assert "bad value for group_id: 5" in refusal(group_id=5)
    assert "cause: 32768 bytes of UTF-8" in refusal(group_id="é" * 16_384)
    assert len(config(group_id="g" * 32_767).client_id) < 250  # it fits beside the group
    assert refusal(group_instance_id="me").splitlines() == [
        "group_instance_id needs a consumer group",
        "cause: group_id is not set",
        "try: set group_id, or leave group_instance_id out",
    ]
    text = refusal(group_id="g", heartbeat_interval_ms=45_000)
    assert "heartbeat_interval_ms (45000) must be less than session_timeout_ms (45000)" in text


@pytest.mark.parametrize(
    "name", ["session.timeout.ms", "heartbeat_interval_ms", "partition_assignment_strategy"]
)
def test_what_the_broker_decides_is_refused_beside_the_new_protocol(name: str) -> None:
    """E-02, K-11: settings of the classic protocol do not go with group_protocol=consumer."""
    value = "range" if name.startswith("partition") else 1000
    text = refusal({name: value, "group_protocol": "Consumer"})
    assert text.startswith(f"{name} cannot be set with group_protocol=consumer")
    assert config(group_protocol="consumer").group_protocol == "consumer"


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "é", "x" * 250, 5])
def test_the_name_of_a_static_member_is_one_that_a_topic_could_have(name: object) -> None:
    """E-02: a broker would refuse it with every heartbeat (KIP-345)."""
    assert "bad value for group_instance_id" in refusal(group_id="g", group_instance_id=name)
    legal = "A-z_0.9" + "x" * 242
    assert config(group_id="g", group_instance_id=legal).group_instance_id == legal


def test_remote_assignor_needs_the_new_protocol() -> None:
    """E-02, K-11: with the classic protocol a member assigns."""
    text = refusal(group_remote_assignor="uniform")
    assert text.startswith("group_remote_assignor needs group_protocol=consumer")
    value = config(group_remote_assignor="uniform", group_protocol="consumer")
    assert value.group_remote_assignor == "uniform"


def test_what_this_version_does_not_support_is_refused() -> None:
    """E-02, E-11: a setting that could not be honoured is never silently ignored."""
    for setting in ({"metric.reporters": [object()]}, {"enable_metrics_push": True}):
        text = refusal(setting)
        assert "is not supported" in text
        assert "call metrics()" in text
    assert config(metric_reporters=[], enable_metrics_push=False).metric_reporters == ()
    assert "proxy_url is not supported" in refusal(proxy_url="http://u:pw@p")


def test_receive_cap_leaves_room_for_what_the_fetch_limits_allow() -> None:
    """Frames of fetch_max_bytes and one whole batch more are accepted."""
    mib = 1 << 20
    assert config().receive_message_max_bytes == 100_000_000
    big = config(fetch_max_bytes=200 * mib, max_partition_fetch_bytes=2 * mib)
    assert big.receive_message_max_bytes == 203 * mib
    small = config(
        fetch_max_bytes=1, max_partition_fetch_bytes=2, receive_message_max_bytes=2 * mib
    )
    assert small.receive_message_max_bytes == 2 * mib
    assert config(receive_message_max_bytes=5).receive_message_max_bytes == 52428800 + 2 * mib
    huge = config(fetch_max_bytes=2**31 - 1, max_partition_fetch_bytes=2**31 - 1)
    assert huge.receive_message_max_bytes == 2**31 - 1


def test_decode_threads_is_always_a_number() -> None:
    assert 1 <= config().decode_threads <= 4
    assert 1 <= config(decode_threads=None).decode_threads <= 4
    assert config(decode_threads=0).decode_threads == 0
    assert config(decode_threads=9).decode_threads == 9


def test_client_ids_are_made_up_and_differ() -> None:
    first, second = config().client_id, config(client_id="").client_id
    assert re.fullmatch(r"kfast-\d+", first)
    assert re.fullmatch(r"kfast-\d+", second)
    assert first != second
    assert config(client_id="app").client_id == "app"


def test_client_ids_differ_between_threads() -> None:
    seen: list[str] = []
    workers = [
        threading.Thread(target=lambda: seen.extend(config().client_id for _ in range(50)))
        for _ in range(4)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(set(seen)) == 200
