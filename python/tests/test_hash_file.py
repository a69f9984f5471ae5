"""`hash_file`, and the digests that it returns."""

from __future__ import annotations

import copy
import hashlib
import os
import pickle
import shutil
import subprocess
import threading
import time
from pathlib import Path

import blake3
import pytest
import ringsum
from contents import content


@pytest.mark.parametrize("length", [0, 1, 1023, 1024, 1025, 65536, 600_001, 3 << 20])
def test_lengths(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(length))
    expected = blake3.blake3(content(length))
    digest = ringsum.hash_file(path)
    assert digest.hexdigest() == str(digest) == expected.hexdigest()
    assert digest.digest() == bytes(digest) == expected.digest()
    assert digest.algorithm == "blake3"


def test_every_kind_of_path(in_tmp: Path) -> None:
    name = os.fsdecode(b"n\xff\xc3\xb6me \n")
    Path(name).write_bytes(content(5000))
    expected = blake3.blake3(content(5000)).digest()
    assert ringsum.hash_file(name).digest() == expected
    assert ringsum.hash_file(os.fsencode(name)).digest() == expected
    assert ringsum.hash_file(in_tmp / name).digest() == expected
    with open(name, "rb") as file:
        assert ringsum.hash_file(file.fileno()).digest() == expected
        # The file position counts, and stays where it is.
        file.seek(1000)
        digest = ringsum.hash_file(file.fileno())
        assert digest.digest() == blake3.blake3(content(5000)[1000:]).digest()
        assert os.lseek(file.fileno(), 0, os.SEEK_CUR) == 1000
        # The descriptor stays open.
        assert os.fstat(file.fileno()).st_size == 5000


@pytest.mark.parametrize("length", [10, 3 << 20])
def test_a_pipe(length: int) -> None:
    reader, writer = os.pipe()

    def write() -> None:
        with open(writer, "wb") as file:
            file.write(content(length))

    thread = threading.Thread(target=write)
    thread.start()
    digest = ringsum.hash_file(reader)
    thread.join()
    os.close(reader)
    assert digest.digest() == blake3.blake3(content(length)).digest()


@pytest.mark.parametrize("length", [100, 2_000_000])
def test_several_algorithms(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(length))
    names = ["sha256", "md5", "BLAKE3", "sha1", "sha512", "SHA3-256", "blake2b"]
    digests = ringsum.hash_file(path, algorithms=names)
    assert list(digests) == ["sha256", "md5", "blake3", "sha1", "sha512", "sha3-256", "blake2b"]
    for name, digest in digests.items():
        assert digest.algorithm == name
        if name != "blake3":
            expected = hashlib.new(name.replace("-", "_"), content(length))
            assert digest.digest() == expected.digest(), name
    assert digests["blake3"] == ringsum.hash_file(path)


@pytest.mark.parametrize(
    "io",
    [
        {"engine": "pread"},
        {"engine": "pread", "block_size": "64KiB"},
        {"block-size": 65536, "workers": 1},
        {"engine": "pool", "order": "in-order"},
        {"engine": "stream"},
        {"engine": "mmap"},
    ],
)
def test_explicit_options(tmp_path: Path, io: dict[str, str | int | bool]) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(3_000_000))
    digest = ringsum.hash_file(path, io=io, memory="16M")
    assert digest.digest() == blake3.blake3(content(3_000_000)).digest()


