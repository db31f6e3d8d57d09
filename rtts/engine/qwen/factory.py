"""Puts the Qwen engine together: options in, a core out, in whatever process is to run it.

Imports torch only when it makes a core, so that a server whose engine runs in another process stays
small. `find_checkpoint` finds what can be found without torch, so that a mistake is one error at the
start and not a process that dies again and again.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING

from rtts.engine.qwen.config import ModelConfig, ModelType, load_config
from rtts.engine.qwen.hub import model_folder, tensor_files
from rtts.engine.qwen.options import QwenOptions
from rtts.errors import ConfigError

if TYPE_CHECKING:
    from rtts.engine.qwen.engine import QwenEngine

HOW_TO_INSTALL = "pip install 'rtts[qwen]'"
_MAX_HEADER_BYTES = 100_000_000  # what the format allows
_TAIL_BYTES = 1 << 16
_NEEDED = ("torch", "safetensors", "tokenizers", "huggingface_hub")


def missing_packages() -> list[str]:
    """Names of the packages the engine needs that are not installed."""
    return [name for name in _NEEDED if importlib.util.find_spec(name) is None]


def check_packages() -> None:
    """Find out whether everything the engine needs is installed.

    Raises:
        ConfigError: A package is missing.
    """
    missing = missing_packages()
    if missing:
        raise ConfigError(f"the qwen engine needs {', '.join(missing)}: {HOW_TO_INSTALL}")


def find_checkpoint(options: QwenOptions) -> tuple[Path, ModelConfig]:
    """The checkpoint of the options, fetched if need be, and what it says about itself.

    Raises:
        ConfigError: A package is missing, no model is named, it cannot be had, it has no voices, or
            the device cannot be used.
    """
    if not options.model:
        raise ConfigError(
            "qwen.model: the qwen engine needs a checkpoint: --model DIR, or a repository such as "
            "--model Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice; `rtts checkpoint --size tiny "
            "--type custom_voice DIR` writes one of random weights"
        )
    check_packages()
    if options.device != "cpu" and importlib.metadata.version("torch").endswith("+cpu"):
        raise ConfigError(
            f"qwen.device: {options.device}, but the torch that is installed is for CPUs"
        )
    folder = model_folder(options.model)
    return folder, load_config(folder)


def check_tensors(folder: Path) -> int:
    """Find out whether the tensor files of a checkpoint are there and whole, by their headers.

    Returns:
        Bytes of them all.

    Raises:
        ConfigError: One is missing, cut short, or no safetensors file.
    """
    size = 0
    for part in (folder, folder / "speech_tokenizer"):
        for path in tensor_files(part):
            size += _tensors_size(path)
    return size


def _tensors_size(path: Path) -> int:
    """Bytes of a safetensors file: a length, that much JSON, and what that JSON says."""
    try:
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            header = json.loads(file.read(min(length, _MAX_HEADER_BYTES)))
            size = path.stat().st_size
        ends = [one["data_offsets"][1] for name, one in header.items() if name != "__metadata__"]
        wanted = 8 + length + max(ends, default=0)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except (struct.error, ValueError, AttributeError, KeyError, TypeError, IndexError) as error:
        raise ConfigError(f"{path} is not a safetensors file") from error
    if size != wanted:
        raise ConfigError(f"{path} has {size} bytes and should have {int(wanted)}: fetch it again")
    return int(size)


def make_qwen_engine(options: QwenOptions) -> QwenEngine:
    """A core; picklable by name, for a host in another process.

    Raises:
        ConfigError: The checkpoint, a voice file, the device or an option is wrong.
    """
    check_packages()
    from rtts.engine.qwen.engine import load_engine

    prepare_device(options)
    return load_engine(options)


def prepare_device(options: QwenOptions) -> None:
    """Find out whether torch has the device, and set its threads; imports it.

    Raises:
        ConfigError: It has not.
    """
    from rtts.engine.qwen.extra import torch

    if len(options.devices) > 1:
        raise ConfigError(f"qwen.device: {options.device} are several; this takes one")
    if options.device == "cpu":
        torch.set_num_threads(options.threads or max(1, (os.cpu_count() or 1) - 1))
        return
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if int(options.device.partition(":")[2] or 0) >= count:
        raise ConfigError(f"qwen.device: {options.device}, but torch sees {count} GPUs")


def clones_voices(config: ModelConfig) -> bool:
    """Whether a checkpoint speaks with voices of recordings."""
    return config.model_type is ModelType.BASE


def fingerprint(folder: Path) -> str:
    """Tells a checkpoint from others: its settings, and the end of each file of weights."""
    digest = hashlib.sha256()
    for path in sorted((*folder.rglob("config.json"), *folder.rglob("*.safetensors"))):
        digest.update(f"{path.relative_to(folder)} {path.stat().st_size}".encode())
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            digest.update(file.read())
    return digest.hexdigest()


def check_voices(options: QwenOptions, config: ModelConfig, *, may_be_none: bool = False) -> None:
    """Find out whether an engine would have a voice at all, and none that it cannot take.

    Args:
        may_be_none: Voices may come later.

    Raises:
        ConfigError: A Base checkpoint without registered voices, or they with another.
    """
    if config.model_type is not ModelType.BASE:
        if options.voices_dir:
            raise ConfigError(f"qwen.voices_dir: {config.model_type} checkpoints clone no voices")
        return
    folder = Path(options.voices_dir) if options.voices_dir else None
    if folder is None and may_be_none:
        return
    if folder is None or not any(folder.glob("*.safetensors")):
        raise ConfigError(
            "qwen.voices_dir: a Base checkpoint has no voices of its own; name a folder of "
            "registered ones, or take a CustomVoice checkpoint"
        )
