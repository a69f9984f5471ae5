"""What the tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sparse(tmp_path: Path) -> Path:
    """A file that takes minutes to hash: 8 TiB, without a block on the disk."""
    path = tmp_path / "sparse"
    with open(path, "wb") as file:
        try:
            os.ftruncate(file.fileno(), 1 << 43)
        except OSError as error:
            pytest.skip(f"this file system has no file of 8 TiB: {error}")
    return path
