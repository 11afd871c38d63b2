"""A consumer with typed values: decode threads, positions, errors, schemas to look up."""

from __future__ import annotations

import contextlib
import gc
import threading
import uuid
from collections.abc import Callable, Collection
from typing import Any

import pytest

import kfast
from kfast._native import buffers
from kfast.columns.bytes import BytesColumn
from kfast.columns.typed import StructColumn
from kfast.deserializers.json import Json
from kfast.deserializers.protobuf import Protobuf
from kfast.deserializers.typed import NO_LIMIT
from kfast.errors import DeserializationError, SchemaRegistryError
from kfast.registry.registered_schema import KeyKind, RegisteredSchema, SchemaAnswers, SchemaKey
from kfast.testing.batches import Record
from kfast.testing.cluster import FakeCluster
from kfast.types import TopicPartition
from tests.end_to_end.stage import Stage
from tests.end_to_end.virtual import make_cluster
from tests.fake_registry.server import FakeRegistry, answer
from tests.reference.compression import Codec
from tests.simulation.old_formats import append_batch
from tests.unit.deserializers.sample_format import Lines

MakeStage = Callable[..., Stage]
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def cluster_of(*values: list[bytes | None]) -> FakeCluster:
    cluster = make_cluster(nodes=1, partitions=len(values), records=0)
    for partition, given in enumerate(values):
        cluster.append("t", partition, given, batch_records=3)
    return cluster


def row(number: int, text: str = "x") -> dict[str, Any]:
    return {"id": {"n": number}, "text": text}


GOOD: list[bytes | None] = [b"%d x" % i for i in range(20)]


def read(consumer: Any, count: int) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []
    while len(found) < count:
        batch = next(iter(consumer.batches(timeout_ms=10_000)))
        assert isinstance(batch.values, StructColumn)
        found += zip(batch.offsets.tolist(), batch.values.to_list(), strict=True)
    return found


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("max_poll_records", [None, 4])
def test_typed_values_are_delivered_once_and_in_order(
    make_stage: MakeStage, threads: int, max_poll_records: int | None
) -> None:
    """TC-52: native deserializers run where the slice is decoded; records come once, in order."""
    consumer = make_stage(cluster_of([*GOOD, None])).consumer(
        "t",
        value_deserializer=Lines(),
        decode_threads=threads,
        max_poll_records=max_poll_records,
    )
    assert read(consumer, 21) == [*((i, row(i)) for i in range(20)), (20, None)]
    assert consumer.position(T0) == 21


class Pieces(Lines):
    """Decodes two rows at a time where memory is limited, as in a consumer."""

    __slots__ = ()

    def _decode(self, column: BytesColumn, headers: Any, mode: int, most_bytes: int) -> Any:
        if most_bytes < NO_LIMIT:
            column = column[:2]
        return super()._decode(column, headers, mode, most_bytes)


@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("max_poll_records", [None, 1, 3])
@pytest.mark.parametrize("on_error", ["null", "skip", "raise"])
def test_a_chunk_whose_columns_take_too_much_is_cut(
    make_stage: MakeStage, threads: int, max_poll_records: int | None, on_error: str
) -> None:
    """TC-53: a chunk is cut at a row, the rest is decoded later, and none is lost or repeated."""
    values = list(GOOD)
    values[5] = values[6] = values[11] = b"?"
    consumer = make_stage(cluster_of(values)).consumer(
        "t",
        value_deserializer=Pieces(),
        key_deserializer=Pieces(),
        decode_threads=threads,
        max_poll_records=max_poll_records,
        on_deserialization_error=on_error,
    )
    seen, errors, raised = [], [], []
    at = 0
    while at < 20:
        try:
            records = consumer.poll(timeout_ms=10_000)
        except DeserializationError as error:
            raised.append((error.offset, consumer.position(T0)))
            at = (error.offset or 0) + 1
            consumer.seek(T0, at)
            continue
        seen += [r.offset for batch in records.values() for r in batch if r.value is not None]
        errors += records.errors.offset.tolist()
        for tp, offset in records.next_offsets().items():
            at = offset.offset
            assert consumer.position(tp) == at
    assert seen == [i for i in range(20) if i not in {5, 6, 11}]
    bad = [5, 6, 11]
    is_raised = on_error == "raise"
    assert errors == ([] if is_raised else bad)
    assert raised == (list(zip(bad, bad, strict=True)) if is_raised else [])


