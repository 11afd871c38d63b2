"""Types of the compiled module; the rules are documented in ``json_rescue.pyx``."""

from __future__ import annotations

from typing import Any

from kfast._native.buffers import OwnedBuffer
from kfast.schemas.json_plan import JsonPlan

def rescue(
    plan: JsonPlan,
    data: Any,
    starts: Any,
    lengths: Any,
    counts: Any,
    prefixes: Any = None,
) -> tuple[OwnedBuffer, OwnedBuffer]: ...
