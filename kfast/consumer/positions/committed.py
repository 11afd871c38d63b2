"""CommittedPositions: sets the positions of new partitions to the group's committed offsets.

Owns the look-ups of committed offsets for partitions in INITIALIZING. The committed offset becomes
the position, with its leader epoch, so that it is validated first (KIP-320); without one
``auto_offset_reset`` decides (P-01). A result that arrives after the partition was sought, reset or
unassigned is dropped, because the version has changed (P-03). Sans-IO, network
thread; the requests are those of `CommitRequestManager`.

| result | action |
|---|---|
| an offset | position, in AWAIT_VALIDATION if its epoch is known |
| nothing committed | reset, logged: the offset may have expired |
| retriable error, timeout | retried, for as long as it takes: `RetriedErrors` |
| other errors (authorization, ...) | raised at every poll until a look-up succeeds; retried |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.clock import ExponentialBackoff
from kfast._base.logs import get_logger
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.commits.errors import names
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.retried_errors import Stage
from kfast.consumer.topic_partition_state import FetchState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kfast.consumer.commits.commit_request_manager import CommitRequestManager
    from kfast.consumer.commits.offset_fetch_requests import CommittedOffsets
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.pending_result import PendingResult
    from kfast.errors import KafkaError
    from kfast.types import OffsetAndMetadata, TopicPartition

logger = get_logger(__name__)

ERROR_KEY = "committed positions"


class CommittedPositions:
    """Sets positions to committed offsets."""

    def __init__(self, context: ManagerContext, commits: CommitRequestManager) -> None:
        config = context.config
        self._commits = commits
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._errors = context.errors
        self._wakeup = context.wakeup
        self._clock = context.clock
        self._timeout_ms = config.default_api_timeout_ms
        self._backoff = ExponentialBackoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        self._in_flight: dict[TopicPartition, int] = {}
        self._attempts = 0
        self._retry_ms = 0

    def poll(self, now_ms: int) -> int:
        """Begin the look-ups that are due; return the ms until the next poll."""
        waiting = self._subscriptions.partitions_in(FetchState.INITIALIZING)
        if not waiting:
            self._in_flight.clear()
            self._commits.retries.ended(Stage.COMMITTED_OFFSETS)
            return NEVER_MS
        for tp in self._in_flight.keys() - set(waiting):
            del self._in_flight[tp]
        versions = self._to_look_up(waiting)
        if not versions:
            return NEVER_MS
        if now_ms < self._retry_ms:
            return self._retry_ms - now_ms
        self._in_flight.update(versions)
        result = self._commits.fetch_committed(
            versions,
            now_ms,
            now_ms + max(1, self._timeout_ms),
            on_found=lambda offsets: self._take(versions, offsets),
            on_retry=lambda error, at_ms: self._retried(versions, error, now_ms, at_ms),
        )
        result.add_callback(lambda ended: self._ended(versions, ended))
        return 0  # the request is for Commits to send, whether it is polled before this or after

    def _to_look_up(self, waiting: list[TopicPartition]) -> dict[TopicPartition, int]:
        versions = {}
        with self._subscriptions.lock:
            for tp in waiting:
                state = self._subscriptions.state(tp)
                if state is not None and self._in_flight.get(tp) != state.version:
                    versions[tp] = state.version
        return versions

    # --- results ----------------------------------------------------------------------------------

    def _take(self, versions: Mapping[TopicPartition, int], offsets: CommittedOffsets) -> None:
        without: list[TopicPartition] = []
        used: list[tuple[TopicPartition, int]] = []
        for tp, committed in offsets.items():
            with self._subscriptions.lock:
                state = self._subscriptions.state(tp)
                if state is None or state.version != versions[tp]:
                    continue
                if committed is None:
                    self._subscriptions.request_offset_reset((tp,))
                    without.append(tp)
                else:
                    self._set_position(tp, committed)
                    used.append((tp, committed.offset))
        for tp, offset in used:  # without the lock: a log handler may want it, on another thread
            logger.info("Reading %s from offset %d (committed)", tp, offset)
        for tp in offsets.keys() - dict(used).keys() - set(without):
            logger.debug("Dropping the committed offset of %s: out of date", tp)
        if without:
            logger.warning(
                "Group %s has no committed offset of %s (never committed, or expired): reset to %s",
                self._commits.group_id,
                names(without),
                self._subscriptions.default_reset_strategy,
            )
        self._wakeup.signal()

    def _set_position(self, tp: TopicPartition, committed: OffsetAndMetadata) -> None:
        epoch = None if committed.leader_epoch < 0 else committed.leader_epoch
        known_epoch = self._metadata.cluster.leader_epoch_for(tp)
        if epoch is not None and known_epoch is not None and epoch > known_epoch:
            self._metadata.request_update()
        self._subscriptions.seek(tp, FetchPosition(committed.offset, epoch))

    def _retried(
        self, versions: Mapping[TopicPartition, int], error: KafkaError, begun_ms: int, now_ms: int
    ) -> None:
        if self._waiting_among(versions) is not None:
            self._commits.retries.failed(Stage.COMMITTED_OFFSETS, error, now_ms, begun_ms=begun_ms)

    def _waiting_among(self, versions: Mapping[TopicPartition, int]) -> TopicPartition | None:
        """Return a partition that was not sought, reset or unassigned meanwhile."""
        is_current = self._subscriptions.is_current
        return next((tp for tp, version in versions.items() if is_current(tp, version)), None)

    def _ended(
        self, versions: Mapping[TopicPartition, int], ended: PendingResult[CommittedOffsets]
    ) -> None:
        for tp, version in versions.items():
            if self._in_flight.get(tp) == version:
                del self._in_flight[tp]
        error = ended.error
        if error is None:
            self._attempts = 0
            self._retry_ms = 0
            self._errors.clear(ERROR_KEY)
            self._commits.retries.succeeded(Stage.COMMITTED_OFFSETS, self._clock.now_ms())
            return
        self._retry_ms = self._clock.now_ms() + self._backoff.backoff_ms(
            self._attempts, self._clock
        )
        self._attempts += 1
        self._report(versions, error)

    def _report(self, versions: Mapping[TopicPartition, int], error: KafkaError) -> None:
        tp = self._waiting_among(versions)
        if error.retriable or tp is None:
            return
        self._commits.retries.ended(Stage.COMMITTED_OFFSETS)
        self._errors.put(error, key=ERROR_KEY, partition=(tp, versions[tp]), is_sticky=True)

    def __repr__(self) -> str:
        return f"<CommittedPositions {len(self._in_flight)} in flight>"