@pytest.mark.parametrize("threads", [0, 2])
def test_protobuf_in_a_consumer(make_stage: MakeStage, threads: int) -> None:
    """TC-97, TC-99: framed values, tombstones and bad ones, on decode threads or not."""
    text = 'syntax = "proto3"; message Other {} message Id { int64 n = 1; } '
    text += "message Row { Id id = 1; string text = 2; }"
    head = b"\0\0\0\0\1"
    good = [head + b"\2\4\x0a\2\x08%c\x12\1x" % i for i in range(20)]
    values: list[bytes | None] = [*good, None, head + b"\0", head + b"\2\4\x12\1\xff", b"\2"]
    consumer = make_stage(cluster_of(values)).consumer(
        "t",
        value_deserializer=Protobuf("Row", descriptor_set=text, framing="confluent"),
        on_deserialization_error="null",
        decode_threads=threads,
    )
    found: list[Any] = []
    errors: list[tuple[int, str]] = []
    while len(found) < len(values):
        batch = next(iter(consumer.batches(timeout_ms=10_000)))
        found += batch.values.to_list()
        errors += [(error.offset, error.code) for error in batch.errors]
    assert found == [*map(row, range(20)), None, None, None, None]
    assert errors == [(21, "schema"), (22, "utf8"), (23, "magic")]


@pytest.mark.parametrize("on_error", ["null", "skip"])
@pytest.mark.parametrize("threads", [0, 2])
@pytest.mark.parametrize("max_poll_records", [None, 3])
def test_offsets_that_have_no_row(
    make_stage: MakeStage, on_error: str, threads: int, max_poll_records: int | None
) -> None:
    """TC-09: aborted, control and compacted records shift no row, and no error either."""
    cluster = make_cluster(nodes=1, partitions=1, records=0)
    visible: list[int] = []
    bad: list[int] = []

    def records(deltas: range, *, are_read: bool = True) -> list[Record]:
        begin = writer.log.log_end_offset
        made = []
        for delta in deltas:
            number = b"%d" % (begin + delta)
            is_bad = delta % 5 == 4
            value = b"?" if is_bad else b'{"offset":%b}' % number
            made.append(Record(number, value, offset_delta=delta))
            if are_read:
                visible.append(begin + delta)
                bad.extend([begin + delta] if is_bad else [])
        return made

    with cluster.writing("t", 0) as writer:
        for turn in range(6):
            codec = Codec.ZSTD if turn % 2 else Codec.NONE
            append_batch(writer, records(range(turn, 11, 2)), codec=codec)
            aborted = records(range(4), are_read=False)
            writer.append(aborted, producer_id=1, is_transactional=True)
            writer.append_emptied(3)
            writer.append(records(range(1, 7)), producer_id=2, is_transactional=True)
            writer.end_transaction(1, committed=False)
            writer.end_transaction(2, committed=True)
    consumer = make_stage(cluster).consumer(
        "t",
        key_deserializer=Json("int64"),
        value_deserializer=Json({"offset": "int64"}),
        on_deserialization_error=on_error,
        isolation_level="read_committed",
        decode_threads=threads,
        max_poll_records=max_poll_records,
    )
    rows: list[tuple[int, Any]] = []
    errors: list[int] = []
    while len(rows) + (len(errors) if on_error == "skip" else 0) < len(visible):
        for batch in consumer.poll(timeout_ms=10_000).values():
            assert batch.keys.tolist() == batch.offsets.tolist()
            rows += zip(batch.offsets.tolist(), batch.values.to_list(), strict=True)
            errors += batch.errors.offset.tolist()
    assert rows == [
        (offset, None if offset in bad else {"offset": offset})
        for offset in visible
        if on_error == "null" or offset not in bad
    ]
    assert errors == bad


