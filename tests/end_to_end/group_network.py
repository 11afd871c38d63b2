"""A network of messages between group members and the fake coordinator, in virtual time.

Owns the clock, the events to come and the connections. A message takes a random time; those of one
connection keep their order, those of different connections overtake each other. A broker answers
one connection in order, so that what comes behind a parked JoinGroup waits. Requests and answers
are the message objects themselves: what bytes can do to them is tested elsewhere.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kfast.client.request import Channel, ClientResponse, UnsentRequest
from kfast.errors import DisconnectError, KafkaError
from kfast.protocol.api_keys import API_VERSIONS, ApiKey
from kfast.testing.answers import DelayedAnswer
from kfast.testing.apis import HANDLERS
from kfast.testing.cluster import FakeCluster
from kfast.testing.context import RequestContext
from kfast.testing.fault_table import ReplyPlan
from kfast.testing.request_log import LoggedRequest
from tests.fake_clock import FakeClock

if TYPE_CHECKING:
    from tests.end_to_end.group_member import SimulatedMember

NODES: Final = 3
REQUEST_TIMEOUT_MS: Final = 4_000

_FRAME: Final[Any] = None
"""No member reads the bytes of an answer."""


class GroupNetwork:
    """Everything between the members and the cluster.

    Parameters
    ----------
    rng : random.Random
        Decides how long messages take, and what is lost.

    Attributes
    ----------
    is_calm : bool
        Nothing is lost any more.
    after_request : callable
        Called after a broker has handled a request.
    parked : dict
        The connections with an answer that waits for the group.
    has_news : bool
        Something was done to the groups: the times they wait for may be others.
    """

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.clock = FakeClock(0)
        self.cluster = FakeCluster(NODES)
        self.is_calm = False
        self.after_request: Callable[[], None] = lambda: None
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._links: list[Link] = []
        self.parked: dict[Link, None] = {}
        self.has_news = True
        self._group_due_ms = 0
        self._dirty: dict[SimulatedMember, None] = {}

    @property
    def now(self) -> int:
        return self.clock.now

    # -- time ------------------------------------------------------------------------------

    def at(self, delay_ms: int, action: Callable[[], None]) -> None:
        """Do something later."""
        heapq.heappush(self._events, (self.now + delay_ms, next(self._numbers), action))

    def run(self, ms: int, until: Callable[[], bool] = lambda: False) -> bool:
        """Let time pass, at most so much; return whether the condition came true."""
        end_ms = self.now + ms
        while not until():
            self.advance_groups()
            due_ms = self._events[0][0] if self._events else end_ms
            due_ms = min(due_ms, max(self._group_due_ms, self.now))
            if due_ms >= end_ms:
                self.clock.now = end_ms
                return until()
            self.clock.now = due_ms
            self.advance_groups()
            while self._events and self._events[0][0] <= due_ms:
                _, _, action = heapq.heappop(self._events)
                action()
            self._settle()
        return True

    def advance_groups(self) -> None:
        """Let the time of the groups pass; they are asked only when something is due or new."""
        groups = self.cluster.groups
        if self.has_news or self.now >= self._group_due_ms:
            groups.advance(self.now)
            due_ms = groups.next_deadline_ms()
            self._group_due_ms = 1 << 60 if due_ms is None else due_ms
            self.has_news = False
        else:
            groups.now_ms = self.now

    def _settle(self) -> None:
        """Deliver what has become ready, and let the members that got something act."""
        for link in list(self.parked):
            link.look()
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for member in dirty:
                member.turn()

    def touch(self, member: SimulatedMember) -> None:
        """Let a member act before time goes on."""
        self._dirty[member] = None

    # -- connections -----------------------------------------------------------------------

    def link(self, member: SimulatedMember, node_id: int, channel: Channel) -> Link:
        link = Link(self, member, node_id, channel)
        self._links.append(link)
        return link

    def break_link(self) -> None:
        """Break a connection that is in use."""
        used = [link for link in self._links if link.in_flight]
        if used:
            self.rng.choice(used).disconnect(self.rng.choice([0, 0, 300, 3_000]))

    def drop_member(self, member: SimulatedMember) -> None:
        """Forget the connections of a process that is gone."""
        for link in self._links:
            if link.member is member:
                link.vanish()
        self._links = [link for link in self._links if link.member is not member]

    def delay(self) -> int:
        """Return how long a message takes: mostly little, sometimes long."""
        return self.rng.randrange(1, 400) if self.rng.random() < 0.1 else self.rng.randrange(1, 15)


class Link:
    """One connection of a member to a node; made again as soon as it is broken."""

    def __init__(
        self, network: GroupNetwork, member: SimulatedMember, node_id: int, channel: Channel
    ) -> None:
        self.network = network
        self.member = member
        self.node_id = node_id
        self.channel = channel
        self.in_flight: dict[UnsentRequest, None] = {}
        self.error: KafkaError | None = None
        self._down_until_ms = 0
        self._incarnation = 0
        self._arrival_ms = 0
        self._reply_ms = 0
        self._queue: deque[UnsentRequest] = deque()
        self._parked: tuple[UnsentRequest, DelayedAnswer] | None = None

    @property
    def is_up(self) -> bool:
        return self.network.now >= self._down_until_ms

    def send(self, request: UnsentRequest) -> None:
        now = self.network.now
        self.in_flight[request] = None
        self._arrival_ms = max(self._arrival_ms, now + self.network.delay())
        self.network.at(self._arrival_ms - now, partial(self._arrive, request, self._incarnation))

    def disconnect(self, outage_ms: int) -> None:
        """Break: what is in flight fails, on the broker parked requests go on without us."""
        self.vanish()
        self._down_until_ms = self.network.now + outage_ms
        self.error = DisconnectError("broken", node=self.node_id) if outage_ms else None
        failed, self.in_flight = self.in_flight, {}
        for request in failed:
            error = DisconnectError("broken", node=self.node_id)
            request.handler.handle_failure(request, error, self.network.now)
        self.network.touch(self.member)

    def vanish(self) -> None:
        """Break without notice on this side."""
        self._incarnation += 1
        self._arrival_ms = self._reply_ms = 0
        self._queue.clear()
        self._park(None)

    def _park(self, waiting: tuple[UnsentRequest, DelayedAnswer] | None) -> None:
        self._parked = waiting
        if waiting is None:
            self.network.parked.pop(self, None)
        else:
            self.network.parked[self] = None

    def look(self) -> None:
        """See whether a parked request can be answered."""
        if self._parked is None:
            return
        request, delayed = self._parked
        message = delayed.complete(False)
        if message is not None:
            self._park(None)
            self._reply(request, message)
            self._serve()

    def _arrive(self, request: UnsentRequest, incarnation: int) -> None:
        if incarnation == self._incarnation:
            self._queue.append(request)
            self._serve()

    def _serve(self) -> None:
        while self._parked is None and self._queue:
            request = self._queue.popleft()
            answer = self._handle(request)
            if isinstance(answer, DelayedAnswer):
                self._park((request, answer))
                self.look()
            else:
                self._reply(request, answer)

    def _handle(self, request: UnsentRequest) -> Any:
        network = self.network
        message = request.message
        key = int(message.API_KEY)
        entry = LoggedRequest(
            key, version_of(request), 0, self.member.name, message, self.node_id, 0, network.now
        )
        network.advance_groups()
        context = RequestContext(network.cluster, entry, ReplyPlan(), network.now)
        answer = HANDLERS[key](context, message)
        network.has_news = True
        network.after_request()
        return answer

    def _reply(self, request: UnsentRequest, message: Any) -> None:
        network = self.network
        if not network.is_calm and network.rng.random() < 0.005:  # a broker that hangs
            incarnation = self._incarnation
            network.at(REQUEST_TIMEOUT_MS, lambda: self._time_out(incarnation))
            return
        self._reply_ms = max(self._reply_ms, network.now + network.delay())
        network.at(
            self._reply_ms - network.now,
            partial(self._deliver, request, message, self._incarnation),
        )

    def _time_out(self, incarnation: int) -> None:
        if incarnation == self._incarnation:
            self.disconnect(0)

    def _deliver(self, request: UnsentRequest, message: Any, incarnation: int) -> None:
        if incarnation != self._incarnation or request not in self.in_flight:
            return
        del self.in_flight[request]
        response = ClientResponse(message, version_of(request), self.node_id, _FRAME, 0)
        request.handler.handle_response(request, response, self.network.now)
        self.network.touch(self.member)


def version_of(request: UnsentRequest) -> int:
    """Return the version a request goes out in: the newest it may have."""
    newest = API_VERSIONS[ApiKey(request.message.API_KEY)][1]
    return newest if request.max_version is None else min(newest, request.max_version)


class LinkedConnections:
    """NodeConnections of one member over its links."""

    def __init__(self, network: GroupNetwork, member: SimulatedMember) -> None:
        self._network = network
        self._links = {
            (node_id, channel): network.link(member, node_id, channel)
            for node_id in network.cluster.nodes
            for channel in Channel
        }

    def send(self, request: UnsentRequest) -> None:
        assert request.node_id is not None
        self._links[request.node_id, request.channel].send(request)

    def ready(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> bool:
        return self._links[node_id, channel].is_up

    def connection_delay(self, node_id: int, now_ms: int, channel: Channel = Channel.DATA) -> int:
        return 0 if self.ready(node_id, now_ms, channel) else 100

    def connection_failed(self, node_id: int, channel: Channel | None = None) -> KafkaError | None:
        link = self._links[node_id, channel or Channel.DATA]
        return None if link.is_up else link.error

    def api_version(
        self,
        node_id: int,
        api_key: int,
        max_version: int | None = None,
        channel: Channel = Channel.DATA,
    ) -> int:
        newest = API_VERSIONS[ApiKey(api_key)][1]
        return newest if max_version is None else min(newest, max_version)

    def finalized_feature(
        self, node_id: int, name: str, channel: Channel = Channel.DATA
    ) -> int | None:
        return None

    def least_loaded_node(self, now_ms: int) -> int | None:
        up = [n for n in self._network.cluster.nodes if self.ready(n, now_ms)]
        return self._network.rng.choice(up) if up else None
