"""A case of `bench/soak`: one process that reads 20,000 files, and must not leak."""

import os
import pathlib
import subprocess
import threading
import time

from soak_cases import ENGINES, judge
from soak_world import PATIENCE_S, Broken, Child, stacks_of, usage_of

FILES = 20_000
BATCH = 200
ROUNDS = 10
# How much more an idle process may hold in its last rounds than in the third to the fifth: it starts threads as it
# learns how busy the device is, and an allocator keeps memory (in KiB). In between there are 10,000 files, and 500
# that failed.
SLACK = {"descriptors": 8, "threads": 20, "mappings": 80, "resident": 24 << 10}


def long(case):
    """Names arrive in batches; one in 20 is of a file that fails, is missing, or is a folder."""
    world = case.world
    place = case.rng.choice(world.places)
    root = case.path(place)
    root.mkdir()
    engine = case.rng.choice([None, None, *ENGINES])
    how = ["--io", f"engine={engine}"] if engine else []
    paths = plant(root, case)
    read = place.read / root.name
    names = [str(read / path.name) for path in paths]
    rights = {}
    for i in range(0, FILES, 1000):
        rights.update(zip(names[i : i + 1000], [{hash_} for hash_ in world.hashes(names[i : i + 1000])]))
    if case.chance(0.7):
        subprocess.run(["sync", "--file-system", root], check=True)
        for path in paths:
            with open(path, "rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    case.count("inputs", FILES)
    argv = [str(world.ringsum), *how, "--files-from", "-"]
    child, looks = feed(world, case, argv, names, read)
    judge_usage(argv, looks)
    case.count("looks", len(looks))
    judge(case, child, {name: rights[name] for name in rights}, may_refuse=bool(engine), may_fail=False)


def plant(root, case):
    paths = []
    for i in range(FILES):
        path = root / f"{i:05}"
        path.write_bytes(case.rng.randbytes(case.rng.choice([0, 1, 100, 3000, 4096, 9000])))
        paths.append(path)
    for i in range(0, FILES, 1000):
        paths[i].write_bytes(case.rng.randbytes(case.rng.randrange(1 << 20, 3 << 20)))
    return paths


def feed(world, case, argv, names, read):
    """Runs it; returns the finished run without the messages about bad names, and its usage after each round."""
    child = subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=world.env
    )
    parts = {}

    def drain(name, pipe):
        parts[name] = pipe.read()

    readers = [
        threading.Thread(target=drain, args=("out", child.stdout)),
        threading.Thread(target=drain, args=("err", child.stderr)),
    ]
    for reader in readers:
        reader.start()
    looks, bad = [], []
    watch = threading.Timer(4 * PATIENCE_S, child.kill)
    watch.start()
    try:
        for i in range(0, FILES, BATCH):
            batch = names[i : i + BATCH]
            for k in range(BATCH // 20):
                name = str(read / "is-missing") if k % 3 else str(read)
                if world.fuse and k % 3 == 0:
                    name = str(world.fuse / f"n={case.id}-{i}-{k},len=5000,direct,eio=0")
                bad.append(name)
                batch.append(name)
            child.stdin.write("".join(f"{name}\n" for name in batch).encode())
            child.stdin.flush()
            if (i + BATCH) % (FILES // ROUNDS) == 0:
                looks.append(at_rest(child.pid))
        child.stdin.close()
    except OSError as error:
        bad.append(f"{error}")
    for reader in readers:
        reader.join(4 * PATIENCE_S)
    if child.poll() is None and not watch.is_alive():
        raise Broken("hang", f"{argv}\n{stacks_of(child.pid)}")
    watch.cancel()
    code = child.wait()
    if code < 0:
        raise Broken("hang" if code == -9 else "other", f"{argv} ended with {code}")
    for name in {name for name in bad if "len=5000" in name}:
        (world.fuse / name.rsplit("/", 1)[1]).unlink(missing_ok=True)
    is_bad = [f"ringsum: {name}: ".encode() for name in set(bad)]
    starts = {start for start in is_bad}
    left = [line for line in parts["err"].splitlines() if not any(line.startswith(start) for start in starts)]
    said = len(parts["err"].splitlines()) - len(left)
    if said < len(bad):
        raise Broken("other", f"{argv}: {len(bad)} bad names, and {said} errors")
    case.count("errors", said)
    case.count("faults", len(bad))
    # Without the bad names there is no failure, except in the last line, which counts them.
    counting = [line for line in left if line.startswith(b"ringsum: WARNING") or b"files failed" in line]
    left = [line for line in left if line not in counting]
    code = 0 if code == 1 and not left else code
    return Child(argv, code, parts["out"], b"\n".join(left)), looks


def at_rest(pid):
    """The usage of a process when it is idle: no CPU time in 0.3 s, after 10 s at most."""
    before = None
    for _ in range(33):
        ticks = pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
        if ticks == before:
            break
        before = ticks
        time.sleep(0.3)
    return usage_of(pid)


def judge_usage(argv, looks):
    if len(looks) < ROUNDS:
        raise Broken("other", f"{argv}: it ended before it could be checked")
    for what, slack in SLACK.items():
        early = max(look[what] for look in looks[2:5])
        late = min(look[what] for look in looks[-2:])
        if late > early + slack:
            raise Broken("leak", f"{argv}: {what}: {early}, and then {late}")
