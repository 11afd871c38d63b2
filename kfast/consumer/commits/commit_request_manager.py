"""CommitRequestManager: commits and fetches the committed offsets of the group.

Owns `CommitQueue` for OffsetCommit and `OffsetFetchRequests` for OffsetFetch. When to commit, and
which offsets, is decided on the application thread. Sans-IO, network thread.

Commits are stored in the order in which they were made; ``commit_sync`` is retried until its
deadline, ``commit_async`` never; no commit is sent between JoinGroup and SyncGroup; offsets taken
under one assignment are never stored under another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast.client.request_manager import PollResult
from kfast.consumer.commits.commit_queue import CommitQueue, PendingCommit
from kfast.consumer.commits.group_identity import GroupIdentity
from kfast.consumer.commits.offset_commit import check_offsets
from kfast.consumer.commits.offset_exchange import OffsetExchange
from kfast.consumer.commits.offset_fetch_requests import OffsetFetchRequests
from kfast.consumer.group.coordinator_access import CoordinatorAccess
from kfast.consumer.pending_result import PendingResult
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kfast.consumer.commits.commit_queue import CommitMetrics
    from kfast.consumer.commits.offset_fetch_requests import CommittedOffsets
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.membership import GroupMembership, MemberIdentity
    from kfast.consumer.manager_context import ManagerContext
    from kfast.types import OffsetAndMetadata, TopicPartition


class CommitRequestManager:
    """Commits and fetches committed offsets. Network thread only, but for ``metrics``."""

    def __init__(self, context: ManagerContext, finder: CoordinatorFinder) -> None:
        config = context.config
        self._identity = GroupIdentity(config, context.subscriptions)
        self.retries = finder.retries
        access = CoordinatorAccess(context, finder)
        self._exchange = OffsetExchange(context, access, self._identity)
        self._queue = CommitQueue(config, self._exchange)
        self._fetches = OffsetFetchRequests(self._exchange)
        self._async_timeout_ms = config.request_timeout_ms
        finder.add_error_listener(self._coordinator_not_found)

    @property
    def group_id(self) -> str:
        """Name of the group."""
        return self._identity.group_id

    @property
    def membership(self) -> GroupMembership | None:
        """The membership; None when partitions are only ever assigned by hand."""
        return self._identity.membership

    @membership.setter
    def membership(self, membership: GroupMembership | None) -> None:
        self._identity.membership = membership

    @property
    def metrics(self) -> CommitMetrics:
        """Counters of commits; may be read from any thread."""
        return self._queue.metrics

    def poll(self, now_ms: int) -> PollResult:
        """Return the requests to send now."""
        commits, commits_ms = self._queue.poll(now_ms)
        fetches, fetches_ms = self._fetches.poll(now_ms)
        return PollResult([*commits, *fetches], min(commits_ms, fetches_ms))

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        now_ms: int,
        deadline_ms: int | None,
        *,
        identity: MemberIdentity | None = None,
        is_auto_commit: bool = False,
    ) -> PendingResult[Mapping[TopicPartition, OffsetAndMetadata]]:
        """Begin a commit.

        Retriable errors are retried until ``deadline_ms``. None means not at all: the commit fails
        with the first error, and with the coordinator unknown for ``request_timeout_ms``.
        ``identity`` is `GroupMembership.identity` when the offsets were taken, None for now.
        ``is_auto_commit``, with a deadline, retries under the next epoch of a KIP-848 member after
        STALE_MEMBER_EPOCH (the commit before a rebalance, or on close).

        An offset of a topic that was deleted, or created again, since it was read is left out. The
        result is the offsets stored, or an error that names the partitions; its ``committed`` has
        those that were stored nevertheless. Results come in the order of the commits.
        """
        result: PendingResult[Mapping[TopicPartition, OffsetAndMetadata]] = PendingResult()
        if not offsets:
            result.complete({})
            return result
        try:
            check_offsets(offsets)
            snapshot = self._identity.snapshot(offsets, identity)
        except KafkaError as error:
            return self._refuse(result, error)
        commit = PendingCommit(
            self._exchange.with_topic_ids(offsets),
            snapshot,
            now_ms,
            now_ms + self._async_timeout_ms if deadline_ms is None else deadline_ms,
            is_retried=deadline_ms is not None,
            follows_epoch=is_auto_commit,
            result=result,
        )
        self._queue.put(commit)
        return result

    def _refuse(
        self,
        result: PendingResult[Mapping[TopicPartition, OffsetAndMetadata]],
        error: KafkaError,
    ) -> PendingResult[Mapping[TopicPartition, OffsetAndMetadata]]:
        """Fail a commit that is never sent, after those before it."""
        self.metrics.failures += 1
        before = self._queue.last_result()
        if before is None:
            result.fail(error)
        else:

            def refuse(_: object) -> None:
                result.fail(error)

            before.add_callback(refuse)
        return result

    def flush(self) -> PendingResult[None]:
        """Return a result that is done when every commit made so far is stored, or never will be.

        A commit whose caller has stopped waiting counts while it is in flight.
        """
        done: PendingResult[None] = PendingResult()
        waiting = self._queue.removals()

        def note(_: object) -> None:
            if all(removal.is_done for removal in waiting):
                done.complete(None)

        note(None)
        for removal in waiting:
            removal.add_callback(note)
        return done

    def fetch_committed(
        self,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        deadline_ms: int,
        *,
        on_found: Callable[[CommittedOffsets], None] | None = None,
        on_retry: Callable[[KafkaError, int], None] | None = None,
    ) -> PendingResult[CommittedOffsets]:
        """Fetch committed offsets; see `OffsetFetchRequests.fetch`."""
        return self._fetches.fetch(partitions, now_ms, deadline_ms, on_found, on_retry)

    def _coordinator_not_found(self, error: KafkaError, now_ms: int) -> None:  # noqa: ARG002
        self._queue.fail_all(error)
        self._fetches.fail_all(error)

    def __repr__(self) -> str:
        return f"<CommitRequestManager {self._identity!r} {self._queue!r} {self._fetches!r}>"
