"""kfast.errors: the tree, the messages and the table of codes."""

from __future__ import annotations

import copy
import importlib
import inspect
import pickle
import subprocess
import sys
import warnings

import pytest

from kfast import errors
from kfast.errors import (
    ERROR_TABLE,
    ConfigurationError,
    CorruptRecordError,
    DeserializationError,
    KafkaError,
    KafkaTimeoutError,
    MissingDependencyError,
    NotLeaderOrFollowerError,
    OffsetOutOfRangeError,
    RetriableError,
    TopicAuthorizationError,
    UnknownServerError,
    UnsupportedVersionError,
    did_you_mean,
    error_info,
    exception_for,
)

CLASSES = [
    cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, KafkaError)
]

# The names of the codes as other implementations of the protocol have them; the broken ones out.
RETRIABLE = {
    2,
    3,
    5,
    6,
    7,
    9,
    13,
    14,
    15,
    16,
    19,
    20,
    41,
    51,
    56,
    70,
    71,
    72,
    74,
    75,
    78,
    80,
    83,
    84,
}
RETRIABLE |= {88, 89, 100, 103, 106, 122, 123, 133}
REFRESH = {3, 5, 6, 9, 13, 56, 72, 74, 100, 103}
REDISCOVER = {15, 16}


# --- the tree -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_exception_is_a_kafka_error_that_pickles(cls: type[KafkaError]) -> None:
    """E-09: derives from KafkaError, says whether it is retriable, survives pickling."""
    error = cls("it failed", cause="why", found="what", hint="do", topic="t", partition=1, offset=2)
    error.node = 5
    assert isinstance(error.retriable, bool)
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error), copy.deepcopy(error)):
        assert type(twin) is cls
        assert str(twin) == str(error)
        assert twin.__dict__ == error.__dict__
        assert (twin.retriable, twin.code) == (error.retriable, error.code)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_exception_is_documented_and_found_by_its_name(cls: type[KafkaError]) -> None:
    assert cls.__doc__
    assert cls.__module__ == "kfast.errors"
    assert getattr(errors, cls.__name__) is cls
    assert issubclass(cls, RetriableError) == cls.retriable


def test_particular_ancestors() -> None:
    assert issubclass(ConfigurationError, ValueError)
    assert issubclass(MissingDependencyError, ImportError)
    assert issubclass(errors.DisconnectError, errors.KafkaConnectionError)
    assert issubclass(errors.RequestTimedOutError, KafkaTimeoutError)
    assert issubclass(NotLeaderOrFollowerError, errors.InvalidMetadataError)
    assert issubclass(errors.NotCoordinatorError, errors.CoordinatorError)
    for name in ("Topic", "Group", "Cluster"):
        assert issubclass(getattr(errors, f"{name}AuthorizationError"), errors.AuthorizationError)
    for name in ("SaslAuthentication", "UnsupportedSaslMechanism", "IllegalSaslState"):
        assert issubclass(getattr(errors, f"{name}Error"), errors.AuthenticationError)
    assert issubclass(errors.SslAuthenticationError, errors.AuthenticationError)
    assert not issubclass(errors.AuthenticationError, errors.KafkaConnectionError)


# --- messages -------------------------------------------------------------------------------------


def test_message_has_one_line_for_each_thing_known() -> None:
    error = KafkaError("cannot connect", cause="refused", found="nothing", hint="start a broker")
    assert str(error).splitlines() == [
        "cannot connect",
        "cause: refused",
        "found: nothing",
        "try: start a broker",
    ]
    assert error.args == ("cannot connect",)
    assert str(KafkaError("just this")) == "just this"
    assert repr(KafkaError("just this")) == "KafkaError('just this')"


def test_an_exception_without_text_prints_its_name() -> None:
    assert str(KafkaTimeoutError()) == "KafkaTimeoutError"


def test_class_hints_give_way_to_given_ones() -> None:
    assert "try: seek_to_beginning()" in str(OffsetOutOfRangeError("gone"))
    assert OffsetOutOfRangeError("gone", hint="other").hint == "other"
    assert OffsetOutOfRangeError.hint != "other"


def test_a_refused_log_in_names_mechanism_user_and_node() -> None:
    """S-06"""
    error = errors.SaslAuthenticationError("no", mechanism="PLAIN", user="app", node="b1:9096")
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.mechanism, twin.user, twin.node) == ("PLAIN", "app", "b1:9096")
    assert (twin.code, twin.retriable) == (58, False)
    other = errors.SslAuthenticationError("no")
    assert (other.mechanism, other.user, other.code) == (None, None, None)


def test_extra_attributes_are_kept() -> None:
    """Such as the record that a deserializer could not read."""
    error = DeserializationError(
        "orders-3 offset 1845: value is not UTF-8",
        topic="orders",
        partition=3,
        offset=1845,
        column="value",
        key_bytes=b"k",
        value_bytes=None,
    )
    twin = pickle.loads(pickle.dumps(error))
    assert (twin.topic, twin.partition, twin.offset) == ("orders", 3, 1845)
    assert (twin.column, twin.key_bytes, twin.value_bytes) == ("value", b"k", None)
    assert CorruptRecordError("bad", next_offset=7).next_offset == 7


