"""Runs the tasks of an engine on a Dask cluster.

Tasks are submitted in batches and gathered in batches: one at a time, the client's messages would cost more than the
scheduler's work.
"""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import contextlib
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any

from distributed import Client, Future, KilledWorker, as_completed

from .engine import Engine, Retry, Started
from .objects import Failure, FailureKind, Result
from .plan import RangeTask
from .secrets import StorageOptions
from .worker import TOPIC, run_task

__all__ = ["ClusterLostError", "run"]

# While nothing completes: a task of no work takes 1 ms, and a thread that wakes 100 times a second costs 0.2 % of a core.
IDLE_S_MIN = 0.001
IDLE_S_MAX = 0.01
# Replies are gathered once there is a part of all outstanding ones, or after this time: each gathering is a request to
# the scheduler, which asks the workers, and takes 5 ms for one reply or for thirty.
BATCHES = 4
GATHER_S = 0.02
# A look for workers is a request to the scheduler, made only while nothing completes.
LOOK_EVERY_S = 5.0
# What Dask raises if the connection is lost: its CommClosedError and TimeoutError are OSErrors.
LOST = (asyncio.CancelledError, concurrent.futures.CancelledError, OSError)
# Chars of an object's name in the name of a task, as the dashboard shows it.
KEY_NAME_CHARS = 60


class ClusterLostError(ConnectionError):
    """The scheduler cannot be reached, has no workers for too long, or its workers cannot run the tasks."""


class Starts:
    """Which tasks the workers have started, by their events. One for each client, for all of its runs."""

    def __init__(self, client: Client):
        self._lock = threading.Lock()
        self._runs: dict[str, collections.deque[tuple[int, str]]] = {}
        client.subscribe_topic(TOPIC, self._take)

    def _take(self, event: tuple[float, Any]) -> None:
        message = event[1]
        with self._lock:
            started = self._runs.get(message.get("run"))
            if started is not None:
                started.append((message["task"], message["worker"]))

    def open(self, run: str) -> collections.deque[tuple[int, str]]:
        with self._lock:
            return self._runs.setdefault(run, collections.deque())

    def close(self, run: str) -> None:
        with self._lock:
            self._runs.pop(run, None)


_STARTS: weakref.WeakKeyDictionary[Client, Starts] = weakref.WeakKeyDictionary()


def run(
    client: Client,
    engine: Engine,
    options: StorageOptions,
    on_update: Callable[[Engine], None],
    on_retry: Callable[[Retry], None],
    worker_timeout_s: float,
) -> Generator[Result, None, None]:
    """Yield results until the engine is done; cancels the tasks when it is closed early."""
    driver = _Driver(client, engine, options, worker_timeout_s)
    try:
        while not engine.is_done:
            with _loss_reported():
                driver.submit()
            for message in engine.take_messages():
                on_retry(message)
            on_update(engine)
            yield from engine.take_results()
            if engine.outstanding:
                with _loss_reported():
                    driver.collect()
            elif (due := engine.retry_due()) is not None:
                time.sleep(max(0.0, due - time.monotonic()))
        for message in engine.take_messages():
            on_retry(message)
        on_update(engine)
    finally:
        driver.close()


@contextlib.contextmanager
def _loss_reported() -> Iterator[None]:
    """Turn what Dask raises for a lost connection into one error."""
    try:
        yield
    except ClusterLostError:
        raise
    except LOST as error:
        raise ClusterLostError(
            f"the connection to the scheduler was lost ({type(error).__name__}: {error})"
        ) from error


