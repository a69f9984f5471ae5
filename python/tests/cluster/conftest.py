"""A Dask cluster of worker processes, an S3 server that someone else wrote, and an oracle for digests."""

import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

os.environ["PYTHONPATH"] = os.pathsep.join(
    [str(pathlib.Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
)
# Workers inherit it. Otherwise gcsfs asks Google's control service about a bucket, and waits for minutes without a network.
os.environ.setdefault("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")

SECRET = "s3cr3t-of-the-tests"


@pytest.fixture(scope="session")
def digest_of():
    """BLAKE3 of bytes, hexadecimal, by another implementation."""
    try:
        import blake3
    except ImportError:
        b3sum = shutil.which("b3sum")
        if b3sum is None:
            pytest.skip("neither the package blake3 nor the command b3sum is installed")
        return lambda data: (
            subprocess.run([b3sum, "--no-names"], input=data, capture_output=True, check=True)
            .stdout.decode()
            .strip()
        )
    return lambda data: blake3.blake3(data).hexdigest()


@pytest.fixture(scope="session")
def cluster():
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=2, processes=True, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def client(cluster):
    from distributed import Client

    with Client(cluster) as client:
        # A test may have killed some.
        client.wait_for_workers(2, timeout=60)
        yield client


@pytest.fixture(scope="session")
def s3_server():
    """The address of moto's server, in a process of its own."""
    pytest.importorskip(
        "moto.server", reason="moto's server is not installed: pip install 'moto[server]'"
    )
    pytest.importorskip("s3fs", reason="s3fs is not installed")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/moto-api/").close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, "moto's server has ended"
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def storage_options(s3_server):
    return {
        "s3": {
            "key": "AKIATEST",
            "secret": SECRET,
            "endpoint_url": s3_server,
            "client_kwargs": {"region_name": "us-east-1"},
        }
    }


@pytest.fixture
def bucket(s3_server, storage_options):
    """A new bucket: the file system of s3fs, and the bucket's name."""
    import s3fs

    fs = s3fs.S3FileSystem(**storage_options["s3"], use_listings_cache=False)
    name = f"bucket-{random.getrandbits(40):x}"
    fs.call_s3("create_bucket", Bucket=name)
    return fs, name


@pytest.fixture
def data():
    """Random bytes of a given length; the same for the same seed."""
    return lambda length, seed=0: random.Random(seed).randbytes(length)
