#!/usr/bin/env python3
"""Measure streams: ringsum against b3sum and cat, and the ladder from write + read to busy loops.

    bench/pipes.py [--folder FOLDER] [--runs N] [--out FOLDER]

Needs Python 3.9, `b3sum` (cargo install b3sum), bash, and

    cargo build --release
    cargo build --release --package ringbench --examples

Makes a file of 1 GiB in FOLDER (default: target/measure) and reads it from the page cache. The runs of one
comparison are interleaved. Raw samples go to OUT/pipes.jsonl (default: bench/runs/DATE-HOST), the tables to
OUT/pipes.md. Nothing else should run meanwhile.
"""

import argparse
import datetime
import fcntl
import json
import os
import pathlib
import shutil
import sys
import time

import turns

SOURCE = str(turns.ROOT / "target/release/examples/pipe_source")
SINK = str(turns.ROOT / "target/release/examples/pipe_sink")
F_SETPIPE_SZ = 1031
GIB = 1 << 30
SIZES = ("64K", "256K", "1M")


class Pipeline:
    """Commands with pipes between them. `first_pipe`: size of the first pipe in bytes, if not the default."""

    def __init__(self, *commands, first_pipe=None, stdin="/dev/null"):
        self.commands, self.first_pipe, self.stdin = commands, first_pipe, stdin

    def run(self):
        """Returns wall and CPU seconds of all commands."""
        start = time.perf_counter()
        stdin = os.open(self.stdin, os.O_RDONLY)
        null = os.open("/dev/null", os.O_WRONLY)
        pids = []
        for i, command in enumerate(self.commands):
            stdout, after = null, None
            if i + 1 < len(self.commands):
                after, stdout = os.pipe()
                if i == 0 and self.first_pipe:
                    fcntl.fcntl(after, F_SETPIPE_SZ, self.first_pipe)
            actions = [
                (os.POSIX_SPAWN_DUP2, stdin, 0),
                (os.POSIX_SPAWN_DUP2, stdout, 1),
                (os.POSIX_SPAWN_DUP2, null, 2),
            ]
            pids.append(os.posix_spawn(command[0], command, os.environ, file_actions=actions))
            os.close(stdin)
            if stdout != null:
                os.close(stdout)
            stdin = after
        os.close(null)
        cpu = 0.0
        for pid, command in zip(pids, self.commands):
            _, status, usage = os.wait4(pid, 0)
            if status != 0:
                sys.exit(f"{command} ended with {status}")
            cpu += usage.ru_utime + usage.ru_stime
        return {"wall": time.perf_counter() - start, "cpu": cpu}


