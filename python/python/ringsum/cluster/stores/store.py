"""What every store offers, and the reader of stores whose requests run in fsspec's event loop."""

from __future__ import annotations

import asyncio
import collections
import concurrent.futures
import io
from collections.abc import Callable, Coroutine, Iterable, Iterator
from typing import Any

import ringsum

from ..objects import Object, Unlisted

__all__ = ["AsyncStore", "ChangedError", "RangeReader", "RefusedError", "Store"]

MIB = 1 << 20
# Requests of 4 MiB cost 2 ms of CPU each in s3fs, 1/20 of the time that a fast connection takes for their bytes.
BLOCK_BYTES_MAX = 4 * MIB
BLOCK_BYTES_MIN = MIB
# Blocks that all tasks of a process have requested ahead. Each may exist twice for a moment, in the buffers of the
# HTTP client and as one block, so that 16 MiB keep a worker below 64 MiB.
AHEAD_BYTES = 16 * MIB
# More requests in flight did not make one part faster over loopback.
DEPTH_MAX = 4
# Small objects that are fetched at the same time.
SMALL_IN_FLIGHT = 16


class ChangedError(Exception):
    """The object is no longer the version that was listed.

    Attributes
    ----------
    how : str
        As ``change`` of ``ringsum --json``.
    """

    def __init__(self, message: str, how: str = "replaced"):
        super().__init__(message)
        self.how = how


class RefusedError(Exception):
    """The object cannot be hashed, and another attempt would not help."""


class Store:
    """Looks up, lists and hashes objects. Methods raise `ChangedError`, `RefusedError` and `OSError`."""

    def stat(self, name: str) -> Object:
        """Look up the present version."""
        raise NotImplementedError

    def list(self, name: str) -> Iterator[Object | Unlisted]:
        """Yield all objects below a directory or prefix, in byte order of their names; the name itself, if it is one."""
        raise NotImplementedError

    def hash_range(self, target: Object, offset: int, length: int) -> ringsum.Part:
        """Hash a range of this version, in bounded memory."""
        raise NotImplementedError

    def stat_many(self, names: Iterable[str]) -> Iterator[Object | Exception]:
        """Yield for each name its object, or why it could not be looked up."""
        for name in names:
            yield _outcome(self.stat, name)

    def hash_many(self, targets: Iterable[Object]) -> Iterator[ringsum.Part | Exception]:
        """Yield for each small object its only part, or why it could not be hashed."""
        for target in targets:
            yield _outcome(self.hash_range, target, 0, target.size)


def _outcome(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001: every error belongs to one object, and is reported with its name
        return error


class AsyncStore(Store):
    """A store whose requests are coroutines of fsspec's event loop, which runs in a thread of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int):
        self.loop = loop
        share = AHEAD_BYTES // max(1, threads)
        self.block_bytes = max(BLOCK_BYTES_MIN, min(BLOCK_BYTES_MAX, share // 2))
        self.depth = max(1, min(DEPTH_MAX, share // self.block_bytes))

    async def stat_async(self, name: str) -> Object:
        raise NotImplementedError

    async def fetch(self, target: Object, start: int, end: int) -> bytes:
        """Return bytes `start` to `end - 1`, all of the version of `target`, or raise `ChangedError`."""
        raise NotImplementedError

    async def verify(self, target: Object) -> None:
        """Raise `ChangedError` unless the version is still there, if `fetch` cannot be sure of that."""

    def call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def stat(self, name: str) -> Object:
        found: Object = self.call(self.stat_async(name))
        return found

    def stat_many(self, names: Iterable[str]) -> Iterator[Object | Exception]:
        return self._ahead((self.stat_async(name), 0) for name in names)

    def hash_range(self, target: Object, offset: int, length: int) -> ringsum.Part:
        if length == 0:
            return self._hash_bytes(target, self.call(self._fetch_whole(target)))
        with RangeReader(self, target, offset, length) as reader:
            part = ringsum.hash_range(reader, offset, length, total=target.size)
        self.call(self.verify(target))
        return part

    def hash_many(self, targets: Iterable[Object]) -> Iterator[ringsum.Part | Exception]:
        targets = list(targets)
        # Larger ones are streamed, so that those in flight stay within the memory of one reader.
        is_short = [target.size <= self.block_bytes for target in targets]
        short = [target for target, fits in zip(targets, is_short, strict=True) if fits]
        fetched = self._ahead((self._fetch_whole(target), target.size) for target in short)
        for target, fits in zip(targets, is_short, strict=True):
            if not fits:
                yield _outcome(self.hash_range, target, 0, target.size)
                continue
            data = next(fetched)
            yield data if isinstance(data, Exception) else _outcome(self._hash_bytes, target, data)

    @staticmethod
    def _hash_bytes(target: Object, data: bytes) -> ringsum.Part:
        return ringsum.hash_range(data, 0, len(data), total=target.size)

    async def _fetch_whole(self, target: Object) -> bytes:
        if target.size == 0:
            # (A range of no bytes cannot be requested.)
            found = await self.stat_async(target.name)
            if not target.is_same_version(found):
                raise ChangedError(*target.change_to(found))
            return b""
        data = await self.fetch(target, 0, target.size)
        await self.verify(target)
        return data

    def _ahead(self, calls: Iterable[tuple[Coroutine[Any, Any, Any], int]]) -> Iterator[Any]:
        """Yield the outcomes of coroutines in order, several in flight, as far as the memory for their bytes allows."""
        running: collections.deque[tuple[concurrent.futures.Future[Any], int]] = collections.deque()
        held_bytes = 0
        try:
            for coroutine, nbytes in calls:
                running.append((asyncio.run_coroutine_threadsafe(coroutine, self.loop), nbytes))
                held_bytes += nbytes
                while running and (
                    len(running) >= SMALL_IN_FLIGHT or held_bytes >= self.depth * self.block_bytes
                ):
                    future, nbytes = running.popleft()
                    yield _outcome(future.result)
                    held_bytes -= nbytes
            while running:
                yield _outcome(running.popleft()[0].result)
        finally:
            for future, _ in running:
                future.cancel()


class RangeReader(io.RawIOBase):
    """Reads a range in order, while the next blocks are on their way."""

    def __init__(self, store: AsyncStore, target: Object, offset: int, length: int):
        self._store = store
        self._target = target
        self._next = offset
        self._end = offset + length
        self._requests: collections.deque[tuple[concurrent.futures.Future[bytes], int]] = (
            collections.deque()
        )
        self._block = memoryview(b"")
        self._fill()

    def _fill(self) -> None:
        while self._next < self._end and len(self._requests) < self._store.depth:
            start, end = self._next, min(self._next + self._store.block_bytes, self._end)
            fetch = self._store.fetch(self._target, start, end)
            self._requests.append(
                (asyncio.run_coroutine_threadsafe(fetch, self._store.loop), end - start)
            )
            self._next = end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._block:
            # The consumed block is released before the next one is awaited.
            self._block = memoryview(b"")
            if not self._requests:
                return 0
            request, length = self._requests.popleft()
            data = request.result()
            if len(data) != length:
                raise OSError(f"the store returned {len(data)} of {length} bytes")
            self._block = memoryview(data)
            del request, data
            self._fill()
        with memoryview(buffer).cast("B") as view:
            count = min(len(view), len(self._block))
            view[:count] = self._block[:count]
        self._block = self._block[count:]
        return count

    def close(self) -> None:
        for request, _ in self._requests:
            request.cancel()
        self._requests.clear()
        self._block = memoryview(b"")
        super().close()
