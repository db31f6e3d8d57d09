"""What a released Qwen3-TTS folder says about itself: dimensions, ids, voices, sampling defaults.

Read from `config.json`, `generation_config.json` and `speech_tokenizer/config.json`; keys beyond
those named here are tolerated. The class defaults of the reference package differ from the released
checkpoints (layers, key-value heads, codec widths), so a key that sets a shape has no default
here. This module knows nothing about torch or weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from rtts.errors import ConfigError

SUPPRESSED_IDS = 1024
"""The last ids of the talker's vocabulary are controls; only the end id may be sampled
(`suppress_tokens` of the reference's `generate`)."""

SAMPLE_RATE_HZ = 24_000


class ModelType(StrEnum):
    """What a checkpoint was trained to do."""

    CUSTOM_VOICE = "custom_voice"  # preset speakers
    BASE = "base"  # clones a reference
    VOICE_DESIGN = "voice_design"  # a voice from its description


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """Dimensions of one stack of decoder layers."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    rope_theta: float
    eps: float


@dataclass(frozen=True, slots=True)
class TalkerConfig:
    """The talker: its stack, its vocabularies and the ids that steer it.

    Attributes:
        languages: Lower-case language name to codec id; names ending in "_dialect" included.
        speakers: Lower-case speaker name to codec id.
        dialects: Speaker to the dialect that replaces Chinese for it.
    """

    stack: DecoderConfig
    vocab: int
    text_vocab: int
    text_hidden: int
    groups: int
    max_positions: int
    pad_id: int
    bos_id: int
    eos_id: int
    think_id: int
    nothink_id: int
    think_bos_id: int
    think_eos_id: int
    languages: Mapping[str, int]
    speakers: Mapping[str, int]
    dialects: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PredictorConfig:
    """The code predictor: its stack and the size of a code group."""

    stack: DecoderConfig
    vocab: int
    groups: int


@dataclass(frozen=True, slots=True)
class CodecConfig:
    """The speech tokenizer's decoder.

    Attributes:
        stack: Its transformer (no q/k norm; `window` positions, itself included, are seen).
        upsample_rates: Strides of the four blocks (8, 5, 4, 3).
        upsampling_ratios: Strides before them (2, 2).
    """

    stack: DecoderConfig
    window: int
    latent_dim: int
    codebook_dim: int
    codebook_size: int
    quantizers: int
    decoder_dim: int
    upsample_rates: tuple[int, ...]
    upsampling_ratios: tuple[int, ...]

    @property
    def samples_per_frame(self) -> int:
        """Samples of one codec frame (1920 for the release)."""
        product = 1
        for rate in (*self.upsample_rates, *self.upsampling_ratios):
            product *= rate
        return product


@dataclass(frozen=True, slots=True)
class SamplingConfig:
    """How codes are drawn. Defaults: the reference package's hard defaults (0.1.1)."""

    do_sample: bool = True
    temperature: float = 0.9
    top_k: int = 50
    top_p: float = 1.0
    repetition_penalty: float = 1.05
    subtalker_dosample: bool = True
    subtalker_temperature: float = 0.9
    subtalker_top_k: int = 50
    subtalker_top_p: float = 1.0
    max_new_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class TextIds:
    """Ids of the text vocabulary that structure a prompt."""

    im_start: int
    im_end: int
    tts_pad: int
    tts_bos: int
    tts_eos: int


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """The x-vector network of a Base checkpoint (ECAPA-TDNN). Defaults: the reference's."""

    enc_dim: int
    mel_dim: int = 128
    enc_channels: tuple[int, ...] = (512, 512, 512, 512, 1536)
    enc_kernel_sizes: tuple[int, ...] = (5, 3, 3, 3, 1)
    enc_dilations: tuple[int, ...] = (1, 2, 3, 4, 1)
    enc_attention_channels: int = 128
    enc_res2net_scale: int = 8
    enc_se_channels: int = 128


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """One checkpoint.

    Attributes:
        size: "0b6" or "1b7"; the former ignores instructions for preset speakers, as upstream does.
        speaker_encoder: Present in Base checkpoints only.
        codec_encoder: Raw settings of the codec's encoder, used only to register voices.
    """

    model_type: ModelType
    size: str
    talker: TalkerConfig
    predictor: PredictorConfig
    codec: CodecConfig
    text_ids: TextIds
    sampling: SamplingConfig
    speaker_encoder: SpeakerEncoderConfig | None
    codec_encoder: Mapping[str, Any]

    @property
    def takes_instructions(self) -> bool:
        """Whether an instruction changes the prompt: never for a 0.6B preset speaker (upstream)."""
        if self.model_type is ModelType.CUSTOM_VOICE:
            return self.size not in "0b6"
        return self.model_type is ModelType.VOICE_DESIGN


class _Section:
    """A JSON object that names the file and key when something is missing or of the wrong type."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise ConfigError(f"{where}: an object is needed, found {type(values).__name__}")
        self._values = values
        self.where = where

    def section(self, key: str) -> _Section:
        return _Section(self._get(key), f"{self.where}: {key}")

    def raw(self, key: str) -> Mapping[str, Any]:
        value = self._values.get(key) or {}
        return value if isinstance(value, dict) else {}

    def has(self, key: str) -> bool:
        return self._values.get(key) is not None

    def whole(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise ConfigError(f"{self.where}: {key} must be a whole number, found {value!r}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        value = self._get(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ConfigError(f"{self.where}: {key} must be a number, found {value!r}")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise ConfigError(f"{self.where}: {key} must be true or false, found {value!r}")
        return value

    def text(self, key: str) -> str:
        value = self._get(key)
        if not isinstance(value, str):
            raise ConfigError(f"{self.where}: {key} must be a string, found {value!r}")
        return value

    def wholes(self, key: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        value = self._get(key, default)
        if not isinstance(value, list | tuple) or not all(type(item) is int for item in value):
            raise ConfigError(f"{self.where}: {key} must be a list of whole numbers")
        return tuple(value)

    def ids(self, key: str) -> dict[str, int]:
        value = self._get(key, {})
        if not isinstance(value, dict) or not all(type(item) is int for item in value.values()):
            raise ConfigError(f"{self.where}: {key} must map names to ids")
        return {name.lower(): item for name, item in value.items()}

    def _get(self, key: str, default: Any = None) -> Any:
        value = self._values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ConfigError(f"{self.where}: {key} is missing")
        return default


def load_config(folder: Path) -> ModelConfig:
    """Read a checkpoint folder's settings.

    Raises:
        ConfigError: A file or key is missing, or a value cannot be right. Names both.
    """
    main = _Section(_read_json(folder / "config.json"), str(folder / "config.json"))
    codec_file = folder / "speech_tokenizer" / "config.json"
    codec = _Section(_read_json(codec_file), str(codec_file))
    generation_file = folder / "generation_config.json"
    generation = _Section(
        _read_json(generation_file) if generation_file.exists() else {}, str(generation_file)
    )
    kind = main.text("tts_model_type")
    if kind not in tuple(ModelType):
        raise ConfigError(f"{main.where}: tts_model_type {kind!r} is not one of {list(ModelType)}")
    talker = main.section("talker_config")
    config = ModelConfig(
        model_type=ModelType(kind),
        size=main.text("tts_model_size"),
        talker=_talker(talker),
        predictor=_predictor(talker.section("code_predictor_config")),
        codec=_codec(codec.section("decoder_config")),
        text_ids=TextIds(
            im_start=main.whole("im_start_token_id"),
            im_end=main.whole("im_end_token_id"),
            tts_pad=main.whole("tts_pad_token_id"),
            tts_bos=main.whole("tts_bos_token_id"),
            tts_eos=main.whole("tts_eos_token_id"),
        ),
        sampling=_sampling(generation),
        speaker_encoder=_speaker_encoder(main) if kind == ModelType.BASE else None,
        codec_encoder=codec.raw("encoder_config"),
    )
    _check(config, str(folder))
    return config


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(
            f"model folder {path.parent}: cannot read {path.name}: {error.strerror}"
        ) from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}") from error


def _stack(section: _Section, *, eps: float, theta: float) -> DecoderConfig:
    return DecoderConfig(
        hidden=section.whole("hidden_size"),
        intermediate=section.whole("intermediate_size"),
        layers=section.whole("num_hidden_layers"),
        heads=section.whole("num_attention_heads"),
        kv_heads=section.whole("num_key_value_heads"),
        head_dim=section.whole("head_dim"),
        rope_theta=section.number("rope_theta", theta),
        eps=section.number("rms_norm_eps", eps),
    )


def _talker(section: _Section) -> TalkerConfig:
    dialects = {
        name.lower(): dialect
        for name, dialect in section.raw("spk_is_dialect").items()
        if isinstance(dialect, str)
    }
    return TalkerConfig(
        stack=_stack(section, eps=1e-6, theta=1e6),
        vocab=section.whole("vocab_size"),
        text_vocab=section.whole("text_vocab_size"),
        text_hidden=section.whole("text_hidden_size"),
        groups=section.whole("num_code_groups"),
        max_positions=section.whole("max_position_embeddings", 32768),
        pad_id=section.whole("codec_pad_id"),
        bos_id=section.whole("codec_bos_id"),
        eos_id=section.whole("codec_eos_token_id"),
        think_id=section.whole("codec_think_id"),
        nothink_id=section.whole("codec_nothink_id"),
        think_bos_id=section.whole("codec_think_bos_id"),
        think_eos_id=section.whole("codec_think_eos_id"),
        languages=section.ids("codec_language_id"),
        speakers=section.ids("spk_id"),
        dialects=dialects,
    )


def _predictor(section: _Section) -> PredictorConfig:
    return PredictorConfig(
        stack=_stack(section, eps=1e-6, theta=1e6),
        vocab=section.whole("vocab_size"),
        groups=section.whole("num_code_groups"),
    )


def _codec(section: _Section) -> CodecConfig:
    return CodecConfig(
        stack=_stack(section, eps=1e-5, theta=1e4),
        window=section.whole("sliding_window"),
        latent_dim=section.whole("latent_dim"),
        codebook_dim=section.whole("codebook_dim"),
        codebook_size=section.whole("codebook_size"),
        quantizers=section.whole("num_quantizers"),
        decoder_dim=section.whole("decoder_dim"),
        upsample_rates=section.wholes("upsample_rates", (8, 5, 4, 3)),
        upsampling_ratios=section.wholes("upsampling_ratios", (2, 2)),
    )


def _sampling(section: _Section) -> SamplingConfig:
    hard = SamplingConfig()
    return SamplingConfig(
        do_sample=section.flag("do_sample", hard.do_sample),
        temperature=section.number("temperature", hard.temperature),
        top_k=section.whole("top_k", hard.top_k),
        top_p=section.number("top_p", hard.top_p),
        repetition_penalty=section.number("repetition_penalty", hard.repetition_penalty),
        subtalker_dosample=section.flag("subtalker_dosample", hard.subtalker_dosample),
        subtalker_temperature=section.number("subtalker_temperature", hard.subtalker_temperature),
        subtalker_top_k=section.whole("subtalker_top_k", hard.subtalker_top_k),
        subtalker_top_p=section.number("subtalker_top_p", hard.subtalker_top_p),
        max_new_tokens=section.whole("max_new_tokens", hard.max_new_tokens),
    )


def _speaker_encoder(main: _Section) -> SpeakerEncoderConfig:
    section = main.section("speaker_encoder_config")
    hard = SpeakerEncoderConfig(enc_dim=0)
    return SpeakerEncoderConfig(
        enc_dim=section.whole("enc_dim"),
        mel_dim=section.whole("mel_dim", hard.mel_dim),
        enc_channels=section.wholes("enc_channels", hard.enc_channels),
        enc_kernel_sizes=section.wholes("enc_kernel_sizes", hard.enc_kernel_sizes),
        enc_dilations=section.wholes("enc_dilations", hard.enc_dilations),
        enc_attention_channels=section.whole("enc_attention_channels", hard.enc_attention_channels),
        enc_res2net_scale=section.whole("enc_res2net_scale", hard.enc_res2net_scale),
        enc_se_channels=section.whole("enc_se_channels", hard.enc_se_channels),
    )


def _check(config: ModelConfig, where: str) -> None:
    groups = (config.talker.groups, config.predictor.groups, config.codec.quantizers)
    if len(set(groups)) != 1:
        raise ConfigError(f"{where}: talker, code predictor and codec disagree on groups {groups}")
    first_control = config.talker.vocab - SUPPRESSED_IDS
    if first_control > config.codec.codebook_size or first_control <= 0:
        raise ConfigError(
            f"{where}: vocab_size {config.talker.vocab} leaves {first_control} codes, "
            f"the codec has {config.codec.codebook_size}"
        )
    _check_ids(config, where)
    unknown = sorted(set(config.talker.dialects.values()) - set(config.talker.languages))
    if unknown:
        raise ConfigError(f"{where}: dialects {unknown} have no id in codec_language_id")


def _check_ids(config: ModelConfig, where: str) -> None:
    """Every id that a prompt may hold is a row of its table: one beyond would end the engine."""
    talker, text = config.talker, config.text_ids
    codec_ids = {
        "codec_pad_id": talker.pad_id,
        "codec_bos_id": talker.bos_id,
        "codec_eos_token_id": talker.eos_id,
        "codec_think_id": talker.think_id,
        "codec_nothink_id": talker.nothink_id,
        "codec_think_bos_id": talker.think_bos_id,
        "codec_think_eos_id": talker.think_eos_id,
        **{f"codec_language_id of {name}": id_ for name, id_ in talker.languages.items()},
        **{f"spk_id of {name}": id_ for name, id_ in talker.speakers.items()},
    }
    text_ids = {
        "im_start_token_id": text.im_start,
        "im_end_token_id": text.im_end,
        "tts_pad_token_id": text.tts_pad,
        "tts_bos_token_id": text.tts_bos,
        "tts_eos_token_id": text.tts_eos,
    }
    for ids, size in ((codec_ids, talker.vocab), (text_ids, talker.text_vocab)):
        for name, id_ in ids.items():
            if not 0 <= id_ < size:
                raise ConfigError(f"{where}: {name}, {id_}, is outside the vocabulary of {size}")
