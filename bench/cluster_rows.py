"""The rows of `bench/cluster`: each returns a dict with `must`, `found` (texts), `passed` and its samples."""

import contextlib
import functools
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time

import cluster_simulation
import ringsum
from distributed import Client, LocalCluster
from ringsum.cluster import Limits, driver, engine, hash_urls, objects, plan, worker
from ringsum.cluster.secrets import StorageOptions
from ringsum.cluster.stores import store_of

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
KEY, SECRET = "AKIATEST", "not-a-secret"


class World:
    """Where a row works, and what other rows have found."""

    def __init__(self, scratch, s3, small, rows):
        self.scratch, self.s3, self.small, self.rows = scratch, s3, small, rows

    def path(self, name):
        return os.path.join(self.scratch, name)

    def random_file(self, name, size, seed=0, every=1):
        """Write random bytes into each `every`-th MiB; the others are holes, so that a large file needs little disk."""
        chance = random.Random(seed)
        with open(self.path(name), "wb") as file:
            file.truncate(size)
            for offset in range(0, size, every * MIB):
                file.seek(offset)
                file.write(chance.randbytes(MIB))
        return self.path(name)


@contextlib.contextmanager
def cluster(workers=2, threads=1):
    local = LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=True,
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    )
    with local, Client(local) as client:
        client.wait_for_workers(workers)
        yield client


def b3sum(path):
    found = subprocess.run(
        ["b3sum", "--no-names", path], capture_output=True, check=True, text=True
    )
    return found.stdout.strip()


@contextlib.contextmanager
def server(command, port):
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            time.sleep(0.1)
        yield {
            "s3": {
                "key": KEY,
                "secret": SECRET,
                "endpoint_url": f"http://127.0.0.1:{port}",
                "client_kwargs": {"region_name": "us-east-1"},
            }
        }
    finally:
        process.terminate()
        process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def moto():
    port = free_port()
    return server([sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], port)


@contextlib.contextmanager
def s3_object(world, size):
    """An object of random bytes in S3: the options of its server, its URL, and its digest."""
    path = world.random_file("object", size)
    with contextlib.ExitStack() as stack:
        options = world.s3 or stack.enter_context(moto())
        import s3fs

        # (Not every server knows the checksums that botocore adds to uploads by default.)
        plain = {"config_kwargs": {"request_checksum_calculation": "when_required"}}
        fs = s3fs.S3FileSystem(**options["s3"], **plain, use_listings_cache=False)
        bucket = f"ringsum-{os.getpid()}"
        fs.call_s3("create_bucket", Bucket=bucket)
        try:
            fs.put_file(path, f"{bucket}/object")
            yield options, f"s3://{bucket}/object", b3sum(path)
        finally:
            fs.rm(f"{bucket}/object")
            fs.call_s3("delete_bucket", Bucket=bucket)


def noted(log, task, run, number, options):
    """As `worker.run_task`; notes which process starts and ends which part, in a file that outlives the process."""
    if not isinstance(task, plan.RangeTask):
        return worker.run_task(task, run, number, options)
    note(log, task.offset, "start")
    reply = worker.run_task(task, run, number, options)
    note(log, task.offset, "end")
    return reply


def note(log, offset, what):
    # (One write, so that lines of several processes do not mix.)
    with open(log, "ab", buffering=0) as file:
        file.write(f"{offset} {os.getpid()} {what}\n".encode())


@contextlib.contextmanager
def attempts_noted(log):
    """Note in `log` what `noted` says; yields the set of offsets whose parts have reached the client."""
    delivered, run_task, finish = set(), driver.run_task, engine.Engine.finish

    def finish_noted(self, number, reply, now):
        if isinstance(reply, ringsum.Part):
            delivered.add(reply.offset)
        finish(self, number, reply, now)

    driver.run_task = functools.partial(noted, log)
    engine.Engine.finish = finish_noted
    try:
        yield delivered
    finally:
        driver.run_task, engine.Engine.finish = run_task, finish


