"""Google Cloud Storage, by a server that someone else wrote: fake-gcs-server."""

import os
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)
pytest.importorskip("gcsfs", reason="gcsfs is not installed: pip install gcsfs")

from ringsum.cluster import hash_urls
from test_versions import SIZE, assert_changed, replace_after_first_part

MIB = 1 << 20


def program():
    """The server in PATH, or where `go install` puts it."""
    folders = [os.environ.get("PATH", ""), os.path.expanduser("~/go/bin")]
    return shutil.which("fake-gcs-server", path=os.pathsep.join(folders))


@pytest.fixture(scope="module")
def gcs_server():
    found = program()
    if found is None:
        pytest.skip("there is no fake-gcs-server: go install github.com/fsouza/fake-gcs-server@latest")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    command = [found, "-scheme=http", "-host=127.0.0.1", f"-port={port}", "-backend=memory"]
    command += [f"-public-host=127.0.0.1:{port}", f"-external-url={address}"]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(300):
            try:
                urllib.request.urlopen(f"{address}/storage/v1/b?project=test").close()
                break
            except (urllib.error.URLError, ConnectionError):
                assert server.poll() is None, "fake-gcs-server has ended"
                time.sleep(0.1)
        yield address
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def options(gcs_server):
    return {"gcs": {"endpoint_url": gcs_server, "token": "anon", "project": "test"}}


@pytest.fixture
def bucket(options, request):
    """A new bucket: the file system of gcsfs, and the bucket's name."""
    import gcsfs

    fs = gcsfs.GCSFileSystem(**options["gcs"], use_listings_cache=False)
    name = f"bucket-{os.getpid()}-{time.monotonic_ns()}"
    fs.mkdir(name)
    return fs, name


@pytest.mark.parametrize("part_size", ["1MiB", "1GiB"])
def test_digests(client, bucket, options, data, digest_of, part_size):
    fs, name = bucket
    contents = {key: data(size) for key, size in {"a b": 0, "b/c?d#e": 1, "é": SIZE + 1}.items()}
    for key, content in contents.items():
        fs.pipe(f"{name}/{key}", content)
    urls = [f"gs://{name}/{key}" for key in contents]
    results = list(hash_urls(client, urls, part_size=part_size, storage_options=options))
    assert [result.failure for result in results] == [None] * len(urls)
    assert [result.digest.hexdigest() for result in results] == [
        digest_of(content) for content in contents.values()
    ]
    assert all(result.version.startswith("generation:") for result in results)
    listed = hash_urls(client, f"gs://{name}", recursive=True, storage_options=options)
    by_url = {result.url: (result.digest.hexdigest(), result.version) for result in listed}
    assert by_url == {result.url: (result.digest.hexdigest(), result.version) for result in results}


@pytest.mark.parametrize("how", ["replace", "remove"])
def test_a_replaced_object_is_an_error(client, bucket, options, data, how):
    fs, name = bucket
    url = f"gs://{name}/a"
    fs.pipe(url, data(SIZE))
    replace = (lambda: fs.pipe(url, data(SIZE, 1))) if how == "replace" else (lambda: fs.rm(url))
    assert_changed(replace_after_first_part(client, url, replace, storage_options=options), url)


def test_what_is_missing(client, bucket, options):
    (result,) = hash_urls(client, f"gs://{bucket[1]}/none", storage_options=options)
    assert (result.status, result.digest) == ("missing", None)
