"""What runs on the workers: one task hashes a range of a large object, or a group of small ones.

Errors are values: an exception that left a task would be logged by Dask with its arguments.
"""

from __future__ import annotations

import dataclasses
import errno
import os
from collections.abc import Iterator
from itertools import groupby
from typing import Any

import ringsum

from .objects import Failure, FailureKind, Object
from .plan import GroupTask, Item, RangeTask, Task
from .secrets import StorageOptions
from .stores import ChangedError, RefusedError, Store, store_of

__all__ = ["Outcome", "TOPIC", "describe", "run_task"]

# Dask's name for the events that report the start of each task.
TOPIC = "ringsum-cluster"


@dataclasses.dataclass(frozen=True, slots=True)
class Outcome:
    """What became known of one object of a group.

    With `object` alone, it is too large for the group, and was only looked up.
    """

    object: Object | None = None
    digest: Any | None = None
    failure: Failure | None = None
    is_unchanged: bool = False


Reply = ringsum.Part | Failure | list[Outcome]


def run_task(task: Task, run: str, number: int, options: StorageOptions) -> Reply:
    """Run a task of the run named `run`, its `number`-th."""
    threads = _report_start(run, number)
    if isinstance(task, RangeTask):
        try:
            store = store_of(task.object.name, options, threads)
            return store.hash_range(task.object, task.offset, task.length)
        except Exception as error:  # noqa: BLE001: see the module
            return describe(error, options).at(task.offset, task.length)
    return list(_hash_group(task, options, threads))


def _report_start(run: str, number: int) -> int:
    """Tell the client that a task starts, so that it can report repetitions. Returns the worker's threads."""
    try:
        from distributed import get_worker

        worker = get_worker()
    except (ImportError, ValueError):
        # Called directly.
        return 1
    worker.log_event(TOPIC, {"run": run, "task": number, "worker": worker.address})
    return worker.state.nthreads


def _hash_group(group: GroupTask, options: StorageOptions, threads: int) -> Iterator[Outcome]:
    # Names of one store stand together, unless a list mixes them: then a store is used for each run of names.
    for _, items in groupby(
        group.items, key=lambda item: item.name.partition("://")[0] if "://" in item.name else ""
    ):
        members = list(items)
        try:
            store = store_of(members[0].name, options, threads)
        except Exception as error:  # noqa: BLE001: see the module
            failure = describe(error, options)
            yield from (Outcome(failure=failure) for _ in members)
            continue
        yield from _hash_members(store, members, group, options)


def _hash_members(
    store: Store, members: list[Item], group: GroupTask, options: StorageOptions
) -> Iterator[Outcome]:
    found = store.stat_many(item.name for item in members if item.object is None)
    outcomes: list[Outcome | None] = []
    chosen: list[Object] = []
    left_bytes = group.group_bytes
    for item in members:
        target = next(found) if item.object is None else item.object
        if isinstance(target, Exception):
            outcomes.append(Outcome(failure=describe(target, options)))
        elif (
            item.known is not None
            and target.version is not None
            and str(target.version) == item.known
        ):
            outcomes.append(Outcome(target, is_unchanged=True))
        elif target.size > min(group.small_bytes, left_bytes) and target.size > 0:
            outcomes.append(Outcome(target))
        else:
            left_bytes -= target.size
            chosen.append(target)
            outcomes.append(None)
    hashed = zip(chosen, store.hash_many(chosen), strict=True)
    for outcome in outcomes:
        if outcome is not None:
            yield outcome
            continue
        target, part = next(hashed)
        if isinstance(part, Exception):
            yield Outcome(target, failure=describe(part, options).at(0, target.size))
        else:
            yield Outcome(target, digest=ringsum.merge([part]))


def describe(error: BaseException, options: StorageOptions) -> Failure:
    """Return why something failed, for people, without credentials."""
    message = _message(error)
    number = error.errno if isinstance(error, OSError) else None
    kind = _kind(error)
    change = getattr(error, "how", "replaced") if kind is FailureKind.CHANGED else None
    return Failure(kind, options.scrub(message), errno=number, change=change)


def _kind(error: BaseException) -> FailureKind:
    if isinstance(error, (ChangedError, ringsum.ChangedError)):
        return FailureKind.CHANGED
    if isinstance(error, FileNotFoundError):
        return FailureKind.MISSING
    refused = (
        RefusedError,
        PermissionError,
        IsADirectoryError,
        NotADirectoryError,
        ValueError,
        TypeError,
        NotImplementedError,
    )
    if isinstance(error, refused) or type(error).__name__ in (
        "NoCredentialsError",
        "PartialCredentialsError",
    ):
        return FailureKind.REFUSED
    if isinstance(error, OSError) and error.errno in (errno.ELOOP, errno.ENAMETOOLONG, errno.ENXIO):
        return FailureKind.REFUSED
    return FailureKind.UNREADABLE


def _message(error: BaseException) -> str:
    # As the command says it.
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):
        return f"{error.strerror} (os error {error.errno})"
    text = str(error).strip() or type(error).__name__
    if isinstance(error, (ChangedError, RefusedError)):
        return text
    if isinstance(error, (ringsum.ChangedError, ringsum.ReadError)):
        return error.strerror or text
    if isinstance(error, OSError) and error.errno is None:
        return text
    return f"{type(error).__name__}: {text}"
