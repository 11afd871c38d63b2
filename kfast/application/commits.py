"""ConsumerCommits: ``commit``, ``commit_async``, ``committed`` and auto-commit.

Owns which offsets are committed (of the records handed out, or those the caller passes), when
auto-commit is due, and the callbacks of asynchronous commits, which run in order on the application
thread. The requests are made by the commit request manager on the network thread. Application
thread only, but for the outcomes, which the network thread appends.

Auto-commit commits at the start of a ``poll`` what *earlier* polls handed out: an application that
finishes a batch before it polls again loses nothing when it crashes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kfast._logging import DEBUG, WARNING, Logger
from kfast._values import dataclass
from kfast.application.arguments import check_callback, check_committable, check_partition
from kfast.consumer.group.membership import MemberIdentity
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import (
    AuthorizationError,
    ConfigurationError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
)
from kfast.threads.consumer_runtime import ANSWER_SLACK_MS
from kfast.types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.application.interceptors import Interceptors
    from kfast.application.iteration import RecordIteration
    from kfast.config import ConsumerConfig
    from kfast.consumer.pending_result import PendingResult
    from kfast.consumer.request_managers import GroupManagers
    from kfast.threads.consumer_runtime import ConsumerRuntime

logger = Logger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]

NEVER_MS: Final = 1 << 60
"""When auto-commit is due if there is none."""


@dataclass(slots=True, eq=False)
class _AsyncCommit:
    """One commit without a waiting caller."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    on_done: Callable[[_AsyncCommit], None]
    error: KafkaError | None = None
    is_done: bool = False


