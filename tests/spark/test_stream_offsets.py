"""The offsets of a running query, with answers from memory and a clock that stands still."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kfast.errors import ConfigurationError, KafkaError, OffsetOutOfRangeError
from kfast.spark.source.stream_offsets import ENDS_MAX_AGE_MS, StreamOffsets
from kfast.table.offset_ranges import OffsetRange
from kfast.table.store import LocalStore
from kfast.table.topic_ids import TopicIds
from tests.fake_clock import FakeClock
from tests.spark.support import FakeLookup, at, options, tp


class Query:
    """A query of topic t; what it keeps of topics is in a folder, if there is one."""

    def __init__(
        self,
        starts: dict[int, int],
        ends: dict[int, int],
        folder: Path | None = None,
        **more: Any,
    ) -> None:
        self.lookup = FakeLookup(
            {tp(number): offset for number, offset in starts.items()},
            {tp(number): offset for number, offset in ends.items()},
        )
        self.clock = FakeClock()
        ids = TopicIds(None if folder is None else LocalStore(folder))
        self.offsets = StreamOffsets(options(is_stream=True, **more), self.lookup, self.clock, ids)

    def grow(self, *ends: int) -> None:
        """Let the logs end there, and some time pass."""
        self.lookup.ends = at(*ends)
        self.lookup.starts = {**dict.fromkeys(self.lookup.ends, 0), **self.lookup.starts}
        self.clock.advance(ENDS_MAX_AGE_MS)


def test_a_new_query_starts_where_the_options_say() -> None:
    assert Query({0: 3}, {0: 9}).offsets.initial() == at(9)
    assert Query({0: 3}, {0: 9}, startingOffsets="earliest").offsets.initial() == at(3)
    assert Query({0: 3}, {0: 9}, startingOffsets='{"t":{"0":5}}').offsets.initial() == at(5)
    with pytest.raises(ConfigurationError, match="must name all partitions"):
        Query({0: 3}, {0: 9}, startingOffsets='{"t":{"1":5}}').offsets.initial()
    with pytest.raises(KafkaError, match="no topic"):
        Query({}, {}).offsets.initial()


def test_where_a_new_query_starts_does_not_move() -> None:
    # Spark asks for it twice: once to limit the first batch, once to plan it.
    query = Query({0: 3}, {0: 9})
    start = query.offsets.initial()
    end = query.offsets.next_end(start, None)
    query.lookup.ends = at(20)
    assert query.offsets.initial() == start == at(9)
    assert query.offsets.ranges(query.offsets.initial(), end) == []


def test_an_idle_query_does_not_ask_brokers_all_the_time() -> None:
    query = Query({0: 0}, {0: 9})
    for _ in range(10):
        assert query.offsets.next_end(at(9), None) == at(9)
        query.clock.advance(ENDS_MAX_AGE_MS // 10 - 1)
    assert query.lookup.looks == 1
    query.grow(12)
    assert query.offsets.next_end(at(9), None) == at(12)
    assert query.lookup.looks == 2


def test_without_a_start_the_end_of_the_logs_is_returned() -> None:
    assert Query({0: 0}, {0: 9}).offsets.next_end(None, None) == at(9)


def test_a_limit_counts_new_partitions_from_their_beginning() -> None:
    query = Query({0: 0, 1: 4}, {0: 100, 1: 104})
    assert query.offsets.next_end({tp(0): 0}, 100) == at(50, 54)


def test_a_minimum_is_waited_for_but_not_longer_than_the_delay() -> None:
    query = Query({0: 0}, {0: 5}, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    assert query.offsets.next_end(at(0), None) == at(5), "the first batch never waits"
    query.grow(9)
    assert query.offsets.next_end(at(5), None) == at(5)
    query.grow(15)
    assert query.offsets.next_end(at(5), None) == at(15)
    query.grow(16)
    assert query.offsets.next_end(at(15), None) == at(15)
    query.clock.advance(60_000)
    assert query.offsets.next_end(at(15), None) == at(16)


def test_available_now_ends_where_the_logs_ended_then() -> None:
    query = Query({0: 0}, {0: 9}, minOffsetsPerTrigger="100")
    query.offsets.stop_at_present()
    query.grow(50)
    assert query.offsets.next_end(at(0), 4) == at(4)
    assert query.offsets.next_end(at(4), 400) == at(9)
    assert query.offsets.next_end(at(9), 4) == at(9)
    assert query.offsets.latest() == at(9)


# --- plans ----------------------------------------------------------------------------------------


def test_a_batch_is_what_lies_between() -> None:
    query = Query({0: 0, 1: 0}, {0: 9, 1: 9})
    assert query.offsets.ranges(at(2, 9), at(7, 9)) == [OffsetRange("t", 0, 2, 7)]
    query = Query({0: 0}, {0: 9}, minPartitions="3")
    assert len(query.offsets.ranges(at(0), at(9))) == 3
    query = Query({0: 0}, {0: 9}, maxRecordsPerPartition="2")
    assert len(query.offsets.ranges(at(0), at(9))) == 5


def test_a_partition_that_appears_is_read_from_its_beginning() -> None:
    query = Query({0: 0, 1: 0}, {0: 9, 1: 5})
    assert query.offsets.ranges(at(9), at(9, 5)) == [OffsetRange("t", 1, 0, 5)]


def test_limit_and_plan_agree_about_a_partition_that_appears() -> None:
    query = Query({0: 0, 1: 0}, {0: 0, 1: 100})
    end = query.offsets.next_end(at(0), 10)
    query.lookup.starts[tp(1)] = 7  # retention, meanwhile
    assert query.offsets.ranges(at(0), end) == [OffsetRange("t", 1, 0, 10)]


def test_what_a_new_partition_has_lost_is_in_the_range_of_a_task() -> None:
    """Q-04, W-05: which counts it; the others are as large as they were."""
    query = Query({0: 0, 1: 6}, {0: 9, 1: 26}, failOnDataLoss="false", maxRecordsPerPartition="10")
    assert query.offsets.ranges(at(3), at(9, 26)) == [
        OffsetRange("t", 0, 3, 9),
        OffsetRange("t", 1, 0, 16),
        OffsetRange("t", 1, 16, 26),
    ]
    emptied = Query({0: 0, 1: 6}, {0: 9, 1: 6}, failOnDataLoss="false")
    assert emptied.offsets.ranges(at(9), at(9, 6)) == [OffsetRange("t", 1, 0, 6)]


LOSSES = [
    ({0: 0}, at(3, 4), at(5), "t-1 of this query are gone"),
    ({0: 0, 1: 6}, at(3), at(5, 8), "t-1 is new and starts at 6, not at 0"),
    ({0: 0}, at(3), at(2), "t-0 ends at 2, but was read up to 3"),
]


@pytest.mark.parametrize(("starts", "start", "end", "message"), LOSSES)
def test_losses(
    starts: dict[int, int],
    start: dict[object, int],
    end: dict[object, int],
    message: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(OffsetOutOfRangeError) as raised:
        Query(starts, {}).offsets.ranges(start, end)  # type: ignore[arg-type]
    assert raised.value.message == message
    assert "failOnDataLoss=false" in str(raised.value.hint)
    patient = Query(starts, {}, failOnDataLoss="false")
    planned = patient.offsets.ranges(start, end)  # type: ignore[arg-type]
    assert all(part.size > 0 for part in planned)
    assert message in caplog.text


def test_a_log_that_seems_shorter_is_looked_at_again() -> None:
    query = Query({0: 0}, {0: 5})
    assert query.offsets.latest() == at(5)
    query.lookup.ends = at(9)  # too soon for another look
    assert query.offsets.next_end(at(8), None) == at(9)
    assert query.lookup.pauses == 1


def test_a_log_that_stays_shorter_or_away_is_believed_after_some_looks() -> None:
    for ends in ({0: 5}, {}):
        query = Query({0: 0}, ends, failOnDataLoss="false")
        end = query.offsets.next_end(at(8), None)
        assert end == {tp(number): offset for number, offset in ends.items()}
        assert (query.lookup.looks, query.lookup.pauses) == (4, 3)


def test_a_loss_is_said_before_spark_notes_the_end_of_a_batch() -> None:
    query = Query({0: 0}, {0: 5})
    with pytest.raises(OffsetOutOfRangeError, match="t-0 ends at 5, but was read up to 8"):
        query.offsets.next_end(at(8), None)
    query.grow()
    with pytest.raises(OffsetOutOfRangeError, match="t-0 of this query are gone"):
        query.offsets.next_end(at(8), None)
    query.grow(9)
    assert query.offsets.next_end(at(8), None) == at(9), "all is well again"


def test_a_checkpoint_of_other_topics(caplog: pytest.LogCaptureFixture) -> None:
    of_both = {tp(0): 3, tp(0, "other"): 7}
    query = Query({0: 0}, {0: 5})
    with pytest.raises(OffsetOutOfRangeError) as raised:
        query.offsets.next_end(of_both, None)
    assert raised.value.message == "the checkpoint has other-0, and this query reads topics t"
    assert "use another checkpoint" in str(raised.value.hint)
    assert query.lookup.pauses == 0
    patient = Query({0: 0}, {0: 5}, failOnDataLoss="false")
    end = patient.offsets.next_end(of_both, None)
    assert end == at(5)
    assert patient.offsets.ranges(of_both, end) == [OffsetRange("t", 0, 3, 5)]
    assert "the checkpoint has other-0" in caplog.text


def test_a_log_that_is_shorter_goes_on_from_its_end_when_losses_are_allowed() -> None:
    query = Query({0: 0}, {0: 5}, failOnDataLoss="false")
    end = query.offsets.next_end(at(8), 100)
    assert end == at(5)
    assert query.offsets.ranges(at(8), end) == []
    query.grow(7)
    assert query.offsets.ranges(end, query.offsets.next_end(end, None)) == [
        OffsetRange("t", 0, 5, 7)
    ]


def test_available_now_does_not_end_before_a_start_that_is_newer() -> None:
    query = Query({0: 0}, {0: 9}, fetchOffset__numRetries="0")
    query.offsets.stop_at_present()
    query.grow(12)
    start = query.offsets.initial()
    assert start == query.offsets.next_end(start, None) == query.offsets.next_end(start, None)
    assert start == at(12)


# --- starts that no log has -----------------------------------------------------------------------

PAST: dict[str, Any] = {"startingOffsets": '{"t":{"0":5,"1":500}}'}


@pytest.mark.parametrize("is_available_now", [False, True])
def test_a_start_after_the_end_of_the_log_is_an_error_and_not_stored(
    is_available_now: bool,
) -> None:
    """Q-01: with Trigger.AvailableNow too, which used to end at the false offset."""
    query = Query({0: 0, 1: 0}, {0: 9, 1: 100}, **PAST)
    if is_available_now:
        query.offsets.stop_at_present()
    with pytest.raises(OffsetOutOfRangeError) as raised:
        query.offsets.initial()
    assert raised.value.message == "t-1 would be read from 500, but its log ends at 100"
    assert (raised.value.topic, raised.value.partition) == ("t", 1)
    assert raised.value.offset == 500
    assert "startingOffsets" in str(raised.value.hint)


def test_a_start_after_the_end_of_the_log_is_its_end_when_losses_are_allowed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Q-01: logged, and what the checkpoint gets is an offset the log has."""
    query = Query({0: 0, 1: 0}, {0: 9, 1: 100}, failOnDataLoss="false", **PAST)
    query.offsets.stop_at_present()
    start = query.offsets.initial()
    assert start == at(5, 100)
    assert "t-1 would be read from 500" in caplog.text
    query.grow(9, 130)
    end = query.offsets.next_end(start, None)
    assert end == at(9, 100), "as a stream from the latest, it begins with a batch that ends there"
    assert query.offsets.ranges(start, end) == [OffsetRange("t", 0, 5, 9)]
    # Killed before the batch was done, and the log has grown.
    again = Query({0: 0, 1: 0}, {0: 9, 1: 300}, failOnDataLoss="false", **PAST)
    assert again.offsets.ranges(again.offsets.initial(), end) == [OffsetRange("t", 0, 5, 9)]


