"""RetriedErrors: retriable errors that keep a consumer from reading, for as long as they go on.

Owns, for each stage on the way to the first record, the error of the last attempt and since when
all attempts have failed. A stage needs those before it, so that the first one that fails is the
reason. It decides nothing about requests: their managers report to it and retry as they do.

| stage | failed | succeeded |
|---|---|---|
| COORDINATOR | FindCoordinator, the connection to the group coordinator | that is connected |
| MEMBERSHIP | JoinGroup, SyncGroup, the first heartbeat of KIP-848 | the group is joined |
| HEARTBEAT | heartbeats of a member | one is accepted |
| ASSIGNMENT | topic ids of an assignment without a name in metadata | all have one |
| TOPICS | errors of subscribed topics in metadata | there are none |
| COMMITTED_OFFSETS | OffsetFetch for positions | all offsets were fetched |
| POSITIONS | ListOffsets, no leader, or no connection to it | a position was found |

| the error is | when |
|---|---|
| logged, one warning | after `NOTICE_MS`, once for each kind of error |
| known: raised where a call ends | at once; in a stage that succeeded before, after `NOTICE_MS` |
| certain: raised by every call | after ``bootstrap_timeout_ms``, if the stage never succeeded |

Errors by which a group rebalances are expected, also for long: they become known after
``session_timeout_ms``, in which a member that died is removed, and are never certain.

The network thread writes; any thread may read, as `failing` is an immutable value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast.errors import ErrorCode, KafkaTimeoutError

if TYPE_CHECKING:
    from kfast.config import ConsumerConfig
    from kfast.errors import KafkaError

logger = get_logger(__name__)

NOTICE_MS: Final = 3_000
"""How long a coordinator that moves, or a new offsets topic, may take without a warning."""


class Stage(IntEnum):
    """What a consumer needs before it can fetch, in this order."""

    COORDINATOR = 1
    MEMBERSHIP = 2
    HEARTBEAT = 3
    ASSIGNMENT = 4
    TOPICS = 5
    COMMITTED_OFFSETS = 6
    POSITIONS = 7


_MESSAGES: Final = {
    Stage.COORDINATOR: 'the coordinator of group "{}" was not reached',
    Stage.MEMBERSHIP: 'group "{}" was not joined',
    Stage.HEARTBEAT: 'heartbeats to group "{}" were not accepted',
    Stage.ASSIGNMENT: 'the topics of partitions that group "{}" assigns were not found',
    Stage.TOPICS: "the metadata of subscribed topics was not found",
    Stage.COMMITTED_OFFSETS: 'the committed offsets of group "{}" were not found',
    Stage.POSITIONS: "positions to start from were not found",
}
_DONE: Final = {
    Stage.COORDINATOR: 'the coordinator of group "{}" is reached',
    Stage.MEMBERSHIP: 'group "{}" is joined',
    Stage.HEARTBEAT: 'heartbeats to group "{}" are accepted',
    Stage.ASSIGNMENT: 'the topics of partitions that group "{}" assigns are found',
    Stage.TOPICS: "the metadata of subscribed topics is found",
    Stage.COMMITTED_OFFSETS: 'the committed offsets of group "{}" are found',
    Stage.POSITIONS: "positions to start from are found",
}
REBALANCES: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.MEMBER_ID_REQUIRED,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
    }
)
"""Error codes by which a group rebalances."""

_HINT: Final = "check the brokers and their logs; it is tried again"


@dataclass(frozen=True, slots=True)
class RetriedError:
    """The last error of a stage of which every attempt since ``since_ms`` has failed."""

    group_id: str | None
    stage: Stage
    error: KafkaError
    since_ms: int
    is_rebalance: bool
    """Whether it is one by which the group rebalances."""
    has_worked: bool
    """Whether the stage has ever succeeded."""
    warned: frozenset[object] = frozenset()
    """The kinds of errors that were logged."""

    @property
    def text(self) -> str:
        """What has failed and why, in one line."""
        return f"{self.message} ({self.cause})"

    @property
    def message(self) -> str:
        """What has failed."""
        return _MESSAGES[self.stage].format(self.group_id)

    @property
    def cause(self) -> str:
        """The error of the last attempt, in one line."""
        error = self.error
        if error.cause and self.stage is Stage.COORDINATOR and hasattr(error, "code"):
            return error.cause  # its message says the same as that of the stage
        return f"{error.message}: {error.cause}" if error.cause else error.message


def _stage_of(reason: RetriedError) -> Stage:
    return reason.stage


class RetriedErrors:
    """The stages of one consumer that fail. ``failing`` has them in order; any thread."""

    __slots__ = ("_bootstrap_timeout_ms", "_group_id", "_session_timeout_ms", "_worked", "failing")

    def __init__(self, config: ConsumerConfig) -> None:
        self._group_id = config.group_id
        self._bootstrap_timeout_ms = config.bootstrap_timeout_ms
        self._session_timeout_ms = config.session_timeout_ms
        self._worked: set[Stage] = set()
        self.failing: tuple[RetriedError, ...] = ()

    # --- network thread ---------------------------------------------------------------------------

    def failed(
        self,
        stage: Stage,
        error: KafkaError,
        now_ms: int,
        *,
        begun_ms: int | None = None,
        is_rebalance: bool = False,
    ) -> None:
        """Note that an attempt, which has begun at ``begun_ms``, failed and is made again.

        ``is_rebalance`` is that of `REBALANCES` by itself.
        """
        is_rebalance = is_rebalance or getattr(error, "code", None) in REBALANCES
        others = [failure for failure in self.failing if failure.stage is not stage]
        before = next((failure for failure in self.failing if failure.stage is stage), None)
        if before is None:
            since_ms = now_ms if begun_ms is None else begun_ms
            now = RetriedError(
                self._group_id, stage, error, since_ms, is_rebalance, stage in self._worked
            )
        else:
            now = replace(before, error=error, is_rebalance=is_rebalance)
        kind = (type(error), getattr(error, "code", None))
        is_news = self._is_lasting(now, now_ms) and kind not in now.warned
        if is_news:
            now = replace(now, warned=now.warned | {kind})
        self.failing = tuple(sorted([*others, now], key=_stage_of))
        if is_news:
            lasted_s = (now_ms - now.since_ms) / 1000
            hint = f"; {error.hint}" if error.hint else ""
            logger.warning(
                "%s within %.1f s (%s): it is tried again%s", now.message, lasted_s, now.cause, hint
            )

    def succeeded(self, stage: Stage, now_ms: int) -> None:
        """Note that an attempt succeeded."""
        self._worked.add(stage)
        if not self.failing:
            return
        ended = next((failure for failure in self.failing if failure.stage is stage), None)
        self.ended(stage)
        if ended is not None and ended.warned:
            lasted_s = (now_ms - ended.since_ms) / 1000
            logger.info("%s after %.1f s", _DONE[stage].format(self._group_id), lasted_s)

    def ended(self, stage: Stage) -> None:
        """Note that no more attempts are made."""
        if self.failing:
            self.failing = tuple(failure for failure in self.failing if failure.stage is not stage)

    # --- any thread -------------------------------------------------------------------------------

    def timeout_reason(self, now_ms: int) -> RetriedError | None:
        """Return the reason for a call whose time is up."""
        return next(
            (
                failure
                for failure in self.failing
                if self._is_lasting(failure, now_ms)
                or not (failure.has_worked or failure.is_rebalance)
            ),
            None,
        )

    def certain(self, now_ms: int) -> RetriedError | None:
        """Return the reason if no call needs to wait any longer."""
        return next(
            (
                failure
                for failure in self.failing
                if not (failure.has_worked or failure.is_rebalance)
                and now_ms - failure.since_ms >= self._bootstrap_timeout_ms
            ),
            None,
        )

    def raised(self, reason: RetriedError, now_ms: int) -> KafkaTimeoutError:
        """Return the error to raise for a reason."""
        lasted_ms = now_ms - reason.since_ms
        return KafkaTimeoutError(
            f"{reason.message} within {lasted_ms} ms",
            cause=reason.cause,
            found=reason.error.found,
            hint=reason.error.hint or _HINT,
            topic=reason.error.topic,
            partition=reason.error.partition,
        )

    def _is_lasting(self, reason: RetriedError, now_ms: int) -> bool:
        limit_ms = self._session_timeout_ms if reason.is_rebalance else NOTICE_MS
        return now_ms - reason.since_ms >= limit_ms

    def __repr__(self) -> str:
        return f"<RetriedErrors {[failure.stage.name for failure in self.failing]}>"
