"""``--check``: hashes the names in check files, and compares; verdicts and messages as ``ringsum --check``."""

from __future__ import annotations

import collections
import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from .lines import Entry, MalformedError, parse_line, verdict_object
from .objects import Result

__all__ = ["CheckSettings", "Checker"]

# Malformed lines of one list that are reported individually: a binary file has millions.
MALFORMED_MAX = 10
READ_BYTES = 64 << 10


@dataclasses.dataclass(frozen=True)
class CheckSettings:
    """How verdicts are reported."""

    json: bool = False
    zero: bool = False
    quiet: bool = False
    status: bool = False
    warn: bool = False
    lenient: bool = False
    ignore_missing: bool = False


@dataclasses.dataclass(slots=True)
class _List:
    name: str
    malformed: int = 0
    verified: int = 0


@dataclasses.dataclass(slots=True)
class _Pending:
    """A line of a list in the order of the lines; without an entry it is a message, or the end of the list."""

    list: _List
    entry: Entry | None = None
    number: int = 0
    problem: str | None = None
    is_end: bool = False


class Checker:
    """Reads the lists as names are needed, and reports verdicts in the order of the lines.

    Parameters
    ----------
    write : callable
        Takes the bytes of a verdict.
    say : callable
        Takes a name, or None, and a message for standard error.
    """

    def __init__(
        self,
        settings: CheckSettings,
        write: Callable[[bytes], None],
        say: Callable[[str | None, str], None],
    ):
        self.settings = settings
        self._write = write
        self._say = say
        self._pending: collections.deque[_Pending] = collections.deque()
        self.malformed = self.unreadable = self.changed = self.mismatched = self.bad_lists = 0

    def names(self, lists: Iterable[str]) -> Iterator[str]:
        """Yield the names in the lists, for `hash_urls`; what else is in them is reported in its place."""
        for path in lists:
            one = _List(path)
            try:
                with _opened(path) as file:
                    for number, line in enumerate(
                        _lines(file, b"\0" if self.settings.zero else b"\n"), 1
                    ):
                        yield from self._take(one, number, line)
            except OSError as error:
                self._pending.append(
                    _Pending(one, problem=f"{error.strerror} (os error {error.errno})")
                )
                continue
            self._pending.append(_Pending(one, is_end=True))

    def _take(self, one: _List, number: int, line: bytes) -> Iterator[str]:
        try:
            entry = parse_line(line, zero=self.settings.zero)
        except MalformedError as error:
            self._pending.append(_Pending(one, number=number, problem=str(error)))
            return
        if entry is not None:
            self._pending.append(_Pending(one, entry))
            yield entry.name

    def take(self, result: Result) -> None:
        """Report the verdict for the next name."""
        self._report_messages()
        pending = self._pending.popleft()
        assert pending.entry is not None
        self._compare(pending.list, pending.entry, result)

    def _report_messages(self) -> None:
        while self._pending and self._pending[0].entry is None:
            pending = self._pending.popleft()
            if pending.is_end:
                self._end(pending.list)
            elif pending.number:
                self._report_malformed(pending)
            else:
                self.bad_lists += 1
                self._say(pending.list.name, pending.problem or "")

    def _report_malformed(self, pending: _Pending) -> None:
        one, settings = pending.list, self.settings
        self.malformed += 1
        one.malformed += 1
        is_hidden = settings.lenient or settings.status or one.malformed > MALFORMED_MAX
        if settings.warn or not is_hidden:
            self._say(
                one.name, f"{pending.number}: improperly formatted checksum line: {pending.problem}"
            )

    def _end(self, one: _List) -> None:
        settings = self.settings
        more = one.malformed - MALFORMED_MAX
        if more > 0 and not (settings.warn or settings.lenient or settings.status):
            lines = "line" if more == 1 else "lines"
            self._say(
                one.name,
                f"{more} more improperly formatted checksum {lines}; --warn reports all of them",
            )
        if one.verified == 0:
            self.bad_lists += 1
            if not settings.status:
                self._say(one.name, "no file was verified")

    def _compare(self, one: _List, entry: Entry, result: Result) -> None:
        settings = self.settings
        if result.status == "missing" and settings.ignore_missing:
            return
        one.verified += 1
        if result.digest is None:
            is_changed = result.status == "changed"
            self.changed += is_changed
            self.unreadable += not is_changed
            status = result.status if result.status in ("changed", "missing") else "unreadable"
            verdict = f"FAILED ({result.failure})"
            if settings.status and not settings.json:
                self._say(result.url, str(result.failure))
        elif result.digest.digest()[: len(entry.digest)] == entry.digest:
            status, verdict = "ok", "OK"
        else:
            self.mismatched += 1
            status, verdict = "mismatch", "FAILED"
        if settings.status or (settings.quiet and status == "ok"):
            return
        if settings.json:
            self._write(verdict_object(entry, status, result))
        else:
            self._write(
                entry.listed
                + b": "
                + verdict.encode("utf-8", "replace")
                + (b"\0" if settings.zero else b"\n")
            )

    def finish(self) -> bool:
        """Report the end of the lists and the warnings. Returns whether everything matches."""
        self._report_messages()
        if not self.settings.status:
            self._warn(
                self.malformed, "line is improperly formatted", "lines are improperly formatted"
            )
            self._warn(
                self.unreadable, "listed file could not be read", "listed files could not be read"
            )
            changed = (
                "listed file changed while it was read",
                "listed files changed while they were read",
            )
            self._warn(self.changed, *changed)
            self._warn(
                self.mismatched,
                "computed checksum did NOT match",
                "computed checksums did NOT match",
            )
        malformed = 0 if self.settings.lenient else self.malformed
        return self.unreadable + self.changed + self.mismatched + self.bad_lists + malformed == 0

    def _warn(self, count: int, one: str, many: str) -> None:
        if count:
            self._say(None, f"WARNING: {count} {one if count == 1 else many}")


class _opened:
    """A list, or standard input for ``-``, which stays open."""

    def __init__(self, path: str):
        self._path = path

    def __enter__(self) -> BinaryIO:
        self._file = sys.stdin.buffer if self._path == "-" else open(self._path, "rb")  # noqa: SIM115
        return self._file

    def __exit__(self, *_: object) -> None:
        if self._path != "-":
            self._file.close()


def _lines(file: BinaryIO, end: bytes) -> Iterator[bytes]:
    """Yield lines with their ends; a byte order mark at the start is skipped. Bounded: see `LINE_BYTES_MAX`."""
    from .lines import LINE_BYTES_MAX

    left, is_first = b"", True
    while data := file.read1(READ_BYTES) if hasattr(file, "read1") else file.read(READ_BYTES):
        if is_first:
            data, is_first = data.removeprefix(b"\xef\xbb\xbf"), False
        *whole, left = (left + data).split(end)
        for line in whole:
            yield line + end
        # (Of a longer line, that it is too long is all that matters.)
        left = left[: LINE_BYTES_MAX + 1]
    if left:
        yield left
