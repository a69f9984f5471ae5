"""`hash_range` and `merge`."""

from __future__ import annotations

import io
import mmap
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import blake3
import pytest
import ringsum
from contents import content


def parts_at(data: bytes, cuts: list[int]) -> list[ringsum.Part]:
    """Parts of bytes in memory, cut at some offsets."""
    ends = [0, *cuts, len(data)]
    return [
        ringsum.hash_range(memoryview(data)[start:end], start, total=len(data))
        for start, end in zip(ends, ends[1:])
    ]


def test_any_cuts_in_any_order_give_the_digest() -> None:
    random.seed(1)
    lengths = [1025, 2048, 2049, 4096, 5000, 7168, 65536, 65537, 200_000]
    for length in lengths:
        data = content(length)
        expected = blake3.blake3(data).digest()
        for _ in range(30):
            inner = range(1024, length, 1024)
            cuts = sorted(random.sample(inner, random.randint(0, min(len(inner), 12))))
            parts = parts_at(data, cuts)
            random.shuffle(parts)
            assert ringsum.merge(parts).digest() == expected, (length, cuts)
            assert ringsum.merge(iter(parts)).digest() == expected


@pytest.mark.parametrize("length", [0, 1, 1024])
def test_one_chunk_is_a_part(length: int) -> None:
    data = content(length)
    part = ringsum.hash_range(data, total=length)
    assert ringsum.merge([part]).digest() == blake3.blake3(data).digest()


class OnlyRead:
    """A file object that returns fewer bytes than requested."""

    def __init__(self, data: bytes, most: int) -> None:
        self.file = io.BytesIO(data)
        self.most = most
        self.asked: list[int] = []

    def read(self, size: int) -> bytes:
        self.asked.append(size)
        return self.file.read(min(size, self.most))


class OnlyReadInto:
    def __init__(self, data: bytes) -> None:
        self.file = io.BytesIO(data)

    def readinto(self, buffer: memoryview) -> int:
        return self.file.readinto(buffer[: 300_000])


def test_every_source_gives_the_same_part(tmp_path: Path) -> None:
    data = content(5_000_001)
    path = tmp_path / "file"
    path.write_bytes(data)
    total = len(data)
    ranges = [
        (0, total),
        (0, 1024),
        (0, 1 << 20),
        (1 << 20, 1 << 20),
        (1024, 4 << 20),
        (3 << 20, total - (3 << 20)),
        (5_000_001 // 1024 * 1024, 5_000_001 % 1024),
    ]
    for offset, length in ranges:
        end = offset + length
        expected = ringsum.hash_range(data[offset:end], offset, total=total)
        assert (expected.offset, expected.length, expected.total) == (offset, length, total)
        with open(path, "rb") as file, open(path, "rb") as positioned:
            positioned.seek(offset)
            mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            sources: list[ringsum.Part] = [
                ringsum.hash_range(path, offset, length),
                ringsum.hash_range(str(path), offset, length, total=total),
                ringsum.hash_range(os.fsencode(path), offset, length),
                ringsum.hash_range(path, offset, length, io={"engine": "pread"}, memory="1M"),
                ringsum.hash_range(path, offset, length, io={"block_size": 2000, "order": "in-order"}),
                ringsum.hash_range(file.fileno(), offset, length),
                ringsum.hash_range(positioned, offset, length, total=total),
                ringsum.hash_range(OnlyRead(data[offset:], 70_001), offset, length, total=total),
                ringsum.hash_range(OnlyRead(data[offset:], 1 << 30), offset, length, total=total),
                ringsum.hash_range(OnlyReadInto(data[offset:]), offset, length, total=total),
                ringsum.hash_range(bytearray(data[offset:end]), offset, total=total),
                ringsum.hash_range(memoryview(mapping)[offset:end], offset, length, total=total),
            ]
            assert positioned.tell() == end
            assert all(part == expected for part in sources), (offset, length)
    rest = ringsum.hash_range(path, 1 << 20)
    assert rest.length == total - (1 << 20)
    assert rest == ringsum.hash_range(OnlyRead(data[1 << 20 :], 1 << 20), 1 << 20, total=total)


def test_a_descriptor_may_be_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(10_000))
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        assert ringsum.hash_range(file.fileno(), 1024, 2048) == ringsum.hash_range(path, 1024, 2048)
        assert file.tell() == 10_000


def test_no_more_is_read_than_the_range() -> None:
    reader = OnlyRead(content(5 << 20), 1 << 30)
    ringsum.hash_range(reader, 0, 3 << 20, total=5 << 20)
    assert sum(reader.asked) == 3 << 20 and max(reader.asked) <= 1 << 20


def test_parts_are_values(tmp_path: Path) -> None:
    data = content(5000)
    one, other = parts_at(data, [2048])
    for part in (one, other, ringsum.hash_range(data, total=5000)):
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(part, protocol)) == part
    assert one != other and one == parts_at(data, [2048])[0]
    assert len({one, other, parts_at(data, [2048])[0]}) == 2
    assert repr(one) == "Part(offset=0, length=2048, total=5000)"
    assert ringsum.Part(other.offset, other.length, other.total, other.values) == other
    # One value for a subtree, however long it is.
    assert len(ringsum.hash_range(bytes(1 << 20), 1 << 20, total=1 << 40).values) == 32
    for wrong in [
        (1, 1024, 5000, bytes(32)),
        (0, 1000, 5000, bytes(32)),
        (0, 1024, 5000, bytes(31)),
        (0, 1024, 5000, bytes(64)),
        (0, 6000, 5000, bytes(64)),
        (0, 0, 5000, b""),
        ((1 << 64) - 1024, 1024, (1 << 64) - 1, bytes(32)),
    ]:
        with pytest.raises(ValueError):
            ringsum.Part(*wrong)


