"""LoginWorker: the thread of a consumer's log-ins, for what may block or runs the user's code.

That is a token provider, a password callable, the request to a token endpoint, a step of Kerberos
that asks the KDC, and a key derivation of many iterations. The network thread submits single steps
and is woken when one is done (``on_done``). One daemon thread per consumer, started with the first
step, so steps do not overlap; it also renews the consumer's OAuth token when that is due. Nothing
waits for a step that hangs, neither the network thread nor ``close``.

``end`` takes no lock: a consumer that is collected calls it from wherever garbage is collected.
"""

from __future__ import annotations

import threading
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Final

from kfast._base.logs import get_logger
from kfast._base.threads import OwnThread
from kfast.errors import AuthenticationError, KafkaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kfast._base.clock import Clock
    from kfast.security.sasl.mechanism import Work
    from kfast.security.sasl.token_cache import TokenCache
    from kfast.settings.secret import Secret

logger = get_logger(__name__)

_LONGEST_WAIT_S: Final = 3600.0


class LoginStep:
    """One step at the worker: its outcome once ``is_done``."""

    __slots__ = ("_error", "_token", "_work", "is_cancelled", "is_done")

    def __init__(self, work: Work) -> None:
        self.is_done = False
        self.is_cancelled = False
        self._work = work
        self._token: Secret[bytes] | None = None
        self._error: KafkaError | None = None

    def run(self) -> None:
        """Run the step, on the worker; whatever happens it is done then."""
        try:
            self._token = self._work.run()
        except KafkaError as error:
            self._error = error
        except BaseException as error:  # a log-in without an outcome would never end
            logger.exception("a step of a log-in failed")
            self._error = AuthenticationError(
                f"internal error: {type(error).__name__}",
                hint="this is a bug worth reporting",
            )
        self.is_done = True

    def result(self) -> Secret[bytes] | None:
        """Return the client token, None for none, or raise the error of the step."""
        if self._error is not None:
            raise self._error
        return self._token

    def cancel(self) -> None:
        """Drop a step whose connection is closed; one that runs is not ended."""
        self.is_cancelled = True


class LoginPause:
    """Pauses of steps between two tries, which end with the worker."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        self._end: SimpleQueue[None] = SimpleQueue()

    def wait(self, wait_ms: int) -> bool:
        """Wait on the worker; return False at once when it is to end."""
        try:
            self._end.get(timeout=wait_ms / 1000)
        except Empty:
            return True
        self._end.put(None)
        return False

    def end(self) -> None:
        """End the current pause and all later ones; takes no lock of Python's."""
        self._end.put(None)


class LoginWorker:
    """Runs the steps of one consumer's log-ins on a thread of this name.

    ``on_done`` is called on the worker whenever a step is done or the token of ``tokens`` was
    renewed; ``pause`` ends with the worker.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        pause: LoginPause,
        tokens: TokenCache | None,
        on_done: Callable[[], None],
    ) -> None:
        self._name = name
        self._clock = clock
        self._pause = pause
        self._tokens = tokens
        self._on_done: Callable[[], None] | None = on_done
        self._queue: SimpleQueue[LoginStep | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_ended = False

    def submit(self, work: Work) -> LoginStep:
        """Queue a step; network thread only."""
        step = LoginStep(work)
        self._queue.put(step)
        if self._thread is None and not self._is_ended:
            self._thread = OwnThread(self._run, self._name)
            self._thread.start()
        return step

    def end(self) -> None:
        """End the thread after the step that runs, which is not waited for. Any thread."""
        self._is_ended = True
        self._on_done = None
        self._pause.end()
        self._queue.put(None)

    def _run(self) -> None:
        while not self._is_ended:
            try:
                step = self._queue.get(timeout=self._wait_s())
            except Empty:
                self._renew()
                continue
            if step is None:
                return
            if not step.is_cancelled:
                step.run()
                self._done()

    def _done(self) -> None:
        on_done = self._on_done
        if on_done is not None:
            on_done()

    def _wait_s(self) -> float:
        due_ms = None if self._tokens is None else self._tokens.next_refresh_ms
        if due_ms is None:
            return _LONGEST_WAIT_S
        return min(_LONGEST_WAIT_S, max(0, due_ms - self._clock.now_ms()) / 1000)

    def _renew(self) -> None:
        if self._tokens is not None:
            self._tokens.refresh(self._clock.now_ms())
            self._done()

    def __repr__(self) -> str:
        state = "not started" if self._thread is None else "ended" if self._is_ended else "runs"
        return f"<LoginWorker {self._name} {state}>"
