"""Placeholder until the log of Delta tables is merged."""

from __future__ import annotations

from typing import Any


class DeltaLog:
    """To be replaced."""

    def __init__(self, *arguments: Any) -> None:
        raise NotImplementedError
