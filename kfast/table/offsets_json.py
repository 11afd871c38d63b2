"""Partitions and offsets as JSON, in the form of Spark's Kafka options and checkpoints.

Owns the two forms ``{"topic":{"0":23,"1":-1}}`` (an offset, or a time, per partition) and
``{"topic":[0,1]}`` (partitions), and their order: topics by name, partitions by number. Spark
compares the offsets of a query as text, so the same offsets must always give the same text. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kfast.errors import ConfigurationError
from kfast.types import TopicPartition

EARLIEST: Final = -2
"""In place of an offset: the log start offset."""

LATEST: Final = -1
"""In place of an offset: the end of the log."""

OffsetsByTopic = dict[str, dict[str, int]]
"""Offsets as parsed JSON, the form of Spark's checkpoints."""

_INT32_MAX: Final = 2**31 - 1
_OFFSETS_EXAMPLE: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_PARTITIONS_EXAMPLE: Final = '{"topicA":[0,1],"topicB":[2,4]}'


def parse_offsets(
    text: str, option: str, example: str = _OFFSETS_EXAMPLE
) -> dict[TopicPartition, int]:
    """Return the number given for each partition; ``option`` and ``example`` are for messages.

    Raises ``ConfigurationError`` if the text is not of this form.
    """
    offsets: dict[TopicPartition, int] = {}
    for topic, numbers in _object(text, option, example).items():
        if not isinstance(numbers, dict):
            raise _malformed(text, option, example)
        for number, value in numbers.items():
            if isinstance(value, bool) or not isinstance(value, int):
                raise _malformed(text, option, example)
            offsets[TopicPartition(topic, _partition(number, text, option, example))] = value
    return dict(sorted(offsets.items()))


def parse_partitions(text: str, option: str) -> tuple[TopicPartition, ...]:
    """Return the partitions named, in order; `ConfigurationError` if it is not of this form."""
    partitions: set[TopicPartition] = set()
    for topic, numbers in _object(text, option, _PARTITIONS_EXAMPLE).items():
        if not isinstance(numbers, list):
            raise _malformed(text, option, _PARTITIONS_EXAMPLE)
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise _malformed(text, option, _PARTITIONS_EXAMPLE)
            partitions.add(TopicPartition(topic, number))
    return tuple(sorted(partitions))


def from_json_dict(offsets: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """Return offsets by partition from parsed JSON."""
    return dict(
        sorted(
            (TopicPartition(topic, int(number)), int(offset))
            for topic, numbers in offsets.items()
            for number, offset in numbers.items()
        )
    )


def to_json_dict(offsets: Mapping[TopicPartition, int]) -> OffsetsByTopic:
    """Return offsets as parsed JSON, in order."""
    by_topic: OffsetsByTopic = {}
    for tp in sorted(offsets):
        by_topic.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return by_topic


def format_partitions(partitions: Iterable[TopicPartition], limit: int = 8) -> str:
    """Return a few partitions for a message."""
    names = [str(tp) for tp in sorted(partitions)]
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _object(text: str, option: str, example: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        raise _malformed(text, option, example) from None
    if not isinstance(body, dict):
        raise _malformed(text, option, example)
    return body


def _partition(number: str, text: str, option: str, example: str) -> int:
    if not number.isascii() or not number.isdigit() or int(number) > _INT32_MAX:
        raise _malformed(text, option, example)
    return int(number)


def _malformed(text: str, option: str, example: str) -> ConfigurationError:
    shown = text if len(text) <= 120 else text[:117] + "..."
    return ConfigurationError(
        f"option {option} = {shown}: not understood", hint=f"write for example {example}"
    )
