#!/usr/bin/env python3
"""Compares two builds of ringsum, to find what became slower.

    sudo bench/regressions.py OLD NEW FILE TREE [--pairs N] [--out FOLDER] [--only ROW]

OLD and NEW are binaries, FILE has a gibibyte or more, TREE thousands of small files. Each row of the table is
a command that both run in turn, in the order AB BA AB. Both are copied anew before each row: how the page cache holds a program's file makes as much as 8 % of a short run. A ratio above 1 means that NEW is
slower; the interval is that of 95 % of 2,000 bootstrap samples. Cold rows compare the least times, because the
disk of a virtual machine is throttled at times, and never sped up; the others compare medians.
"""

import argparse
import pathlib
import random
import shutil
import statistics
import subprocess
import sys
import tempfile

import turns


def rows(file, medium, small, tree, listing, index):
    """Of each row: title, whether it is cold, shell command with {} for the binary."""
    return [
        ("1,000 bytes, 100 processes", False, f"for i in $(seq 100); do {{}} {small}; done"),
        ("a large file, warm", False, f"{{}} {file}"),
        ("a large file, cold", True, f"{{}} {file}"),
        ("a large file, warm, --io engine=pread", False, f"{{}} --io engine=pread {file}"),
        ("a large file, warm, --io engine=mmap", False, f"{{}} --io engine=mmap {file}"),
        ("a large file, cold, --io engine=pool", True, f"{{}} --io engine=pool {file}"),
        ("a large file, cold, --io engine=libaio", True, f"{{}} --io engine=libaio {file}"),
        ("a large file, cold, --io page-cache=buffered", True, f"{{}} --io page-cache=buffered {file}"),
        ("256 MiB, warm, -a blake3 -a md5", False, f"{{}} -a blake3 -a md5 {medium}"),
        ("256 MiB, warm, -a sha256", False, f"{{}} -a sha256 {medium}"),
        ("a pipe: cat FILE |", False, f"cat {file} | {{}}"),
        ("a pipe, --pass-through", False, f"cat {file} | {{}} --pass-through 2> /dev/null | cat > /dev/null"),
        ("a tree, warm", False, f"{{}} -r {tree}"),
        ("a tree, cold", True, f"{{}} -r {tree}"),
        ("a tree, warm, --jobs 1", False, f"{{}} -r --jobs 1 {tree}"),
        ("a tree, warm, --tree-digest", False, f"{{}} -r --tree-digest {tree}"),
        ("a tree, warm, -a sha256", False, f"{{}} -r -a sha256 {tree}"),
        ("a tree, warm, --json", False, f"{{}} -r --json {tree}"),
        ("--check of a tree, warm", False, f"{{}} --quiet --check {listing}"),
        ("--check of a tree, cold", True, f"{{}} --quiet --check {listing}"),
        ("a tree with an index, unchanged", False, f"{{}} -r --index {index} {tree}"),
    ]


def run(binary, command, cold):
    if cold:
        turns.drop_caches()
        # The program itself is loaded.
        subprocess.run([binary, "--version"], stdout=subprocess.DEVNULL, check=True)
    return turns.run(["/bin/sh", "-c", command.format(binary)])


def interval(old, new, middle):
    """The ratio, and the ends of its interval."""
    chance = random.Random(1)
    ratios = sorted(
        middle(chance.choices(new, k=len(new))) / middle(chance.choices(old, k=len(old)))
        for _ in range(2000)
    )
    return middle(new) / middle(old), ratios[50], ratios[-51]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ["old", "new", "file", "tree"]:
        parser.add_argument(name, type=pathlib.Path)
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--out", type=pathlib.Path, help="folder for regressions.md")
    parser.add_argument("--only", help="run only rows whose title contains this")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="regressions-", dir=args.file.resolve().parent) as scratch:
        compare(args, pathlib.Path(scratch))


def compare(args, scratch):
    small, listing, index = scratch / "small", scratch / "list", scratch / "index"
    small.write_bytes(bytes(range(250)) * 4)
    medium = turns.make_file(scratch / "medium", 256)
    file, tree = args.file.resolve(), args.tree.resolve()
    listing.write_bytes(subprocess.run([args.new.resolve(), "-r", tree], stdout=subprocess.PIPE, check=True).stdout)
    lines = ["| | old, s | new, s | new / old | 95 % |", "|---|---|---|---|---|"]
    slower = []
    for title, cold, command in rows(file, medium, small, tree, listing, index):
        if args.only and args.only not in title:
            continue
        binaries = [scratch / "old", scratch / "new"]
        for source, copy in zip([args.old, args.new], binaries):
            shutil.copy(source, copy)
            run(copy, command, cold)
        samples = {binary: [] for binary in binaries}
        for pair in range(args.pairs):
            for binary in binaries[:: -1 if pair % 2 else 1]:
                samples[binary].append(run(binary, command, cold)["wall"])
        old, new = samples.values()
        middle = min if cold else statistics.median
        ratio, low, high = interval(old, new, middle)
        lines.append(f"| {title} | {middle(old):.3f} | {middle(new):.3f} | {ratio:.3f} | {low:.3f} to {high:.3f} |")
        print(lines[-1], file=sys.stderr, flush=True)
        if ratio > 1.02:
            slower.append(title)
    text = "\n".join(lines) + "\n"
    if args.out:
        args.out.mkdir(parents=True, exist_ok=True)
        facts = "\n".join(f"- {what}: {value}" for what, value in turns.machine(file).items())
        (args.out / "regressions.md").write_text(f"{text}\n{facts}\n- pairs: {args.pairs}\n")
    else:
        print(text, end="")
    if slower:
        print("more than 1.02 times as slow:", ", ".join(slower), file=sys.stderr)


if __name__ == "__main__":
    main()
