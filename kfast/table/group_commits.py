"""GroupCommits: commits offsets to a consumer group, for Kafka's monitoring tools.

Owns the commits of ``commitOffsets=true`` and of ``kfast ingest -g``. They are never read back: a
query resumes from Spark's checkpoint, an ingest from the log of its table. A failed commit is
logged and the query continues. One thread at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from kfast._base.logs import get_logger
from kfast.errors import KafkaError
from kfast.internals import KafkaConsumer
from kfast.table.topic_ids import id_bytes
from kfast.types import OffsetOfTopic, TopicPartition

logger = get_logger(__name__)
_TIMEOUT_MS: Final = 5_000


class GroupCommits:
    """Commits the offsets of one query or ingest; the group must have no members."""

    def __init__(self, settings: Mapping[str, object], group_id: str) -> None:
        self._settings = {**settings, "group.id": group_id, "enable.auto.commit": False}
        self._group_id = group_id
        self._consumer: KafkaConsumer | None = None
        self._has_failed = False

    def commit(
        self, offsets: Mapping[TopicPartition, int], topic_ids: Mapping[str, str] | None = None
    ) -> None:
        """Commit these offsets; a failure is logged.

        ``topic_ids`` are those that the topics were read under, as far as they are known.
        """
        if not offsets:
            return
        ids = {} if topic_ids is None else topic_ids
        try:
            if self._consumer is None:
                self._consumer = KafkaConsumer(config=self._settings)
            self._consumer.assign(offsets)
            self._consumer.pause(*offsets)
            self._consumer.commit(
                {
                    tp: OffsetOfTopic.of(offset, "", -1, id_bytes(ids.get(tp.topic)))
                    for tp, offset in offsets.items()
                },
                timeout_ms=_TIMEOUT_MS,
            )
            self._has_failed = False
        except KafkaError as error:
            level = logging.DEBUG if self._has_failed else logging.WARNING
            self._has_failed = True
            logger.log(level, 'cannot commit to group "%s": %s', self._group_id, error)

    def close(self) -> None:
        """Close the connections."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close(timeout_ms=1_000)

    def __repr__(self) -> str:
        return f"<GroupCommits {self._group_id}>"
