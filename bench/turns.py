"""Interleaved runs of whole commands: shared by the other scripts here.

Needs Python 3.9, and root to drop the page cache. `ringbench compare` measures single commands; these scripts are for
groups of many options of one command, and for pipelines.
"""

import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
RINGSUM = str(ROOT / "target/release/ringsum")
MIB = 1 << 20

# The built-in settings are measured, not those that were tuned on this machine.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
TO_NULL = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0)]


def drop_caches():
    os.sync()
    pathlib.Path("/proc/sys/vm/drop_caches").write_text("3\n")
    time.sleep(0.3)


def sectors_read():
    """Sectors read from all whole disks."""
    total = 0
    for disk in pathlib.Path("/sys/block").iterdir():
        if not disk.name.startswith(("loop", "ram", "zram", "dm-")):
            total += int((disk / "stat").read_text().split()[2])
    return total


def run(argv):
    """Runs one process: wall and CPU seconds, peak memory in MiB (at least that of this script)."""
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
    """Interleaves runs of the commands. Returns the samples of each.

    primed: each is run twice, and the second counts. In a virtual machine whose host reclaims free memory, a
    command that fills the page cache pays for the pages that the one before it did not use.
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


def shell(command):
    """A pipeline, as `run` takes it."""
    return ["/bin/sh", "-c", f"exec >/dev/null; {command}"]


class Page:
    """Samples and tables of a script: NAME.jsonl and NAME.md in a folder."""

    def __init__(self, out, name):
        self.path, self.lines = out / f"{name}.md", []
        self.raw = (out / f"{name}.jsonl").open("w")

    def facts(self, facts):
        self.raw.write(json.dumps(facts) + "\n")

    def table(self, title, samples, more):
        """Records the samples of each command, and adds a table, in which the others are compared with the first.
        `more`: headings of columns besides the time, each with its value and number of decimals."""
        for name, each in samples.items():
            for sample in each:
                sample = {key: round(value, 4) for key, value in sample.items()}
                self.raw.write(json.dumps({"group": title, "command": name, **sample}) + "\n")
        self.raw.flush()
        first = median(next(iter(samples.values())))
        headings = ["", "s", "least", "against the first", *more]
        self.lines += [f"\n{title}\n", "| " + " | ".join(headings).strip() + " |", "|---" * len(headings) + "|"]
        for name, each in samples.items():
            wall = median(each)
            cells = [f"`{name}`", f"{wall:.2f}", f"{least(each):.2f}", f"{wall / first:.2f}"]
            cells += [f"{median(each, what):.{digits}f}" for what, digits in more.values()]
            self.lines.append("| " + " | ".join(cells) + " |")
        self.write()

    def write(self):
        self.path.write_text("\n".join(self.lines).lstrip() + "\n")


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
