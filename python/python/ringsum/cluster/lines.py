"""The lines that ``ringsum`` writes and reads: check files and JSON, as ``docs/formats.md`` specifies them.

Names are strings as of `os.fsdecode`; lines are bytes. Of the digests, only BLAKE3 of at most 32 bytes.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from typing import Any

from .objects import FailureKind, Result

__all__ = [
    "Entry",
    "MalformedError",
    "escape",
    "harmless",
    "json_line",
    "parse_line",
    "plain_line",
    "verdict_object",
]

LINE_BYTES_MAX = 1 << 20
DIGEST_BYTES = 32
DIGEST_BYTES_MIN = 16

_PLAIN = re.compile(rb"([0-9A-Fa-f]+) [ *](.*)", re.DOTALL)
# The name ends at the last `) = `.
_TAGGED = re.compile(rb"([A-Za-z0-9/_-]+) \((.*)\) = (.*)", re.DOTALL)
_ESCAPES = {b"\\\\": b"\\", b"\\n": b"\n", b"\\r": b"\r"}
# Characters that a terminal acts on, or that change how others are displayed.
_HARMFUL = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)


class MalformedError(ValueError):
    """A line is not of the format."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """A line of a check file."""

    name: str
    # As the line has it, escapes included.
    listed: bytes
    digest: bytes


def escape(name: bytes) -> tuple[bytes, bytes]:
    """Return what stands before the digest, and the name: escaped if it contains a backslash or a line end."""
    if not any(special in name for special in (b"\\", b"\n", b"\r")):
        return b"", name
    return b"\\", name.replace(b"\\", b"\\\\").replace(b"\n", b"\\n").replace(b"\r", b"\\r")


def plain_line(name: str, digits: str, *, tag: bool = False, zero: bool = False) -> bytes:
    """Return ``HASH  NAME``, or ``BLAKE3 (NAME) = HASH``, with its end."""
    raw = os.fsencode(name)
    slash, shown = (b"", raw) if zero else escape(raw)
    end = b"\0" if zero else b"\n"
    digest = digits.encode()
    if tag:
        return slash + b"BLAKE3 (" + shown + b") = " + digest + end
    return slash + digest + b"  " + shown + end


def parse_line(line: bytes, *, zero: bool = False) -> Entry | None:
    """Parse a line; ``None`` for a blank line or a comment.

    Raises
    ------
    MalformedError
        If it is none of the formats, or of another algorithm.
    """
    if len(line) > LINE_BYTES_MAX:
        raise MalformedError(f"the line is longer than {LINE_BYTES_MAX} bytes")
    line = line.removesuffix(b"\0") if zero else line.rstrip(b"\r\n")
    if not (line if zero else line.strip(b" \t")) or line.startswith(b"#"):
        return None
    is_escaped = line.startswith(b"\\") and not zero
    body = line[1:] if is_escaped else line
    digits, field = _split(body)
    if len(digits) % 2:
        raise MalformedError(
            f"the hash has {len(digits)} hexadecimal digits, and an even number is needed"
        )
    nbytes = len(digits) // 2
    if not DIGEST_BYTES_MIN <= nbytes <= DIGEST_BYTES:
        raise MalformedError(
            f"the hash has {nbytes} bytes, and here BLAKE3 has {DIGEST_BYTES_MIN} to {DIGEST_BYTES}"
        )
    raw = _unescape(field) if is_escaped else field
    if b"\0" in raw:
        raise MalformedError("the name contains a NUL")
    if not raw:
        raise MalformedError("the name is empty")
    return Entry(
        os.fsdecode(raw), b"\\" + field if is_escaped else field, bytes.fromhex(digits.decode())
    )


def _split(body: bytes) -> tuple[bytes, bytes]:
    plain = _PLAIN.fullmatch(body)
    if plain:
        return plain.group(1), plain.group(2)
    tagged = _TAGGED.fullmatch(body)
    if not tagged:
        raise MalformedError("neither `HASH  NAME` nor `BLAKE3 (NAME) = HASH`")
    if tagged.group(1) != b"BLAKE3":
        raise MalformedError(
            f"its algorithm is {tagged.group(1).decode('ascii')}, and a cluster computes only BLAKE3"
        )
    if not re.fullmatch(rb"[0-9A-Fa-f]*", tagged.group(3)):
        raise MalformedError("the hash is not hexadecimal")
    return tagged.group(3), tagged.group(2)


def _unescape(field: bytes) -> bytes:
    def turn_back(match: re.Match[bytes]) -> bytes:
        found = _ESCAPES.get(match.group())
        if found is None:
            raise MalformedError(
                "a backslash in an escaped name is not followed by `\\`, `n` or `r`"
            )
        return found

    return re.sub(rb"\\(?s:.?)", turn_back, field)


def harmless(text: str) -> str:
    """Return a text for a terminal: control characters and the like as ``\\xNN`` or ``\\u{N}``."""

    def shown(match: re.Match[str]) -> str:
        code = ord(match.group())
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{{{code:x}}}"

    return _HARMFUL.sub(shown, text)


def _dump(fields: dict[str, Any]) -> bytes:
    text = json.dumps(fields, ensure_ascii=False, sort_keys=True, separators=(",", ":"))

    def units(match: re.Match[str]) -> str:
        raw = match.group().encode("utf-16-be")
        return "".join(f"\\u{raw[at]:02x}{raw[at + 1]:02x}" for at in range(0, len(raw), 2))

    return _HARMFUL.sub(units, text).encode("utf-8", "replace") + b"\n"


def _fields(name: str, status: str) -> dict[str, Any]:
    raw = os.fsencode(name)
    fields: dict[str, Any] = {"path": raw.decode("utf-8", "replace"), "status": status}
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        fields["path_bytes"] = raw.hex()
    return fields


def _add_result(fields: dict[str, Any], result: Result) -> None:
    if result.digest is not None:
        fields["hash"] = result.digest.hexdigest()
        fields["size"] = result.size
        if result.mtime_ns is not None:
            fields["mtime_ns"] = result.mtime_ns
    if result.version is not None and result.digest is not None:
        fields["version"] = result.version
    if result.retries:
        fields["retries"] = result.retries
    failure = result.failure
    if failure is None:
        return
    fields["error"] = str(failure)
    if failure.kind is FailureKind.CHANGED:
        fields["change"] = failure.change or "replaced"
    elif failure.kind in (FailureKind.UNREADABLE, FailureKind.LOST) and failure.length:
        fields["unreadable"] = [
            {"offset": failure.offset, "len": failure.length, "error": failure.message}
        ]
        fields["narrowed"] = False


def json_line(result: Result) -> bytes:
    """Return the object of a hashed name."""
    status = "error" if result.status == "missing" else result.status
    fields = _fields(result.url, status)
    _add_result(fields, result)
    return _dump(fields)


def verdict_object(entry: Entry, status: str, result: Result) -> bytes:
    """Return the object of a checked name."""
    fields = _fields(entry.name, status)
    fields["expected"] = entry.digest.hex()
    _add_result(fields, result)
    if "hash" in fields:
        fields["hash"] = fields["hash"][: 2 * len(entry.digest)]
    return _dump(fields)