class ConsumerCommits:
    """Commits offsets for one consumer."""

    def __init__(
        self,
        config: ConsumerConfig,
        runtime: ConsumerRuntime,
        interceptors: Interceptors,
        iteration: RecordIteration,
    ) -> None:
        self._group_id = config.group_id
        self._instance_id = config.group_instance_id
        self._interval_ms = config.auto_commit_interval_ms
        self._retry_ms = config.retry_backoff_ms
        self._default_callback = config.default_offset_commit_callback
        self._runtime = runtime
        self._interceptors = interceptors
        self._consumed = iteration.consumed
        self.is_automatic = config.enable_auto_commit
        self.due_ms = NEVER_MS
        """When the next auto-commit is due."""
        self.completed: deque[_AsyncCommit] = deque()
        """Asynchronous commits whose callbacks have not run yet."""
        self._outstanding: dict[_AsyncCommit, object] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._is_auto_out = False
        self._auto_denial: str | None = None
        self._assigned_as: MemberIdentity | None = None
        self.assignment_changed()

    # --- for the caller ---------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None, timeout_ms: int
    ) -> None:
        """Commit and wait; callbacks of earlier asynchronous commits run before this returns."""
        self._require_group("commit()")
        self.run_callbacks()
        wanted = self._consumed(True) if offsets is None else plain_offsets(offsets)
        if not wanted:
            return
        deadline_ms = self._runtime.clock.deadline_ms(timeout_ms)
        try:
            self._commit_now(wanted, deadline_ms)
        finally:
            self.run_callbacks()

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        callback: CommitCallback | None,
    ) -> None:
        """Commit without waiting; the callback runs in a later call."""
        self._require_group("commit_async()")
        check_callback(callback)
        self.run_callbacks()
        wanted = self._consumed(True) if offsets is None else plain_offsets(offsets)
        callback = callback or self._default_callback

        def done(commit: _AsyncCommit) -> None:
            if callback is not None:
                callback(dict(commit.offsets), commit.error)
            elif commit.error is not None:
                logger.warning("commit_async() failed: %s", commit.error.message)

        self._commit_later(wanted, done)

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return what the group has committed, None where nothing is."""
        self._require_group("committed()")
        wanted = [check_partition(tp) for tp in partitions]
        if not wanted:
            return {}
        runtime, commits = self._runtime, self._group.commits
        deadline_ms = runtime.clock.deadline_ms(timeout_ms)
        return runtime.call(
            "the look-up of committed offsets",
            lambda at_ms: commits.fetch_committed(wanted, at_ms, deadline_ms),
            timeout_ms + ANSWER_SLACK_MS,
        )

    def group_metadata(self) -> ConsumerGroupMetadata:
        """Return the live membership, for a transactional producer (KIP-447).

        A lost membership stays until the next: the broker refuses offsets committed under it, but
        accepts those without a member id from any client.
        """
        group_id = self._require_group("group_metadata()")
        is_by_hand = self._runtime.subscriptions.subscription_type is SubscriptionType.USER_ASSIGNED
        identity = self._group.membership.identity
        if identity is None and not is_by_hand:
            identity = self._assigned_as
        if identity is None:
            identity = MemberIdentity(group_id, group_instance_id=self._instance_id)
        return ConsumerGroupMetadata(
            identity.group_id,
            identity.generation_id,
            identity.member_id,
            identity.group_instance_id,
        )

    def _require_group(self, call: str) -> str:
        if self._group_id is None:
            raise InvalidGroupIdError(
                f"{call} without a group",
                cause="offsets are committed for a group, and group_id is not set",
                hint='pass group_id="..." to KafkaConsumer',
            )
        return self._group_id

    # --- callbacks --------------------------------------------------------------------------------

    def run_callbacks(self) -> None:
        """Run the callbacks of asynchronous commits that ended, in the order they were begun."""
        while self.completed:
            commit = self.completed.popleft()
            if self._outstanding.pop(commit, self) is self:
                continue  # given up, and the answer came late
            if commit.error is None:
                self._succeeded(commit.offsets)
            try:
                commit.on_done(commit)
            except Exception:
                logger.exception("the callback of a commit failed; the consumer continues")

    def finish_async(self, deadline_ms: int) -> None:
        """Wait for asynchronous commits in flight and run their callbacks; give late ones up."""
        group = self._runtime.group
        if self._outstanding and group is not None:
            left_ms = max(0, deadline_ms - self._runtime.clock.now_ms())

            def flush(_: int) -> PendingResult[None]:
                return group.commits.flush()

            try:
                self._runtime.call("the commits", flush, left_ms)
            except KafkaError as error:
                logger.debug("commits were still in flight: %s", error.message)
        for commit in list(self._outstanding):
            self._end(commit, KafkaTimeoutError("the consumer was closed before the commit ended"))
        self.run_callbacks()

    # --- auto-commit ------------------------------------------------------------------------------

    def assignment_changed(self) -> None:
        """Restart the auto-commit interval; note the member identity of the new assignment."""
        group = self._runtime.group
        if group is not None and group.membership.identity is not None:
            self._assigned_as = group.membership.identity
        if self.is_automatic:
            self.due_ms = self._runtime.clock.now_ms() + self._interval_ms

    def auto_commit_due(self, now_ms: int) -> None:
        """Commit what earlier polls handed out. Never raises; a failed commit is retried."""
        self.due_ms = now_ms + self._interval_ms
        self.run_callbacks()
        if self._is_auto_out or self._group.membership.is_rebalancing:
            self.due_ms = now_ms + min(self._retry_ms, self._interval_ms or self._retry_ms)
            return
        self.auto_commit_async()

    def auto_commit_async(self) -> None:
        """Send an auto-commit of what was handed out so far, if auto-commit is enabled."""
        offsets = self._consumed(True) if self.is_automatic else {}
        if not offsets:
            return

        def done(commit: _AsyncCommit) -> None:
            self._is_auto_out = False
            if commit.error is None:
                self._auto_denial = None
            else:
                self._auto_commit_failed(commit.error)

        self._is_auto_out = True
        self._commit_later(offsets, done)

    def auto_commit_now(self, deadline_ms: int, *, is_last_included: bool = True) -> None:
        """Commit what was handed out and wait for it, if auto-commit is enabled. Errors are logged.

        Without ``is_last_included`` it leaves out what the last poll returned, as unfinished, and
        partitions that the application itself has committed beyond that.
        """
        if not self.is_automatic:
            return
        offsets = self._consumed(is_last_included)
        if not is_last_included:
            offsets = {
                tp: at for tp, at in offsets.items() if self._committed.get(tp, -1) <= at.offset
            }
        if not offsets:
            return
        try:
            self._commit_now(offsets, deadline_ms, is_automatic=True)
        except KafkaError as error:
            self._auto_commit_failed(error)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was committed for partitions that are no longer assigned."""
        for tp in partitions:
            self._committed.pop(tp, None)

    def _auto_commit_failed(self, error: KafkaError) -> None:
        # A denial lasts, other failures are rare.
        is_known = error.message == self._auto_denial
        self._auto_denial = error.message if isinstance(error, AuthorizationError) else None
        level = DEBUG if is_known else WARNING
        logger.log(level, "auto-commit failed: %s", error.message)
        if error.retriable:
            self.due_ms = min(self.due_ms, self._runtime.clock.now_ms() + self._retry_ms)

    # --- to the network thread --------------------------------------------------------------------

    @property
    def _group(self) -> GroupManagers:
        group = self._runtime.group
        if group is None:
            raise IllegalStateError("there is no group")
        return group

    def _commit_now(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        deadline_ms: int,
        *,
        is_automatic: bool = False,
    ) -> None:
        runtime, commits = self._runtime, self._group.commits

        def begin(now_ms: int) -> PendingResult[Offsets]:
            return commits.commit(offsets, now_ms, deadline_ms, is_auto_commit=is_automatic)

        runtime.call(
            "the commit",
            begin,
            max(0, deadline_ms - runtime.clock.now_ms()) + ANSWER_SLACK_MS,
        )
        self.run_callbacks()  # of earlier ones
        self._succeeded(offsets)

    def _commit_later(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        on_done: Callable[[_AsyncCommit], None],
    ) -> None:
        commit = _AsyncCommit(offsets, on_done)
        self._outstanding[commit] = None
        if not offsets:
            self._end(commit, None)
            return
        commits = self._group.commits

        def begin(now_ms: int) -> None:
            try:
                result = commits.commit(offsets, now_ms, None)
            except KafkaError as error:
                self._end(commit, error)
            else:
                result.add_callback(lambda ended: self._end(commit, ended.error))

        try:
            self._runtime.submit("a commit", begin)
        except KafkaError as error:
            self._end(commit, error)

    def _end(self, commit: _AsyncCommit, error: KafkaError | None) -> None:
        """Note the outcome; any thread, and only the first one counts."""
        if not commit.is_done:
            commit.is_done = True
            commit.error = None if error is None else self._runtime.word_error(error)
            self.completed.append(commit)
            self._runtime.fetch_buffer.wakeup()

    def _succeeded(self, offsets: Offsets) -> None:
        for tp, at in offsets.items():
            self._committed[tp] = at.offset
        self._interceptors.on_commit(offsets)

    def __repr__(self) -> str:
        return f"<ConsumerCommits group={self._group_id} outstanding={len(self._outstanding)}>"


def plain_offsets(
    offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit in plain form, or raise what is wrong with them."""
    # Of a group's modules, which a consumer without a group does not load.
    from kfast.consumer.commits.offset_commit import check_offsets  # noqa: PLC0415

    if not isinstance(offsets, Mapping):
        raise ConfigurationError(
            f"offsets = {offsets!r}: not a mapping",
            hint="pass {TopicPartition: OffsetAndMetadata}, such as records.next_offsets()",
        )
    checked = {}
    for key, given in offsets.items():
        tp = check_partition(key)
        checked[tp] = check_committable(tp, given)
    check_offsets(checked)
    return checked