# --- topics that are created anew -----------------------------------------------------------------


def of_earlier_topic(folder: Path | None, **more: str) -> Query:
    """Return a query that has read a topic of 9 records."""
    query = Query({0: 0}, {0: 9}, folder, startingOffsets="earliest", **more)
    query.lookup.topic_ids = {"t": "old"}
    end = query.offsets.next_end(query.offsets.initial(), None)
    assert query.offsets.ranges(at(0), end) == [OffsetRange("t", 0, 0, 9)]
    return query


def of_new_topic(folder: Path, end: int, **more: str) -> Query:
    """Return a query, started again, whose topic has been created anew."""
    query = Query({0: 0}, {0: end}, folder, **more)
    query.lookup.topic_ids = {"t": "new"}
    return query


def test_a_topic_created_anew_is_an_error_however_long_its_log_is(tmp_path: Path) -> None:
    """Q-02: known by Kafka's topic id, in one run and from one run to the next."""
    query = of_earlier_topic(tmp_path)
    query.grow(20)
    query.lookup.topic_ids = {"t": "new"}
    with pytest.raises(OffsetOutOfRangeError) as raised:
        query.offsets.next_end(at(9), None)
    assert raised.value.message == (
        "the topic t was deleted and created anew: its id was old and is new"
    )
    assert "from its beginning" in str(raised.value.hint)
    later = of_new_topic(tmp_path, 20)
    with pytest.raises(OffsetOutOfRangeError, match="created anew"):
        later.offsets.next_end(at(9), None)
    with pytest.raises(OffsetOutOfRangeError, match="created anew"):
        later.offsets.ranges(at(0), at(9))  # a batch that was planned, and is repeated


