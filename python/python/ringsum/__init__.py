"""BLAKE3 and other digests of files and trees, at full disk bandwidth."""

from ._errors import ChangedError, Error, ReadError, UnsupportedError
from ._native import (
    CheckFailure,
    CheckReport,
    Digest,
    Part,
    TreeEntry,
    TreeIterator,
    __version__,
    check,
    hash_file,
    hash_range,
    hash_tree,
    merge,
)

__all__ = [
    "ChangedError",
    "CheckFailure",
    "CheckReport",
    "Digest",
    "Error",
    "Part",
    "ReadError",
    "TreeEntry",
    "TreeIterator",
    "UnsupportedError",
    "__version__",
    "check",
    "hash_file",
    "hash_range",
    "hash_tree",
    "merge",
]
