"""What all injection tests need: the handlers' exceptions make kfast log a great deal."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logs_not_reported() -> Iterator[None]:
    """Keep what is logged out of the report of a test that fails."""
    handlers = list(logging.getLogger().handlers)  # pytest's
    for handler in handlers:
        handler.addFilter(_rejected)
    yield
    for handler in handlers:
        handler.removeFilter(_rejected)


def _rejected(_: logging.LogRecord) -> bool:
    return False
