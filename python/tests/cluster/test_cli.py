"""``python -m ringsum.cluster``: lines, verdicts, messages and exit status."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)

MIB = 1 << 20


@pytest.fixture
def run(cluster, tmp_path):
    """Run the command on the cluster of the tests, in a directory of files."""
    for name, content in {
        "a": b"hello\n",
        "b/x": b"",
        "new\nline": b"x",
        "big": bytes(3 * MIB + 1),
    }.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)

    def run(*arguments, **settings):
        command = [
            sys.executable,
            "-m",
            "ringsum.cluster",
            "--scheduler",
            cluster.scheduler_address,
            *arguments,
        ]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, **settings)

    return run


def lines_of(output):
    return output.decode().splitlines()


def test_a_tree_and_a_check_of_it(run, tmp_path, digest_of):
    hashed = run("-r", ".", "--part-size", "1MiB")
    assert (hashed.returncode, hashed.stderr) == (0, b"")
    assert lines_of(hashed.stdout) == [
        f"{digest_of(b'hello' + bytes([10]))}  ./a",
        f"{digest_of(b'')}  ./b/x",
        f"{digest_of(bytes(3 * MIB + 1))}  ./big",
        f"\\{digest_of(b'x')}  ./new\\nline",
    ]
    (tmp_path / "sums").write_bytes(b"# comment\n" + hashed.stdout)
    checked = run("--check", "sums")
    assert (checked.returncode, checked.stderr) == (0, b"")
    assert lines_of(checked.stdout) == ["./a: OK", "./b/x: OK", "./big: OK", "\\./new\\nline: OK"]
    (tmp_path / "a").write_bytes(b"other\n")
    (tmp_path / "b/x").unlink()
    (tmp_path / "sums").write_bytes(hashed.stdout + b"x\n")
    checked = run("--check", "sums", "none")
    assert checked.returncode == 1
    missing = "No such file or directory (os error 2)"
    assert lines_of(checked.stdout) == [
        "./a: FAILED",
        f"./b/x: FAILED ({missing})",
        "./big: OK",
        "\\./new\\nline: OK",
    ]
    assert lines_of(checked.stderr) == [
        "ringsum.cluster: sums: 5: improperly formatted checksum line: neither `HASH  NAME` nor `BLAKE3 (NAME) = HASH`",
        f"ringsum.cluster: none: {missing}",
        "ringsum.cluster: WARNING: 1 line is improperly formatted",
        "ringsum.cluster: WARNING: 1 listed file could not be read",
        "ringsum.cluster: WARNING: 1 computed checksum did NOT match",
    ]
    quiet = run("--check", "--quiet", "--ignore-missing", "--lenient", "sums")
    assert (quiet.returncode, lines_of(quiet.stdout)) == (1, ["./a: FAILED"])


def test_json(run, digest_of):
    done = run("--json", "a", "none")
    assert done.returncode == 1
    good, bad = map(json.loads, lines_of(done.stdout))
    assert good["hash"] == digest_of(b"hello\n")
    assert (good["path"], good["status"], good["size"]) == ("a", "ok", 6)
    assert good["version"].startswith("ctime:")
    assert bad == {
        "path": "none",
        "status": "error",
        "error": "No such file or directory (os error 2)",
    }


def test_resuming(run, tmp_path):
    whole = run("-o", "sums", "-r", ".")
    assert (whole.returncode, whole.stderr) == (0, b"")
    assert b"sums" not in (tmp_path / "sums").read_bytes()
    assert run("-o", "sums", "a", "big").returncode == 0
    before = (tmp_path / "sums").read_bytes()
    with open(tmp_path / "sums", "ab") as file:
        file.write(before[:30])
    done = run("-o", "sums", "--resume", "-r", ".")
    assert done.returncode == 0
    assert done.stderr == b"ringsum.cluster: sums: 0 names were there already, and skipped\n"
    names = [line.split(maxsplit=1)[1] for line in lines_of((tmp_path / "sums").read_bytes())]
    # (Not the list itself.)
    assert names == ["a", "big", "./a", "./b/x", "./big", "./new\\nline"]
    done = run("-o", "sums", "--resume", "a", "big", "b/x")
    assert done.stderr == b"ringsum.cluster: sums: 2 names were there already, and skipped\n"
    assert lines_of((tmp_path / "sums").read_bytes())[-1].endswith("  b/x")


def test_resuming_json_hashes_what_changed(run, tmp_path, digest_of):
    assert run("-o", "sums", "--json", "a", "big").returncode == 0
    (tmp_path / "a").write_bytes(b"other\n")
    done = run("-o", "sums", "--json", "--resume", "a", "big")
    assert done.stderr == b"ringsum.cluster: sums: 1 name was there already, and skipped\n"
    found = [json.loads(line) for line in lines_of((tmp_path / "sums").read_bytes())]
    assert [fields["path"] for fields in found] == ["a", "big", "a"]
    assert found[-1]["hash"] == digest_of(b"other\n")


def test_names_from_a_file(run):
    done = run("--files-from", "-", "--tag", input=b"a\nb/x\n")
    assert [line.split(" = ")[0] for line in lines_of(done.stdout)] == [
        "BLAKE3 (a)",
        "BLAKE3 (b/x)",
    ]
    done = run("--files-from", "-", "-z", input=b"new\nline\0")
    assert done.stdout.endswith(b"  new\nline\0")


def test_s3_with_options_from_a_file(run, tmp_path, bucket, storage_options, digest_of):
    from conftest import SECRET

    fs, name = bucket
    fs.pipe(f"{name}/p/a", b"hello\n")
    (tmp_path / "options.json").write_text(json.dumps(storage_options))
    done = run("--storage-options", "options.json", "-r", f"s3://{name}/p")
    assert lines_of(done.stdout) == [f"{digest_of(b'hello' + bytes([10]))}  s3://{name}/p/a"]
    (tmp_path / "sums").write_bytes(done.stdout)
    checked = run("--storage-options", "options.json", "--check", "sums")
    assert (checked.returncode, lines_of(checked.stdout)) == (0, [f"s3://{name}/p/a: OK"])
    assert SECRET.encode() not in done.stdout + done.stderr + checked.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--resume", "a"],
        ["--part-size", "1000", "a"],
        ["--part-size", "x", "a"],
        ["--check", "-r", "a"],
        ["--quiet", "a"],
        ["--tag", "--json", "a"],
        ["--tls-cert", "x", "a"],
        ["--storage-options", "none", "a"],
    ],
)
def test_wrong_command_lines(run, arguments):
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_scheduler_that_is_not_there(tmp_path):
    command = [
        sys.executable,
        "-m",
        "ringsum.cluster",
        "--scheduler",
        "tcp://127.0.0.1:9",
        "--worker-timeout",
        "1",
        "a",
    ]
    code = f"import ringsum.cluster.cli as cli, sys; cli.CONNECT_TIMEOUT_S = 1; sys.exit(cli.main({command[3:]!r}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=60, cwd=tmp_path
    )
    assert done.returncode == 1
    assert b"tcp://127.0.0.1:9: the scheduler cannot be reached" in done.stderr


def test_without_a_scheduler_and_interrupted(tmp_path, digest_of):
    (tmp_path / "a").write_bytes(b"x")
    os.mkfifo(tmp_path / "list")
    command = [sys.executable, "-m", "ringsum.cluster", "--files-from", "list"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with open(tmp_path / "list", "wb") as names:
        # (The list ends, and with it the run.)
        names.write(b"a\n")
    output, messages = process.communicate(timeout=60)
    assert (process.returncode, messages, lines_of(output)) == (0, b"", [f"{digest_of(b'x')}  a"])
    process = subprocess.Popen(
        [*command[:-2], "--files-from", "-"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(5)
    process.send_signal(signal.SIGINT)
    _, messages = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT
    assert b"Traceback" not in messages
