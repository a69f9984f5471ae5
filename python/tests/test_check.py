"""`check`."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import blake3
import pytest
import ringsum
from contents import content


def line(path: str, name: str | None = None) -> str:
    return f"{blake3.blake3(Path(path).read_bytes()).hexdigest()}  {name or path}\n"


@pytest.fixture
def files(in_tmp: Path) -> Path:
    for index in range(20):
        (in_tmp / f"f{index}").write_bytes(content(index * 100_000))
    return in_tmp


def test_everything_is_right(files: Path) -> None:
    Path("sums").write_text("".join(line(f"f{index}") for index in range(20)))
    for source in ["sums", b"sums", files / "sums"]:
        report = ringsum.check(source)
        assert report and report.ok == 20
        assert report.failed == report.missing == report.malformed == []
    with open("sums", "rb") as file:
        assert ringsum.check(file.fileno())
    assert repr(report) == "<CheckReport: 20 ok, 0 failed, 0 missing, 0 malformed>"


def test_what_is_wrong_is_reported(files: Path) -> None:
    lines = [line("f1"), line("f2"), line("f3"), "nonsense\n", line("f4")]
    lines += [line("f5", "none"), line("f6", "dir")]
    lines += [line("f7", "fifo")]
    Path("sums").write_text("".join(lines))
    Path("f2").write_bytes(b"other")
    Path("dir").mkdir()
    os.mkfifo("fifo")
    report = ringsum.check("sums")
    assert not report and report.ok == 3
    assert report.missing == ["none"]
    [(number, why)] = report.malformed
    assert number == 4 and "HASH" in why
    differs, directory, fifo = report.failed
    assert differs.path == "f2" and differs.error is None
    assert differs.actual == ringsum.hash_file("f2")
    assert differs.expected.digest() == blake3.blake3(content(200_000)).digest()
    assert directory.path == "dir" and isinstance(directory.error, IsADirectoryError)
    assert directory.actual is None
    assert fifo.path == "fifo" and "regular" in str(fifo.error)
    assert ringsum.check(b"sums").missing == [b"none"]


@pytest.mark.parametrize("broken", ["failed", "missing", "malformed", "empty"])
def test_a_report_is_false_if_anything_is_wrong(files: Path, broken: str) -> None:
    text = {
        "failed": line("f1") + line("f2", "f3"),
        "missing": line("f1") + line("f2", "none"),
        "malformed": line("f1") + "x\n",
        "empty": "",
    }[broken]
    Path("sums").write_text(text)
    assert not ringsum.check("sums")


def test_other_formats(files: Path) -> None:
    data = content(300_000)
    Path("MD5SUMS").write_text(f"{hashlib.md5(data).hexdigest()} *f3\n")
    Path("tagged").write_text(f"SHA256 (f3) = {hashlib.sha256(data).hexdigest()}\n")
    Path("long").write_text(f"{blake3.blake3(data).digest(length=100).hex()}  f3\n")
    Path("plain").write_text(f"{hashlib.sha256(data).hexdigest()}  f3\n")
    Path("zero").write_bytes(f"{blake3.blake3(data).hexdigest()}  f3\0".encode())
    Path("bom").write_bytes(b"\xef\xbb\xbf" + line("f3").replace("\n", "\r\n").encode())
    Path("hashdeep").write_text(
        "%%%% HASHDEEP-1.0\n%%%% size,md5,sha256,filename\n## Invoked from: /\n## $ hashdeep f3\n"
        f"## \n300000,{hashlib.md5(data).hexdigest()},{hashlib.sha256(data).hexdigest()},f3\n"
    )
    for name in ["MD5SUMS", "tagged", "long", "bom", "hashdeep"]:
        assert ringsum.check(name), name
    assert ringsum.check("zero", zero=True)
    assert not ringsum.check("plain")
    assert ringsum.check("plain", algorithms=["sha256"])
    [failed] = ringsum.check("plain").failed
    assert failed.expected.algorithm == "blake3"


def test_names_start_from_the_root(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("sums").write_text(line("f1"))
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    assert ringsum.check("../sums").missing == ["f1"]
    assert ringsum.check("../sums", root="..")
    assert ringsum.check("../sums", root=files)


def test_lists_that_cannot_be_read(files: Path) -> None:
    with pytest.raises(FileNotFoundError):
        ringsum.check("none")
    with pytest.raises(IsADirectoryError):
        ringsum.check(".")
    with pytest.raises(TypeError):
        ringsum.check(None)  # type: ignore[arg-type]
    Path("sums").write_text("")
    with pytest.raises(ValueError):
        ringsum.check("sums", algorithms=["x"])


def test_what_a_tree_gives_can_be_checked(files: Path) -> None:
    with open("sums", "w") as sums:
        for entry in ringsum.hash_tree(".", exclude=["sums"]):
            print(f"{entry.digest}  {entry.path}", file=sums)
    assert ringsum.check("sums").ok == 20
