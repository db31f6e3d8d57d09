"""Where a checkpoint is: a local folder, or a repository of the model hub fetched once.

It knows names and files, not what is in them.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from rtts.errors import ConfigError

_FILES = ("*.json", "*.txt", "*.safetensors", "speech_tokenizer/*")


def model_folder(name: str) -> Path:
    """The folder of a checkpoint named by a path or by a hub repository ("Qwen/...").

    Raises:
        ConfigError: It is neither, or the hub cannot be reached and the cache does not hold it.
    """
    folder = Path(name).expanduser()
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
