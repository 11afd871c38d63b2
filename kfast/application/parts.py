"""ConsumerParts: the parts of a ``KafkaConsumer``, made and connected.

Owns nothing but the construction, in the order in which they need one another. They keep no
reference to the ``KafkaConsumer``, so that a forgotten one can be collected and finalized.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kfast._base.clock import SystemClock
from kfast.application.closing import Closing
from kfast.application.commits import ConsumerCommits
from kfast.application.compiled import check_compiled
from kfast.application.interceptors import Interceptors
from kfast.application.iteration import RecordIteration
from kfast.application.leave_group import LeaveGroup
from kfast.application.lookups import Lookups
from kfast.application.metrics import ConsumerMetrics
from kfast.application.polling import Polling
from kfast.application.positions import Positions
from kfast.application.rebalance import RebalanceRunner
from kfast.application.shared_parts import SharedParts
from kfast.application.subscribing import Subscribing
from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.threads.consumer_runtime import ConsumerRuntime

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast._runtime.access_guard import AccessGuard
    from kfast.application.record_converter import RecordConverter
    from kfast.config import ConsumerConfig


check_compiled()


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerParts:
    """Everything of one consumer but its public methods."""

    shared: SharedParts
    polling: Polling
    positions: Positions
    subscribing: Subscribing
    closing: Closing

    @classmethod
    def of(
        cls,
        config: ConsumerConfig,
        guard: AccessGuard,
        make_converter: Callable[[Callable[[], object]], RecordConverter],
    ) -> ConsumerParts:
        """Return the parts of a consumer with this configuration.

        The converter is made with a call that wakes the consumer when what a conversion has waited
        for is there.

        Raises
        ------
        ConfigurationError
            A deserializer, an interceptor or an assignor cannot be used.
        """
        interceptors = Interceptors(config.interceptor_classes)
        wakeup = ApplicationWakeup()
        converter = make_converter(wakeup.signal)
        runtime = ConsumerRuntime(
            config,
            SystemClock(),
            converter,
            wakeup,
            convert_ahead=converter.ahead if converter.runs_ahead else None,
        )
        iteration = RecordIteration(runtime.subscriptions, runtime.collector)
        metrics = ConsumerMetrics(config, runtime)
        commits = ConsumerCommits(config, runtime, interceptors, iteration)
        rebalance = RebalanceRunner(runtime, commits, metrics)
        shared = SharedParts(
            config,
            runtime,
            guard,
            converter,
            interceptors,
            iteration,
            metrics,
            commits,
            rebalance,
            Lookups(config, runtime),
            LeaveGroup(runtime, commits, rebalance, iteration),
        )
        polling = Polling(shared)
        return cls(
            shared, polling, Positions(shared), Subscribing(shared), Closing(shared, polling)
        )
