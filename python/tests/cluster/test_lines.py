"""Lines and JSON as ``ringsum`` writes them, and resuming."""

import json
import os
import shutil
import subprocess

import pytest

pytest.importorskip(
    "ringsum.cluster",
    reason="dask.distributed is not installed: pip install 'ringsum[cluster]'",
    exc_type=ImportError,
)

from ringsum.cluster.lines import MalformedError, harmless, json_line, parse_line, plain_line
from ringsum.cluster.objects import Result
from ringsum.cluster.output import Finished, Output, ResumeError
from ringsum.cluster.plan import ANY_VERSION

HASH = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
NAMES = [
    "a",
    "with space",
    " ",
    "a\\b",
    "new\nline",
    "cr\r",
    "\\",
    "é",
    "\udcff",
    "*a",
    "a) = b",
    "# a",
]


class Digest:
    def hexdigest(self):
        return HASH


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tag", [False, True])
def test_names_survive(name, tag):
    line = plain_line(name, HASH, tag=tag)
    assert line.count(b"\n") == 1
    entry = parse_line(line)
    assert (entry.name, entry.digest.hex()) == (name, HASH)
    assert parse_line(plain_line(name, HASH, tag=tag, zero=True), zero=True).name == name


def test_lines_are_those_of_the_command(tmp_path):
    ringsum = shutil.which("ringsum")
    b3sum = shutil.which("b3sum")
    if not (ringsum or b3sum):
        pytest.skip("neither ringsum nor b3sum is installed")
    for name in NAMES:
        if ringsum or name != "\udcff":
            (tmp_path / name).write_bytes(b"")
            command = [ringsum or b3sum, "--", name]
            found = subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout
            assert found == plain_line(name, HASH)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"x", "neither"),
        (HASH.encode() + b" a", "neither"),
        (HASH[:63].encode() + b"  a", "even number"),
        (HASH[:30].encode() + b"  a", "15 bytes"),
        (HASH.encode() * 2 + b"  a", "64 bytes"),
        (b"\\" + HASH.encode() + b"  a\\x", "backslash"),
        (b"\\" + HASH.encode() + b"  a\\", "backslash"),
        (HASH.encode() + b"  ", "empty"),
        (HASH.encode() + b"  a\0b", "NUL"),
        (b"SHA256 (a) = " + HASH.encode(), "SHA256"),
        (b"BLAKE3 (a) = xyz", "hexadecimal"),
    ],
)
def test_malformed_lines(line, why):
    with pytest.raises(MalformedError, match=why):
        parse_line(line)


@pytest.mark.parametrize("line", [b"", b"\n", b" \t\n", b"# comment\n"])
def test_lines_without_a_name(line):
    assert parse_line(line) is None


def test_terminals_are_safe():
    assert harmless("a\x1b[31m\u202eb") == "a\\x1b[31m\\u{202e}b"


def result(name, **fields):
    values = {
        "digest": Digest(),
        "size": 0,
        "mtime_ns": 5,
        "version": 'etag:"1"',
        "retries": 0,
        "failure": None,
        "index": 0,
    }
    return Result(name, "ok", **(values | fields))


def test_json_is_that_of_the_command():
    assert (
        json_line(result("a", version=None)).decode()
        == f'{{"hash":"{HASH}","mtime_ns":5,"path":"a","size":0,"status":"ok"}}\n'
    )
    assert json.loads(json_line(result("\udcff")))["path_bytes"] == "ff"
    assert b"\\u202e" in json_line(result("\u202e"))
    assert b"\\ud804" not in json_line(result("\U0001f600"))


def test_resuming_drops_a_line_that_was_cut_short(tmp_path):
    path = tmp_path / "sums"
    path.write_bytes(plain_line("a", HASH) + plain_line("b", HASH)[:40])
    finished = Finished(os.fspath(path), is_json=False)
    output = Output(os.fspath(path), resume=True)
    assert [finished.version_of(name) for name in "ab"] == [ANY_VERSION, None]
    assert output.is_own(os.fspath(path)) and not output.is_own("a")
    output.write(plain_line("b", HASH))
    output.close()
    finished.close()
    assert path.read_bytes() == plain_line("a", HASH) + plain_line("b", HASH)


def test_resuming_json_knows_versions_and_forgets_errors(tmp_path):
    path = tmp_path / "sums"
    lines = [json_line(result("a")), json_line(result("b", version=None)), json_line(result("c"))]
    lines.append(b'{"error":"gone","path":"c","status":"error"}\n')
    path.write_bytes(b"".join(lines))
    finished = Finished(os.fspath(path), is_json=True)
    assert [finished.version_of(name) for name in "abcd"] == ['etag:"1"', ANY_VERSION, None, None]
    finished.close()


@pytest.mark.parametrize("is_json", [True, False])
def test_resuming_another_format_is_refused(tmp_path, is_json):
    path = tmp_path / "sums"
    path.write_bytes(plain_line("a", HASH) if is_json else json_line(result("a")))
    with pytest.raises(ResumeError, match="line 1"):
        Finished(os.fspath(path), is_json)
    assert path.stat().st_size
