"""The last values of a stream, in order of arrival and in order of size."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable


class Window:
    """The last `size` finite values. Adding one costs O(size) moves of a list; quantiles then cost nothing."""

    __slots__ = ("_arrived", "_ordered", "size")

    def __init__(self, size: int, values: Iterable[float] = ()) -> None:
        self.size = size
        self._arrived: deque[float] = deque()
        self._ordered: list[float] = []
        for v in values:
            self.push(v)

    def __len__(self) -> int:
        return len(self._arrived)

    def push(self, value: float) -> None:
        """Add a value; the oldest one leaves when the window is full."""
        if len(self._arrived) == self.size:
            gone = self._arrived.popleft()
            del self._ordered[bisect_left(self._ordered, gone)]
        self._arrived.append(value)
        insort(self._ordered, value)

    def clear(self) -> None:
        """Forget all values."""
        self._arrived.clear()
        self._ordered.clear()

    def values(self) -> list[float]:
        """The values in order of arrival."""
        return list(self._arrived)

    def newest(self) -> float:
        """The value that came last. Raises `IndexError` on an empty window."""
        return self._arrived[-1]

    def tail(self, n: int) -> list[float]:
        """The last `n` values, or all where there are fewer."""
        return [self._arrived[i] for i in range(max(0, len(self._arrived) - n), len(self._arrived))]

    def quantile(self, q: float) -> float:
        """The value at share `q` of the ordered values, the nearest one. Raises `IndexError` when empty."""
        return self._ordered[round(q * (len(self._ordered) - 1))]

    def median(self) -> float:
        """The middle value, or the mean of the two middle ones. Raises `IndexError` when empty."""
        n = len(self._ordered)
        if n % 2:
            return self._ordered[n // 2]
        return 0.5 * (self._ordered[n // 2 - 1] + self._ordered[n // 2])
