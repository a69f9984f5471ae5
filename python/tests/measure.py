"""Measures calls beside the command, interleaved: `python python/tests/measure.py RINGSUM FILE TREE [ROUNDS]`.

FILE, of 1 GiB or so, and TREE should fit in the page cache. The command's time is that of its process;
`true` shows what a process takes by itself.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time

import ringsum


def seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def interleaved(cases: dict, rounds: int) -> None:
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, call in cases.items():
            times[name].append(seconds(call))
    for name, all_of_it in times.items():
        median, least = statistics.median(all_of_it), min(all_of_it)
        print(f"{name:40} median {median * 1000:9.3f} ms, minimum {least * 1000:9.3f} ms")


def command(*arguments: str):
    return lambda: subprocess.run(arguments, stdout=subprocess.DEVNULL, check=True)


def drain(entries) -> None:
    for entry in entries:
        assert entry.digest


def main(program: str, file: str, tree: str, rounds: str = "15") -> None:
    count = int(rounds)
    for _ in range(2):
        ringsum.hash_file(file, io={"page-cache": "buffered"})
        drain(ringsum.hash_tree(tree, io={"page-cache": "buffered"}))
    cases = {"true": command("/bin/true")}
    for engine in ["automatic", "pread"]:
        io = {} if engine == "automatic" else {"engine": engine}
        options = [] if engine == "automatic" else ["--io", f"engine={engine}"]
        cases[f"command, {engine}"] = command(program, *options, file)
        cases[f"hash_file, {engine}"] = lambda io=io: ringsum.hash_file(file, io=io)
    interleaved(cases, count)
    interleaved(
        {
            "command -r": command(program, "-r", tree),
            "hash_tree": lambda: drain(ringsum.hash_tree(tree)),
        },
        count,
    )
    with tempfile.NamedTemporaryFile() as short:
        short.write(bytes(1024))
        short.flush()
        for times in (1000, 10_000):
            took = seconds(lambda: [ringsum.hash_file(short.name) for _ in range(times)])
        print(f"{'hash_file, 1 KiB':40} mean   {took / times * 1e6:9.3f} us")


main(*sys.argv[1:])
