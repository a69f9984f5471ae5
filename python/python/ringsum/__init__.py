"""BLAKE3 and other digests of files and trees, at full disk bandwidth."""

from importlib.metadata import version as _version

from ._errors import ChangedError, Error, ReadError, UnsupportedError
from ._native import (
    CheckFailure,
    CheckReport,
    Digest,
    Part,
    TreeEntry,
    TreeIterator,
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
    "check",
    "hash_file",
    "hash_range",
    "hash_tree",
    "merge",
]

__version__ = _version("ringsum")