def test_batches_without_a_row_are_given_for_their_errors(make_stage: MakeStage) -> None:
    """TC-49: what was skipped is seen by a loop over batches, also where nothing else is left."""
    consumer = make_stage(cluster_of([b"?", b"??", b"???"])).consumer(
        "t", value_deserializer=Lines(), on_deserialization_error="skip"
    )
    seen: list[bytes | None] = []
    for batch in consumer.batches(timeout_ms=10_000):
        seen += [error.raw for error in batch.errors]
        if batch.next_offset == 3:
            break
    assert seen == [b"?", b"??", b"???"]
    assert consumer.position(T0) == 3


def test_memory_of_columns_is_counted_and_given_back(make_stage: MakeStage) -> None:
    """TC-54: typed columns count in buffer_memory_bytes until they are handed out."""
    stage = make_stage(cluster_of(GOOD))
    consumer = stage.consumer("t", value_deserializer=Lines(), decode_threads=1)
    batch = next(iter(consumer.batches(timeout_ms=10_000)))
    values = batch.values
    assert values.pinned_nbytes > 0
    buffer = consumer._parts.shared.runtime.fetch_buffer
    read(consumer, 20 - len(batch))
    assert buffer.memory.bytes_used == 0
    column = values["text"]
    del batch
    consumer.close()
    gc.collect()
    assert column.to_list()[0] == "x"


def test_the_received_frame_is_released_when_no_column_points_into_it(
    make_stage: MakeStage,
) -> None:
    consumer = make_stage(cluster_of([b"1 " + b"x" * 50_000] * 20)).consumer(
        "t", value_deserializer=Lines()
    )
    consumer._parts.shared.converter.select(["value"])
    batch = next(iter(consumer.batches(timeout_ms=10_000)))
    kept = batch.values["id"]
    before = buffers.live_bytes()
    del batch
    consumer.close()
    gc.collect()
    assert buffers.live_bytes() < before
    assert kept["n"].tolist()[0] == 1


# ------------------------------------------------------------------------------- schemas to look up


class Request:
    def __init__(self) -> None:
        self.answer: SchemaAnswers | None = None

    def answers(self) -> SchemaAnswers | None:
        return self.answer

    def cancel(self) -> None: ...


class Source:
    """A registry that answers when the test says so."""

    def __init__(self) -> None:
        self.requests: list[tuple[Request, Callable[[], object] | None]] = []
        self.asked = threading.Event()

    def lookup(
        self,
        keys: Collection[SchemaKey],
        on_done: Callable[[], object] | None = None,
        *,
        is_serialized: bool = False,
    ) -> Request:
        request = Request()
        self.requests.append((request, on_done))
        self.asked.set()
        return request

    def wait_for(
        self, keys: Collection[SchemaKey], *, is_serialized: bool = False
    ) -> SchemaAnswers:
        return SchemaAnswers(dict.fromkeys(keys, RegisteredSchema("AVRO", "")))

    def answer(self, error: SchemaRegistryError | None = None) -> None:
        request, on_done = self.requests[-1]
        found = {} if error else {KEY: RegisteredSchema("AVRO", "")}
        request.answer = SchemaAnswers(found, error=error)
        assert on_done is not None
        on_done()


KEY = SchemaKey(KeyKind.ID, 7)


class Registered(Lines):
    """Needs a schema before values that begin with 9 can be decoded."""

    __slots__ = ("known", "source")

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self.known = False

    @property
    def registry(self) -> Any:
        return self.source

    def prepare(self, column: BytesColumn, _headers: Any, /) -> Collection[SchemaKey]:
        needs = any((value or b"").startswith(b"9") for value in column)
        return [KEY] if needs and not self.known else []

    def learn(self, answers: SchemaAnswers) -> None:
        assert KEY in answers.schemas
        self.known = True


