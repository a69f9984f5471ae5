#!/usr/bin/env python3
"""Measure algorithms other than BLAKE3 against the tools of their names, and write the tables of docs/algorithms.md.

    sudo bench/digests.py FILE TREE [--runs N] [--out FOLDER] [--ringsum BINARY] [--only GROUP]

FILE is a file of 1 GiB on the disk to be measured (made if it is missing), TREE a folder of 50,000 files or more. Needs
root (to drop the page cache), Python 3.9, coreutils, openssl, `find`, `xargs`, and `cargo build --release`.

The runs of one group are interleaved, A B C, A B C, so that a drift of the machine's speed affects all alike. Raw
samples go to OUT/digests.jsonl (default: bench/runs/DATE-HOST), the tables to OUT/digests.md. Nothing else should run
meanwhile. Groups: cold, warm, several, tree. `hashing alone` is OpenSSL on 1 GiB of memory, `reading alone` is `ringsum -a xxh3`,
which hashes 20 GB and more in a second on a thread of its own.
"""

import argparse
import datetime
import hashlib
import os
import pathlib
import subprocess
import sys
import time

import turns


def hashing_alone():
    """One sample: SHA-256 of 1 GiB in memory, over a piece that stays in the core's cache."""
    piece, digest = bytes(256 << 10), hashlib.sha256()
    start = time.perf_counter()
    for _ in range(4096):
        digest.update(piece)
    return {"wall": time.perf_counter() - start, "cpu": 0, "rss_mib": 0}


def group(page, title, commands, runs, cold, warming=None):
    """Interleaves runs of the commands, and adds their table. A command that is None is `hashing_alone`."""
    print(title)
    samples = {name: [] for name in commands}
    for round_ in range(runs if cold else runs + 1):
        for name, command in commands.items():
            if cold:
                turns.drop_caches()
            elif warming:
                subprocess.run(turns.shell(warming), check=True)
            sample = turns.run(turns.shell(command)) if command else hashing_alone()
            # The first round of warm runs only warms.
            if cold or round_ > 0:
                samples[name].append(sample)
                print(f"  {name:60} {sample['wall']:7.3f} s, {sample['cpu']:6.2f} s of CPU")
    page.table(title, samples, {"CPU s": ("cpu", 2)})


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=pathlib.Path)
    parser.add_argument("tree", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--out", type=pathlib.Path)
    parser.add_argument("--ringsum", default=turns.RINGSUM)
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("only root can drop the page cache")
    out = args.out or turns.ROOT / f"bench/runs/{datetime.date.today()}-{os.uname().nodename}"
    out.mkdir(parents=True, exist_ok=True)
    file, tree, ringsum = turns.make_file(args.file, 1024), str(args.tree.resolve()), args.ringsum
    wants = lambda group: not args.only or group in args.only
    page = turns.Page(out, "digests")
    page.facts(turns.machine(file))
    ours = lambda options: (f"ringsum {options}", f"{ringsum} {options} {file}")
    if wants("cold"):
        commands = dict([ours("-a sha256"), ours("-a xxh3")])
        commands |= {"hashing alone": None, "sha256sum": f"sha256sum {file}"}
        group(page, "SHA-256 of 1 GiB, cold", commands, args.runs, cold=True)
    warming = f"cat {file}"
    if wants("warm"):
        commands = dict([ours("-a sha256")])
        commands |= {"openssl dgst -sha256": f"openssl dgst -sha256 {file}", "sha256sum": f"sha256sum {file}"}
        group(page, "SHA-256 of 1 GiB, warm", commands, args.runs, cold=False, warming=warming)
    if wants("several"):
        one = [ours(f"-a {name}") for name in ("md5", "sha256", "blake3")]
        commands = dict(one[:1] + [ours("-a blake3 -a sha256 -a md5")] + one[1:])
        group(page, "Several of 1 GiB, warm", commands, args.runs, cold=False, warming=warming)
    if wants("tree"):
        names = out.resolve() / "names.tmp"
        with names.open("wb") as list_:
            subprocess.run(["find", tree, "-type", "f", "-print0"], stdout=list_, check=True)
        try:
            commands = {
                "ringsum -a sha256 -r": f"{ringsum} -a sha256 -r {tree}",
                "xargs -0 sha256sum": f"xargs -0 sha256sum <{names}",
                "xargs -0 -P2 -n500 sha256sum": f"xargs -0 -P2 -n500 sha256sum <{names}",
            }
            warming = f"xargs -0 cat <{names}"
            group(page, "SHA-256 of a tree, warm", commands, max(3, args.runs // 3), cold=False, warming=warming)
        finally:
            names.unlink(missing_ok=True)
    print(page.path.read_text())


if __name__ == "__main__":
    main()
