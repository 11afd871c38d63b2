"""One file per API; ``REQUESTS`` finds a definition by its number.

Owns the choice of the response reader: Fetch responses are read by the compiled parser, which does
not copy the records; all others become dataclasses. An API's file is imported when its definition
is first used. The sender of a request has imported it: its response imports nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Final, TypeAlias

from kfast._native.fetch_response import parse_fetch_response
from kfast.errors import UnsupportedVersionError
from kfast.protocol.api_keys import ApiKey

if TYPE_CHECKING:
    from kfast._native.buffers import OwnedBuffer
    from kfast.protocol.message import RequestMessage


class _Requests(Mapping[int, "type[RequestMessage]"]):
    """Request classes by API key; a file and its class have the name of the key."""

    def __init__(self) -> None:
        self._known: dict[int, type[RequestMessage]] = {}

    def __getitem__(self, api_key: int) -> type[RequestMessage]:
        request = self._known.get(api_key)
        if request is None:
            try:
                name = ApiKey(api_key).name.lower()
            except ValueError:
                raise KeyError(api_key) from None
            module = import_module(f"{__name__}.{name}")
            request = getattr(module, f"{name.title().replace('_', '')}Request")
            self._known[api_key] = request
        return request

    def __iter__(self) -> Iterator[int]:
        return iter(ApiKey)

    def __len__(self) -> int:
        return len(ApiKey)


REQUESTS: Final[Mapping[int, type[RequestMessage]]] = _Requests()
"""Request classes by API key; the response class is ``RESPONSE`` of each."""


ResponseReader: TypeAlias = "Callable[[OwnedBuffer, int, int], object]"
"""Given a frame without its size prefix, the start of the body and its version, returns the
response: for Fetch the compiled ``FetchResponseView``, which refers to the frame, else a dataclass.
Raises ProtocolError for bytes that are not a well-formed response, and UnsupportedVersionError."""


def response_reader(api_key: int) -> ResponseReader:
    """Return the reader of an API's responses; raises UnsupportedVersionError if unknown."""
    if api_key == ApiKey.FETCH:
        return parse_fetch_response
    request = REQUESTS.get(api_key)
    if request is None:
        raise UnsupportedVersionError(f"API {api_key} is not supported")
    decode = request.RESPONSE.decode
    return lambda frame, offset, version: decode(frame, version, offset)
