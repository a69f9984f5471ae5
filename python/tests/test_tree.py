"""`hash_tree`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import blake3
import pytest
import ringsum
from contents import content


@pytest.fixture
def tree(in_tmp: Path) -> Path:
    root = in_tmp / "t"
    files = {"a/x": 10, "a-b": 0, "a0": 5000, "b/c/d.o": 3, "b/c/e": 2 << 20, "b/deep.o/f": 7}
    for name, length in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content(length))
    return root


def paths(**keywords) -> list[str]:
    return [entry.path for entry in ringsum.hash_tree("t", **keywords)]


def test_entries_come_in_order(tree: Path) -> None:
    entries = list(ringsum.hash_tree("t"))
    names = ["t/a-b", "t/a/x", "t/a0", "t/b/c/d.o", "t/b/c/e", "t/b/deep.o/f"]
    assert [entry.path for entry in entries] == names
    for entry in entries:
        data = Path(entry.path).read_bytes()
        assert isinstance(entry.digest, ringsum.Digest)
        assert entry.digest.digest() == blake3.blake3(data).digest()
        assert (entry.size, entry.error, entry.skipped) == (len(data), None, None)
    assert "t/a-b" in repr(entries[0])
    # The root is kept as given, whatever its type is.
    assert next(ringsum.hash_tree(tree)).path == str(tree / "a-b")
    assert next(ringsum.hash_tree(b"t")).path == b"t/a-b"
    assert next(ringsum.hash_tree("t//")).path == "t/a-b"


def test_selection(tree: Path) -> None:
    everything = paths()
    assert paths(exclude=["*.o"]) == ["t/a-b", "t/a/x", "t/a0", "t/b/c/e"]
    assert paths(include=["*.o"]) == ["t/b/c/d.o"]
    assert paths(include=["b/**"], exclude=["b/c/"]) == ["t/b/deep.o/f"]
    assert paths(exclude=["/b"]) == ["t/a-b", "t/a/x", "t/a0"]
    assert paths(max_depth=1) == ["t/a-b", "t/a0"]
    assert paths(include=[]) == []
    assert paths(exclude=[]) == everything
    for keywords in [{"include": ["a["]}, {"max_depth": 0}, {"exclude": ["x" * 5000]}]:
        with pytest.raises(ValueError):
            ringsum.hash_tree("t", **keywords)


@pytest.mark.parametrize(
    "keywords",
    [
        {"memory": "4M"},
        {"io": {"engine": "pread"}},
        {"io": {"engine": "mmap"}},
        {"io": {"order": "in-order"}, "memory": 8 << 20},
        {"io": {"page_cache": "buffered"}},
    ],
)
def test_options_change_no_digest(tree: Path, keywords: dict) -> None:
    plain = [(entry.path, entry.digest, entry.size) for entry in ringsum.hash_tree("t")]
    other = [(entry.path, entry.digest, entry.size) for entry in ringsum.hash_tree("t", **keywords)]
    assert plain == other


def test_several_algorithms(tree: Path) -> None:
    for entry in ringsum.hash_tree("t", algorithms=["sha256", "blake3"]):
        assert entry.digest == ringsum.hash_file(entry.path, algorithms=["sha256", "blake3"])


def test_what_has_no_content(tree: Path) -> None:
    os.mkfifo(tree / "fifo")
    (tree / "link").symlink_to("a0")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("t/socket")
        found = {entry.path: entry for entry in ringsum.hash_tree("t")}
    assert found["t/fifo"].skipped == "a FIFO" and found["t/socket"].skipped == "a socket"
    assert found["t/fifo"].digest is None and found["t/fifo"].error is None
    assert "t/link" not in found
    followed = {entry.path: entry for entry in ringsum.hash_tree("t", follow_symlinks=True)}
    assert followed["t/link"].digest == followed["t/a0"].digest


def test_errors_are_entries(tree: Path) -> None:
    (tree / "a-dangling").symlink_to("nowhere")
    entries = list(ringsum.hash_tree("t", follow_symlinks=True))
    [failed] = [entry for entry in entries if entry.error]
    assert failed.path == "t/a-dangling" and failed.digest is None and len(entries) == 7
    assert isinstance(failed.error, FileNotFoundError)
    assert failed.error.filename == "t/a-dangling"
    if os.geteuid() != 0:
        (tree / "a0").chmod(0)
        found = {entry.path: entry for entry in ringsum.hash_tree("t")}
        assert isinstance(found["t/a0"].error, PermissionError)


def test_roots_that_are_no_directories(tree: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ringsum.hash_tree("none")
    with pytest.raises(NotADirectoryError):
        ringsum.hash_tree("t/a0")
    with pytest.raises(TypeError):
        ringsum.hash_tree(3)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        ringsum.hash_tree("t", memory="1M")


def running() -> tuple[int, int]:
    """Threads and descriptors of this process."""
    return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))


def wait_for(expected: tuple[int, int]) -> tuple[int, int]:
    end = time.monotonic() + 10
    while (now := running()) != expected and time.monotonic() < end:
        time.sleep(0.01)
    return now


@pytest.mark.parametrize("how", ["break", "close", "with", "error"])
def test_who_stops_early_stops_the_run(tree: Path, sparse: Path, how: str) -> None:
    sparse.rename(tree / "a-long")
    before = running()
    iterator = ringsum.hash_tree("t", exclude=["a-b"])
    if how == "break":
        # It is not read to its end: that takes minutes.
        time.sleep(0.2)
        del iterator
    elif how == "close":
        time.sleep(0.2)
        iterator.close()
        assert list(iterator) == []
    elif how == "with":
        with iterator:
            time.sleep(0.1)
    else:
        with pytest.raises(RuntimeError), iterator:
            raise RuntimeError
    assert wait_for(before) == before


def test_the_run_does_not_race_ahead(tmp_path: Path) -> None:
    count, length = 40_000, 4096
    for index in range(count):
        (tmp_path / f"{index % 16}").mkdir(exist_ok=True)
        (tmp_path / f"{index % 16}" / f"{index}").write_bytes(bytes(length))

    def read_bytes() -> int:
        [line] = [line for line in open("/proc/self/io") if line.startswith("rchar")]
        return int(line.split()[1])

    before = read_bytes()
    iterator = ringsum.hash_tree(tmp_path)
    next(iterator)
    # It stops by itself,
    last = -1
    while (now := read_bytes() - before) > last + (1 << 20):
        last = now
        time.sleep(0.5)
    # and far from the end.
    assert now < count * length * 3 // 4
    assert 1 + sum(1 for _ in iterator) == count




def test_the_interpreter_may_exit_meanwhile(tree: Path, sparse: Path) -> None:
    sparse.rename(tree / "z-long")
    code = "import ringsum; i = ringsum.hash_tree('t'); print(next(i).path)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "t/a-b\n", "")
