"""Environments of the foreign SDKs: one for each set of pins that can live together.

    python tests/e2e/sdk/environments.py            make all of them (what `make sdks` does)
    python tests/e2e/sdk/environments.py NAME ...   make some
    python tests/e2e/sdk/environments.py --lock     resolve the `.in` files and package.json anew

`python/NAME.in` says what is wanted, `python/NAME.txt` is its lock; the environment is
`.venv-sdk-NAME` at the root. `package.json` and its lock are the environment "node", in
`node_modules`. An environment remembers the hash of its lock and is made again when that changes.
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]

_STAMP = ".lock-sha256"


def names() -> list[str]:
    """Every environment: the Python ones, and "node"."""
    return [*sorted(path.stem for path in (HERE / "python").glob("*.txt")), "node"]


def lock_of(name: str) -> Path:
    return HERE / "package-lock.json" if name == "node" else HERE / "python" / f"{name}.txt"


def home_of(name: str) -> Path:
    return HERE / "node_modules" if name == "node" else ROOT / f".venv-sdk-{name}"


def interpreter(name: str) -> Path | None:
    """What runs a client of that environment; None while it has to be made (again)."""
    stamp = home_of(name) / _STAMP
    if not stamp.is_file() or stamp.read_text() != _hash(name):
        return None
    if name == "node":
        node = shutil.which("node")
        return Path(node) if node else None
    scripts = "Scripts" if os.name == "nt" else "bin"
    return home_of(name) / scripts / "python"


def make(name: str) -> float:
    """Make an environment unless it is there; returns the seconds it took."""
    began = time.monotonic()
    if interpreter(name) is not None:
        return 0.0
    if name == "node":
        npm = shutil.which("npm")
        if npm is None:
            raise SystemExit("the node SDKs need npm (and node 20 or newer)")
        _run(npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts", cwd=HERE)
    else:
        home = home_of(name)
        shutil.rmtree(home, ignore_errors=True)
        _uv("venv", "--quiet", "--python", sys.executable, str(home))
        _uv(
            "pip", "install", "--quiet", "--python", str(home), "--requirements", str(lock_of(name))
        )
    (home_of(name) / _STAMP).write_text(_hash(name))
    return time.monotonic() - began


def lock() -> None:
    """Resolve what is wanted, and write the locks. They name no registry."""
    for wanted in sorted((HERE / "python").glob("*.in")):
        _uv(
            *("pip", "compile", "--quiet", "--no-header", "--no-annotate", "--universal"),
            *("--no-emit-index-url", "--python-version", "3.11", "--upgrade"),
            *(wanted.name, "--output-file", wanted.with_suffix(".txt").name),
            cwd=wanted.parent,
        )
    npm = shutil.which("npm") or "npm"
    (HERE / "package-lock.json").unlink(missing_ok=True)
    flags = ("--package-lock-only", "--omit-lockfile-registry-resolved", "--no-audit", "--no-fund")
    _run(npm, "install", *flags, cwd=HERE)


def versions(name: str) -> dict[str, str]:
    """Of every package in a lock."""
    text = lock_of(name).read_text(encoding="utf-8")
    if name == "node":
        packages = json.loads(text)["packages"]
        return {
            path.rpartition("node_modules/")[2]: package["version"]
            for path, package in packages.items()
            if path
        }
    lines = (line.partition(";")[0].strip() for line in text.splitlines())
    return dict(re.findall(r"^([\w-]+)(?:\[.*\])?==(\S+)", "\n".join(lines), re.MULTILINE))


def _hash(name: str) -> str:
    return hashlib.sha256(lock_of(name).read_bytes()).hexdigest()


def _uv(*arguments: str, cwd: Path = ROOT) -> None:
    _run(sys.executable, "-m", "uv", *arguments, cwd=cwd)


def _run(*command: str, cwd: Path) -> None:
    subprocess.run(command, cwd=cwd, check=True)


def main(arguments: list[str]) -> None:
    if arguments == ["--lock"]:
        lock()
        return
    wanted = arguments or names()
    with concurrent.futures.ThreadPoolExecutor() as pool:
        for name, seconds in zip(wanted, pool.map(make, wanted), strict=True):
            if seconds:
                print(f"made the SDK environment {name} in {seconds:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
