"""Monkey patching by gevent and eventlet: whether a consumer can work in this process.

A consumer has threads of its own that wait for sockets and locks of the operating system. On green
threads such a wait stops all of them, and nothing is left to end it. What was patched is asked of
gevent and eventlet themselves, which are never imported here. Any thread.

| patched | by | a consumer |
|---|---|---|
| threads | both | waits for ever |
| select, selectors | gevent | waits for ever: a wakeup does not arrive |
| ssl | eventlet | its network thread fails |
| other modules | both | works; its calls block the thread that makes them |
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from kfast.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

_GEVENT: Final = ("_thread", "threading", "select", "selectors")
_EVENTLET: Final = ("thread",)
_EVENTLET_TLS: Final = ("thread", "socket")
"""It patches ssl along with socket."""


def check_monkey_patching(*, has_tls: bool) -> None:
    """Raise `ConfigurationError` if modules that a consumer needs were replaced."""
    _check(
        "gevent",
        _patched("gevent.monkey", "is_module_patched", _GEVENT),
        "call gevent.monkey.patch_all(thread=False, select=False), and the consumer in "
        "gevent.get_hub().threadpool; or use the consumer in a process of its own",
    )
    _check(
        "eventlet",
        _patched("eventlet.patcher", "is_monkey_patched", _EVENTLET_TLS if has_tls else _EVENTLET),
        f"call eventlet.monkey_patch(thread=False{', socket=False' if has_tls else ''}), and the "
        "consumer in eventlet.tpool; or use the consumer in a process of its own",
    )


def _patched(module: str, function: str, names: tuple[str, ...]) -> list[str]:
    is_patched: Callable[[str], bool] | None = getattr(sys.modules.get(module), function, None)
    return [] if is_patched is None else [name for name in names if is_patched(name)]


def _check(name: str, patched: list[str], hint: str) -> None:
    if patched:
        raise ConfigurationError(
            f"a consumer does not work where {name} has patched {', '.join(patched)}",
            cause="its threads wait for sockets and locks of the operating system, which would "
            "stop all green threads",
            hint=hint,
        )
