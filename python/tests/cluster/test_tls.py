"""A cluster that encrypts, and refuses clients without a certificate of its authority."""

import subprocess
import sys

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)
pytest.importorskip("cryptography", reason="cryptography is not installed")

from distributed import Client, LocalCluster
from distributed.security import Security
from ringsum.cluster import hash_urls

MIB = 1 << 20


@pytest.fixture(scope="module")
def security():
    return Security.temporary()


@pytest.fixture(scope="module")
def address(security):
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        processes=True,
        security=security,
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster.scheduler_address


@pytest.fixture
def path(tmp_path, data):
    path = tmp_path / "a"
    path.write_bytes(data(20 * MIB + 1))
    return path


def test_the_digest(address, security, path, data, digest_of):
    assert address.startswith("tls://")
    with Client(address, security=security, set_as_default=False) as client:
        client.wait_for_workers(2, timeout=60)
        workers = client.scheduler_info()["workers"]
        assert all(worker.startswith("tls://") for worker in workers)
        (result,) = hash_urls(client, path, part_size=MIB)
    assert result.digest.hexdigest() == digest_of(data(20 * MIB + 1))


def test_other_certificates_are_refused(address):
    with pytest.raises(OSError):
        Client(address, security=Security.temporary(), timeout=3, set_as_default=False)


def test_the_command(address, security, path, data, digest_of, tmp_path):
    options = []
    for option, text in {
        "--tls-ca-file": security.tls_ca_file,
        "--tls-cert": security.tls_client_cert,
        "--tls-key": security.tls_client_key,
    }.items():
        file = tmp_path / f"{option[2:]}.pem"
        file.write_text(text)
        options += [option, file]
    command = [sys.executable, "-m", "ringsum.cluster", "--scheduler", address, "--part-size=1MiB"]
    done = subprocess.run([*command, *options, path], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"{digest_of(data(20 * MIB + 1))}  {path}\n"
    without = subprocess.run([*command, path], capture_output=True, text=True, timeout=120)
    assert (without.returncode, without.stdout) == (1, "")
    assert "the scheduler cannot be reached" in without.stderr
