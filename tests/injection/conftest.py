"""What all injection tests need: the handlers' exceptions make kfast log a great deal."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logged_nowhere() -> Iterator[None]:
    """Keep what is logged out of the report of a test that fails."""
    logger = logging.getLogger("kfast")
    logger.propagate = False
    yield
    logger.propagate = True
