"""Every fault does what its name says, to the request it is meant for and to no other."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from kfast.protocol.messages.fetch import FetchRequest
from kfast.protocol.messages.metadata import MetadataRequest
from tests.fake_broker.cluster import FakeCluster
from tests.fake_broker.connection import FakeConnection
from tests.fake_broker.fault_actions import (
    HTTP_ANSWER,
    Answer,
    ClaimFrameSize,
    Delay,
    Drop,
    DropMidRequest,
    EditFrame,
    EditResponse,
    Fault,
    FlipByte,
    NeverAnswer,
    PartitionError,
    Split,
    Throttle,
    TopLevelError,
    Trickle,
    TruncateBody,
    WrongCorrelationId,
)
from tests.fake_broker.faults import CONNECT
from tests.fake_broker.fetch_faults import (
    DuplicatePartition,
    EditRecords,
    OmitPartition,
    UnaskedPartition,
    UnaskedTopic,
    batch_positions,
    claim_batch_length,
    cut_tail,
    damage_batch,
)
from tests.fake_broker.releases import Api
from tests.unit.fake_broker.wire import answers, ask, decode, fetch_request, frame

METADATA = MetadataRequest([])


def make_cluster(*faults: Fault, **when: Any) -> FakeCluster:
    cluster = FakeCluster(2)
    cluster.create_topic("t", 2, leaders=[1, 1])
    for partition in range(2):
        cluster.append("t", partition, [b"x"] * 6, batch_records=2)
    if faults:
        cluster.faults.add(*faults, **when)
    return cluster


def send(connection: FakeConnection, now_ms: int = 0, correlation_id: int = 1) -> None:
    connection.receive(frame(METADATA, 13, correlation_id), now_ms)


def healthy_answer() -> bytes:
    answer = make_cluster().handle_request(1, frame(METADATA, 13))
    assert answer is not None
    return answer


def test_rules_select_requests() -> None:
    cluster = make_cluster()
    add = cluster.faults.add
    rules = [
        add(Delay(0), api=Api.METADATA, times=None),
        add(Delay(0), api=Api.FETCH),
        add(Delay(0), node=2),
        add(Delay(0), connection=2),
        add(Delay(0), nth=2),
        add(Delay(0), times=2),
        add(Delay(0), where=lambda entry: entry.correlation_id == 3),
    ]
    connections = [cluster.connect(1), cluster.connect(2)]
    for number in range(4):
        send(connections[number % 2], correlation_id=number)
        connections[number % 2].drain(0)
    assert [rule.hits for rule in rules] == [4, 0, 1, 1, 1, 2, 1]
    cluster.faults.remove(rules[0])
    cluster.faults.remove(rules[0])
    send(connections[0])
    assert rules[0].hits == 4
    cluster.faults.clear()
    assert cluster.faults.rules == []


def test_dropping_before_during_and_after_the_answer() -> None:
    size = len(healthy_answer())
    for after_bytes in (0, 1, 7, size - 1, size):
        cluster = make_cluster(Drop(after_bytes, is_reset=True))
        connection = cluster.connect(1)
        send(connection)
        assert connection.drain(0) == healthy_answer()[:after_bytes]
        assert connection.is_closed
        assert connection.is_reset
        assert len(cluster.requests) == 1


@pytest.mark.parametrize("after_bytes", [12, 20])
def test_dropping_in_the_middle_of_the_request(after_bytes: int) -> None:
    cluster = make_cluster(DropMidRequest(after_bytes), api=Api.METADATA, nth=2)
    connection = cluster.connect(1)
    request = frame(METADATA, 13)
    connection.receive(request, 0)
    assert connection.drain(0)
    is_closed = []
    for part in (request[: after_bytes - 1], request[after_bytes - 1 :]):
        connection.receive(part, 0)
        is_closed.append(connection.is_closed)
    assert is_closed == [False, True]
    assert len(cluster.requests) == 1


def test_delays_and_the_order_of_answers() -> None:
    cluster = make_cluster(Delay(100))
    connection = cluster.connect(1)
    send(connection, 0, 1)
    send(connection, 0, 2)
    assert connection.next_chunk(99) is None
    assert connection.next_event_ms() == 100
    first = connection.next_chunk(100)
    second = connection.next_chunk(100)
    assert first is not None
    assert second is not None
    assert [struct.unpack_from(">i", answer, 4)[0] for answer in (first, second)] == [1, 2]
    assert [entry.time_ms for entry in cluster.requests] == [0, 100]


def test_never_answering_is_for_the_whole_connection() -> None:
    cluster = make_cluster(NeverAnswer())
    connection = cluster.connect(1)
    for _ in range(2):
        send(connection)
    assert connection.drain(0) == b""
    assert connection.next_event_ms() is None
    assert not connection.is_closed
    assert cluster.handle_request(1, frame(METADATA, 13)) == healthy_answer()


def test_trickling_one_byte_per_second() -> None:
    connection = make_cluster(Trickle()).connect(1)
    send(connection)
    received = b""
    for second in range(1, 6):
        assert connection.next_chunk(second * 1000 - 1) is None
        received += connection.next_chunk(second * 1000) or b""
    assert received == healthy_answer()[:5]
    assert connection.drain(5000) == healthy_answer()[5:]


def test_splitting_at_any_boundary() -> None:
    connection = make_cluster(Split((1, 3, 2))).connect(1)
    send(connection)
    chunks = []
    while (chunk := connection.next_chunk(0)) is not None:
        chunks.append(chunk)
    assert [len(chunk) for chunk in chunks[:4]] == [1, 3, 2, 2]
    assert b"".join(chunks) == healthy_answer()


def test_answers_that_lie() -> None:
    whole = healthy_answer()

    def answer(fault: Fault) -> bytes | None:
        return make_cluster(fault).handle_request(1, frame(METADATA, 13))

    assert answer(WrongCorrelationId(4)) == whole[:4] + b"\0\0\0\5" + whole[8:]
    assert answer(ClaimFrameSize(-1)) == b"\xff" * 4 + whole[4:]
    assert answer(ClaimFrameSize(0x7FFFFFFF)) == b"\x7f\xff\xff\xff" + whole[4:]
    assert answer(TruncateBody(3)) == struct.pack(">i", len(whole) - 7) + whole[4:-3]
    assert answer(FlipByte(-1)) == whole[:-1] + bytes([whole[-1] ^ 0xFF])
    assert answer(EditFrame(lambda _: b"")) is None
    assert answer(Answer(HTTP_ANSWER)) == HTTP_ANSWER


def test_an_http_server_answers_and_closes() -> None:
    cluster = make_cluster(Answer(HTTP_ANSWER))
    connection = cluster.connect(1)
    send(connection)
    assert connection.drain(0) == HTTP_ANSWER
    assert connection.is_closed
    assert not connection.is_reset


def test_faults_of_accepted_connections() -> None:
    cluster = make_cluster(Drop(), api=CONNECT, node=1)
    assert cluster.connect(2).is_closed is False
    assert cluster.connect(1).is_closed
    assert not cluster.connect(1).is_closed
    cluster.faults.add(Answer(b"SSH-2.0\r\n", is_closing=False), api=CONNECT)
    greeting = cluster.connect(1)
    assert greeting.drain(0) == b"SSH-2.0\r\n"
    assert not greeting.is_closed
    cluster.faults.add(NeverAnswer(), api=CONNECT)
    silent = cluster.connect(1)
    send(silent)
    assert silent.drain(0) == b""
    cluster.faults.add(Drop())
    assert not cluster.connect(1).is_closed


def test_partition_and_top_level_errors() -> None:
    cluster = make_cluster(PartitionError(6, "t", 1), api=Api.FETCH)
    request = fetch_request(cluster, 17, {("t", 0): 0, ("t", 1): 0})
    found = answers(ask(cluster, request, 17))
    assert [found[number].error_code for number in range(2)] == [0, 6]
    assert found[1].records == b""
    cluster.faults.add(TopLevelError(71), api=Api.FETCH)
    response = ask(cluster, request, 17)
    assert (response.error_code, response.session_id, response.responses) == (71, 0, [])


def test_throttling_mutes_the_connection_after_the_answer() -> None:
    connection = make_cluster(Throttle(300)).connect(1)
    send(connection, 0, 1)
    send(connection, 0, 2)
    first = connection.next_chunk(0)
    assert first is not None
    assert decode(METADATA, 13, first).throttle_time_ms == 300
    assert connection.next_chunk(299) is None
    assert connection.next_event_ms() == 300
    second = connection.next_chunk(300)
    assert second is not None
    assert decode(METADATA, 13, second).throttle_time_ms == 0


def partitions_answered(fault: Fault, version: int = 17) -> list[tuple[str, int]]:
    cluster = make_cluster(fault)
    request = fetch_request(cluster, version, {("t", 0): 0, ("t", 1): 0})
    response = ask(cluster, request, version)
    return [
        (topic.topic or topic.topic_id.decode("latin-1"), partition.partition_index)
        for topic in response.responses
        for partition in topic.partitions
    ]


def test_omitted_duplicate_and_unasked_partitions() -> None:
    assert partitions_answered(OmitPartition("t", 0), 12) == [("t", 1)]
    assert partitions_answered(OmitPartition()) == []
    assert partitions_answered(DuplicatePartition("t", 0), 12) == [("t", 0), ("t", 1), ("t", 0)]
    assert partitions_answered(UnaskedPartition(), 12)[-1] == ("t", 999)
    assert partitions_answered(UnaskedTopic(), 12)[-1] == ("unasked", 1)
    assert partitions_answered(UnaskedTopic())[-1] == ("\xee" * 16, 1)


def test_records_can_be_damaged_in_one_partition() -> None:
    def records(edit: Any) -> bytes:
        cluster = make_cluster(EditRecords(edit, "t", 1))
        request = fetch_request(cluster, 17, {("t", 0): 0, ("t", 1): 0})
        found = answers(ask(cluster, request, 17))
        assert found[0].records == whole
        return found[1].records or b""

    cluster = make_cluster()
    whole = b"".join(batch.data for batch in cluster.log("t", 0).batches)
    size = len(whole) // 3
    assert batch_positions(whole) == [(0, size), (size, 2 * size), (2 * size, 3 * size)]
    assert records(cut_tail(5)) == whole[:-5]
    damaged = records(damage_batch(1))
    assert [n for n in range(len(whole)) if damaged[n] != whole[n]] == [2 * size - 1]
    assert records(damage_batch(0, 17))[17] == whole[17] ^ 0xFF
    assert records(claim_batch_length(2, -5))[2 * size + 8 : 2 * size + 12] == b"\xff\xff\xff\xfb"


def test_a_response_object_can_be_edited_given_the_request() -> None:
    def edit(response: Any, entry: Any) -> None:
        assert isinstance(entry.message, FetchRequest)
        response.responses[0].partitions[0].high_watermark = 77

    cluster = make_cluster(EditResponse(edit), api=Api.FETCH)
    found = answers(ask(cluster, fetch_request(cluster, 17, {("t", 0): 0}), 17))
    assert found[0].high_watermark == 77


def test_faults_do_not_hit_other_apis() -> None:
    cluster = make_cluster(Drop(), api=Api.FETCH)
    assert cluster.handle_request(1, frame(METADATA, 13)) == healthy_answer()
