"""Where a checkpoint is: a local folder, or a repository of the model hub fetched once.

It knows names and files, not what is in them.
"""

from __future__ import annotations

import importlib
import json
import os
from pathlib import Path
from typing import Any

from rtts.errors import ConfigError

_FILES = ("*.json", "*.txt", "*.safetensors", "speech_tokenizer/*")


def model_folder(name: str) -> Path:
    """The folder of a checkpoint named by a path or by a hub repository ("Qwen/...").

    Raises:
        ConfigError: It is neither, or the hub cannot be reached and the cache does not hold it.
    """
    folder = Path(os.path.expanduser(name))
    if folder.is_dir():
        return folder
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ConfigError(f"qwen.model: {name} is not a folder")
    hub: Any = importlib.import_module("huggingface_hub")  # tokenizers depends on it
    errors: Any = importlib.import_module("huggingface_hub.errors")
    try:
        return Path(hub.snapshot_download(name, allow_patterns=list(_FILES)))
    except (OSError, ValueError, errors.HfHubHTTPError, errors.LocalEntryNotFoundError) as error:
        raise ConfigError(
            f"qwen.model: {name} is not a folder and could not be fetched: {error}"
        ) from error


def tensor_files(folder: Path) -> list[Path]:
    """The tensors of a checkpoint, or of its codec: one file, or the shards its index names.

    Raises:
        ConfigError: There are none.
    """
    single = folder / "model.safetensors"
    if single.exists():
        return [single]
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        raise ConfigError(f"model folder {folder}: neither {single.name} nor {index.name} is there")
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise ConfigError(f"{index} is not a safetensors index") from error
    return [folder / name for name in names]
