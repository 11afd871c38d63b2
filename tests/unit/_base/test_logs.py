"""Loggers of kfast's modules: those of `logging`, safe against hostile names and handlers."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import kfast
from kfast._base.logs import get_logger
from kfast._base.threads import OwnThread

logger = get_logger("kfast.tests.logging")


def test_messages_are_those_of_the_standard_library(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kfast")
    logger.debug("a %s", 1)
    logger.info("b")
    logger.warning("c %d %d", 2, 3)
    logger.error("d", exc_info=ValueError("given"))
    logger.log(logging.INFO, "e")
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
        assert (record.name, record.filename) == ("kfast.tests.logging", "test_logs.py")
        assert record.funcName == "test_messages_are_those_of_the_standard_library"
    kinds = [each.exc_info[0] for each in caplog.records if each.exc_info]
    assert kinds == [ValueError, KeyError]


def test_levels_are_those_of_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "kfast")
    logger.info("not this")
    logger.warning("this")
    assert [each.getMessage() for each in caplog.records] == ["this"]


PROGRAM = """
import logging, sys
from kfast._base.logs import get_logger
logger = get_logger("kfast.x")
logger.error("before")
if sys.argv[1] == "configured":
    logging.basicConfig(format="%(name)s %(lineno)d %(message)s")
logger.warning("after")
logger.debug("never")
"""


@pytest.mark.parametrize(("how", "expected"), [("configured", "kfast.x 8 after\n"), ("not", "")])
def test_nothing_is_written_by_a_program_that_does_not_log(how: str, expected: str) -> None:
    """The logger "kfast" has a NullHandler, so that `logging` has no last resort."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    assert done.stderr == expected


class Raising(logging.Handler):
    def handle(self, record: logging.LogRecord) -> bool:
        raise ValueError(record.getMessage())


@pytest.fixture
def raising() -> Iterator[None]:
    """Have a handler of the program raise."""
    handler = Raising()
    logging.getLogger("kfast").addHandler(handler)
    yield
    logging.getLogger("kfast").removeHandler(handler)


@pytest.mark.usefixtures("raising")
def test_what_a_handler_raises_leaves_a_call_on_a_thread_of_the_program() -> None:
    """U-06: it is the program's own exception."""
    with pytest.raises(ValueError, match="for the program"):
        logger.warning("for the program")


@pytest.mark.usefixtures("raising")
@pytest.mark.parametrize("are_reported", [True, False])
def test_what_a_handler_raises_is_reported_on_a_thread_of_kfast(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, are_reported: bool
) -> None:
    """U-06: as `logging` does it, unless ``logging.raiseExceptions`` is off."""
    monkeypatch.setattr(logging, "raiseExceptions", are_reported)
    ended: list[bool] = []

    def target() -> None:
        logger.warning("of %s", "kfast")
        ended.append(True)

    thread = OwnThread(target, "kfast-test")
    thread.start()
    thread.join()
    assert ended == [True]
    err = capfd.readouterr().err
    assert ("ValueError: of kfast" in err) is are_reported
    assert ("--- Logging error ---" in err) is are_reported


def test_every_thread_of_kfast_is_an_own_thread() -> None:
    """U-06: none is started that a log handler could end."""
    threads = Path(kfast.__file__).parent / "threads"
    texts = {path.name: path.read_text(encoding="utf-8") for path in threads.glob("*.py")}
    assert not [name for name, text in texts.items() if "threading.Thread(target" in text]
    executors = [text for text in texts.values() if "ThreadPoolExecutor(" in text]
    assert all("enter_own_thread" in text for text in executors)


def test_control_characters_of_arguments_are_escaped(caplog: pytest.LogCaptureFixture) -> None:
    """U-05: a name, or a text of a broker, that looks like another line of the log."""
    logger.warning("group %s: %s %d", "a\nERROR root b", "\x1b[31m\x85ж\u2028", 5)
    assert caplog.messages == ["group a\\nERROR root b: \\x1b[31m\\x85ж\\u2028 5"]