def test_unsupported_version_names_api_ranges_and_node() -> None:
    """E-09: UnsupportedVersion names the API, both ranges and the node."""
    error = UnsupportedVersionError.for_api("Fetch", (4, 17), (0, 3), 2)
    assert str(error).splitlines()[:2] == [
        "broker 2 does not support Fetch versions 4 to 17",
        "cause: the broker offers versions 0 to 3",
    ]
    assert (error.api, error.client_range, error.broker_range, error.node) == (
        "Fetch",
        (4, 17),
        (0, 3),
        2,
    )
    absent = UnsupportedVersionError.for_api("Fetch", (4, 17), None, "b:9092", hint="do this")
    assert "does not offer this API" in str(absent)
    assert absent.hint == "do this"


# --- codes ----------------------------------------------------------------------------------------


def test_the_table_is_complete() -> None:
    assert sorted(ERROR_TABLE) == list(range(-1, 134))
    assert all(type(info) is errors.ErrorCode for info in ERROR_TABLE.values())
    names = [info.name for info in ERROR_TABLE.values()]
    assert len(set(names)) == len(names)


def test_flags_are_those_of_the_java_client() -> None:
    table = ERROR_TABLE.values()
    assert {info.code for info in table if info.retriable} == RETRIABLE
    assert {info.code for info in table if info.refresh_metadata} == REFRESH
    assert {info.code for info in table if info.rediscover_coordinator} == REDISCOVER


def test_classes_agree_with_the_flags() -> None:
    for info in ERROR_TABLE.values():
        if info.code == 2:  # a batch is as corrupt the next time: the caller must seek past it
            continue
        assert info.exception.retriable == info.retriable, info
        is_metadata = issubclass(info.exception, errors.InvalidMetadataError)
        assert is_metadata == info.refresh_metadata, info
        is_coordinator = issubclass(info.exception, errors.CoordinatorError)
        assert is_coordinator == info.rediscover_coordinator, info


def test_every_code_has_a_class_of_its_own() -> None:
    classes = [info.exception for code, info in ERROR_TABLE.items() if code != 0]
    assert len(set(classes)) == len(classes)
    for code, info in ERROR_TABLE.items():
        assert info.exception.code == (code or None)


