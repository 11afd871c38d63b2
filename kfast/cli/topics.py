"""``kfast topics``: the topics of a cluster; ``kfast topics describe``: their partitions."""

from __future__ import annotations

import base64
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import click

from kfast.cli.admin import admin_of, topics_of
from kfast.cli.options import Command, Common
from kfast.cli.rows import Row, format_option, iso, write_rows
from kfast.internals import has_leader
from kfast.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    from kfast.internals import ClusterAdmin, TopicMetadata

TOPIC_COLUMNS: Final = (
    *("topic", "partitions", "replication", "under_replicated", "offsets", "newest", "internal"),
)
PARTITION_COLUMNS: Final = (
    *("topic", "id", "partition", "leader", "replicas", "isr", "offline"),
    *("start", "end", "offsets", "leader_epoch"),
)


def _topics(common: Common, topics: tuple[str, ...], internal: bool, format: str) -> None:
    with admin_of(common) as admin:
        metadata = topics_of(admin, topics, with_internal=internal)
        starts, ends = _log_bounds(admin, metadata, topics)
        newest = admin.newest(ends)
    rows = []
    for name, topic in metadata.items():
        partitions = topic.partitions.values()
        mine = [TopicPartition(name, number) for number in topic.partitions]
        is_known = all(tp in ends for tp in mine)
        stamps = [hit.timestamp for tp in mine if (hit := newest.get(tp)) is not None]
        rows.append(
            (
                name,
                len(mine),
                max((len(partition.replicas) for partition in partitions), default=0),
                sum(len(partition.isr) < len(partition.replicas) for partition in partitions),
                sum(ends[tp] - starts[tp] for tp in mine) if is_known else None,
                iso(max(stamps, default=None)),
                topic.is_internal,
            )
        )
    write_rows(TOPIC_COLUMNS, rows, format)


def _describe(common: Common, topics: tuple[str, ...], format: str) -> None:
    with admin_of(common) as admin:
        metadata = topics_of(admin, topics, with_internal=False)
        starts, ends = _log_bounds(admin, metadata, topics)
    rows: list[Row] = []
    for name, topic in metadata.items():
        for number, partition in sorted(topic.partitions.items()):
            tp = TopicPartition(name, number)
            start, end = starts.get(tp), ends.get(tp)
            rows.append(
                (
                    name,
                    _id_text(topic.topic_id),
                    number,
                    partition.leader_id if partition.leader_id >= 0 else None,
                    partition.replicas,
                    partition.isr,
                    partition.offline_replicas,
                    start,
                    end,
                    None if start is None or end is None else end - start,
                    partition.leader_epoch if partition.leader_epoch >= 0 else None,
                )
            )
    write_rows(PARTITION_COLUMNS, rows, format)


def _log_bounds(
    admin: ClusterAdmin, topics: dict[str, TopicMetadata], required: Collection[str]
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    """Return first and end offsets of the partitions with a leader: others would be waited for.

    Takes topics that are deleted meanwhile out of ``topics``; one that is required is an error.
    """
    readable = [
        TopicPartition(topic.name, number)
        for topic in topics.values()
        for number in topic.partitions
        if number >= 0 and has_leader(topic, number)
    ]
    starts = admin.beginning_offsets(readable)
    ends = admin.end_offsets(starts)
    for name in {tp.topic for tp in readable if tp not in ends}:
        if name in required:
            raise admin.unknown_topic_error(name)
        del topics[name]
    return starts, ends


def _id_text(topic_id: bytes) -> str | None:
    """Return a topic id as Kafka's tools print it."""
    if topic_id == ZERO_UUID:
        return None
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


_DESCRIBE: Final = Command(
    "describe",
    callback=click.pass_obj(_describe),
    help="List the partitions of topics: leader, replicas, offsets. A topic may be a glob.",
    params=[
        click.Argument(["topics"], nargs=-1, required=True, metavar="TOPIC..."),
        format_option(),
    ],
    examples=(
        "kfast topics describe orders",
        "kfast topics describe 'orders-*' -f csv",
        "kfast topics describe orders -f json | jq '.[] | select(.offline != [])'",
    ),
)

command = Command(
    "topics",
    callback=click.pass_obj(_topics),
    help="List topics, or those that match globs, with their offsets and newest timestamps. "
    "kfast topics describe TOPIC lists partitions (-- describe is the topic of that name).",
    params=[
        click.Argument(["topics"], nargs=-1, metavar="[GLOB...]"),
        click.Option(["--internal"], is_flag=True, help="internal topics, too"),
        format_option(),
    ],
    examples=(
        "kfast topics -b kafka1:9092,kafka2:9092",
        "kfast topics 'orders-*' -f json",
        "kfast topics describe orders",
    ),
    subcommands={"describe": _DESCRIBE},
)
