"""Credentials: they reach the file system layer of the workers, and nothing else.

Options for file systems are wrapped, so that no log of Dask shows them, and texts that leave a worker are searched for
their values. Names lose passwords and signatures before they are printed or used as keys of tasks.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["StorageOptions", "public_name"]

MASK = "***"
# Shorter values would also replace parts of ordinary words.
SECRET_CHARS_MIN = 4
# Query parameters that grant access: presigned URLs of S3 (versions 2 and 4), GCS, Azure, CDNs, and OAuth tokens.
_SECRET_PARAMETERS = re.compile(
    r"(?i)^(x-amz-(signature|credential|security-token)|x-goog-(signature|credential)|awsaccesskeyid|googleaccessid"
    r"|signature|sig|skoid|policy|key-pair-id|.*(token|secret|password|passwd|api-?_?key|auth).*)$"
)
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]+")
# Options that say where and how to connect; all others count as secret.
_PUBLIC_OPTIONS = {
    "endpoint_url",
    "region_name",
    "anon",
    "project",
    "protocol",
    "host",
    "port",
    "use_ssl",
    "verify",
}


class StorageOptions:
    """Options for fsspec, by protocol: ``{"s3": {"key": ..., "secret": ...}}``. Its `repr` hides them."""

    def __init__(self, by_protocol: Mapping[str, Mapping[str, Any]] | None = None):
        given = dict(by_protocol or {})
        for protocol, options in given.items():
            if not isinstance(options, Mapping):
                raise TypeError(
                    f"storage_options[{protocol!r}] must be a dict of options for that protocol"
                )
        self._by_protocol = {protocol: dict(options) for protocol, options in given.items()}

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(sorted(self._by_protocol))})"

    def __dask_tokenize__(self) -> str:
        return repr(self)

    def of(self, protocol: str) -> dict[str, Any]:
        """Return a copy of the options for a protocol."""
        return dict(self._by_protocol.get(protocol, {}))

    def scrub(self, text: str) -> str:
        """Return a text without the values of secret options, and without passwords or signatures in URLs."""
        for options in self._by_protocol.values():
            for secret in sorted(_secret_strings(options), key=len, reverse=True):
                text = text.replace(secret, MASK)
        return _URL.sub(lambda match: public_name(match.group()), text)


def _secret_strings(value: Any, key: str = "") -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner_key, inner in value.items():
            yield from _secret_strings(inner, str(inner_key))
    elif isinstance(value, (list, tuple)):
        for inner in value:
            yield from _secret_strings(inner, key)
    elif isinstance(value, bytes):
        yield from _secret_strings(value.decode("latin-1"), key)
    elif isinstance(value, str) and key not in _PUBLIC_OPTIONS and len(value) >= SECRET_CHARS_MIN:
        yield value


def public_name(name: str) -> str:
    """Return a name without the password of its host part and without query parameters that grant access.

    Paths, and keys in S3 or GCS, are returned unchanged: there, ``@`` and ``?`` are ordinary characters.
    """
    scheme, separator, _ = name.partition("://")
    if not separator or scheme in ("s3", "s3a", "gs", "gcs", "file", "local"):
        return name
    try:
        parts = urllib.parse.urlsplit(name)
    except ValueError:
        return name
    host = parts.netloc
    if "@" in host:
        user, _, host = host.rpartition("@")
        if ":" not in user and scheme not in ("http", "https"):
            host = f"{user}@{host}"
    query = parts.query
    if query:
        query = "&".join(_public_parameter(parameter) for parameter in query.split("&"))
    if (host, query) == (parts.netloc, parts.query):
        return name
    return parts._replace(netloc=host, query=query).geturl()


def _public_parameter(parameter: str) -> str:
    key, separator, _ = parameter.partition("=")
    is_secret = separator and _SECRET_PARAMETERS.match(urllib.parse.unquote(key))
    return f"{key}={MASK}" if is_secret else parameter
