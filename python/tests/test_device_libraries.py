"""Libraries of a GPU that lie among Python's packages."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from actortrain._program import environment


def test_libraries_of_a_device_are_found_in_python_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After the folders that the user names; NVIDIA's other packages have nothing that is wanted."""
    monkeypatch.setattr(sys, "path", ["", str(tmp_path / "none")])
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    assert "LD_LIBRARY_PATH" not in environment()
    for file in ("cu13/lib/libcublasLt.so.13", "cu13/lib/libcublas.so.13", "nccl/lib/libnccl.so.2", "cudnn/lib/libcudnn.so.9"):
        (tmp_path / "nvidia" / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "nvidia" / file).touch()
    monkeypatch.setattr(sys, "path", ["", str(tmp_path)])
    folders = [str(tmp_path / "nvidia/cu13/lib"), str(tmp_path / "nvidia/nccl/lib")]
    assert environment()["LD_LIBRARY_PATH"].split(":") == folders
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/one:/opt/two")
    assert environment()["LD_LIBRARY_PATH"].split(":") == ["/opt/one", "/opt/two", *folders]
