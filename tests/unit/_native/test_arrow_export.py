"""The Arrow C data interface: layout, ownership and release."""

from __future__ import annotations

import ctypes
import gc
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kfast._native import arrow_export
from kfast._native.buffers import copy_of, live_count
from kfast.columns.arrow import requested_columns, requested_format
from kfast.records import build_partition_records
from tests.unit.records.sample_index import sample_index

ROOT = Path(__file__).resolve().parents[3]
INTS = ("i", "number", True, None, ())


def int_array(values: list[int]) -> Any:
    return (len(values), 0, (None, copy_of(np.array(values, np.int32).tobytes())), ())


class Exported:
    """Hands nodes to pyarrow through the PyCapsule interface."""

    def __init__(self, schema: Any, array: Any) -> None:
        self.capsules = arrow_export.schema_capsule(schema), arrow_export.array_capsule(array)

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.capsules


class Stream:
    def __init__(self, schema: Any, arrays: Any) -> None:
        self.capsule = arrow_export.stream_capsule(schema, arrays)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.capsule


@pytest.fixture(autouse=True)
def _gives_everything_back() -> Iterator[None]:
    """D-25: the memory of an export is freed with its last reference."""
    gc.collect()
    before = live_count()
    yield
    gc.collect()
    assert live_count() == before


def test_an_array_arrives() -> None:
    array = pa.array(Exported(INTS, int_array([1, 2, 3])))
    assert array.to_pylist() == [1, 2, 3]
    assert array.type == pa.int32()
    array.validate(full=True)


def test_children_metadata_and_nullability_arrive() -> None:
    metadata = b"\x01\0\0\0\x03\0\0\0key\x05\0\0\0va\0ue"
    schema = ("+s", "", False, None, (("i", "a", False, metadata, ()), ("l", "b", True, None, ())))
    big = (2, 0, (None, np.array([7, 8], np.int64)), ())
    batch = pa.record_batch(Exported(schema, (2, 0, (None,), (int_array([1, 2]), big))))
    batch.validate(full=True)
    assert batch.to_pydict() == {"a": [1, 2], "b": [7, 8]}
    assert batch.schema.field("a").metadata == {b"key": b"va\0ue"}
    assert not batch.schema.field("a").nullable
    assert batch.schema.field("b").nullable


def test_no_byte_is_copied() -> None:
    values = np.arange(1000, dtype=np.int64)
    array = pa.array(Exported(("l", "", True, None, ()), (1000, 0, (None, values), ())))
    assert array.buffers()[1].address == values.ctypes.data


def test_an_import_outlives_its_source() -> None:
    """D-25: the consumer's array keeps the memory alive after the exporter is gone."""
    buffer = copy_of(np.array([5, 6], np.int32).tobytes())
    array = pa.array(Exported(INTS, (2, 0, (None, buffer), ())))
    before = live_count()
    del buffer
    gc.collect()
    assert live_count() == before
    assert array.to_pylist() == [5, 6]
    del array
    gc.collect()
    assert live_count() == before - 1


def test_capsules_nobody_took_give_their_memory_back() -> None:
    before = live_count()
    exported = Exported(("+s", "", False, None, (INTS,)), (2, 0, (None,), (int_array([1, 2]),)))
    assert live_count() == before + 1
    del exported
    assert live_count() == before


def test_a_child_can_be_taken_out_alone() -> None:
    schema = ("+s", "", False, None, (INTS, INTS))
    data = (2, 0, (None,), (int_array([1, 2]), int_array([3, 4])))
    before = live_count()
    struct = pa.array(Exported(schema, data))
    child = struct.field(1)
    del struct, data
    gc.collect()
    assert child.to_pylist() == [3, 4]
    del child
    gc.collect()
    assert live_count() == before - 2


def test_another_librarys_export_can_be_a_child() -> None:
    _, inner_array = pa.array([{"x": 1}, None]).__arrow_c_array__()
    named = pa.field("inner", pa.struct([("x", pa.int64())])).__arrow_c_schema__()
    schema = ("+s", "", False, None, (INTS, arrow_export.read_schema(named)))
    batch = pa.record_batch(Exported(schema, (2, 0, (None,), (int_array([1, 2]), inner_array))))
    assert batch.to_pydict() == {"number": [1, 2], "inner": [{"x": 1}, None]}
    with pytest.raises(ValueError, match="consumed"):
        arrow_export.array_capsule((2, 0, (None,), (inner_array,)))
    assert pa.Field._import_from_c_capsule(named).name == "inner"
    with pytest.raises(ValueError, match="consumed"):
        arrow_export.read_schema(named)


@pytest.mark.parametrize(
    "array",
    [
        (1, 0, (None, "text"), ()),
        (1, 0, (None, object()), ()),
        (1, 0, 5, ()),
        (1, 0, (None,), (int_array([1]), (1, 0, (None, object()), ()))),
        (1, 0),
        None,
    ],
)
def test_a_bad_array_node_leaves_nothing_behind(array: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        arrow_export.array_capsule(array)


@pytest.mark.parametrize(
    "schema",
    [
        (1, "x", True, None, ()),
        ("i", None, True, None, ()),
        ("+s", "x", True, None, (INTS, 5)),
        ("i", "x", True, "text", ()),
    ],
)
def test_a_bad_schema_node_leaves_nothing_behind(schema: Any) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError)):
        arrow_export.schema_capsule(schema)


