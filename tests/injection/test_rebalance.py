"""A handler raises at every place of polls with a rebalance: members and records go on."""

from __future__ import annotations

import pytest

from kfast.testing.server import BrokerServer
from tests.injection.interrupter import OWN_KINDS, Interrupter
from tests.injection.members import PROTOCOLS, Pair
from tests.injection.readers import quick_cluster

TRIES = 3
"""Rebalances until one passes the place."""


@pytest.mark.soak
@pytest.mark.parametrize("kind", OWN_KINDS)
@pytest.mark.parametrize("end", ["caught", "not caught"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_rebalances_are_completed(protocol: str, end: str, kind: str) -> None:
    """I-02: every step is done once, whatever interrupts it, and all records are read."""
    interrupter = Interrupter(kind)
    findings = interrupter.findings
    with BrokerServer(quick_cluster(0)) as server, interrupter.installed():
        pair = Pair(server, interrupter, protocol)
        try:
            passes = pair.recorded()
            findings.check()
            for place in interrupter.places(passes, suite=12, soak=200):
                for _ in range(TRIES):
                    if not pair.rebalance(place, is_caught=end == "caught"):
                        pair.close()
                        pair = Pair(server, interrupter, protocol)
                        break
                    if pair.is_sent:
                        break
                if findings.is_enough:
                    break
        finally:
            pair.close()
    assert findings.tried > 5
    findings.check()
