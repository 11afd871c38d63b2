"""OneTimeCall and CallDepth: calls that are noted as they happen."""

from __future__ import annotations

import pytest

from kfast._runtime.one_time_call import CallDepth, OneTimeCall


def test_a_call_is_made_once_and_keeps_what_it_raises() -> None:
    """I-02: what surrounds it may be tried again."""
    calls: list[tuple[object, ...]] = []

    def call(*arguments: object) -> None:
        calls.append((*arguments, once.is_begun, once.is_running))
        once.run(call, "nested")
        raise KeyboardInterrupt

    once = OneTimeCall()
    assert repr(once) == "<OneTimeCall due>"
    assert not once.is_begun
    once.run(call, 1, 2)
    once.run(call, 3)
    assert calls == [(1, 2, True, True)]
    assert isinstance(once.error, KeyboardInterrupt)
    assert [once.is_begun, once.is_running] == [True, False]
    assert repr(once) == "<OneTimeCall made>"


def test_a_depth_counts_what_is_inside() -> None:
    depth = CallDepth()
    with depth, depth:
        assert depth.depth == 2
    with pytest.raises(ValueError, match="no number"), depth:
        int("no number")
    assert depth.depth == 0
    assert repr(depth) == "<CallDepth 0>"
