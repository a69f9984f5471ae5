"""HTTP: a strong ETag is sent as If-Match with each request, and compared with that of each response.

Without a strong ETag, the modification time is compared in each response, and once more after each part.
"""

from __future__ import annotations

import email.utils
import errno
import re
from typing import Any

import fsspec

from ..objects import Object, Version
from .store import AsyncStore, ChangedError, RefusedError

__all__ = ["HttpStore"]

_CONTENT_RANGE = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+)")


class HttpStore(AsyncStore):
    """``http://`` and ``https://``, if the server supports ranges."""

    def __init__(self, options: dict[str, Any], threads: int):
        self.fs = fsspec.filesystem("http", **options)
        super().__init__(self.fs.loop, threads)

    async def _get(self, name: str, headers: dict[str, str]) -> Any:
        session = await self.fs.set_session()
        settings = dict(self.fs.kwargs)
        # A compressed response would have other bytes.
        own = {"Accept-Encoding": "identity"} | headers
        settings["headers"] = dict(settings.get("headers") or {}) | own
        return session.get(self.fs.encode_url(name), **settings)

    async def stat_async(self, name: str) -> Object:
        # (Not HEAD: presigned URLs allow GET only.)
        async with await self._get(name, {"Range": "bytes=0-0"}) as response:
            if response.status not in (200, 206, 416):
                _raise_for(response)
            if response.status == 200:
                size = response.headers.get("Content-Length")
            else:
                found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
                size = found.group(3) if found else None
            if size is None:
                raise RefusedError("the server does not report its size")
            return _object(name, int(size), response.headers)

    async def fetch(self, target: Object, start: int, end: int) -> bytes:
        is_whole = (start, end) == (0, target.size)
        if target.version is None and not is_whole:
            raise RefusedError(
                "the server reports neither a strong ETag nor Last-Modified: parts could be of two versions"
            )
        headers = {"Range": f"bytes={start}-{end - 1}"}
        if target.version is not None and target.version.kind == "etag":
            headers["If-Match"] = target.version.value
        async with await self._get(target.name, headers) as response:
            if response.status in (404, 410, 412, 416):
                raise ChangedError(
                    f"the server has another version of it by now (HTTP {response.status})"
                )
            if response.status == 200 and not is_whole:
                raise RefusedError(
                    "the server does not support ranges: copy the object to a store that does"
                )
            if response.status not in (200, 206):
                _raise_for(response)
            found = _object(target.name, _total(response, start, end), response.headers)
            if found.version != target.version or found.size != target.size:
                raise ChangedError(*target.change_to(found))
            data: bytes = await response.read()
        if len(data) != end - start:
            raise OSError(f"the server returned {len(data)} of {end - start} bytes")
        return data

    async def verify(self, target: Object) -> None:
        if target.version is None or target.version.kind == "etag":
            return
        found = await self.stat_async(target.name)
        if not target.is_same_version(found):
            raise ChangedError(*target.change_to(found))

    def list(self, name: str) -> Any:
        raise RefusedError("HTTP has no listing: name the objects, for example with --files-from")


def _total(response: Any, start: int, end: int) -> int:
    if response.status == 200:
        return int(response.headers.get("Content-Length", -1))
    found = _CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    if found is None or (found.group(1), found.group(2)) != (str(start), str(end - 1)):
        raise OSError(
            errno.EIO, f"the server returned another range: {response.headers.get('Content-Range')}"
        )
    return int(found.group(3))


def _object(name: str, size: int, headers: Any) -> Object:
    modified, etag = headers.get("Last-Modified"), headers.get("ETag")
    try:
        mtime_ns = (
            int(email.utils.parsedate_to_datetime(modified).timestamp()) * 10**9
            if modified
            else None
        )
    except ValueError:
        mtime_ns = None
    if etag and etag.startswith('"'):
        return Object(name, size, mtime_ns, Version("etag", etag))
    return Object(
        name,
        size,
        mtime_ns,
        Version("mtime", f"{mtime_ns}-{size}") if mtime_ns is not None else None,
    )


def _raise_for(response: Any) -> None:
    text = f"HTTP {response.status} {response.reason}"
    if response.status in (404, 410):
        raise FileNotFoundError(text)
    if response.status in (401, 403):
        raise PermissionError(text)
    if 400 <= response.status < 500 and response.status not in (408, 425, 429):
        raise RefusedError(text)
    raise OSError(text)
