"""Checksums: kfast's own in C against the package, and both against known values."""

from __future__ import annotations

import re
import subprocess
import sys
import zlib
from pathlib import Path
from random import Random

import crc32c as package
import pytest

from kfast._native import crc32c


def test_check_values() -> None:
    """D-03: the check values of both polynomials."""
    assert crc32c.crc32c(b"123456789") == 0xE3069283
    assert crc32c.crc32(b"123456789") == 0xCBF43926
    assert crc32c.crc32c(b"6789", crc32c.crc32c(b"12345")) == 0xE3069283


def test_the_instructions_agree_with_the_package() -> None:
    """D-03: steps, blocks and wide blocks: every length around their limits, every alignment."""
    if crc32c.crc32c_hardware(b"") is None:
        pytest.skip("this processor has no CRC instruction")
    data = Random(7).randbytes(70_000)
    for size in [*range(1600), *range(4090, 4102), *range(65_500, 65_800)]:
        piece = memoryview(data)[size % 67 : size % 67 + size]
        assert crc32c.crc32c_hardware(piece) == package.crc32c(piece), size
    assert crc32c.crc32(data) == zlib.crc32(data)


def test_the_instructions_see_every_bit() -> None:
    """D-03: one flipped bit anywhere in a long input, in any lane of any block."""
    if crc32c.crc32c_hardware(b"") is None:
        pytest.skip("this processor has no CRC instruction")
    data = bytearray(Random(8).randbytes(256 * 5 + 91))
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        assert crc32c.crc32c_hardware(data) == package.crc32c(data), at


def test_the_factors_of_folding() -> None:
    """The constants in the source are powers of x modulo the polynomial, as its words say."""
    polynomial = 0x1EDC6F41
    sources = Path(__file__).parents[3] / "src_pyx/kfast/_native"
    source = (sources / "crc32c_instructions.pxd").read_text()

    def factor(power: int) -> int:
        rest = 1
        for _ in range(power):
            rest <<= 1
            rest ^= (1 << 32 | polynomial) if rest >> 32 else 0
        return int(f"{rest:032b}"[::-1], 2) << 1

    found = re.findall(r"_mm_set_epi64x\((\w+), (\w+)\)\)?;  /\* D = (\d+) \*/", source)
    assert len(found) == 2
    for high, low, distance in found:
        assert int(low, 16) == factor(int(distance) + 32)
        assert int(high, 16) == factor(int(distance) - 32)


@pytest.mark.parametrize("package_name", ["crc32c"])
def test_a_missing_package_is_loud(package_name: str) -> None:
    """D-27: no slow path takes over in silence."""
    code = f"import sys; sys.modules[{package_name!r}] = None; import kfast._native.record_batch"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "ModuleNotFoundError" in done.stderr
    assert package_name in done.stderr
