"""ConsumerCommits: ``commit``, ``commit_async``, ``committed`` and auto-commit.

Owns which offsets are committed (of the records handed out, or those the caller passes), when
auto-commit is due, and the callbacks of asynchronous commits, which run in order on the application
thread. The requests are made by the commit request manager on the network thread. Application
thread only, but for the outcomes, which the network thread appends.

An exception may come between any two instructions (a signal handler's, a callback's). What is
outstanding is known from the outcomes, never from a callback that has run; an outcome is removed
after its calls, each of which is taken before it is made, so that it is not made twice.

Auto-commit commits at the start of a ``poll`` what *earlier* polls handed out: an application that
finishes a batch before it polls again loses nothing when it crashes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kfast._base.logs import get_logger
from kfast._base.signals import is_of_signal_handler
from kfast._runtime.one_time_call import OneTimeCall
from kfast.application.arguments import check_callback, check_committable, check_partition
from kfast.application.interceptors import name_of
from kfast.consumer.group.membership import MemberIdentity
from kfast.consumer.subscription import SubscriptionType
from kfast.errors import (
    AuthorizationError,
    ConfigurationError,
    IllegalStateError,
    InvalidGroupIdError,
    KafkaError,
    KafkaTimeoutError,
    WakeupError,
)
from kfast.threads.consumer_runtime import ANSWER_SLACK_MS
from kfast.types import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetOfTopic,
    TopicPartition,
    topic_id_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kfast.application.interceptors import Interceptors
    from kfast.application.iteration import RecordIteration
    from kfast.config import ConsumerConfig
    from kfast.consumer.pending_result import PendingResult
    from kfast.consumer.request_managers import GroupManagers
    from kfast.threads.consumer_runtime import ConsumerRuntime

logger = get_logger(__name__)

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
CommitCallback = Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]

MAX_EPOCH: Final = (1 << 31) - 1

NEVER_MS: Final = 1 << 60
"""When auto-commit is due if there is none."""


@dataclass(slots=True, eq=False)
class Commit:
    """One commit and what is called when it has ended."""

    offsets: dict[TopicPartition, OffsetAndMetadata]
    on_done: (
        Callable[[dict[TopicPartition, OffsetAndMetadata], KafkaError | None], object] | None
    ) = None
    is_automatic: bool = False
    is_done: bool = False
    """Whether its outcome is there."""
    calls: deque[_Call] | None = None
    """Those to interceptors and callback that are left to make, None before the first."""


class _Call(NamedTuple):
    """One call of the user's code, about a commit that has ended."""

    function: Callable[..., object]
    arguments: tuple[object, ...]
    failure: str
    """What to log when it fails."""
    once: OneTimeCall


