"""Globs over the topics of a cluster: names with ``*``, ``?`` or ``[``, which no topic can have."""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from typing import Final

from kfast.errors import UnknownTopicOrPartitionError

_SIGNS: Final = frozenset("*?[]")


def is_glob(name: str) -> bool:
    """Return whether a name stands for the topics that match it."""
    return not _SIGNS.isdisjoint(name)


def topics_like(glob: str, topics: Collection[str], hint: str) -> list[str]:
    """Return the topics that match a glob; raise, with a hint, if there is none."""
    matches = sorted(topic for topic in topics if fnmatch.fnmatchcase(topic, glob))
    if not matches:
        raise UnknownTopicOrPartitionError(
            f'none of the {len(topics)} topics of this cluster matches "{glob}"', hint=hint
        )
    return matches
