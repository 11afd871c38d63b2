"""What one batch costs in memory, measured as the peak of a process, whatever is in it."""

from __future__ import annotations

import ctypes
import gc
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from kfast._native.buffers import copy_of
from kfast._native.record_batch import SliceDecoder
from kfast.errors import KafkaError
from tests.reference.compression import Codec, compress

CAP = 32 << 20
SLACK = 8 << 20
ROW = 41
"""Bytes of a record here, and of its row in the index at most."""


def peak_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii").split("VmHWM:")[1]
    return int(status.split()[0]) << 10


def begin() -> int:
    """Forget the peak so far; return the memory in use."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_bytes()


def rows(count: int, fill: Callable[[int], bytes], *, ascending: bool = True) -> bytes:
    """Records of 32 bytes of value each, with offsets that three bytes encode."""
    table = np.zeros((count, ROW), np.uint8)
    zigzag = 2 * (8192 + np.arange(count) * ascending)
    table[:, 0] = 2 * (ROW - 1)
    table[:, 3:6] = np.stack([zigzag & 127 | 128, zigzag >> 7 & 127 | 128, zigzag >> 14], axis=1)
    table[:, 6], table[:, 7] = 1, 2 * 32
    table[:, 8:40] = np.frombuffer(fill(32 * count), np.uint8).reshape(count, 32)
    return table.tobytes()


def noise(size: int) -> bytes:
    return np.random.default_rng(1).bytes(size)


def batch(codec: Codec, payload: bytes, count: int, base_offset: int = 0) -> bytes:
    if codec is Codec.GZIP:
        fast = zlib.compressobj(1, wbits=31)
        body = fast.compress(payload) + fast.flush()
    else:
        body = compress(codec, payload)
    return (
        struct.pack(">qiibIhi", base_offset, 49 + len(body), 0, 2, 0, codec, 1 << 20)
        + struct.pack(">qqqhii", 0, 0, -1, -1, -1, count)
        + body
    )


MOST = CAP // ROW
TINY = bytes([12, 0, 0, 0, 1, 1, 0])
CASES: dict[str, tuple[str, Callable[[Codec], bytes]]] = {
    "as large as may be": ("", lambda codec: batch(codec, rows(MOST, noise), MOST)),
    "behind another one": (
        "",
        lambda codec: (
            batch(codec, rows(70_000, bytes), 70_000)
            + batch(codec, rows(MOST, bytes), MOST, 1 << 21)
        ),
    ),
    "the shortest records": (
        "RecordTooLargeError",
        lambda codec: batch(codec, TINY * (CAP // len(TINY)), CAP // len(TINY)),
    ),
    "one offset for all": (
        "CorruptRecordError",
        lambda codec: batch(codec, rows(MOST, bytes, ascending=False), MOST),
    ),
    "zeros": (
        "RecordTooLargeError",
        lambda codec: batch(codec, bytes(4 * CAP), 100),
    ),
}


def cost(data: bytes) -> tuple[int, str]:
    """Decode to the end; return the peak besides the frame, and the error if there is one."""
    decoder = SliceDecoder(
        copy_of(data),
        0,
        len(data),
        topic="t",
        partition=0,
        position=0,
        check_crcs=False,
        max_decompressed_batch_bytes=CAP,
    )
    before = begin()
    try:
        while not decoder.finished:
            decoder.decode(SLACK)
    except KafkaError as error:
        return peak_bytes() - before, type(error).__name__
    return peak_bytes() - before, ""


def main(codec: Codec) -> None:
    """Print the costs that are too high, and the outcomes that are not expected."""
    for name, (expected, make) in CASES.items():
        if codec is Codec.NONE and name == "zeros":
            continue  # it is as large as it is
        peak, outcome = cost(make(codec))
        if peak > 2 * CAP + SLACK or outcome != expected:
            sys.stdout.write(f"{name}: {peak / 2**20:.0f} MiB, {outcome or 'no error'}\n")


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_costs_at_most_its_cap_twice(codec: Codec) -> None:
    """D-28: payload and index, while the codec works and after; also of records made to be many."""
    code = f"from tests.unit._native.test_bombs import *; main(Codec.{codec.name})"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout == "", done.stdout
