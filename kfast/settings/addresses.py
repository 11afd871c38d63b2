"""Addresses of servers: the kind of ``bootstrap_servers``, and how one is written."""

from __future__ import annotations

import re
from typing import Final

from kfast.settings.kinds import TEXTS, Setting, items_of, parse_text

DEFAULT_PORT: Final = 9092

Address = tuple[str, int]


def parse_address(entry: str) -> Address:
    """Return host and port of ``host:port``, ``host``, ``[v6]:port`` or ``[v6]``."""
    shown = entry.rpartition("@")[2]  # the part before an @ may contain a password
    if "://" in entry or "@" in entry or "/" in entry:
        raise ValueError(f'"{shown}" is not host:port; the protocol is set by security_protocol')
    if re.search(r";|:[0-9]+\s", entry):
        raise ValueError(f'"{shown}": servers are separated by commas, as in "b1:9092,b2:9092"')
    match = re.fullmatch(r"(?:\[([^\[\]\s]+)\]|([^\[\]\s:]+))(?::([0-9]+))?", entry)
    if match is None:
        if entry.count(":") > 1 and "[" not in entry:
            raise ValueError(f'"{shown}": an IPv6 address needs brackets, as in "[::1]:9092"')
        raise ValueError(f'"{shown}" is not host:port')
    v6, host, port_text = match.groups()
    if v6 is not None and not re.fullmatch(r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%\w+)?", v6):
        raise ValueError(f'"{shown}": only an IPv6 address may be in brackets')
    port = int(port_text) if port_text else DEFAULT_PORT
    if not 1 <= port <= 65535:
        raise ValueError(f'"{shown}": a port must be between 1 and 65535')
    return (v6 or host, port)


def addresses(doc: str) -> Setting[tuple[Address, ...]]:
    """Make the setting for the bootstrap servers; it has no default."""

    def parse(value: object) -> tuple[Address, ...]:
        entries = [parse_text(item).strip() for item in items_of(value)]
        if not entries:
            raise ValueError("empty")
        if "" in entries:
            raise ValueError("an empty entry between two commas")
        return tuple(dict.fromkeys(parse_address(entry) for entry in entries))

    valid = '"host:port,host:port" or a list of "host:port"; IPv6 in brackets'
    return Setting((), parse, "list", valid, doc, annotation=TEXTS, is_required=True)
