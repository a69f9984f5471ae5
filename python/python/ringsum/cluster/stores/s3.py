"""S3 and what speaks its protocol: each request carries the ETag that was listed as If-Match.

The server refuses the request if the object is another one by then. ETags of identical contents may be equal, which
does no harm.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import s3fs

from ..objects import Object, Version
from .store import AsyncStore, ChangedError, RefusedError

__all__ = ["S3Store"]


class S3Store(AsyncStore):
    """``s3://BUCKET/KEY``; the key is taken as it is."""

    def __init__(self, options: dict[str, Any], threads: int):
        self.fs = s3fs.S3FileSystem(**options)
        super().__init__(self.fs.loop, threads)

    async def _call(self, method: str, name: str, **parameters: Any) -> Any:
        bucket, key = _split(name)
        if not key:
            raise IsADirectoryError("is a bucket: use -r to hash the objects in it")
        try:
            return await self.fs._call_s3(method, Bucket=bucket, Key=key, **parameters)
        except Exception as error:
            if _status(error) == 412:
                raise ChangedError("the store has another version of it by now") from error
            if _status(error) == 404 and "IfMatch" in parameters:
                raise ChangedError("it was removed from the store", "removed") from error
            raise

    async def stat_async(self, name: str) -> Object:
        head = await self._call("head_object", name)
        return _object(name, head["ContentLength"], head.get("ETag"), head.get("LastModified"))

    async def fetch(self, target: Object, start: int, end: int) -> bytes:
        if target.version is None:
            raise RefusedError("the store reports no ETag for it")
        range_header = f"bytes={start}-{end - 1}"
        response = await self._call(
            "get_object", target.name, IfMatch=target.version.value, Range=range_header
        )
        body = response["Body"]
        try:
            # A store that does not know If-Match ignores it.
            if response.get("ETag") != target.version.value:
                raise ChangedError(
                    f"its version was {target.version} and is etag:{response.get('ETag')}"
                )
            data: bytes = await body.read()
        finally:
            body.close()
        if len(data) != end - start:
            raise OSError(f"the store returned {len(data)} of {end - start} bytes")
        return data

    def list(self, name: str) -> Iterator[Object]:
        bucket, key = _split(name)
        prefix = key if not key or key.endswith("/") else key + "/"
        is_empty = True
        for page in self._pages(bucket, prefix):
            for entry in page.get("Contents", ()):
                is_empty = False
                # (Empty objects with such names stand for directories.)
                if entry["Key"].endswith("/") and entry["Size"] == 0:
                    continue
                full = f"{name.partition('://')[0]}://{bucket}/{entry['Key']}"
                found = _object(full, entry["Size"], entry.get("ETag"), entry.get("LastModified"))
                # (Some servers report ETags of single objects only.)
                yield found if found.version else self.stat(full)
        if is_empty and key:
            yield self.stat(name)

    def _pages(self, bucket: str, prefix: str) -> Iterator[dict[str, Any]]:
        """Yield pages of 1,000 entries, so that a listing of any length takes no memory."""
        token: dict[str, str] = {}
        while True:
            page = self.call(
                self.fs._call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, **token)
            )
            yield page
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}


def _split(name: str) -> tuple[str, str]:
    bucket, _, key = name.partition("://")[2].partition("/")
    if not bucket:
        raise RefusedError("the name of the bucket is missing: write s3://BUCKET/KEY")
    return bucket, key


def _object(name: str, size: int, etag: str | None, modified: datetime.datetime | None) -> Object:
    # Listings have whole seconds or milliseconds, HEAD has whole seconds: compared as seconds.
    mtime_ns = None if modified is None else int(modified.timestamp()) * 1_000_000_000
    return Object(name, size, mtime_ns, Version("etag", etag) if etag else None)


def _status(error: BaseException | None) -> int | None:
    """Return the HTTP status behind an error: s3fs translates errors, and keeps botocore's as the cause."""
    while error is not None:
        response = getattr(error, "response", None)
        if isinstance(response, dict):
            status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            return status if isinstance(status, int) else None
        error = error.__cause__
    return None
