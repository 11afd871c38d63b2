"""SampledStat: a number measured again and again, summed up over the last few time windows.

Owns count, sum and maximum per window. It keeps no time and has no lock: one thread records, and
any thread may read, at worst a value that is one recording old.

Compiled, because every answer of a broker and every poll is recorded, between a record's arrival
and its reader.
"""

cimport cython
from libc.math cimport INFINITY, NAN

from collections import deque


@cython.final
cdef class _Window:
    cdef long long start_ms
    cdef long long count
    cdef double total
    cdef double maximum


@cython.final
cdef class SampledStat:
    """Values of the last windows, and their sum since the beginning.

    Parameters
    ----------
    windows : int
        How many windows count; ``metrics_num_samples``.
    window_ms : int
        How long one is; ``metrics_sample_window_ms``.

    Attributes
    ----------
    count, total
        Recordings since the beginning, and the sum of their values.
    last_ms : int or None
        Time of the last recording.
    """
    cdef long long window_ms
    cdef long long span_ms
    cdef object windows
    cdef _Window window
    cdef readonly long long count
    cdef readonly double total
    cdef readonly object last_ms

    def __init__(self, long long windows, long long window_ms):
        self.window_ms = max(<long long> 1, window_ms)
        self.span_ms = windows * self.window_ms
        self.windows = deque(maxlen=windows)

    def record(self, double value, now_ms):
        """Add a value."""
        cdef long long at_ms = now_ms
        cdef _Window window = self.window
        if window is None or at_ms - window.start_ms >= self.window_ms:
            window = _Window.__new__(_Window)
            window.start_ms = at_ms
            window.maximum = -INFINITY
            self.window = window
            self.windows.append(window)
        window.count += 1
        window.total += value
        window.maximum = max(window.maximum, value)
        self.count += 1
        self.total += value
        self.last_ms = now_ms

    cdef list recent(self, long long now_ms):
        cdef long long oldest_ms = now_ms - self.span_ms
        cdef _Window window
        cdef list found = []
        for window in list(self.windows):
            if window.start_ms > oldest_ms:
                found.append(window)
        return found

    def average(self, long long now_ms):
        """Return the mean value, NaN for none."""
        cdef _Window window
        cdef long long count = 0
        cdef double total = 0
        for window in self.recent(now_ms):
            count += window.count
            total += window.total
        return total / count if count else NAN

    def maximum(self, long long now_ms):
        """Return the largest value, NaN for none."""
        cdef _Window window
        cdef double largest = NAN
        for window in self.recent(now_ms):
            largest = window.maximum if largest != largest else max(largest, window.maximum)
        return largest

    def rate(self, long long now_ms):
        """Return the sum of the values per second."""
        cdef _Window window
        cdef double total = 0
        for window in self.recent(now_ms):
            total += window.total
        return self.per_second(total, now_ms)

    def frequency(self, long long now_ms):
        """Return the number of recordings per second."""
        cdef _Window window
        cdef double count = 0
        for window in self.recent(now_ms):
            count += window.count
        return self.per_second(count, now_ms)

    cdef double per_second(self, double amount, long long now_ms):
        cdef list recent = self.recent(now_ms)
        cdef long long span_ms
        if not recent:
            return 0.0
        # As Kafka does, at least all windows but one: a first burst is not taken for the rate.
        span_ms = max(
            now_ms - (<_Window> recent[0]).start_ms, self.span_ms - self.window_ms, <long long> 1
        )
        return amount * 1000 / span_ms

    def __repr__(self):
        return f"<SampledStat count={self.count} total={self.total}>"
