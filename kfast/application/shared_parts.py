"""SharedParts: what the parts of a consumer that run its public calls have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kfast._runtime.access_guard import AccessGuard
    from kfast.application.commits import ConsumerCommits
    from kfast.application.interceptors import Interceptors
    from kfast.application.iteration import RecordIteration
    from kfast.application.leave_group import LeaveGroup
    from kfast.application.lookups import Lookups
    from kfast.application.metrics import ConsumerMetrics
    from kfast.application.rebalance import RebalanceRunner
    from kfast.application.record_converter import RecordConverter
    from kfast.config import ConsumerConfig
    from kfast.threads.consumer_runtime import ConsumerRuntime


@dataclass(frozen=True, slots=True, eq=False)
class SharedParts:
    """Made once per consumer. Application thread, unless a part says otherwise."""

    config: ConsumerConfig
    runtime: ConsumerRuntime
    guard: AccessGuard
    """Admits one thread at a time, and none once the consumer is closed."""
    converter: RecordConverter
    interceptors: Interceptors
    iteration: RecordIteration
    metrics: ConsumerMetrics
    commits: ConsumerCommits
    rebalance: RebalanceRunner
    lookups: Lookups
    leave_group: LeaveGroup
