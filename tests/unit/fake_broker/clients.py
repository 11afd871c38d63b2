"""kafka-python, imported without letting its deprecation warnings fail the run."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kafka

__all__ = ["kafka"]
