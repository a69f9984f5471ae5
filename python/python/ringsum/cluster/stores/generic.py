"""Every other file system of fsspec (SFTP, SMB, HDFS, WebDAV, ...): size and modification time, before and after each range.

A file that is replaced by one of the same size within the resolution of the modification time is not noticed.
"""

from __future__ import annotations

import datetime
import os
import posixpath
from collections.abc import Iterator
from typing import Any

import fsspec

import ringsum

from ..objects import Object, Version
from .store import ChangedError, RefusedError, Store

__all__ = ["GenericStore", "mtime_ns_of", "walk"]

BLOCK_BYTES = 4 << 20
_MTIME_KEYS = (
    "mtime",
    "modified",
    "LastModified",
    "last_modified",
    "updated",
    "last_write_time",
    "modify",
    "created",
)


class GenericStore(Store):
    """``SCHEME://...`` of any scheme that fsspec knows."""

    def __init__(self, scheme: str, options: dict[str, Any]):
        self.scheme = scheme
        self.options = options
        fsspec.get_filesystem_class(scheme)

    def _open(self, name: str) -> tuple[Any, str]:
        # Listings are not cached: a cached one would bring back an old version.
        fs, path = fsspec.url_to_fs(name, **{"use_listings_cache": False} | self.options)
        return fs, path

    def stat(self, name: str) -> Object:
        fs, path = self._open(name)
        info = fs.info(path)
        if info.get("type") == "directory":
            raise IsADirectoryError("is a directory: use -r to hash the files in it")
        return _object(name, fs, path, info)

    def list(self, name: str) -> Iterator[Object]:
        fs, path = self._open(name)
        stripped = fs._strip_protocol(name)
        before = (
            name[: len(name.rstrip("/")) - len(stripped.rstrip("/"))]
            if name.rstrip("/").endswith(stripped.rstrip("/"))
            else None
        )
        for found, info in walk(fs, path):
            full = before + found if before is not None else fs.unstrip_protocol(found)
            yield _object(full, fs, found, info)

    def hash_range(self, target: Object, offset: int, length: int) -> ringsum.Part:
        if target.version is None and length < target.size:
            raise RefusedError(
                f"{self.scheme}:// reports no modification time: parts could be of two versions"
            )
        fs, path = self._open(target.name)
        self._check(target)
        # (Without a cache: blocks are read once, in order.)
        with fs.open(path, "rb", block_size=BLOCK_BYTES, cache_type="readahead") as file:
            if offset:
                file.seek(offset)
            part = ringsum.hash_range(file, offset, length, total=target.size)
        self._check(target)
        return part

    def _check(self, target: Object) -> None:
        found = self.stat(target.name)
        if (found.size, found.mtime_ns) != (target.size, target.mtime_ns):
            raise ChangedError(*target.change_to(found))


def walk(fs: Any, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (path, info) of files in byte order of their paths; holds the listing of one directory at a time."""
    entries = fs.ls(path, detail=True)
    if len(entries) == 1 and entries[0]["name"].rstrip("/") == fs._strip_protocol(path).rstrip("/"):
        if entries[0].get("type") != "directory":
            yield entries[0]["name"], entries[0]
        return

    def key(entry: dict[str, Any]) -> bytes:
        return os.fsencode(entry["name"] + ("/" if entry.get("type") == "directory" else ""))

    for entry in sorted(entries, key=key):
        if entry.get("type") == "directory":
            if posixpath.normpath(entry["name"]) != posixpath.normpath(path):
                yield from walk(fs, entry["name"])
        elif entry.get("type") == "file":
            yield entry["name"], entry


def mtime_ns_of(info: dict[str, Any]) -> int | None:
    """Return the modification time of an entry of fsspec, whatever its file system calls it."""
    for key in _MTIME_KEYS:
        value = info.get(key)
        if isinstance(value, str):
            try:
                value = datetime.datetime.fromisoformat(value)
            except ValueError:
                continue
        if isinstance(value, datetime.datetime):
            # (Without floating point: microseconds would be rounded.)
            value = value if value.tzinfo else value.replace(tzinfo=datetime.UTC)
            since = value - datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
            return (since // datetime.timedelta(microseconds=1)) * 1000
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return int(value * 1_000_000_000)
    return None


def _object(name: str, fs: Any, path: str, info: dict[str, Any]) -> Object:
    mtime_ns = mtime_ns_of(info)
    if mtime_ns is None:
        try:
            mtime_ns = mtime_ns_of({"mtime": fs.modified(path)})
        except (NotImplementedError, KeyError, TypeError):
            mtime_ns = None
    size = info.get("size")
    if size is None:
        raise RefusedError("the file system reports no size for it")
    return Object(
        name,
        int(size),
        mtime_ns,
        Version("mtime", f"{mtime_ns}-{size}") if mtime_ns is not None else None,
    )
