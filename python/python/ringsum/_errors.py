"""The exceptions of the package."""

from __future__ import annotations

from typing import Any


class Error(Exception):
    """Base class of the exceptions that this package adds to Python's own."""


class _FileError(Error, OSError):
    """An `OSError` with more fields, all of which survive `pickle`."""

    def __new__(cls, errno: Any = None, strerror: Any = None, filename: Any = None, *_: Any):
        # (`OSError` would take further arguments for a second file name.)
        return super().__new__(cls, errno, strerror, filename)

    def __init__(self, errno: Any = None, strerror: Any = None, filename: Any = None):
        super().__init__(errno, strerror, filename)

    def __reduce__(self):
        return type(self), (self.errno, self.strerror, self.filename), self.__dict__


class ReadError(_FileError):
    """A file could not be read completely, so it has no digest.

    Attributes
    ----------
    ranges : list of (int, int)
        Offset and length, in bytes, of each range that could not be read. Empty if the error
        concerns no particular bytes. Several only with ``list_bad_ranges=True``.
    """

    def __init__(
        self,
        errno: Any = None,
        strerror: Any = None,
        filename: Any = None,
        ranges: Any = (),
    ):
        super().__init__(errno, strerror, filename)
        self.ranges = list(ranges)


class ChangedError(_FileError):
    """A file changed while it was read, or is not what it was said to be.

    Attributes
    ----------
    how : str
        ``"shrank"``, ``"grew"``, ``"rewritten"`` (its modification time changed), ``"status"``
        (only its change time did), ``"replaced"`` or ``"removed"``.
    size_before, size_after : int or None
        Its length in bytes, if that is what changed.
    """

    def __init__(
        self,
        errno: Any = None,
        strerror: Any = None,
        filename: Any = None,
        how: str = "changed",
        size_before: int | None = None,
        size_after: int | None = None,
    ):
        super().__init__(errno, strerror, filename)
        self.how = how
        self.size_before = size_before
        self.size_after = size_after


class UnsupportedError(_FileError):
    """An explicit option of ``io`` is not supported for this file or on this system."""
