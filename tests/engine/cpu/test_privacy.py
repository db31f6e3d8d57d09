from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "code",
    [
        "import rtts.engine.cpu.hibari_net, onnxruntime",
        "import rtts.engine.cpu.kokoro_voice, onnxruntime",
        "import rtts.settings, hibari, onnxruntime",
    ],
)
def test_nothing_is_reported_to_anybody(code: str, tmp_path: Path) -> None:
    """onnxruntime leaves no identifier and no queue of reports in the user's home.

    It makes them when it is imported, unless it was told not to before.
    """
    environment = {k: v for k, v in os.environ.items() if k != "ORT_DISABLE_TELEMETRY"}
    environment |= {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / ".cache")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True, timeout=50)
    assert [each for each in tmp_path.rglob("*") if each.is_file()] == []


def test_who_wants_it_may_have_it() -> None:
    """A value that the environment has already stays."""
    code = "import os, rtts.engine.cpu; print(os.environ['ORT_DISABLE_TELEMETRY'])"
    environment = {**os.environ, "ORT_DISABLE_TELEMETRY": "0"}
    shown = subprocess.check_output([sys.executable, "-c", code], env=environment, timeout=50)
    assert shown == b"0\n"
