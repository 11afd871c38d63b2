"""PositionValidation: checks positions against the log of a new leader (KIP-320).

Owns the OffsetForLeaderEpoch requests for partitions in AWAIT_VALIDATION, one per leader. Sans-IO,
network thread.

| answer | action |
|---|---|
| the partition has another version by now | ignored |
| end offset or epoch undefined (-1) | with a policy: reset by it; without: LogTruncationError |
| end offset before the position | with a policy: go on there; without: LogTruncationError |
| end offset at or after the position | the position is valid |
| retriable error, omitted partition | ask again after a pause, with fresh metadata if stale |
| any other error | raised once; asked again after a pause |

No error moves the position. A broker that offers less than version 3 cannot be asked (version 2
needs a permission on the cluster): its positions are taken to be valid.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, NamedTuple, cast

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
from kfast.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kfast.types import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from kfast.client.request import ClientResponse
    from kfast.consumer.manager_context import ManagerContext
    from kfast.consumer.topic_partition_state import TopicPartitionState
    from kfast.protocol.messages.offset_for_leader_epoch import (
        EpochEndOffset,
        OffsetForLeaderEpochResponse,
    )

logger = logging.getLogger(__name__)

MIN_VERSION: Final = 3


class _Question(NamedTuple):
    """What is asked about one partition."""

    version: int
    offset_epoch: int
    leader_epoch: int


_Questions = dict[TopicPartition, _Question]


class PositionValidation:
    """Validates positions."""

    def __init__(self, context: ManagerContext) -> None:
        self._subscriptions = context.subscriptions
        self._metadata = context.metadata
        self._connections = context.connections
        self._buffer = context.errors
        self._requests = LeaderRequests(context, on_error=self._node_error)
        self._truncated: dict[TopicPartition, int] = {}
        self._raised: dict[TopicPartition, int] = {}

    def poll(self, now_ms: int) -> tuple[list[UnsentRequest], int]:
        """Return the requests to send now, and the ms until the next look."""
        questions = self._questions()
        if not questions:
            return [], NEVER_MS
        requests = []
        versions = {tp: question.version for tp, question in questions.items()}
        for node_id, partitions in self._requests.ready(versions, now_ms).items():
            asked = {tp: questions[tp] for tp in partitions}
            if self._can_validate(node_id):
                requests.append(self._request(node_id, asked))
                continue
            for tp, question in asked.items():
                self._subscriptions.complete_validation(tp, question.version)
            self._buffer.wakeup()
        return requests, self._requests.next_ms

    def _questions(self) -> _Questions:
        questions = {}
        waiting = self._subscriptions.partitions_in(FetchState.AWAIT_VALIDATION)
        for told in (self._truncated, self._raised):
            for tp in told.keys() - waiting:
                del told[tp]
        with self._subscriptions.lock:
            for tp in waiting:
                state = self._subscriptions.state(tp)
                if state is None or self._truncated.get(tp) == state.version:
                    continue
                question = _question_of(state)
                if question is not None:
                    questions[tp] = question
                else:
                    self._subscriptions.complete_validation(tp, state.version)
        return questions

    def _can_validate(self, node_id: int) -> bool:
        try:
            version = self._connections.api_version(node_id, ApiKey.OFFSET_FOR_LEADER_EPOCH)
        except UnsupportedVersionError:
            return False
        return version >= MIN_VERSION

    def _request(self, node_id: int, asked: _Questions) -> UnsentRequest:
        topics: dict[str, OffsetForLeaderTopic] = {}
        for tp, question in asked.items():
            self._requests.asked(tp, question.version)
            if tp.topic not in topics:
                topics[tp.topic] = OffsetForLeaderTopic(topic=tp.topic, partitions=[])
            topics[tp.topic].partitions.append(
                OffsetForLeaderPartition(
                    partition=tp.partition,
                    current_leader_epoch=question.leader_epoch,
                    leader_epoch=question.offset_epoch,
                )
            )
        message = OffsetForLeaderEpochRequest(topics=list(topics.values()))
        return UnsentRequest(message, self, node_id=node_id, context=asked, min_version=MIN_VERSION)

    # --- outcomes ---------------------------------------------------------------------------------

    def handle_response(
        self, request: UnsentRequest, response: ClientResponse, now_ms: int
    ) -> None:
        """Take what a leader knows about the epochs."""
        message = cast("OffsetForLeaderEpochResponse", response.message)
        answers = {
            TopicPartition(topic.topic, part.partition): part
            for topic in message.topics
            for part in topic.partitions
        }
        for tp, (version, _, _) in cast("_Questions", request.context).items():
            answer = answers.get(tp)
            if answer is None or answer.error_code:
                self._take_error(tp, version, answer, now_ms)
            else:
                self._requests.answered(tp, version)
                self._take(tp, version, answer)
        self._buffer.wakeup()

    def handle_failure(self, request: UnsentRequest, error: KafkaError, now_ms: int) -> None:
        """Ask again after a pause; the positions stay in doubt."""
        self._metadata.request_update()
        for tp, (version, _, _) in cast("_Questions", request.context).items():
            self._requests.failed(tp, version, now_ms)
        if not error.retriable and request.node_id is not None:
            self._node_error(request.node_id, error)

    def _take_error(
        self, tp: TopicPartition, version: int, answer: EpochEndOffset | None, now_ms: int
    ) -> None:
        self._requests.failed(tp, version, now_ms)
        if answer is None:
            return
        info = error_info(answer.error_code)
        if info.refresh_metadata:
            self._metadata.request_update()
        if not info.retriable and self._raised.get(tp) != version:
            self._raised[tp] = version
            error = exception_for(
                answer.error_code,
                f"the position of {tp} could not be validated",
                topic=tp.topic,
                partition=tp.partition,
            )
            self._buffer.put_error(error, key=("validate", tp), partition=(tp, version))

    def _take(self, tp: TopicPartition, version: int, answer: EpochEndOffset) -> None:
        with self._subscriptions.lock:
            state = self._subscriptions.state(tp)
            if state is None or state.version != version or state.position is None:
                logger.debug("Dropping a validation of %s that is out of date", tp)
                return
            offset = state.position.offset
            is_undefined = answer.end_offset < 0 or answer.leader_epoch < 0
            if not is_undefined and answer.end_offset >= offset:
                self._subscriptions.complete_validation(tp, version)
            elif not self._subscriptions.default_reset_strategy.has_offset:
                self._truncated[tp] = version
                error = _log_truncation(tp, state, None if is_undefined else answer)
                self._buffer.put_error(
                    error, key=("validate", tp), partition=(tp, version), is_sticky=True
                )
            elif is_undefined:
                logger.warning(
                    "The log of %s was truncated before %s; reset by policy", tp, state.position
                )
                self._subscriptions.request_offset_reset((tp,))
            else:
                logger.warning(
                    "The log of %s was truncated: offset %d reset to %d, where it diverged",
                    tp,
                    offset,
                    answer.end_offset,
                )
                position = FetchPosition(answer.end_offset, answer.leader_epoch)
                self._subscriptions.complete_reset(tp, version, position)

    def _node_error(self, node_id: int, error: KafkaError) -> None:
        self._buffer.put_error(error, key=("node", node_id))

    def __repr__(self) -> str:
        return f"<PositionValidation {self._requests!r}>"


def _question_of(state: TopicPartitionState) -> _Question | None:
    """Return what to ask, None if an epoch is unknown and nothing can be asked."""
    position = state.position
    if position is None or position.offset_epoch is None or position.leader_epoch is None:
        return None
    return _Question(state.version, position.offset_epoch, position.leader_epoch)


def _log_truncation(
    tp: TopicPartition, state: TopicPartitionState, answer: EpochEndOffset | None
) -> LogTruncationError:
    position = cast("FetchPosition", state.position)
    divergent = None
    cause = "an unclean leader election cut the log behind the position"
    hint = 'seek(), or auto_offset_reset="earliest" or "latest"'
    if answer is not None:
        divergent = OffsetAndMetadata(answer.end_offset, "", answer.leader_epoch)
        cause = f"{cause}; it diverged at offset {answer.end_offset}"
        hint = f"seek() to offset {answer.end_offset} to go on there"
    return LogTruncationError(
        f"the log of {tp} was truncated below offset {position.offset}",
        cause=cause,
        hint=hint,
        topic=tp.topic,
        partition=tp.partition,
        offset=position.offset,
        divergent_offset=divergent,
    )
