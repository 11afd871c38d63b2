"""TopicSelection: the topics, pattern or partitions of a query's options.

Owns ``subscribe``, ``subscribePattern`` and ``assign``, of which a query has exactly one. Pure: no
broker is asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from kfast.application.arguments import check_topic
from kfast.errors import ConfigurationError
from kfast.spark.source.java_pattern import java_pattern
from kfast.table.offsets_json import format_partitions, parse_partitions
from kfast.types import TopicPartition

SELECTION_OPTIONS: Final = ("subscribe", "subscribePattern", "assign")


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What a query reads: topics, a pattern, or partitions; the other two are empty.

    Topics are read with all partitions they have or get. A pattern is one of Java's and matches
    whole names of topics that are not internal.
    """

    topics: tuple[str, ...] = ()
    pattern: str = ""
    partitions: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> frozenset[str] | None:
        """Topics to request metadata of; None for all."""
        if self.pattern:
            return None
        return frozenset(self.topics or (tp.topic for tp in self.partitions))

    def choose(self, topic: str, numbers: Iterable[int], is_internal: bool) -> set[TopicPartition]:
        """Return the partitions read of a topic that has these."""
        found = {TopicPartition(topic, number) for number in numbers}
        if self.partitions:
            return found.intersection(self.partitions)
        if self.pattern:
            matches = not is_internal and java_pattern(self.pattern).fullmatch(topic) is not None
            return found if matches else set()
        return found if topic in self.topics else set()

    def has(self, partition: TopicPartition) -> bool:
        """Return whether a partition is read, if it exists."""
        return bool(self.choose(partition.topic, [partition.partition], is_internal=False))

    def __str__(self) -> str:
        if self.partitions:
            return f"assign {format_partitions(self.partitions)}"
        return f"pattern {self.pattern}" if self.pattern else f"topics {', '.join(self.topics)}"


def topic_selection(given: Mapping[str, str]) -> TopicSelection:
    """Return what the options select.

    Raises ``ConfigurationError`` if none or several of the three are given or the one is malformed,
    and ``InvalidTopicError`` for a name no topic can have.
    """
    chosen = [name for name in SELECTION_OPTIONS if name in given]
    if len(chosen) != 1:
        raise ConfigurationError(
            f"exactly one of the options {', '.join(SELECTION_OPTIONS)} must be given",
            found=f"{' and '.join(chosen)} are given" if chosen else "none of them is given",
            hint='for example .option("subscribe", "topicA,topicB")',
        )
    (option,) = chosen
    text = given[option].strip()
    if option == "subscribe":
        topics = tuple(dict.fromkeys(filter(None, (name.strip() for name in text.split(",")))))
        if not topics:
            raise ConfigurationError("option subscribe names no topic", hint="name one at least")
        for topic in topics:
            check_topic(topic)
        return TopicSelection(topics=topics)
    if option == "subscribePattern":
        return TopicSelection(pattern=_pattern(text))
    partitions = parse_partitions(text, option)
    if not partitions:
        raise ConfigurationError("option assign names no partition", hint="name one at least")
    for tp in partitions:
        check_topic(tp.topic)
    return TopicSelection(partitions=partitions)


def _pattern(text: str) -> str:
    if not text:
        raise ConfigurationError("option subscribePattern is empty", hint="give a pattern")
    try:
        java_pattern(text)
    except ValueError as error:
        raise ConfigurationError(
            f"option subscribePattern = {text}: {error}", hint="write a regular expression of Java"
        ) from None
    return text
