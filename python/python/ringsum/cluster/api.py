"""`hash_urls`: digests of files and objects of any size, computed by a Dask cluster."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any

from distributed import Client, LocalCluster

import ringsum

from . import driver
from .engine import Engine, Retry
from .objects import Failure, FailureKind, Object, Result, Unlisted
from .plan import Item, Limits, parse_size
from .secrets import StorageOptions
from .stores import store_of
from .worker import describe

__all__ = ["Progress", "hash_urls", "local_client"]

# Tasks that the scheduler holds, for each thread of the workers: one that runs, and three that wait, so that a thread
# is busy while replies and new tasks travel. At least 256, since tasks of no work are submitted in batches.
OUTSTANDING_PER_THREAD = 4

Name = str | bytes | os.PathLike[str] | os.PathLike[bytes]


@dataclasses.dataclass(frozen=True, slots=True)
class Progress:
    """How far a run is.

    Attributes
    ----------
    bytes_done, bytes_known : int
        Hashed, and in the objects found so far.
    objects_done : int
        Objects with a result.
    tasks_started, tasks_outstanding, retries : int
        Of Dask.
    elapsed_s : float
    """

    bytes_done: int
    bytes_known: int
    objects_done: int
    tasks_started: int
    tasks_outstanding: int
    retries: int
    elapsed_s: float

    @property
    def bytes_per_s(self) -> float:
        """Average since the start."""
        return self.bytes_done / self.elapsed_s if self.elapsed_s > 0 else 0.0


def hash_urls(
    client: Client | None,
    urls: Name | Iterable[Name],
    *,
    part_size: int | str = "1GiB",
    recursive: bool = False,
    ordered: bool = True,
    retries: int = 3,
    max_outstanding: int | None = None,
    storage_options: Mapping[str, Mapping[str, Any]] | None = None,
    known: Callable[[str], str | None] | None = None,
    progress: Callable[[Progress], None] | None = None,
    on_retry: Callable[[Retry], None] | None = None,
    worker_timeout_s: float = 300.0,
    limits: Limits | None = None,
) -> Generator[Result, None, None]:
    """Hash files and objects on a cluster, each with the digest that ``b3sum`` prints.

    Parameters
    ----------
    client : distributed.Client or None
        A synchronous client. With ``None``, a local cluster on all cores is started, and stopped at the end.
    urls : str, bytes or path, or an iterable of those
        Paths that the workers can open, or URLs of fsspec: ``s3://``, ``https://``, ``gs://``, ... The iterable is
        consumed as needed; it may be longer than memory.
    part_size : int or str
        Bytes of a range that one task hashes, a multiple of 1 KiB; ``64MiB`` or ``1GiB`` (the default).
    recursive : bool
        Hash everything below directories and prefixes, in byte order of the names. They are listed by the client.
    ordered : bool
        Yield results in the order of the names, or else as they complete.
    retries : int
        How often a task is repeated after an error that may pass.
    max_outstanding : int, optional
        Most tasks that the scheduler holds; by default 4 for each thread of the workers, and at least 256.
    storage_options : dict, optional
        Options for fsspec by protocol: ``{"s3": {"endpoint_url": ...}}``. They are sent to the workers, and appear in
        no log or result. Without them, the workers use their own configuration and environment.
    known : callable, optional
        Returns for a name the `Result.version` that needs no hashing; such an object has the status ``unchanged``.
    progress : callable, optional
        Called with a `Progress` after each batch of replies, from the thread that iterates.
    on_retry : callable, optional
        Called with a `Retry` for each task that is repeated.
    worker_timeout_s : float
        How long to wait while the cluster has no workers.
    limits : Limits, optional
        Further bounds; `part_size`, `retries` and `max_outstanding` replace its fields.

    Yields
    ------
    Result
        One for each object. An object that could not be hashed has a `Result.error`, and the others go on.

    Raises
    ------
    ValueError
        If `part_size` is not a multiple of 1 KiB.
    ClusterLostError
        If the cluster is lost, or has no workers for too long.
    """
    if client is not None and client.asynchronous:
        raise TypeError("the client is asynchronous: use Client(..., asynchronous=False)")
    if isinstance(urls, (str, bytes, os.PathLike)):
        urls = [urls]
    options = StorageOptions(storage_options)
    given = limits or Limits()
    chosen = dataclasses.replace(given, part_bytes=parse_size(part_size), retries=retries)
    if max_outstanding is not None:
        chosen = dataclasses.replace(chosen, outstanding_tasks=max_outstanding)
    # (Checked before the first result is requested.)
    is_default = max_outstanding is None and limits is None
    items = items_of(urls, recursive, options, known)
    return _run(
        client, items, chosen, is_default, ordered, options, progress, on_retry, worker_timeout_s
    )


def _run(
    client: Client | None,
    items: Iterator[Item],
    limits: Limits,
    is_default: bool,
    ordered: bool,
    options: StorageOptions,
    progress: Callable[[Progress], None] | None,
    on_retry: Callable[[Retry], None] | None,
    worker_timeout_s: float,
) -> Generator[Result, None, None]:
    with contextlib.ExitStack() as stack:
        if client is None:
            client = stack.enter_context(local_client())
        threads = sum(client.nthreads().values())
        if is_default:
            outstanding = max(limits.outstanding_tasks, OUTSTANDING_PER_THREAD * threads)
            limits = dataclasses.replace(limits, outstanding_tasks=outstanding)
        engine = Engine(items, limits, threads, ringsum.merge, ordered)
        started = time.monotonic()

        def update(engine: Engine) -> None:
            if progress is not None:
                progress(_progress_of(engine, time.monotonic() - started))

        results = driver.run(
            client, engine, options, update, on_retry or (lambda _: None), worker_timeout_s
        )
        with contextlib.closing(results):
            yield from results


def _progress_of(engine: Engine, elapsed_s: float) -> Progress:
    return Progress(
        engine.bytes_done,
        engine.bytes_known,
        engine.objects_done,
        engine.tasks_started,
        engine.outstanding,
        engine.retries,
        elapsed_s,
    )


@contextlib.contextmanager
def local_client() -> Iterator[Client]:
    """Start a cluster of worker processes on this machine, one thread for each core; its dashboard is on this machine only."""
    count = len(os.sched_getaffinity(0))
    with (
        LocalCluster(
            n_workers=count, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client


def items_of(
    urls: Iterable[Name],
    recursive: bool,
    options: StorageOptions,
    known: Callable[[str], str | None] | None,
) -> Iterator[Item]:
    """Yield what the names stand for, with ascending indexes."""
    index = 0
    for url in urls:
        name = os.fsdecode(url)
        opened = name if "://" in name else os.path.abspath(name)
        shown = name if opened != name else None
        if not recursive:
            yield Item(index, opened, known=known(name) if known else None, shown=shown)
            index += 1
            continue
        for found, found_shown, failure in _listed(opened, name, options):
            target = found if isinstance(found, Object) else None
            version = known(found_shown) if known and target else None
            item_name = target.name if target else opened
            yield Item(
                index,
                item_name,
                target,
                version,
                found_shown if found_shown != item_name else None,
                failure,
            )
            index += 1


def _listed(
    opened: str, shown: str, options: StorageOptions
) -> Iterator[tuple[Object | None, str, Failure | None]]:
    """Yield (object, its name in results, why it cannot be hashed) of everything below a directory or prefix."""

    def shown_of(found: str) -> str:
        root = opened if opened.endswith("/") else opened + "/"
        if opened == shown or not found.startswith(root):
            return shown if found == opened else found
        return (shown if shown.endswith("/") else shown + "/") + found[len(root) :]

    try:
        for found in store_of(opened, options).list(opened):
            if isinstance(found, Unlisted):
                yield None, shown_of(found.name), describe(found.error, options)
            else:
                yield found, shown_of(found.name), None
    except Exception as error:  # noqa: BLE001: one name of many; the others go on
        failure = describe(error, options)
        kind = FailureKind.REFUSED if failure.kind is FailureKind.UNREADABLE else failure.kind
        yield None, shown, dataclasses.replace(failure, kind=kind)