class _Driver:
    def __init__(
        self, client: Client, engine: Engine, options: StorageOptions, worker_timeout_s: float
    ):
        self.client = client
        self.engine = engine
        self.options = options
        self.worker_timeout_s = worker_timeout_s
        self.name = uuid.uuid4().hex[:8]
        self.futures: dict[int, Future[Any]] = {}
        self.numbers: dict[Any, int] = {}
        self.completed = as_completed(loop=client.loop)
        if client not in _STARTS:
            _STARTS[client] = Starts(client)
        self.starts = _STARTS[client].open(self.name)
        # Where each outstanding task started last.
        self.workers: dict[int, str] = {}
        self.had_workers = time.monotonic()
        self.next_look = self.had_workers + LOOK_EVERY_S

    def submit(self) -> None:
        """Submit what there is room for, once that is a good part of a batch."""
        limit = self.engine.limits.outstanding_tasks
        if self.engine.outstanding > limit - max(1, limit // BATCHES):
            return
        started = self.engine.next_tasks(time.monotonic())
        if not started:
            return
        keys = [self._key(one) for one in started]
        futures = self.client.map(
            run_task,
            [one.task for one in started],
            [self.name] * len(started),
            [one.number for one in started],
            [self.options] * len(started),
            key=keys,
            pure=False,
        )
        for one, future in zip(started, futures, strict=True):
            self.futures[one.number] = future
            self.numbers[future.key] = one.number
        self.completed.update(futures)

    def _key(self, one: Started) -> Any:
        """Return the name of a task. Dask shows the part before the first comma, and groups tasks by it."""
        kind = "hash-range" if isinstance(one.task, RangeTask) else "hash-group"
        last = (
            self.engine.name_of(one.task)
            .split("?", 1)[0]
            .rstrip("/")
            .rpartition("/")[2][-KEY_NAME_CHARS:]
        )
        last = last.encode("ascii", "replace").decode()
        offset = one.task.offset if isinstance(one.task, RangeTask) else len(one.task.items)
        return (f"{kind}-{self.name}", one.number, f"{last} {offset}")

    def collect(self) -> None:
        """Wait for replies, for a moment, and pass them on."""
        idle_s = IDLE_S_MIN
        while not (batch := self.completed.next_batch(block=False)):
            self._take_starts()
            self._check_workers()
            due = self.engine.retry_due()
            if due is not None and due <= time.monotonic():
                return
            if idle_s > IDLE_S_MAX:
                return
            time.sleep(idle_s)
            idle_s *= 1.5
        enough = self.engine.limits.outstanding_tasks // BATCHES
        waited_until = time.monotonic() + GATHER_S
        while len(batch) < min(enough, self.engine.outstanding) and time.monotonic() < waited_until:
            time.sleep(IDLE_S_MIN)
            batch += self.completed.next_batch(block=False)
        self._take_starts()
        self._finish(batch)
        self._cancel_obsolete()

    def _finish(self, batch: list[Future[Any]]) -> None:
        # A reply that was lost with its worker is computed once more.
        self.completed.update([future for future in batch if future.status in ("pending", "lost")])
        batch = [future for future in batch if future.status not in ("pending", "lost")]
        good = [future for future in batch if future.status == "finished"]
        replies = dict(
            zip(
                (future.key for future in good),
                self.client.gather(good, errors="skip"),
                strict=False,
            )
        )
        if len(replies) != len(good):
            replies = {}
        now = time.monotonic()
        for future in batch:
            number = self.numbers.pop(future.key, None)
            if number is None:
                continue
            self.futures.pop(number, None)
            self.workers.pop(number, None)
            reply = replies[future.key] if future.key in replies else self._reply_of(future)
            self.engine.finish(number, reply, now)

    def _reply_of(self, future: Future[Any]) -> Any:
        """Return the reply of a task that ended otherwise than by returning one."""
        if future.status == "finished":
            return future.result()
        if future.status == "cancelled":
            raise ClusterLostError(
                "the scheduler dropped the tasks, or the connection to it was lost"
            )
        error = future.exception()
        if isinstance(error, KilledWorker):
            died = error.allowed_failures + 1
            message = f"{died} workers died while they hashed it; their logs may say why (memory?)"
            return Failure(FailureKind.LOST, message)
        # Errors of objects are replies. This one is of the cluster: for example, a worker without this package.
        text = self.options.scrub(f"{type(error).__name__}: {error}")
        raise ClusterLostError(
            f"a worker could not run a task; have all the same version of ringsum? {text}"
        ) from error

    def _take_starts(self) -> None:
        while self.starts:
            number, worker = self.starts.popleft()
            if number in self.futures:
                lost = self.workers.get(number)
                self.workers[number] = worker
                if lost is not None:
                    self.engine.repeated(number, lost, worker)

    def _cancel_obsolete(self) -> None:
        numbers = [number for number in self.engine.take_obsolete() if number in self.futures]
        obsolete = [self.futures.pop(number) for number in numbers]
        for number, future in zip(numbers, obsolete, strict=True):
            self.numbers.pop(future.key, None)
            self.workers.pop(number, None)
        if obsolete:
            self.client.cancel(
                obsolete, asynchronous=False, reason="another range of the object failed"
            )

    def _check_workers(self) -> None:
        now = time.monotonic()
        if self.client.status != "running":
            raise ClusterLostError(f"the connection to the scheduler is {self.client.status}")
        if now < self.next_look:
            return
        self.next_look = now + LOOK_EVERY_S
        if self.client.nthreads():
            self.had_workers = now
        elif now - self.had_workers > self.worker_timeout_s:
            raise ClusterLostError(
                f"the cluster has had no workers for {self.worker_timeout_s:.0f} s"
            )

    def close(self) -> None:
        _STARTS[self.client].close(self.name)
        if self.futures and self.client.status == "running":
            # (If the scheduler is gone, so are its tasks.)
            with contextlib.suppress(*LOST):
                self.client.cancel(
                    list(self.futures.values()), asynchronous=False, reason="the run ended"
                )
        self.futures.clear()
