"""Commits: stores and looks up the offsets of the group.

Owns the two directions, which have managers of their own: `CommitQueue` for OffsetCommit and
`CommittedLookups` for OffsetFetch. Decides nothing about when to commit, or what: the application
thread takes the snapshots. Sans-IO, network thread.

Rules of the whole: commits are stored in the order in which they were made; ``commit_sync`` is
tried again until its deadline, ``commit_async`` never; nothing is sent between JoinGroup and
SyncGroup; offsets taken under one assignment are never stored under another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kfast.client.request_manager import PollResult
from kfast.consumer.commits.commit_queue import CommitQueue
from kfast.consumer.commits.committed_lookups import CommittedLookups
from kfast.consumer.commits.group_identity import GroupIdentity
from kfast.consumer.commits.offset_commit import check_offsets
from kfast.consumer.commits.offset_exchange import OffsetExchange
from kfast.consumer.commits.pending_commit import PendingCommit
from kfast.consumer.group.coordinator_access import CoordinatorAccess
from kfast.consumer.pending_result import PendingResult
from kfast.errors import KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kfast.consumer.commits.committed_lookups import CommittedOffsets
    from kfast.consumer.commits.pending_commit import CommitMetrics
    from kfast.consumer.group.coordinator_finder import CoordinatorFinder
    from kfast.consumer.group.membership import GroupMembership, MemberIdentity
    from kfast.consumer.manager_context import ManagerContext
    from kfast.types import OffsetAndMetadata, TopicPartition


class Commits:
    """Commits and looks up offsets. Network thread only, but for ``metrics``."""

    def __init__(self, context: ManagerContext, finder: CoordinatorFinder) -> None:
        config = context.config
        self._identity = GroupIdentity(config, context.subscriptions)
        access = CoordinatorAccess(context, finder)
        exchange = OffsetExchange(context, access, self._identity)
        self._queue = CommitQueue(config, exchange)
        self._lookups = CommittedLookups(exchange)
        self._async_timeout_ms = config.request_timeout_ms
        finder.add_error_listener(self._coordinator_refused)

    @property
    def group_id(self) -> str:
        """Name of the group."""
        return self._identity.group_id

    @property
    def membership(self) -> GroupMembership | None:
        """The place in the group; None when partitions are only ever assigned by hand."""
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
        lookups, lookups_ms = self._lookups.poll(now_ms)
        return PollResult([*commits, *lookups], min(commits_ms, lookups_ms))

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

        Parameters
        ----------
        offsets : Mapping of TopicPartition to OffsetAndMetadata
            The next offset to read of each partition. Nothing is sent for an empty one.
        now_ms : int
            The time.
        deadline_ms : int or None
            Until when errors that may pass are met with another attempt. None means never: the
            commit fails with the first error, and with the coordinator unknown for
            ``request_timeout_ms``.
        identity : MemberIdentity or None
            `GroupMembership.identity` when the offsets were taken; None means now.
        is_auto_commit : bool
            With a deadline: go on under the next epoch of a KIP-848 member when its own has
            become old meanwhile (the commit before a rebalance, or on close).

        Returns
        -------
        PendingResult
            The offsets, or an error that names the partitions; its ``committed`` holds those
            that were stored all the same. Results come in the order of the commits.
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
            dict(offsets),
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
        """End a commit that is never sent, after those before it."""
        self.metrics.failures += 1
        before = self._queue.last_result()
        if before is None:
            result.fail(error)
        else:
            before.add_callback(lambda _: _end(result, error))
        return result

    def flush(self) -> PendingResult[None]:
        """Return a result that is done when every commit made so far has ended, well or not."""
        done: PendingResult[None] = PendingResult()
        before = self._queue.last_result()
        if before is None:
            done.complete(None)
        else:
            before.add_callback(lambda _: _end(done, None))
        return done

    def fetch_committed(
        self,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        deadline_ms: int,
        *,
        on_found: Callable[[CommittedOffsets], None] | None = None,
    ) -> PendingResult[CommittedOffsets]:
        """Look committed offsets up; see `CommittedLookups.look_up`."""
        return self._lookups.look_up(partitions, now_ms, deadline_ms, on_found)

    def _coordinator_refused(self, error: KafkaError, now_ms: int) -> None:  # noqa: ARG002
        self._queue.fail_all(error)
        self._lookups.fail_all(error)

    def __repr__(self) -> str:
        return f"<Commits {self._identity!r} {self._queue!r} {self._lookups!r}>"


def _end(result: PendingResult[Any], error: KafkaError | None) -> None:
    """End a result without a value."""
    if error is None:
        result.complete(None)
    else:
        result.fail(error)
