"""Every exception kfast raises, and Kafka's error codes.

All classes derive from ``KafkaError`` and pickle. A message has one line that says what failed in
the user's own words, then whatever is known of::

    cause: why it failed
    found: what was seen instead
    try: what to do about it

``retriable`` says whether the same call may succeed when made again without any change.
"""

from __future__ import annotations

from kfast._base.spelling import did_you_mean as did_you_mean
from kfast._base.spelling import partition_range as partition_range
from kfast.errors import exceptions, other_exceptions
from kfast.errors.codes import ERROR_TABLE as ERROR_TABLE
from kfast.errors.codes import ErrorCode as ErrorCode
from kfast.errors.codes import error_info as error_info
from kfast.errors.codes import exception_for as exception_for
from kfast.errors.exceptions import *
from kfast.errors.kafka_python import *
from kfast.errors.other_exceptions import *

# Tracebacks and pickles name the classes as users import them.
for _module in (exceptions, other_exceptions):
    for _value in vars(_module).values():
        if isinstance(_value, type) and issubclass(_value, exceptions.KafkaError):
            _value.__module__ = __name__
