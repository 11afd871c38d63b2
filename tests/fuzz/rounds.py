"""Rounds of fuzzing: one seed each, which a failure names.

Some seconds with the suite. ``KFAST_FUZZ_SECONDS=3600`` runs that long, with a new seed each time;
a failure names the seed to give back as ``KFAST_FUZZ_SEED``.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import numpy as np

from kfast._native.buffers import live_bytes, live_count
from tests.fuzz.mutations import damaged

SECONDS = float(os.environ.get("KFAST_FUZZ_SECONDS", "0"))
SEED = int(os.environ.get("KFAST_FUZZ_SEED", "0")) or (time.time_ns() if SECONDS else 1)


def fuzz(check: Callable[[Random], object], rounds: int) -> None:
    """Check with one seed after another; no buffer is left at the end."""
    gc.collect()
    blocks = live_count(), live_bytes()
    end = time.monotonic() + SECONDS
    seed = SEED
    while seed < SEED + rounds or time.monotonic() < end:
        try:
            check(Random(seed))
        except BaseException as error:
            error.add_note(f"KFAST_FUZZ_SEED={seed}")
            raise
        seed += 1
    gc.collect()  # tracebacks
    assert (live_count(), live_bytes()) == blocks


def check_damaged(
    rng: Random,
    good: Sequence[bytes],
    interesting: Sequence[bytes],
    decode: Callable[..., tuple[list[Any], list[tuple[int, ...]]]],
    comparable: Callable[[Any], Any],
) -> None:
    """Check that damage to values makes errors of their rows alone.

    ``decode`` returns rows, and row, position and more of each bad one.
    """
    bad = {row for row in range(len(good)) if rng.random() < 0.5}
    values = [
        damaged(rng, value, interesting) if row in bad else value for row, value in enumerate(good)
    ]
    before, errors = decode(good)
    assert not errors
    rows, errors = decode(values)
    assert len(rows) == len(good)
    failed = {error[0] for error in errors}
    assert failed <= bad
    for row in range(len(good)):
        if row in failed:
            assert rows[row] is None
        elif row not in bad:
            assert comparable(rows[row]) == comparable(before[row])
    for row, position, *_ in errors:
        assert 0 <= position <= len(values[row])
    # What stands around a value does not matter.
    noise = [rng.randbytes(rng.randint(0, 30)) for _ in values]
    padded = [around + value for around, value in zip(noise, values, strict=True)]
    prefixes = np.array([len(around) for around in noise], np.int32)
    again, other = decode(padded, prefixes=prefixes)
    assert comparable(again) == comparable(rows)
    assert [(e[0], e[1] - len(noise[e[0]]), *e[2:]) for e in other] == errors
