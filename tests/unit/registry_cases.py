"""Settings and answers of a schema registry."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kfast.errors import (
    SchemaRegistryError,
)

LIMIT_S = 20.0
QUICK: dict[str, Any] = {"timeout_ms": 2000, "deadline_ms": 5000, "retry_backoff_ms": 1}
SHORT: dict[str, Any] = {"timeout_ms": 500, "deadline_ms": 600, "retry_backoff_ms": 1}
AVRO = '{"type": "record", "name": "Order", "fields": []}'


def failing(call: Any, *args: Any) -> SchemaRegistryError:
    """Return the error of a call, after what every error keeps to."""
    with pytest.raises(SchemaRegistryError) as failed:
        call(*args)
    text = str(failed.value)
    assert len(text.splitlines()) <= 6
    assert text.splitlines()[-1].startswith("try: ")
    assert str(pickle.loads(pickle.dumps(failed.value))) == text
    return failed.value
