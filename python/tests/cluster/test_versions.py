"""An object that is replaced before its last range was read is an error, never a mixture."""

import os
import time

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)

from ringsum.cluster import Limits, ObjectChangedError, hash_urls

MIB = 1 << 20
SIZE = 24 * MIB


def replace_after_first_part(client, url, replace, **settings):
    """Hash in parts of 1 MiB, few at a time, and replace the object once the first is done."""
    done = []

    def progress(now):
        if now.bytes_done and not done:
            done.append(now.bytes_done)
            replace()

    limits = Limits(small_bytes=0)
    settings = {
        "part_size": MIB,
        "max_outstanding": 4,
        "limits": limits,
        "progress": progress,
    } | settings
    (result,) = hash_urls(client, url, **settings)
    assert done and done[0] < SIZE, "the object was read before it could be replaced"
    return result


def assert_changed(result, url):
    assert result.status == "changed"
    assert result.digest is None
    with pytest.raises(ObjectChangedError) as caught:
        result.raise_for_error()
    assert caught.value.url == url
    assert url in str(caught.value)


@pytest.mark.parametrize(
    "how", ["rename", "rewrite", "rewrite and set the time back", "truncate", "append", "remove"]
)
def test_files(client, tmp_path, data, how):
    path = tmp_path / "a"
    path.write_bytes(data(SIZE))
    before = path.stat()

    def replace():
        if how == "rename":
            other = tmp_path / "b"
            other.write_bytes(data(SIZE, 1))
            os.utime(other, ns=(before.st_atime_ns, before.st_mtime_ns))
            other.rename(path)
        elif how == "remove":
            path.unlink()
        elif how == "truncate":
            os.truncate(path, SIZE - 1)
        else:
            with open(path, "r+b") as file:
                file.seek(SIZE if how == "append" else SIZE - MIB)
                file.write(b"x")
            if "back" in how:
                os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    result = replace_after_first_part(client, path, replace)
    if how == "remove":
        assert result.status in ("changed", "missing") and result.digest is None
    else:
        assert_changed(result, os.fspath(path))


@pytest.mark.parametrize("how", ["replace", "remove"])
def test_s3(client, bucket, storage_options, data, how):
    fs, name = bucket
    url = f"s3://{name}/a"
    fs.pipe(url, data(SIZE))
    replace = (lambda: fs.pipe(url, data(SIZE, 1))) if how == "replace" else (lambda: fs.rm(url))
    assert_changed(
        replace_after_first_part(client, url, replace, storage_options=storage_options), url
    )


def test_http(client, bucket, s3_server, data):
    fs, name = bucket

    def put(seed):
        fs.call_s3("put_object", Bucket=name, Key="a", Body=data(SIZE, seed), ACL="public-read")

    put(0)
    url = f"{s3_server}/{name}/a"
    assert_changed(replace_after_first_part(client, url, lambda: put(1)), url)


def test_what_was_listed_counts(client, bucket, storage_options, data):
    """An object that is replaced between the listing and its first range."""
    from ringsum.cluster import api
    from ringsum.cluster.secrets import StorageOptions

    fs, name = bucket
    fs.pipe(f"{name}/a", data(MIB))
    items = list(api.items_of([f"s3://{name}"], True, StorageOptions(storage_options), None))
    fs.pipe(f"{name}/a", data(MIB, 1))
    for small_bytes in (0, 16 * MIB):
        limits = Limits(small_bytes=small_bytes)
        (result,) = api._run(
            client, iter(items), limits, True, True, StorageOptions(storage_options), None, None, 60
        )
        assert_changed(result, f"s3://{name}/a")


def test_a_server_that_ignores_the_condition(client, tmp_path, data):
    """The ETag of each response is compared, too."""
    import http.server
    import threading

    contents = [data(SIZE)]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            start, end = map(int, self.headers["Range"].removeprefix("bytes=").split("-"))
            body = contents[-1][start : end + 1]
            self.send_response(206)
            self.send_header("ETag", f'"{len(contents)}"')
            self.send_header("Content-Range", f"bytes {start}-{start + len(body) - 1}/{SIZE}")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/a"
        assert_changed(
            replace_after_first_part(client, url, lambda: contents.append(data(SIZE, 1))), url
        )
        server.shutdown()


def test_times_of_a_file_may_change_between_runs(client, tmp_path, data, digest_of):
    path = tmp_path / "a"
    path.write_bytes(data(SIZE))
    for _ in range(2):
        (result,) = hash_urls(client, path, part_size=MIB)
        assert result.digest.hexdigest() == digest_of(data(SIZE))
        time.sleep(0.01)
        os.utime(path)
