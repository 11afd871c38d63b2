"""PositionValidation: validates positions against the log of a new leader (KIP-320).

Owns the OffsetForLeaderEpoch requests for partitions in AWAIT_VALIDATION, one per leader. Sans-IO,
network thread.

| response | action |
|---|---|
| the partition has another version by now | ignored |
| end offset or epoch undefined (-1) | reset; ``auto_offset_reset=none``: LogTruncationError |
| end offset before the position | continue there; ``none``: LogTruncationError |
| end offset at or after the position | the position is valid |
| retriable error, omitted partition | retry after a back-off, metadata update if stale |
| any other error | raised once; retry after a back-off |

No error moves the position. Version 2 of the API and below needs a permission on the cluster: at
such brokers positions are taken to be valid.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, cast

from kfast._base.logs import get_logger
from kfast.client.request import UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.positions.leader_requests import LeaderRequests
from kfast.consumer.topic_partition_state import FetchState
from kfast.errors import (
    KafkaError,
    LogTruncationError,
    UnsupportedVersionError,
    error_info,
    exception_for,
)
from kfast.protocol.api_keys import ApiKey
from kfast.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.topic_partition_state import TopicPartitionState
    from kfast.protocol.messages.offset_for_leader_epoch import (
        EpochEndOffset,
        OffsetForLeaderEpochResponse,
    )

logger = get_logger(__name__)

MIN_VERSION: Final = 3


class _Epochs(NamedTuple):
    """One partition of a request."""

    version: int
    offset_epoch: int
    leader_epoch: int


_Requested = dict[TopicPartition, _Epochs]


class PositionValidation:
    """Validates positions."""

    def __init__(self, context: ManagerContext) -> None:
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._connections = context.connections
        self._errors = context.errors
        self._wakeup = context.wakeup
        self._requests = LeaderRequests(context, on_error=self._node_error)
        self._truncated: dict[TopicPartition, int] = {}
        self._raised: dict[TopicPartition, int] = {}

    def poll(self, now_ms: int) -> tuple[list[UnsentRequest], int]:
        """Return the requests to send now, and the ms until the next poll."""
        epochs_by_partition = self._to_request()
        if not epochs_by_partition:
            return [], NEVER_MS
        requests = []
        versions = {tp: epochs.version for tp, epochs in epochs_by_partition.items()}
        for node_id, partitions in self._requests.ready(versions, now_ms).items():
            requested = {tp: epochs_by_partition[tp] for tp in partitions}
            if self._can_validate(node_id):
                requests.append(self._request(node_id, requested))
                continue
            for tp, epochs in requested.items():
                self._subscriptions.complete_validation(tp, epochs.version)
            self._wakeup.signal()
        return requests, self._requests.next_ms

    def _to_request(self) -> _Requested:
        epochs_by_partition = {}
        waiting = self._subscriptions.partitions_in(FetchState.AWAIT_VALIDATION)
        for reported in (self._truncated, self._raised):
            for tp in reported.keys() - waiting:
                del reported[tp]
        with self._subscriptions.lock:
            for tp in waiting:
                state = self._subscriptions.state(tp)
                if state is None or self._truncated.get(tp) == state.version:
                    continue
                epochs = _epochs_of(state)
                if epochs is not None:
                    epochs_by_partition[tp] = epochs
                else:
                    self._subscriptions.complete_validation(tp, state.version)
        return epochs_by_partition

    def _can_validate(self, node_id: int) -> bool:
        try:
            version = self._connections.api_version(node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH)
        except UnsupportedVersionError:
            return False
        return version >= MIN_VERSION

    def _request(self, node_id: int, requested: _Requested) -> UnsentRequest:
        from kfast.protocol.messages.offset_for_leader_epoch import (  # noqa: PLC0415 - after errors
            OffsetForLeaderEpochRequest,
            OffsetForLeaderPartition,
            OffsetForLeaderTopic,
        )

        topics: dict[str, OffsetForLeaderTopic] = {}
        for tp, epochs in requested.items():
            self._requests.sent(tp, epochs.version)
            if tp.topic not in topics:
                topics[tp.topic] = OffsetForLeaderTopic(topic=tp.topic, partitions=[])
            topics[tp.topic].partitions.append(
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=epochs.leader_epoch,
                    leader_epoch=epochs.offset_epoch,
                )
            )
        message = OffsetForLeaderEpochRequest(topics=list(topics.values()))
        return UnsentRequest(
            message, self, node_id=node_id, context=requested, min_version=MIN_VERSION
        )

    # --- responses --------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Compare positions with the end offsets of their epochs."""
        message = cast("OffsetForLeaderEpochResponse", response.message)
        end_offsets = {
            TopicPartition(topic.topic, partition.partition): partition
            for topic in message.topics
            for partition in topic.partitions
        }
        for tp, (version, _, _) in cast("_Requested", request.context).items():
            epoch_end = end_offsets.get(tp)
            if epoch_end is None or epoch_end.error_code:
                self._take_error(tp, version, epoch_end, now_ms)
            else:
                self._requests.completed(tp, version)
                self._take(tp, version, epoch_end)
        self._wakeup.signal()

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Retry after a back-off; the positions stay unvalidated."""
        self._metadata.request_update()
        for tp, (version, _, _) in cast("_Requested", request.context).items():
            self._requests.failed(tp, version, now_ms)
        if not error.retriable and request.node_id is not None:
            self._node_error(request.node_id, error)

    def _take_error(
        self, tp: TopicPartition, version: int, epoch_end: EpochEndOffset | None, now_ms: int
    ) -> None:
        self._requests.failed(tp, version, now_ms)
        if epoch_end is None:
            return
        info = error_info(epoch_end.error_code)
        if info.refresh_metadata:
            self._metadata.request_update()
        if not info.retriable and self._raised.get(tp) != version:
            self._raised[tp] = version
            error = exception_for(
                epoch_end.error_code,
                f"the position of {tp} could not be validated",
                topic=tp.topic,
                partition=tp.partition,
            )
            self._errors.put(error, key=("validate", tp), partition=(tp, version))

    def _take(self, tp: TopicPartition, version: int, epoch_end: EpochEndOffset) -> None:
        with self._subscriptions.lock:
            truncated = self._apply(tp, version, epoch_end)
        if truncated is None:
            return
        # Without the lock: a log handler may want it, on another thread.
        offset = truncated.offset
        if epoch_end.end_offset < 0 or epoch_end.leader_epoch < 0:
            # The reset logs the warning: it has both offsets.
            logger.info("The log of %s was truncated before %s", tp, truncated)
        else:
            logger.warning(
                "The log of %s was truncated: offset %d reset to %d, where it diverged, "
                "%d offsets read again",
                tp,
                offset,
                epoch_end.end_offset,
                offset - epoch_end.end_offset,
            )

    def _apply(
        self, tp: TopicPartition, version: int, epoch_end: EpochEndOffset
    ) -> FetchPosition | None:
        """Take what a leader says; return the position that was truncated and is reset."""
        state = self._subscriptions.state(tp)
        if state is None or state.version != version or state.position is None:
            return None  # out of date
        position = state.position
        is_undefined = epoch_end.end_offset < 0 or epoch_end.leader_epoch < 0
        if not is_undefined and epoch_end.end_offset >= position.offset:
            self._subscriptions.complete_validation(tp, version)
            return None
        if not self._subscriptions.default_reset_strategy.has_offset:
            self._truncated[tp] = version
            error = _log_truncation(tp, state, None if is_undefined else epoch_end)
            self._errors.put(error, key=("validate", tp), partition=(tp, version), is_sticky=True)
            return None
        if is_undefined:
            self._subscriptions.offset_out_of_range(tp, version, position.offset)
        else:
            diverged = FetchPosition(epoch_end.end_offset, epoch_end.leader_epoch)
            self._subscriptions.complete_reset(tp, version, diverged)
        return position

    def _node_error(self, node_id: int, error: KafkaError) -> None:
        self._errors.put(error, key=("node", node_id))

    def __repr__(self) -> str:
        return f"<PositionValidation {self._requests!r}>"


def _epochs_of(state: TopicPartitionState) -> _Epochs | None:
    """Return the epochs to request, None if one is unknown: the position cannot be validated."""
    position = state.position
    if position is None or position.offset_epoch is None or position.leader_epoch is None:
        return None
    return _Epochs(state.version, position.offset_epoch, position.leader_epoch)


def _log_truncation(
    tp: TopicPartition, state: TopicPartitionState, epoch_end: EpochEndOffset | None
) -> LogTruncationError:
    position = cast("FetchPosition", state.position)
    divergent = None
    cause = "an unclean leader election cut the log behind the position"
    hint = 'seek(), or auto_offset_reset="earliest" or "latest"'
    if epoch_end is not None:
        divergent = OffsetAndMetadata(epoch_end.end_offset, "", epoch_end.leader_epoch)
        cause = f"{cause}; it diverged at offset {epoch_end.end_offset}"
        hint = f"seek() to offset {epoch_end.end_offset} to continue there"
    return LogTruncationError(
        f"the log of {tp} was truncated below offset {position.offset}",
        cause=cause,
        hint=hint,
        topic=tp.topic,
        partition=tp.partition,
        offset=position.offset,
        divergent_offset=divergent,
    )
