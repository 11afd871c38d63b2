"""Loggers that import `logging` only where somebody else has: the messages are the usual ones."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest

from kfast import _logging

logger = _logging.Logger("kfast.tests.logging")


def test_messages_are_those_of_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kfast")
    logger.debug("a %s", 1)
    logger.info("b")
    logger.warning("c %d %d", 2, 3)
    logger.error("d", exc_info=ValueError("given"))
    logger.log(_logging.INFO, "e")
    try:
        raise KeyError("raised")
    except KeyError:
        logger.exception("f")
    found = [(each.levelname, each.getMessage()) for each in caplog.records]
    assert found == [
        ("DEBUG", "a 1"),
        ("INFO", "b"),
        ("WARNING", "c 2 3"),
        ("ERROR", "d"),
        ("INFO", "e"),
        ("ERROR", "f"),
    ]
    for record in caplog.records:
        assert (record.name, record.filename) == ("kfast.tests.logging", "test_logging.py")
        assert record.funcName == "test_messages_are_those_of_the_standard_library"
    kinds = [each.exc_info[0] for each in caplog.records if each.exc_info]
    assert kinds == [ValueError, KeyError]


def test_levels_are_those_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kfast")
    logger.info("not this")
    logger.warning("this")
    assert [each.getMessage() for each in caplog.records] == ["this"]


PROGRAM = """
import sys
from kfast._logging import Logger
logger = Logger("kfast.x")
logger.error("before")
assert "logging" not in sys.modules
import logging
if sys.argv[1] == "configured":
    logging.basicConfig(format="%(name)s %(lineno)d %(message)s")
logger.warning("after")
logger.debug("never")
"""


@pytest.mark.parametrize(("how", "expected"), [("configured", "kfast.x 10 after\n"), ("not", "")])
def test_nothing_is_written_by_a_program_that_does_not_log(how: str, expected: str) -> None:
    """The logger "kfast" has a NullHandler, so that `logging` has no last resort."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    assert done.stderr == expected
