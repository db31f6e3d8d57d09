"""What every result file says beside its figures: machine, versions, commit, command."""

from __future__ import annotations

import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_SCHEDULING = {os.SCHED_OTHER: "normal", os.SCHED_FIFO: "real-time", os.SCHED_RR: "real-time"}
ROOT = Path(__file__).resolve().parent.parent


def machine() -> dict[str, Any]:
    """The machine, and how busy others kept it at this moment."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "cpu": models[0] if models else platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        # On a shared machine a real-time policy keeps others' work out of the figures.
        "scheduling": _SCHEDULING.get(os.sched_getscheduler(0), "other"),
        "load_average_1min": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def gpu() -> str | None:
    """The GPUs, as the driver names them; asking makes no context on any."""
    query = ["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"]
    try:
        run = subprocess.run(query, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return run.stdout.strip() or None


def commit(measured: Sequence[str]) -> str:
    """The commit, marked dirty if one of the measured paths is not as it was committed."""

    def git(*arguments: str) -> str:
        run = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return run.stdout.strip()

    is_dirty = git("status", "--porcelain", "--", *measured)
    return git("rev-parse", "--short=10", "HEAD") + ("-dirty" if is_dirty else "")


def record(
    benchmark: str, results: dict[str, Any], *, measured: Sequence[str], packages: Sequence[str]
) -> dict[str, Any]:
    """The whole of a result file."""
    return {
        "benchmark": benchmark,
        "command": " ".join(["python", f"benchmarks/{benchmark}.py", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(measured),
        "machine": machine(),
        "versions": {
            "python": platform.python_version(),
            **{name: importlib.metadata.version(name) for name in packages},
        },
        "results": results,
    }


def write(result: dict[str, Any], output: Path | None) -> None:
    """Print the result as the last line, and write it where asked."""
    if output:
        output.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result))
