"""The code predictor: from the talker's hidden state and code group 0 to the other fifteen codes.

Fifteen passes a frame over its own sixteen positions; its keys and values live no longer than the
frame. It does not know slots, sampling or audio.

Source: `Qwen3TTSTalkerCodePredictorModelForConditionalGeneration` of qwen-tts 0.1.1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from rtts.engine.qwen.config import PredictorConfig
from rtts.engine.qwen.extra import Tensor, functional, nn, torch
from rtts.engine.qwen.layers import DecoderLayer, Rotary, attend, frozen, rms_norm
from rtts.engine.qwen.weights import Weights

Pick = Callable[[Tensor, int], Tensor]
"""Scores `[B, vocab]` float32 and the code group to the codes chosen, `[B]` int64."""


class CodePredictor(nn.Module):
    """Weights of the code predictor.

    Args:
        talker_hidden: Size of the talker's vectors; where it differs from the predictor's own,
            every input passes through a projection (1.7B).
    """

    def __init__(self, weights: Weights, config: PredictorConfig, talker_hidden: int) -> None:
        super().__init__()
        self.config = config
        stack, root = config.stack, "talker.code_predictor"
        later = range(config.groups - 1)
        self.layers = cast(
            "Sequence[DecoderLayer]",
            nn.ModuleList(
                DecoderLayer(
                    weights, f"{root}.model.layers.{i}", stack, head_norms=True, layer_scales=False
                )
                for i in range(stack.layers)
            ),
        )
        self.norm = frozen(weights.take(f"{root}.model.norm.weight", stack.hidden))
        self.embeddings = frozen(
            torch.stack(
                [
                    weights.take(
                        f"{root}.model.codec_embedding.{g}.weight", config.vocab, talker_hidden
                    )
                    for g in later
                ]
            )
        )
        self.heads = frozen(
            torch.stack(
                [
                    weights.take(f"{root}.lm_head.{g}.weight", config.vocab, stack.hidden)
                    for g in later
                ]
            )
        )
        self.project = self.project_bias = None
        if stack.hidden != talker_hidden:
            name = f"{root}.small_to_mtp_projection"
            self.project = frozen(weights.take(f"{name}.weight", stack.hidden, talker_hidden))
            self.project_bias = frozen(weights.take(f"{name}.bias", stack.hidden))
        self.rotary = Rotary(stack, weights.device)

    def predict(self, h: Tensor, row: Tensor, pick: Pick) -> tuple[Tensor, Tensor]:
        """Choose code groups 1..Q-1 of one frame.

        Args:
            h: `[B, talker_hidden]`, the talker's hidden state.
            row: `[B, talker_hidden]`, the codec embedding of code group 0.

        Returns:
            The codes `[B, Q - 1]` int64, and `[B, talker_hidden]`: the sum of the frame's codec
            embeddings, which is the codec side of the talker's next position.
        """
        stack, rows = self.config.stack, h.shape[0]
        shape = (stack.layers, rows, stack.kv_heads, self.config.groups, stack.head_dim)
        k_all, v_all = h.new_empty(shape), h.new_empty(shape)
        cos_all, sin_all = self.rotary(
            torch.arange(self.config.groups, device=h.device)[None], h.dtype
        )
        first = torch.ones(2, 2, dtype=torch.bool, device=h.device).tril()
        x, end = torch.stack((h, row), dim=1), 0
        codes, total = [], row
        for group in range(1, self.config.groups):
            x = self._enter(x)
            start, end = end, end + x.shape[1]
            cos, sin = cos_all[:, start:end], sin_all[:, start:end]
            for i, layer in enumerate(self.layers):
                q, k, v = layer.project(x, cos, sin)
                k_all[i, :, :, start:end] = k
                v_all[i, :, :, start:end] = v
                mask = first if start == 0 else None
                x = layer.finish(x, attend(q, k_all[i, :, :, :end], v_all[i, :, :, :end], mask))
            last = rms_norm(x[:, -1], self.norm, stack.eps)
            code = pick(functional.linear(last, self.heads[group - 1]).float(), group)
            codes.append(code)
            embedded = functional.embedding(code, self.embeddings[group - 1])
            total = total + embedded
            x = embedded[:, None]
        return torch.stack(codes, dim=1), total

    def embed(self, codes: Tensor) -> Tensor:
        """Sum of the embeddings of groups 1..Q-1: `[T, Q - 1]` to `[T, talker_hidden]`."""
        parts = [
            functional.embedding(codes[:, g], self.embeddings[g]) for g in range(codes.shape[1])
        ]
        return torch.stack(parts).sum(0)

    def _enter(self, x: Tensor) -> Tensor:
        if self.project is None:
            return x
        return functional.linear(x, self.project, self.project_bias)
