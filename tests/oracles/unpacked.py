"""Packages whose wheels do not install on this Python: fetched as they are and unpacked, not installed."""

import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest

FOLDER = Path(os.environ.get("ESCALA_WHEELS", Path(tempfile.gettempdir()) / "escala-wheels"))
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64", "any")


def unpacked(requirement: str, tool: str) -> Path:
    """A package's folder; without a network the test is skipped, or fails where `tool` is promised."""
    folder = FOLDER / requirement.replace("==", "-")
    if not folder.is_dir():
        try:
            _fetched(requirement, folder)
        except (subprocess.CalledProcessError, OSError) as error:
            if tool in os.environ.get("ESCALA_ORACLES", "").split():
                raise
            pytest.skip(
                f"{requirement} cannot be had here ({error}); make test-oracles", allow_module_level=True
            )
    return folder


def _fetched(requirement: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as place:
        options = [f"--platform={each}" for each in PLATFORMS]
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", place]
        subprocess.run(
            [*command, "--python-version=3.12", "--only-binary=:all:", *options, requirement],
            check=True,
            capture_output=True,
            timeout=300,
        )
        [wheel] = Path(place).glob("*.whl")
        part = folder.with_name(f"{folder.name}.{os.getpid()}")
        zipfile.ZipFile(wheel).extractall(part)
        part.rename(folder)
