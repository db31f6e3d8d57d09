"""What the README says was tested is what is tested."""

from __future__ import annotations

import re
from pathlib import Path

from tests.e2e.sdk import environments

README = (Path(__file__).parents[3] / "README.md").read_text(encoding="utf-8")


def agents() -> list[tuple[str, str]]:
    """The frameworks' rows, by package."""
    packages = {"Pipecat": "pipecat-ai", "LiveKit": "livekit-agents"}
    rows = re.findall(r"^\| (Pipecat|LiveKit)(?:'s|,) .*\| (\S+) \|$", README, re.MULTILINE)
    return [(packages[name], version) for name, version in rows]


def test_the_table_has_the_versions_of_the_locks():
    """Each row with a package in backticks names the version that its environment installs."""
    locked = {name: environments.versions(name) for name in environments.names()}
    rows = re.findall(r"^\| [^|]*?, (Python|node) `([^`]+)` \|.*\| (\S+) \|$", README, re.MULTILINE)
    rows += [("Python", package, version) for package, version in agents()]
    assert len(rows) >= 8
    for language, package, version in rows:
        found = {
            versions.get(package)
            for name, versions in locked.items()
            if (name == "node") == (language == "node")
        }
        assert version in found, f"{language} {package}: {version}, locked are {found - {None}}"
