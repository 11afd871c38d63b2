"""How far groups are behind: committed offsets against the ends of the logs, as Kafka's tool does.

A partition has a row if it is assigned to a member or something is committed for it. The lag is end
- committed. It is counted from the start of the log without a committed offset and, other than in
Kafka's tool, with one whose records are gone; it is 0 for one beyond the end. The time lag is the
age of the first record that is not committed, 0 without lag.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from kfast.config import ConsumerConfig
from kfast.errors import GroupIdNotFoundError, KafkaError
from kfast.internals import has_leader
from kfast.types import TopicPartition

if TYPE_CHECKING:
    from kfast.cli.rows import Cell
    from kfast.internals import ClusterAdmin, GroupDescription

LAG_COLUMNS: Final = (
    *("group", "topic", "partition", "committed", "start", "end", "lag", "time_lag_ms"),
    *("member", "client", "host"),
)
_POLL_MS: Final = 200
_READ_BYTES: Final = 4_096
"""Of each partition per Fetch: at least one batch always comes."""


@dataclass(slots=True, frozen=True)
class LagRow:
    """One partition of a group; None: not known, or no member."""

    group: str
    tp: TopicPartition
    committed: int | None
    start: int | None
    end: int | None
    time_lag_ms: int | None = None
    member: str | None = None
    client: str | None = None
    host: str | None = None

    @property
    def lag(self) -> int | None:
        """Offsets behind the end that the log has."""
        if self.start is None or self.end is None:
            return None
        return max(0, self.end - self.first_unread)

    @property
    def first_unread(self) -> int:
        """The first offset that the log has and that is not committed."""
        return max(self.committed or 0, self.start or 0)

    def cells(self) -> tuple[Cell, ...]:
        """Return the cells of `LAG_COLUMNS`."""
        return (
            self.group,
            self.tp.topic,
            self.tp.partition,
            self.committed,
            self.start,
            self.end,
            self.lag,
            self.time_lag_ms,
            self.member,
            self.client,
            self.host,
        )


def lags_of(admin: ClusterAdmin, groups: Mapping[str, GroupDescription]) -> list[LagRow]:
    """Return the rows of groups, by group, topic and partition."""
    rows: dict[tuple[str, TopicPartition], LagRow] = {}
    for name, answer in admin.committed(groups).items():
        if isinstance(answer, GroupIdNotFoundError):  # it was there a moment ago
            continue
        if isinstance(answer, KafkaError):
            raise answer
        for tp, committed in answer.items():
            rows[name, tp] = LagRow(name, tp, committed.offset, None, None)
    for name, group in groups.items():
        for member in group.members:
            for tp in member.partitions or ():
                row = rows.get((name, tp), LagRow(name, tp, None, None, None))
                rows[name, tp] = replace(
                    row, member=member.member_id, client=member.client_id, host=member.host
                )
    partitions = _readable(admin, {tp for _, tp in rows})
    starts = admin.beginning_offsets(partitions)
    ends = admin.end_offsets(starts)
    return [
        replace(row, start=starts.get(row.tp), end=ends.get(row.tp))
        for _, row in sorted(rows.items(), key=lambda entry: entry[0])
    ]


def _readable(admin: ClusterAdmin, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that exist and have a leader."""
    ordered = sorted(partitions)
    topics = admin.topic_metadata({tp.topic for tp in ordered}) if ordered else {}
    return [
        tp
        for tp in ordered
        if (topic := topics.get(tp.topic)) is not None
        and tp.partition in topic.partitions
        and has_leader(topic, tp.partition)
    ]


# --- time lag -------------------------------------------------------------------------------------


def with_time_lags(rows: Sequence[LagRow], settings: Mapping[str, object]) -> list[LagRow]:
    """Return the rows with their time lags, for which the first unread records are read.

    It stays None where no record came in time.
    """
    unread: dict[TopicPartition, set[int]] = {}
    for row in rows:
        if row.lag is not None and row.lag > 0:
            unread.setdefault(row.tp, set()).add(row.first_unread)
    timeout_ms = ConsumerConfig(settings).default_api_timeout_ms
    deadline = time.monotonic() + timeout_ms / 1000
    stamps: dict[tuple[TopicPartition, int], int | None] = {}
    while any(unread.values()):  # groups may be at different offsets of a partition
        positions = {tp: offsets.pop() for tp, offsets in unread.items() if offsets}
        timestamps = _timestamps(positions, _ends(rows), settings, deadline)
        stamps.update(((tp, positions[tp]), stamp) for tp, stamp in timestamps.items())
    now_ms = time.time_ns() // 1_000_000

    def time_lag(row: LagRow) -> int | None:
        if row.lag is None:
            return None
        if row.lag <= 0:
            return 0
        key = (row.tp, row.first_unread)
        stamp = stamps.get(key)
        if stamp is None:
            return 0 if key in stamps else None
        return max(0, now_ms - stamp) if stamp >= 0 else None

    return [replace(row, time_lag_ms=time_lag(row)) for row in rows]


def _ends(rows: Iterable[LagRow]) -> dict[TopicPartition, int]:
    return {row.tp: row.end for row in rows if row.end is not None}


def _timestamps(
    positions: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    settings: Mapping[str, object],
    deadline: float,
) -> dict[TopicPartition, int | None]:
    """Return the timestamp of the first record at or after each offset.

    It is None where no record is left below the end (control records only).
    """
    from kfast import KafkaConsumer  # noqa: PLC0415 - loads NumPy

    limits = {
        "max.partition.fetch.bytes": _READ_BYTES,
        "fetch.max.wait.ms": _POLL_MS,
        "auto.offset.reset": "earliest",  # retention may take the first unread records meanwhile
    }
    timestamps: dict[TopicPartition, int | None] = {}
    with KafkaConsumer(config={**limits, **settings}) as consumer:
        consumer.assign(positions)
        for tp, offset in positions.items():
            consumer.seek(tp, offset)
        while len(timestamps) < len(positions) and time.monotonic() < deadline:
            for tp, batch in consumer.poll(timeout_ms=_POLL_MS).items():
                if len(batch):
                    timestamps.setdefault(tp, int(batch.timestamps[0]))
            for tp in positions:
                if tp not in timestamps and consumer.position(tp) >= ends[tp]:
                    timestamps[tp] = None
            consumer.pause(*timestamps)
    return timestamps
