"""Google Cloud Storage: each request demands the generation that was listed.

With `ifGenerationMatch` the server refuses the request if the object is another one by then, even in a bucket that
keeps old versions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gcsfs

from ..objects import Object, Version
from .generic import mtime_ns_of, walk
from .store import AsyncStore, ChangedError, RefusedError

__all__ = ["GcsStore"]


class GcsStore(AsyncStore):
    """``gs://BUCKET/KEY``."""

    def __init__(self, options: dict[str, Any], threads: int):
        # Listings are not cached: a cached one would bring back an old version.
        self.fs = gcsfs.GCSFileSystem(**{"use_listings_cache": False} | options)
        super().__init__(self.fs.loop, threads)

    async def stat_async(self, name: str) -> Object:
        bucket, key = _split(name)
        metadata = await self.fs._call("GET", "b/{}/o/{}", bucket, key, json_out=True)
        return _object(name, self.fs._process_object(bucket, metadata))

    async def fetch(self, target: Object, start: int, end: int) -> bytes:
        if target.version is None:
            raise RefusedError("the store reports no generation for it")
        url = self.fs.url("/".join(_split(target.name)))
        headers = {"Range": f"bytes={start}-{end - 1}"}
        try:
            found, data = await self.fs._call(
                "GET", url, headers=headers, ifGenerationMatch=target.version.value
            )
        except FileNotFoundError as error:
            raise ChangedError("it was removed from the store", "removed") from error
        except Exception as error:
            if str(getattr(error, "code", "")) == "412":
                raise ChangedError("the store has another generation of it by now") from error
            raise
        # A server that does not know the condition ignores it: emulators do.
        generation = found.get("X-Goog-Generation", target.version.value)
        if generation != target.version.value:
            raise ChangedError(f"its version was {target.version} and is generation:{generation}")
        if len(data) != end - start:
            raise OSError(f"the store returned {len(data)} of {end - start} bytes")
        return bytes(data)

    def list(self, name: str) -> Iterator[Object]:
        scheme = name.partition("://")[0]
        for path, info in walk(self.fs, name):
            yield _object(f"{scheme}://{path}", info)


def _split(name: str) -> tuple[str, str]:
    bucket, _, key = name.partition("://")[2].partition("/")
    if not bucket:
        raise RefusedError("the name of the bucket is missing: write gs://BUCKET/KEY")
    if not key:
        raise IsADirectoryError("is a bucket: use -r to hash the objects in it")
    return bucket, key


def _object(name: str, info: dict[str, Any]) -> Object:
    generation = info.get("generation")
    version = Version("generation", str(generation)) if generation else None
    return Object(name, int(info["size"]), mtime_ns_of(info), version)
