"""Hundreds of lives of a group: three members, a coordinator, and everything that can go wrong.

Each schedule is one seed: messages are late and overtake each other, connections break, brokers
hang, the coordinator moves or loads, applications stall, change their minds, leave and crash. The
rules are checked all the time; when it gets quiet everything must be read, by one member each.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import cache, partial
from typing import Any, Final

import pytest

from kfast.client.cluster import Cluster
from kfast.config import ConsumerConfig
from kfast.types import TopicPartition
from tests.end_to_end.group_ledger import GROUP, LOG_END, GroupLedger
from tests.end_to_end.group_member import SimulatedMember
from tests.end_to_end.group_network import NODES, REQUEST_TIMEOUT_MS, GroupNetwork
from tests.soaking import soaking
from tests.unit.consumer.clusters import cluster

BLOCK: Final = 50
SCHEDULES: Final = BLOCK * soaking(8, 80)
UNQUIET_MS: Final = 10_000
SETTLING_MS: Final = 60_000
TOPICS: Final = {"t": 4, "u": 3}
PARTITIONS: Final = [TopicPartition(t, p) for t, count in TOPICS.items() for p in range(count)]
STRATEGIES: Final = (
    "range",
    "roundrobin",
    "sticky",
    "cooperative-sticky",
    "cooperative-sticky",
    "range,cooperative-sticky",
)


@cache
def settings(strategy: str, *, auto_commit: bool) -> ConsumerConfig:
    return ConsumerConfig(
        bootstrap_servers="b1:9092",
        client_id="c",
        group_id=GROUP,
        partition_assignment_strategy=strategy.split(","),
        enable_auto_commit=auto_commit,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=1_500,
        max_poll_interval_ms=6_000,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
    )


@cache
def view() -> Cluster:
    return cluster({tp: (1 + tp.partition % NODES, 5) for tp in PARTITIONS}, has_topic_ids=False)


class Schedule:
    """One life of a group."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.network = GroupNetwork(self.rng)
        for topic, partitions in TOPICS.items():
            self.network.cluster.create_topic(topic, partitions)
        self.groups = self.network.cluster.groups
        self.ledger = GroupLedger(self.groups)
        self.network.after_request = self.ledger.check_commits
        self.config = settings(self.rng.choice(STRATEGIES), auto_commit=self.rng.random() < 0.8)
        self.members: list[SimulatedMember] = []
        self.counts: Counter[str] = Counter()
        self._made = 0
        self._is_loading = False
        for _ in range(3):
            self.begin()

    # -- members ---------------------------------------------------------------------------

    def begin(self) -> SimulatedMember:
        """Start one more process."""
        self._made += 1
        member = SimulatedMember(f"m{self._made}", self.network, self.config, self.ledger, view())
        self.members.append(member)
        self.ledger.members.append(member)
        member.subscribe(self.some_topics())
        member.start()
        return member

    def some_topics(self) -> list[str]:
        return self.rng.choice([["t"], ["u"], ["t", "u"], ["t", "u"]])

    def replace(self, member: SimulatedMember) -> None:
        """Start a process for one that is, or is about to be, gone."""
        self.members.remove(member)
        self.network.at(self.rng.randrange(3_000), lambda: None if self.is_full else self.add())

    @property
    def is_full(self) -> bool:
        return len(self.members) >= 3

    def add(self) -> None:
        self.begin()

    # -- failures ---------------------------------------------------------------------------

    def cause_failures(self) -> None:
        """Let something go wrong, and the next thing soon after."""
        if self.network.is_calm:
            return
        self.network.at(self.rng.randrange(100, 1_200), self.cause_failures)
        actions: list[Callable[[], Any]] = [
            self.network.break_link,
            self.network.break_link,
            self.move_coordinator,
            self.load,
            self.expire,
        ]
        ready = [member for member in self.members if member.can_act]
        if ready:
            member = self.rng.choice(ready)
            if member.is_subscribed:
                actions += [
                    partial(member.stall, self.rng.randrange(500, 9_000)),
                    partial(member.subscribe, self.some_topics()),
                    partial(member.membership.request_rejoin, "test"),
                    partial(self.pause, member),
                    partial(self.close, member),
                    partial(self.crash, member),
                ]
        action = self.rng.choice(actions)
        self.counts[getattr(action, "func", action).__name__] += 1
        action()
        self.network.has_news = True

    def move_coordinator(self) -> None:
        self.groups.move_coordinator(GROUP, self.rng.randrange(1, NODES + 1))

    def load(self) -> None:
        if not self._is_loading:
            self._is_loading = True
            self.groups.start_loading(GROUP)
            self.network.at(self.rng.randrange(2_000), self.loaded)

    def loaded(self) -> None:
        self._is_loading = False
        self.groups.finish_loading(GROUP)
        self.network.has_news = True

    def expire(self) -> None:
        group = self.groups.classic(GROUP)
        if group is not None and group.members:
            self.groups.expire_member(GROUP, self.rng.choice(list(group.members)))

    def pause(self, member: SimulatedMember) -> None:
        """Unsubscribe, and subscribe again later."""
        member.unsubscribe()
        self.network.at(self.rng.randrange(1_500, 4_000), partial(self.resume, member))

    def resume(self, member: SimulatedMember) -> None:
        if member.is_alive and not member.is_subscribed:
            member.subscribe(self.some_topics())

    def close(self, member: SimulatedMember) -> None:
        member.unsubscribe(is_closing=True)
        self.replace(member)

    def crash(self, member: SimulatedMember) -> None:
        member.crash()
        self.replace(member)

    # -- the whole life --------------------------------------------------------------------

    def run(self) -> None:
        self.network.at(1_000, self.cause_failures)
        self.network.run(UNQUIET_MS)
        self.network.is_calm = True
        self.network.run(5_000)  # who is away comes back
        for member in self.members:
            member.hurry()
            member.subscribe(list(TOPICS))
        assert self.network.run(SETTLING_MS, self.is_all_read), f"not read: {self}"
        assert self.network.run(SETTLING_MS, self.is_settled), f"not settled: {self}"
        generation = self.members[0].generation
        self.network.run(5_000)
        assert self.is_settled()
        assert self.members[0].generation == generation, f"a rebalance for nothing: {self}"
        for member in self.members:
            error = member.errors.take(lambda tp, version: True)
            assert error is None or error.retriable, error

    def is_all_read(self) -> bool:
        return all(self.ledger.prefix.get(tp) == LOG_END for tp in PARTITIONS)

    def is_settled(self) -> bool:
        """Return whether every partition is read by one member, and all of one generation."""
        owned = sorted(tp for member in self.members for tp in member.owned)
        return (
            owned == sorted(PARTITIONS)
            and len({member.generation for member in self.members}) == 1
            and all(member.membership.state_name == "stable" for member in self.members)
        )

    def __repr__(self) -> str:
        return (
            f"t={self.network.now} {self.groups.classic(GROUP)} {self.ledger.prefix} "
            f"{[(member, sorted(member.owned)) for member in self.members]}"
        )


@pytest.mark.soak
@pytest.mark.parametrize("first", range(0, SCHEDULES, BLOCK))
def test_a_group_keeps_its_rules_whatever_happens(first: int) -> None:
    """G-01, G-06, G-08, G-10, G-11, G-14, G-25, G-26, A-02, A-03, C-05, C-08, F-11, M-09."""
    counts: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        schedule = Schedule(seed)
        try:
            schedule.run()
        except Exception as error:
            raise AssertionError(f"seed {seed} ({schedule.config}): {error}") from error
        counts += schedule.counts
    assert len(counts) == 10, f"something never happened: {counts}"
