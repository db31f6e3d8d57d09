"""Checkpoints of random weights in the released layout: to size hardware, to test without a download.

Names and shapes are asked of the modules that load them, so they cannot drift apart. The tokenizer
is byte-level with the released ids. Weights are scaled by fan-in, so that hidden states stay of
order one and choices are not near-ties. It knows nothing about running a model.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rtts.engine.qwen.code_predictor import CodePredictor
from rtts.engine.qwen.codec import Codec
from rtts.engine.qwen.codec_encoder import CodecEncoder
from rtts.engine.qwen.config import ModelConfig, ModelType, load_config
from rtts.engine.qwen.extra import Tensor, torch
from rtts.engine.qwen.speaker_encoder import SpeakerEncoder
from rtts.engine.qwen.talker import Talker
from rtts.engine.qwen.weights import Weights
from rtts.errors import ConfigError

Progress = Callable[[int, int], None]
"""Bytes written so far, bytes in all."""

SIZES = ("0.6b", "1.7b", "tiny")
_RELEASED_SIZE = {"0.6b": "0b6", "1.7b": "1b7", "tiny": "1b7"}
_HIDDEN = {"0.6b": (1024, 3072), "1.7b": (2048, 6144), "tiny": (64, 128)}

# Released ids of the text vocabulary and of the talker's, as its config.json has them.
_TEXT_IDS = {
    "<|endoftext|>": 151643,
    "<|im_start|>": 151644,
    "<|im_end|>": 151645,
    "<tts_pad>": 151671,
    "<tts_text_bos>": 151672,
    "<tts_text_eod>": 151673,
}
_WORDS = {"assistant": 77091, "user": 872}
_TEXT_VOCAB = 151936
_CONTROLS = {
    "codec_pad_id": 2148,
    "codec_bos_id": 2149,
    "codec_eos_token_id": 2150,
    "codec_think_id": 2154,
    "codec_nothink_id": 2155,
    "codec_think_bos_id": 2156,
    "codec_think_eos_id": 2157,
}
_LANGUAGES = {
    "chinese": 2055,
    "english": 2050,
    "german": 2053,
    "italian": 2070,
    "portuguese": 2071,
    "spanish": 2054,
    "japanese": 2058,
    "korean": 2064,
    "french": 2061,
    "russian": 2069,
}
_DIALECTS = {"beijing_dialect": 2074, "sichuan_dialect": 2062}
_SPEAKERS = {
    "serena": 3066,
    "vivian": 3065,
    "uncle_fu": 3010,
    "ryan": 3061,
    "aiden": 2861,
    "ono_anna": 2873,
    "sohee": 2864,
    "eric": 2875,
    "dylan": 2878,
}
_SPEAKER_DIALECTS = {"eric": "sichuan_dialect", "dylan": "beijing_dialect"}
_CODES, _TINY_CODES = 2048, 64


def write_checkpoint(
    folder: Path,
    size: str,
    kind: str,
    seed: int = 0,
    progress: Progress | None = None,
) -> None:
    """Write a checkpoint folder; the same arguments give the same bytes.

    Args:
        size: One of `SIZES`. Weights are bfloat16 (the codec's float32) as released; tiny: float32.
        kind: A `ModelType`.

    Raises:
        ConfigError: No such size or kind, or a file is there already.
    """
    if size not in SIZES or kind not in tuple(ModelType):
        raise ConfigError(f"checkpoint: size is one of {SIZES}, type one of {tuple(ModelType)}")
    if kind == ModelType.VOICE_DESIGN and size == "0.6b":
        raise ConfigError("checkpoint: voice_design exists only at 1.7b (and tiny)")
    if (folder / "config.json").exists():
        raise ConfigError(f"checkpoint: {folder} holds a checkpoint already")
    write_settings(folder, size, kind)
    codec_folder = folder / "speech_tokenizer"
    config = load_config(folder)
    model, codec = _wanted(config)
    main_dtype = torch.float32 if size == "tiny" else torch.bfloat16
    jobs = (
        (folder / "model.safetensors", model, main_dtype),
        (codec_folder / "model.safetensors", codec, torch.float32),
    )
    total = sum(
        torch.Size(shape).numel() * dtype.itemsize
        for _, shapes, dtype in jobs
        for shape in shapes.values()
    )
    written = 0
    for path, shapes, dtype in jobs:
        written = _write_tensors(path, shapes, dtype, seed, written, total, progress)


def write_settings(folder: Path, size: str, kind: str) -> None:
    """Write a checkpoint's tokenizer and JSON files, without tensors."""
    codec_folder = folder / "speech_tokenizer"
    codec_folder.mkdir(parents=True, exist_ok=True)
    ids, text_vocab = _write_tokenizer(folder, size)
    _write_json(folder / "config.json", _config(size, kind, ids, text_vocab))
    _write_json(folder / "generation_config.json", _GENERATION)
    _write_json(codec_folder / "config.json", _codec_config(size))
    _write_json(codec_folder / "preprocessor_config.json", _PREPROCESSOR)
    _write_json(folder / "preprocessor_config.json", _PREPROCESSOR)


class RandomWeights(Weights):
    """Tensors drawn as they are asked for, on the device: to size hardware without any file.

    A function of name, shape, seed and device kind; not the values `write_checkpoint` writes.
    """

    def __init__(self, dtype: torch.dtype, device: str, seed: int = 0) -> None:
        super().__init__({}, "random", dtype, device)
        self._seed = seed

    def take(self, name: str, *shape: int) -> Tensor:
        """The tensor of that name."""
        return _draw(name, shape, self._seed, self.device).to(self.dtype)


class _Wanted(Weights):
    """Notes what is asked for, and gives tensors without data."""

    def __init__(self) -> None:
        super().__init__({}, "", torch.float32, "meta")
        self.shapes: dict[str, tuple[int, ...]] = {}

    def take(self, name: str, *shape: int) -> Tensor:
        self.shapes[name] = shape
        return torch.empty(shape, device="meta")


def _wanted(config: ModelConfig) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Names and shapes of the model's and the codec's tensors."""
    model, codec = _Wanted(), _Wanted()
    Talker(model, config.talker)
    CodePredictor(model, config.predictor, config.talker.stack.hidden)
    if config.speaker_encoder is not None:
        SpeakerEncoder(model, config.speaker_encoder)
        CodecEncoder(codec, config.codec_encoder, config.codec)
    Codec(codec, config.codec)
    inner = config.codec.codebook_dim // 2
    for side in ("rvq_first", "rvq_rest"):  # there in the release, used by the encoder only
        codec.take(f"decoder.quantizer.{side}.input_proj.weight", inner, inner * 2, 1)
    return model.shapes, codec.shapes


def _draw(
    name: str, shape: tuple[int, ...], seed: int, device: torch.device | None = None
) -> Tensor:
    """The values of one tensor: a function of its name, shape and the seed."""
    digest = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    device = torch.device("cpu") if device is None else device
    generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:7], "big"))
    if name.endswith("cluster_usage"):
        return torch.ones(shape, device=device)
    if name.endswith(("layer_scale.scale", ".gamma")):
        return torch.full(shape, 0.3, device=device)
    noise = torch.randn(shape, generator=generator, device=device)
    if name.endswith((".alpha", ".beta")):
        return noise.mul_(0.3)
    if name == "decoder.decoder.6.conv.bias":
        return noise.zero_()  # no constant in the waveform
    if len(shape) == 1:
        return noise.mul_(0.1).add_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
    if "embedding" in name:
        return noise
    fan_in = torch.Size(shape[1:]).numel()
    scale = float(fan_in) ** -0.5
    if "codec_head" in name or "lm_head" in name:
        scale *= 3.0  # choices are clear, not near-ties
    if ".conv2." in name:  # the codec's residual branches add up
        scale *= 0.2
    if shape[0] == 1:  # its last convolution keeps the waveform inside [-1, 1]
        scale *= 0.05
    return noise.mul_(scale)


_DTYPE_NAMES = {torch.float32: "F32", torch.bfloat16: "BF16"}


def _write_tensors(
    path: Path,
    shapes: dict[str, tuple[int, ...]],
    dtype: torch.dtype,
    seed: int,
    written: int,
    total: int,
    progress: Progress | None,
) -> int:
    """Write a safetensors file one tensor at a time, so that 4 GB need not fit into memory."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, shape in shapes.items():
        size = torch.Size(shape).numel() * dtype.itemsize
        header[name] = {
            "dtype": _DTYPE_NAMES[dtype],
            "shape": list(shape),
            "data_offsets": [offset, offset + size],
        }
        offset += size
    encoded = json.dumps(header, separators=(",", ":")).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(encoded)))
        file.write(encoded)
        file.flush()
        for name, shape in shapes.items():
            data = _draw(name, shape, seed).to(dtype).contiguous()
            data.view(torch.uint8).numpy().tofile(file)
            written += data.numel() * dtype.itemsize
            if progress is not None:
                progress(written, total)
    return written


