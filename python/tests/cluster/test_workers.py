"""Lost workers cost only what they had not finished."""

import contextlib
import os
import random
import signal
import threading
import time

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)

from ringsum.cluster import ClusterLostError, hash_urls

MIB = 1 << 20
PARTS = 64


@contextlib.contextmanager
def own_cluster():
    """A cluster that a test may damage."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster) as client,
    ):
        client.wait_for_workers(2, timeout=60)
        yield client


def test_killed_workers(tmp_path, data, digest_of):
    path = tmp_path / "a"
    content = data(MIB) * PARTS
    path.write_bytes(content)
    expected = digest_of(content)
    chance = random.Random(1)
    lost = 0
    for _ in range(5):
        # (A new one each: Dask does not restart a worker that is killed while it starts.)
        with own_cluster() as client:
            pids = client.run(os.getpid)
            retries = []
            killed = []

            def kill(progress, pids=pids, killed=killed, at=chance.randrange(PARTS - 16) * MIB):
                if progress.bytes_done >= at and not killed:
                    killed.append(chance.choice(list(pids)))
                    os.kill(pids[killed[0]], signal.SIGKILL)

            (result,) = hash_urls(
                client,
                path,
                part_size=MIB,
                progress=kill,
                on_retry=retries.append,
                max_outstanding=8,
            )
            assert killed
            assert result.digest.hexdigest() == expected
            # Only what the killed worker had: not more than are outstanding, each once.
            assert all(f"its worker {killed[0]} was lost" in str(each.failure) for each in retries)
            assert len({each.failure.offset for each in retries}) == len(retries) <= 8
            assert result.retries == len(retries)
            lost += len(retries)
    assert lost, "no kill hit a task"


def test_a_cluster_without_workers_is_an_error(tmp_path):
    from distributed import Client, LocalCluster

    (tmp_path / "a").write_bytes(b"x")
    with (
        LocalCluster(n_workers=0, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        with pytest.raises(ClusterLostError, match="no workers"):
            list(hash_urls(client, tmp_path / "a", worker_timeout_s=1))


def test_workers_that_come_later(tmp_path, digest_of):
    from distributed import Client, LocalCluster

    (tmp_path / "a").write_bytes(b"x")
    with (
        LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        threading.Timer(1, cluster.scale, args=[1]).start()
        (result,) = hash_urls(client, tmp_path / "a")
        assert result.digest.hexdigest() == digest_of(b"x")


def test_a_lost_scheduler_is_an_error(tmp_path, data):
    import subprocess
    import sys

    from distributed import Client

    (tmp_path / "a").write_bytes(data(MIB))
    code = (
        "import time\nfrom distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        "    cluster = LocalCluster(n_workers=1, threads_per_worker=1)\n"
        "    print(cluster.scheduler_address, flush=True)\n    time.sleep(600)\n"
    )
    (tmp_path / "scheduler.py").write_text(code)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "scheduler.py"],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        with Client(process.stdout.readline().strip(), timeout=10) as client:
            started = time.monotonic()

            def kill(progress):
                if progress.bytes_done:
                    os.killpg(process.pid, signal.SIGKILL)

            with pytest.raises(ClusterLostError):
                list(
                    hash_urls(client, [tmp_path / "a"] * 200_000, progress=kill, part_size="64KiB")
                )
            assert time.monotonic() - started < 60
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def test_an_asynchronous_client_is_refused():
    import asyncio

    from distributed import Client, LocalCluster

    async def attempt():
        async with LocalCluster(
            n_workers=0, asynchronous=True, dashboard_address="127.0.0.1:0"
        ) as cluster:
            async with Client(cluster, asynchronous=True) as client:
                with pytest.raises(TypeError, match="asynchronous"):
                    hash_urls(client, "a")

    asyncio.run(attempt())
