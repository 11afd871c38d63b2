"""The base of all exceptions, and those that come from no broker.

Owns the shape of messages, which the package describes. Never logs or prints.
"""

from __future__ import annotations

from typing import Any as _Any


class KafkaError(Exception):
    """Base of all kfast exceptions.

    Parameters
    ----------
    message : str
        What failed; the first line of ``str(error)``.
    cause, found : str or None
        Why it failed, and what was seen; printed as ``cause:`` and ``found:``.
    hint : str or None
        What to do; printed as ``try:``. Some classes have one of their own.
    command_hint : str or None
        What to do on the command line, if that has other words.
    topic, partition, offset : str, int, int or None
        The data concerned.
    node : int, str or None
        The broker concerned: its id or its address.
    **extra : object
        Further attributes that a class documents.

    Attributes
    ----------
    retriable : bool
        Whether the same call may succeed later without any change.
    code : int or None
        Kafka's error code, if a broker sent one or the class stands for one.

    Examples
    --------
    >>> print(kfast.KafkaError("it broke", cause="why", hint="what to do"))
    it broke
    cause: why
    try: what to do
    """

    retriable: bool = False
    code: int | None = None
    hint: str | None = None
    command_hint: str | None = None

    def __init__(
        self,
        message: str = "",
        *,
        cause: str | None = None,
        found: str | None = None,
        hint: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        node: int | str | None = None,
        **extra: object,
    ) -> None:
        self.message = message or type(self).__name__
        super().__init__(self.message)
        self.cause = cause
        self.found = found
        if hint is not None:
            self.hint = hint
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.node = node
        for name, value in extra.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        lines = [self.message]
        lines += [
            f"{label}: {text}"
            for label, text in (("cause", self.cause), ("found", self.found), ("try", self.hint))
            if text
        ]
        return "\n".join(lines).encode(errors="backslashreplace").decode()  # half a surrogate pair

    def __reduce__(self) -> tuple[_Any, ...]:
        return _rebuild, (type(self), dict(self.__dict__))


def _rebuild(cls: type[KafkaError], state: dict[str, object]) -> KafkaError:
    error = cls(str(state["message"]))
    error.__dict__.update(state)
    return error


class RetriableError(KafkaError):
    """The condition is expected to pass; kfast retries these itself inside ``poll``."""

    retriable = True


class KafkaTimeoutError(RetriableError):
    """An operation did not finish in its time; the message names it and what was missing."""


class ConfigurationError(KafkaError, ValueError):
    """A setting is unknown, out of range or at odds with another one."""


class ConfigNotFoundError(ConfigurationError):
    """There is no such file of settings, or no such profile in it."""


class IllegalStateError(KafkaError):
    """The call breaks a rule of use: second thread, closed consumer, forked child, ..."""


class WakeupError(KafkaError):
    """``wakeup()`` was called; the call it interrupted has lost nothing."""


class MissingDependencyError(KafkaError, ImportError):
    """An optional package is needed and not installed; the hint names it."""


class StorageError(KafkaError):
    """A file or folder cannot be written or read."""


class TableError(KafkaError):
    """The log of a table that an ingest writes is damaged."""


class LocalKafkaError(KafkaError):
    """``LocalKafka`` or ``LocalRegistry`` cannot do what was asked: no Java, no files, no start."""


class SchemaRegistryError(KafkaError):
    """A schema registry gives no answer, or none that can be used.

    Retriable if the cause may pass without the caller's doing: the registry cannot be reached, or
    answers 5xx or 429. ``poll`` raises it with the position unmoved, and the next one tries again.

    Attributes
    ----------
    url : str
        Of the registry, without credentials.
    status : int or None
        That of the HTTP answer, if there is one.
    """

    url: str = ""
    status: int | None = None


class SchemaRegistryAuthenticationError(SchemaRegistryError):
    """The schema registry refuses the credentials (401), or does not permit the request (403)."""
