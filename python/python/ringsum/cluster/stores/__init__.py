"""Where objects are stored: one module for each kind, chosen by the scheme of the name.

Each makes sure that all bytes of a range are of the version that was listed, in the strongest way that the store
offers. Paths of a (shared) file system are read by the native reader, everything else through fsspec.
"""

from __future__ import annotations

import os

from ..secrets import StorageOptions
from .store import ChangedError, RefusedError, Store

__all__ = ["ChangedError", "RefusedError", "Store", "store_of"]


def store_of(name: str, options: StorageOptions, threads: int = 1) -> Store:
    """Return the store of a path or URL.

    Parameters
    ----------
    threads : int
        Number of tasks that the process runs at the same time: they share the memory for reading ahead.

    Raises
    ------
    RefusedError
        If there is no file system for the scheme, or its package is not installed.
    """
    scheme, separator, _ = name.partition("://")
    scheme = scheme.lower() if separator and scheme.isascii() and "/" not in scheme else "file"
    # (Imported when used: a client of local files needs no aiohttp.)
    if scheme in ("file", "local"):
        from .local import LocalStore

        return LocalStore()
    try:
        if scheme in ("s3", "s3a"):
            from .s3 import S3Store

            return S3Store(options.of("s3") | options.of(scheme), threads)
        if scheme in ("http", "https"):
            from .http import HttpStore

            return HttpStore(options.of("http") | options.of(scheme), threads)
        if scheme in ("gs", "gcs"):
            from .gcs import GcsStore

            return GcsStore(options.of("gcs") | options.of(scheme), threads)
        from .generic import GenericStore

        return GenericStore(scheme, options.of(scheme))
    except ImportError as error:
        raise RefusedError(
            f"{scheme}:// needs a package that is not installed on {os.uname().nodename}: {error}"
        ) from error
    except ValueError as error:
        raise RefusedError(f"{scheme}://: {error}") from error
