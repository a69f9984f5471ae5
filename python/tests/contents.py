"""What the files of the tests hold."""

from __future__ import annotations


def content(length: int) -> bytes:
    """Bytes whose period is prime to every block size, so that swapped blocks change a digest."""
    period = bytes(range(251))
    return (period * (length // len(period) + 1))[:length]