def repeated_parts(log, killed, delivered):
    """Count the parts that were computed again, by what had become of the attempts before the last.

    `unfinished` and `undelivered` are those of the killed process, cut off or with a result that only it had. All
    others are `needless`: of another process, or with a result that the client had before the kill (`delivered`).
    """
    attempts = {}
    with open(log) as file:
        for line in file:
            offset, pid, what = line.split()
            tries = attempts.setdefault(int(offset), [])
            if what == "start":
                tries.append([int(pid), False])
            else:
                # The last one of this process: it has one thread.
                next(each for each in reversed(tries) if each[0] == int(pid))[1] = True
    counts = {"unfinished": 0, "undelivered": 0, "needless": 0}
    for offset, tries in attempts.items():
        for pid, has_ended in tries[:-1]:
            if pid != killed or offset in delivered:
                counts["needless"] += 1
            else:
                counts["undelivered" if has_ended else "unfinished"] += 1
    return counts


def kills(world):
    size, times, part = (256 * MIB, 4, 16 * MIB) if world.small else (4 * GIB, 50, 64 * MIB)
    path = world.random_file("object", size, every=8)
    expected = b3sum(path)
    chance = random.Random(1)
    samples = [kill_once(world, path, size, part, expected, chance) for _ in range(times)]
    sums = {name: sum(sample[name] for sample in samples) for name in samples[0]}
    most = max(sample["parts_repeated"] for sample in samples)
    hit = sum(sample["parts_repeated"] > 0 for sample in samples)
    return {
        "must": "right digest, only the parts of the killed worker again",
        "found": f"{sums['right']} of {times} right, {sums['killed']} kills, {hit} of them hit a part;"
        f" again: {sums['parts_repeated']} parts of {times * size // part} ({most} of {size // part} at most),"
        f" {sums['unfinished']} that the killed worker had not finished, {sums['undelivered']} whose result only it had,"
        f" {sums['needless']} others",
        "passed": sums["right"] == times == sums["killed"] and sums["needless"] == 0 < hit,
        "samples": samples,
    }


def kill_once(world, path, size, part, expected, chance):
    """Hash an object on a new cluster, and kill one of its two workers meanwhile; returns what happened."""
    log, at, reported = world.path("attempts"), chance.random() * size * 0.9, []
    with contextlib.suppress(FileNotFoundError):
        os.remove(log)
    # (A new one: Dask does not restart a worker that is killed while it starts.)
    with attempts_noted(log) as delivered, cluster() as client:
        pids, killed, delivered_before = list(client.run(os.getpid).values()), [], set()

        def kill(progress):
            if progress.bytes_done >= at and not killed:
                killed.append(chance.choice(pids))
                delivered_before.update(delivered)
                os.kill(killed[0], signal.SIGKILL)

        started = time.monotonic()
        (result,) = hash_urls(
            client, path, part_size=part, progress=kill, on_retry=reported.append
        )
        seconds = time.monotonic() - started
    counts = repeated_parts(log, killed[0] if killed else None, delivered_before)
    return {
        "right": result.digest is not None and result.digest.hexdigest() == expected,
        "killed": len(killed),
        "parts_repeated": sum(counts.values()),
        **counts,
        "reported": len(reported),
        "seconds": round(seconds, 3),
    }


