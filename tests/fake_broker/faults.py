"""When things go wrong: rules that match requests and the faults they apply.

Owns the rules and their counters. A rule counts the requests it matches; it applies from the
``nth`` on, ``times`` times. Several rules may hit one request; they apply in the order added.
Connections are requests of the pseudo API ``CONNECT``: a rule for it acts when a connection is
accepted (``Drop``, ``NeverAnswer`` and ``Answer`` make sense there). Locked by the cluster.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from tests.fake_broker.fault_actions import DropMidRequest, Fault
from tests.fake_broker.reply_plan import ReplyPlan
from tests.fake_broker.request_log import LoggedRequest

CONNECT: Final = -1
"""Pseudo API key of a connection being accepted."""


@dataclass(slots=True, eq=False)
class FaultRule:
    """Faults, the requests they are for, and how often they have applied.

    Attributes
    ----------
    seen : int
        Matching requests so far.
    hits : int
        How often the faults were applied.
    """

    faults: tuple[Fault, ...]
    api: int | None = None
    node: int | None = None
    connection: int | None = None
    nth: int = 1
    times: int | None = 1
    where: Callable[[LoggedRequest], bool] | None = None
    seen: int = 0
    hits: int = 0

    @property
    def is_early(self) -> bool:
        """Return whether the rule acts before the request is complete."""
        return any(isinstance(fault, DropMidRequest) for fault in self.faults)

    @property
    def is_used_up(self) -> bool:
        return self.times is not None and self.hits >= self.times

    def hit(self, request: LoggedRequest) -> bool:
        """Count a request that matches; return whether the faults apply to it."""
        if (
            self.is_used_up
            or (self.api is None and request.api_key == CONNECT)
            or self.api not in {None, request.api_key}
            or self.node not in {None, request.node_id}
            or self.connection not in {None, request.connection_id}
            or (self.where is not None and not self.where(request))
        ):
            return False
        self.seen += 1
        if self.seen < self.nth:
            return False
        self.hits += 1
        return True


class FaultTable:
    """All rules of a cluster."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []

    def add(
        self,
        *faults: Fault,
        api: int | None = None,
        node: int | None = None,
        connection: int | None = None,
        nth: int = 1,
        times: int | None = 1,
        where: Callable[[LoggedRequest], bool] | None = None,
    ) -> FaultRule:
        """Add a rule.

        Parameters
        ----------
        *faults : Fault
            Applied together.
        api, node, connection : int, optional
            Which requests; None matches every one (but no accepted connections).
        nth : int
            The first matching request hit, counted from now, from 1.
        times : int or None
            How many requests in a row are hit; None means for ever.
        where : callable, optional
            Further condition on the request. A rule with ``DropMidRequest`` sees it before it is
            decoded: ``message`` is None.
        """
        rule = FaultRule(faults, api, node, connection, nth, times, where)
        self.rules.append(rule)
        return rule

    def remove(self, rule: FaultRule) -> None:
        """Take a rule out; it may be gone already."""
        if rule in self.rules:
            self.rules.remove(rule)

    def clear(self) -> None:
        """Take all rules out: the cluster is healthy again."""
        self.rules.clear()

    def plan(self, request: LoggedRequest, *, is_early: bool = False) -> ReplyPlan:
        """Return how a request is to be answered, counting it in every rule."""
        plan = ReplyPlan()
        for rule in self.rules:
            if rule.is_early == is_early and rule.hit(request):
                for fault in rule.faults:
                    fault.apply(plan)
        return plan

    def __repr__(self) -> str:
        return f"<FaultTable {len(self.rules)} rules>"
