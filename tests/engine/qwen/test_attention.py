"""Which attention prefills a prompt, and that either gives the same keys and values."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rtts.engine.qwen.attention import PromptAttention, choose_prompt_attention
from rtts.engine.qwen.checkpoint import RandomWeights, write_settings
from rtts.engine.qwen.engine import load_engine
from rtts.engine.qwen.frame import Model
from rtts.engine.qwen.kv_cache import KeyValues
from rtts.engine.qwen.layers import attend
from rtts.engine.qwen.options import QwenOptions

GPU = torch.device("cuda")


def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False
) -> torch.Tensor:
    """flash-attn's contract: `[B, T, heads, D]`, grouped heads, causal from the last key back."""
    assert q.stride(-1) == k.stride(-1) == v.stride(-1) == 1
    group = q.shape[2] // k.shape[2]
    k, v = (part.repeat_interleave(group, dim=2) for part in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    if causal:
        t, s = scores.shape[-2:]
        seen = torch.ones(t, s, dtype=torch.bool).tril(s - t)
        scores = scores.masked_fill(~seen, -torch.inf)
    return torch.einsum("bhts,bshd->bthd", scores.softmax(-1), v)


def stand_in(monkeypatch: pytest.MonkeyPatch, **contents: object) -> None:
    package = ModuleType("flash_attn")
    package.__spec__ = ModuleSpec("flash_attn", None)
    vars(package).update(contents)
    monkeypatch.setitem(sys.modules, "flash_attn", package)


def missing(monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *rest: None if name == "flash_attn" else real(name, *rest),
    )


def test_keys_and_values_do_not_depend_on_what_attends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """flash-attn's layout and alignment: a prompt in two parts gives what SDPA gives."""
    stand_in(monkeypatch, flash_attn_func=flash_attn_func, __version__="2.8.3")
    chosen = choose_prompt_attention(GPU, torch.bfloat16)
    write_settings(tmp_path / "m", "tiny", "custom_voice")
    model = Model(
        tmp_path / "m",
        torch.float64,
        "cpu",
        read=lambda _, dtype, device: RandomWeights(dtype, device),
    )
    talker = model.talker
    x = talker.project_text(torch.arange(40, 60))
    found = []
    for attention in (talker.prompt_attention, chosen):
        talker.prompt_attention = attention
        kv = KeyValues.allocate(talker.config.stack, 2, 32, torch.float64, "cpu")
        talker.prefill(x[:12], kv, 1, 0)
        talker.prefill(x[12:], kv, 1, 12)
        found.append(kv)
    assert chosen.name == "flash-attn 2.8.3"
    torch.testing.assert_close(found[0].k, found[1].k, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(found[0].v, found[1].v, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("device", "dtype"), [("cpu", torch.bfloat16), ("cuda", torch.float32), ("cuda", torch.float64)]
)
def test_flash_attn_is_for_short_values_on_a_gpu(
    monkeypatch: pytest.MonkeyPatch, device: str, dtype: torch.dtype
) -> None:
    """Where it cannot run it is not asked, and that is no trouble."""
    stand_in(monkeypatch, flash_attn_func=flash_attn_func, __version__="2.8.3")
    chosen = choose_prompt_attention(torch.device(device), dtype)
    assert (chosen.name, chosen.trouble) == ("SDPA", "")


def test_without_the_package_torch_attends(monkeypatch: pytest.MonkeyPatch) -> None:
    """No package, no trouble."""
    missing(monkeypatch)
    chosen = choose_prompt_attention(GPU, torch.bfloat16)
    assert (chosen.name, chosen.trouble) == ("SDPA", "")


def test_a_package_that_cannot_be_used_is_a_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """A generation without the function: torch attends, and it says so."""
    stand_in(monkeypatch, __version__="4")
    chosen = choose_prompt_attention(GPU, torch.float16)
    assert chosen.name == "SDPA"
    assert "flash-attn is installed but cannot be used" in chosen.trouble


def test_an_engine_says_what_attends(
    checkpoint: Callable[[str, int], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its capabilities: the name, and as degraded what keeps the better one from being used."""
    options = QwenOptions(model=str(checkpoint("custom_voice", 0)), slots=1, positions=128)
    assert load_engine(options).capabilities.attention == "SDPA"
    assert load_engine(options).capabilities.degraded == ()
    troubled = PromptAttention(attend, trouble="it was built for another torch")
    monkeypatch.setattr("rtts.engine.qwen.talker.choose_prompt_attention", lambda *_: troubled)
    assert load_engine(options).capabilities.degraded == ("it was built for another torch",)