@pytest.mark.parametrize("threads", [0, 2])
def test_only_the_chunk_waits_for_its_schema(make_stage: MakeStage, threads: int) -> None:
    """TC-55: a chunk waits for a schema, while other partitions go on, and then it is delivered."""
    source = Source()
    stage = make_stage(cluster_of([b"9 a"], [b"1 x", b"2 x"]))
    consumer = stage.consumer("t", value_deserializer=Registered(source), decode_threads=threads)
    found: list[int] = []
    while len(found) < 2 or not source.requests:
        for tp, batch in consumer.poll(timeout_ms=2_000).items():
            assert tp == T1
            found += batch.offsets.tolist()
    assert found == [0, 1]
    assert not consumer.poll(timeout_ms=50)
    assert consumer.position(T0) == 0
    assert len(source.requests) == 1
    timer = threading.Timer(0.05, source.answer)
    timer.start()
    records = consumer.poll(timeout_ms=10_000)
    timer.join()
    assert records[T0].values.to_list() == [row(9, "a")]
    assert consumer.position(T0) == 1


def test_a_registry_that_is_down_is_an_error_with_the_position_unmoved(
    make_stage: MakeStage,
) -> None:
    """TC-56: poll raises what the registry says, the position stays, the next poll tries again."""
    source = Source()
    stage = make_stage(cluster_of([b"9 a"]))
    consumer = stage.consumer("t", value_deserializer=Registered(source))
    while not source.requests:
        consumer.poll(timeout_ms=50)
    source.answer(SchemaRegistryError("the registry is down"))
    with pytest.raises(SchemaRegistryError, match="is down"):
        consumer.poll(timeout_ms=1_000)
    assert consumer.position(T0) == 0
    while len(source.requests) < 2:
        consumer.poll(timeout_ms=50)
    source.answer()
    assert consumer.poll(timeout_ms=10_000)[T0].values.to_list() == [row(9, "a")]


RECORD = """{"type": "record", "name": "R", "fields": [{"name": "id", "type": "long"}]}"""


@pytest.mark.parametrize("reader", [None, "latest", "t-value:1", RECORD])
def test_a_consumer_reads_avro_of_a_registry(make_stage: MakeStage, reader: str | None) -> None:
    """TC-184: whichever schema gives the columns; one that the registry does not have is named."""
    with FakeRegistry() as registry, kfast.SchemaRegistry(registry.url) as schemas:
        number = registry.register("t-value", RECORD)
        prefix = b"\0" + number.to_bytes(4, "big")
        values: list[bytes | None] = [prefix + bytes([2 * i]) for i in range(20)]
        unknown = b"\0\0\0\0\x63\0"
        consumer = make_stage(cluster_of([*values, None, unknown])).consumer(
            "t",
            value_deserializer=kfast.Avro(registry=schemas, reader=reader),
            on_deserialization_error="null",
        )
        assert consumer.poll(timeout_ms=0).to_arrow().num_rows == 0
        rows: list[Any] = []
        errors: list[Any] = []
        while len(rows) < 22:
            for batch in consumer.poll(timeout_ms=10_000).values():
                rows += batch.values.to_list()
                errors += [(bad.offset, bad.code, bad.schema_id) for bad in batch.errors]
        assert rows == [*({"id": i} for i in range(20)), None, None]
        assert errors == [(21, "unknown_schema", 99)]


