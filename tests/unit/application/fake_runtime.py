"""What the application side needs of a consumer's machinery, run in the test's own thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from kfast._runtime.one_time_call import CallDepth
from kfast.client.cluster import Cluster
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.group.membership import MemberIdentity, RebalanceStep
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.subscription_state import SubscriptionState
from kfast.errors import KafkaError, KafkaTimeoutError
from kfast.settings.offset_reset import RESET_EARLIEST
from kfast.threads.application_event import ApplicationEvent
from kfast.threads.application_steps import ApplicationSteps
from kfast.types import OffsetAndMetadata, TopicPartition
from tests.fake_clock import FakeClock

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
Stored = PendingResult[Offsets]


class FakeCommits:
    """Keeps commits until the test answers them; ``answers_at_once`` answers them with success."""

    def __init__(self) -> None:
        self.made: list[tuple[dict[TopicPartition, int], int | None, Stored]] = []
        self.answers_at_once = True
        self.error: Any = None

    def commit(self, offsets: Offsets, now_ms: int, deadline_ms: int | None, **_: object) -> Stored:
        result: Stored = PendingResult()
        plain = {tp: at.offset for tp, at in offsets.items()}
        self.made.append((plain, deadline_ms, result))
        if self.error is not None:
            result.fail(self.error)
        elif self.answers_at_once:
            result.complete(offsets)
        return result

    def flush(self) -> PendingResult[None]:
        done: PendingResult[None] = PendingResult()
        if all(result.is_done for *_, result in self.made):
            done.complete(None)
        return done

    @property
    def offsets(self) -> list[dict[TopicPartition, int]]:
        return [plain for plain, *_ in self.made]


class FakeMembership:
    """A member that notes which steps were done."""

    def __init__(self) -> None:
        self.identity: MemberIdentity | None = MemberIdentity("g", 1, "m")
        self.state_name = "stable"
        self.is_rebalancing = False
        self.done: list[tuple[RebalanceStep, BaseException | None]] = []
        self.left: list[dict[str, object]] = []
        self.on_done: Callable[[RebalanceStep], object] = lambda step: None

    def step_done(self, step: RebalanceStep, error: BaseException | None, now_ms: int) -> None:
        self.done.append((step, error))
        self.on_done(step)

    def leave(self, now_ms: int, **how: object) -> PendingResult[None]:
        self.left.append(how)
        done: PendingResult[None] = PendingResult()
        done.complete(None)
        return done


class FakeGroup:
    """The parts of a group."""

    def __init__(self) -> None:
        self.membership = FakeMembership()
        self.commits = FakeCommits()


class FakeRuntime:
    """A consumer's machinery without threads: what is submitted runs at once."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.subscriptions = SubscriptionState(RESET_EARLIEST)
        self.metadata = SimpleNamespace(cluster=Cluster())
        self.steps = ApplicationSteps(0, lambda: None)
        self.group: FakeGroup | None = FakeGroup()
        self.wakeup_event = ApplicationWakeup()
        self.is_started = True
        self.uninterrupted = CallDepth()

    def word_error(self, error: KafkaError) -> KafkaError:
        return error

    def changed(self) -> None: ...

    def submit(
        self,
        name: str,
        action: Callable[[int], Any],
    ) -> ApplicationEvent[Any]:
        event: ApplicationEvent[Any] = ApplicationEvent(name, action)
        event.run(self.clock.now_ms())
        return event

    def call(self, name: str, action: Callable[[int], Any], timeout_ms: int) -> Any:
        outcome = action(self.clock.now_ms())
        if isinstance(outcome, PendingResult):
            if not outcome.is_done:
                raise KafkaTimeoutError(f"{name} was not answered within {timeout_ms} ms")
            return outcome.value
        return outcome
