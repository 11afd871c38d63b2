"""``kfast groups``: consumer groups, their members, and new committed offsets for them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import click

from kfast.cli.admin import admin_of, described, group_names, is_consumer_group, note
from kfast.cli.group_lag import LAG_COLUMNS, LagRow, lags_of
from kfast.cli.options import Command, Common, Words
from kfast.cli.positions import Selection, parse_position
from kfast.cli.ranges import resolve
from kfast.cli.rows import JSON_FORMATS, Row, format_option, write_rows, write_text
from kfast.errors import (
    ConfigurationError,
    ErrorCode,
    KafkaError,
    OffsetOutOfRangeError,
    exception_for,
)
from kfast.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kfast.internals import ClusterAdmin, GroupDescription, MemberDescription

GROUP_COLUMNS: Final = ("group", "state", "type", "protocol", "members", "coordinator")
MEMBER_COLUMNS: Final = (
    *("group", "member", "instance", "client", "host", "epoch", "topics", "partitions"),
)
RESET_COLUMNS: Final = ("topic", "partition", "committed", "new")
STATES: Final = {
    state.lower(): state
    for state in (
        *("Empty", "Stable", "Assigning", "Reconciling"),
        *("PreparingRebalance", "CompletingRebalance", "Dead"),
    )
}
TYPES: Final = ("classic", "consumer", "share", "streams")
_MOST_NAMED: Final = 5


def _groups(
    common: Common, groups: tuple[str, ...], state: str | None, type: str | None, format: str
) -> None:
    with admin_of(common) as admin:
        listed = admin.groups(
            states=() if state is None else (STATES[state],), types=() if type is None else (type,)
        )
        if groups:
            names = group_names(admin, groups)
            if state is None and type is None:
                described(admin, (name for name in names if name not in listed), groups)
            listed = {name: listed[name] for name in names if name in listed}
        ours = [name for name, group in listed.items() if is_consumer_group(group)]
        members = admin.describe_groups(ours)
    rows: list[Row] = []
    for name, group in sorted(listed.items()):
        answer = members.get(name)
        description = None if isinstance(answer, KafkaError) else answer
        if description is not None and not description.exists:  # deleted meanwhile
            continue
        rows.append(
            (
                name,
                group.state or (description.state if description is not None else None),
                group.type or (description.type if description is not None else None),
                group.protocol_type or None,
                None if description is None else len(description.members),
                group.coordinator,
            )
        )
    write_rows(GROUP_COLUMNS, rows, format)


# --- describe -------------------------------------------------------------------------------------


def _describe(common: Common, groups: tuple[str, ...], format: str) -> None:
    with admin_of(common) as admin:
        descriptions = described(admin, group_names(admin, groups), groups)
        lags = lags_of(admin, descriptions)
    members = [row for description in descriptions.values() for row in _member_rows(description)]
    if format in JSON_FORMATS:
        _write_descriptions(descriptions, lags, format)
        return
    write_rows(MEMBER_COLUMNS, members, format)
    if format == "table":
        write_text("\n")
        write_rows(LAG_COLUMNS, [row.cells() for row in lags], format)


def _write_descriptions(
    descriptions: dict[str, GroupDescription], lags: list[LagRow], format: str
) -> None:
    names = ("group", "state", "type", "protocol", "assignor", "coordinator", "members", "lag")
    rows: list[Any] = [
        (
            name,
            description.state,
            description.type,
            description.protocol_type or None,
            description.assignor or None,
            description.coordinator,
            [dict(zip(MEMBER_COLUMNS, row, strict=True)) for row in _member_rows(description)],
            [dict(zip(LAG_COLUMNS, r.cells(), strict=True)) for r in lags if r.group == name],
        )
        for name, description in descriptions.items()
    ]
    write_rows(names, rows, format)


def _member_rows(group: GroupDescription) -> list[Row]:
    return [
        (
            group.group_id,
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.host,
            member.epoch,
            _topics(member),
            None if member.partitions is None else [str(tp) for tp in sorted(member.partitions)],
        )
        for member in sorted(group.members, key=lambda member: member.member_id)
    ]


def _topics(member: MemberDescription) -> list[str] | None:
    return None if member.partitions is None else sorted({tp.topic for tp in member.partitions})


# --- reset ----------------------------------------------------------------------------------------


def _reset(
    common: Common, group: str, topics: tuple[str, ...], to: str, execute: bool, format: str
) -> None:
    selection = parse_position(to, "--to", time.time_ns() // 1_000_000)
    with admin_of(common) as admin:
        description = described(admin, [group], [group])[group]
        if description.members:
            raise _has_members(description)
        answer = admin.committed([group])[group]
        if isinstance(answer, KafkaError):
            raise answer
        committed = {tp: committed_offset.offset for tp, committed_offset in answer.items()}
        new = _new_offsets(admin, group, topics, committed, selection)
        if execute:
            _commit(admin, group, new)
    rows = [(tp.topic, tp.partition, committed.get(tp), new[tp]) for tp in sorted(new)]
    write_rows(RESET_COLUMNS, rows, format)
    if not execute:
        note(common, "nothing has been committed; --execute commits the new offsets")


def _new_offsets(
    admin: ClusterAdmin,
    group: str,
    topics: tuple[str, ...],
    committed: dict[TopicPartition, int],
    selection: Selection,
) -> dict[TopicPartition, int]:
    """Return the offsets to commit: of some topics, else where something is committed.

    Without topics those that are gone are left out.
    """
    topic_names = sorted({*topics} or {tp.topic for tp in committed})
    if not topic_names:
        raise ConfigurationError(
            f'group "{group}" has committed nothing', hint=f"kfast groups reset {group} TOPIC"
        )

    def existing() -> dict[str, None]:
        left = [topic for topic in topic_names if admin.partitions_for_topic(topic) is not None]
        gone = [topic for topic in topic_names if topic not in left]
        if gone and (topics or not left):
            raise admin.unknown_topic_error(gone[0])
        return dict.fromkeys(left)

    try:
        ranges, _ = resolve(admin, existing, selection, None, skips_lost=False)
    except OffsetOutOfRangeError as error:
        error.hint = "--to start, or --to end"
        raise
    return {
        tp: start
        for tp, (start, _) in ranges.items()
        if topics or selection.partitions or tp in committed
    }


def _commit(admin: ClusterAdmin, group: str, offsets: dict[TopicPartition, int]) -> None:
    answer = admin.commit(
        group, {tp: OffsetAndMetadata(offset, "", -1) for tp, offset in offsets.items()}
    )
    if isinstance(answer, KafkaError):
        raise answer
    for tp, code in answer.items():
        if code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NON_EMPTY_GROUP}:
            raise _has_members(described(admin, [group], [group])[group])
        if code:
            raise exception_for(
                code,
                f'the offset of {tp} was not committed to group "{group}"',
                topic=tp.topic,
                partition=tp.partition,
            )


def _has_members(group: GroupDescription) -> KafkaError:
    members = sorted(f"{member.member_id} ({member.host})" for member in group.members)
    more = len(members) - _MOST_NAMED
    return ErrorCode.NON_EMPTY_GROUP.exception(
        f'group "{group.group_id}" has members, which commit offsets of their own',
        found=", ".join(members[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else ""),
        hint="stop them, then run this again",
    )


# --- the commands ---------------------------------------------------------------------------------

_DESCRIBE: Final = Command(
    "describe",
    callback=click.pass_obj(_describe),
    help="List the members of groups, and how far behind they are. A group may be a glob.",
    params=[
        click.Argument(["groups"], nargs=-1, required=True, metavar="GROUP..."),
        format_option(),
    ],
    examples=(
        "kfast groups describe billing",
        "kfast groups describe billing -f json | jq '.[0].members[].host'",
        "kfast groups describe 'billing-*' -f csv",
    ),
)

_RESET: Final = Command(
    "reset",
    callback=click.pass_obj(_reset),
    help="Show the offsets that a group without members would start from; with --execute, commit "
    "them. Without TOPIC: the partitions for which it has committed offsets.",
    params=[
        click.Argument(["group"], metavar="GROUP"),
        click.Argument(["topics"], nargs=-1, metavar="[TOPIC...]"),
        click.Option(
            ["--to"],
            required=True,
            metavar="POS",
            help="start, end, 1500, +10, -10, @-1h, 2026-01-31T12:00 or 0=12,1=15",
        ),
        click.Option(["--execute"], is_flag=True, help="commit the offsets"),
        format_option(),
    ],
    examples=(
        "kfast groups reset billing --to @-1h",
        "kfast groups reset billing --to start orders --execute",
        "kfast groups reset billing --to 0=1500 orders --execute",
    ),
)

command = Command(
    "groups",
    callback=click.pass_obj(_groups),
    help="List groups, or those that match globs; describe GROUP lists members, reset GROUP "
    "changes committed offsets.",
    params=[
        click.Argument(["groups"], nargs=-1, metavar="[GLOB...]"),
        click.Option(["--state"], type=Words([*STATES]), help="only groups in this state"),
        click.Option(["--type"], type=Words(TYPES), help="only groups of this type"),
        format_option(),
    ],
    examples=(
        "kfast groups --state stable",
        "kfast groups describe billing",
        "kfast groups reset billing --to @-1h",
    ),
    subcommands={"describe": _DESCRIBE, "reset": _RESET},
)
