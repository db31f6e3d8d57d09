"""The talker: one position in, the hidden state that chooses code group 0 out.

Every position is a text-side vector plus a codec-side vector; this module makes both from ids and
runs the layers. It does not choose codes and does not know which slot belongs to whom.

Source: `Qwen3TTSTalkerForConditionalGeneration` of qwen-tts 0.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from rtts.engine.qwen.attention import choose_prompt_attention
from rtts.engine.qwen.config import TalkerConfig
from rtts.engine.qwen.extra import Tensor, functional, nn, torch
from rtts.engine.qwen.kv_cache import KeyValues
from rtts.engine.qwen.layers import DecoderLayer, Rotary, attend, frozen, rms_norm
from rtts.engine.qwen.weights import Weights

_PROJECT_ROWS = 8
"""Rows of one text projection. A fixed number, and more than three: below four rows the CPU's matrix
product takes another path, and a row's bits would depend on how many it was projected with."""

_TABULATED_ROWS = 8192


class Talker(nn.Module):
    """Weights of the talker, without its code predictor.

    Attributes:
        prompt_attention: What `prefill` attends with.
    """

    def __init__(self, weights: Weights, config: TalkerConfig) -> None:
        super().__init__()
        self.config = config
        stack, hidden = config.stack, config.stack.hidden
        self.layers = cast(
            "Sequence[DecoderLayer]",
            nn.ModuleList(
                DecoderLayer(
                    weights, f"talker.model.layers.{i}", stack, head_norms=True, layer_scales=False
                )
                for i in range(stack.layers)
            ),
        )
        self.norm = frozen(weights.take("talker.model.norm.weight", hidden))
        self.codec_embedding = frozen(
            weights.take("talker.model.codec_embedding.weight", config.vocab, hidden)
        )
        self.codec_head = frozen(weights.take("talker.codec_head.weight", config.vocab, hidden))
        self.text_embedding = frozen(
            weights.take(
                "talker.model.text_embedding.weight", config.text_vocab, config.text_hidden
            )
        )
        text, projection = config.text_hidden, "talker.text_projection.linear_fc"
        self.text_in = frozen(weights.take(f"{projection}1.weight", text, text))
        self.text_in_bias = frozen(weights.take(f"{projection}1.bias", text))
        self.text_out = frozen(weights.take(f"{projection}2.weight", hidden, text))
        self.text_out_bias = frozen(weights.take(f"{projection}2.bias", hidden))
        self.rotary = Rotary(stack, weights.device)
        self.prompt_attention = choose_prompt_attention(weights.device, weights.dtype)
        self._text_table: Tensor | None = None

    @torch.no_grad()
    def tabulate_text(self) -> Tensor:
        """Project the whole text vocabulary, `[text_vocab, hidden]`: from now on it is looked up.

        622 MB (1.7B) that replace the 622 MB of the embedding; a matter of milliseconds on a GPU.
        """
        if self._text_table is None:
            table = self.text_embedding.new_empty(self.config.text_vocab, self.config.stack.hidden)
            whole = torch.split(self.text_embedding, _TABULATED_ROWS)
            for part, out in zip(whole, torch.split(table, _TABULATED_ROWS), strict=True):
                wide = functional.silu(functional.linear(part, self.text_in, self.text_in_bias))
                out.copy_(functional.linear(wide, self.text_out, self.text_out_bias))
            self._text_table = table
            self.text_embedding = frozen(self.text_embedding.new_empty(0))
        return self._text_table

    def project_text(self, ids: Tensor) -> Tensor:
        """Text-side vectors `[T, hidden]` of text ids `[T]`; a row depends on its id alone."""
        if self._text_table is not None:
            return functional.embedding(ids, self._text_table)
        rows = []
        for part in torch.split(ids, _PROJECT_ROWS):
            padded = functional.pad(part, (0, _PROJECT_ROWS - part.shape[0]))
            embedded = functional.embedding(padded, self.text_embedding)
            wide = functional.silu(functional.linear(embedded, self.text_in, self.text_in_bias))
            rows.append(functional.linear(wide, self.text_out, self.text_out_bias)[: part.shape[0]])
        return torch.cat(rows)

    def prefill(self, x: Tensor, kv: KeyValues, slot: int, start: int) -> None:
        """Write the keys and values of prompt positions `start, start + 1, ...` of one slot.

        Args:
            x: `[T, hidden]`, T >= 1; earlier positions of the slot must be there already.
        """
        count = x.shape[0]
        end = start + count
        positions = torch.arange(start, end, device=x.device)
        cos, sin = self.rotary(positions[None], x.dtype)
        mask = torch.arange(end, device=x.device)[None] <= positions[:, None]
        attend_prompt = self.prompt_attention.attend
        h = x[None]
        for i, layer in enumerate(self.layers):
            q, k, v = layer.project(h, cos, sin)
            kv.k[i, slot, :, start:end] = k[0]
            kv.v[i, slot, :, start:end] = v[0]
            seen_k, seen_v = kv.k[i, slot : slot + 1, :, :end], kv.v[i, slot : slot + 1, :, :end]
            h = layer.finish(h, attend_prompt(q, seen_k, seen_v, mask))

    def step(self, x: Tensor, kv: KeyValues, lengths: Tensor, active: Tensor, span: int) -> Tensor:
        """One position for each of the first B slots.

        Args:
            x: `[B, hidden]`.
            lengths: `[B]` int64, positions each slot holds: where this one goes.
            active: `[B]` bool. Inactive rows leave their slot's positions as they are.
            span: Positions attended over, more than every active row's length.

        Returns:
            `[B, hidden]`, after the final norm; inactive rows are meaningless.
        """
        lengths = lengths.clamp(max=span - 1)
        cos, sin = self.rotary(lengths[:, None], x.dtype)
        target = torch.where(active, lengths, kv.positions)
        mask = (torch.arange(span, device=x.device)[None] <= lengths[:, None])[:, None, None]
        h, rows = x[:, None], x.shape[0]
        for i, layer in enumerate(self.layers):
            q, k, v = layer.project(h, cos, sin)
            kv.write(i, target, k, v)
            attended = attend(q, kv.k[i, :rows, :, :span], kv.v[i, :rows, :, :span], mask)
            h = layer.finish(h, attended)
        return rms_norm(h[:, 0], self.norm, self.config.stack.eps)

    def logits(self, h: Tensor) -> Tensor:
        """Scores of code group 0, `[B, vocab]` float32, from `step`'s output."""
        return functional.linear(h, self.codec_head).float()
