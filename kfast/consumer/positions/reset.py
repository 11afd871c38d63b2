"""OffsetReset: resets positions as ``auto_offset_reset`` or a seek to an end of the log says.

Owns the ListOffsets requests for partitions in AWAIT_RESET, one per leader, retried until there is
a usable response. A response that arrives after the partition was sought, reset otherwise or
unassigned is dropped, because the version has changed. Sans-IO, network thread.

With ``none`` there is no reset: that there is no position is raised as an error. If there was one
and the log does not hold it any more, the log start is requested first, so that the error contains
how much is lost; it is raised without that if the request fails.

A position that was found by a reset and is out of range itself, since a broker's log and its
answers differ, is reset again after a back-off that grows, with one warning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from kfast._base.logs import get_logger
from kfast.client.request import UnsentRequest
from kfast.client.request_manager import NEVER_MS
from kfast.consumer.error_actions import ErrorAction
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.positions.leader_requests import LeaderRequests
from kfast.consumer.positions.list_offsets import (
    ListedOffset,
    list_offsets_request,
    listed_offsets,
)
from kfast.consumer.retried_errors import Stage
from kfast.consumer.topic_partition_state import FetchState
from kfast.errors import (
    KafkaError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    exception_for,
)
from kfast.settings.offset_reset import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    OffsetResetStrategy,
    ResetKind,
)

if TYPE_CHECKING:
    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.topic_partition_state import TopicPartitionState
    from kfast.protocol.messages.list_offsets import ListOffsetsResponse
    from kfast.types import TopicPartition

logger = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Reset:
    """One partition's reset, as of when it was requested."""

    version: int
    strategy: OffsetResetStrategy
    out_of_range_offset: int | None


@dataclass(slots=True)
class _LastReset:
    """The position that the last reset of a partition led to."""

    offset: int
    time_ms: int
    repeats: int = 0
    """How many resets in a row led to offsets that were out of range at once."""
    repeated_by: int | None = None
    """Version of the reset after this one, if that is for the same offset."""