def test_names_agree_with_kafka_python() -> None:
    """E-09: a code has the same name and the same retriable flag there."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # importing it is not clean on every Python
        theirs = importlib.import_module("kafka.errors")
    named_otherwise = {-1, 0, 6, 10, 17, 39}
    newer_than_theirs = set(range(128, 134))
    for code, info in ERROR_TABLE.items():
        if code in newer_than_theirs:
            continue
        known = theirs.for_code(code)
        assert info.name == known.message or code in named_otherwise
        assert info.retriable == known.retriable or code == 2  # which Java retries and they do not


def class_name(name: str) -> str:
    words = [word for word in name.split("_") if word not in {"ERROR", "EXCEPTION"}]
    return "".join(word.capitalize() for word in words) + "Error"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NOT_COORDINATOR", "NotCoordinatorError"),
        ("INVALID_TOPIC_EXCEPTION", "InvalidTopicError"),
        ("FETCH_SESSION_TOPIC_ID_ERROR", "FetchSessionTopicIdError"),
    ],
)
def test_class_names_follow_from_kafkas(name: str, expected: str) -> None:
    assert class_name(name) == expected
    assert errors.ErrorCode[name].exception.__name__ == expected


def test_all_class_names_follow_from_kafkas() -> None:
    named_otherwise = {0, 2, 10, 18, 29, 30, 31, 53, 58, 65}
    for code, info in ERROR_TABLE.items():
        follows = info.exception.__name__ == class_name(info.name)
        assert follows == (code not in named_otherwise), info
        assert info.exception.__module__ == "kfast.errors"
        assert getattr(errors, info.exception.__name__) is info.exception


def test_exception_for_a_known_code_names_the_place() -> None:
    error = exception_for(6, topic="orders", partition=3, node=1)
    assert type(error) is NotLeaderOrFollowerError
    assert str(error).splitlines() == [
        "orders-3: broker 1 answered NOT_LEADER_OR_FOLLOWER (error 6)",
        "cause: the partition has moved to another broker",
    ]
    assert (error.topic, error.partition, error.node, error.code) == ("orders", 3, 1, 6)
    assert str(exception_for(8)).splitlines() == [
        "the broker answered BROKER_NOT_AVAILABLE (error 8)",
        "cause: the broker is not available",
    ]
    assert str(exception_for(29, topic="t")).startswith("t: the broker answered TOPIC_AUTH")
    assert "t-0 offset 9: " in str(exception_for(1, topic="t", partition=0, offset=9))


def test_exception_for_with_a_message_keeps_the_code_as_cause() -> None:
    error = exception_for(29, 'not allowed to read "orders"', topic="orders")
    assert type(error) is TopicAuthorizationError
    lines = str(error).splitlines()
    assert lines[0] == 'not allowed to read "orders"'
    assert lines[1].endswith("TOPIC_AUTHORIZATION_FAILED (error 29)")
    assert lines[-1].startswith("try: grant READ")
    assert exception_for(29, "m", cause="c", hint="h", extra=1).__dict__["extra"] == 1


@pytest.mark.parametrize("code", [134, 999, -2, 32767])
def test_unknown_codes_keep_their_number(code: int) -> None:
    """E-09: a code this version does not know counts as -1 and keeps its number."""
    error = exception_for(code, topic="t", partition=0)
    assert type(error) is UnknownServerError
    assert error.code == code
    assert pickle.loads(pickle.dumps(error)).code == code
    assert f"(error {code})" in str(error)
    assert not error.retriable
    assert error_info(code).name == "UNKNOWN_SERVER_ERROR"
    assert UnknownServerError.code == -1


# --- classes that are made when they are asked for ------------------------------------------------


def test_the_class_of_a_code_is_made_once() -> None:
    """E-09: under its name, under that of kafka-python, and by its code it is the same class."""
    made = errors.ErrorCode.INVALID_CONFIG.exception
    assert made is errors.ErrorCode.INVALID_CONFIG.exception
    assert made is getattr(errors, "InvalidConfigError")  # noqa: B009 - unknown to type checkers
    assert made is getattr(errors, "InvalidConfigurationError")  # noqa: B009
    assert type(exception_for(40)) is made
    assert made.__doc__ == "A topic's or broker's configuration is not valid."


def test_only_a_class_is_made_that_is_asked_for() -> None:
    code = "from kfast import errors; print('NotControllerError' in vars(errors), end=' ');"
    code += "errors.NotControllerError; print('NotControllerError' in vars(errors))"
    assert output_of(code) == b"False True\n"


def test_a_misspelt_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'NotControlerError'"):
        getattr(errors, "NotControlerError")  # noqa: B009


def test_all_names_are_listed_and_imported_with_a_star() -> None:
    """E-14: also those that are not there yet; no module or helper comes with them."""
    names: dict[str, object] = {}
    exec("from kfast.errors import *", names)
    del names["__builtins__"]
    assert {"NotControllerError", "InvalidConfigurationError", "KafkaError"} <= names.keys()
    assert names.keys() <= set(dir(errors))
    classes = {value for value in names.values() if isinstance(value, type)}
    assert {cls for cls in classes if not issubclass(cls, KafkaError)} == {errors.ErrorCode}
    assert set(CLASSES) <= classes


def test_a_class_that_was_made_is_pickled_from_process_to_process() -> None:
    """E-09"""
    code = "import pickle, sys; from kfast.errors import exception_for;"
    code += "sys.stdout.buffer.write(pickle.dumps(exception_for(77, topic='t')))"
    error = pickle.loads(output_of(code))
    assert type(error) is errors.ErrorCode.STALE_BROKER_EPOCH.exception
    assert (error.topic, error.code, error.retriable) == ("t", 77, False)


def output_of(code: str) -> bytes:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True).stdout


# --- did you mean ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("oders", "orders"),
        ("ORDERS", "orders"),
        ("ordres", "orders"),
        ("order-items", "order_items"),
        ("payment", "payments"),
        ("xyz", None),
        ("shipments", None),
        ("", None),
        ("id", None),
    ],
)
def test_did_you_mean(word: str, expected: str | None) -> None:
    assert did_you_mean(word, ["orders", "order_items", "payments", "abc"]) == expected


def test_did_you_mean_prefers_the_nearest_and_then_the_first() -> None:
    assert did_you_mean("orderz", ["ordexx", "orders", "ordera"]) == "orders"
    assert did_you_mean("orders", []) is None
    assert did_you_mean("fromat", ["from", "format"]) == "format"


def test_did_you_mean_is_the_edit_distance() -> None:
    """Against a plain implementation of the definition."""

    def distance(a: str, b: str) -> int:
        if not a or not b:
            return len(a) + len(b)
        rest = distance(a[1:], b[1:])
        if a[0] == b[0]:
            return rest
        found = [rest, distance(a[1:], b), distance(a, b[1:])]
        if a[:2] == b[1::-1]:  # swapped
            found.append(distance(a[2:], b[2:]))
        return 1 + min(found)

    words = ["abcd", "abdc", "bcda", "aacd", "xbcy", "abcdef", "ab", "dcba", "acbd", "abxyz"]
    for word in words:
        for other in words:
            near = did_you_mean(word, [other])
            limit = 2 if len(word) > 3 else 1
            assert (near == other) == (distance(word, other) <= limit), (word, other)


def test_an_error_can_be_printed_whatever_it_shows() -> None:
    """Half of a surrogate pair comes from a program, a schema or a name of a file."""
    error = KafkaError("bad \ud800", found="\udfff", hint="é")
    assert str(error) == "bad \\ud800\nfound: \\udfff\ntry: é"
    assert error.message == "bad \ud800"
