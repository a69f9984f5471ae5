"""Calls from several threads at once, on interpreters with and without the GIL."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import sysconfig
import threading
import time
from pathlib import Path

import pytest
import ringsum
from contents import content

THREADS = 8
ROUNDS = 10
LENGTH = (2 << 20) + 1
is_free_threaded = pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this interpreter has the GIL"
)


@is_free_threaded
def test_the_gil_stays_off() -> None:
    code = "import ringsum, sys; assert not sys._is_gil_enabled()"
    # (CPython warns if a module turns it on, so that this would fail twice.)
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True)
    assert (ran.returncode, ran.stderr) == (0, b"")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    for number in range(40):
        (tmp_path / "tree" / f"{number:02}").write_bytes(content(number * 1000))
    (tmp_path / "file").write_bytes(content(LENGTH))
    lines = (f"{entry.digest}  {entry.path}\n" for entry in ringsum.hash_tree(tmp_path / "tree"))
    (tmp_path / "sums").write_text("".join(lines))
    return tmp_path


def in_threads(work) -> list:
    """Run `work` in all threads, which start it together."""
    start = threading.Barrier(THREADS)

    def run(number: int):
        start.wait()
        return [work(number) for _ in range(ROUNDS)]

    with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
        return [result for results in pool.map(run, range(THREADS)) for result in results]


def test_each_thread_gets_the_same(folder: Path) -> None:
    path = folder / "file"
    half = 1 << 20

    def work(number: int):
        match number % 4:
            case 0:
                return ringsum.hash_file(path)
            case 1:
                parts = [ringsum.hash_range(path, half), ringsum.hash_range(path, 0, half)]
                return ringsum.merge(parts)
            case 2:
                with open(path, "rb") as file:
                    return ringsum.merge([ringsum.hash_range(file, 0, total=LENGTH)])
            case _:
                return ringsum.hash_file(path, algorithms=["blake3", "sha256"])["blake3"]

    assert set(in_threads(work)) == {ringsum.hash_file(path)}


def test_trees_and_lists(folder: Path) -> None:
    def work(number: int):
        if number % 2:
            report = ringsum.check(folder / "sums")
            return report.ok if report else None
        return len({entry.digest for entry in ringsum.hash_tree(folder / "tree")})

    assert set(in_threads(work)) == {40}


def test_threads_that_share_one_iterator(tmp_path: Path) -> None:
    # Entries come to waiting threads in batches of 256.
    expected = [str(tmp_path / f"{number:04}") for number in range(3000)]
    for path in expected:
        Path(path).touch()
    for _ in range(10):
        entries = ringsum.hash_tree(tmp_path)
        start = threading.Barrier(THREADS)

        def take(_: int, entries=entries, start=start) -> list[str]:
            start.wait()
            # (The pause lets a thread meet another one that has not used up its batch.)
            return [(entry.path, time.sleep(0.0002))[0] for entry in entries]

        with concurrent.futures.ThreadPoolExecutor(THREADS) as pool:
            taken = list(pool.map(take, range(THREADS)))
        # Each entry reaches one thread, and each thread gets its entries in order.
        assert sorted(path for paths in taken for path in paths) == expected
        assert all(paths == sorted(paths) for paths in taken)


def test_threads_that_share_one_buffer() -> None:
    data = content(LENGTH)
    expected = ringsum.merge([ringsum.hash_range(data, total=LENGTH)])
    shared = bytearray(data)
    assert set(
        in_threads(lambda _: ringsum.merge([ringsum.hash_range(shared, total=LENGTH)]))
    ) == {expected}
