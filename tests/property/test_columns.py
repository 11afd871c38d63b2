"""Any records: all forms of a batch say the same. Any spans: nothing is read out of bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from kfast._native import columns, deserialize, headers
from kfast._native.buffers import copy_of
from kfast.deserializers import Int32, Utf8
from kfast.records import ConsumerRecords, PartitionRecords, build_partition_records
from tests.soaking import examples
from tests.unit.records.sample_index import Sample, sample_index

relaxed = examples(100)

BYTES = st.one_of(
    st.none(), st.binary(max_size=40), st.integers(0, 400).map(lambda size: b"v" * size)
)
SAMPLES = st.lists(
    st.builds(
        Sample,
        value=BYTES,
        key=BYTES,
        headers=st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3),
        timestamp=st.integers(-1, 2**41),
    ),
    max_size=25,
)


def build(samples: list[Sample], **options: Any) -> PartitionRecords:
    return build_partition_records("t", 0, sample_index(samples), **options).records


def fields(records: PartitionRecords) -> list[tuple[Any, ...]]:
    return [(r.offset, r.timestamp, r.key, r.value, r.headers) for r in records]


@relaxed
@given(SAMPLES)
def test_objects_are_the_samples(samples: list[Sample]) -> None:
    """D-02: what went in comes out, null, empty, order and repeats included."""
    assert fields(build(samples)) == [
        (100 + i, s.timestamp, s.key, s.value, list(s.headers)) for i, s in enumerate(samples)
    ]


@relaxed
@given(SAMPLES, st.booleans())
def test_arrow_says_the_same(samples: list[Sample], view: bool) -> None:
    """D-02: Arrow's columns, copied or not, hold the same values."""
    records = build(samples)
    batch = records.to_arrow(view=view)
    batch.validate(full=True)
    assert batch.column("key").to_pylist() == [s.key for s in samples]
    assert batch.column("value").to_pylist() == [s.value for s in samples]
    assert [
        [(pair["key"], pair["value"]) for pair in row]
        for row in batch.column("headers").to_pylist()
    ] == [list(s.headers) for s in samples]
    assert records.to_numpy()["value"].tolist() == [s.value for s in samples]


@relaxed
@given(SAMPLES, st.data())
def test_selection_compaction_and_concatenation_commute(
    samples: list[Sample], data: st.DataObject
) -> None:
    """D-25: a batch may be cut, copied and joined in any order."""
    records = build(samples)
    rows = data.draw(
        st.one_of(
            st.slices(len(samples)),
            st.lists(st.booleans(), min_size=len(samples), max_size=len(samples)).map(
                lambda mask: np.array(mask, np.bool_)
            ),
            st.lists(st.integers(0, len(samples) - 1), max_size=30) if samples else st.just([]),
        )
    )
    expected = (
        [fields(records)[i] for i in np.arange(len(samples))[rows]]
        if len(samples) and not (isinstance(rows, list) and not rows)
        else []
    )
    chosen = records.select(rows)
    assert fields(chosen) == expected
    assert fields(chosen.compact()) == expected
    assert fields(records.compact().select(rows)) == expected
    joined = PartitionRecords.concat([chosen, records])
    assert fields(joined) == expected + fields(records)
    stream = pa.table(ConsumerRecords([chosen, records]))
    assert stream.column("value").to_pylist() == [row[3] for row in fields(joined)]


@relaxed
@given(st.lists(st.one_of(st.none(), st.binary(max_size=12), st.text(max_size=6).map(str.encode))))
def test_utf8_is_what_python_thinks(values: list[bytes | None]) -> None:
    """E-08: the first malformed text is the one Python cannot decode."""

    def is_text(value: bytes | None) -> bool:
        try:
            _ = (value or b"").decode()
        except UnicodeDecodeError:
            return False
        return True

    good = [is_text(value) for value in values]
    result = build_partition_records(
        "t", 0, sample_index(values), value_deserializer=Utf8(), on_error="raise"
    )
    count = good.index(False) if False in good else len(good)
    assert (result.error is None) == all(good)
    assert [row.value for row in result.records] == [
        None if value is None else value.decode() for value in values[:count]
    ]
    nulled = build([Sample(value) for value in values], value_deserializer=Utf8(), on_error="null")
    assert [row.value for row in nulled] == [
        value.decode() if value is not None and is_good else None
        for value, is_good in zip(values, good, strict=True)
    ]


@relaxed
@given(st.lists(st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1), st.binary(max_size=6))))
def test_numbers_skip_exactly_the_bad(values: list[int | bytes | None]) -> None:
    """E-08: skipping leaves out the unreadable rows and no other."""
    raw = [v.to_bytes(4, "big", signed=True) if isinstance(v, int) else v for v in values]
    records = build([Sample(value) for value in raw], value_deserializer=Int32(), on_error="skip")
    kept = [(i, v) for i, v in enumerate(raw) if v is None or len(v) == 4]
    assert [row.offset for row in records] == [100 + i for i, _ in kept]
    assert [row.value for row in records] == [
        None if v is None else int.from_bytes(v, "big", signed=True) for _, v in kept
    ]


INT32 = st.integers(-(2**31), 2**31 - 1)
NEAR = st.one_of(st.integers(-2, 70), INT32)
OPERATIONS: list[Callable[[Any, Any, Any], object]] = [
    columns.gather,
    columns.binary_views,
    columns.bytes_list,
    headers.parse_headers,
    headers.header_lengths,
    lambda data, starts, lengths: columns.pack([(data, starts, lengths)] * 2),
    lambda data, starts, lengths: columns.view_fixed(data, starts, lengths, 8),
    lambda data, starts, lengths: columns.gather_padded(data, starts, lengths, 8),
    lambda data, starts, lengths: columns.text_list(data, starts, lengths, "replace"),
    lambda data, starts, lengths: deserialize.utf8_column(data, starts, lengths, False),
    lambda data, starts, lengths: deserialize.uuid_column(data, starts, lengths, False),
    lambda data, starts, lengths: deserialize.big_endian_column(data, starts, lengths, 8, False),
    lambda data, starts, lengths: deserialize.block_column(data, starts, lengths, 3, False),
]


@examples(300)
@given(
    st.binary(max_size=64),
    st.lists(st.tuples(NEAR, NEAR), max_size=6),
    st.sampled_from(OPERATIONS),
    st.sampled_from([np.int32, np.int64]),
)
def test_any_spans_are_refused_or_inside(
    data: bytes,
    spans: list[tuple[int, int]],
    operation: Callable[[Any, Any, Any], object],
    width: type[Any],
) -> None:
    """D-20: no combination of positions reads outside the buffer."""
    starts = np.array([start for start, _ in spans], width)
    lengths = np.array([length for _, length in spans], np.int32)
    inside = all(
        length >= -1 and (length <= 0 or 0 <= start <= len(data) - length)
        for start, length in spans
    )
    try:
        operation(copy_of(data), starts, lengths)
    except ValueError:
        assert not inside or operation in (headers.parse_headers, headers.header_lengths)
    else:
        assert inside or operation in (headers.parse_headers, headers.header_lengths)
