"""The Python in the documents runs, and prints what it should."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from contents import content

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "docs/python.md", "python/README.md"]


def blocks() -> list[tuple[str, str]]:
    found = []
    for name in DOCUMENTS:
        text = (ROOT / name).read_text()
        for match in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{name}:{line}", match[1]))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that all documents use."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "a.iso").write_bytes(content(3 << 20))
    (folder / "b.iso").write_bytes(content(1 << 20))
    (folder / "photos").mkdir()
    (folder / "photos" / "notes.txt").write_text("notes")
    return folder


@pytest.mark.parametrize(("place", "code"), blocks(), ids=[place for place, _ in blocks()])
def test_it_runs(folder: Path, place: str, code: str) -> None:
    ran = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, ""), place
    if "merge(" in code:
        assert ran.stdout == "True\n"
    if "report" in code:
        assert ran.stdout == ""


def test_every_document_has_some() -> None:
    assert {place.split(":")[0] for place, _ in blocks()} == set(DOCUMENTS)
