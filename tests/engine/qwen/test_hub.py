"""Names of checkpoints: folders as they are, repositories through the hub, anything else refused."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

from rtts.engine.qwen.hub import model_folder
from rtts.errors import ConfigError


def test_folders_and_repositories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder is itself; a repository is fetched; what cannot be is named."""
    asked: list[str] = []

    def fetch(name: str, **_: object) -> str:
        asked.append(name)
        if name == "Qwen/none":
            raise OSError("no network")
        return str(tmp_path / "fetched")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert model_folder(str(tmp_path)) == tmp_path
    assert model_folder("Qwen/some") == tmp_path / "fetched"
    for name in ("Qwen/none", "nowhere", "./no/where", "/no/where", "~nobody9/x"):
        with pytest.raises(ConfigError, match="is not a folder"):
            model_folder(name)
    assert asked == ["Qwen/some", "Qwen/none"]