def test_an_interrupted_look_up_leaves_a_topic_created_anew_to_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """V-12: it does not go on at the offsets of the earlier one."""
    of_earlier_topic(tmp_path)
    query = of_new_topic(tmp_path, 20, failOnDataLoss="false")

    def interrupt(_: object) -> dict[Any, int]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(query.lookup, "earliest", interrupt)
        with pytest.raises(KeyboardInterrupt):
            query.offsets.next_end(at(9), None)
    assert query.offsets.next_end(at(9), None) == at(0)
    assert query.offsets.ranges(at(9), at(0)) == []


@pytest.mark.parametrize("end_of_new", [4, 9, 20])
def test_a_topic_created_anew_is_read_from_its_beginning_when_losses_are_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, end_of_new: int
) -> None:
    """Q-02: after an empty batch, whose end in the checkpoint is where the new topic begins."""
    of_earlier_topic(tmp_path)
    query = of_new_topic(tmp_path, end_of_new, failOnDataLoss="false")
    query.offsets.stop_at_present()
    begin = query.offsets.next_end(at(9), 100)
    assert begin == at(0)
    assert query.lookup.pauses == 0
    assert "created anew: its id was old and is new" in caplog.text
    # Killed after the checkpoint has the end of that batch, before anything else.
    killed = of_new_topic(tmp_path, end_of_new, failOnDataLoss="false")
    assert killed.offsets.ranges(at(9), begin) == []
    assert killed.offsets.next_end(begin, 100) == begin
    assert killed.offsets.next_end(begin, 100) == at(end_of_new)
    # Not killed.
    caplog.clear()
    assert query.offsets.ranges(at(9), begin) == []
    following = query.offsets.next_end(begin, 100)
    assert query.offsets.ranges(begin, following) == [OffsetRange("t", 0, 0, end_of_new)]
    assert not caplog.text
    strict = of_new_topic(tmp_path, end_of_new)
    assert strict.offsets.next_end(following, None) == following, "it is known from now on"


