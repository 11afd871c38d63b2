"""The examples of docs/typed-columns.md run, with batches in place of a consumer."""

from __future__ import annotations

from typing import Any

from kfast.records import PartitionRecords, build_partition_records
from tests.document_examples import examples
from tests.fake_registry.server import fake_registry
from tests.unit.records.sample_index import Sample, sample_index

VALUES = [b'{"id": 1, "price": 2.5}', b'{"id": "x"}', None, b'{"id": 3, "user": "ann"}']


class Consumer:
    """A consumer of one batch."""

    def __init__(self, batch: PartitionRecords) -> None:
        self._batch = batch
        self.committed: list[Any] = []

    def batches(self, *, timeout_ms: int) -> list[PartitionRecords]:
        return [self._batch]

    def commit(self, offsets: Any) -> None:
        self.committed.append(offsets)


class Producer:
    """A producer that keeps what it is given."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.flushed = 0

    def produce(self, topic: str, value: bytes, headers: Any) -> None:
        self.sent.append((topic, value, dict(headers)))

    def flush(self) -> None:
        self.flushed += 1


def test_the_examples(capsys: Any) -> None:
    """TC-20: examples of all formats, inference, a registry, errors and a dead-letter topic."""
    names: dict[str, Any] = {"__name__": __name__}  # a dataclass looks for its module
    for code in examples("docs/typed-columns.md", "JSON"):
        exec(code, names)
    for code in examples("docs/typed-columns.md", "Avro"):
        exec(code, names)
    for code in examples("docs/typed-columns.md", "Protobuf"):
        exec(code, dict(names))  # what follows has the value of Avro
    (code,) = examples("docs/typed-columns.md", "Schema registry")
    with fake_registry() as registry:
        registry.register("orders-value", names["written"])
        assert "http://localhost:8081" in code
        exec(code.replace("http://localhost:8081", registry.url), names)
    for code in examples("docs/typed-columns.md", "Bad values"):
        exec(code, names)
    printed = capsys.readouterr().out
    assert "3 documents, 1 of them cannot be read" in printed
    assert "type id 7 row 1: value.id is a string, not int64" in printed
    index = sample_index([Sample(value, b"k") for value in VALUES])
    raw = build_partition_records("orders", 3, index).records
    batch = raw.decode(values=names["trades"], on_error="null")
    consumer, producer = Consumer(batch), Producer()
    table: list[Any] = []
    names["to_table"](consumer, producer, table)
    assert table[0].column("id").to_pylist() == [1, None, None, 3]
    assert table[0].column("price").to_pylist() == [2.5, None, None, None]
    (sent,) = producer.sent
    assert sent[:2] == ("orders.dlq", VALUES[1])
    assert producer.flushed == 1
    assert consumer.committed == [{batch.topic_partition: batch.next_offset}]
