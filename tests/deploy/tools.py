"""Programs of other projects that check our files, and what their absence means."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"


def need(program: str, package: str) -> str:
    """The program's path; without it the test is skipped here, and fails in CI, which installs it."""
    beside = Path(sys.executable).parent / program
    found = str(beside) if beside.exists() else shutil.which(program)
    if found is None and os.environ.get("CI"):
        pytest.fail(f"CI has no {program}: .ci/run installs {package}")
    if found is None:
        pytest.skip(f"{program} is not installed; on Debian: apt-get install {package}")
    return found


def run(*command: str | Path, **options) -> str:
    """The output of a command that must succeed."""
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=50, **options
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr
