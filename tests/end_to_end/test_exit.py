"""A consumer at the end of its process: closed by a function of the program's, or by nobody."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from kfast.protocol.api_keys import ApiKey
from tests.end_to_end.groups import cluster_of, committed
from tests.end_to_end.stage import Stage

MakeStage = Callable[..., Stage]

PROGRAM = """
import atexit
import kfast
{register_first}
consumer = kfast.KafkaConsumer(
    "t", bootstrap_servers="{servers}", group_id="g", auto_offset_reset="earliest"
)
{register_last}
count = 0
while count < 20:
    count += consumer.poll(timeout_ms=1_000).count()
print(count)
"""
CLOSE = "atexit.register(lambda: consumer.close())"


@pytest.mark.parametrize("when", ["register_first", "register_last"])
def test_a_function_of_atexit_closes_a_consumer(make_stage: MakeStage, when: str) -> None:
    """X-04: it commits and leaves, also if it was registered before there was a consumer."""
    cluster = cluster_of()
    stage = make_stage(cluster)
    program = PROGRAM.format(
        servers=stage.server.bootstrap_servers,
        **{name: CLOSE if name == when else "" for name in ("register_first", "register_last")},
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("20\n", "", 0)
    assert committed(cluster) == {0: 10, 1: 10}
    assert cluster.requests.wait_for(lambda log: len(log.select(ApiKey.LEAVE_GROUP)) == 1)


def test_a_consumer_that_nobody_closes_holds_no_process_up(make_stage: MakeStage) -> None:
    """L-07: its threads end with the interpreter."""
    program = PROGRAM.format(
        servers=make_stage(cluster_of()).server.bootstrap_servers,
        register_first="",
        register_last="",
    )
    ended = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ended.stdout, ended.stderr, ended.returncode) == ("20\n", "", 0)