_Outcome = tuple[Commit, Offsets, "KafkaError | None"]
"""The offsets that are stored, or the error."""


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
        self.completed: deque[_Outcome] = deque()
        """Outcomes whose calls have not been made, in the order of the commits."""
        self._outstanding: dict[Commit, None] = {}
        self._committed: dict[TopicPartition, OffsetAndMetadata] = {}
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
        commit_offsets = self._offsets(offsets)
        if not commit_offsets:
            return
        self._commit_now(commit_offsets, self._runtime.clock.deadline_ms(timeout_ms))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        callback: CommitCallback | None,
    ) -> None:
        """Commit without waiting; the callback runs in a later call."""
        self._require_group("commit_async()")
        check_callback(callback)
        self.run_callbacks()
        commit_offsets = self._offsets(offsets)
        self._commit_later(
            Commit(commit_offsets, callback or self._default_callback or _log_outcome)
        )

    def _offsets(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
        *,
        is_last_included: bool = True,
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return offsets to commit with what is known of them; None: of what was handed out.

        What the caller has given with an offset counts before what was noted when it was read.
        """
        commit_offsets = (
            self._consumed(is_last_included) if offsets is None else plain_offsets(offsets)
        )
        origins = self._runtime.subscriptions.origins(
            {tp: at[0] for tp, at in commit_offsets.items()}
        )
        for tp, origin in origins.items():
            at = commit_offsets[tp]
            topic_id = topic_id_of(at) or origin.topic_id
            epoch = at.leader_epoch
            if epoch < 0 and origin.leader_epoch is not None and topic_id == origin.topic_id:
                epoch = origin.leader_epoch
            commit_offsets[tp] = OffsetOfTopic.of(at.offset, at.metadata, epoch, topic_id)
        return commit_offsets

    def committed(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets of the group, None where there is none."""
        self._require_group("committed()")
        topic_partitions = [check_partition(tp) for tp in partitions]
        if not topic_partitions:
            return {}
        runtime, commits = self._runtime, self._group.commits
        deadline_ms = runtime.clock.deadline_ms(timeout_ms)
        return runtime.call(
            "the look-up of committed offsets",
            lambda at_ms: commits.fetch_committed(topic_partitions, at_ms, deadline_ms),
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
            self._topic_ids(),
        )

    def _topic_ids(self) -> dict[str, bytes]:
        """Return the ids of the assigned topics. Any thread."""
        runtime = self._runtime
        cluster = runtime.metadata.cluster
        topics = {tp.topic for tp in runtime.subscriptions.assigned_partitions()}
        topic_ids = {topic: cluster.topic_id(topic) for topic in topics}
        return {topic: topic_id for topic, topic_id in topic_ids.items() if topic_id is not None}

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
            outcome = self.completed[0]
            commit, stored, error = outcome
            if commit.calls is None:  # else begun before, or given up and the answer came late
                self._committed.update(_perhaps_stored(outcome))
                commit.calls = self._calls(commit, stored, error)
            self._outstanding.pop(commit, None)
            while commit.calls:
                call = commit.calls[0]
                call.once.run(call.function, *call.arguments)
                if commit.calls and commit.calls[0] is call:  # it may have run the others
                    commit.calls.popleft()
                _log_failure(call)
            if self.completed and self.completed[0] is outcome:
                self.completed.popleft()

    def _calls(self, commit: Commit, stored: Offsets, error: KafkaError | None) -> deque[_Call]:
        calls: deque[_Call] = deque()
        if stored:
            for method in self._interceptors.on_commit_methods():
                failure = f"{name_of(method)} failed; the offsets are committed"
                calls.append(_Call(method, (dict(stored),), failure, OneTimeCall()))
        if commit.on_done is not None:
            ended = dict(commit.offsets if error is not None else stored)
            failure = "the callback of a commit failed; the consumer continues"
            calls.append(_Call(commit.on_done, (ended, error), failure, OneTimeCall()))
        return calls

    def finish_async(self, deadline_ms: int) -> None:
        """Wait for asynchronous commits in flight and run their callbacks; give late ones up."""
        if self._outstanding:
            self._flush(deadline_ms)
        for commit in list(self._outstanding):
            self._end(
                commit, {}, KafkaTimeoutError("the consumer was closed before the commit ended")
            )
        self.run_callbacks()

    def _flush(self, deadline_ms: int) -> None:
        """Wait until what was committed so far is stored, or never will be."""
        group = self._runtime.group
        if group is None:
            return
        commits = group.commits
        left_ms = max(0, deadline_ms - self._runtime.clock.now_ms())
        try:
            self._runtime.call("the commits", lambda _: commits.flush(), left_ms)
        except KafkaError as error:
            logger.debug("commits were still in flight: %s", error.message)

    # --- auto-commit ------------------------------------------------------------------------------

    def assignment_changed(self) -> None:
        """Restart the auto-commit interval; note the member identity of the new assignment."""
        group = self._runtime.group
        if group is not None and group.membership.identity is not None:
            self._assigned_as = group.membership.identity
        if self.is_automatic:
            self.due_ms = self._runtime.clock.now_ms() + self._interval_ms

    def auto_commit_due(self, now_ms: int) -> None:
        """Commit what earlier polls handed out; a failed commit is retried.

        It raises what leaves the callback of an earlier commit.
        """
        self.run_callbacks()
        is_outstanding = any(
            commit.is_automatic and not commit.is_done for commit in self._outstanding
        )
        if is_outstanding or self._group.membership.is_rebalancing:
            self.due_ms = now_ms + min(self._retry_ms, self._interval_ms or self._retry_ms)
            return
        self.auto_commit_async()
        self.due_ms = now_ms + self._interval_ms

    def auto_commit_async(self) -> None:
        """Send an auto-commit of what was handed out so far, if auto-commit is enabled."""
        offsets = self._offsets(None) if self.is_automatic else {}
        if offsets:
            self._commit_later(Commit(offsets, self._auto_commit_ended, is_automatic=True))

    def auto_commit_now(self, deadline_ms: int, *, is_last_included: bool = True) -> None:
        """Commit what was handed out and wait for it, if auto-commit is enabled. Errors are logged.

        Without ``is_last_included`` it leaves out what the last poll returned, as unfinished, and
        partitions that the application itself has committed beyond that, or may have: a commit
        whose outcome is not known counts.
        """
        if not self.is_automatic:
            return
        if not is_last_included:
            self._flush(deadline_ms)
        offsets = self._offsets(None, is_last_included=is_last_included)
        if not is_last_included:
            committed = self._committed_so_far()
            offsets = {
                tp: at for tp, at in offsets.items() if not _is_beyond(committed.get(tp), at)
            }
        if not offsets:
            return
        try:
            self._commit_now(offsets, deadline_ms, is_automatic=True)
        except KafkaError as error:
            self._auto_commit_ended({}, error)

    def _committed_so_far(self) -> Offsets:
        """Return the last offset of each partition that is stored, or may be."""
        committed = dict(self._committed)
        for outcome in list(self.completed):
            committed.update(_perhaps_stored(outcome))
        for commit in self._outstanding:
            if not commit.is_done:
                committed.update(commit.offsets)
        return committed

    def begin_auto_commit(self, deadline_ms: int) -> Commit | None:
        """Begin to commit what was handed out, until then; None if there is nothing to commit."""
        offsets = self._offsets(None) if self.is_automatic else {}
        if not offsets:
            return None
        commit = Commit(offsets, self._auto_commit_ended, is_automatic=True)
        self._commit_later(commit, deadline_ms)
        return commit

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was committed for partitions that are no longer assigned."""
        for tp in partitions:
            self._committed.pop(tp, None)

    def _auto_commit_ended(self, _: Offsets, error: KafkaError | None) -> None:
        if error is None:
            self._auto_denial = None
            return
        # A denial lasts, other failures are rare.
        is_known = error.message == self._auto_denial
        self._auto_denial = error.message if isinstance(error, AuthorizationError) else None
        level = logging.DEBUG if is_known else logging.WARNING
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
        """Commit and wait; callbacks of earlier commits have run when it returns or fails."""
        runtime, commits = self._runtime, self._group.commits
        commit = Commit(offsets)

        def begin(now_ms: int) -> PendingResult[Offsets]:
            result = commits.commit(offsets, now_ms, deadline_ms, is_auto_commit=is_automatic)
            result.add_callback(lambda ended: self._note_result(commit, ended))
            return result

        left_ms = max(0, deadline_ms - runtime.clock.now_ms()) + ANSWER_SLACK_MS
        self._outstanding[commit] = None
        try:
            runtime.call("the commit", begin, left_ms)
        except BaseException as error:
            self._outstanding.pop(commit, None)  # it may not have begun
            if isinstance(error, KafkaError):
                self.run_callbacks()
            raise
        self.run_callbacks()

    def _commit_later(self, commit: Commit, deadline_ms: int | None = None) -> None:
        """Commit without waiting; retried until the deadline, without one not at all."""
        if not commit.offsets:
            self._end(commit, {}, None)
            return
        commits = self._group.commits

        def begin(now_ms: int) -> None:
            result = commits.commit(
                commit.offsets, now_ms, deadline_ms, is_auto_commit=deadline_ms is not None
            )
            result.add_callback(lambda ended: self._note_result(commit, ended))

        self._outstanding[commit] = None
        try:
            self._runtime.submit("a commit", begin)
        except KafkaError as error:
            self._end(commit, {}, error)
        except BaseException:
            self._outstanding.pop(commit, None)  # it may not have been submitted
            raise

    def _note_result(self, commit: Commit, ended: PendingResult[Offsets]) -> None:
        """Note the outcome. Network thread."""
        if ended.error is not None:
            self._end(commit, {}, self._runtime.word_error(ended.error))
        else:
            self._end(commit, ended.value, None)

    def _end(self, commit: Commit, stored: Offsets, error: KafkaError | None) -> None:
        """Note an outcome; any thread, and only the first one counts."""
        self.completed.append((commit, stored, error))
        commit.is_done = True
        self._runtime.wakeup_event.signal()

    def __repr__(self) -> str:
        return f"<ConsumerCommits group={self._group_id} outstanding={len(self._outstanding)}>"


def _perhaps_stored(outcome: _Outcome) -> Offsets:
    """Return the offsets that are stored, or may be: the outcome of a time-out is unknown."""
    commit, stored, error = outcome
    if isinstance(error, (KafkaTimeoutError, WakeupError)):
        return commit.offsets
    committed: Offsets = getattr(error, "committed", stored)
    return committed


def _is_beyond(committed: OffsetAndMetadata | None, at: OffsetAndMetadata) -> bool:
    """Return whether so much of the same topic is committed that ``at`` would take some back."""
    if committed is None or committed.offset <= at.offset:
        return False
    topic_ids = topic_id_of(committed), topic_id_of(at)
    return None in topic_ids or topic_ids[0] == topic_ids[1]


def _log_outcome(_: Offsets, error: KafkaError | None) -> None:
    if error is not None:
        logger.warning("commit_async() failed: %s", error.message)


def _log_failure(call: _Call) -> None:
    """Log what a call raised, or raise it: what is no Exception, or a signal handler's."""
    if call.once.error is None:
        return
    try:
        raise call.once.error
    except Exception as error:
        if is_of_signal_handler(error):
            raise
        logger.exception("%s", call.failure)


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
    checked: dict[TopicPartition, OffsetAndMetadata] = {}
    for key, at in offsets.items():
        tp = check_partition(key)
        offset, metadata, epoch = check_committable(tp, at)
        checked[tp] = OffsetOfTopic.of(offset, metadata, epoch, topic_id_of(at))
    check_offsets(checked)
    return checked
