"""The decode threads of a consumer."""

from __future__ import annotations

import threading

from kfast.consumer.application_wakeup import ApplicationWakeup
from kfast.consumer.fetch.buffer import FetchBuffer
from kfast.threads.decode_pool import DecodePool


def test_the_threads_end_with_the_fetch_buffer() -> None:
    """L-07: one that went on would take the interpreter from the thread that closes connections."""
    failures: list[BaseException] = []
    buffer = FetchBuffer(1 << 20, ApplicationWakeup())
    pool = DecodePool("decode-of-the-test", buffer.decoding, 2, on_failure=failures.append)
    pool.start()
    mine = [each for each in threading.enumerate() if each.name.startswith("decode-of-the-test")]
    assert len(mine) == 2
    try:
        buffer.close()
        for thread in mine:
            thread.join(5)
        assert not any(thread.is_alive() for thread in mine)
    finally:
        pool.close(5)
    assert failures == []
