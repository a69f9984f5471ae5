"""Cutting the work into tasks: large objects into ranges, small ones into groups. Pure: reads nothing."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator

from .objects import Failure, Object

__all__ = [
    "ANY_VERSION",
    "GroupTask",
    "Item",
    "Limits",
    "RangeTask",
    "Task",
    "parse_size",
    "ranges_of",
]

# As `Item.known`: the object is not even looked up.
ANY_VERSION = "*"

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclasses.dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one run. Sizes in bytes."""

    part_bytes: int = GIB
    # 2 x 64 MiB/s, a slow connection to an object store: a group takes about as long as a task should at least.
    group_bytes: int = 128 * MIB
    # 100,000 objects make 400 tasks, and a group of objects that take 10 ms each takes 2.5 s.
    group_objects: int = 256
    # Larger objects are tasks of their own.
    small_bytes: int = 16 * MIB
    # Tasks that the scheduler holds. See `for_threads`.
    outstanding_tasks: int = 256
    # Results that wait for an earlier object, or objects read ahead of it: about 300 bytes each.
    ahead_objects: int = 65_536
    # Chaining values of one object that the client keeps: about 300 bytes each.
    parts_per_object: int = 131_072
    retries: int = 3
    # Doubles with each retry.
    retry_delay_s: float = 0.5

    def __post_init__(self) -> None:
        if self.part_bytes < KIB or self.part_bytes % KIB:
            raise ValueError(
                f"part_size is {self.part_bytes} bytes, and must be a positive multiple of 1 KiB"
            )
        for name in (
            "group_bytes",
            "group_objects",
            "outstanding_tasks",
            "ahead_objects",
            "parts_per_object",
        ):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, and must be at least 1")
        if self.retries < 0:
            raise ValueError(f"retries is {self.retries}, and must be at least 0")

    def is_small(self, size: int) -> bool:
        return size <= min(self.small_bytes, self.part_bytes)


@dataclasses.dataclass(frozen=True, slots=True)
class Item:
    """An object to hash. Without `object`, the worker that hashes it looks it up first. `name` is what it opens."""

    index: int
    # (Not in logs, as in `Object`.)
    name: str = dataclasses.field(repr=False)
    object: Object | None = None
    # A version that is known already, or ANY_VERSION: such an object is not read.
    known: str | None = None
    # The name in results, if it is another one: a relative path means nothing to a worker.
    shown: str | None = dataclasses.field(default=None, repr=False)
    # Why it cannot be hashed, if that is known already.
    failure: Failure | None = None


@dataclasses.dataclass(frozen=True, slots=True)
class RangeTask:
    """A range of one object."""

    index: int
    object: Object
    offset: int
    length: int


@dataclasses.dataclass(frozen=True, slots=True)
class GroupTask:
    """Small objects, and names whose size is not known yet."""

    items: tuple[Item, ...]
    # Objects above this size are looked up only.
    small_bytes: int
    # Nor are objects hashed once the group has hashed this much.
    group_bytes: int

    def halves(self) -> tuple[GroupTask, GroupTask]:
        middle = len(self.items) // 2
        first, second = self.items[:middle], self.items[middle:]
        return dataclasses.replace(self, items=first), dataclasses.replace(self, items=second)


Task = RangeTask | GroupTask


def ranges_of(size: int, part_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of each part; one of length 0 for an empty object."""
    if size == 0:
        yield 0, 0
    for offset in range(0, size, part_bytes):
        yield offset, min(part_bytes, size - offset)


_UNITS = {
    "": 1,
    "B": 1,
    "K": KIB,
    "KIB": KIB,
    "M": MIB,
    "MIB": MIB,
    "G": GIB,
    "GIB": GIB,
    "T": GIB * KIB,
}
_UNITS |= {"TIB": GIB * KIB, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def parse_size(size: int | str) -> int:
    """Return a number of bytes; ``64M`` and ``64MiB`` are 64 x 2^20, ``64MB`` is 64 x 10^6.

    Raises
    ------
    ValueError
        If it is not a size.
    """
    if isinstance(size, int):
        return size
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
    unit = _UNITS.get(match.group(2).upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{size!r} is not a size: write for example 64MiB or 1GiB")
    number = match.group(1)
    value = float(number) * unit if "." in number else int(number) * unit
    if value != int(value):
        raise ValueError(f"{size!r} is not a whole number of bytes")
    return int(value)
