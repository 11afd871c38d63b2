"""Checksums: the short loop in C against the package, and both against known values."""

from __future__ import annotations

import subprocess
import sys
import zlib
from random import Random

import crc32c as package
import pytest

from kfast._native import crc32c


def test_check_values() -> None:
    """D-03: the check values of both polynomials."""
    assert crc32c.crc32c(b"123456789") == 0xE3069283
    assert crc32c.crc32(b"123456789") == 0xCBF43926
    assert crc32c.crc32c(b"6789", crc32c.crc32c(b"12345")) == 0xE3069283


def test_the_short_loop_agrees_with_the_package() -> None:
    """D-03: every length up to where the package takes over, every alignment, and beyond."""
    if crc32c.crc32c_hardware(b"") is None:
        pytest.skip("this processor has no CRC instruction")
    data = Random(7).randbytes(4300)
    for size in [*range(300), 4095, 4096, 4097, 4200]:
        piece = memoryview(data)[size % 16 : size % 16 + size]
        assert crc32c.crc32c_hardware(piece) == package.crc32c(piece)
    assert crc32c.crc32(data) == zlib.crc32(data)


@pytest.mark.parametrize("package_name", ["crc32c"])
def test_a_missing_package_is_loud(package_name: str) -> None:
    """D-27: no slow path takes over in silence."""
    code = f"import sys; sys.modules[{package_name!r}] = None; import kfast._native.record_batch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr
    assert package_name in done.stderr