def test_a_stream_makes_its_chunks_on_demand() -> None:
    made = []

    def chunks() -> Iterator[Any]:
        for number in range(3):
            made.append(number)
            yield (1, 0, (None,), (int_array([number]),))

    stream = Stream(("+s", "", False, None, (INTS,)), chunks())
    reader = pa.RecordBatchReader.from_stream(stream)
    assert reader.schema == pa.schema([("number", pa.int32())])
    assert made == []
    assert reader.read_next_batch().to_pydict() == {"number": [0]}
    assert made == [0]
    assert reader.read_all().to_pydict() == {"number": [1, 2]}
    reader.close()


def test_an_error_in_a_stream_reaches_the_consumer() -> None:
    """E-07: a failure ends the stream with its text, also for who asks again; it is not a row."""

    def chunks() -> Iterator[Any]:
        yield (1, 0, (None,), (int_array([1]),))
        raise RuntimeError("no more ümlauts")

    reader = pa.RecordBatchReader.from_stream(Stream(("+s", "", False, None, (INTS,)), chunks()))
    reader.read_next_batch()
    for _ in range(2):
        with pytest.raises(OSError, match="RuntimeError: no more ümlauts"):
            reader.read_next_batch()
    del reader


def test_a_stream_left_half_way_gives_its_memory_back() -> None:
    arrays = [(1, 0, (None,), (int_array([i]),)) for i in range(5)]
    reader = pa.RecordBatchReader.from_stream(Stream(("+s", "", False, None, (INTS,)), arrays))
    reader.read_next_batch()
    before = live_count()
    del arrays, reader
    gc.collect()
    assert live_count() == before - 5


def test_a_stream_nobody_took() -> None:
    before = live_count()
    stream = Stream(INTS, [int_array([1])])
    del stream
    gc.collect()
    assert live_count() == before


def test_read_schema_reads_without_taking() -> None:
    schema = pa.schema([("key", pa.binary_view()), ("value", pa.large_binary())])
    capsule = schema.__arrow_c_schema__()
    for _ in range(2):
        assert requested_format(capsule) == "+s"
        assert requested_columns(capsule) == {"key": "vz", "value": "Z"}
    number = pa.int64().__arrow_c_schema__()
    assert (requested_format(number), requested_columns(number)) == ("l", {})
    with pytest.raises(ValueError, match="PyCapsule"):
        arrow_export.read_schema("no capsule")


def test_read_schema_reads_everything() -> None:
    """B-18: what is read of a schema makes the same schema again."""
    codes = pa.dictionary(pa.int8(), pa.large_string())
    inner = pa.struct([pa.field("a", codes, False), pa.field("b", pa.list_(pa.uuid()))])
    field = pa.field("outer", inner, False, {b"key": b"va\0ue", b"": b""})
    again = arrow_export.schema_capsule(arrow_export.read_schema(field.__arrow_c_schema__()))
    assert pa.Field._import_from_c_capsule(again).equals(field, check_metadata=True)


def test_a_dictionary_arrives() -> None:
    """B-18: indices with the values that they refer to, and all of it is given back."""
    texts = (2, 0, (None, np.array([0, 1, 3], np.int32), b"abb"), ())
    schema = ("i", "", True, None, (), ("u", "", True, None, ()))
    array = pa.array(Exported(schema, (*int_array([1, 0, 1]), texts)))
    array.validate(full=True)
    assert array.type == pa.dictionary(pa.int32(), pa.string())
    assert array.to_pylist() == ["bb", "a", "bb"]
    capsules = Exported(schema, (*int_array([0]), (1, 0, (None, copy_of(bytes(8)), b""), ())))
    del capsules
    for bad in (5, (1, 0, (None, object()), ())):
        with pytest.raises((TypeError, ValueError)):
            arrow_export.array_capsule((*int_array([0]), bad))


def test_the_schema_of_a_stream_can_be_asked_for_again() -> None:
    """B-18: some consumers ask twice, also where pyarrow describes a column."""
    records = build_partition_records("t", 0, sample_index([b"1"]), value_deserializer=lambda _: {})
    capsule = records.records.__arrow_c_stream__()
    program = ctypes.pythonapi.PyCapsule_GetPointer
    program.restype, program.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    get_schema = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    stream = program(capsule, b"arrow_array_stream")
    call = get_schema(ctypes.cast(stream, ctypes.POINTER(ctypes.c_void_p))[0] or 0)
    for _ in range(2):
        schema = ctypes.create_string_buffer(72)
        address = ctypes.addressof(schema)
        assert call(stream, address) == 0
        assert "value" in pa.Schema._import_from_c(address).names


def test_release_works_on_any_thread() -> None:
    """D-25: an import may be dropped by a thread that never saw the exporter."""
    before = live_count()
    box = [pa.array(Exported(INTS, int_array([number]))) for number in range(50)]
    assert live_count() == before + 50
    threads = [threading.Thread(target=box.pop) for _ in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert live_count() == before


def test_release_after_the_interpreter_has_begun_to_end() -> None:
    """D-25: imports that live until the process ends do not crash it."""
    program = textwrap.dedent(
        """
        import atexit, pyarrow as pa, numpy as np, sys
        from kfast._native import arrow_export
        from kfast._native.buffers import copy_of

        class Exported:
            def __arrow_c_array__(self, requested_schema=None):
                node = (2, 0, (None, copy_of(bytes(8))), ())
                return (arrow_export.schema_capsule(("i", "", True, None, ())),
                        arrow_export.array_capsule(node))

        sys.kept = pa.array(Exported())
        atexit.register(lambda held: None, pa.array(Exported()))
        cycle = [pa.array(Exported())]
        cycle.append(cycle)
        print("end")
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "end\n", "")
