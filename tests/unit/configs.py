"""Short ways to make a configuration, or to have one refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kfast.config import ConsumerConfig
from kfast.errors import ConfigurationError

HERE = "localhost:9092"


def config(settings: Mapping[str, object] | None = None, **configs: object) -> ConsumerConfig:
    if not {"bootstrap_servers", "bootstrap.servers"} & {*(settings or {}), *configs}:
        configs["bootstrap_servers"] = HERE
    return ConsumerConfig(settings, **configs)


def refusal(settings: Mapping[Any, object] | None = None, **configs: object) -> str:
    with pytest.raises(ConfigurationError) as caught:
        config(settings, **configs)
    text = str(caught.value)
    assert not caught.value.retriable
    assert caught.value.hint
    assert len(text.splitlines()) <= 6
    assert text.splitlines()[-1].startswith("try: ")
    return text
