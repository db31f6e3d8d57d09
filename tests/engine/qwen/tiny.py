"""Tiny random checkpoints, the very ones the golden codes were made with, without the reference.

Layout, tokenizer and the rule that spreads the weights follow the script that built them with
qwen-tts 0.1.1; `golden/manifest.json` holds what only that package's classes know: the order of the
parameters, their shapes, and the state of torch's generator before the codebooks are drawn.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

GOLDEN = Path(__file__).parent / "golden"
SPECIALS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)
N_CODES, N_GROUPS = 64, 16
CONTROLS = {
    "codec_pad_id": N_CODES,
    "codec_bos_id": N_CODES + 1,
    "codec_eos_token_id": N_CODES + 2,
    "codec_think_id": N_CODES + 6,
    "codec_nothink_id": N_CODES + 7,
    "codec_think_bos_id": N_CODES + 8,
    "codec_think_eos_id": N_CODES + 9,
}
LANGUAGES = {"english": N_CODES + 20, "chinese": N_CODES + 21, "beijing_dialect": N_CODES + 22}
SPEAKERS = {"ann": N_CODES + 30, "bob": N_CODES + 31, "dylan": N_CODES + 32}


def build(folder: Path, kind: str, seed: int = 0) -> Path:
    """Write the checkpoint of a golden set: seed 0 is shaped like 1.7B, seed 7 like 0.6B."""
    size, hidden, predictor_hidden = ("1b7", 48, 32) if seed == 0 else ("0b6", 32, 32)
    manifest = json.loads((GOLDEN / "manifest.json").read_text())
    codec_folder = folder / "speech_tokenizer"
    codec_folder.mkdir(parents=True)
    ids, text_vocab = write_tokenizer(folder)
    config = model_config(kind, size, hidden, predictor_hidden, ids, text_vocab)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(generation_config()))
    (codec_folder / "config.json").write_text(json.dumps(codec_config()))
    parameters = [
        (name, shape)
        for name, shape in manifest["model"][str(seed)]
        if kind == "base" or not name.startswith("speaker_encoder.")
    ]
    save_file(spread(parameters, seed + 1), folder / "model.safetensors")
    codec = spread(manifest["codec"], seed + 3)
    draw_codec(codec, manifest["codec"], manifest["generator"][str(seed)])
    kept = {name: value for name, value in codec.items() if name.startswith("decoder.")}
    if kind == "base":
        kept |= draw_encoder(codec, seed)
    save_file(kept, codec_folder / "model.safetensors")
    return folder


def spread(parameters: list[Any], seed: int) -> dict[str, torch.Tensor]:
    """Fan-in-scaled weights, so that greedy choices are not near-ties."""
    generator = torch.Generator().manual_seed(seed)
    out = {}
    for name, shape in parameters:
        value = torch.ones(shape)
        if len(shape) >= 2 and "embedding_sum" not in name:
            if "embedding" in name or "embed_tokens" in name:
                std = 1.0
            else:
                std = value[0].numel() ** -0.5
                if "codec_head" in name or "lm_head" in name:
                    std *= 3.0
            value = torch.randn(shape, generator=generator) * std
        elif name.endswith("bias"):
            value = torch.randn(shape, generator=generator) * 0.1
        elif "norm" in name and name.endswith("weight"):
            value = 1.0 + 0.1 * torch.randn(shape, generator=generator)
        out[name] = value
    return out


def draw_codec(codec: dict[str, torch.Tensor], parameters: list[Any], state: str) -> None:
    """Codebooks, gains and snakes, drawn on from the stored generator state."""
    generator = torch.Generator()
    generator.set_state(torch.frombuffer(bytearray(base64.b64decode(state)), dtype=torch.uint8))
    for name, shape in parameters:
        if not name.startswith("decoder."):
            continue
        if name.endswith("embedding_sum"):
            codec[name] = torch.randn(shape, generator=generator)
        elif name.endswith(".gamma"):
            codec[name] = torch.full(shape, 0.3)
        elif name.endswith("layer_scale.scale"):
            codec[name] = torch.full(shape, 0.5)
        elif name.endswith((".alpha", ".beta")):
            codec[name] = torch.randn(shape, generator=generator) * 0.3
    codec["decoder.decoder.6.conv.weight"] *= 0.01
    codec["decoder.decoder.6.conv.bias"].zero_()


def draw_encoder(codec: dict[str, torch.Tensor], seed: int) -> dict[str, torch.Tensor]:
    """The codec's encoder: its spread weights, visible gains, and codebooks, which a fresh module of
    the reference has not."""
    generator = torch.Generator().manual_seed(seed + 4)
    out = {name: value for name, value in codec.items() if name.startswith("encoder.")}
    for name in out:
        if name.endswith("layer_scale.scale"):
            out[name] = torch.full_like(out[name], 0.5)
    books = [("semantic", 0), *(("acoustic", i) for i in range(31))]
    for side, i in books:
        book = f"encoder.quantizer.{side}_residual_vector_quantizer.layers.{i}.codebook"
        out[f"{book}.embed_sum"] = 0.7 * torch.randn(N_CODES, 16, generator=generator)
        out[f"{book}.cluster_usage"] = 0.5 + torch.rand(N_CODES, generator=generator)
        out[f"{book}.initialized"] = torch.ones(1)
    return out


def sweep(samples: int) -> torch.Tensor:
    """Reference audio: a tone that sweeps, in noise; `[samples]` float32, 24 kHz."""
    seconds = torch.arange(samples, dtype=torch.float64) / 24_000
    tone = 0.3 * torch.sin(2 * torch.pi * (200 + 80 * torch.sin(3 * seconds)) * seconds)
    noise = torch.rand(samples, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return (tone + 0.2 * (noise - 0.5)).float()


def byte_alphabet() -> dict[int, str]:
    """GPT-2's byte to printable character table."""
    keep = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table: dict[int, str] = {}
    for byte in range(256):
        table[byte] = chr(byte) if byte in keep else chr(256 + sum(b not in keep for b in table))
    return table


