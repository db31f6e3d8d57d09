"""Registered voices: one safetensors file each, with the x-vector, codes and transcript.

The file's content hash is the voice's key in caches, so a changed file is another voice. It knows
files, not slots or audio.
"""

from __future__ import annotations

import hashlib
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rtts.engine.qwen.config import ModelConfig
from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.frame import Conditions
from rtts.errors import ConfigError, UnknownVoiceError, UtteranceError

log = logging.getLogger(__name__)

_FORMAT = "rtts-qwen-voice-1"


@dataclass(frozen=True, slots=True)
class RegisteredVoice:
    """A voice cloned from a reference.

    Attributes:
        name: What a client names; the file's stem.
        key: Content hash.
        transcript: What the reference says; "" where only its x-vector is used.
        language: Tag of the reference's language, or "".
        conditions: Tensors; no codec frames where only the x-vector is used.
    """

    name: str
    key: str
    transcript: str
    language: str
    conditions: Conditions


def save_voice(
    path: Path, x_vector: Tensor, codes: Tensor | None, transcript: str = "", language: str = ""
) -> None:
    """Write a voice file. Without a transcript or codes it is an x-vector voice."""
    from safetensors.torch import save_file

    tensors = {"x_vector": x_vector.detach().float().cpu().contiguous()}
    if codes is not None and transcript:
        tensors["codes"] = codes.detach().to(torch.int64).cpu().contiguous()
    metadata = {"format": _FORMAT, "transcript": transcript, "language": language}
    save_file(tensors, path, metadata)


class VoiceShelf:
    """The registered voices of a folder; one that is damaged is that voice's trouble alone.

    Owner: engine thread.

    Attributes:
        voices: Those that can be had, by name.
        damaged: Why the others cannot, by name: for operators, it quotes paths.
    """

    def __init__(
        self, folder: Path | None, config: ModelConfig, dtype: torch.dtype, device: torch.device
    ) -> None:
        self.voices: dict[str, RegisteredVoice] = {}
        self.damaged: dict[str, str] = {}
        self._tried: dict[str, tuple[int, int]] = {}  # what each file was when it was read
        self._designs: dict[str, str] = {}
        self._read = partial(load_voice, config=config, dtype=dtype, device=device)
        self._paths = (
            {path.stem: path for path in sorted(folder.glob("*.safetensors"))} if folder else {}
        )
        for name in self._paths:
            self._try(name)

    def find(self, name: str) -> RegisteredVoice:
        """The voice of that name.

        Raises:
            UnknownVoiceError: There is none.
            UtteranceError: Its file is damaged.
        """
        if name in self.damaged:
            raise UtteranceError(f"voice {name!r} cannot be had: its file is damaged")
        if name not in self.voices:
            raise UnknownVoiceError(f"voice {name!r} is not one of {', '.join(self.voices)}")
        return self.voices[name]

    def describe(self, name: str, instructions: str) -> str:
        """A designed voice's description, and behind it how to speak this time.

        Raises:
            UnknownVoiceError: There is none of that name.
        """
        if name not in self._designs:
            raise UnknownVoiceError(f"voice {name!r} is not one that was designed")
        return f"{self._designs[name]} {instructions}".strip()

    def add(self, name: str, path: Path) -> None:
        """Put a voice file on the shelf under a name; it may turn out damaged."""
        self._paths[name] = path
        self.voices.pop(name, None)
        self._try(name)

    def add_design(self, name: str, description: str) -> None:
        """Put the description of a voice on the shelf."""
        self._designs[name] = description

    def remove(self, name: str) -> None:
        """Take a voice off the shelf."""
        for of_name in (self._paths, self.voices, self.damaged, self._designs):
            of_name.pop(name, None)

    def retry(self, name: str) -> RegisteredVoice | None:
        """Read a damaged voice's file again where it has changed; the voice if it was mended."""
        if name not in self.damaged or self._tried[name] == _stamp(self._paths[name]):
            return None
        self._try(name)
        return self.voices.get(name)

    def _try(self, name: str) -> None:
        self._tried[name] = _stamp(self._paths[name])
        try:
            self.voices[name] = self._read(self._paths[name])
        except ConfigError as error:
            log.error("%s", error.message)
            self.damaged[name] = error.message
        else:
            self.damaged.pop(name, None)


def _stamp(path: Path) -> tuple[int, int]:
    """Changes when a file does."""
    try:
        found = path.stat()
    except OSError:
        return (0, 0)
    return (found.st_mtime_ns, found.st_size)


def load_voice(
    path: Path, config: ModelConfig, dtype: torch.dtype, device: torch.device
) -> RegisteredVoice:
    """Read one voice file.

    Raises:
        ConfigError: It is damaged or made for another checkpoint.
    """
    from safetensors import SafetensorError, safe_open

    try:
        data = path.read_bytes()
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"voice file {path}: {error}") from error
    hidden, groups = config.talker.stack.hidden, config.talker.groups
    x_vector, codes = tensors.get("x_vector"), tensors.get("codes")
    if metadata.get("format") != _FORMAT or x_vector is None:
        raise ConfigError(f"voice file {path} is not a {_FORMAT} file")
    if tuple(x_vector.shape) != (hidden,):
        raise ConfigError(
            f"voice file {path}: its x-vector has {tuple(x_vector.shape)} values, "
            f"this checkpoint's have {hidden}"
        )
    if not bool(x_vector.isfinite().all()):
        raise ConfigError(f"voice file {path}: its x-vector is not numbers")
    if codes is None:
        codes = torch.zeros(0, groups, dtype=torch.int64)
    if codes.dim() != 2 or codes.shape[1] != groups or not _in_range(codes, config):
        raise ConfigError(f"voice file {path}: its codes do not fit this checkpoint's codec")
    return RegisteredVoice(
        name=path.stem,
        key=hashlib.sha256(data).hexdigest()[:24],
        transcript=metadata.get("transcript", ""),
        language=metadata.get("language", ""),
        conditions=Conditions(x_vector.to(device, dtype), codes.to(device)),
    )


def _in_range(codes: Tensor, config: ModelConfig) -> bool:
    if not codes.numel():
        return True
    return bool(codes.min() >= 0) and bool(codes.max() < config.codec.codebook_size)
