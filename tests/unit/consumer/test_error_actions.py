"""ErrorActions: rows first, then the flags of Kafka's error table."""

from __future__ import annotations

import pytest

from kfast.consumer.error_actions import ErrorAction, ErrorActions
from kfast.errors import ErrorCode

ROWS = {ErrorCode.UNKNOWN_MEMBER_ID: ErrorAction.FENCE_MEMBER}


@pytest.mark.parametrize(
    ("code", "to_coordinator", "to_leader", "expected"),
    [
        (25, True, True, ErrorAction.FENCE_MEMBER),
        (16, True, False, ErrorAction.FIND_COORDINATOR),
        (16, False, True, ErrorAction.RETRY),
        (6, True, True, ErrorAction.REFRESH_METADATA),
        (6, True, False, ErrorAction.RETRY),
        (14, True, True, ErrorAction.RETRY),
        (42, True, True, ErrorAction.FAIL),
        (9_999, True, True, ErrorAction.FAIL),
    ],
)
def test_a_code_without_a_row_goes_by_its_flags(
    code: int, to_coordinator: bool, to_leader: bool, expected: ErrorAction
) -> None:
    actions = ErrorActions(ROWS, to_coordinator=to_coordinator, to_leader=to_leader)
    assert actions.of(code) is expected


def test_what_remains_is_for_each_table_to_say() -> None:
    actions = ErrorActions({}, retriable=ErrorAction.IGNORE, otherwise=ErrorAction.REPORT)
    assert actions.of(7) is ErrorAction.IGNORE
    assert actions.of(42) is ErrorAction.REPORT
    assert actions.of(9_999) is ErrorAction.REPORT
