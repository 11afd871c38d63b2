"""Q-04: warnings of kfast are in the logs of Spark's Python processes."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import logging
import kfast
from kfast.spark.source.process_logs import log_to_stderr
{configured}
for _ in range(2):  # each task
    log_to_stderr()
logging.getLogger("kfast.spark.source.read_task").warning("read 5 records, 2 lost offsets")
logging.getLogger("kfast.spark.source.read_task").info("not this")
logging.getLogger("another").info("nor this")
"""


@pytest.mark.parametrize(
    "configured",
    ["", "logging.basicConfig()", "logging.getLogger('kfast').addHandler(logging.StreamHandler())"],
    ids=["nothing", "root", "kfast"],
)
def test_a_warning_is_written_once_whatever_is_configured(configured: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(configured=configured)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.endswith("read 5 records, 2 lost offsets")
