"""A whole consumer in one test thread: kfast's sans-IO parts over a ``LoopbackNetwork``.

Its request managers are those of the product, in the same order (`RequestManagers`). ``poll`` runs
them in virtual time, so that leader moves, disconnects and truncation happen at an exact point and
every run is the same. It also decodes. Wakeup and close within a timeout belong to the threads and
are not part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, TypeVar

from kfast.application.record_converter import RecordConverter
from kfast.client.metadata import Metadata
from kfast.config import ConsumerConfig
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.error_mailbox import ErrorMailbox
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.consumer.fetch.collector import FetchCollector
from kfast.consumer.fetch_position import FetchPosition
from kfast.consumer.manager_context import ManagerContext
from kfast.consumer.pending_result import PendingResult
from kfast.consumer.request_managers import RequestManagers
from kfast.consumer.subscription_state import SubscriptionState
from kfast.network.network_client import NetworkClient
from kfast.network.network_io import NetworkIO
from kfast.records import ConsumerRecords, PartitionRecords
from kfast.security.sasl import make_logins, make_tokens
from kfast.security.sasl.login import SaslLogins
from kfast.security.sasl.oidc import ClientCredentials, Endpoint
from kfast.security.sasl.sasl_settings import SaslSettings
from kfast.settings.offset_reset import OffsetResetStrategy
from kfast.testing.cluster import FakeCluster
from kfast.types import OAuthToken, OffsetAndTimestamp, TopicPartition
from tests.fake_clock import FakeClock
from tests.simulation.login_steps import LoginSteps
from tests.simulation.loopback import LoopbackNetwork

T = TypeVar("T")

MAX_TURN_MS: Final = 60_000
MAX_TURNS_AT_ONCE: Final = 20_000
"""Turns after each other without time passing: far more than anything takes."""


class LoopbackConsumer:
    """A consumer that runs one turn of the network loop at a time.

    All nodes of ``cluster`` are bootstrap servers unless configured otherwise.
    """

    def __init__(self, cluster: FakeCluster, **configs: Any) -> None:
        self.cluster = cluster
        self.clock = FakeClock()
        self.network = LoopbackNetwork(cluster, self.clock)
        configs.setdefault("bootstrap_servers", self.network.bootstrap_servers)
        configs.setdefault("auto_offset_reset", "earliest")
        self.config = config = ConsumerConfig(configs)
        self.login_steps = LoginSteps()
        self.metadata = Metadata(config, self.clock)
        self.subscriptions = SubscriptionState(
            OffsetResetStrategy.parse(config.auto_offset_reset),
            is_read_committed=config.isolation_level == "read_committed",
        )
        self.wakeup = ApplicationWakeup()
        self.errors = ErrorMailbox(self.wakeup)
        self.fetch_buffer = FetchBuffer(
            config.buffer_memory_bytes, self.wakeup, on_room=self.network.wakeup
        )
        self.client = NetworkClient(
            config,
            self.metadata,
            self.clock,
            NetworkIO(
                self.network,
                self.network.connect,
                self.network,
                self.fetch_buffer.memory.may_receive,
                logins=self._logins(),
            ),
        )
        self.collector: FetchCollector[PartitionRecords] = FetchCollector(
            self.subscriptions, self.fetch_buffer, self.errors, RecordConverter(config)
        )
        context = ManagerContext(
            config,
            self.clock,
            self.metadata,
            self.client,
            self.subscriptions,
            self.errors,
            self.wakeup,
        )
        self.managers = RequestManagers.of(context, self.fetch_buffer, for_admin=True)
        self.fetcher, self.offsets = self.managers.fetcher, self.managers.offsets
        self.lookups = self.managers.lookups

    def _logins(self) -> SaslLogins | None:
        if not self.config.security_protocol.startswith("SASL"):
            return None

        def no_endpoint(endpoint: Endpoint, credentials: ClientCredentials) -> OAuthToken:
            raise AssertionError("no token endpoint in memory")

        settings = SaslSettings.of(self.config)
        tokens = make_tokens(self.config, settings, no_endpoint, self.clock)
        return make_logins(settings, self.login_steps, tokens, self.clock)

    # -- what to read ----------------------------------------------------------------------

    def subscribe(self, *topics: str) -> None:
        self.subscriptions.subscribe(topics)

    def assign(self, *partitions: TopicPartition) -> None:
        self.subscriptions.assign_from_user(partitions)

    def seek(self, partition: TopicPartition, offset: int, epoch: int | None = None) -> None:
        self.subscriptions.seek(partition, FetchPosition(offset, epoch))

    # -- time ------------------------------------------------------------------------------

    def turn(self, timeout_ms: int = MAX_TURN_MS) -> None:
        """Run one turn of the network loop, for at most so long in virtual time."""
        now_ms = self.clock.now_ms()
        for manager in self.managers.in_order:
            result = manager.poll(now_ms)
            for request in result.requests:
                self.client.send(request, now_ms)
            timeout_ms = min(timeout_ms, result.next_poll_ms)
        self.client.poll(max(0, timeout_ms), now_ms)

    def run(self, ms: int) -> None:
        """Let virtual time pass without taking records."""
        self.run_until(lambda: False, ms)

    def run_until(self, condition: Callable[[], bool], timeout_ms: int = 30_000) -> bool:
        """Turn until a condition holds; return whether it did in time."""
        deadline_ms = self.clock.now + timeout_ms
        turns = 0
        while not condition():
            begun_ms = self.clock.now
            if begun_ms >= deadline_ms:
                return False
            self.turn(deadline_ms - begun_ms)
            turns = turns + 1 if self.clock.now == begun_ms else 0
            assert turns < MAX_TURNS_AT_ONCE, "a busy loop"
        return True

    # -- reading ---------------------------------------------------------------------------

    def poll(self, timeout_ms: int = 30_000, max_records: int | None = None) -> ConsumerRecords:
        """Return what is ready, letting virtual time pass until something is."""
        deadline_ms = self.clock.now + timeout_ms
        while True:
            collected = self.collector.collect(max_records) or {}
            if collected or self.clock.now >= deadline_ms:
                return ConsumerRecords(collected)
            self.turn(deadline_ms - self.clock.now)

    def offsets_of(
        self, partition: TopicPartition, count: int, timeout_ms: int = 30_000
    ) -> list[int]:
        """Poll until a partition gave ``count`` records; return their offsets."""
        return [row.offset for row in self.take(count, timeout_ms).get(partition, [])]

    def take(self, count: int, timeout_ms: int = 30_000) -> dict[TopicPartition, list[Any]]:
        """Poll until ``count`` records came or time is up; return them per partition."""
        deadline_ms = self.clock.now + timeout_ms
        found: dict[TopicPartition, list[Any]] = {}
        total = 0
        while total < count and self.clock.now < deadline_ms:
            for partition, rows in self.poll(deadline_ms - self.clock.now).items():
                found.setdefault(partition, []).extend(rows)
                total += len(rows)
        return found

    def position(self, partition: TopicPartition) -> int | None:
        """Return the position, without waiting for one."""
        found = self.subscriptions.position(partition)
        return None if found is None else found.offset

    def list_offsets(
        self, timestamps: dict[TopicPartition, int], timeout_ms: int = 30_000
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look offsets up."""
        return self.wait(self.offsets.list_offsets(timestamps, self.clock.now + timeout_ms))

    def wait(self, pending: PendingResult[T], timeout_ms: int = 60_000) -> T:
        """Turn until a result is done; return its value or raise its error."""
        assert self.run_until(lambda: pending.is_done, timeout_ms), "no outcome in time"
        return pending.value

    # -- what was asked --------------------------------------------------------------------

    def values(self, rows: Iterable[Any]) -> list[bytes | None]:
        return [row.value for row in rows]