def _write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False), encoding="utf-8")


_GENERATION = {
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
_PREPROCESSOR = {
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "sampling_rate": 24000,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
    "chunk_length_s": None,
    "overlap": None,
}


def _stack(hidden: int, intermediate: int, layers: int, *, tiny: bool) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": 4 if tiny else 16,
        "num_key_value_heads": 2 if tiny else 8,
        "head_dim": 16 if tiny else 128,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 1000000,
    }


def _config(size: str, kind: str, ids: dict[str, int], text_vocab: int) -> dict[str, Any]:
    tiny = size == "tiny"
    codes = _TINY_CODES if tiny else _CODES
    shift = codes - _CODES  # control ids lie at the same places behind the codes

    def shifted(names: dict[str, int]) -> dict[str, int]:
        return {name: id_ + shift for name, id_ in names.items()}

    hidden, intermediate = _HIDDEN[size]
    custom = kind == ModelType.CUSTOM_VOICE
    predictor = _stack(*((32, 64, 2) if tiny else (1024, 3072, 5)), tiny=tiny)
    sections = [4, 2, 2] if tiny else [24, 20, 20]
    config: dict[str, Any] = {
        "architectures": ["Qwen3TTSForConditionalGeneration"],
        "model_type": "qwen3_tts",
        "tts_model_type": kind,
        "tts_model_size": _RELEASED_SIZE[size],
        "tokenizer_type": "qwen3_tts_tokenizer_12hz",
        "im_start_token_id": ids["<|im_start|>"],
        "im_end_token_id": ids["<|im_end|>"],
        "tts_pad_token_id": ids["<tts_pad>"],
        "tts_bos_token_id": ids["<tts_text_bos>"],
        "tts_eos_token_id": ids["<tts_text_eod>"],
        "talker_config": {
            "model_type": "qwen3_tts_talker",
            **_stack(hidden, intermediate, 3 if tiny else 28, tiny=tiny),
            "rope_scaling": {
                "interleaved": True,
                "mrope_section": sections,
                "rope_type": "default",
                "type": "default",
            },
            "max_position_embeddings": 32768,
            "vocab_size": codes + 1024,
            "text_vocab_size": text_vocab,
            "text_hidden_size": 48 if tiny else 2048,
            "num_code_groups": 16,
            "pad_token_id": None,
            **shifted(_CONTROLS),
            "codec_language_id": shifted({**_LANGUAGES, **(_DIALECTS if custom else {})}),
            "spk_id": shifted(_SPEAKERS) if custom else {},
            "spk_is_dialect": {
                name: _SPEAKER_DIALECTS.get(name, False) for name in (_SPEAKERS if custom else {})
            },
            "code_predictor_config": {
                "model_type": "qwen3_tts_talker_code_predictor",
                **predictor,
                "max_position_embeddings": 65536,
                "vocab_size": codes,
                "num_code_groups": 16,
                "pad_token_id": None,
            },
        },
    }
    if kind == ModelType.BASE:
        config["speaker_encoder_config"] = {"enc_dim": hidden, "sample_rate": 24000}
    return config


