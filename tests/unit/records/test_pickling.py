"""Pickles and deep copies of results, and what results keep alive."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import joblib
import numpy as np
import pytest
from joblib.externals.loky import get_reusable_executor

from kfast._native.buffers import live_bytes
from kfast.deserializers import Float64, Int64, Struct, Utf8, Uuid
from kfast.records import BytesColumn, ConsumerRecords, PartitionRecords, empty_partition_records
from tests.unit.records.sample_index import Sample
from tests.unit.records.sample_records import SAMPLES, build

LAYOUT = np.dtype([("a", ">i4"), ("b", "U2")])
DESERIALIZERS: dict[str, tuple[Any, bytes]] = {
    "raw": (None, b"value"),
    "text": (Utf8(), "ä".encode()),
    "int64": (Int64(), bytes(8)),
    "float64": (Float64(), bytes(8)),
    "uuid": (Uuid(), bytes(range(16))),
    "struct": (Struct(LAYOUT), np.array((5, "xy"), LAYOUT).tobytes()),
    "object": (lambda raw: {"raw": raw}, b"value"),
}


def batches() -> dict[str, PartitionRecords]:
    made = {
        f"{name}{' with nulls' if nulls else ''}": build(
            [
                Sample(value, b"key", [("h", b"x"), ("h", None)], -1),
                Sample(None if nulls else value),
            ],
            value_deserializer=deserializer,
            timestamp_types=[0, 1],
            next_offset=200,
        )
        for name, (deserializer, value) in DESERIALIZERS.items()
        for nulls in (False, True)
    }
    made["skipped"] = build(
        [b"?", bytes(8), b"?"], value_deserializer=Int64(), on_error="skip", next_offset=200
    )
    made["no rows"] = build([], next_offset=200)
    made["few columns"] = build(columns=["offset", "value"])
    made["selected"] = build(SAMPLES * 50).select([7, 3, 150])
    return made


def out_of_band(given: Any) -> Any:
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(given, 5, buffer_callback=buffers.append)
    return pickle.loads(text, buffers=[buffer.raw() for buffer in buffers])


def misaligned(given: Any) -> Any:
    """Return a copy made of writeable buffers at odd addresses, as slices of a message are."""
    buffers: list[pickle.PickleBuffer] = []
    text = pickle.dumps(given, 5, buffer_callback=buffers.append)
    received = [memoryview(bytearray(b"." + buffer.raw().tobytes()))[1:] for buffer in buffers]
    return pickle.loads(text, buffers=received)


COPIES: dict[str, Callable[[Any], Any]] = {
    "protocol 2": lambda given: pickle.loads(pickle.dumps(given, 2)),
    "protocol 4": lambda given: pickle.loads(pickle.dumps(given, 4)),
    "protocol 5": lambda given: pickle.loads(pickle.dumps(given, 5)),
    "out of band": out_of_band,
    "misaligned": misaligned,
    "deepcopy": copy.deepcopy,
}


def assert_equal(found: PartitionRecords, wanted: PartitionRecords) -> None:
    assert list(map(str, found)) == list(map(str, wanted))
    assert found.to_arrow().equals(wanted.to_arrow())
    for name in (
        "topic_partition",
        "columns",
        "next_offset",
        "high_watermark",
        "leader_epoch",
        "log_start_offset",
        "deserialization_errors",
        "nbytes",
    ):
        assert getattr(found, name) == getattr(wanted, name)
    assert found[1:].deserialization_errors == wanted[1:].deserialization_errors


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_batches_can_be_pickled_and_copied(make: Callable[[Any], Any]) -> None:
    """B-20: everything comes back, of every kind of column, read-only, and is of use again."""
    for name, wanted in batches().items():
        found = make(wanted)
        assert_equal(found, wanted)
        assert_equal(make(found), wanted)
        assert_equal(found.compact(), wanted)
        arrays = [found.offsets, found.timestamps, found.timestamp_types]
        if "value" in found.columns and isinstance(found.values, np.ndarray):
            assert type(found.values) is type(wanted.values), name
            arrays.append(np.ma.getdata(found.values))
        for array in arrays:
            assert array.flags.aligned
            with pytest.raises(ValueError, match="WRITEABLE"):
                array.flags.writeable = True


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_columns_can_be_pickled_and_copied(make: Callable[[Any], Any]) -> None:
    """B-20: each column alone, with the offsets that its errors name."""
    texts = build([b"a", None], value_deserializer=Utf8()).values
    uuids = build([bytes(range(16)), None], value_deserializer=Uuid()).values
    raw, headers = build().values, build().headers
    for column in (texts, uuids, raw, headers, raw[:0], headers[:0], headers[1:2], uuids[:1]):
        found = make(column)
        assert type(found) is type(column)
        assert found.to_list() == column.to_list()
        assert found.to_arrow().equals(column.to_arrow())
    assert make(raw).offsets.tolist() == raw.offsets.tolist()
    alone = make(BytesColumn.from_values([b"x", None, b""]))
    assert (alone.to_list(), alone.origin) == ([b"x", None, b""], None)


@pytest.mark.parametrize("make", COPIES.values(), ids=COPIES)
def test_results_can_be_pickled_and_copied(make: Callable[[Any], Any]) -> None:
    """B-20: a result of a poll with its chunks, positions and columns without records."""
    first, second = build(base_offset=0), build(base_offset=10)
    moved = build([], next_offset=500)
    wanted = ConsumerRecords([first, second])
    wanted[first.topic_partition]  # joined: not to be pickled, too
    found = make(wanted)
    assert list(map(str, found.batches())) == list(map(str, wanted.batches()))
    assert found.to_arrow().equals(wanted.to_arrow())
    assert found.next_offsets() == wanted.next_offsets()
    assert list(found[first.topic_partition]) == [*first, *second]
    template = empty_partition_records(value_deserializer=Int64())
    empty = make(ConsumerRecords([moved], template=template))
    assert (len(empty), empty.next_offsets()[moved.topic_partition].offset) == (0, 500)
    assert empty.to_arrow().schema == template.to_arrow().schema


def test_a_pickle_has_only_what_is_shown() -> None:
    """B-20: neither the frame of a selection nor a joined partition is in it, nor offsets twice."""
    count = 1_000
    records = build([Sample(b"x" * 100, b"k" * 10)] * count)
    whole = len(pickle.dumps(records))
    assert count * (110 + 2 * 8 + 4 * 4) <= whole < count * (110 + 3 * 8 + 4 * 4)
    assert len(pickle.dumps(records[5:6])) < 3_000
    assert len(pickle.dumps(records[5:6].values)) < 1_000
    result = ConsumerRecords([records[:500], records[500:]])
    before = len(pickle.dumps(result))
    result[records.topic_partition]
    assert len(pickle.dumps(result)) == before


def test_large_arrays_are_not_copied_into_the_pickle() -> None:
    """B-20: with buffers out of band the pickle itself is small."""
    for deserializer, value in DESERIALIZERS.values():
        if deserializer is None or not callable(deserializer):
            buffers: list[pickle.PickleBuffer] = []
            records = build([value, None] * 5_000, value_deserializer=deserializer)
            assert len(pickle.dumps(records, 5, buffer_callback=buffers.append)) < 4_000
            assert sum(buffer.raw().nbytes for buffer in buffers) > 5_000 * len(value)


def _summary(records: PartitionRecords) -> tuple[Any, ...]:
    return (
        records.topic_partition,
        records.offsets.sum(),
        records.values.to_list()[:2],
        len(records),
    )


def _selected(records: ConsumerRecords) -> list[PartitionRecords]:
    return [batch[1:] for batch in records.batches()]


def test_batches_travel_between_processes() -> None:
    """B-20: multiprocessing, both ways."""
    result = ConsumerRecords([build(), build(base_offset=200, value_deserializer=Utf8())])
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.map(_summary, list(result.batches()))
        chosen = pool.apply(_selected, (result,))
    assert found == [_summary(batch) for batch in result.batches()]
    for one, other in zip(chosen, _selected(result), strict=True):
        assert_equal(one, other)


def test_joblib_takes_batches(tmp_path: Any) -> None:
    """B-20: tasks, for which joblib maps large arrays into memory, and files."""
    records = build([Sample(b"%06d" % row, b"k") for row in range(5_000)])
    pieces = [records[:2_500], records[2_500:]]
    tasks = (joblib.delayed(_summary)(piece) for piece in pieces)
    assert joblib.Parallel(n_jobs=2, max_nbytes=1_000, temp_folder=tmp_path)(tasks) == [
        _summary(piece) for piece in pieces
    ]
    get_reusable_executor().shutdown()
    path = tmp_path / "records"
    joblib.dump(records, path)
    assert_equal(joblib.load(path), records)
    assert_equal(joblib.load(path, mmap_mode="r"), records)


# --- what is kept alive ---------------------------------------------------------------------------


@pytest.mark.parametrize(("deserializer", "value"), DESERIALIZERS.values(), ids=DESERIALIZERS)
def test_a_selection_knows_what_it_keeps_alive(deserializer: Any, value: bytes) -> None:
    """B-21: it is what would be freed, whole frames and the index of the batch."""
    gc.collect()
    before = live_bytes()
    records = build([value] * 5_000, value_deserializer=deserializer)
    kept = live_bytes() - before
    assert kept > 5_000 * len(value)
    assert kept <= records.pinned_nbytes <= kept + 5_000 * 40
    small = records[5:6].compact()
    assert small.pinned_nbytes < 1_000
    assert ConsumerRecords([small, small]).pinned_nbytes == small.pinned_nbytes


def test_a_column_knows_what_it_keeps_alive() -> None:
    """B-21: one value of a frame keeps all of it, compact ones only themselves."""
    records = build([Sample(b"x" * 100, b"k", [("h", b"y")])] * 1_000)
    frame = records.values.data.nbytes
    for column in (records.values[5:6], records.keys[5:6], records.headers[5:6]):
        assert frame <= column.pinned_nbytes < 2 * frame
        assert column.compact().pinned_nbytes < 300
    texts = build([b"x" * 100] * 1_000, value_deserializer=Utf8()).values
    assert texts[5:6].pinned_nbytes > 100_000
    assert texts[5:6].compact().pinned_nbytes < 300
    uuids = build([bytes(16), None] * 1_000, value_deserializer=Uuid()).values
    assert 17 * 2_000 <= uuids.pinned_nbytes < 20 * 2_000


def test_a_result_counts_each_frame_once() -> None:
    """B-21: pieces of one frame keep one frame, and a joined partition is memory of its own."""
    records = build([b"x" * 100] * 1_000)
    whole = records.pinned_nbytes
    result = ConsumerRecords([records[:500], records[500:]])
    assert result.pinned_nbytes <= whole
    result[records.topic_partition]
    assert result.pinned_nbytes > whole + 100_000
