"""Closing: ``close``, and the finalizer of a consumer that was not closed.

Owns the order of ``close`` (the group first, then threads and connections) and its time limit. The
threads of a consumer that is collected without ``close`` end, and it warns once. Application
thread, or the one that collects the garbage.

A ``close`` by a signal handler or a callback inside another call, whose thread may hold any lock,
ends that call and is done when it is over. What a signal handler interrupts is completed by the
next ``close``: the consumer counts as closed when nothing is left to do.
"""

from __future__ import annotations

import os
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final

from kfast._runtime.one_time_call import CallDepth
from kfast.application.arguments import check_operation, close_arguments
from kfast.threads.consumer_runtime import ConsumerRuntime

if TYPE_CHECKING:
    from kfast.application.polling import Polling
    from kfast.application.shared_parts import SharedParts
    from kfast.consumer.group.membership import CloseOperation

CLOSE_TIMEOUT_MS: Final = 30_000

_open: weakref.WeakKeyDictionary[ConsumerRuntime, int] = weakref.WeakKeyDictionary()
"""Consumers that are not closed, with the process that made each."""


def end_all() -> None:
    """End the threads of the consumers that are open when the interpreter ends."""
    for runtime, pid in list(_open.items()):
        ConsumerRuntime.finalize(runtime, pid)


class Closing:
    """Closes one consumer, once."""

    def __init__(self, shared: SharedParts, polling: Polling) -> None:
        self._runtime = shared.runtime
        self._clock = shared.runtime.clock
        self._guard = shared.guard
        self._leave_group = shared.leave_group
        self._polling = polling
        self._iteration = shared.iteration
        self._interceptors = shared.interceptors
        self._inside = CallDepth()
        self._is_last_included = True
        self._has_left = False
        self._error: BaseException | None = None  # of a listener
        self._finalizer: weakref.finalize[..., object] | None = None

    def watch(self, consumer: object) -> None:
        """End the threads when the consumer is collected, or with the interpreter."""
        self._finalizer = weakref.finalize(
            consumer, ConsumerRuntime.finalize, self._runtime, os.getpid()
        )
        self._finalizer.atexit = False
        _open[self._runtime] = os.getpid()

    def close(
        self,
        timeout_ms: int | None = None,
        *,
        is_committing: bool = True,
        is_last_included: bool = True,
        operation: CloseOperation = "default",
    ) -> None:
        """Commit, leave the group, end connections and threads; a second call does nothing.

        Raises what a rebalance listener raised, after everything else is done. The arguments are
        those of `LeaveGroup.close`.
        """
        if self._guard.is_closed:
            return
        timeout_ms, is_committing = close_arguments(timeout_ms, is_committing)
        timeout_ms = CLOSE_TIMEOUT_MS if timeout_ms is None else timeout_ms
        check_operation(operation)
        deadline_ms = self._clock.now_ms() + timeout_ms
        close = partial(self._close, deadline_ms, is_committing, operation)
        if not self._guard.is_inside:
            close(is_last_included)
        elif not self._inside.depth:
            self._guard.call_on_exit(lambda: close(is_last_included))
            self._runtime.end_calls()

    def _close(
        self,
        deadline_ms: int,
        is_committing: bool,
        operation: CloseOperation,
        is_last_included: bool,
    ) -> None:
        if self._guard.is_closed:  # by a handler, since it was looked at
            return
        with self._guard, self._inside:
            self._runtime.end_calls()
            self._is_last_included &= is_last_included
            if not self._has_left:
                self._error = self._leave_group.close(
                    deadline_ms,
                    is_committing=is_committing,
                    is_last_included=self._is_last_included,
                    operation=operation,
                )
                self._has_left = True
            self._iteration.clear()
            self._runtime.close(max(0, deadline_ms - self._clock.now_ms()))
            self._interceptors.close()
            if self._finalizer is not None:
                self._finalizer.detach()
            _open.pop(self._runtime, None)
            self._guard.close()
            error = self._error
        if error is not None:
            raise error

    def warn_if_open(self, consumer: object) -> None:
        """Warn that a consumer is collected that was used and never closed."""
        if self._guard.is_closed or self._guard.is_forked or not self._runtime.is_started:
            return
        warnings.warn(
            f"{consumer!r} was not closed", ResourceWarning, stacklevel=2, source=consumer
        )

    def __repr__(self) -> str:
        return f"<Closing {'inside' if self._inside.depth else 'idle'} {self._runtime!r}>"