def _codec_config(size: str) -> dict[str, Any]:
    tiny = size == "tiny"
    return {
        "model_type": "qwen3_tts_tokenizer_12hz",
        "decoder_config": {
            "latent_dim": 48 if tiny else 1024,
            "codebook_dim": 32 if tiny else 512,
            "codebook_size": _TINY_CODES if tiny else _CODES,
            "decoder_dim": 64 if tiny else 1536,
            "hidden_act": "silu",
            "hidden_size": 32 if tiny else 512,
            "intermediate_size": 48 if tiny else 1024,
            "layer_scale_initial_scale": 0.01,
            "max_position_embeddings": 8000,
            "head_dim": 8 if tiny else 64,
            "num_attention_heads": 4 if tiny else 16,
            "num_hidden_layers": 3 if tiny else 8,
            "num_key_value_heads": 4 if tiny else 16,
            "num_quantizers": 16,
            "num_semantic_quantizers": 1,
            "rms_norm_eps": 1e-5,
            "rope_theta": 10000,
            "sliding_window": 12 if tiny else 72,
            "upsample_rates": [8, 5, 4, 3],
            "upsampling_ratios": [2, 2],
        },
        "encoder_config": {
            "num_filters": 4 if tiny else 64,
            "hidden_size": 32 if tiny else 512,
            "num_hidden_layers": 2 if tiny else 8,
            "intermediate_size": 64 if tiny else 2048,
            "num_attention_heads": 4 if tiny else 8,
            "num_key_value_heads": 4 if tiny else 8,
            "head_dim": 8 if tiny else 64,
            "codebook_size": _TINY_CODES if tiny else _CODES,
            "codebook_dim": 16 if tiny else 256,
            "vector_quantization_hidden_dimension": 16 if tiny else 256,
            "num_quantizers": 32,
            # the reference's default, 512, divides no tiny width and keeps it from loading the folder
            "upsample_groups": 32 if tiny else 512,
        },
    }


