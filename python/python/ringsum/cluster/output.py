"""Where lines go, and what an earlier run has written there already."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
import tempfile
import time
from typing import BinaryIO

from .lines import MalformedError, harmless, parse_line
from .plan import ANY_VERSION
from .secrets import public_name

__all__ = ["Finished", "Output", "ResumeError"]

# A reader of the lines may need them before the run ends; after a crash, at most this much is hashed again.
FLUSH_EVERY_S = 0.5
SYNC_EVERY_S = 10.0


class ResumeError(Exception):
    """The output of an earlier run cannot be continued."""


class Output:
    """Standard output, or a file; whole lines."""

    def __init__(self, path: str | None, resume: bool):
        self._file: BinaryIO = sys.stdout.buffer
        self._is_terminal = path is None and sys.stdout.isatty()
        self._is_file = path is not None
        if path is not None:
            self._file = open(path, "r+b" if resume and os.path.exists(path) else "wb")  # noqa: SIM115: closed by `close`
            if resume:
                _cut_last_line(self._file)
        self._path = None if path is None else os.path.abspath(path)
        self._flushed = self._synced = time.monotonic()

    def is_own(self, name: str) -> bool:
        """Tell whether a name is the file that is written: in a tree, it is not hashed."""
        if self._path is None or os.path.basename(name) != os.path.basename(self._path):
            return False
        return "://" not in name and os.path.realpath(name) == os.path.realpath(self._path)

    def write(self, line: bytes) -> None:
        if self._is_terminal:
            shown = harmless(line[:-1].decode("utf-8", "replace"))
            line = shown.encode() + line[-1:]
        self._file.write(line)

    def flush(self, *, now: bool = False) -> None:
        """Write what is buffered, if that is due."""
        moment = time.monotonic()
        if now or moment - self._flushed >= FLUSH_EVERY_S:
            self._flushed = moment
            self._file.flush()
        if self._is_file and moment - self._synced >= SYNC_EVERY_S:
            self._synced = moment
            self._file.flush()
            os.fdatasync(self._file.fileno())

    def close(self) -> None:
        """Write the rest; a file is on its disk afterwards."""
        self._file.flush()
        if self._is_file:
            try:
                os.fsync(self._file.fileno())
            except OSError:
                # (A pipe or a device.)
                if os.path.isfile(self._file.name):
                    raise
            self._file.close()


def _cut_last_line(file: BinaryIO) -> None:
    """Remove a line that a crash has cut short, and go to the end."""
    end = file.seek(0, os.SEEK_END)
    at = end
    while at > 0:
        start = max(0, at - (64 << 10))
        file.seek(start)
        found = file.read(at - start).rfind(b"\n")
        if found >= 0:
            at = start + found + 1
            break
        at = start
    if at < end:
        file.truncate(at)
    file.seek(at)


class Finished:
    """The names in the output of an earlier run, with their versions if it has them.

    They are in a temporary database, because a million of them would take 150 MB in a dict.
    """

    def __init__(self, path: str, is_json: bool):
        self._directory = tempfile.TemporaryDirectory(prefix="ringsum-resume-")
        self._db = sqlite3.connect(
            os.path.join(self._directory.name, "names.db"), isolation_level=None
        )
        self._db.execute("PRAGMA journal_mode=OFF")
        self._db.execute("PRAGMA synchronous=OFF")
        self._db.execute("PRAGMA cache_size=-4096")
        self._db.execute(
            "CREATE TABLE names (name BLOB PRIMARY KEY, version TEXT NOT NULL) WITHOUT ROWID"
        )
        if os.path.exists(path):
            self._load(path, is_json)

    def _load(self, path: str, is_json: bool) -> None:
        self._db.execute("BEGIN")
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    # A crash has cut it short; `Output` removes it.
                    break
                try:
                    found = _parse_json(line) if is_json else _parse_plain(line)
                except ValueError as error:
                    form = "--json" if is_json else "a check file"
                    raise ResumeError(
                        f"{path}: line {number} is not of {form}, so that it cannot be resumed: {error}"
                    ) from error
                if found is not None:
                    name, version = found
                    # The last line about a name counts; one with an error lets it be hashed again.
                    if version is None:
                        self._db.execute("DELETE FROM names WHERE name = ?", (_key(name),))
                    else:
                        self._db.execute(
                            "INSERT OR REPLACE INTO names VALUES (?, ?)", (_key(name), version)
                        )
        self._db.execute("COMMIT")

    def version_of(self, name: str) -> str | None:
        """Return what `hash_urls` calls `known`."""
        row = self._db.execute(
            "SELECT version FROM names WHERE name = ?", (_key(public_name(name)),)
        ).fetchone()
        return None if row is None else str(row[0])

    def close(self) -> None:
        self._db.close()
        self._directory.cleanup()


def _key(name: str) -> bytes:
    return hashlib.blake2b(os.fsencode(name), digest_size=16).digest()


def _parse_plain(line: bytes) -> tuple[str, str] | None:
    try:
        entry = parse_line(line)
    except MalformedError as error:
        raise ValueError(str(error)) from error
    return None if entry is None else (entry.name, ANY_VERSION)


def _parse_json(line: bytes) -> tuple[str, str | None]:
    fields = json.loads(line)
    if not isinstance(fields, dict) or not isinstance(fields.get("path"), str):
        raise ValueError("it has no path")
    raw = fields.get("path_bytes")
    name = os.fsdecode(bytes.fromhex(raw)) if isinstance(raw, str) else fields["path"]
    if fields.get("status") != "ok":
        return name, None
    # (`ringsum --json` records no version.)
    version = fields.get("version")
    return name, version if isinstance(version, str) else ANY_VERSION
