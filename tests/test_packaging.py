"""What is installed is everything, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import rtts

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Names of the files in the wheel."""
    out = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (file,) = out.glob("rtts-*.whl")
    return zipfile.ZipFile(file).namelist()


def sources(package: str) -> set[str]:
    """Every file of a package that git would keep."""
    root = ROOT / package
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "."],
        cwd=root,
        check=True,
        capture_output=True,
        text=True,
    )
    return {name for name in listed.stdout.splitlines() if (root / name).exists()}


@pytest.mark.parametrize("package", ["rtts", "clients/python/rtts_client"])
def test_wheel_is_complete(wheel: list[str], package: str) -> None:
    """The wheel has every file of the package, its data and `py.typed` too."""
    name = package.rpartition("/")[2]
    packed = {file.removeprefix(f"{name}/") for file in wheel if file.startswith(f"{name}/")}
    assert packed == sources(package)
    assert "py.typed" in packed


def test_version_is_one() -> None:
    """The package says of itself what the project file says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == rtts.__version__


def test_wheel_has_the_licence(wheel: list[str]) -> None:
    """Licence and notices travel with it, and nothing that is not part of rtts."""
    info = {file.split("/", 1)[1] for file in wheel if ".dist-info/" in file}
    assert {"licenses/LICENSE", "licenses/NOTICE", "licenses/THIRD_PARTY.md"} <= info
    assert {file.partition("/")[0].partition("-")[0] for file in wheel} == {"rtts", "rtts_client"}
