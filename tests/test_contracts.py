"""The import contracts hold, and each of them is able to break."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = {each["id"] for each in PROJECT["tool"]["importlinter"]["contracts"]}

# Contract, file, what is written at its end, and what the complaint must name.
VIOLATIONS = [
    ("layers", "rtts/errors.py", "import rtts.metrics", "rtts.errors -> rtts.metrics"),
    ("layers", "rtts/text/planted.py", "import rtts.session", "rtts.text.planted -> rtts.session"),
    ("layers", "rtts/planted.py", "", "planted"),  # a module without a place
    (
        "engine-layers",
        "rtts/engine/interface.py",
        "import rtts.engine.local",
        "rtts.engine.interface -> rtts.engine.local",
    ),
    ("engine-layers", "rtts/engine/planted.py", "", "planted"),
    (
        "qwen-layers",
        "rtts/engine/qwen/prompt.py",
        "from rtts.engine.qwen.frame import Model",
        "rtts.engine.qwen.prompt -> rtts.engine.qwen.frame",
    ),
    ("qwen-layers", "rtts/engine/qwen/planted.py", "", "planted"),
    (
        "waist",
        "rtts/session/options.py",
        "from rtts.engine.tone import ToneEngine",
        "rtts.session.options -> rtts.engine.tone",
    ),
    (
        "options",
        "rtts/settings/values.py",
        "import rtts.engine.local",
        "rtts.settings.values -> rtts.engine.local",
    ),
    ("sans-io", "rtts/session/pacing.py", "import time", "rtts.session.pacing -> time"),
    ("sans-io", "rtts/text/characters.py", "import rtts.engine.local", "-> asyncio"),  # indirectly
    ("torch", "rtts/server/run.py", "def f():\n    import torch", "rtts.server.run -> torch"),
    (
        "scheduler",
        "rtts/engine/qwen/scheduler.py",
        "import torch",
        "rtts.engine.qwen.scheduler -> torch",
    ),
    (
        "client",
        "clients/python/rtts_client/messages.py",
        "import rtts.protocol.events",
        "rtts_client.messages -> rtts.protocol.events",
    ),
    (
        "server-without-client",
        "rtts/server/run.py",
        "import rtts_client",
        "rtts.server.run -> rtts_client",
    ),
    ("cycles", "rtts/audio/pcm.py", "import rtts.audio.stream", "rtts.audio"),
]


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    copy = tmp_path_factory.mktemp("tree")
    shutil.copy(ROOT / "pyproject.toml", copy)
    for package in ("rtts", "clients/python/rtts_client"):
        ignore = shutil.ignore_patterns("__pycache__", "assets")
        shutil.copytree(ROOT / package, copy / package, ignore=ignore)
    return copy


def lint(tree: Path, *contracts: str) -> tuple[int, str]:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.fail("import-linter is not installed: make test installs it")
    chosen = [word for contract in contracts for word in ("--contract", contract)]
    run = subprocess.run(
        [program, "--no-cache", "--no-logo", *chosen],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": f"{tree}:{tree}/clients/python"},
        capture_output=True,
        text=True,
    )
    return run.returncode, run.stdout + run.stderr


def test_contracts_hold(tree: Path) -> None:
    """Nothing imports what it must not."""
    status, output = lint(tree)
    assert status == 0, output


def test_every_contract_has_a_violation() -> None:
    """No contract is trusted that has never been seen to break."""
    assert {contract for contract, *_ in VIOLATIONS} == CONTRACTS


@pytest.mark.parametrize(
    ("contract", "path", "code", "complaint"),
    VIOLATIONS,
    ids=[f"{v[0]}-{v[1]}" for v in VIOLATIONS],
)
def test_violation_is_caught(
    tree: Path, contract: str, path: str, code: str, complaint: str
) -> None:
    """A planted import breaks its contract, which names it."""
    file = tree / path
    before = file.read_text() if file.exists() else None
    file.write_text(f"{before or ''}\n{code}\n")
    try:
        status, output = lint(tree, contract)
    finally:
        if before is None:
            file.unlink()
        else:
            file.write_text(before)

    assert status == 1, output
    assert complaint in " ".join(output.split())
