"""Types of the compiled module; behaviour and rules are documented in ``receive.pyx``."""

from __future__ import annotations

from kfast._native.frame import FrameReceiver

def receive_frames(
    epoll_fd: int, receivers: dict[int, FrameReceiver], max_own_bytes: int, timeout_ms: int
) -> tuple[int, bool]: ...
