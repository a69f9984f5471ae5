"""The cases of `bench/soak`: generated from a seed, run, and judged.

Each case is a function of a `Case`, and raises `Broken` if an invariant fails: a printed hash is of a content that the
file had at some time; a file without a hash has an error line, and the exit status says so; a file that does not
change and is read with automatic options has its hash.
"""

import os
import random
import re
import select
import signal
import socket
import subprocess
import time

from soak_world import Broken, send, storm

ENGINES = ["io_uring", "libaio", "pool", "pread", "stream", "mmap"]
CACHES = ["direct", "buffered", "dontcache"]
BLOCKS = ["512", "4096", "12K", "64K", "96K", "128K", "512K", "1M", "3M", "4M", "16M"]
KNOBS = ["--io=drain=on", "--io=link=on", "--io=sqpoll=5", "--io=fixed-buffers=on", "--io=fixed-file=on", "--io=iopoll=on"]
# Boundaries: chunks, pages, blocks, subtrees, windows of mappings.
EDGES = [0, 1, 64, 512, 1000, 1024, 4096, 16384, 65536, 131072, 262144, 524288, 1 << 20, 2 << 20, 4 << 20]
LENGTH_MAX = 12 << 20
# Messages of refusals. Any other message instead of the hash of an unchanged file is a failure.
REFUSED = re.compile(rb"cannot be used|No such device|has no medium|Invalid argument|not supported")


