"""What is hashed, and what came out of it: plain values that travel between client and workers."""

from __future__ import annotations

import dataclasses
import enum
import os
from typing import Any

__all__ = [
    "Failure",
    "FailureKind",
    "Object",
    "ObjectChangedError",
    "ObjectError",
    "Result",
    "Unlisted",
    "Version",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Version:
    """What identifies the contents of an object.

    Attributes
    ----------
    kind : str
        ``etag``, ``generation``, ``ctime`` or ``mtime``.
    value : str
        The ETag with its quotes, the generation, or nanoseconds since 1970.
    """

    kind: str
    value: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}"


@dataclasses.dataclass(frozen=True, slots=True)
class Object:
    """One version of a file or of an object in a store.

    Attributes
    ----------
    name : str
        A path or a URL, as given; bytes that are not UTF-8 are surrogates, as in `os.fsdecode`.
    size : int
        Bytes.
    mtime_ns : int or None
        Modification time in nanoseconds since 1970, if the store reports one.
    version : Version or None
        ``None`` if the store reports nothing but the size.
    """

    # (A URL may carry a signature, and Dask logs arguments of tasks by their repr.)
    name: str = dataclasses.field(repr=False)
    size: int
    mtime_ns: int | None
    version: Version | None

    def is_same_version(self, other: Object) -> bool:
        """Tell whether both are one version; False if the store reports none."""
        if self.version is None or other.version is None:
            return False
        same = self.version == other.version and self.size == other.size
        return same and self.mtime_ns == other.mtime_ns

    def change_to(self, found: Object) -> tuple[str, str]:
        """Return what differs in `found`: for people, and in a word (see ``change`` of ``ringsum --json``)."""
        if found.size != self.size:
            return (
                f"its size was {self.size} and is {found.size}",
                "grew" if found.size > self.size else "shrank",
            )
        if found.mtime_ns != self.mtime_ns:
            return "its modification time is another one now", "rewritten"
        is_file = self.version is not None and self.version.kind == "ctime"
        return (
            f"its version was {self.version} and is {found.version}",
            "status" if is_file else "replaced",
        )


@dataclasses.dataclass(frozen=True, slots=True)
class Unlisted:
    """A directory whose entries could not be listed."""

    name: str
    error: Exception


class FailureKind(enum.Enum):
    """Why an object has no digest."""

    CHANGED = "changed"
    MISSING = "missing"
    REFUSED = "refused"
    """It cannot be read, and another attempt would not help."""
    UNREADABLE = "unreadable"
    """It could not be read; another attempt may succeed."""
    LOST = "lost"
    """The workers died while they hashed it."""


@dataclasses.dataclass(frozen=True, slots=True)
class Failure:
    """Why an object, or a range of it, has no digest. Without credentials: see `secrets`."""

    kind: FailureKind
    message: str
    offset: int | None = None
    length: int | None = None
    errno: int | None = None
    # Of a changed object, in a word.
    change: str | None = None

    @property
    def may_pass(self) -> bool:
        return self.kind in (FailureKind.UNREADABLE, FailureKind.LOST)

    def at(self, offset: int, length: int) -> Failure:
        return dataclasses.replace(self, offset=offset, length=length)

    def __str__(self) -> str:
        message = self.message
        if self.kind is FailureKind.CHANGED:
            message = f"changed while it was read: {message}"
        if self.offset is None or not self.length:
            return message
        return f"bytes {self.offset} to {self.offset + self.length - 1}: {message}"


class ObjectError(OSError):
    """An object could not be hashed.

    Attributes
    ----------
    url : str
        Its name.
    offset, length : int or None
        The range in bytes that failed; ``None`` if the object could not be opened.
    """

    def __init__(self, url: str, failure: Failure):
        super().__init__(failure.errno, str(failure), url)
        self.url = url
        self.failure = failure
        self.offset = failure.offset
        self.length = failure.length

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.url, self.failure)

    def __str__(self) -> str:
        return f"{printable(self.url)}: {self.failure}"


class ObjectChangedError(ObjectError):
    """An object was replaced or changed before its last range was read."""


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """The outcome for one object.

    Attributes
    ----------
    url : str
        Its name as given, without passwords or signatures.
    status : str
        ``ok``, ``error``, ``changed`` or ``missing``; ``unchanged`` if `known` had its version.
    digest : ringsum.Digest or None
    size, mtime_ns : int or None
        Bytes; nanoseconds since 1970. ``None`` if it could not be opened.
    version : str or None
        For example ``etag:"0123"``: what all of its ranges had in common.
    retries : int
        Number of tasks that were repeated for it, after errors and after lost workers.
    failure : Failure or None
    index : int
        Its place among the names given.
    """

    url: str
    status: str
    digest: Any | None
    size: int | None
    mtime_ns: int | None
    version: str | None
    retries: int
    failure: Failure | None
    index: int

    @property
    def error(self) -> ObjectError | None:
        """The exception that `raise_for_error` raises, or ``None``."""
        if self.failure is None:
            return None
        changed = self.failure.kind is FailureKind.CHANGED
        return (ObjectChangedError if changed else ObjectError)(self.url, self.failure)

    def raise_for_error(self) -> Result:
        """Return self, or raise why it has no digest.

        Raises
        ------
        ObjectChangedError
            If it was replaced before its last range was read.
        ObjectError
            If it could not be read.
        """
        error = self.error
        if error is not None:
            raise error
        return self


def printable(name: str) -> str:
    """Return a name that any text stream can encode."""
    return os.fsencode(name).decode("utf-8", "replace")
