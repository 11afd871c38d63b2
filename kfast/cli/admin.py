"""What the administrative commands share: the connection, names and globs."""

from __future__ import annotations

import fnmatch
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from kfast._base.spelling import did_you_mean
from kfast.cli.options import Common
from kfast.cli.rows import write_note
from kfast.config import ConsumerConfig
from kfast.errors import GroupIdNotFoundError, KafkaError, UnknownTopicOrPartitionError
from kfast.internals import CLASSIC, CONSUMER, PROTOCOL_TYPE, ClusterAdmin, is_glob

if TYPE_CHECKING:
    from kfast.internals import GroupDescription, ListedGroup, TopicMetadata

_OF_MEMBERS: Final = frozenset(
    {"group.id", "group.instance.id", "group.protocol", "enable.auto.commit", "auto.offset.reset"}
)
_GROUP_TYPES: Final = frozenset({None, CLASSIC, CONSUMER})
"""Types of consumer groups; None: brokers that do not report it know no other."""


def settings_of(common: Common) -> dict[str, object]:
    """Return the settings of a consumer without those of group members: nothing is committed."""
    return {key: value for key, value in common.configs().items() if key not in _OF_MEMBERS}


def admin_of(common: Common) -> ClusterAdmin:
    """Return a connection for administrative look-ups."""
    return ClusterAdmin(ConsumerConfig(settings_of(common)))


def note(common: Common, text: str) -> None:
    """Write a note to standard error, if a person reads it."""
    if not common.is_quiet and (sys.stderr.isatty() or common.verbosity):
        write_note(text)


def is_consumer_group(group: ListedGroup) -> bool:
    """Return whether a group is one of consumers: no Connect cluster, no share group."""
    return group.type in _GROUP_TYPES and group.protocol_type in {"", PROTOCOL_TYPE}


# --- topics ---------------------------------------------------------------------------------------


def topics_of(
    admin: ClusterAdmin, names: Sequence[str], *, with_internal: bool
) -> dict[str, TopicMetadata]:
    """Return the topics of some names and globs, or all, sorted.

    Globs leave internal topics out unless they are wanted. Raises UnknownTopicOrPartitionError for
    a name or glob that no topic has.
    """
    exact = {name for name in names if not is_glob(name)}
    topics = dict(admin.topic_metadata(exact if names and len(exact) == len({*names}) else None))
    for name in names:
        if name in exact and name not in topics:
            raise admin.unknown_topic_error(name)
    listed = {name for name, topic in topics.items() if with_internal or not topic.is_internal}
    if names:
        chosen = _matches(names, exact, listed, lambda name: _no_topic_matches(name, len(listed)))
    else:
        chosen = listed
    return {name: topics[name] for name in sorted(chosen)}


def _no_topic_matches(name: str, count: int) -> KafkaError:
    return UnknownTopicOrPartitionError(
        f'none of the {count} topics of this cluster matches "{name}"',
        hint="kfast topics lists them",
    )


def _matches(
    names: Iterable[str],
    exact: set[str],
    listed: set[str],
    error: Callable[[str], KafkaError],
) -> set[str]:
    chosen = set(exact)
    for name in names:
        if name in listed:  # a group's name may contain anything
            chosen.add(name)
        elif name not in exact:
            matching = {topic for topic in listed if fnmatch.fnmatchcase(topic, name)}
            if not matching:
                raise error(name)
            chosen |= matching
    return chosen


# --- groups ---------------------------------------------------------------------------------------


def group_names(admin: ClusterAdmin, names: Sequence[str]) -> list[str]:
    """Return the consumer groups of some names and globs, or all, sorted.

    A name is returned whether or not there is such a group.
    """
    exact = {name for name in names if not is_glob(name)}
    if names and len(exact) == len({*names}):
        return sorted(exact)
    listed = {name for name, group in admin.groups().items() if is_consumer_group(group)}
    if not names:
        return sorted(listed)
    return sorted(_matches(names, exact, listed, lambda name: _no_group_matches(name, len(listed))))


def described(
    admin: ClusterAdmin, names: Iterable[str], required: Collection[str]
) -> dict[str, GroupDescription]:
    """Return the descriptions of groups; those that are gone are left out.

    Raises GroupIdNotFoundError for one that is required, with the nearest name that exists.
    """
    descriptions = {}
    for name, answer in admin.describe_groups(names).items():
        if isinstance(answer, KafkaError):
            raise answer
        if answer.exists:
            descriptions[name] = answer
        elif name in required:
            raise _no_such_group(admin, name)
    return {name: descriptions[name] for name in sorted(descriptions)}


def _no_such_group(admin: ClusterAdmin, name: str) -> KafkaError:
    groups = admin.groups()
    count = "1 group" if len(groups) == 1 else f"{len(groups)} groups"
    if name in groups:
        return GroupIdNotFoundError(
            f'"{name}" is a {groups[name].type} group, not one of consumers',
            hint="kfast groups lists them",
        )
    near = did_you_mean(name, groups)
    return GroupIdNotFoundError(
        f'no group "{name}" on this cluster ({count})',
        hint=f'did you mean "{near}"?' if near else "kfast groups lists them",
    )


def _no_group_matches(name: str, count: int) -> KafkaError:
    return GroupIdNotFoundError(
        f'none of the {count} consumer groups of this cluster matches "{name}"',
        hint="kfast groups lists them",
    )