class Case:
    """One case: its random numbers, its files, and its counts."""

    def __init__(self, world, seed, number):
        self.world, self.rng = world, random.Random(f"{seed}:{number}")
        self.id = number
        self.counts = {}
        self.made = []

    def count(self, what, n=1):
        self.counts[what] = self.counts.get(what, 0) + n

    def chance(self, part):
        return self.rng.random() < part

    def length(self, most=LENGTH_MAX):
        edge = self.rng.choice(EDGES) * self.rng.choice([1, 1, 1, 2, 3, 5])
        return max(0, min(most, edge + self.rng.choice([-1, 0, 0, 1, 511, -4096, self.rng.randrange(100_000)])))

    def content(self, length):
        """Noise, zeros, or a pattern."""
        if self.chance(0.8) or not length:
            return self.rng.randbytes(length)
        part = self.rng.randbytes(self.rng.choice([1, 251, 4096]))
        return (part * (length // len(part) + 1))[:length]

    def path(self, place, name=""):
        path = place.write / f"{self.id}-{len(self.made)}{name}"
        self.made.append(path)
        return path

    def file(self, place, length=None, sparse=None):
        """Makes a file on a place; returns the path that it is read by."""
        path = self.path(place)
        length = self.length() if length is None else length
        with open(path, "wb") as file:
            if self.chance(0.2) if sparse is None else sparse:
                file.truncate(length)
                for _ in range(self.rng.randrange(4)):
                    file.seek(self.rng.randrange(length + 1))
                    file.write(self.content(min(length - file.tell(), self.rng.randrange(100_000) + 1)))
            else:
                file.write(self.content(length))
        return place.read / path.name

    def cache(self, path):
        """Leaves some, all or none of a file in the page cache; some of it may be dirty."""
        state = self.rng.choice(["dirty", "warm", "cold", "cold", "half"])
        if state == "dirty":
            return
        with open(path, "rb") as file:
            length = os.fstat(file.fileno()).st_size
            if state == "warm":
                while file.read(1 << 20):
                    pass
                return
            os.fsync(file.fileno())
            parts = [(0, 0)] if state == "cold" else [(length // 5 * i, length // 9) for i in range(5)]
            for start, size in parts:
                os.posix_fadvise(file.fileno(), start, size, os.POSIX_FADV_DONTNEED)

    def how(self):
        """Options for reading, and whether they may be refused."""
        args, may_refuse = [], False
        if self.chance(0.25):
            return args, may_refuse
        if self.chance(0.7):
            engine = self.rng.choice(ENGINES)
            args += ["--io", f"engine={engine}"]
            may_refuse = True
            if engine == "io_uring" and self.chance(0.3):
                args += self.rng.sample(KNOBS, self.rng.choice([1, 1, 2]))
        if self.chance(0.4):
            args += ["--io", f"page-cache={self.rng.choice(CACHES)}"]
            may_refuse = True
        if self.chance(0.5):
            args += ["--io", f"block-size={self.rng.choice(BLOCKS)}"]
            may_refuse = True
        for key, numbers in [("queue-depth", [1, 2, 3, 7, 16, 64]), ("slots", [1, 2, 5, 16, 33, 64])]:
            if self.chance(0.3):
                args += ["--io", f"{key}={self.rng.choice(numbers)}"]
                may_refuse = True
        if self.chance(0.3):
            args.append(self.rng.choice(["--io=workers=", "--num-threads="]) + str(self.rng.choice([1, 2, 3, 7])))
        for option in ["--io=order=in-order", "--io=consume=batch", "--io=huge-pages=off", "--retry-changed=1", "--io=wait=spin"]:
            if self.chance(0.08):
                args.append(option)
        return args, may_refuse

    def what(self):
        """Options for the hash, which `b3sum` has, too."""
        if self.chance(0.85):
            return []
        return self.rng.choice([["--length", "131"], ["--derive-key", "a soak"], ["--seek", "77"], ["-l", "1"]])

    def clean(self):
        for path in self.made:
            if path.is_dir() and not path.is_symlink():
                subprocess.run(["rm", "-rf", path], check=False)
            else:
                path.unlink(missing_ok=True)


def lines_of(child):
    """The hashes in the output of a run, by name."""
    if child.out and not child.out.endswith(b"\n"):
        raise Broken("other", f"a line without its end: {child.said()}")
    found = {}
    for line in child.out.decode(errors="surrogateescape").splitlines():
        hash_, _, name = line.partition("  ")
        if name in found:
            raise Broken("other", f"{name} has two lines: {child.said()}")
        found[name] = hash_
    return found


def judge(case, child, rights, may_refuse=False, may_fail=False, ended_by=()):
    """`rights`: the right hashes for each name. `may_refuse`: an explicit option may not be available. `may_fail`: the
    state of the file may rule out a hash. `ended_by`: codes of a run that was ended."""
    found = lines_of(child)
    for name, hash_ in found.items():
        if hash_ not in rights.get(name, ()):
            raise Broken("wrong hash", f"{name}: {hash_}, and it is {rights.get(name)}\n  {child.said()}")
    case.count("hashes", len(found))
    if child.code in ended_by:
        return
    if child.code == 2 and may_refuse and not found:
        case.count("refused", len(rights))
        return
    if child.code not in (0, 1):
        raise Broken("other", f"an unexpected exit status: {child.said()}")
    for name in rights.keys() - found.keys():
        start = f"ringsum: {name}: ".encode(errors="surrogateescape")
        errors = [line for line in child.err.splitlines() if line.startswith(start)]
        if not errors:
            raise Broken("other", f"neither a hash nor an error: {name}: {child.said()}")
        if REFUSED.search(errors[0]) and may_refuse:
            case.count("refused")
        elif may_fail:
            case.count("errors")
        else:
            raise Broken("other", f"no hash: {child.said()}")
    if (child.code == 0) != (found.keys() == rights.keys()):
        raise Broken("other", f"the exit status does not match the output: {child.said()}")


def quiet(case):
    """Files that do not change, each in another state, read in any way."""
    place = case.rng.choice(case.world.places)
    paths = [case.file(place) for _ in range(case.rng.choice([1, 1, 1, 2, 5]))]
    what = case.what()
    right = case.world.hashes(paths, what)
    for path in paths:
        case.cache(path)
    how, may_refuse = case.how()
    case.count("inputs", len(paths))
    child = case.world.run([case.world.ringsum, *how, *what, *paths])
    judge(case, child, {str(path): {hash_} for path, hash_ in zip(paths, right)}, may_refuse)


def stream(case):
    """A pipe, a FIFO or a socket that is written in pieces of any size, with or without a tee."""
    content = case.content(case.length())
    how, may_refuse = case.how()
    kind = case.rng.choice(["pipe", "pipe", "socket", "fifo"])
    name, reader, writer = "-", None, None
    if kind == "pipe":
        reader, writer = os.pipe()
    elif kind == "socket":
        pair = socket.socketpair()
        reader, writer = (end.detach() for end in pair)
    else:
        name = str(case.path(case.world.places[0], ".fifo"))
        os.mkfifo(name)
        # For reading and writing, so that opening does not wait; closing it is the end.
        writer = os.open(name, os.O_RDWR)
    passing, copy = [], None
    if kind == "pipe" and case.chance(0.4):
        how, may_refuse = [], False
        passing = case.rng.choice([["--pass-through"], ["--tee"]])
        if passing == ["--tee"]:
            copy = case.path(case.world.places[0], ".copy")
            passing = ["--tee", str(copy)]

    def write(child):
        """In pieces of any size, as long as there is a reader."""
        pieces = memoryview(content)
        most = [1, 77, 4095, 4096, 65536, 65537, 1 << 20] if len(content) < 1 << 20 else [1 << 17]
        os.set_blocking(writer, False)
        try:
            # If a FIFO is closed before the reader opens it, the reader waits for ever.
            while kind == "fifo" and child.poll() is None and not is_open(child, name):
                time.sleep(0.001)
            while pieces and child.poll() is None:
                try:
                    pieces = pieces[os.write(writer, pieces[: case.rng.randrange(1, case.rng.choice(most) + 1)]) :]
                except BlockingIOError:
                    select.select([], [writer], [], 0.1)
                if case.rng.random() < 0.01:
                    time.sleep(0.002)
        except BrokenPipeError:
            pass
        finally:
            os.close(writer)

    case.count("inputs")
    stdin = reader if reader is not None else subprocess.DEVNULL
    argv = [case.world.ringsum, *how, *passing, name]
    child = case.world.run(argv, stdin=stdin, act=lambda child: close_and(reader, write, child))
    right = case.world.hash_of(content)
    if passing == ["--pass-through"]:
        if child.out != content:
            raise Broken("wrong hash", f"the bytes passed on are not those of the input: {child.said()}")
        child.out, child.err = child.err, b""
    elif copy and copy.read_bytes() != content:
        raise Broken("wrong hash", f"the copy is not the input: {child.said()}")
    judge(case, child, {name: {right}}, may_refuse)


def close_and(reader, write, child):
    if reader is not None:
        os.close(reader)
    write(child)


def is_open(child, name):
    """Whether a process has a file open."""
    try:
        folder = f"/proc/{child.pid}/fd"
        return any(os.readlink(f"{folder}/{fd}") == name for fd in os.listdir(folder))
    except OSError:
        return False


def plant_tree(case, place):
    """Makes a tree of small files; returns its folder and the paths in it."""
    root = case.path(place)
    root.mkdir()
    folders, files = [root], []
    letters = "abcdefgh Aäß~$'\"()é.-_日"
    for i in range(case.rng.choice([1, 30, 150, 400])):
        folder = case.rng.choice(folders)
        name = "".join(case.rng.choice(letters) for _ in range(case.rng.randrange(1, 9))) + str(i)
        if case.chance(0.15):
            (folder / name).mkdir()
            folders.append(folder / name)
            continue
        length = case.rng.choice([0, 1, 100, 4096, 5000, case.length(300_000), case.rng.randrange(20_000)])
        (folder / name).write_bytes(case.rng.randbytes(length))
        files.append(folder / name)
        if case.chance(0.3):
            case.cache(files[-1])
    return root, files


def tree(case):
    """A tree, in the order of its names, however its files are read."""
    place = case.rng.choice(case.world.places)
    root, files = plant_tree(case, place)
    read = place.read / root.name
    seen = [read / file.relative_to(root) for file in files]
    right = case.world.hashes(seen) if seen else []
    how, may_refuse = case.how() if case.chance(0.5) else ([], False)
    if case.chance(0.3):
        how += ["--jobs", str(case.rng.choice([1, 2, 64]))]
    case.count("inputs", len(files))
    child = case.world.run([case.world.ringsum, "-r", *how, read])
    judge(case, child, {str(path): {hash_} for path, hash_ in zip(seen, right)}, may_refuse)
    if child.code == 0:
        names = [os.fsencode(name) for name in lines_of(child)]
        parts = [name.split(b"/") for name in names]
        if parts != sorted(parts) and names != sorted(names):
            raise Broken("other", f"not in the order of the names: {child.said()}")


def lists(case):
    """Lists of each program, checked by the other; then one file is damaged, and one is missing."""
    place = case.rng.choice(case.world.places)
    root, files = plant_tree(case, place)
    if len(files) < 3:
        return
    world = case.world
    read = place.read / root.name
    names = [str(file.relative_to(root)) for file in files]
    by_ringsum, by_b3sum = case.path(world.places[0], ".sums"), case.path(world.places[0], ".sums")
    case.count("inputs", 3 * len(files))
    for program, sums in [(world.ringsum, by_ringsum), (world.b3sum, by_b3sum)]:
        sums.write_bytes(world.run([program, "--", *names], cwd=read).out)
    if by_ringsum.read_bytes() != by_b3sum.read_bytes():
        raise Broken("wrong hash", f"the lists differ: {read}")
    for program, sums in [(world.b3sum, by_ringsum), (world.ringsum, by_b3sum)]:
        child = world.run([program, "--check", sums], cwd=read)
        if child.code or child.out != b"".join(os.fsencode(f"{name}: OK\n") for name in names):
            raise Broken("wrong hash", f"a listed file fails: {child.said()}")
    case.count("hashes", 3 * len(files))
    bad = case.rng.randrange(len(files))
    gone = case.rng.choice([i for i in range(len(files)) if i != bad])
    if place.read != place.write:
        # The lower layer of an overlay must not change; this copies up.
        files = [read / name for name in names]
    content = bytearray(files[bad].read_bytes()) or bytearray(b"\x00")
    content[case.rng.randrange(len(content))] ^= 1 << case.rng.randrange(8)
    if files[bad].stat().st_size:
        files[bad].write_bytes(content)
    else:
        files[bad].write_bytes(b"no more")
    files[gone].unlink()
    how, may_refuse = case.how()
    child = world.run([world.ringsum, "--check", *how, by_b3sum], cwd=read)
    case.count("faults", 2)
    verdicts = child.out.decode(errors="surrogateescape").splitlines()
    well = [f"{name}: OK" for i, name in enumerate(names) if i not in (bad, gone)]
    if child.code == 0 or f"{names[bad]}: OK" in verdicts or f"{names[gone]}: OK" in verdicts:
        raise Broken("wrong hash", f"damage was missed: {names[bad]}, {names[gone]}: {child.said()}")
    if not may_refuse and [line for line in verdicts if line.endswith(": OK")] != well:
        raise Broken("wrong hash", f"an undamaged file fails: {child.said()}")


def states(case, path, content, seen, end):
    """Changes a file while it is read, in steps that are atomic for readers; `seen` gets the content after each."""
    rng = case.rng
    while time.monotonic() < end:
        time.sleep(rng.random() * 0.02)
        step = rng.choice(["page", "page", "grow", "shrink", "replace", "touch", "remove"])
        if step == "replace":
            content = bytearray(case.content(rng.choice([len(content), rng.randrange(1 << 20)])))
            new = path.with_suffix(".new")
            new.write_bytes(content)
            seen.append(bytes(content))
            new.rename(path)
        elif step == "remove" and rng.random() < 0.1:
            path.unlink(missing_ok=True)
            return
        elif step == "touch":
            os.utime(path, ns=(rng.randrange(10**18), rng.randrange(10**18)))
        else:
            with open(path, "r+b") as file:
                if step == "grow":
                    more = rng.randbytes(rng.randrange(1, 4096))
                    content += more
                    seen.append(bytes(content))
                    os.pwrite(file.fileno(), more, len(content) - len(more))
                elif step == "shrink" and content:
                    del content[rng.randrange(len(content)) :]
                    seen.append(bytes(content))
                    os.truncate(file.fileno(), len(content))
                elif content:
                    at = rng.randrange(len(content)) // 4096 * 4096
                    size = min(rng.randrange(1, 4097), len(content) - at)
                    content[at : at + size] = rng.randbytes(size)
                    seen.append(bytes(content))
                    os.pwrite(file.fileno(), bytes(content[at : at + size]), at)
        case.count("faults")
        if rng.random() < 0.4:
            return


def changing(case):
    """A file that is changed while it is read: the hash of a content that it had at some time, or an error."""
    place = case.rng.choice(case.world.places)
    length = case.rng.choice([case.length(3 << 20), 1 << 20, (2 << 20) + 5])
    path = case.file(place, length, sparse=False)
    content = bytearray(path.read_bytes())
    seen = [bytes(content)]
    case.cache(path)
    how, may_refuse = case.how()
    if case.chance(0.6):
        how += ["--limit-rate", case.rng.choice(["4M", "8M", "32M"])]
    if case.chance(0.3) and "--retry-changed=1" not in how:
        how += ["--retry-changed", "2"]

    def act(child):
        time.sleep(case.rng.random() * 0.15)
        states(case, path, content, seen, time.monotonic() + 0.4)

    case.made.append(path)
    case.count("inputs")
    child = case.world.run([case.world.ringsum, *how, path], act=act)
    rights = {case.world.hash_of(state) for state in seen}
    judge(case, child, {str(path): rights}, may_refuse, may_fail=True)


def faulty(case):
    """A file on a FUSE file system with faults, with or without an overlay on it."""
    world, rng = case.world, case.rng
    if not world.fuse:
        return
    length = max(1, case.length(4 << 20))
    words = [f"n={case.id}", f"len={length}"] + (["direct"] if case.chance(0.6) else [])
    is_direct = "direct" in words
    lengths, may_fail, most = [length], False, length
    at = rng.randrange(length)
    trouble = rng.choice(["slow", "short", "eio", "eintr", "eagain", "claims", "becomes", "becomes"])
    if trouble == "slow":
        words.append(f"slow={rng.choice([1, 5])}")
    elif trouble == "short" and is_direct:
        most = rng.choice([1000, 5000, 100_000]) if length > 50_000 else 100
        words.append(f"short={most}")
    elif trouble == "eio":
        words += [f"eio={at}"] + ([f"times={rng.randrange(1, 4)}"] if case.chance(0.3) else [])
        may_fail = True
    elif trouble in ("eintr", "eagain"):
        words += [f"{trouble}={at}", f"times={rng.randrange(1, 20)}"]
        # The page cache returns EIO instead to a read that shares a page with another.
        may_fail = not is_direct
    elif trouble == "claims" and is_direct:
        words.append(f"claims={max(1, length + rng.choice([-1, 1, -4096, 5000, -length // 2]))}")
        may_fail = True
    elif trouble == "becomes":
        lengths.append(rng.choice([length, length // 2, length + 999]) or 1)
        words += [f"becomes={lengths[1]}", f"after={rng.randrange(1, 8)}"]
        words += ["ctime"] if case.chance(0.2) else []
        may_fail = True
    folder = world.fuse_below if world.fuse_below and case.chance(0.4) else world.fuse
    path = folder / ",".join(words)
    how, may_refuse = case.how()
    if case.chance(0.2) and "--retry-changed=1" not in how:
        how += ["--retry-changed", "1"]
    case.count("inputs")
    case.count("faults")
    try:
        child = world.run([world.ringsum, *how, path])
    finally:
        (world.fuse / path.name).unlink(missing_ok=True)
    rights = {world.hash_of(world.noise(length)) for length in lengths}
    # A direct read begins at a sector; shorter answers never complete one.
    may_fail |= trouble == "short" and "page-cache=direct" in how and most < 8192
    judge(case, child, {str(path): rights}, may_refuse or (is_direct and "engine=mmap" in how), may_fail)


def signalled(case):
    """Signals that a run survives, and signals that end it: all output until then is right."""
    place = case.rng.choice(case.world.places)
    paths = [case.file(place, case.length(2 << 20)) for _ in range(3)]
    right = case.world.hashes(paths)
    how, may_refuse = case.how()
    ends = case.rng.choice([None, None, None, signal.SIGINT, signal.SIGTERM])

    def act(child):
        time.sleep(case.rng.random() * 0.05)
        case.count("faults", storm(child, case.rng, case.rng.random() * 0.3))
        if ends:
            send(child, ends)

    case.count("inputs", len(paths))
    how += ["--limit-rate", case.rng.choice(["8M", "20M"])]
    child = case.world.run([case.world.ringsum, *how, *paths], act=act)
    rights = {str(path): {hash_} for path, hash_ in zip(paths, right)}
    judge(case, child, rights, may_refuse, ended_by=(-ends, 130) if ends else ())


def limited(case):
    """Few descriptors, little memory, few threads: a hash or an error, nothing else."""
    place = case.rng.choice(case.world.places)
    rng = case.rng
    if case.chance(0.3):
        root, files = plant_tree(case, place)
        read = place.read / root.name
        paths, named = [read / file.relative_to(root) for file in files], ["-r", read]
    else:
        paths = named = [case.file(place) for _ in range(rng.choice([1, 3]))]
    right = case.world.hashes(paths) if paths else []
    for path in paths[:5]:
        case.cache(path)
    how, _ = case.how()
    limits = rng.sample(
        [
            f"--nofile={rng.choice([4, 5, 6, 8, 10, 20, 40])}",
            f"--as={rng.choice([6, 8, 12, 16, 32, 64, 256]) << 20}",
            f"--stack={rng.choice([64, 256, 1024]) << 10}",
            f"--memlock={rng.choice([0, 65536])}",
            f"--data={rng.choice([1, 4, 32]) << 20}",
        ],
        rng.choice([1, 1, 2]),
    )
    case.count("inputs", len(paths))
    case.count("faults", len(limits))
    command = ["prlimit", *limits, "--", case.world.ringsum]
    if case.world.run([*command, "--version"]).code:
        # The kernel, or the dynamic linker, has no room for the program itself.
        case.count("refused", len(paths))
        return
    child = case.world.run([*command, *how, *named])
    # The run stops, or Rust or glibc abort: docs/guide.md. Files that were not read have no line.
    has_no_memory = re.search(rb"memory allocation of|out of memory", child.err)
    if has_no_memory and child.code in (1, -signal.SIGABRT):
        child.code = 1
        judge_some(case, child, {str(path): {hash_} for path, hash_ in zip(paths, right)})
        case.count("errors")
        return
    rights = {str(path): {hash_} for path, hash_ in zip(paths, right)}
    if "-r" in named:
        # A folder that cannot be opened has a line of its own, and its files have none.
        judge_some(case, child, rights)
        return
    judge(case, child, rights, may_refuse=True, may_fail=True)


def judge_some(case, child, rights):
    """Judges a run in which not all files have a line."""
    found = lines_of(child)
    for name, hash_ in found.items():
        if hash_ not in rights.get(name, ()):
            raise Broken("wrong hash", f"{name}: {hash_}: {child.said()}")
    case.count("hashes", len(found))
    if child.code == 0 and len(found) != len(rights):
        raise Broken("other", f"exit status 0, but lines are missing: {child.said()}")
    if child.code == 1 and not child.err:
        raise Broken("other", f"a failure without a message: {child.said()}")
    if child.code not in (0, 1, 2):
        raise Broken("other", f"an unexpected exit status: {child.said()}")


# The weight of each kind.
KINDS = [(quiet, 30), (stream, 12), (tree, 8), (lists, 5), (changing, 20), (faulty, 12), (signalled, 6), (limited, 7)]


def kind_of(case):
    functions, weights = zip(*KINDS)
    return case.rng.choices(functions, weights)[0]
