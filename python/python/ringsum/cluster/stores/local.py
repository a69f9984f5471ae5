"""Files that this machine can open: local ones, and those of NFS, Lustre and other shared file systems.

The native reader hashes them. A file is one version if its size, modification time and status change time are the
same before and after each range; its path must still lead to it, too. Device numbers differ between machines, and
inode numbers on some FUSE file systems, so that these are compared within one range only.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

import ringsum

from ..objects import Object, Unlisted, Version
from .store import ChangedError, RefusedError, Store

__all__ = ["LocalStore"]


class LocalStore(Store):
    """Paths, and ``file://`` URLs."""

    def stat(self, name: str) -> Object:
        return _object_of(name, os.stat(path_of(name)))

    def list(self, name: str) -> Iterator[Object | Unlisted]:
        path = path_of(name)
        found = os.stat(path)
        if not stat.S_ISDIR(found.st_mode):
            yield _object_of(name, found)
            return
        yield from _walk(path, name if name.endswith("/") else name + "/")

    def hash_range(self, target: Object, offset: int, length: int) -> ringsum.Part:
        path = path_of(target.name)
        # (Opening a FIFO would wait for its other end.)
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            opened = os.fstat(fd)
            _check(target, _object_of(target.name, opened))
            part = ringsum.hash_range(fd, offset, length)
            _check(target, _object_of(target.name, os.fstat(fd)))
            try:
                now = os.stat(path)
            except FileNotFoundError as error:
                raise ChangedError("it was removed", "removed") from error
            if not os.path.samestat(opened, now):
                raise ChangedError("its path leads to another file now")
            return part
        finally:
            os.close(fd)


def path_of(name: str) -> str:
    """Return the path of a name, which may be a ``file://`` URL."""
    for scheme in ("file://", "local://"):
        if name.startswith(scheme):
            parts = urlsplit(name)
            if parts.netloc not in ("", "localhost"):
                raise RefusedError(f"a file URL with a host ({parts.netloc}): write {scheme}/PATH")
            return unquote(parts.path, errors="surrogateescape")
    return name


def _object_of(name: str, found: os.stat_result) -> Object:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), name)
    if not stat.S_ISREG(found.st_mode):
        raise RefusedError("it is not a regular file")
    return Object(name, found.st_size, found.st_mtime_ns, Version("ctime", str(found.st_ctime_ns)))


def _check(expected: Object, found: Object) -> None:
    if not expected.is_same_version(found):
        raise ChangedError(*expected.change_to(found))


def _walk(directory: str, prefix: str) -> Iterator[Object | Unlisted]:
    """Yield regular files in byte order of their paths, as ``ringsum -r`` does; links are not followed."""
    try:
        with os.scandir(directory) as entries:
            # The bytes of `a.x` come before those of `a/x`.
            found = [
                (entry.name + "/" if entry.is_dir(follow_symlinks=False) else entry.name)
                for entry in entries
            ]
    except OSError as error:
        yield Unlisted(prefix.rstrip("/") or prefix, error)
        return
    found.sort(key=os.fsencode)
    for name in found:
        path = os.path.join(directory, name)
        if name.endswith("/"):
            yield from _walk(path, prefix + name)
            continue
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            # Removed since the directory was read, as in every walk.
            continue
        if stat.S_ISREG(status.st_mode):
            yield _object_of(prefix + name, status)
