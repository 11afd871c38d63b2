"""The cost of decoding per record, from memory: index alone, with keys and values, and for peers.

``index`` is everything between received bytes and columns: checksum, decompression, positions of
keys and values. ``gather`` also copies keys and values into one buffer each; ``struct`` reads the
values as one fixed-width column. Peers make one object per record, as their interfaces require.

A slice is what one partition has in a response with default settings, 1 MiB. Larger slices exceed
the second-level cache, which ``gather, 4 MiB`` shows.

``python -m bench.micro.report FILE`` turns a saved run into a table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bench.micro.slices import Slice, make_slice
from kfast._native import columns
from kfast._native.record_batch import RecordIndex, SliceDecoder
from tests.reference.peers import (
    KAFKA_PYTHON_HAS_SNAPPY,
    AiokafkaRecords,
    KafkaPythonRecords,
)

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
VALUES = (10, 100, 1000)
BATCHES = (1, 10, 1000)
SLICE_BYTES = 1 << 20
LARGE_SLICE_BYTES = 4 << 20
PEER_SLICE_BYTES = 256 << 10
CHUNK_BYTES = 8 << 20

every_shape = pytest.mark.parametrize(
    ("value_bytes", "codec", "per_batch"),
    [(value, codec, per_batch) for value in VALUES for codec in CODECS for per_batch in BATCHES],
)


def record_count(value_bytes: int, per_batch: int, slice_bytes: int) -> int:
    """Whole batches, about as many as make a slice of the size."""
    each = value_bytes + 20 + 61 // per_batch
    return max(slice_bytes // each // per_batch, 1) * per_batch


def decode(made: Slice, check_crcs: bool = True) -> list[RecordIndex]:
    decoder = SliceDecoder(
        made.frame,
        0,
        len(made.data),
        topic="bench",
        partition=0,
        position=0,
        check_crcs=check_crcs,
    )
    chunks = []
    while not decoder.finished:
        chunks.append(decoder.decode(CHUNK_BYTES))
    return chunks


def gather(made: Slice) -> int:
    size = 0
    for index in decode(made):
        keys = columns.gather(index.data, index.key_starts, index.key_lengths)
        values = columns.gather(index.data, index.value_starts, index.value_lengths)
        size += len(keys[1]) + len(values[1])
    return size


def fixed(made: Slice, width: int) -> int:
    size = 0
    for index in decode(made):
        column, bad = columns.view_fixed(index.data, index.value_starts, index.value_lengths, width)
        assert column is not None
        assert bad == -1
        size += len(column)
    return size


def peer(records_class: Any, made: Slice) -> int:
    found = 0
    batches = records_class(made.data)
    while batches.has_next():
        batch = batches.next_batch()
        assert batch.validate_crc()
        for record in batch:
            found += len(record.value)
    return found


def measure(
    benchmark: Any, made: Slice, name: str, shape: tuple[int, str, int], work: Callable[[], object]
) -> None:
    value_bytes, codec, per_batch = shape
    benchmark.group = f"{value_bytes} B, {codec}, {per_batch} per batch"
    benchmark(work)
    benchmark.extra_info.update(
        row=name, value_bytes=value_bytes, codec=codec, per_batch=per_batch, records=made.records
    )
    if benchmark.stats is not None:
        seconds = benchmark.stats.stats.min
        benchmark.extra_info["ns_per_record"] = seconds / made.records * 1e9
        benchmark.extra_info["gb_per_s"] = made.plain_bytes / seconds / 1e9


@every_shape
def test_index(benchmark: Any, value_bytes: int, codec: str, per_batch: int) -> None:
    made = make_slice(
        value_bytes, per_batch, codec, record_count(value_bytes, per_batch, SLICE_BYTES)
    )
    shape = (value_bytes, codec, per_batch)
    measure(benchmark, made, "index", shape, lambda: decode(made))


@pytest.mark.parametrize("per_batch", BATCHES)
@pytest.mark.parametrize("value_bytes", VALUES)
def test_index_without_checksums(benchmark: Any, value_bytes: int, per_batch: int) -> None:
    records = record_count(value_bytes, per_batch, SLICE_BYTES)
    made = make_slice(value_bytes, per_batch, "none", records)
    shape = (value_bytes, "none", per_batch)
    measure(benchmark, made, "index, no CRC", shape, lambda: decode(made, check_crcs=False))


@every_shape
def test_gather(benchmark: Any, value_bytes: int, codec: str, per_batch: int) -> None:
    made = make_slice(
        value_bytes, per_batch, codec, record_count(value_bytes, per_batch, SLICE_BYTES)
    )
    measure(benchmark, made, "gather", (value_bytes, codec, per_batch), lambda: gather(made))


@pytest.mark.parametrize("value_bytes", VALUES)
def test_gather_of_large_slices(benchmark: Any, value_bytes: int) -> None:
    made = make_slice(value_bytes, 1000, "none", record_count(value_bytes, 1000, LARGE_SLICE_BYTES))
    shape = (value_bytes, "none", 1000)
    measure(benchmark, made, "gather, 4 MiB", shape, lambda: gather(made))


@pytest.mark.parametrize("value_bytes", VALUES)
def test_struct(benchmark: Any, value_bytes: int) -> None:
    made = make_slice(value_bytes, 1000, "none", record_count(value_bytes, 1000, SLICE_BYTES))
    work = lambda: fixed(made, value_bytes)  # noqa: E731
    measure(benchmark, made, "struct", (value_bytes, "none", 1000), work)


@every_shape
def test_aiokafka(benchmark: Any, value_bytes: int, codec: str, per_batch: int) -> None:
    made = make_slice(
        value_bytes, per_batch, codec, record_count(value_bytes, per_batch, PEER_SLICE_BYTES)
    )
    work = lambda: peer(AiokafkaRecords, made)  # noqa: E731
    measure(benchmark, made, "aiokafka", (value_bytes, codec, per_batch), work)


@every_shape
def test_kafka_python(benchmark: Any, value_bytes: int, codec: str, per_batch: int) -> None:
    if codec == "snappy" and not KAFKA_PYTHON_HAS_SNAPPY:
        pytest.skip("kafka-python needs python-snappy")
    made = make_slice(
        value_bytes, per_batch, codec, record_count(value_bytes, per_batch, PEER_SLICE_BYTES)
    )
    work = lambda: peer(KafkaPythonRecords, made)  # noqa: E731
    measure(benchmark, made, "kafka-python", (value_bytes, codec, per_batch), work)
