"""Waker: readable from a wakeup on until it is drained."""

from __future__ import annotations

import os
import resource
import select

import pytest

from kfast.network.waker import Waker


def is_readable(waker: Waker) -> bool:
    return bool(select.select([waker], [], [], 0)[0])


def test_a_wakeup_makes_it_readable_until_it_is_drained() -> None:
    """L-03: as often as it is called."""
    waker = Waker()
    assert not is_readable(waker)
    for _ in range(2):
        for _ in range(200):
            waker.wakeup()
        assert is_readable(waker)
        waker.drain()
        assert not is_readable(waker)
    assert not os.get_inheritable(waker.fileno())
    waker.close()


def test_closing_and_dropping_it_give_the_descriptors_back() -> None:
    """L-07: whoever ends it, and whatever is called afterwards."""
    before = len(os.listdir("/proc/self/fd"))
    for is_closed in (True, False):
        waker = Waker()
        assert len(os.listdir("/proc/self/fd")) == before + 2
        if is_closed:
            waker.close()
            waker.close()
            waker.wakeup()
            waker.drain()
            assert waker.fileno() == -1
        del waker
        assert len(os.listdir("/proc/self/fd")) == before


def test_no_descriptor_left_is_an_os_error() -> None:
    """Y-09: with the number of the error."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            Waker()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
