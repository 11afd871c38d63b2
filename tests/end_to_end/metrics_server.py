"""Metrics of an ingest, asked for as Prometheus does."""

from __future__ import annotations

import socket
import urllib.request

from tests.unit.table.metric_lines import values


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def scraped(port: int) -> dict[str, float]:
    """Return the metrics, none before they are served."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            return values(answer.read().decode())
    except OSError:
        return {}


def lag(port: int) -> list[float]:
    found = scraped(port)
    return [found.get(f'lag_offsets{{topic="t",partition="{number}"}}', -1) for number in (0, 1)]
