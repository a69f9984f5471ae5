"""BLAKE3 and other digests of files and trees, at full disk bandwidth."""

from ._errors import ChangedError, Error, ReadError, UnsupportedError
from ._native import Digest, Part, hash_file, hash_range, merge

__all__ = [
    "ChangedError",
    "Digest",
    "Error",
    "Part",
    "ReadError",
    "UnsupportedError",
    "hash_file",
    "hash_range",
    "merge",
]
