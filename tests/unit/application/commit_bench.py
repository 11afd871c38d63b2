"""The commits of the application thread on a fake runtime."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kfast.application.commits import ConsumerCommits
from kfast.application.interceptors import Interceptors
from kfast.application.iteration import RecordIteration
from kfast.consumer.fetch_position import FetchPosition
from kfast.types import TopicPartition
from tests.unit.application.fake_runtime import FakeCommits, FakeRuntime
from tests.unit.configs import config

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
INTERVAL_MS = 5_000


class Bench:
    """Commits of a consumer that stands at t-0 @ 10 and t-1 @ 20."""

    def __init__(self, **configs: Any) -> None:
        settings = config(group_id="g", **configs)
        self.runtime = FakeRuntime()
        subscriptions = self.runtime.subscriptions
        subscriptions.assign_from_user([T0, T1])
        subscriptions.seek(T0, FetchPosition(10))
        subscriptions.seek(T1, FetchPosition(20))
        self.reported: list[Any] = []
        self.commits = ConsumerCommits(
            settings,
            cast("Any", self.runtime),
            Interceptors([self]),
            RecordIteration(subscriptions, cast("Any", SimpleNamespace(undelivered=None))),
        )

    def on_commit(self, offsets: dict[TopicPartition, Any]) -> None:
        self.reported.append({tp.partition: at.offset for tp, at in offsets.items()})

    @property
    def sent(self) -> FakeCommits:
        assert self.runtime.group is not None
        return self.runtime.group.commits
