"""BLAKE3 digests of huge files and objects, computed by many machines: a Dask cluster.

BLAKE3 is a tree, so that ranges can be hashed anywhere and in any order, and their chaining values merge to the digest
that ``b3sum`` prints for the whole object.

>>> import ringsum.cluster
>>> from distributed import Client
>>> client = Client("tls://scheduler:8786")  # doctest: +SKIP
>>> for result in ringsum.cluster.hash_urls(client, ["s3://bucket/huge.tar", "/mnt/nfs/a"]):  # doctest: +SKIP
...     print(result.raise_for_error().digest.hexdigest(), result.url)

The command ``python -m ringsum.cluster`` does the same. Needs the extra: ``pip install 'ringsum[cluster]'``.
"""

try:
    import distributed as _distributed  # noqa: F401
    import fsspec as _fsspec  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"ringsum.cluster needs {error.name}: pip install 'ringsum[cluster]'", name=error.name
    ) from error

from .api import Progress, hash_urls, local_client
from .driver import ClusterLostError
from .engine import Retry
from .objects import Failure, FailureKind, ObjectChangedError, ObjectError, Result
from .plan import Limits

__all__ = [
    "ClusterLostError",
    "Failure",
    "FailureKind",
    "Limits",
    "ObjectChangedError",
    "ObjectError",
    "Progress",
    "Result",
    "Retry",
    "hash_urls",
    "local_client",
]
