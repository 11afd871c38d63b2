"""Records of one partition, made of a few samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kfast.records import PartitionRecords, build_partition_records
from tests.unit.records.sample_index import Sample, sample_index

SAMPLES = [
    Sample(b"first", b"k0", [("h", b"x"), ("h", None)], 1_000),
    Sample(None, b"", [], 1_005),
    Sample(b"", None, [("n", b"")], -1),
    Sample(b"x" * 300, b"k3", [], 2_000),
]
VALUES = [sample.value for sample in SAMPLES]
HEADERS = [list(sample.headers) for sample in SAMPLES]


def build(samples: Sequence[Sample | bytes | None] = SAMPLES, **options: Any) -> PartitionRecords:
    placed = {
        name: options.pop(name)
        for name in ("offsets", "next_offset", "timestamp_types", "base_offset")
        if name in options
    }
    index = sample_index(samples, **placed)
    return build_partition_records("orders", 3, index, high_watermark=500, **options).records
