"""What the package offers: names, types and docstrings."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest
import ringsum

FUNCTIONS = [
    ringsum.check,
    ringsum.hash_file,
    ringsum.hash_range,
    ringsum.hash_tree,
    ringsum.merge,
]


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_parameter_is_documented(function) -> None:
    doc = inspect.getdoc(function) or ""
    for heading in ["Parameters", "Returns", "Raises"]:
        assert f"\n{heading}\n{'-' * len(heading)}\n" in doc
    for name in inspect.signature(function).parameters:
        assert f"\n{name}" in doc or f", {name} :" in doc, name


def test_every_class_is_documented() -> None:
    for name in ringsum.__all__:
        if not name.startswith("_"):
            assert len(inspect.getdoc(getattr(ringsum, name)) or "") > 20, name


def test_the_stubs_match() -> None:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy.stubtest", "ringsum._native", "ringsum._errors"]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


USE = """
from pathlib import Path
from typing import assert_type

import ringsum

assert_type(ringsum.hash_file("a"), ringsum.Digest)
assert_type(ringsum.hash_file(3, algorithms=["md5"]), dict[str, ringsum.Digest])
for entry in ringsum.hash_tree("t"):
    assert_type(entry, ringsum.TreeEntry[str])
for other in ringsum.hash_tree(b"t"):
    assert_type(other.path, bytes)
for third in ringsum.hash_tree(Path("t")):
    assert_type(third.path, str)
with open("a", "rb") as file:
    assert_type(ringsum.hash_range(file, 0, 1024, total=4096), ringsum.Part)
assert_type(ringsum.merge([ringsum.hash_range(bytearray(5), total=5)]), ringsum.Digest)
assert_type(ringsum.check("sums").failed, list[ringsum.CheckFailure])
"""


def test_programs_that_use_it_pass_a_type_checker(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    (tmp_path / "use.py").write_text(USE)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", tmp_path, "use.py"]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_generic_classes_can_be_named() -> None:
    assert ringsum.TreeEntry[str] and ringsum.TreeIterator[bytes]


def test_nothing_is_mapped_unless_it_is_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(bytes(4 << 20))
    code = (
        "import ringsum, signal, sys\n"
        "def caught(): return int([l for l in open('/proc/self/status') if l[:6] == 'SigCgt'][0]"
        ".split()[1], 16) >> (signal.SIGBUS - 1) & 1\n"
        f"ringsum.hash_file({str(path)!r}); print(caught())\n"
        f"ringsum.hash_file({str(path)!r}, io={{'engine': 'mmap'}}); print(caught())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["0", "1"]
