"""Digests on a real cluster, of files and of objects in S3 and behind HTTP."""

import os

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)

from ringsum.cluster import Limits, hash_urls

KIB = 1 << 10
MIB = 1 << 20

SIZES = [0, 1, KIB, 3 * MIB + 1, 8 * MIB, 21 * MIB + 1234]


@pytest.fixture(scope="module")
def contents():
    import random

    return {f"o{size}": random.Random(size).randbytes(size) for size in SIZES}


@pytest.fixture
def tree(tmp_path, contents):
    for name, data in contents.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("part_size", ["64KiB", "1MiB", "3MiB", "1GiB"])
@pytest.mark.parametrize("ordered", [True, False])
def test_files(client, tree, contents, digest_of, part_size, ordered):
    names = [tree / name for name in contents]
    results = list(hash_urls(client, names, part_size=part_size, ordered=ordered))
    assert {result.url: result.digest.hexdigest() for result in results} == {
        os.fspath(tree / name): digest_of(data) for name, data in contents.items()
    }
    assert not ordered or [result.url for result in results] == [os.fspath(name) for name in names]


def test_parts_of_any_multiple_of_1_kib(client, tree, contents, digest_of):
    name = f"o{3 * MIB + 1}"
    for part_size in (5 * KIB, 77 * KIB, MIB + KIB):
        (result,) = hash_urls(
            client, tree / name, part_size=part_size, limits=Limits(small_bytes=0)
        )
        assert result.digest.hexdigest() == digest_of(contents[name])


@pytest.mark.parametrize("part_size", ["1MiB", "5MiB", "1GiB"])
def test_s3(client, bucket, storage_options, contents, digest_of, part_size):
    fs, name = bucket
    for key, data in contents.items():
        fs.pipe(f"{name}/{key}", data)
    urls = [f"s3://{name}/{key}" for key in contents]
    results = list(hash_urls(client, urls, part_size=part_size, storage_options=storage_options))
    assert [result.failure for result in results] == [None] * len(urls)
    assert [result.digest.hexdigest() for result in results] == [
        digest_of(data) for data in contents.values()
    ]
    assert all(result.version.startswith("etag:") for result in results)
    listed = list(
        hash_urls(
            client,
            f"s3://{name}",
            recursive=True,
            part_size=part_size,
            storage_options=storage_options,
        )
    )
    assert (
        sorted(result.url for result in listed) == [result.url for result in listed] == sorted(urls)
    )
    by_url = {result.url: (result.digest.hexdigest(), result.version) for result in results}
    assert {result.url: (result.digest.hexdigest(), result.version) for result in listed} == by_url


def test_keys_of_s3_are_taken_as_they_are(client, bucket, storage_options, digest_of):
    fs, name = bucket
    keys = ["a b", "a?versionId=x", "a#b", "é", "a%20b", "p//q", "a+b&c", "d/"]
    for key in keys:
        fs.call_s3("put_object", Bucket=name, Key=key, Body=key.encode())
    urls = [f"s3://{name}/{key}" for key in keys]
    results = list(hash_urls(client, urls, storage_options=storage_options))
    assert [result.digest and result.digest.hexdigest() for result in results] == [
        digest_of(key.encode()) for key in keys
    ]
    listed = [
        result.url
        for result in hash_urls(
            client, f"s3://{name}/", recursive=True, storage_options=storage_options
        )
    ]
    assert listed == sorted(urls, key=str.encode)


def test_listings_have_many_pages(client, bucket, storage_options):
    fs, name = bucket
    fs.pipe({f"{name}/d/{number:04}": b"x" for number in range(1500)})
    results = list(
        hash_urls(client, f"s3://{name}/d", recursive=True, storage_options=storage_options)
    )
    assert [result.url for result in results] == [
        f"s3://{name}/d/{number:04}" for number in range(1500)
    ]
    assert {result.status for result in results} == {"ok"}


@pytest.mark.parametrize("part_size", ["1MiB", "1GiB"])
def test_http(client, bucket, s3_server, contents, digest_of, part_size):
    fs, name = bucket
    for key, data in contents.items():
        if data:
            fs.call_s3("put_object", Bucket=name, Key=key, Body=data, ACL="public-read")
    urls = [f"{s3_server}/{name}/{key}" for key, data in contents.items() if data]
    results = list(hash_urls(client, urls, part_size=part_size))
    assert [result.failure for result in results] == [None] * len(urls)
    assert [result.digest.hexdigest() for result in results] == [
        digest_of(data) for data in contents.values() if data
    ]
    assert all(result.version.startswith("etag:") for result in results)


