"""OffsetsRequestManager: resets, validation, committed offsets and ListOffsets, in order.

Owns the order in which positions are found: positions are compared with the metadata, partitions
without one get the committed offset, else are reset, those under a new leader are validated, and
the application's look-ups served. Committed offsets come from `CommitRequestManager`, which the
network thread polls by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.client.request_manager import PollResult
from kfast.consumer.positions.list_offsets import OffsetLookups
from kfast.consumer.positions.reset import OffsetReset
from kfast.consumer.positions.validation import PositionValidation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.consumer.commits.commit_request_manager import CommitRequestManager
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.pending_result import PendingResult
    from kfast.consumer.positions.committed import CommittedPositions
    from kfast.consumer.positions.list_offsets import Offsets
    from kfast.types import TopicPartition


class OffsetsRequestManager:
    """Resets, validates and looks up offsets. Network thread only."""

    def __init__(
        self, context: ManagerContext, commits: CommitRequestManager | None = None
    ) -> None:
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._clock = context.clock
        self._reset = OffsetReset(context)
        self._validation = PositionValidation(context)
        self._lookups = OffsetLookups(context)
        self._committed: CommittedPositions | None = None
        if commits is not None:
            from kfast.consumer.positions.committed import (  # noqa: PLC0415 - for groups
                CommittedPositions,
            )

            self._committed = CommittedPositions(context, commits)

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests that positions and look-ups need now."""
        self._subscriptions.update_leaders(self._metadata.cluster)
        requests = []
        next_ms = []
        if self._committed is None:
            self._subscriptions.reset_initializing_positions()
        else:
            next_ms.append(self._committed.poll(now_ms))
        for manager in (self._validation, self._reset, self._lookups):
            due, delay = manager.poll(now_ms)
            requests += due
            next_ms.append(delay)
        return PollResult(requests, max(0, min(next_ms)))

    def list_offsets(
        self,
        timestamps: Mapping[TopicPartition, int],
        deadline_ms: int,
        isolation_level: int | None = None,
    ) -> PendingResult[Offsets]:
        """Look up offsets by time; see `OffsetLookups.list_offsets`."""
        now_ms = self._clock.now_ms()
        return self._lookups.list_offsets(timestamps, now_ms, deadline_ms, isolation_level)

    def __repr__(self) -> str:
        return f"<OffsetsRequestManager {self._validation!r} {self._reset!r} {self._lookups!r}>"
