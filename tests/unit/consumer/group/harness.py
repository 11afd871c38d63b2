"""The offsets of a group without threads, sockets and time: every answer is stated by the test.

Wires CoordinatorFinder, CommitRequestManager and OffsetsRequestManager with a membership that is
what the test says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from kfast.client.request import UnsentRequest
from kfast.client.request_manager import IDLE, PollResult
from kfast.consumer.group.membership import CloseOperation, MemberIdentity, RebalanceStep
from kfast.consumer.group.rebalance_metrics import RebalanceMetrics
from kfast.consumer.pending_result import PendingResult
from kfast.errors import KafkaError
from kfast.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kfast.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kfast.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.unit.configs import config
from tests.unit.consumer.clusters import cluster, topic_id_of
from tests.unit.consumer.group.coordinator_harness import (
    COORDINATOR,
    GROUP,
    LEADERS,
    CoordinatorHarness,
    GroupConnections,
)

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig


def group_config(**configs: object) -> ConsumerConfig:
    return config({"group_id": GROUP, **configs})


@dataclass
class FakeMembership:
    """GroupMembership: answers as the test says, and keeps what is reported to it."""

    identity: MemberIdentity | None = None
    state_name: str = "stable"
    is_rebalancing: bool = False
    reported: list[tuple[int, MemberIdentity]] = field(default_factory=list)
    rebalances: RebalanceMetrics = field(default_factory=lambda: RebalanceMetrics(config()))

    def poll(self, now_ms: int) -> PollResult:
        return IDLE

    def step_done(self, step: RebalanceStep, error: BaseException | None, now_ms: int) -> None:
        raise NotImplementedError

    def request_rejoin(self, reason: str) -> None:
        raise NotImplementedError

    def leave(
        self, now_ms: int, *, is_closing: bool, operation: CloseOperation = "default"
    ) -> PendingResult[None]:
        raise NotImplementedError

    def commit_failed(self, error_code: int, identity: MemberIdentity, now_ms: int) -> None:
        self.reported.append((error_code, identity))


class GroupHarness(CoordinatorHarness):
    """One consumer's offsets, driven by hand.

    Parameters
    ----------
    subscribes : bool
        Whether it is a member by subscription rather than assigned by hand.
    identity : MemberIdentity or None
        Who the member is.
    **configs
        Settings.
    """

    def __init__(
        self,
        *,
        subscribes: bool = False,
        identity: MemberIdentity | None = None,
        leaders: Mapping[TopicPartition, tuple[int, int]] = LEADERS,
        has_topic_ids: bool = True,
        **configs: Any,
    ) -> None:
        configs.setdefault("auto_offset_reset", "earliest")
        settings = group_config(**configs)
        view = cluster(leaders, has_topic_ids=has_topic_ids)
        super().__init__(settings, view, GroupConnections(), settings.auto_offset_reset)
        self.commits, self.offsets = self.group.commits, self.parts.offsets
        self.membership = FakeMembership(identity)
        self.commits.membership = None
        if subscribes:
            self.subscriptions.subscribe([tp.topic for tp in leaders])
            self.commits.membership = self.membership
        self.managers = self.in_order(self.offsets, self.commits, self.finder)

    def nothing_sent(self, kind: type[object]) -> bool:
        return not self.sends(kind)

    # --- FindCoordinator --------------------------------------------------------------------------

    def find(self, node_id: int = COORDINATOR) -> None:
        """Take the FindCoordinator request and answer it."""
        self.answer_coordinator(self.take(FindCoordinatorRequest), node_id)

    def answer_coordinator(
        self,
        request: UnsentRequest,
        node_id: int = COORDINATOR,
        *,
        error: int = 0,
        key: str = GROUP,
        host: str | None = None,
        port: int = 9092,
        message: str | None = None,
    ) -> None:
        host = f"b{node_id}" if host is None else host
        if self.version_of(request) >= 4:
            found = Coordinator(key, node_id, host, port, error, message)
            response = FindCoordinatorResponse(coordinators=[found])
        else:
            response = FindCoordinatorResponse(
                error_code=error, error_message=message, node_id=node_id, host=host, port=port
            )
        self.respond(request, response)

    # --- OffsetCommit -----------------------------------------------------------------------------

    def commit(
        self,
        offsets: Mapping[TopicPartition, int],
        timeout_ms: int | None = 60_000,
        **options: Any,
    ) -> PendingResult[Mapping[TopicPartition, OffsetAndMetadata]]:
        """Begin a commit; without a timeout it is an asynchronous one."""
        return self.commits.commit(
            {tp: OffsetAndMetadata(offset, "", 5) for tp, offset in offsets.items()},
            self.now,
            None if timeout_ms is None else self.now + timeout_ms,
            **options,
        )

    def committing(self, request: UnsentRequest) -> dict[TopicPartition, int]:
        """Return what an OffsetCommit commits."""
        return {tp: part.committed_offset for tp, part in self.commit_parts(request).items()}

    def commit_parts(
        self, request: UnsentRequest
    ) -> dict[TopicPartition, OffsetCommitRequestPartition]:
        message = cast("OffsetCommitRequest", request.message)
        return {
            TopicPartition(topic.name, part.partition_index): part
            for topic in message.topics
            for part in topic.partitions
        }

    def reply_commit(
        self, request: UnsentRequest, codes: Mapping[TopicPartition, int | None] | int = 0
    ) -> None:
        """Answer an OffsetCommit: one code for all, or by partition (None leaves it out)."""
        asked = self.committing(request)
        message = cast("OffsetCommitRequest", request.message)
        ids = {topic.name: topic.topic_id for topic in message.topics}
        given = dict.fromkeys(asked, codes) if isinstance(codes, int) else codes
        each = {**dict.fromkeys(asked, 0), **given}
        topics: dict[str, OffsetCommitResponseTopic] = {}
        for tp, code in each.items():
            if code is None:
                continue
            topic = topics.setdefault(
                tp.topic,
                OffsetCommitResponseTopic(
                    name=tp.topic,
                    topic_id=ids.get(tp.topic) or topic_id_of(tp.topic),
                    partitions=[],
                ),
            )
            topic.partitions.append(OffsetCommitResponsePartition(tp.partition, code))
        self.respond(request, OffsetCommitResponse(topics=list(topics.values())))

    # --- OffsetFetch ------------------------------------------------------------------------------

    def fetch(
        self, *partitions: TopicPartition, timeout_ms: int = 60_000
    ) -> PendingResult[dict[TopicPartition, OffsetAndMetadata | None]]:
        return self.commits.fetch_committed(partitions, self.now, self.now + timeout_ms)

    def asked(self, request: UnsentRequest) -> list[TopicPartition]:
        """Return what an OffsetFetch looks up."""
        message = cast("OffsetFetchRequest", request.message)
        topics = message.groups[0].topics if message.groups else message.topics
        return [
            TopicPartition(topic.name, number)
            for topic in topics or ()
            for number in topic.partition_indexes
        ]

    def reply_fetch(
        self,
        request: UnsentRequest,
        answers: Mapping[TopicPartition, int | tuple[int, int]],
        *,
        error: int = 0,
        group: str = GROUP,
        metadata: str | None = "",
    ) -> None:
        """Answer an OffsetFetch: an offset, an (offset, epoch), or an error code below -1000.

        ``-1000 - code`` stands for an error code. What ``answers`` does not hold is left out.
        """
        new: dict[str, OffsetFetchResponseTopics] = {}
        old: dict[str, OffsetFetchResponseTopic] = {}
        for tp, answer in answers.items():
            offset, epoch = answer if isinstance(answer, tuple) else (answer, -1)
            code = -1000 - offset if offset <= -1000 else 0
            values = (tp.partition, -1 if code else offset, epoch, metadata, code)
            new.setdefault(
                tp.topic, OffsetFetchResponseTopics(tp.topic, topic_id_of(tp.topic), [])
            ).partitions.append(OffsetFetchResponsePartitions(*values))
            old.setdefault(tp.topic, OffsetFetchResponseTopic(tp.topic, [])).partitions.append(
                OffsetFetchResponsePartition(*values)
            )
        if self.version_of(request) >= 8:
            found = OffsetFetchResponseGroup(group, list(new.values()), error)
            self.respond(request, OffsetFetchResponse(groups=[found]))
        else:
            self.respond(request, OffsetFetchResponse(topics=list(old.values()), error_code=error))

    def collect_error(self) -> KafkaError | None:
        """Return the error poll() would raise next."""
        return self.errors.take(self.subscriptions.is_current)


def refused(code: int) -> int:
    """Return what `GroupHarness.reply_fetch` takes for an error code."""
    return -1000 - code
