"""The state of a run: which tasks come next, what their replies mean, and which results are complete.

Knows neither Dask nor a clock, so that the tests and the simulation of large clusters run the same code as a cluster:
a driver asks for tasks (`next_tasks`), runs them anywhere in any order, and passes back each reply (`finish`).
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
from collections.abc import Callable, Iterator
from typing import Any

from .objects import Failure, FailureKind, Object, Result
from .plan import ANY_VERSION, GroupTask, Item, Limits, RangeTask, Task, ranges_of
from .secrets import public_name
from .worker import Outcome

__all__ = ["Engine", "Retry", "Started"]

# The first groups are small, so that a few thousand objects reach all workers: this many rounds of groups, one for each
# thread, of 1/16 and 1/4 of the full size.
GROUP_SHARES = (16, 4)
# Before an object of so many parts, a group that is not full yet is started: it would wait for all of them.
MANY_PARTS = 16
# Bounds the number of the first, small groups on a large cluster.
SMALL_GROUPS_MAX = 256


@dataclasses.dataclass(frozen=True, slots=True)
class Retry:
    """A task that is repeated, for messages."""

    name: str
    number: int
    failure: Failure
    # Of the task: one name or many.
    objects: int = 1


@dataclasses.dataclass(slots=True)
class Started:
    """A task that was given to the driver."""

    number: int
    task: Task
    attempt: int = 0

    @property
    def nbytes(self) -> int:
        if isinstance(self.task, RangeTask):
            return self.task.length
        return sum(item.object.size for item in self.task.items if item.object is not None)


@dataclasses.dataclass(slots=True)
class _Split:
    """A large object, of which some parts are hashed."""

    object: Object
    ranges: Iterator[tuple[int, int]]
    left: int
    parts: list[Any] = dataclasses.field(default_factory=list)
    retries: int = 0
    has_failed: bool = False


class Engine:
    """One run.

    Parameters
    ----------
    items : iterator of Item
        What to hash, with ascending `index` from 0; taken as far as needed.
    limits : Limits
    threads : int
        Of all workers: decides only how the first groups are cut.
    merge : callable
        `ringsum.merge`.
    is_ordered : bool
        Whether results come in the order of the items.
    """

    def __init__(
        self,
        items: Iterator[Item],
        limits: Limits,
        threads: int,
        merge: Callable[[list[Any]], Any],
        is_ordered: bool,
    ):
        self.limits = limits
        self._items = items
        self._threads = max(1, threads)
        self._merge = merge
        self._is_ordered = is_ordered
        self._is_exhausted = False
        self._number = 0
        self._groups = 0
        # Large objects of which parts are still to be started, oldest first.
        self._splitting: collections.deque[tuple[int, _Split]] = collections.deque()
        self._split: dict[int, _Split] = {}
        # Names in results, by index, if they are not those that workers open.
        self._shown: dict[int, str] = {}
        self._group: list[Item] = []
        self._group_bytes = 0
        self._running: dict[int, Started] = {}
        # (When, number, ...) of tasks to repeat.
        self._retries: list[tuple[float, int, Task, int]] = []
        self._obsolete: list[int] = []
        self._messages: list[Retry] = []
        self._retried: collections.Counter[int] = collections.Counter()
        # Items taken, and not reported yet.
        self._unreported = 0
        self._next_result = 0
        self._complete: dict[int, Result] = {}
        self._ready: collections.deque[Result] = collections.deque()
        self.bytes_done = 0
        self.objects_done = 0
        self.bytes_known = 0
        self.tasks_started = 0
        self.retries = 0

    @property
    def is_done(self) -> bool:
        return self._is_exhausted and self._unreported == 0 and not self._ready

    @property
    def outstanding(self) -> int:
        return len(self._running)

    def next_tasks(self, now: float) -> list[Started]:
        """Return the tasks to start now; at most `limits.outstanding_tasks` are outstanding at any time."""
        started = []
        while len(self._running) < self.limits.outstanding_tasks:
            chosen = self._next_retry(now) or self._next_task()
            if chosen is None:
                break
            task, attempt = chosen
            self._number += 1
            one = Started(self._number, task, attempt)
            self._running[one.number] = one
            started.append(one)
        self.tasks_started += len(started)
        return started

    def retry_due(self) -> float | None:
        """Return when the next task is to be repeated."""
        return self._retries[0][0] if self._retries else None

    def _next_retry(self, now: float) -> tuple[Task, int] | None:
        while self._retries and self._retries[0][0] <= now:
            _, _, task, attempt = heapq.heappop(self._retries)
            if not isinstance(task, RangeTask) or task.index in self._split:
                return task, attempt
        return None

    def _next_task(self) -> tuple[Task, int] | None:
        while True:
            if self._group and (self._is_group_full() or self._is_split_long()):
                return self._take_group(), 0
            part = self._next_part()
            if part is not None:
                return part, 0
            item = self._next_item()
            if item is None:
                return (self._take_group(), 0) if self._group else None
            self._add(item)

    def _next_part(self) -> RangeTask | None:
        while self._splitting:
            index, split = self._splitting[0]
            found = None if split.has_failed else next(split.ranges, None)
            if found is not None:
                return RangeTask(index, split.object, *found)
            self._splitting.popleft()
        return None

    def _next_item(self) -> Item | None:
        """Return the next item, unless there are none, or too many wait for an older one."""
        if self._is_exhausted or self._unreported >= self.limits.ahead_objects:
            return None
        item = next(self._items, None)
        if item is None:
            self._is_exhausted = True
            return None
        self._unreported += 1
        return item

    def _add(self, item: Item) -> None:
        target = item.object
        if item.shown is not None:
            self._shown[item.index] = item.shown
        if item.failure is not None:
            self._fail(item.index, item.name, target, item.failure)
            return
        if item.known == ANY_VERSION:
            self._report(item.index, item.name, target, status="unchanged")
            return
        if target is not None:
            if (
                item.known is not None
                and target.version is not None
                and str(target.version) == item.known
            ):
                self._report(item.index, item.name, target, status="unchanged")
                return
            if not self.limits.is_small(target.size):
                self._start_split(item.index, target)
                return
            self.bytes_known += target.size
            self._group_bytes += target.size
        self._group.append(item)

    def _is_group_full(self) -> bool:
        round_of, share = self._groups // min(self._threads, SMALL_GROUPS_MAX), 1
        if round_of < len(GROUP_SHARES):
            share = GROUP_SHARES[round_of]
        objects = max(1, self.limits.group_objects // share)
        return len(self._group) >= objects or self._group_bytes >= self.limits.group_bytes

    def _is_split_long(self) -> bool:
        return bool(self._splitting) and self._splitting[0][1].left >= MANY_PARTS

    def _take_group(self) -> GroupTask:
        group = self._group_of(self._group)
        self._groups += 1
        self._group, self._group_bytes = [], 0
        return group

    def _group_of(self, items: list[Item]) -> GroupTask:
        small = min(self.limits.small_bytes, self.limits.part_bytes)
        # (Items of unknown size may find that the group is full.)
        return GroupTask(tuple(items), small, self.limits.group_bytes + small)

    def _start_split(self, index: int, target: Object) -> None:
        part_bytes = self.limits.part_bytes
        count = max(1, -(-target.size // part_bytes))
        self.bytes_known += target.size
        if count > self.limits.parts_per_object:
            least = -(-target.size // self.limits.parts_per_object)
            least = 1 << max(10, (least - 1).bit_length())
            message = (
                f"{count} parts of {part_bytes} bytes are more than the {self.limits.parts_per_object} that the client"
                f" holds: use a part size of {least} or more"
            )
            self._fail(index, target.name, target, Failure(FailureKind.REFUSED, message))
            return
        split = _Split(target, ranges_of(target.size, part_bytes), count)
        self._split[index] = split
        self._splitting.append((index, split))

    def finish(self, number: int, reply: Any, now: float) -> None:
        """Take the reply of a task: a part, the outcomes of a group, or a failure. Of obsolete tasks, nothing."""
        started = self._running.pop(number, None)
        if started is None:
            return
        task = started.task
        if isinstance(task, RangeTask):
            self._finish_range(started, task, reply, now)
        elif isinstance(reply, Failure):
            self._fail_group(started, task, reply, now)
        else:
            for item, outcome in zip(task.items, reply, strict=True):
                self._finish_item(started, item, outcome, now)

    def name_of(self, task: Task) -> str:
        """Return the name of the (first) object, for messages and keys; without credentials."""
        if isinstance(task, RangeTask):
            return public_name(self._shown.get(task.index, task.object.name))
        return public_name(task.items[0].shown or task.items[0].name)

    def repeated(self, number: int, lost: str, worker: str) -> None:
        """Take notice that a task started once more on `worker`, because `lost`, which had it, is gone."""
        started = self._running.get(number)
        if started is None:
            return
        failure = Failure(FailureKind.LOST, f"its worker {lost} was lost; repeated on {worker}")
        if isinstance(started.task, RangeTask):
            failure = failure.at(started.task.offset, started.task.length)
        self._note_retry(started, failure, started.attempt + 1)

    def _note_retry(self, started: Started, failure: Failure, attempt: int) -> None:
        task = started.task
        indexes = (
            [task.index] if isinstance(task, RangeTask) else [item.index for item in task.items]
        )
        for index in indexes:
            self._retried[index] += 1
        self.retries += 1
        self._messages.append(Retry(self.name_of(task), attempt, failure, len(indexes)))

    def _retry(self, started: Started, task: Task, failure: Failure, now: float) -> None:
        self._number += 1
        due = now + self.limits.retry_delay_s * 2**started.attempt
        heapq.heappush(self._retries, (due, self._number, task, started.attempt + 1))
        self._note_retry(dataclasses.replace(started, task=task), failure, started.attempt + 1)

    def _finish_range(self, started: Started, task: RangeTask, reply: Any, now: float) -> None:
        split = self._split.get(task.index)
        if split is None or split.has_failed:
            return
        if isinstance(reply, Failure):
            if reply.may_pass and started.attempt < self.limits.retries:
                self._retry(started, task, reply, now)
                return
            split.has_failed = True
            del self._split[task.index]
            for number, other in list(self._running.items()):
                if isinstance(other.task, RangeTask) and other.task.index == task.index:
                    del self._running[number]
                    self._obsolete.append(number)
            failure = reply if reply.offset is not None else reply.at(task.offset, task.length)
            self._fail(task.index, task.object.name, task.object, failure)
            return
        split.parts.append(reply)
        split.left -= 1
        self.bytes_done += task.length
        if split.left == 0:
            del self._split[task.index]
            self._merge_split(task.index, split)

    def _merge_split(self, index: int, split: _Split) -> None:
        try:
            digest = self._merge(split.parts)
        except ValueError as error:
            # Parts fit by construction: this would be a bug, or a worker with another version of the package.
            self._fail(
                index,
                split.object.name,
                split.object,
                Failure(FailureKind.REFUSED, f"its parts do not fit: {error}"),
            )
            return
        self._report(index, split.object.name, split.object, digest=digest)

    def _finish_item(self, started: Started, item: Item, outcome: Outcome, now: float) -> None:
        target, failure = outcome.object, outcome.failure
        if (
            target is not None
            and item.object is None
            and (outcome.digest is not None or failure is not None)
        ):
            self.bytes_known += target.size
        if failure is not None:
            if failure.may_pass and started.attempt < self.limits.retries:
                alone = self._group_of([item])
                self._retry(started, alone, failure, now)
            else:
                self._fail(item.index, item.name, target or item.object, failure)
        elif target is None or outcome.is_unchanged:
            self._report(item.index, item.name, target, status="unchanged")
        elif outcome.digest is not None:
            self.bytes_done += target.size
            self._report(item.index, item.name, target, digest=outcome.digest)
        elif self.limits.is_small(target.size):
            # The group was full. (Of known size now, it makes a group with others.)
            self._group.append(Item(item.index, item.name, target))
            self._group_bytes += target.size
            self.bytes_known += target.size
        else:
            self._start_split(item.index, target)

    def _fail_group(self, started: Started, group: GroupTask, failure: Failure, now: float) -> None:
        """Repeat a group whose workers died, in halves: one of its objects may be the cause."""
        if len(group.items) > 1 and failure.may_pass and self.limits.retries:
            for half in group.halves():
                # Bounded by the halving: attempts count for single objects.
                self._retry(dataclasses.replace(started, attempt=0), half, failure, now)
            return
        for item in group.items:
            self._finish_item(started, item, Outcome(item.object, failure=failure), now)

    def _fail(self, index: int, name: str, target: Object | None, failure: Failure) -> None:
        status = {FailureKind.CHANGED: "changed", FailureKind.MISSING: "missing"}.get(
            failure.kind, "error"
        )
        self._report(index, name, target, status=status, failure=failure)

    def _report(
        self,
        index: int,
        name: str,
        target: Object | None,
        status: str = "ok",
        digest: Any = None,
        failure: Failure | None = None,
    ) -> None:
        size, mtime_ns, version = (
            (target.size, target.mtime_ns, target.version) if target else (None, None, None)
        )
        result = Result(
            public_name(self._shown.pop(index, name)),
            status,
            digest,
            size,
            mtime_ns,
            str(version) if version else None,
            self._retried.pop(index, 0),
            failure,
            index,
        )
        self.objects_done += 1
        if not self._is_ordered:
            self._ready.append(result)
            return
        self._complete[index] = result
        while self._next_result in self._complete:
            self._ready.append(self._complete.pop(self._next_result))
            self._next_result += 1

    def take_results(self) -> Iterator[Result]:
        while self._ready:
            self._unreported -= 1
            yield self._ready.popleft()

    def take_messages(self) -> list[Retry]:
        messages, self._messages = self._messages, []
        return messages

    def take_obsolete(self) -> list[int]:
        """Return the numbers of tasks whose replies are no longer needed."""
        obsolete, self._obsolete = self._obsolete, []
        return obsolete
