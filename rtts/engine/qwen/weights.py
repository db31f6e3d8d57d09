"""Released tensors by name: safetensors in, each tensor taken once and checked for its shape.

It knows names and shapes, not what they compute.
"""

from __future__ import annotations

from pathlib import Path

from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.hub import tensor_files
from rtts.errors import ConfigError


class Weights:
    """The tensors of one checkpoint file (or of its shards).

    `take` removes a tensor from the set, so that after loading `leftover` names exactly what no
    module wanted.
    """

    def __init__(
        self, tensors: dict[str, Tensor], where: str, dtype: torch.dtype, device: str
    ) -> None:
        self._tensors = tensors
        self._where = where
        self.dtype = dtype
        self.device = torch.device(device)

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of that name in the set's dtype, on its device.

        Raises:
            ConfigError: It is missing or has another shape.
        """
        tensor = self._tensors.pop(name, None)
        if tensor is None:
            raise ConfigError(f"{self._where}: tensor {name} is missing")
        if tuple(tensor.shape) != shape:
            raise ConfigError(
                f"{self._where}: tensor {name} has shape {tuple(tensor.shape)}, "
                f"the configuration says {shape}"
            )
        return tensor.to(device=self.device, dtype=self.dtype)

    def has(self, name: str) -> bool:
        """Whether the tensor is still there to be taken."""
        return name in self._tensors

    def leftover(self, *ignored_prefixes: str) -> list[str]:
        """Names nobody took, apart from those that begin with an ignored prefix."""
        return sorted(name for name in self._tensors if not name.startswith(ignored_prefixes))


def open_weights(folder: Path, dtype: torch.dtype, device: str) -> Weights:
    """Read `model.safetensors`, or the shards its index names.

    Raises:
        ConfigError: A file is missing or damaged.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    tensors: dict[str, Tensor] = {}
    for path in tensor_files(folder):
        try:
            tensors.update(load_file(path))
        except (OSError, SafetensorError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
    return Weights(tensors, str(folder), dtype, device)
