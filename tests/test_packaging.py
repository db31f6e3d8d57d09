"""What is installed is everything, and nothing else."""

from __future__ import annotations

import hashlib
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
    pages = {file for file in packed if file.startswith("server/browser/")}
    assert packed - pages == sources(package)
    assert "py.typed" in packed


def test_wheel_has_the_dashboard(wheel: list[str]) -> None:
    """What the server serves at /dashboard/ is installed with it, its licence too."""
    folder = "rtts/server/browser/dashboard/"
    packed = {file.removeprefix(folder) for file in wheel if file.startswith(folder)}
    assert packed == sources("clients/dashboard")
    assert {"index.html", "vendor/uPlot.LICENSE"} <= packed


@pytest.mark.parametrize("name", ["src", "try"])
def test_wheel_has_the_javascript_client(wheel: list[str], name: str) -> None:
    """What the server serves at /js/ and /try/ is installed with it, notices too."""
    folder = f"rtts/server/browser/{name}/"
    packed = {file.removeprefix(folder) for file in wheel if file.startswith(folder)}
    assert packed == sources(f"clients/js/{name}")


def test_vendored_files_are_those_that_are_named() -> None:
    """Every file of others in the dashboard is in THIRD_PARTY.md, byte for byte, with its licence."""
    notices = (ROOT / "THIRD_PARTY.md").read_text(encoding="utf-8")
    for file in (ROOT / "clients/dashboard/vendor").iterdir():
        if file.suffix == ".LICENSE":
            assert "MIT License" in file.read_text()
            continue
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        assert f"| `{file.name}` | `{digest}` |" in notices


def test_version_is_one() -> None:
    """The package says of itself what the project file says."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == rtts.__version__


def test_wheel_has_the_licence(wheel: list[str]) -> None:
    """Licence and notices travel with it, and nothing that is not part of rtts."""
    info = {file.split("/", 1)[1] for file in wheel if ".dist-info/" in file}
    assert {"licenses/LICENSE", "licenses/NOTICE", "licenses/THIRD_PARTY.md"} <= info
    assert {file.partition("/")[0].partition("-")[0] for file in wheel} == {"rtts", "rtts_client"}