class OffsetReset:
    """Resets positions."""

    def __init__(self, context: ManagerContext) -> None:
        config = context.config
        self._isolation_level = int(config.isolation_level == "read_committed")
        self._timeout_ms = config.request_timeout_ms
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._errors = context.errors
        self._wakeup = context.wakeup
        self._retries = context.retries
        self._clock = context.clock
        self._requests = LeaderRequests(context, on_error=self._node_error)
        self._reported: dict[TopicPartition, int] = {}
        self._without_record: dict[TopicPartition, int] = {}
        self._last: dict[TopicPartition, _LastReset] = {}

    def poll(self, now_ms: int) -> tuple[list[UnsentRequest], int]:
        """Return the requests to send now, and the ms until the next poll."""
        resets = self._pending()
        if not resets:
            self._retries.ended(Stage.POSITIONS)
            return [], NEVER_MS
        for tp, reset in resets.items():
            self._delay_repeated(tp, reset, now_ms)
        versions = {tp: reset.version for tp, reset in resets.items()}
        ready = self._requests.ready(versions, now_ms)
        if self._requests.obstacle is not None:
            self._retries.failed(Stage.POSITIONS, self._requests.obstacle, now_ms)
        return [
            self._request(node_id, {tp: resets[tp] for tp in partitions})
            for node_id, partitions in ready.items()
        ], self._requests.next_ms

    def _pending(self) -> dict[TopicPartition, _Reset]:
        resets = {}
        with self._subscriptions.lock:
            waiting = self._subscriptions.partitions_in(FetchState.AWAIT_RESET)
            for tp in waiting:
                state = self._subscriptions.assigned(tp)
                reset = _reset_of(state)
                if self._reported.get(tp) == reset.version:
                    continue
                if reset.strategy.has_offset or reset.out_of_range_offset is not None:
                    resets[tp] = reset
                else:
                    self._report(tp, reset, _no_offset(tp))
        for tp in self._reported.keys() - waiting:
            del self._reported[tp]
        return resets

    def _delay_repeated(self, tp: TopicPartition, reset: _Reset, now_ms: int) -> None:
        """Delay the reset of a position that the last one has found, and that was never read."""
        last = self._last.get(tp)
        if (
            last is None
            or last.offset != reset.out_of_range_offset
            or last.repeated_by == reset.version
            or now_ms - last.time_ms > self._timeout_ms
        ):
            return
        last.repeated_by = reset.version
        self._requests.delay(tp, reset.version, last.repeats, now_ms)
        last.repeats += 1
        if last.repeats == 1:
            logger.warning(
                "Offset %d of %s is out of range although the last reset has found it (%s): "
                "resetting again, after growing pauses",
                last.offset,
                tp,
                reset.strategy,
            )

    def _request(self, node_id: int, resets: dict[TopicPartition, _Reset]) -> UnsentRequest:
        for tp, reset in resets.items():
            self._requests.sent(tp, reset.version)
        message = list_offsets_request(
            {tp: self._timestamp(tp, reset) for tp, reset in resets.items()},
            self._metadata.cluster,
            isolation_level=self._isolation_level,
            timeout_ms=self._timeout_ms,
        )
        return UnsentRequest(message, self, node_id=node_id, context=resets)

    def _timestamp(self, tp: TopicPartition, reset: _Reset) -> int:
        if not reset.strategy.has_offset:
            return EARLIEST_TIMESTAMP  # the log start, for the error
        if self._without_record.get(tp) == reset.version:
            return LATEST_TIMESTAMP
        return reset.strategy.timestamp(self._clock.wall_ms())

    # --- responses --------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Set positions to the offsets that a leader found."""
        resets = cast("dict[TopicPartition, _Reset]", request.context)
        listed = listed_offsets(cast("ListOffsetsResponse", response.message))
        for tp, reset in resets.items():
            self._take(tp, reset, listed.get(tp), now_ms)
        assigned = self._subscriptions.assigned_partitions()
        for tp in (self._last.keys() | self._without_record.keys()) - assigned:
            self._last.pop(tp, None)
            self._without_record.pop(tp, None)
        self._wakeup.signal()

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Retry after a back-off."""
        resets = cast("dict[TopicPartition, _Reset]", request.context)
        self._metadata.request_update()
        for tp, reset in resets.items():
            self._retry(tp, reset, now_ms)
        if error.retriable:
            self._retries.failed(Stage.POSITIONS, error, now_ms, begun_ms=request.created_ms)
        if not error.retriable and request.node_id is not None:
            self._node_error(request.node_id, error)

    def _take(
        self, tp: TopicPartition, reset: _Reset, listed: ListedOffset | None, now_ms: int
    ) -> None:
        action = ErrorAction.RETRY if listed is None else listed.action
        if action is ErrorAction.NONE and listed is not None and listed.offset >= 0:
            self._requests.completed(tp, reset.version)
            self._retries.succeeded(Stage.POSITIONS, now_ms)
            self._complete(tp, reset, listed, now_ms)
            return
        is_by_time = reset.strategy.kind is ResetKind.BY_DURATION
        if is_by_time and action in (ErrorAction.NONE, ErrorAction.NO_OFFSET):
            self._without_record[tp] = reset.version  # none that new: the log end, at once
            self._requests.completed(tp, reset.version)
            return
        if action is ErrorAction.REFRESH_METADATA:
            self._metadata.request_update()
        if action is ErrorAction.REPORT and listed is not None:
            error = exception_for(
                listed.error_code,
                f"not allowed to find a position in {tp}",
                topic=tp.topic,
                partition=tp.partition,
                operation="describe",
            )
            self._put(tp, reset, error)
        elif listed is not None and listed.error_code:
            error = exception_for(
                listed.error_code,
                f"the offset of {tp} was not found",
                topic=tp.topic,
                partition=tp.partition,
            )
            self._retries.failed(Stage.POSITIONS, error, now_ms)
        self._retry(tp, reset, now_ms)

    def _retry(self, tp: TopicPartition, reset: _Reset, now_ms: int) -> None:
        self._requests.failed(tp, reset.version, now_ms)
        if not reset.strategy.has_offset:
            self._report(tp, reset, _out_of_range(tp, reset, None))

    def _complete(
        self, tp: TopicPartition, reset: _Reset, listed: ListedOffset, now_ms: int
    ) -> None:
        self._without_record.pop(tp, None)
        if not reset.strategy.has_offset:
            self._report(tp, reset, _out_of_range(tp, reset, listed.offset))
            return
        before = self._last.get(tp)
        repeats = before.repeats if before and before.repeated_by == reset.version else 0
        self._last[tp] = _LastReset(listed.offset, now_ms, repeats)
        position = FetchPosition(listed.offset)
        if not self._subscriptions.complete_reset(tp, reset.version, position):
            logger.debug("Dropping a reset of %s that is out of date", tp)
        elif reset.out_of_range_offset is None:
            logger.info("Reading %s from offset %d (%s)", tp, listed.offset, reset.strategy)
        elif not repeats:
            logger.warning(
                "Offset %d of %s is gone: reset to offset %d (%s), %d %s",
                reset.out_of_range_offset,
                tp,
                listed.offset,
                reset.strategy,
                abs(listed.offset - reset.out_of_range_offset),
                "records skipped"
                if listed.offset >= reset.out_of_range_offset
                else "offsets read again",
            )

    # --- errors -----------------------------------------------------------------------------------

    def _report(self, tp: TopicPartition, reset: _Reset, error: KafkaError) -> None:
        """Have an error raised until the user seeks, and send no more requests."""
        self._reported[tp] = reset.version
        self._put(tp, reset, error)

    def _put(self, tp: TopicPartition, reset: _Reset, error: KafkaError) -> None:
        self._errors.put(error, key=("reset", tp), partition=(tp, reset.version), is_sticky=True)

    def _node_error(self, node_id: int, error: KafkaError) -> None:
        self._errors.put(error, key=("node", node_id))

    def __repr__(self) -> str:
        return f"<OffsetReset {self._requests!r}>"


def _reset_of(state: TopicPartitionState) -> _Reset:
    strategy = cast("OffsetResetStrategy", state.reset_strategy)
    return _Reset(state.version, strategy, state.out_of_range_offset)


def _no_offset(tp: TopicPartition) -> NoOffsetForPartitionError:
    return NoOffsetForPartitionError(
        f'{tp} has no position to start from, and auto_offset_reset is "none"',
        topic=tp.topic,
        partition=tp.partition,
    )


def _out_of_range(
    tp: TopicPartition, reset: _Reset, log_start_offset: int | None
) -> OffsetOutOfRangeError:
    offset = cast("int", reset.out_of_range_offset)
    cause = None
    if log_start_offset is None:
        message = f"offset {offset} of {tp} is not in the log"
    elif log_start_offset <= offset:
        message = f"offset {offset} of {tp} is past the end of the log"
        cause = f"the log starts at {log_start_offset} and ends before {offset}"
    else:
        message = (
            f"offset {offset} of {tp} is gone: the log now starts at {log_start_offset}"
            f" (retention)\nlost: {log_start_offset - offset} records"
        )
    return OffsetOutOfRangeError(
        message,
        cause=cause,
        topic=tp.topic,
        partition=tp.partition,
        offset=offset,
        log_start_offset=log_start_offset,
    )
