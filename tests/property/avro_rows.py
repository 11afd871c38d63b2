"""Avro values decoded to rows."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from kfast._native import avro_decode
from kfast.schemas.avro_plan import AvroPlan, AvroTarget
from tests.reference.built_columns import rows_of

RAISE, NULL = 0, 1


def decode(
    target: AvroTarget,
    plans: Sequence[AvroPlan],
    values: Sequence[bytes | None],
    mode: int = NULL,
    **more: Any,
) -> tuple[list[Any], list[tuple[int, ...]]]:
    """Rows as Python values, and (row, position, code, node, plan, indexes...) of the bad ones."""
    lengths = np.array([-1 if v is None else len(v) for v in values], np.int32)
    starts = np.cumsum(np.maximum(lengths, 0), dtype=np.int64) - np.maximum(lengths, 0)
    built, raw = avro_decode.decode(
        target.layout,
        target.symbols,
        [(plan.ops, plan.tables, plan.constants) for plan in plans],
        b"".join(v or b"" for v in values),
        starts,
        lengths,
        mode,
        **more,
    )
    errors = []
    for row, position, code, node, plan, depth, *indexes in struct.iter_unpack(
        "=qq12i", b"" if raw is None else bytes(raw)
    ):
        errors.append((row, position, code, node, plan, *indexes[:depth]))
    return rows_of(target.column, built), errors


def comparable(value: Any) -> Any:
    """A value whose NaN and -0.0 compare, and a Decimal with its digits."""
    return repr(value)