def write_tokenizer(folder: Path) -> tuple[dict[str, int], int]:
    """256 bytes, a few merges, six special tokens."""
    alphabet = byte_alphabet()
    vocab = {alphabet[byte]: byte for byte in range(256)}
    merges = []
    for word in ("assistant", "user", " the", "er", "in", "llo", " wor", "ld"):
        letters = "".join(alphabet[byte] for byte in word.encode())
        left = letters[0]
        for letter in letters[1:]:
            if left + letter not in vocab:
                merges.append(f"{left} {letter}")
                vocab[left + letter] = len(vocab)
            left += letter
    ids = {special: len(vocab) + i for i, special in enumerate(SPECIALS)}
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    return ids, (len(vocab) + len(ids) + 63) // 64 * 64


def model_config(
    kind: str,
    size: str,
    hidden: int,
    predictor_hidden: int,
    ids: dict[str, int],
    text_vocab: int,
) -> dict[str, Any]:
    """`config.json` in the released form."""
    custom = kind == "custom_voice"
    attention = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    return {
        "model_type": "qwen3_tts",
        "tts_model_type": kind,
        "tts_model_size": size,
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "im_start_token_id": ids["<|im_start|>"],
        "im_end_token_id": ids["<|im_end|>"],
        "tts_pad_token_id": ids["<tts_pad>"],
        "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"],
        "speaker_encoder_config": {
            "enc_dim": hidden,
            "enc_channels": [16, 16, 16, 16, 48],
            "enc_attention_channels": 8,
            "enc_res2net_scale": 2,
            "enc_se_channels": 8,
        },
        "talker_config": {
            "vocab_size": N_CODES + 1024,
            "hidden_size": hidden,
            "intermediate_size": 96,
            "num_hidden_layers": 3,
            **attention,
            "max_position_embeddings": 4096,
            "rope_theta": 1000000,
            "num_code_groups": N_GROUPS,
            "text_hidden_size": 40,
            "text_vocab_size": text_vocab,
            "spk_id": SPEAKERS if custom else {},
            "spk_is_dialect": {
                name: "beijing_dialect" if name == "dylan" else False
                for name in (SPEAKERS if custom else {})
            },
            "codec_language_id": LANGUAGES,
            "code_predictor_config": {
                "vocab_size": N_CODES,
                "hidden_size": predictor_hidden,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                **attention,
                "rope_theta": 1000000,
                "num_code_groups": N_GROUPS,
            },
            **CONTROLS,
        },
    }


def generation_config() -> dict[str, Any]:
    """`generation_config.json`."""
    return {
        "do_sample": True,
        "repetition_penalty": 1.05,
        "temperature": 0.9,
        "top_p": 1.0,
        "top_k": 50,
        "subtalker_dosample": True,
        "subtalker_temperature": 0.9,
        "subtalker_top_p": 1.0,
        "subtalker_top_k": 50,
        "max_new_tokens": 8192,
    }


def codec_config() -> dict[str, Any]:
    """`speech_tokenizer/config.json`."""
    return {
        "decoder_config": {
            "codebook_size": N_CODES,
            "codebook_dim": 32,
            "latent_dim": 48,
            "hidden_size": 32,
            "intermediate_size": 48,
            "head_dim": 8,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "num_hidden_layers": 3,
            "num_quantizers": N_GROUPS,
            "sliding_window": 12,
            "decoder_dim": 64,
            "rope_theta": 10000,
        },
        "encoder_config": {
            "audio_channels": 1,
            "num_filters": 4,
            "hidden_size": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "head_dim": 8,
            "codebook_size": N_CODES,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "num_quantizers": 32,
            "upsample_groups": 32,
            "sliding_window": 250,
        },
    }