def test_invalid_arguments(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    for keywords in [
        {"algorithms": ["sha257"]},
        {"algorithms": []},
        {"io": {"engine": "warp"}},
        {"io": {"no such": 1}},
        {"memory": "1"},
        {"memory": "much"},
        {"io": {"engine": "null"}},
    ]:
        with pytest.raises(ValueError):
            ringsum.hash_file(path, **keywords)
    for wrong in [None, 1.5, True, object(), b"x" == b"x"]:
        with pytest.raises(TypeError):
            ringsum.hash_file(wrong)  # type: ignore[call-overload]
    for wrong in ["a\0b", b"a\0b", -1]:
        with pytest.raises(ValueError):
            ringsum.hash_file(wrong)
    with pytest.raises(TypeError):
        ringsum.hash_file(path, io={"engine": 1.5})  # type: ignore[dict-item]


def test_what_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as missing:
        ringsum.hash_file(tmp_path / "none")
    assert missing.value.filename == str(tmp_path / "none")
    with pytest.raises(IsADirectoryError):
        ringsum.hash_file(tmp_path)
    with pytest.raises(OSError) as closed:
        ringsum.hash_file(12345)
    assert closed.value.errno == 9
    (tmp_path / "secret").write_bytes(b"x")
    (tmp_path / "secret").chmod(0)
    if os.geteuid() == 0:
        return
    with pytest.raises(PermissionError):
        ringsum.hash_file(tmp_path / "secret")


def test_a_refused_option_is_an_error(in_tmp: Path) -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises((ringsum.UnsupportedError, ValueError)):
            ringsum.hash_file(reader, io={"engine": "io_uring"})
    finally:
        os.close(reader)
        os.close(writer)


def test_a_file_that_grows_has_no_digest(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        os.ftruncate(file.fileno(), 2 << 30)
    failures: list[BaseException] = []

    def hash_it() -> None:
        try:
            # (Slow enough to be in the middle of it.)
            ringsum.hash_file(path, algorithms=["md5"])
        except OSError as error:
            failures.append(error)

    thread = threading.Thread(target=hash_it)
    thread.start()
    time.sleep(0.2)
    with open(path, "ab") as file:
        file.write(b"more")
    thread.join()
    [error] = failures
    assert isinstance(error, ringsum.ChangedError)
    assert (error.how, error.size_before, error.size_after) == ("grew", 2 << 30, (2 << 30) + 4)
    assert error.filename == str(path)
    again = pickle.loads(pickle.dumps(error))
    assert (again.how, again.size_after, str(again)) == ("grew", (2 << 30) + 4, str(error))


@pytest.fixture
def damaged_device(tmp_path: Path):
    """A block device of 8 MiB whose second half cannot be read."""
    losetup = shutil.which("losetup")
    if os.geteuid() != 0 or losetup is None:
        pytest.skip("a loop device needs root and losetup")
    backing = tmp_path / "backing"
    backing.write_bytes(content(8 << 20))
    made = subprocess.run([losetup, "-f", "--show", backing], capture_output=True, text=True)
    if made.returncode != 0:
        pytest.skip(f"no loop device: {made.stderr.strip()}")
    device = made.stdout.strip()
    os.truncate(backing, 4 << 20)
    yield device
    subprocess.run([losetup, "-d", device], check=True)


def test_unreadable_bytes_are_named(damaged_device: str) -> None:
    with pytest.raises(ringsum.ReadError) as failed:
        ringsum.hash_file(damaged_device)
    assert failed.value.errno == 5
    assert failed.value.filename == damaged_device
    [(offset, length)] = failed.value.ranges
    assert 4 << 20 <= offset < offset + length <= 8 << 20
    assert pickle.loads(pickle.dumps(failed.value)).ranges == failed.value.ranges
    with pytest.raises(ringsum.ReadError) as failed:
        ringsum.hash_file(damaged_device, list_bad_ranges=True)
    assert sum(length for _, length in failed.value.ranges) == 4 << 20
    assert failed.value.ranges[0][0] == 4 << 20


def test_exceptions_are_those_that_users_expect() -> None:
    for kind in (ringsum.ReadError, ringsum.ChangedError, ringsum.UnsupportedError):
        assert issubclass(kind, OSError) and issubclass(kind, ringsum.Error)
    error = ringsum.ReadError(5, "read failed", "a.iso", [(0, 4096)])
    assert str(error) == "[Errno 5] read failed: 'a.iso'"
    assert copy.copy(error).ranges == [(0, 4096)]


def test_digests_are_values() -> None:
    one = ringsum.Digest(bytes(32))
    assert one == ringsum.Digest(bytes(32), "blake3") and hash(one) == hash(ringsum.Digest(bytes(32)))
    assert one != ringsum.Digest(bytes(32), "sha256") and one != bytes(32) and one != "00" * 32
    assert pickle.loads(pickle.dumps(one)) == copy.deepcopy(one) == one
    assert {one: 1}[ringsum.Digest(bytes(32))] == 1
    assert repr(one) == f"Digest(blake3:{'00' * 32})"
    short = ringsum.Digest(bytes(20), "blake2b")
    assert pickle.loads(pickle.dumps(short)) == short
    for bytes_, name in [(b"", "blake3"), (bytes(31), "sha256"), (bytes(65), "blake2b"), (b"", "x")]:
        with pytest.raises(ValueError):
            ringsum.Digest(bytes_, name)


@pytest.mark.parametrize("length", [100, 4 << 30])
def test_other_threads_run_meanwhile(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        os.ftruncate(file.fileno(), length)
    stop = threading.Event()

    def hash_it() -> None:
        while not stop.is_set():
            ringsum.hash_file(path)

    thread = threading.Thread(target=hash_it)
    thread.start()
    start = time.monotonic()
    turns = 0
    while time.monotonic() - start < 0.3:
        turns += 1
        time.sleep(0.001)
    stop.set()
    thread.join()
    # Without the GIL released, a file of 4 GiB would not leave even two.
    assert turns > 10
