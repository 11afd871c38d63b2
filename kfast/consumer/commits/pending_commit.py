"""PendingCommit: one commit that has been asked for and has not ended, and what all came to.

Values of `CommitQueue`, which alone changes them. Network thread; the metrics may be read anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kfast.consumer.pending_result import PendingResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.consumer.commits.group_identity import Snapshot
    from kfast.errors import KafkaError
    from kfast.types import OffsetAndMetadata, TopicPartition


@dataclass(slots=True)
class CommitMetrics:
    """What became of the commits of a consumer.

    Attributes
    ----------
    commits, failures : int
        Those that were stored, and those that ended in an error.
    latency_total_ms, latency_max_ms : int
        From the call to the outcome, of those that were stored.
    """

    commits: int = 0
    failures: int = 0
    latency_total_ms: int = 0
    latency_max_ms: int = 0


@dataclass(slots=True, eq=False)
class PendingCommit:
    """One commit. Compared by identity.

    Attributes
    ----------
    offsets : dict
        What was asked for.
    snapshot : Snapshot
        Who the consumer was when the offsets were taken.
    started_ms : int
        When it was asked for.
    deadline_ms : int
        When it fails at the latest, unless it is in flight and not retried.
    is_retried : bool
        Whether it is sent again after errors that may pass.
    follows_epoch : bool
        Whether it is sent again under the next epoch when its own has become old (K-07).
    remaining : dict
        The part of ``offsets`` that is not stored yet.
    result : PendingResult
        The offsets, once all of them are stored.
    node_id : int or None
        The coordinator it is in flight to.
    attempts, retry_ms : int
        How often it failed, and when it may be sent again.
    old_epoch : int or None
        The epoch the coordinator no longer takes.
    trouble : str or None
        Why it was not stored at the last attempt.
    ending : KafkaError or None
        What it ends with as soon as the commits before it have ended.
    """

    offsets: dict[TopicPartition, OffsetAndMetadata]
    snapshot: Snapshot
    started_ms: int
    deadline_ms: int
    is_retried: bool
    follows_epoch: bool
    remaining: dict[TopicPartition, OffsetAndMetadata] = field(init=False)
    result: PendingResult[Mapping[TopicPartition, OffsetAndMetadata]] = field(
        default_factory=PendingResult
    )
    node_id: int | None = None
    attempts: int = 0
    retry_ms: int = 0
    old_epoch: int | None = None
    trouble: str | None = None
    ending: KafkaError | None = None

    def __post_init__(self) -> None:
        self.remaining = dict(self.offsets)

    @property
    def is_in_flight(self) -> bool:
        """Whether a request is out."""
        return self.node_id is not None

    @property
    def committed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The part of ``offsets`` that is stored."""
        return {tp: o for tp, o in self.offsets.items() if tp not in self.remaining}