def test_other_file_systems(client, tree, contents, digest_of):
    # (zip:: stands for all that fsspec offers: it is read through its file objects.)
    import zipfile

    with zipfile.ZipFile(tree / "all.zip", "w") as archive:
        for name in contents:
            archive.write(tree / name, name)
    url = f"zip://o{3 * MIB + 1}::file://{tree}/all.zip"
    (result,) = hash_urls(client, url)
    assert result.digest.hexdigest() == digest_of(contents[f"o{3 * MIB + 1}"])


def test_directories_in_byte_order(client, tmp_path, digest_of, monkeypatch):
    names = ["A", "a.d/x", "a.x", "a/x", "a/y/z", "b", "new\nline", "\udcff"]
    for name in names:
        path = os.path.join(tmp_path, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8", errors="surrogateescape") as file:
            file.write(name)
    (tmp_path / "link").symlink_to("A")
    monkeypatch.chdir(tmp_path)
    results = list(hash_urls(client, ".", recursive=True))
    assert [result.url for result in results] == [f"./{name}" for name in names]
    assert [result.digest.hexdigest() for result in results] == [
        digest_of(os.fsencode(name)) for name in names
    ]


def test_what_cannot_be_hashed_is_reported_and_the_rest_goes_on(
    client, tmp_path, bucket, storage_options
):
    (tmp_path / "good").write_bytes(b"x")
    os.mkfifo(tmp_path / "fifo")
    names = [
        tmp_path / "none",
        tmp_path,
        tmp_path / "fifo",
        "nosuch://x",
        f"s3://{bucket[1]}/none",
        "s3://",
        tmp_path / "good",
    ]
    results = list(hash_urls(client, names, storage_options=storage_options))
    assert [result.status for result in results] == [
        "missing",
        "error",
        "error",
        "error",
        "missing",
        "error",
        "ok",
    ]
    assert str(results[0].failure) == "No such file or directory (os error 2)"
    with pytest.raises(OSError, match="none"):
        results[0].raise_for_error()
    (listed,) = hash_urls(client, tmp_path / "none", recursive=True)
    assert listed.status == "missing"


def test_progress_and_names_of_tasks(client, tree):
    seen = []
    list(hash_urls(client, tree, recursive=True, part_size="1MiB", progress=seen.append))
    assert seen[-1].bytes_done == seen[-1].bytes_known == sum(SIZES)
    assert seen[-1].objects_done == len(SIZES)
    assert seen[-1].tasks_outstanding == 0
    prefixes = client.run_on_scheduler(lambda dask_scheduler: list(dask_scheduler.task_prefixes))
    assert {"hash-range", "hash-group"} <= set(prefixes)


def test_the_scheduler_holds_a_bounded_number_of_tasks(client, tmp_path):
    path = tmp_path / "a"
    path.write_bytes(bytes(3 * MIB))

    def most(dask_scheduler):
        from distributed.diagnostics.plugin import SchedulerPlugin

        class Most(SchedulerPlugin):
            most = 0

            def transition(self, key, start, finish, *args, **kwargs):
                count = sum(1 for key in dask_scheduler.tasks if str(key[0]).startswith("hash-"))
                Most.most = max(Most.most, count)

        dask_scheduler.add_plugin(Most(), name="most")

    client.run_on_scheduler(most)
    (result,) = hash_urls(
        client, path, part_size="4KiB", max_outstanding=16, limits=Limits(small_bytes=0)
    )
    found = client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.plugins["most"].most)
    client.run_on_scheduler(lambda dask_scheduler: dask_scheduler.remove_plugin("most"))
    assert result.status == "ok"
    # (Tasks whose replies have arrived are forgotten a moment later.)
    assert 8 <= found <= 32


def test_abandoned_runs_leave_no_tasks(client, tree):
    import time

    results = hash_urls(client, [tree / f"o{SIZES[-1]}"] * 50, part_size="1MiB")
    next(results)
    results.close()
    for _ in range(100):
        left = client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks))
        if not left:
            break
        time.sleep(0.1)
    assert left == 0


def test_credentials_appear_nowhere(client, bucket, storage_options, cluster):
    from conftest import SECRET

    wrong = {"s3": storage_options["s3"] | {"endpoint_url": "http://127.0.0.1:9"}}
    logged = []
    results = list(
        hash_urls(
            client, f"s3://{bucket[1]}/x", storage_options=wrong, retries=0, on_retry=logged.append
        )
    )
    results += hash_urls(
        client,
        f"http://user:{SECRET}@127.0.0.1:9/x?sig={SECRET}",
        retries=0,
        on_retry=logged.append,
    )
    assert [result.status for result in results] == ["error", "error"]
    assert "127.0.0.1" in results[1].url
    logs = f"{cluster.get_logs()} {client.get_worker_logs()} {client.get_events()}"
    assert SECRET not in logs + repr(results) + repr(logged) + "".join(
        str(result.error) for result in results
    )
