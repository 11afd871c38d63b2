"""Exit codes, and how errors are written."""

from __future__ import annotations

import json

import pytest

import kfast.errors as e
from kfast.cli.exits import error_text, exit_code
from kfast.cli.output import OutputError

CODES = {
    e.ConfigurationError: 2,
    e.MissingDependencyError: 2,
    e.KafkaConnectionError: 3,
    e.KafkaTimeoutError: 3,
    e.DisconnectError: 3,
    e.CoordinatorLoadInProgressError: 3,
    e.SchemaRegistryError: 3,
    e.SaslAuthenticationError: 4,
    e.SchemaRegistryAuthenticationError: 4,
    e.TopicAuthorizationError: 4,
    e.UnknownTopicOrPartitionError: 5,
    e.GroupIdNotFoundError: 5,
    e.OffsetOutOfRangeError: 6,
    e.DeserializationError: 6,
    e.CorruptRecordError: 6,
    OutputError: 7,
    e.KafkaError: 1,
    e.IllegalStateError: 1,
}


@pytest.mark.parametrize(
    ("kind", "code"), CODES.items(), ids=lambda each: getattr(each, "__name__", "")
)
def test_codes(kind: type[e.KafkaError], code: int) -> None:
    assert exit_code(kind("x")) == code


def test_every_class_has_a_code_that_fits_its_family() -> None:
    """What may be retried is 3 or has a code of its own; so have the families of security."""
    classes = [value for name in dir(e) if isinstance(value := getattr(e, name), type)]
    errors = [each for each in classes if issubclass(each, e.KafkaError)]
    assert len(errors) > 100
    for each in errors:
        code = exit_code(each("x"))
        assert 1 <= code <= 7, each
        if issubclass(each, e.RetriableError):
            assert code in {3, 5}, each
        if "Authoriz" in each.__name__ or "Authentic" in each.__name__:
            assert code == 4, each


def test_the_text_names_the_program() -> None:
    error = e.KafkaError("it broke", cause="why", hint="what")
    assert error_text(error) == "kfast: it broke\ncause: why\ntry: what\n"


def test_a_hint_may_have_other_words_on_the_command_line() -> None:
    error = e.SchemaRegistryError("no", hint="give ssl_cafile", command_hint="give --ca")
    assert str(error) == "no\ntry: give ssl_cafile"
    assert error_text(error) == "kfast: no\ntry: give --ca\n"


def test_programs_get_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KFAST_ERRORS", "json")
    error = e.UnknownTopicOrPartitionError('no topic "oders"', hint="did you mean orders?")
    assert json.loads(error_text(error)) == {
        "error": "UNKNOWN_TOPIC_OR_PARTITION",
        "message": 'no topic "oders"',
        "cause": None,
        "found": None,
        "try": "did you mean orders?",
        "exit": 5,
        "retriable": True,
    }
    assert json.loads(error_text(e.ConfigurationError("x")))["error"] == "ConfigurationError"
    assert error_text(e.KafkaError("a\nb")).count("\n") == 1


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        (
            'security_protocol="PLAINTEXT", or the port',
            "-X security.protocol=PLAINTEXT, or the port",
        ),
        ("use group_protocol=classic", "use -X group.protocol=classic"),
        ("give the CA as ssl_cafile", "give the CA as ssl.cafile"),
        ("allow more time (default_api_timeout_ms)", "allow more time (--timeout)"),
        ("raise --timeout (default_api_timeout_ms)", "raise --timeout (default.api.timeout.ms)"),
        ("--take-over (take_over=True)", "--take-over (take_over=True)"),
        ('did you mean "group_id"?', 'did you mean "group_id"?'),
        ("kfast topics lists them", "kfast topics lists them"),
    ],
)
def test_hints_name_settings_as_the_command_line_does(hint: str, shown: str) -> None:
    """CL-251"""
    assert error_text(e.KafkaError("no", hint=hint)) == f"kfast: no\ntry: {shown}\n"


def test_an_error_on_a_terminal_has_nothing_that_it_acts_on() -> None:
    """CL-250: whatever a broker sends; a pipe gets the text as it is."""
    error = e.KafkaError("\x1b[31m", found="a\x07", hint='did you mean "\x9bb\u202e"?')
    assert error_text(error) == f"kfast: {error}\n"
    assert error_text(error, is_terminal=True) == (
        'kfast: \\x1b[31m\nfound: a\\x07\ntry: did you mean "\\x9bb\\u202e"?\n'
    )
    made = error_text(error, is_json=True, is_terminal=True)
    assert made[:-1].isprintable()
    assert made.isascii()
    assert json.loads(made)["try"] == error.hint
