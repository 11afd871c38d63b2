"""Types of the compiled module; plans and rules are documented in ``json_decode.pyx``."""

from __future__ import annotations

from typing import Any

from kfast._native.buffers import OwnedBuffer
from kfast.schemas.json_plan import JsonPlan

def decode(
    plan: JsonPlan,
    data: Any,
    starts: Any,
    lengths: Any,
    mode: int,
    most_bytes: int = ...,
    row_plans: Any = None,
    prefixes: Any = None,
) -> tuple[Any, OwnedBuffer | None, tuple[OwnedBuffer, list[tuple[int, bytes]]] | None]: ...
