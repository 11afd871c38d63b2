"""NetworkThread: the one thread that owns a consumer's sockets and request managers.

One turn of its loop: run what the application asked for, poll every request manager, hand their
requests to the network client, then let the client do I/O until something happens or the earliest
deadline is due. It never decodes records, never runs user code and never blocks anywhere but in
the client's selector, so heartbeats and refreshes go on while the application computes.

Its first unexpected exception ends it, and fails every waiting and every later call of the
application: a consumer without its network thread must not look idle.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Protocol, TypeVar

from kfast._base.logs import get_logger
from kfast._base.threads import WorkerThread
from kfast.errors import IllegalStateError, KafkaError, WakeupError
from kfast.threads.application_event import ApplicationEvent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kfast._base.clock import Clock
    from kfast.client.request import UnsentRequest
    from kfast.client.request_manager import RequestManager

T = TypeVar("T")

logger = get_logger(__name__)

_LONGEST_TURN_MS = 60_000
"""Upper bound of one sleep; deadlines are far shorter, this only limits a manager's bug."""


_LAST_REQUESTS_MS = 1_000
"""Longest time to write the last requests."""

_LEAST_LAST_REQUESTS_MS = 200
"""Time to write them without any left: a member that is closed in no time leaves the group, too."""

_LAST_TURN_MS = 500
"""How much longer ``close`` waits than the thread may take: it checks its deadline itself."""


class NetworkDriver(Protocol):
    """The part of ``NetworkClient`` the loop needs."""

    def send(self, request: UnsentRequest, now_ms: int) -> None:
        """Queue a request."""
        ...

    def poll(self, timeout_ms: int, now_ms: int) -> None:
        """Do I/O for at most so long and deliver what ended."""
        ...

    def wakeup(self) -> None:
        """End a running or the next ``poll`` early; any thread."""
        ...

    def close(self, timeout_ms: int) -> None:
        """Write what is queued, within the time, and close all connections; idempotent."""
        ...


class NetworkThread:
    """Polls request managers, in this order in every turn, over one network client.

    The client is used by this thread only, but for ``wakeup``. ``last_requests`` returns the
    requests to send before the connections close (the ends of fetch sessions). ``on_failure`` is
    called with the exception that ended the thread, ``on_end`` at its end; both on the thread.
    """

    def __init__(
        self,
        name: str,
        client: NetworkDriver,
        managers: Sequence[RequestManager],
        clock: Clock,
        *,
        on_failure: Callable[[BaseException], None],
        last_requests: Callable[[], Sequence[UnsentRequest]],
        on_end: Callable[[], None],
    ) -> None:
        self._client = client
        self._managers = tuple(managers)
        self._clock = clock
        self._on_failure = on_failure
        self._last_requests = last_requests
        self._on_end = on_end
        self._events: deque[ApplicationEvent[object]] = deque()
        self._waiting: list[ApplicationEvent[object]] = []
        self._is_closing = False
        self._close_deadline_ms = 0
        self._failure: BaseException | None = None
        self._is_finished = threading.Event()
        self._thread = WorkerThread(name, self._run)

    @property
    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive

    def start(self) -> None:
        """Start the thread. Idempotent."""
        self._thread.start()

    def submit(self, event: ApplicationEvent[T]) -> None:
        """Run an event in the next turn, or raise the error that ended the thread. Any thread."""
        self.raise_failure()
        self._events.append(event)  # type: ignore[arg-type]
        self._client.wakeup()
        if self._is_finished.is_set():
            self._fail_events(self._reason())

    def abandon(self, event: ApplicationEvent[T]) -> None:
        """Cancel an event that its caller no longer waits for. Any thread."""
        event.fail(WakeupError(f"{event.name} was cancelled"))
        self._events.append(ApplicationEvent(f"the end of {event.name}", event.cancel))
        self._client.wakeup()

    def wakeup(self) -> None:
        """Start the next turn at once. Any thread."""
        self._client.wakeup()

    @property
    def failure(self) -> KafkaError | None:
        """The error that ended the thread, None if none did. Any thread."""
        return None if self._failure is None else self._reason()

    def raise_failure(self) -> None:
        """Raise the error that ended the thread, if one did."""
        if self._failure is not None:
            raise self._reason()

    def close(self, timeout_ms: int) -> bool:
        """End the thread and wait for it, without a lock. Any thread, also this one.

        Returns whether it ended within the time. It is a daemon thread: one that did not end does
        not keep the interpreter alive.
        """
        self._close_deadline_ms = self._clock.now_ms() + timeout_ms
        self._is_closing = True
        if self._thread.cancel():  # it was never started
            self._is_finished.set()
            self._client.close(0)
            self._on_end()
            return True
        self._client.wakeup()
        if self._thread.is_current:  # it collects the garbage
            return False
        return self._thread.join((timeout_ms + _LAST_TURN_MS) / 1000)

    def _run(self) -> None:
        try:
            while not self._is_closing:
                self._turn()
            self._send_last_requests()
        except BaseException as error:
            logger.exception("the network thread failed")
            self._failure = error
            self._on_failure(self._reason())
        finally:
            self._is_finished.set()
            self._fail_events(self._reason())
            self._client.close(0)
            self._on_end()

    def _turn(self) -> None:
        now_ms = self._clock.now_ms()
        timeout_ms = self._begin_turn(now_ms)
        if self._events or self._is_closing:
            timeout_ms = 0
        self._client.poll(max(0, timeout_ms), now_ms)

    def _begin_turn(self, now_ms: int) -> int:
        """Run events and request managers; return when the next turn is due."""
        self._run_events(now_ms)
        timeout_ms = _LONGEST_TURN_MS
        for manager in self._managers:
            result = manager.poll(now_ms)
            for request in result.requests:
                self._client.send(request, now_ms)
            timeout_ms = min(timeout_ms, result.next_poll_ms)
        return timeout_ms

    def _run_events(self, now_ms: int) -> None:
        while self._events:
            event = self._events.popleft()
            event.run(now_ms)
            if not event.is_done:
                self._waiting.append(event)
        if self._waiting:
            self._waiting = [event for event in self._waiting if not event.is_done]

    def _send_last_requests(self) -> None:
        now_ms = self._clock.now_ms()
        self._begin_turn(now_ms)  # what was submitted before `close`, such as a LeaveGroup
        for request in self._last_requests():
            self._client.send(request, now_ms)
        # Half of the time left, so that the thread ends within the caller's timeout.
        left_ms = (self._close_deadline_ms - now_ms) // 2
        self._client.close(max(_LEAST_LAST_REQUESTS_MS, min(_LAST_REQUESTS_MS, left_ms)))

    def _fail_events(self, error: KafkaError) -> None:
        while self._events:
            self._events.popleft().fail(error)
        for event in self._waiting:
            event.fail(error)
        self._waiting.clear()

    def _reason(self) -> KafkaError:
        if isinstance(self._failure, KafkaError):
            return self._failure
        if self._failure is None:
            return IllegalStateError("this KafkaConsumer is closed")
        error = KafkaError(
            f"the network thread of this consumer failed: {type(self._failure).__name__}: "
            f"{self._failure}",
            hint="close this consumer and make a new one; this is a bug worth reporting",
        )
        error.__cause__ = self._failure
        return error

    def __repr__(self) -> str:
        return f"<NetworkThread {self._thread!r}>"