def test_ranges_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(10_000))
    for offset, length in [(1, None), (512, 512), (0, 1000), (1024, 100), (10_000, None)]:
        with pytest.raises(ValueError):
            ringsum.hash_range(path, offset, length)
    for offset, length in [(0, 10_001), (9216, 1024), (20_480, 1024), (0, 0)]:
        with pytest.raises(ValueError):
            ringsum.hash_range(path, offset, length)
    with pytest.raises(OverflowError):
        ringsum.hash_range(path, -1024)
    with pytest.raises(ValueError, match="total"):
        ringsum.hash_range(io.BytesIO(b"x"))
    with pytest.raises(ValueError, match="total"):
        ringsum.hash_range(bytearray(b"x"))
    with pytest.raises(ValueError, match="length"):
        ringsum.hash_range(bytearray(2048), 0, 1024, total=4096)
    with pytest.raises(ValueError, match="io"):
        ringsum.hash_range(io.BytesIO(b"x"), total=1, io={"engine": "pread"})
    with pytest.raises(TypeError):
        ringsum.hash_range(object(), total=1)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="contiguous"):
        ringsum.hash_range(memoryview(bytes(2048))[::2], total=1024)
    reader, writer = os.pipe()
    with pytest.raises(ValueError, match="no ranges"):
        ringsum.hash_range(reader, 0, 1024)
    os.close(reader)
    os.close(writer)


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(10_000))
    for total, how in [(9999, "grew"), (20_000, "shrank")]:
        with pytest.raises(ringsum.ChangedError) as changed:
            ringsum.hash_range(path, 0, 1024, total=total)
        error = changed.value
        assert (error.how, error.size_before, error.size_after) == (how, total, 10_000)


@pytest.mark.parametrize("length", [4096, 4 << 20])
def test_a_stream_that_ends_early_has_no_part(length: int) -> None:
    for source in [OnlyRead(bytes(length - 1), 1 << 20), OnlyReadInto(bytes(length - 1))]:
        with pytest.raises(ringsum.ChangedError, match="ended after") as changed:
            ringsum.hash_range(source, 0, length, total=2 * length)
        assert changed.value.how == "shrank"
        assert (changed.value.size_before, changed.value.size_after) == (length, length - 1)


@pytest.mark.parametrize("length", [4096, 4 << 20])
def test_what_read_does_wrong(length: int) -> None:
    class Returns:
        def __init__(self, result: object) -> None:
            self.result = result

        def read(self, size: int) -> object:
            if isinstance(self.result, Exception):
                raise self.result
            return self.result

    for result, error in [
        (KeyError("mine"), KeyError),
        ("text", TypeError),
        (5, TypeError),
        (None, BlockingIOError),
        (bytes(5 << 20), ValueError),
    ]:
        with pytest.raises(error):
            ringsum.hash_range(Returns(result), 0, length, total=length)  # type: ignore[arg-type]


def test_parts_that_do_not_fit() -> None:
    data = content(10_000)
    one, two, three = parts_at(data, [2048, 4096])
    whole = ringsum.hash_range(data, total=len(data))
    expected = blake3.blake3(data).digest()
    assert ringsum.merge([three, one, two]).digest() == ringsum.merge([whole]).digest() == expected
    cases = [
        ([], "no parts"),
        ([two, three], "bytes 0 to 2047 of 10000 are missing"),
        ([one, three], "bytes 2048 to 4095 of 10000 are missing"),
        ([one, two], "bytes 4096 to 9999 of 10000 are missing"),
        ([one, two, two, three], "overlap: bytes 2048 to 4095"),
        ([one, whole], "overlap: bytes 0 to 2047"),
        ([whole, whole], "overlap: bytes 0 to 9999"),
        ([one, two, ringsum.hash_range(bytes(1024), 4096, total=5120)], "10000 and of 5120"),
        ([one, ringsum.hash_range(data[1024:], 1024, total=10_000)], "overlap: bytes 1024 to 2047"),
    ]
    for parts, message in cases:
        with pytest.raises(ValueError, match=message):
            ringsum.merge(parts)
    with pytest.raises(TypeError):
        ringsum.merge([b"x"])  # type: ignore[list-item]
    with pytest.raises(TypeError):
        ringsum.merge(one)  # type: ignore[arg-type]


STREAM = """
import resource, ringsum, sys

class Zeros:
    block = bytes(1 << 20)
    def read(self, size):
        return self.block[:size] if size < len(self.block) else bytes(size)

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

ringsum.hash_range(Zeros(), 0, 16 << 20, total=1 << 40)
before = peak()
ringsum.hash_range(Zeros(), 1024, 1 << 30, total=1 << 40)
print(peak() - before)
"""


def test_a_stream_takes_little_memory() -> None:
    ran = subprocess.run([sys.executable, "-c", STREAM], capture_output=True, text=True, check=True)
    assert int(ran.stdout) < 8 << 10, "KiB more for 1 GiB than for 16 MiB"
