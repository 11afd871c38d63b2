"""Monkey patching: a consumer that cannot work is refused when it is made."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

import kfast
from kfast.errors import ConfigurationError
from kfast.network.network_io import check_monkey_patching

GEVENT_ALL = {"_thread", "threading", "select", "selectors", "socket", "ssl", "queue", "os"}
EVENTLET_ALL = {"thread", "select", "socket", "os", "time"}


def patch(monkeypatch: pytest.MonkeyPatch, library: str, names: set[str]) -> None:
    """Make a library that has patched these modules."""
    module, function = {
        "gevent": ("gevent.monkey", "is_module_patched"),
        "eventlet": ("eventlet.patcher", "is_monkey_patched"),
    }[library]
    stub = SimpleNamespace(**{function: names.__contains__})
    monkeypatch.setitem(sys.modules, module, stub)


@pytest.mark.parametrize(
    ("library", "names", "words"),
    [
        ("gevent", GEVENT_ALL, "patch_all(thread=False, select=False)"),
        ("eventlet", EVENTLET_ALL, "monkey_patch(thread=False)"),
    ],
)
def test_a_consumer_on_green_threads_is_refused(
    monkeypatch: pytest.MonkeyPatch, library: str, names: set[str], words: str
) -> None:
    """Y-11: when it is made, with what works."""
    patch(monkeypatch, library, names)
    with pytest.raises(ConfigurationError) as refused:
        kfast.KafkaConsumer("t", bootstrap_servers="localhost:9092")
    assert library in refused.value.message
    assert words in (refused.value.hint or "")


@pytest.mark.parametrize(
    ("library", "names", "has_tls", "works"),
    [
        ("gevent", GEVENT_ALL - {"_thread", "threading", "select", "selectors"}, True, True),
        ("gevent", GEVENT_ALL - {"_thread", "threading"}, False, False),
        ("gevent", {"select"}, False, False),
        ("gevent", set(), True, True),
        ("eventlet", EVENTLET_ALL - {"thread"}, False, True),
        ("eventlet", EVENTLET_ALL - {"thread"}, True, False),
        ("eventlet", EVENTLET_ALL - {"thread", "socket"}, True, True),
    ],
)
def test_only_what_does_not_work_is_refused(
    monkeypatch: pytest.MonkeyPatch, library: str, names: set[str], has_tls: bool, works: bool
) -> None:
    """Y-11: with other modules patched a consumer blocks the thread that calls it, and works."""
    patch(monkeypatch, library, names)
    if works:
        check_monkey_patching(has_tls=has_tls)
        return
    with pytest.raises(ConfigurationError):
        check_monkey_patching(has_tls=has_tls)
