#!/usr/bin/env python3
"""Measure ringsum against b3sum, and write the table of the README.

    sudo bench/measure.py [--folder FOLDER] [--runs N] [--out FOLDER]

Needs root (to drop the page cache), Python 3.9, `b3sum` (cargo install b3sum), and

    cargo build --release
    cargo build --release --package blockring --example drain
    RUSTFLAGS="-C target-feature=+crt-static" cargo build --release \\
        --target x86_64-unknown-linux-gnu --target-dir target/static

Makes 5 GiB of files in FOLDER (default: target/measure), which must be on the disk to be measured.
Commands of one comparison run in turn, A B C, A B C, so that a drift of the machine's speed hits all
alike. Raw samples go to OUT/samples.jsonl (default: bench/runs/DATE-HOST), the table to OUT/table.md.
Nothing else should run meanwhile.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import shutil
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RINGSUM = str(ROOT / "target/release/ringsum")
DRAIN = str(ROOT / "target/release/examples/drain")
STATIC = str(ROOT / "target/static/x86_64-unknown-linux-gnu/release/ringsum")
MIB = 1 << 20
TO_NULL = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
    time.sleep(0.3)


def sectors_read():
    """Sectors that all whole disks have delivered."""
    total = 0
    for disk in pathlib.Path("/sys/block").iterdir():
        if not disk.name.startswith(("loop", "ram", "zram", "dm-")):
            total += int((disk / "stat").read_text().split()[2])
    return total


def run(argv):
    """One process: wall and CPU seconds, peak memory in MiB (this script's own is its floor)."""
    start = time.perf_counter()
    pid = os.posix_spawn(argv[0], argv, os.environ, file_actions=TO_NULL)
    _, status, usage = os.wait4(pid, 0)
    wall = time.perf_counter() - start
    if status != 0:
        sys.exit(f"{argv} ended with {status}")
    return {
        "wall": wall,
        "cpu": usage.ru_utime + usage.ru_stime,
        "rss_mib": usage.ru_maxrss / 1024,
    }


def compare(commands, runs, cold, primed):
    """Runs the commands in turn. Returns the samples of each.

    primed: each is run twice, and the second counts. In a virtual machine whose host takes free memory
    back, a command that fills the page cache pays for the pages that the one before it did not use.
    """
    samples = {name: [] for name in commands}
    for round_ in range(runs if cold else runs + 1):
        for name, argv in commands.items():
            if primed:
                drop_caches()
                run(argv)
            if cold:
                drop_caches()
            before = sectors_read()
            sample = run(argv)
            sample["disk_mib"] = (sectors_read() - before) / 2048
            # The first round of warm runs only warms.
            if cold or round_ > 0:
                samples[name].append(sample)
    return samples


def median(samples, what="wall"):
    return statistics.median(sample[what] for sample in samples)


def least(samples, what="wall"):
    return min(sample[what] for sample in samples)


def cached_pages(path):
    out = subprocess.run(["fincore", "-nb", "-o", "PAGES", path], capture_output=True, text=True)
    return int(out.stdout) if out.returncode == 0 else None


def make_file(path, mib):
    if not path.exists() or path.stat().st_size != mib * MIB:
        with open(path, "wb") as file, open("/dev/urandom", "rb") as random:
            for _ in range(mib):
                file.write(random.read(MIB))
    return str(path)


def machine(file):
    cpu = next(
        line.split(":")[1].strip()
        for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    )
    mount = subprocess.run(
        ["findmnt", "-nro", "SOURCE,FSTYPE,OPTIONS", "-T", file], capture_output=True, text=True
    ).stdout.strip()
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="minutes"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_mib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // MIB,
        "kernel": platform.release(),
        "file_system": mount,
        "huge_pages": pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
        .read_text()
        .strip(),
        "b3sum": subprocess.run(["b3sum", "--version"], capture_output=True, text=True)
        .stdout.strip(),
    }


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target/measure")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    args = parser.parse_args()
    b3sum, cat, shell = shutil.which("b3sum"), shutil.which("cat"), shutil.which("sh")
    if os.geteuid() != 0 or b3sum is None:
        sys.exit("measure.py needs root and b3sum: see --help")
    for binary in (RINGSUM, DRAIN, STATIC):
        if not os.path.exists(binary):
            sys.exit(f"{binary} is not built: see --help")
    args.folder.mkdir(parents=True, exist_ok=True)
    large = make_file(args.folder / "1GiB", 1024)
    huge = make_file(args.folder / "4GiB", 4096)
    small = str(args.folder / "1000")
    pathlib.Path(small).write_bytes(os.urandom(1000))
    facts, runs, rows, raw = machine(large), args.runs, [], {}

    def measure(title, commands, runs=runs, cold=False, primed=False):
        print(f"{title} ...", file=sys.stderr)
        raw[title] = compare(commands, runs, cold, primed)
        return raw[title]

    def row(what, ringsum, other, ratio):
        rows.append(f"| {what} | {ringsum} | {other} | {ratio} |")

    def row_of(what, ours, theirs, name, faster=True):
        ours, theirs = median(ours), median(theirs)
        ratio = f"{theirs / ours:.2f}x faster" if faster else f"{ours / theirs:.2f}x its time"
        row(what, f"{ours:.3f} s", f"{name} {theirs:.3f} s", ratio)

    cold = measure(
        "cold, in turn",
        {
            "ringsum": [RINGSUM, large],
            "b3sum": [b3sum, large],
            "b3sum --no-mmap": [b3sum, "--no-mmap", large],
            "cat": [cat, large],
        },
        cold=True,
    )
    for name in ("b3sum", "b3sum --no-mmap", "cat"):
        row_of("1 GiB cold", cold["ringsum"], cold[name], name)

    best = measure(
        "cold, primed",
        {"ringsum": [RINGSUM, large], "b3sum": [b3sum, large]},
        cold=True,
        primed=True,
    )
    row_of("1 GiB cold, the second of two in a row", best["ringsum"], best["b3sum"], "b3sum")

    limit = measure(
        "cold, the limit", {"ringsum": [RINGSUM, large], "drain": [DRAIN, large]}, cold=True
    )
    ours, theirs = least(limit["ringsum"]), least(limit["drain"])
    ratio = f"{ours / theirs:.2f}x its time"
    row("1 GiB cold, least of the runs", f"{ours:.3f} s", f"reading alone {theirs:.3f} s", ratio)

    cpu, their_cpu = median(cold["ringsum"], "cpu"), median(cold["b3sum"], "cpu")
    row("CPU time, 1 GiB cold", f"{cpu:.2f} s", f"b3sum {their_cpu:.2f} s", "")

    buffered = measure(
        "cold, buffered",
        {
            "ringsum": [RINGSUM, "--cache", "buffered", large],
            "b3sum --no-mmap": [b3sum, "--no-mmap", large],
        },
        cold=True,
        primed=True,
    )
    row_of(
        "1 GiB cold, `--cache buffered`, the second of two in a row",
        buffered["ringsum"],
        buffered["b3sum --no-mmap"],
        "b3sum --no-mmap",
        faster=False,
    )

    four = measure("cold, 4 GiB", {"ringsum": [RINGSUM, huge]}, 3, cold=True)
    drop_caches()
    run([RINGSUM, large])
    row("pages cached after a cold run", str(cached_pages(large)), "", "")

    # A file in the page cache: read twice, so that all of it is.
    run([cat, large]), run([cat, large])
    warm = measure("warm", {"ringsum": [RINGSUM, large], "b3sum": [b3sum, large]})
    row_of("1 GiB warm", warm["ringsum"], warm["b3sum"], "b3sum", faster=False)
    pipe = measure(
        "pipe",
        {
            "ringsum": [shell, "-c", f"{cat} {large} | {RINGSUM}"],
            "b3sum": [shell, "-c", f"{cat} {large} | {b3sum}"],
        },
    )
    row_of("1 GiB through `cat FILE \\|`", pipe["ringsum"], pipe["b3sum"], "b3sum")
    run([cat, huge])
    four_warm = measure("warm, 4 GiB", {"ringsum": [RINGSUM, huge]}, 3)
    memory = [cold["ringsum"], four["ringsum"], warm["ringsum"], four_warm["ringsum"]]
    peaks = " / ".join(f"{max(s['rss_mib'] for s in samples):.0f}" for samples in memory)
    row(
        "peak memory: 1 and 4 GiB cold, 1 and 4 GiB warm",
        f"{peaks} MiB",
        f"b3sum {max(s['rss_mib'] for s in warm['b3sum']):.0f} MiB (1 GiB)",
        "",
    )

    start = measure(
        "1,000 bytes",
        {
            "ringsum": [RINGSUM, small],
            "static": [STATIC, small],
            "b3sum": [b3sum, "--num-threads", "1", small],
        },
        400,
    )
    b3 = median(start["b3sum"])
    for name, what in (("ringsum", ""), ("static", ", linked statically")):
        ours = median(start[name])
        row(
            f"1,000 bytes, the whole process{what}",
            f"{ours * 1e3:.2f} ms",
            f"b3sum --num-threads 1 {b3 * 1e3:.2f} ms",
            f"{ours / b3:.2f}x its time",
        )

    out = args.out or ROOT / "bench/runs" / f"{facts['date'][:10]}-{platform.node()}"
    out.mkdir(parents=True, exist_ok=True)
    table = "\n".join(["| | ringsum | beside it | |", "|---|---|---|---|", *rows]) + "\n"
    command = " ".join(["bench/measure.py", *sys.argv[1:]])
    # One line for each command of a comparison, so that a difference of two runs can be read.
    lines = [json.dumps({"machine": facts, "command": command})]
    for title, commands in raw.items():
        for name, samples in commands.items():
            rounded = [{k: round(v, 6) for k, v in sample.items()} for sample in samples]
            lines.append(json.dumps({"comparison": title, "name": name, "samples": rounded}))
    (out / "samples.jsonl").write_text("\n".join(lines) + "\n")
    (out / "table.md").write_text(
        "".join(f"- {name}: {value}\n" for name, value in facts.items())
        + f"- command: `{command}`\n\n{table}"
    )
    print(table, end="")


if __name__ == "__main__":
    main()
