"""ConsumerParts: the parts of a ``KafkaConsumer``, made and connected.

Owns nothing but the construction, in the order in which they need one another. They keep no
reference to the ``KafkaConsumer``, so that a forgotten one can be collected and finalized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast._clock import Clock, SystemClock
from kfast._runtime.interrupts import Interrupts
from kfast.application.closing import Closing
from kfast.application.commits import ConsumerCommits
from kfast.application.interceptors import Interceptors
from kfast.application.iteration import RecordIteration
from kfast.application.leaving import GroupExit
from kfast.application.lookups import Lookups
from kfast.application.metrics import ConsumerMetrics
from kfast.application.polling import Polling
from kfast.application.positions import Positions
from kfast.application.rebalance import RebalanceRunner
from kfast.application.record_converter import RecordConverter
from kfast.application.subscribing import Subscribing
from kfast.threads.consumer_runtime import ConsumerRuntime

if TYPE_CHECKING:
    from kfast._native.record_index import RecordIndex
    from kfast._runtime.access_guard import AccessGuard
    from kfast.config import ConsumerConfig
    from kfast.consumer.fetch.completed_fetch import CompletedFetch
    from kfast.records.building import BuildResult


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerParts:
    """Everything of one consumer but its public face."""

    clock: Clock
    converter: RecordConverter
    runtime: ConsumerRuntime
    interceptors: Interceptors
    iteration: RecordIteration
    metrics: ConsumerMetrics
    commits: ConsumerCommits
    lookups: Lookups
    polling: Polling
    positions: Positions
    subscribing: Subscribing
    closing: Closing

    @classmethod
    def of(cls, config: ConsumerConfig, guard: AccessGuard) -> ConsumerParts:
        """Return the parts of a consumer with this configuration.

        Raises
        ------
        ConfigurationError
            A deserializer, an interceptor or an assignor cannot be used.
        """
        clock = SystemClock()
        interrupts = Interrupts()
        converter = RecordConverter(config)
        interceptors = Interceptors(config.interceptor_classes)

        def convert_interruptibly(fetch: CompletedFetch, chunk: RecordIndex) -> BuildResult:
            return interrupts.run(converter, fetch, chunk)

        convert = convert_interruptibly if converter.runs_users_code else converter
        runtime = ConsumerRuntime(config, clock, convert)
        iteration = RecordIteration(runtime.subscriptions)
        metrics = ConsumerMetrics(config, runtime, runtime.subscriptions, clock)
        commits = ConsumerCommits(config, runtime, interceptors, iteration)
        rebalance = RebalanceRunner(runtime, runtime.subscriptions, commits, metrics)
        lookups = Lookups(config, runtime)
        group_exit = GroupExit(runtime, commits, rebalance)
        polling = Polling(
            config,
            runtime,
            guard,
            converter,
            commits,
            rebalance,
            interceptors,
            metrics,
            iteration,
            interrupts,
            lookups,
        )
        return cls(
            clock,
            converter,
            runtime,
            interceptors,
            iteration,
            metrics,
            commits,
            lookups,
            polling,
            Positions(runtime, iteration, lookups),
            Subscribing(config, runtime, commits, rebalance, group_exit, iteration),
            Closing(runtime, clock, guard, group_exit, polling, iteration, interceptors),
        )
