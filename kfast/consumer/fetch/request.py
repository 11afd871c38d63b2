"""FetchSettings: makes the Fetch request of a fetch session.

Owns the settings that go into every Fetch unchanged, and the grouping of partitions by topic.
Network thread; no state.

``fetch_max_bytes`` is sent as given unless it is above what ``buffer_memory_bytes`` leaves for
frames: a broker may fill every response to the limit, and one response must not exceed the cap.
``max_partition_fetch_bytes`` is sent as given too, but for a range that has less left to read; see
`TopicPartitionState.fetch_bytes`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from kfast._runtime.memory_account import frame_share
from kfast.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.consumer.fetch.session import SessionRequest

READ_COMMITTED = 1
READ_UNCOMMITTED = 0


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """Fields of every Fetch request of a consumer."""

    min_bytes: int
    max_wait_ms: int
    max_bytes: int  # ``fetch_max_bytes``, but see the module
    partition_max_bytes: int
    isolation_level: int
    rack_id: str

    @classmethod
    def of(cls, config: ConsumerConfig) -> Self:
        """Return the settings of a configuration."""
        is_committed = config.isolation_level == "read_committed"
        return cls(
            config.fetch_min_bytes,
            config.fetch_max_wait_ms,
            min(config.fetch_max_bytes, max(1, frame_share(config.buffer_memory_bytes))),
            config.max_partition_fetch_bytes,
            READ_COMMITTED if is_committed else READ_UNCOMMITTED,
            config.client_rack,
        )

    @property
    def limits(self) -> dict[str, int]:
        """The limits of a response, by the settings' names."""
        return {
            "max_partition_fetch_bytes": self.partition_max_bytes,
            "fetch_max_bytes": self.max_bytes,
        }

    def request(self, session: SessionRequest) -> FetchRequest:
        """Return the message; partitions keep the order in which they are to be served."""
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
            session_id=session.metadata.session_id,
            session_epoch=session.metadata.epoch,
            topics=self._topics(session),
            forgotten_topics_data=_forgotten(session),
            rack_id=self.rack_id,
        )

    def _topics(self, session: SessionRequest) -> list[FetchTopic]:
        topics: list[FetchTopic] = []
        for tp, target in session.to_send:
            # A topic is repeated where another comes between: the order decides who is served.
            if not topics or topics[-1].topic != tp.topic:
                topics.append(FetchTopic(topic=tp.topic, topic_id=target.topic_id, partitions=[]))
            topics[-1].partitions.append(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=target.leader_epoch,
                    fetch_offset=target.fetch_offset,
                    partition_max_bytes=target.max_bytes,
                )
            )
        return topics


def _forgotten(session: SessionRequest) -> list[ForgottenTopic]:
    topics: dict[tuple[str, bytes], ForgottenTopic] = {}
    for tp, topic_id in session.to_forget:
        key = (tp.topic, topic_id)
        if key not in topics:
            topics[key] = ForgottenTopic(topic=tp.topic, topic_id=topic_id, partitions=[])
        topics[key].partitions.append(tp.partition)
    return list(topics.values())
