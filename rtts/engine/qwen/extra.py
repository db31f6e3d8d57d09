"""The one place that imports torch, so that its absence is one typed error with one remedy.

It knows nothing about models: it only hands on the names the other modules share.
"""

from __future__ import annotations

from rtts.errors import ConfigError

try:
    import torch as torch
    import torch.nn.functional as functional
    from torch import Tensor as Tensor
    from torch import nn as nn
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ConfigError(
        "engine qwen needs PyTorch, which is not installed: install the extra rtts[qwen]"
    ) from error

__all__ = ["Tensor", "functional", "nn", "torch"]