def replacements(world):
    times, size = (4 if world.small else 50), 32 * MIB
    chance, samples = random.Random(2), []
    with moto() as options, cluster() as client:
        import s3fs

        fs = s3fs.S3FileSystem(**options["s3"], use_listings_cache=False)
        fs.call_s3("create_bucket", Bucket="bucket")
        for number in range(times):
            is_s3 = number % 2 == 1
            url = f"s3://bucket/object-{number}" if is_s3 else world.path(f"object-{number}")

            def put(seed, url=url, is_s3=is_s3):
                data = random.Random(seed).randbytes(size)
                if is_s3:
                    fs.pipe(url, data)
                    return
                with open(url + ".new", "wb") as file:
                    file.write(data)
                os.rename(url + ".new", url)

            put(number)
            replaced = []

            # 4 parts are outstanding: at this moment, the last one has not been submitted.
            def replace(
                progress,
                at=chance.randrange(size // MIB - 8) * MIB,
                replaced=replaced,
                put=put,
                number=number,
            ):
                if progress.bytes_done >= at and progress.tasks_started and not replaced:
                    put(number + 1000)
                    replaced.append(progress.bytes_done)

            limits = Limits(small_bytes=0)
            settings = {
                "storage_options": options,
                "limits": limits,
                "max_outstanding": 4,
                "progress": replace,
            }
            (result,) = hash_urls(client, url, part_size=MIB, **settings)
            names_it = result.error is not None and url in str(result.error)
            was_in_time = bool(replaced) and replaced[0] < size - 4 * MIB
            samples.append(
                {
                    "s3": is_s3,
                    "status": result.status,
                    "names_it": names_it,
                    "was_in_time": was_in_time,
                }
            )
    good = sum(
        sample["status"] == "changed" and sample["names_it"] and sample["was_in_time"]
        for sample in samples
    )
    return {
        "must": "an error that names the object, each time",
        "found": f"{good} of {times}, half of them files and half S3",
        "passed": good == times,
        "samples": samples,
    }


def no_work(task, run, number, options):
    """As `worker.run_task`, without the work."""
    worker._report_start(run, number)
    return task.offset


def nothing(number):
    return number


def scheduling(world):
    count = 500 if world.small else 10_000
    original = driver.run_task
    driver.run_task = no_work
    try:
        with cluster() as client:
            client.gather(client.map(nothing, range(100), pure=False))
            started = time.perf_counter()
            client.gather(client.map(nothing, range(count), pure=False, key="plain"))
            plain_ms = (time.perf_counter() - started) / count * 1e3
            per_part_ms = empty_run(client, count)
            # The time from submission to reply if nothing else is under way.
            round_trips = [empty_run(client, 1) for _ in range(20)]
    finally:
        driver.run_task = original
    return {
        "must": "<= 4 ms a part (aim 1 ms)",
        "found": f"{per_part_ms:.2f} ms a part; Dask's own `map` and `gather` {plain_ms:.2f} ms",
        "passed": per_part_ms <= 4,
        "per_part_ms": per_part_ms,
        "plain_ms": plain_ms,
        "round_trip_ms": statistics.median(round_trips),
    }


def empty_run(client, count):
    """Return milliseconds a part."""
    target = objects.Object("empty", count * GIB, 0, None)
    threads = sum(client.nthreads().values())
    one = engine.Engine(iter([plan.Item(0, "empty", target)]), Limits(), threads, len, True)
    started = time.perf_counter()
    (result,) = driver.run(client, one, StorageOptions(), lambda _: None, lambda _: None, 10)
    assert result.digest == count
    return (time.perf_counter() - started) / count * 1e3


def simulation(world):
    measured = world.rows.get("scheduling") or scheduling(world)
    found = cluster_simulation.efficiency(
        measured["per_part_ms"] / 1e3, measured["round_trip_ms"] / 1e3
    )
    return {
        "must": ">= 0.9 of linear (aim 0.97)",
        "found": f"{found['efficiency']:.3f}, with {measured['per_part_ms']:.2f} ms a part and {measured['round_trip_ms']:.0f} ms a round trip",
        "passed": found["efficiency"] >= 0.9,
        **found,
    }


def read_to_nothing(path, offset, length, options, block_bytes):
    """Read a range through s3fs, and drop it."""
    import s3fs

    fs = s3fs.S3FileSystem(**options.of("s3"))
    with fs.open(path, "rb", block_size=block_bytes, cache_type="readahead") as file:
        file.seek(offset)
        left = length
        while left:
            left -= len(file.read(min(left, block_bytes)))


def throughput(world):
    size, rounds = (64 * MIB, 2) if world.small else (512 * MIB, 6)
    part = size // 16
    blocks = {"4 MiB": 4 * MIB, "50 MiB (s3fs's default)": 50 * MIB}
    seconds = {name: [] for name in ["hash", *blocks]}
    with s3_object(world, size) as (options, url, expected), cluster() as client:
        opaque = StorageOptions(options)
        for _ in range(rounds):
            started = time.perf_counter()
            (result,) = hash_urls(client, url, part_size=part, storage_options=options)
            seconds["hash"].append(time.perf_counter() - started)
            assert result.raise_for_error().digest.hexdigest() == expected
            for name, block in blocks.items():
                arguments = [(url, at, part, opaque, block) for at in range(0, size, part)]
                started = time.perf_counter()
                client.gather(
                    [client.submit(read_to_nothing, *each, pure=False) for each in arguments]
                )
                seconds[name].append(time.perf_counter() - started)
    # (The first round loads modules and opens connections.)
    seconds = {name: times[1:] for name, times in seconds.items()}
    rates = {name: size / statistics.median(times) / 1e6 for name, times in seconds.items()}
    fastest = max(blocks, key=rates.get)
    ratio = rates["hash"] / rates[fastest]
    return {
        "must": ">= 0.85 of reading (aim 0.95)",
        "found": f"{ratio:.2f}: {rates['hash']:.0f} MB/s against {rates[fastest]:.0f} MB/s in blocks of {fastest}",
        "passed": ratio >= 0.85,
        "ratio": ratio,
        "seconds": seconds,
    }


def grouping(world):
    count = 2_000 if world.small else 100_000
    for number in range(count):
        directory = world.path(f"tree/{number // 1000:03}")
        if number % 1000 == 0:
            os.makedirs(directory)
        with open(f"{directory}/{number % 1000:03}", "wb") as file:
            file.write(number.to_bytes(1024, "little"))
    tasks, seen = 0, {}

    def count_tasks(progress):
        nonlocal tasks
        tasks = progress.tasks_started

    with cluster() as client:
        started = time.perf_counter()
        for result in hash_urls(client, world.path("tree"), recursive=True, progress=count_tasks):
            seen[result.url] = result.digest.hexdigest()
        seconds = time.perf_counter() - started
    listed = subprocess.run(
        ["b3sum", *sorted(seen)[:1000]], capture_output=True, check=True, text=True
    ).stdout
    right = all(seen[line[66:]] == line[:64] for line in listed.splitlines())
    return {
        "must": "<= 2,000 tasks",
        "found": f"{tasks} tasks for {len(seen)} objects, {seconds:.1f} s",
        "passed": tasks <= 2000 and len(seen) == count and right,
        "tasks": tasks,
        "seconds": seconds,
    }


def peak_kib(pid):
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))


