#!/usr/bin/env python3
"""Measure every engine and every knob, batches of random reads, and fio; write the tables of docs/tuning.md.

    sudo bench/knobs.py [--folder FOLDER] [--runs N] [--out FOLDER] [--only GROUP]

Needs root (to drop the page cache and to reserve huge pages), Python 3.9, fio for one of the groups, and

    cargo build --release
    cargo build --release --package blockring --examples

Makes 1 GiB in FOLDER (default: target/measure), which must be on the disk to be measured. The runs of
a group are interleaved, A B C, A B C, so that a drift of the machine's speed affects all alike. Raw samples
go to OUT/knobs.jsonl (default: bench/runs/DATE-HOST), the tables to OUT/knobs.md. Nothing else should
run meanwhile.
"""

import argparse
import json
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys

import turns

EXAMPLES = turns.ROOT / "target/release/examples"
DRAIN, RECORDS = str(EXAMPLES / "drain"), str(EXAMPLES / "records")
HUGE_PAGES = pathlib.Path("/proc/sys/vm/nr_hugepages")

ENGINES = ["io_uring", "libaio", "pool", "pread", "stream", "mmap"]

# Each group: whether it is cold, whether it is primed (see turns.py), and its commands by their options, which are
# compared with the first.
GROUPS = {
    "engines, cold": (True, False, ["", *(f"--io engine={engine}" for engine in ENGINES)]),
    "engines, cold, through the page cache, the second of two in a row": (
        True,
        True,
        ["--io page-cache=buffered", *(f"--io engine={engine} --io page-cache=buffered" for engine in ENGINES)],
    ),
    "engines, warm": (False, False, ["", *(f"--io engine={engine}" for engine in ENGINES)]),
    "cache modes, cold, the second of two in a row": (
        True,
        True,
        ["--io page-cache=direct", "--io page-cache=buffered", "--io page-cache=dontcache"],
    ),
    "depth, cold, 512 KiB blocks": (
        True,
        False,
        ["", *(f"--io queue-depth={depth}" for depth in (1, 2, 4, 8, 32, 64))],
    ),
    "blocks, cold, 8 MiB in flight": (
        True,
        False,
        [
            "",
            *(
                f"--io block-size={kib}K --io queue-depth={8192 // kib}"
                for kib in (4, 16, 64, 128, 256, 1024, 4096)
            ),
        ],
    ),
    "slots, cold, depth 8": (
        True,
        False,
        ["--io queue-depth=8", "--io queue-depth=8 --io slots=4", "--io queue-depth=8 --io slots=16", "--io queue-depth=8 --io slots=32"],
    ),
    "io_uring, cold": (
        True,
        False,
        [
            "",
            "--io=drain=on",
            "--io=link=on",
            "--io",
            "sqpoll=--io fixed-buffers=on",
            "--io=fixed-file=on",
            "--io fixed-buffers=on --io fixed-file=on",
            "--io consume=batch",
            "--io consume=batch --io link=on",
            "--io=wait=spin",
        ],
    ),
    "memory, cold": (True, False, ["", "--io huge-pages=off", "--io huge-pages=hugetlb"]),
    "threads, cold": (
        True,
        False,
        [
            "",
            "--io workers=0",
            "--io workers=1",
            "--io workers=2",
            "--io=order=in-order",
            "--io order=in-order --io workers=1",
            "--io order=in-order --io workers=1 --io wait=spin",
        ],
    ),
    "threads, warm": (
        False,
        False,
        ["", "--io workers=0", "--io workers=1", "--io workers=3", "--io=order=in-order", "--io order=in-order --io workers=1"],
    ),
    "pool threads, cold": (
        True,
        False,
        ["--io pool-threads=8", *(f"--io pool-threads={n}" for n in (1, 2, 4, 16, 32))],
    ),
    "diagnostics, cold": (True, False, ["", "--explain", "--stats", "--trace /dev/null"]),
    "diagnostics, warm": (False, False, ["", "--explain", "--stats", "--trace /dev/null"]),
    "rate limiting and I/O priority, cold": (
        True,
        False,
        ["", "--io-priority idle", "--limit-rate 10G", "--limit-rate 1G", "--bypass-cache"],
    ),
}


def seconds_of(argv):
    """The seconds that an example prints: the last but one word of its line."""
    out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return float(out.split()[-2])


def fio(path, engine, kib, depth):
    argv = [
        "fio", "--name=read", f"--filename={path}", "--rw=read", f"--bs={kib}k", "--direct=1",
        f"--ioengine={engine}", f"--iodepth={depth}", "--mem=mmaphuge", "--thread", "--readonly",
        "--output-format=json",
    ]  # fmt: skip
    out = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    return json.loads(out[out.index("{") :])["jobs"][0]["read"]["runtime"] / 1e3


