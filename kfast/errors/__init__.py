"""Every exception kfast raises, and Kafka's error codes.

All classes derive from ``KafkaError`` and pickle. A message has one line that says what failed in
the user's own words, then whatever is known of::

    cause: why it failed
    found: what was seen instead
    try: what to do about it

``retriable`` says whether the same call may succeed when made again without any change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kfast._base.spelling import did_you_mean as did_you_mean
from kfast._base.spelling import partition_range as partition_range
from kfast.errors import base, brokers, data, groups, kafka_python, security
from kfast.errors.base import *
from kfast.errors.brokers import *
from kfast.errors.codes import ERROR_TABLE as ERROR_TABLE
from kfast.errors.codes import ErrorCode as ErrorCode
from kfast.errors.codes import error_info as error_info
from kfast.errors.codes import exception_for as exception_for
from kfast.errors.data import *
from kfast.errors.groups import *
from kfast.errors.kafka_python import *
from kfast.errors.security import *

# Tracebacks and pickles name the classes as users import them.
for _module in (base, brokers, data, groups, security):
    for _value in vars(_module).values():
        if isinstance(_value, type) and issubclass(_value, base.KafkaError):
            _value.__module__ = __name__
del _module, _value

# Not for type checkers, to which a misspelt name stays an error: ``ErrorCode.NAME.exception`` is
# known to them.
if not TYPE_CHECKING:
    _ROWS = {row.exception_name: row for row in ErrorCode}
    _ROWS |= {old: _ROWS[new] for old, new in kafka_python.NAMES_OF_CODES.items()}

    def __getattr__(name: str) -> object:
        """Make the class of a code that a consumer does not meet."""
        row = _ROWS.get(name)
        if row is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
        return globals().setdefault(name, row.exception)

    def __dir__() -> list[str]:
        return sorted({*globals(), *_ROWS})

    _TABLE = {"ERROR_TABLE", "ErrorCode", "error_info", "exception_for"}
    _CLASSES = {name for name, value in globals().items() if isinstance(value, type)}
    __all__ = [*_TABLE, *_CLASSES, *_ROWS]  # noqa: PLE0604 - names