# (Not `ru_maxrss`: it starts with that of the parent process.)
CLIENT = """
import sys
from distributed import Client
with Client(sys.argv[1]) as client:
    client.gather(client.map(abs, range(2000), pure=False))
    print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""
HASHING_CLIENT = """
import sys, json
from distributed import Client
from ringsum.cluster import hash_urls
with Client(sys.argv[1]) as client:
    client.gather(client.map(abs, range(2000), pure=False))
    for result in hash_urls(client, sys.argv[2], part_size=sys.argv[3], storage_options=json.loads(sys.stdin.read())):
        assert result.status == "ok", result
    print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))
"""


def import_all(scheme):
    store_of(f"{scheme}://bucket/a", StorageOptions()) if scheme else None


def memory(world):
    import json

    size = 64 * MIB if world.small else 512 * MIB
    rows = {}
    with s3_object(world, size) as (options, remote, _):
        path = world.path("object")
        cases = {"file": (path, {}, 1), "file, 4 threads": (path, {}, 4)}
        cases |= {"S3": (remote, options, 1), "S3, 4 threads": (remote, options, 4)}
        for name, (url, options, threads) in cases.items():
            with cluster(workers=1, threads=threads) as client:
                address = client.scheduler.address
                command = [sys.executable, "-c"]
                plain_client = int(
                    subprocess.run(
                        [*command, CLIENT, address], capture_output=True, check=True
                    ).stdout
                )
                (pid,) = client.run(os.getpid).values()
                plain = peak_kib(pid)
                client.run(import_all, "s3" if url.startswith("s3:") else "")
                imported = peak_kib(pid)
                hashing = [*command, HASHING_CLIENT, address, url, "64MiB"]
                given = json.dumps(options).encode()
                client_peak = int(
                    subprocess.run(hashing, input=given, stdout=subprocess.PIPE, check=True).stdout
                )
                rows[name] = {
                    "worker_mib": (peak_kib(pid) - plain) / 1024,
                    "worker_modules_mib": (imported - plain) / 1024,
                    "client_mib": (client_peak - plain_client) / 1024,
                }
    most = max(max(row["worker_mib"], row["client_mib"]) for row in rows.values())
    text = "; ".join(
        f"{name}: worker {row['worker_mib']:.0f} (modules {row['worker_modules_mib']:.0f}), client {row['client_mib']:.0f}"
        for name, row in rows.items()
    )
    return {
        "must": "<= 64 MiB besides Dask's own",
        "found": f"MiB: {text}",
        "passed": most <= 64,
        "cases": rows,
    }


ROWS = {
    "kills": kills,
    "replacements": replacements,
    "scheduling": scheduling,
    "simulation": simulation,
    "throughput": throughput,
    "grouping": grouping,
    "memory": memory,
}
