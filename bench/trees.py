#!/usr/bin/env python3
"""Measure ringsum on a tree of files against b3sum, and write the tables of docs/trees.md.

    sudo bench/trees.py TREE [--runs N] [--out FOLDER] [--ringsum BINARY] [--only GROUP]

TREE is a folder of 50,000 files or more, on the disk to be measured: a copy of installed software
(`cp -a /usr FOLDER/usr`) is a good one. Needs root (to drop the page cache), Python 3.9, `b3sum` (cargo
install b3sum), `find`, `xargs`, and `cargo build --release`.

The runs of one group are interleaved, A B C, A B C, so that a drift of the machine's speed affects all alike.
Raw samples go to OUT/trees.jsonl (default: bench/runs/DATE-HOST), the table to OUT/trees.md. Nothing else
should run meanwhile. Groups: cold, alone (compared with `find`, which only calls `stat`), warm, index, engines,
scale (the folders scale-10000, scale-100000 and scale-1000000 beside TREE's parent, if they exist, with that
many empty and tiny files).

Before and after each command a fixed loop is timed (`yardstick_ms`, the mean). If its processor time varies, so
does the worth of a second of processor time, as in a virtual machine that shares its host.
"""

import argparse
import datetime
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

import turns


def cached_kib():
    for line in pathlib.Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("Cached:"):
            return int(line.split()[1])
    return 0


def yardstick():
    """Processor time of the same loop, in milliseconds."""
    start, x = time.process_time(), 0
    for k in range(500_000):
        x += k
    return (time.process_time() - start) * 1000


def compare(commands, runs, cold, warming=None):
    """The samples of each command, by their names. `warming` runs before each: a kernel may reclaim
    pages that are not read for some seconds (DAMON), and then not all of them are warm."""
    samples = {name: [] for name in commands}
    for round_ in range(runs if cold else runs + 1):
        for name, command in commands.items():
            if cold:
                turns.drop_caches()
            elif warming:
                subprocess.run(turns.shell(warming), check=True)
            ms, cached = yardstick(), cached_kib()
            sample = turns.run(turns.shell(command))
            sample["cached_mib"] = (cached_kib() - cached) / 1024
            sample["yardstick_ms"] = (ms + yardstick()) / 2
            # The first round of warm runs only warms.
            if cold or round_ > 0:
                samples[name].append(sample)
                print(f"  {name:44} {sample['wall']:7.3f} s, {sample['cpu']:6.2f} s of CPU")
    return samples


class Bench:
    def __init__(self, args, out):
        self.args, self.page = args, turns.Page(out, "trees")

    def group(self, title, commands, cold, runs=None, warming=None):
        """Runs a group, and adds its table."""
        print(title)
        samples = compare(commands, runs or self.args.runs, cold, warming)
        more = {"CPU s": ("cpu", 2), "peak MiB": ("rss_mib", 0), "page cache MiB": ("cached_mib", 0)}
        self.page.table(title, samples, more)
        loops = sorted(sample["yardstick_ms"] for each in samples.values() for sample in each)
        self.page.lines.append(
            f"\nThe fixed loop took {loops[0]:.0f} ms of processor time at least, "
            f"median {statistics.median(loops):.0f} ms, {loops[-1]:.0f} ms at most."
        )
        self.page.write()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--ringsum", default=turns.RINGSUM)
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("only root can drop the page cache")
    b3sum = shutil.which("b3sum") or sys.exit("b3sum is not installed")
    stamp = f"{datetime.date.today()}-{os.uname().nodename}"
    out = args.out or turns.ROOT / "bench/runs" / stamp
    out.mkdir(parents=True, exist_ok=True)
    wants = lambda group: not args.only or group in args.only

    tree, ringsum = str(args.tree.resolve()), args.ringsum
    names = out.resolve() / "names.tmp"
    index = out.resolve() / "index.tmp"
    with names.open("wb") as file:
        subprocess.run(["find", tree, "-type", "f", "-print0"], stdout=file, check=True)
    files = names.read_bytes().count(b"\0")
    data = sum(os.lstat(name).st_size for name in names.read_bytes().split(b"\0") if name)
    bench = Bench(args, out)
    bench.page.facts({**turns.machine(tree), "files": files, "bytes": data})
    bench.page.lines.append(f"{files:,} files, {data / 1e9:.2f} GB.")
    one = f"xargs -0 {b3sum} <{names}"
    many = f"xargs -0 -P16 -n500 {b3sum} --num-threads 1 <{names}"
    two = f"xargs -0 -P2 -n500 {b3sum} --num-threads 1 <{names}"
    short = lambda name: name.replace(b3sum, "b3sum").replace(f" <{names}", "")
    try:
        if wants("cold"):
            commands = {
                "ringsum -r": f"{ringsum} -r {tree}",
                "ringsum -r --io page-cache=direct": f"{ringsum} -r --io page-cache=direct {tree}",
                short(one): one,
                short(many): many,
            }
            bench.group("Cold", commands, cold=True)
        if wants("alone"):
            commands = {
                "find -size +0": f"find {tree} -type f -size +0",
                "ringsum -r": f"{ringsum} -r {tree}",
            }
            bench.group("Cold, compared with `stat` alone", commands, cold=True, runs=2 * args.runs + 1)
        if wants("warm"):
            commands = {"ringsum -r": f"{ringsum} -r {tree}", short(one): one, short(two): two}
            # Directories, too: only some of the commands read them.
            warming = f"find {tree} -type f -print0 | xargs -0 cat"
            bench.group("Warm", commands, cold=False, runs=2 * args.runs + 1, warming=warming)
        if wants("index"):
            subprocess.run(turns.shell(f"{ringsum} -r --index {index} {tree}"), check=True)
            commands = {
                "find -printf '%s %T@\\n'": f"find {tree} -printf '%s %T@\\n'",
                "ringsum -r --index": f"{ringsum} -r --index {index} {tree}",
            }
            bench.group("Unchanged, with an index, warm", commands, cold=False, runs=2 * args.runs + 1)
            bench.group("Unchanged, with an index, cold", commands, cold=True)
        if wants("engines"):
            commands = {"ringsum -r": f"{ringsum} -r {tree}"}
            for option in (
                "--io page-cache=buffered",
                "--io page-cache=dontcache",
                "--io engine=pread --io page-cache=direct",
                "--io engine=pread --io page-cache=direct -j 64",
                "-j 4",
                "-j 32",
            ):
                commands[f"ringsum -r {option}"] = f"{ringsum} -r {option} {tree}"
            bench.group("Cold, other ways", commands, cold=True)
        if wants("scale"):
            commands = {}
            for count in (10_000, 100_000, 1_000_000):
                folder = args.tree.parent / f"../scale-{count}"
                if folder.is_dir():
                    commands[f"{count:,} tiny files"] = f"{ringsum} -r {folder.resolve()}"
            bench.group("Empty and tiny files, cold", commands, cold=True)
            bench.group("Empty and tiny files, warm", commands, cold=False)
    finally:
        names.unlink(missing_ok=True)
        index.unlink(missing_ok=True)
    print(bench.page.path.read_text())


if __name__ == "__main__":
    main()
