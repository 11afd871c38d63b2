"""SampledStat: rate, average and maximum of a value over the last time windows.

Owns count, sum and maximum per window. It reads no clock and has no lock: one thread records, and
any thread may read, at worst without the last recording.

Compiled, because every response and every poll is recorded, between a record's arrival and its
return.
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
    """``metrics_num_samples`` windows of ``metrics_sample_window_ms`` each.

    ``count`` and ``total`` are the number and sum of all values since the beginning.
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

    cdef _Window recent(self, long long now_ms):
        """Return the current windows merged into one, None when there is none."""
        cdef long long oldest_ms = now_ms - self.span_ms
        cdef _Window window, found = None
        for window in list(self.windows):
            if window.start_ms <= oldest_ms:
                continue
            if found is None:
                found = _Window.__new__(_Window)
                found.start_ms = window.start_ms
                found.maximum = window.maximum
            found.count += window.count
            found.total += window.total
            found.maximum = max(found.maximum, window.maximum)
        return found

    def average(self, long long now_ms):
        """Return the mean value, NaN for none."""
        cdef _Window recent = self.recent(now_ms)
        return NAN if recent is None or recent.count == 0 else recent.total / recent.count

    def maximum(self, long long now_ms):
        """Return the largest value, NaN for none."""
        cdef _Window recent = self.recent(now_ms)
        return NAN if recent is None else recent.maximum

    def rate(self, long long now_ms):
        """Return the sum of the values per second."""
        cdef _Window recent = self.recent(now_ms)
        return 0.0 if recent is None else recent.total / self.seconds(recent, now_ms)

    def frequency(self, long long now_ms):
        """Return the number of values per second."""
        cdef _Window recent = self.recent(now_ms)
        return 0.0 if recent is None else recent.count / self.seconds(recent, now_ms)

    cdef double seconds(self, _Window recent, long long now_ms) noexcept:
        # As in Kafka, at least all windows but one, so that a first burst does not exaggerate it.
        cdef long long least_ms = max(<long long> 1, self.span_ms - self.window_ms)
        return max(now_ms - recent.start_ms, least_ms) / 1000.0

    def __repr__(self):
        return f"<SampledStat count={self.count} total={self.total}>"
