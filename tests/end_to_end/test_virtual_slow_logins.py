"""Log-ins at brokers that are slow or far away, in virtual time."""

from __future__ import annotations

import pytest

from kfast.protocol.api_keys import ApiKey
from kfast.testing.faults import Delay, NeverAnswer
from tests.end_to_end.virtual_logins import SETUP, attempts, consumer, look_up, secured


@pytest.mark.parametrize(
    ("api", "text"),
    [
        (ApiKey.API_VERSIONS, "accepted the connection but did not answer within 2.0 s"),
        (ApiKey.SASL_HANDSHAKE, "did not complete the SASL log-in within 2.0 s"),
    ],
)
def test_a_log_in_under_way_is_no_failed_connection(api: int, text: str) -> None:
    """Y-01: what is said of a server while it is still being waited for."""
    cluster = secured()
    cluster.faults.add(NeverAnswer(), api=api, times=None)
    reader = consumer(cluster)
    reader.run(2_000)
    assert text in str(reader.client.bootstrap_error())


def test_each_step_of_a_slow_log_in_has_the_whole_time() -> None:
    """Y-02: a far or loaded broker whose every answer takes three seconds and more."""
    cluster = secured()
    for api in SETUP:
        cluster.faults.add(Delay(4_500), api=api, times=None)
    reader = consumer(cluster)
    look_up(reader)
    assert reader.clock.now >= 5 * 4_500
    assert attempts(reader) == [0]


def test_a_log_in_that_goes_on_for_ever_ends() -> None:
    """Y-02: however many answers there are, the maximum of a connection attempt holds."""
    cluster = secured()
    for api in SETUP:
        cluster.faults.add(Delay(4_500), api=api, times=None)
    reader = consumer(
        cluster,
        socket_connection_setup_timeout_ms=5_000,
        socket_connection_setup_timeout_max_ms=10_000,
    )
    reader.run(11_000)
    assert "did not complete the SASL log-in within 10.0 s" in str(reader.client.bootstrap_error())