def test_six_partitions_ask_once_and_go_on_while_the_registry_is_down(
    make_stage: MakeStage,
) -> None:
    """TC-101, TC-109, TC-56: one request for all; known ids are decoded whatever becomes of it."""
    with FakeRegistry() as registry:
        number = registry.register("t-value", RECORD)
        prefix = b"\0" + number.to_bytes(4, "big")
        values: list[bytes | None] = [prefix + bytes([2 * i]) for i in range(6)]
        cluster = cluster_of(*[values] * 6)
        schemas = kfast.SchemaRegistry(registry.url, deadline_ms=300, retry_backoff_ms=10)
        consumer = make_stage(cluster).consumer(
            "t", value_deserializer=kfast.Avro(registry=schemas), decode_threads=2
        )
        rows: list[Any] = []
        while len(rows) < 36:
            for batch in consumer.poll(timeout_ms=10_000).values():
                rows += batch.values.to_list()
        assert rows == [{"id": i} for i in range(6)] * 6
        assert [each.path for each in registry.requests] == [f"/schemas/ids/{number}"]
        # Down from here on: what is known is read, and what is not is an error of its partition.
        registry.next.extend([answer(503)] * 1000)
        cluster.append("t", 0, [b"\0\0\0\0\2\2"])
        cluster.append("t", 1, [prefix + b"\4"])
        found: dict[int, list[Any]] = {}
        with pytest.raises(SchemaRegistryError) as raised:  # noqa: PT012 - the poll that waits
            while True:
                for tp, batch in consumer.poll(timeout_ms=10_000).items():
                    found.setdefault(tp.partition, []).extend(batch.values.to_list())
        assert raised.value.retriable
        assert consumer.position(T0) == 6
        cluster.append("t", 2, [prefix + b"\6"])
        while len(found) < 2:
            with contextlib.suppress(SchemaRegistryError):
                for tp, batch in consumer.poll(timeout_ms=100).items():
                    found.setdefault(tp.partition, []).extend(batch.values.to_list())
        assert found == {1: [{"id": 2}], 2: [{"id": 3}]}
        # Up again: the record that waited is the next one.
        assert registry.register("t-value", RECORD.replace('"R"', '"R2"')) == 2
        registry.next.clear()
        waited: list[Any] = []
        while not waited:
            with contextlib.suppress(SchemaRegistryError):
                for batch in consumer.poll(timeout_ms=1_000).values():
                    waited += batch.values.to_list()
        assert waited == [{"id": 1}]
        schemas.close()


def test_headers_name_the_schemas_of_bare_values(make_stage: MakeStage) -> None:
    """TC-131: GUIDs and ids in headers of records, of Avro values and of JSON keys."""
    with FakeRegistry() as registry, kfast.SchemaRegistry(registry.url) as schemas:
        number = registry.register("t-value", RECORD)
        guid = uuid.UUID(registry.guid(number)).bytes
        cluster = make_cluster(nodes=1, partitions=1, records=0)
        of_id = b"\0" + number.to_bytes(4, "big")
        named = (("__key_schema_id", of_id), ("x", b"y"), ("__value_schema_id", b"\1" + guid))
        values = [
            Record(b"1", b"\2", named),
            Record(of_id + b"2", of_id + b"\4"),
            Record(b"3", of_id + b"\6", named),
        ]
        cluster.append("t", 0, values)
        consumer = make_stage(cluster).consumer(
            "t",
            key_deserializer=Json("int64", framing="confluent"),
            value_deserializer=kfast.Avro(registry=schemas),
            on_deserialization_error="null",
        )
        batch = consumer.poll(timeout_ms=10_000)[T0]
        assert batch.keys.tolist() == [1, 2, 3]
        assert batch.values.to_list() == [{"id": 1}, {"id": 2}, None]
        (error,) = batch.errors
        assert (error.code, error.schema_id) == ("trailing", registry.guid(number))


def test_a_batch_in_memory_waits_for_the_schema() -> None:
    made = Registered(Source()).decode([b"9 a"])
    assert made.values.to_list() == [row(9, "a")]


def test_typed_columns_stay_within_the_budget(make_stage: MakeStage) -> None:
    """TC-54: frames, chunks and typed columns together keep to buffer_memory_bytes."""
    cap, count = 8 << 20, 30_000
    cluster = make_cluster(nodes=1, records=0)
    document = b'{"id":%d,"text":"' + b"x" * 900 + b'","numbers":[' + b"1," * 40 + b"2]}"
    cluster.append("t", 0, [document % i for i in range(count)], batch_records=500)
    schema = {"id": "int64", "text": "string", "numbers": ["int64"]}
    consumer = make_stage(cluster).consumer(
        "t",
        value_deserializer=Json(schema),
        buffer_memory_bytes=cap,
        fetch_max_bytes=cap // 4,
        decode_threads=2,
    )
    gc.collect()
    before = most = buffers.live_bytes()
    found = 0
    for batch in consumer.batches(timeout_ms=10_000):
        found += len(batch)
        most = max(most, buffers.live_bytes())
        assert int(batch.values["id"][-1]) == found - 1
        if found == count:
            break
    # What was handed out is not in the account; it is at most once more the cap.
    assert most - before < 2 * cap
