"""A recording of a voice: from a file somebody sent to the samples a clone is made of.

Refuses what cannot become a voice, and says why. libsndfile (soundfile) reads WAV, FLAC, Ogg Vorbis,
Ogg Opus and MP3; without it only 16-bit WAV is read. Knows nothing about HTTP, stores and engines.
"""

from __future__ import annotations

import io
import unicodedata

import numpy as np
import numpy.typing as npt
import soxr

from rtts.audio.wav import WavError, read_wav
from rtts.errors import BadRequestError
from rtts.voices.options import VoiceOptions

RATE_HZ = 24_000
"""Of the samples that are kept; what Qwen3-TTS's encoders take."""

_QUIET_RMS = 10 ** (-50 / 20)
"""Below this there is nothing but noise to clone."""

# Seconds of ordinary speech for a character, generously: a syllable of an ideographic script takes
# 0.15 to 0.35 s, a letter 0.05 to 0.11 s.
_IDEOGRAPH_S, _LETTER_S = 0.22, 0.07
# How far from that a recording may be: fast readers, long pauses.
_FASTEST, _SLOWEST = 0.4, 4.0
# A pause before and after, whatever is said.
_AIR_S = 3.0

Samples = npt.NDArray[np.float32]


def read_recording(data: bytes, transcript: str, options: VoiceOptions) -> bytes:
    """The recording as 24 kHz mono s16le.

    Args:
        data: The file.
        transcript: What is said in it, or "".

    Raises:
        BadRequestError: It is no audio, too short, too long, silent, or cannot be of that transcript.
    """
    samples, rate_hz = decode(data, options.longest_s)
    seconds = len(samples) / rate_hz
    if seconds < options.shortest_s:
        raise BadRequestError(
            f"audio: the recording lasts {seconds:.2f} s; at least {options.shortest_s:g} s are needed"
        )
    if seconds > options.longest_s:
        raise BadRequestError(
            f"audio: the recording lasts {seconds:.1f} s; at most {options.longest_s:g} s are taken"
        )
    mono = samples.mean(axis=1, dtype=np.float32)
    if not np.isfinite(mono).all():
        raise BadRequestError("audio: the recording holds values that are no numbers")
    if float(np.sqrt(np.mean(np.square(mono, dtype=np.float64)))) < _QUIET_RMS:
        raise BadRequestError("audio: the recording is silent, or nearly so")
    if transcript:
        _check_length(transcript, seconds)
    mono = at_model_rate(mono, rate_hz)
    peak = float(np.abs(mono).max())
    if peak > 1.0:  # resampling overshoots; a clipped reference clones its clicks
        mono = mono / peak
    pcm: bytes = np.rint(mono * 32767).astype("<i2").tobytes()
    return pcm


def at_model_rate(mono: Samples, rate_hz: int) -> Samples:
    """Mono samples at `RATE_HZ`, by the resampler and quality that qwen-tts uses (librosa's)."""
    if rate_hz == RATE_HZ:
        return mono
    samples: Samples = soxr.resample(mono, rate_hz, RATE_HZ, quality="HQ")
    return samples


def decode(data: bytes, longest_s: float) -> tuple[Samples, int]:
    """Samples `[S, channels]` in [-1, 1] and their rate; no more than a second past the limit.

    Raises:
        BadRequestError: It is no audio.
    """
    try:
        import soundfile
    except ModuleNotFoundError:
        return _decode_wav(data)
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            rate_hz = int(file.samplerate)
            samples = file.read(int((longest_s + 1) * rate_hz), dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, RuntimeError, TypeError) as error:
        why = getattr(error, "error_string", error)  # without the name of our buffer
        raise BadRequestError(
            f"audio: not a recording that can be read (WAV, FLAC, Ogg, MP3): {why}"
        ) from error
    return samples, rate_hz


def _decode_wav(data: bytes) -> tuple[Samples, int]:
    try:
        wav = read_wav(data)
    except WavError as error:
        raise BadRequestError(
            f"audio: {error}; without the package soundfile only 16-bit WAV is read"
        ) from error
    pcm = np.frombuffer(wav.pcm, "<i2").reshape(-1, wav.channels).astype(np.float32)
    return pcm / np.float32(32768), wav.sample_rate_hz


def _check_length(transcript: str, seconds: float) -> None:
    """A transcript of something else makes a clone that babbles."""
    expected_s = _spoken_s(transcript)
    if not _FASTEST * expected_s <= seconds <= _SLOWEST * expected_s + _AIR_S:
        raise BadRequestError(
            f"transcript: {len(transcript)} characters take about {expected_s:.1f} s to say, and the "
            f"recording lasts {seconds:.1f} s: it has to be what is said in it, all of it"
        )


def _spoken_s(text: str) -> float:
    total_s = 0.0
    for character in text:
        if unicodedata.category(character)[0] in "LN":
            # East Asian wide: CJK, kana, Hangul syllables
            is_wide = unicodedata.east_asian_width(character) in "WF"
            total_s += _IDEOGRAPH_S if is_wide else _LETTER_S
    return total_s
