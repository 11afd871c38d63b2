"""Names of kafka-python: a ported program changes its imports and nothing else."""

from __future__ import annotations

import dataclasses
import inspect
import warnings

import pytest

import kfast
import kfast.structs
from kfast import errors

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of the standard library's, on import
    import kafka.errors
    import kafka.structs

LEFT_OUT = {
    "BrokerResponseError": "a base class of errors that have a code: `error.code is not None`",
    "Cancelled": "of a future: calls here return when they are done",
    "NoError": "the class of code 0, which is no error",
    "QuotaViolationError": "of its metrics: a reporter of one's own refuses to measure",
    "TooManyInFlightRequests": "requests wait here, and no call sees this",
    "TransactionAbortedError": "of a producer",
    "for_code": "error_info(code).exception",
    "kafka_errors": "ERROR_TABLE",
}
"""Names of kafka.errors that kfast.errors does not have, and why, or what to use instead."""

OLD_NAMES = {
    "AuthenticationFailedError": errors.AuthenticationError,
    "AuthenticationMethodNotSupported": errors.UnsupportedSaslMechanismError,
    "GroupCoordinatorNotAvailableError": errors.CoordinatorNotAvailableError,
    "GroupLoadInProgressError": errors.CoordinatorLoadInProgressError,
    "InvalidMessageError": errors.CorruptRecordError,
    "KafkaUnavailableError": errors.KafkaConnectionError,
    "NoBrokersAvailable": errors.KafkaConnectionError,
    "NotCoordinatorForGroupError": errors.NotCoordinatorError,
}
"""Those of its versions 2, which version 3 has renamed."""

NAMES = sorted(
    name
    for name, value in vars(kafka.errors).items()
    if not name.startswith("_") and not inspect.ismodule(value)
)


@pytest.mark.parametrize("name", NAMES)
def test_the_names_of_errors_are_complete(name: str) -> None:
    """E-14: each is an exception of kfast; one of a code is the class of that code."""
    if name in LEFT_OUT:
        assert not hasattr(errors, name)
        return
    found = getattr(errors, name)
    assert issubclass(found, errors.KafkaError)
    code = getattr(getattr(kafka.errors, name), "errno", None)
    if code is not None:
        assert found is errors.error_info(code).exception


@pytest.mark.parametrize("name", OLD_NAMES)
def test_the_names_of_older_versions(name: str) -> None:
    """E-14: most programs that are ported were written for them."""
    assert getattr(errors, name) is OLD_NAMES[name]


def test_nothing_is_left_out_that_is_not_there() -> None:
    assert LEFT_OUT.keys() <= set(NAMES)


def test_an_error_is_caught_under_its_name_in_kafka_python() -> None:
    """E-14: the same class object, so that except clauses and isinstance work."""
    with pytest.raises(errors.KafkaConfigurationError):
        kfast.KafkaConsumer({"bootstrap.servers": "localhost:9", "fetch.min.bytez": 1})
    assert errors.KafkaConfigurationError is kfast.errors.ConfigurationError


@pytest.mark.parametrize("name", kfast.structs.__all__)
def test_value_types_have_their_module(name: str) -> None:
    """E-14: the fields of kafka-python's in the same order; the classes are those of kfast."""
    found = getattr(kfast.structs, name)
    assert found is getattr(kfast, name)
    theirs = getattr(kafka.structs, name)._fields
    ours = getattr(found, "_fields", None) or tuple(
        field.name for field in dataclasses.fields(found) if field.compare
    )
    assert ours == theirs[: len(ours)]
