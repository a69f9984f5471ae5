from collections.abc import Iterable, Sequence
from os import PathLike
from types import GenericAlias, TracebackType
from typing import Any, AnyStr, Generic, Protocol, Self, TypeAlias, final, overload

from typing_extensions import Buffer

__all__ = [
    "CheckFailure",
    "CheckReport",
    "Digest",
    "Part",
    "TreeEntry",
    "TreeIterator",
    "__version__",
    "check",
    "hash_file",
    "hash_range",
    "hash_tree",
    "merge",
]

__version__: str

_Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
_File: TypeAlias = _Path | int
_Io: TypeAlias = dict[str, str | int | bool]
_Size: TypeAlias = int | str

class _Read(Protocol):
    def read(self, size: int, /) -> bytes: ...

class _ReadInto(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...

@final
class Digest:
    def __new__(cls, digest: bytes, algorithm: str = "blake3") -> Self: ...
    @property
    def algorithm(self) -> str: ...
    def digest(self) -> bytes: ...
    def hexdigest(self) -> str: ...
    def __bytes__(self) -> bytes: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[bytes, str]]: ...

@final
class Part:
    def __new__(cls, offset: int, length: int, total: int, values: bytes) -> Self: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def values(self) -> bytes: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...
    def __reduce__(self) -> tuple[type[Self], tuple[int, int, int, bytes]]: ...

@final
class TreeEntry(Generic[AnyStr]):
    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    @property
    def path(self) -> AnyStr: ...
    @property
    def digest(self) -> Digest | dict[str, Digest] | None: ...
    @property
    def size(self) -> int | None: ...
    @property
    def error(self) -> Exception | None: ...
    @property
    def skipped(self) -> str | None: ...

@final
class TreeIterator(Generic[AnyStr]):
    @classmethod
    def __class_getitem__(cls, item: Any) -> GenericAlias: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> TreeEntry[AnyStr]: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class CheckFailure:
    @property
    def path(self) -> str | bytes: ...
    @property
    def expected(self) -> Digest: ...
    @property
    def actual(self) -> Digest | None: ...
    @property
    def error(self) -> Exception | None: ...

@final
class CheckReport:
    @property
    def ok(self) -> int: ...
    @property
    def failed(self) -> list[CheckFailure]: ...
    @property
    def missing(self) -> list[str] | list[bytes]: ...
    @property
    def malformed(self) -> list[tuple[int, str]]: ...
    def __bool__(self) -> bool: ...

@overload
def hash_file(
    path_or_fd: _File,
    *,
    algorithms: None = None,
    io: _Io | None = None,
    memory: _Size | None = None,
    list_bad_ranges: bool = False,
) -> Digest: ...
@overload
def hash_file(
    path_or_fd: _File,
    *,
    algorithms: Sequence[str],
    io: _Io | None = None,
    memory: _Size | None = None,
    list_bad_ranges: bool = False,
) -> dict[str, Digest]: ...
def hash_range(
    source: _File | _Read | _ReadInto | Buffer,
    offset: int = 0,
    length: int | None = None,
    *,
    total: int | None = None,
    io: _Io | None = None,
    memory: _Size | None = None,
) -> Part: ...
def merge(parts: Iterable[Part]) -> Digest: ...
def hash_tree(
    path: AnyStr | PathLike[AnyStr],
    *,
    include: Sequence[str] | None = None,
    exclude: Sequence[str] | None = None,
    max_depth: int | None = None,
    follow_symlinks: bool = False,
    one_file_system: bool = False,
    algorithms: Sequence[str] | None = None,
    io: _Io | None = None,
    memory: _Size | None = None,
) -> TreeIterator[AnyStr]: ...
def check(
    list: _File,
    *,
    root: _Path | None = None,
    algorithms: Sequence[str] | None = None,
    zero: bool = False,
    io: _Io | None = None,
    memory: _Size | None = None,
) -> CheckReport: ...