class Bench:
    def __init__(self, runs, out, machine):
        self.runs, self.out, self.lines = runs, out, []
        self.raw = (out / "pipes.jsonl").open("w")
        self.raw.write(json.dumps(machine) + "\n")

    def compare(self, title, pipelines):
        """Returns the samples of each, by name; runs are interleaved, and the first round only warms."""
        print(title)
        samples = {name: [] for name in pipelines}
        for round_ in range(self.runs + 1):
            for name, pipeline in pipelines.items():
                sample = pipeline.run()
                if round_ > 0:
                    samples[name].append(sample)
                    sample = {key: round(value, 4) for key, value in sample.items()}
                    self.raw.write(json.dumps({"group": title, "command": name, **sample}) + "\n")
        self.raw.flush()
        return samples

    def group(self, title, pipelines):
        samples = self.compare(title, pipelines)
        first = turns.median(next(iter(samples.values())))
        self.lines += [f"\n{title}\n", "| | s | least | against the first | CPU s |", "|---|---|---|---|---|"]
        for name, each in samples.items():
            wall = turns.median(each)
            self.lines.append(
                f"| `{name}` | {wall:.3f} | {turns.least(each):.3f} | {wall / first:.2f} | "
                f"{turns.median(each, 'cpu'):.2f} |"
            )
        self.write()

    def ladder(self, title, ways, bytes_, pipe_sizes):
        """GiB/s of each way through pipes of each size."""
        each = {
            f"{way}, {size}": Pipeline(
                [SOURCE, "--bytes", str(bytes_), "--same", "--pipe", size, *source],
                [SINK, "--buffer", "1048576", *sink],
            )
            for way, (source, sink) in ways.items()
            for size in pipe_sizes
        }
        samples = self.compare(title, each)
        self.lines += [f"\n{title}\n", "| | " + " | ".join(pipe_sizes) + " |", "|---" * (len(pipe_sizes) + 1) + "|"]
        for way in ways:
            rates = (bytes_ / GIB / turns.median(samples[f"{way}, {size}"]) for size in pipe_sizes)
            self.lines.append(f"| {way} | " + " | ".join(f"{rate:.1f}" for rate in rates) + " |")
        self.write()

    def write(self):
        (self.out / "pipes.md").write_text("\n".join(self.lines).lstrip() + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=pathlib.Path, default=turns.ROOT / "target/measure")
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--ringsum", default=turns.RINGSUM)
    args = parser.parse_args()
    b3sum = shutil.which("b3sum") or sys.exit("b3sum is not installed")
    cat, bash = shutil.which("cat"), shutil.which("bash")
    out = args.out or turns.ROOT / "bench/runs" / f"{datetime.date.today()}-{os.uname().nodename}"
    out.mkdir(parents=True, exist_ok=True)
    args.folder.mkdir(parents=True, exist_ok=True)
    file = str(args.folder / "1GiB")
    if not os.path.exists(file) or os.path.getsize(file) != GIB:
        with open(file, "wb") as sink:
            for _ in range(1024):
                sink.write(os.urandom(1 << 20))
    ringsum = args.ringsum
    bench = Bench(args.runs, out, turns.machine(str(args.folder)))

    from_cat, source = [cat, file], [SOURCE, "--bytes", "1G", "--same", "--huge"]
    bench.group(
        "1 GiB through a pipe",
        {
            "cat FILE | ringsum": Pipeline(from_cat, [ringsum]),
            "cat FILE | cat, a pipe of 1 MiB": Pipeline(from_cat, [cat], first_pipe=1 << 20),
            "cat FILE | b3sum": Pipeline(from_cat, [b3sum]),
        },
    )
    bench.group(
        "1 GiB through a pipe, by who writes and how many read",
        {
            "cat FILE | ringsum": Pipeline(from_cat, [ringsum]),
            "pipe_source --huge | ringsum": Pipeline(source, [ringsum]),
            "cat FILE | ringsum --io workers=0": Pipeline(from_cat, [ringsum, "--io", "workers=0"]),
            "pipe_source --huge | ringsum --io workers=0": Pipeline(source, [ringsum, "--io", "workers=0"]),
            "cat FILE | ringsum --io workers=1": Pipeline(from_cat, [ringsum, "--io", "workers=1"]),
            "pipe_source --huge | ringsum --io workers=1": Pipeline(source, [ringsum, "--io", "workers=1"]),
        },
    )
    bench.group(
        "1 GiB of a file on standard input",
        {"ringsum < FILE": Pipeline([ringsum], stdin=file), "b3sum < FILE": Pipeline([b3sum], stdin=file)},
    )
    shell = lambda line: Pipeline([bash, "-c", line])
    bench.group(
        "1 GiB from pipe to pipe",
        {
            "cat FILE | ringsum --pass-through | cat": shell(
                f"cat {file} | {ringsum} --pass-through 2>/dev/null | cat >/dev/null"
            ),
            "cat FILE | ringsum --pass-through=share | cat": shell(
                f"cat {file} | {ringsum} --pass-through=share 2>/dev/null | cat >/dev/null"
            ),
            "cat FILE | tee >(b3sum) | cat": shell(f"cat {file} | tee >({b3sum} >/dev/null) | cat >/dev/null"),
            "cat FILE | cat | cat": shell(f"cat {file} | cat | cat >/dev/null"),
        },
    )
    bench.group(
        "1 GiB through a pipe, by the block",
        {
            f"cat FILE | ringsum --io block-size={size}": Pipeline(from_cat, [ringsum, "--io", f"block-size={size}"])
            for size in ("256K", "64K", "128K", "512K", "1M")
        },
    )
    ways = {
        "write, read": (["--write"], ["--read"]),
        "vmsplice, read": ([], ["--read"]),
        "vmsplice, splice": ([], ["--splice"]),
        "the same, huge pages": (["--huge"], ["--splice"]),
        "the same, busy": (["--huge", "--io=wait=spin"], ["--splice", "--io=wait=spin"]),
    }
    bench.ladder("From source to sink, GiB/s, by the size of the pipe", ways, 4 * GIB, SIZES)
    print((out / "pipes.md").read_text())


if __name__ == "__main__":
    main()