def against_fio(path, runs):
    """The time of `drain`, without a hash, compared with fio's, each by its own clock, without process start."""
    rows, raw = [], {}
    for engine in ("io_uring", "libaio"):
        for kib, depth in ((512, 16), (512, 32), (128, 32)):
            samples = {"drain": [], "fio": []}
            for _ in range(runs):
                turns.drop_caches()
                samples["drain"].append(seconds_of([DRAIN, path, engine, str(kib), str(depth)]))
                turns.drop_caches()
                samples["fio"].append(fio(path, engine, kib, depth))
            raw[f"{engine} {kib} KiB x {depth}"] = samples
            ours, theirs = (statistics.median(samples[name]) for name in ("drain", "fio"))
            rows.append(
                f"| {engine} {kib} KiB x {depth} | {ours:.3f} s | {theirs:.3f} s "
                f"| {ours / theirs:.2f} | {min(samples['drain']) / min(samples['fio']):.2f} |"
            )
    head = ["| | blockring | fio | ratio of medians | of minima |", "|---|---|---|---|---|"]
    return head + rows, raw


def batches(path, runs):
    """10,000 random records of 4 KiB, cold."""
    ways = ["loop", "auto 64", "auto 128", "auto 256", "io_uring 1", "libaio 128", "pool 128"]
    samples = {way: [] for way in ways}
    for _ in range(runs):
        for way in ways:
            turns.drop_caches()
            out = subprocess.run(
                [RECORDS, path, *way.split()], capture_output=True, text=True, check=True
            )
            samples[way].append(float(out.stdout.split()[4]))
    base = statistics.median(samples["loop"])
    rows = ["| | seconds | compared with the loop of `pread` |", "|---|---|---|"]
    for way in ways:
        median = statistics.median(samples[way])
        rows.append(f"| {way} | {median:.3f} | {base / median:.1f}x faster |")
    return rows, samples


def knobs(path, runs, cold, primed, options):
    commands = {name or "(default)": [turns.RINGSUM, *name.split(), path] for name in options}
    if not cold:
        turns.run([turns.RINGSUM, "--io", "page-cache=buffered", path])
    samples = turns.compare(commands, runs, cold, primed)
    base = turns.median(next(iter(samples.values())))
    rows = ["| | median s | least s | CPU s | ratio of medians |", "|---|---|---|---|---|"]
    for name, taken in samples.items():
        median = turns.median(taken)
        shown = f"`{name}`" if name.startswith("-") else name
        rows.append(
            f"| {shown} | {median:.3f} | {turns.least(taken):.3f} "
            f"| {turns.median(taken, 'cpu'):.2f} | {median / base:.2f} |"
        )
    return rows, samples


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=pathlib.Path, default=turns.ROOT / "target/measure")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--only", help="run only groups whose name contains this")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    path = turns.make_file(args.folder / "1GiB", 1024)
    facts = turns.machine(path)
    groups = {
        name: lambda group=group: knobs(path, args.runs, *group) for name, group in GROUPS.items()
    }
    groups["batches, cold"] = lambda: batches(path, args.runs)
    if shutil.which("fio"):
        groups["fio, cold"] = lambda: against_fio(path, args.runs)
    else:
        print("SKIP fio: it is not installed", file=sys.stderr)
    out = args.out or turns.ROOT / "bench/runs" / f"{facts['date'][:10]}-{platform.node()}"
    out.mkdir(parents=True, exist_ok=True)
    command = " ".join(["bench/knobs.py", *sys.argv[1:]])
    tables = [f"- {name}: {value}" for name, value in facts.items()] + [f"- command: `{command}`"]
    raw = [json.dumps({"machine": facts, "command": command})]
    reserved = HUGE_PAGES.read_text()
    HUGE_PAGES.write_text(str(int(reserved) + 32))
    try:
        for name, group in groups.items():
            if args.only and args.only not in name:
                continue
            print(f"{name} ...", file=sys.stderr)
            rows, samples = group()
            tables += ["", f"## {name}", "", *rows]
            raw.append(json.dumps({"group": name, "samples": samples}))
            # After each group, so that an interrupted run loses nothing.
            (out / "knobs.md").write_text("\n".join(tables) + "\n")
            (out / "knobs.jsonl").write_text("\n".join(raw) + "\n")
    finally:
        HUGE_PAGES.write_text(reserved)
    print("\n".join(tables))


if __name__ == "__main__":
    main()