def test_a_batch_of_the_earlier_topic_is_not_read_from_the_new_one(tmp_path: Path) -> None:
    """Q-02: offsets that were planned before mean nothing in it."""
    of_earlier_topic(tmp_path)
    query = of_new_topic(tmp_path, 50, failOnDataLoss="false")
    assert query.offsets.ranges(at(9), at(30)) == []
    assert query.offsets.next_end(at(30), None) == at(0)


def test_an_id_of_a_broker_that_lags_behind_is_not_another_topic() -> None:
    """Q-02: an id is not believed once another one has followed it."""
    query = of_earlier_topic(None, failOnDataLoss="false")
    query.grow(12)
    query.lookup.topic_ids = {"t": "new"}
    begin = query.offsets.next_end(at(9), None)
    assert begin == at(0)
    query.lookup.topic_ids = {"t": "old"}
    assert query.offsets.next_end(begin, None) == at(12)


def test_topics_without_ids_are_known_by_their_ends_only() -> None:
    query = Query({0: 0}, {0: 9}, startingOffsets="earliest")
    query.offsets.ranges(at(0), query.offsets.next_end(query.offsets.initial(), None))
    query.grow(12)
    assert query.offsets.next_end(at(9), None) == at(12)


def test_ids_of_topics_are_kept_by_several_sources_of_a_query(tmp_path: Path) -> None:
    """Q-02: each adds its own; the newest file counts."""
    store = LocalStore(tmp_path)
    sources = [TopicIds(store), TopicIds(store)]
    for number, source in enumerate(sources):
        source.adopt({f"t{number}": "x", "both": "y"})
    for number, source in enumerate(sources):
        source.save([f"t{number}", "both"])
    assert TopicIds(store).by_topic == {"t0": "x", "t1": "x", "both": "y"}
    assert len(store.files("")) == 1
    store.create("kfast-topics/5.json", b"{")
    with pytest.raises(ConfigurationError, match=r"kfast-topics/5.json does not have the ids"):
        TopicIds(store).by_topic  # noqa: B018 - raises