def _byte_letters() -> list[str]:
    """The letters that stand for bytes in byte-level vocabularies, in the order of their ids."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(256 + n) for n in range(len(others))]


def _write_tokenizer(folder: Path, size: str) -> tuple[dict[str, int], int]:
    """Write the vocabulary: bytes, the two role words, the specials. Ids and size of it."""
    vocab = {letter: id_ for id_, letter in enumerate(_byte_letters())}
    merges = []
    for word, id_ in _WORDS.items():
        for end in range(2, len(word) + 1):
            if word[:end] not in vocab:
                merges.append(f"{word[: end - 1]} {word[end - 1]}")
                vocab[word[:end]] = len(vocab)
        if size != "tiny":
            vocab[word] = id_
    if size == "tiny":
        ids = {special: len(vocab) + n for n, special in enumerate(_TEXT_IDS)}
        text_vocab = -(-(len(vocab) + len(ids)) // 64) * 64
    else:
        ids, text_vocab = _TEXT_IDS, _TEXT_VOCAB
    _write_json(folder / "vocab.json", vocab)
    (folder / "merges.txt").write_text("#version: 0.2\n" + "\n".join(merges) + "\n")
    special = {"lstrip": False, "normalized": False, "rstrip": False, "single_word": False}
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "Qwen2Tokenizer",
            "processor_class": "Qwen3TTSProcessor",
            "add_prefix_space": False,
            "add_bos_token": False,
            "clean_up_tokenization_spaces": False,
            "errors": "replace",
            "model_max_length": 131072,
            "split_special_tokens": False,
            "bos_token": None,
            "unk_token": None,
            "eos_token": "<|im_end|>",
            "pad_token": "<|endoftext|>",
            "added_tokens_decoder": {
                str(id_): {"content": text, **special, "special": True} for text, id_ in ids.items()
            },
        },
    )
    return ids, text_vocab
