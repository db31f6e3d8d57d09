"""The samples of a tone: notes, the chunks cut from them, and the voices held in memory.

Everything here is a pure function of its arguments but the cache. It knows nothing about
utterances, credit or time.
"""

from __future__ import annotations

import wave
import zlib
from collections import OrderedDict

import numpy as np
import numpy.typing as npt

SAMPLE_RATE_HZ = 24_000

# An octave apart (A4, A3, A5), so that an ear tells them from each other at once.
BASE_HZ = {"tone": 440.0, "tone-low": 220.0, "tone-high": 880.0}
# A voice that was removed while an utterance of it waited to begin.
REMOVED_HZ = 440.0
_LOWEST_HZ, _HIGHEST_HZ = 60.0, 1000.0
_SCALE_SEMITONES = (0, 2, 4, 5, 7, 9, 11, 12)  # a major scale: neighbours in a reply differ audibly
_AMPLITUDE = 8_192  # -12 dBFS: loud enough to hear a gap, far from clipping after resampling
_FADE_SAMPLES = 120  # 5 ms, the shortest ramp without an audible click


def pitch_of(path: str) -> float:
    """The strongest frequency of a mono s16le WAV file's first second, in whole Hz.

    Raises:
        OSError, EOFError, wave.Error: It cannot be read.
        ValueError: It is silent or not of that kind.
    """
    with wave.open(path, "rb") as file:
        rate_hz = file.getframerate()
        if (file.getnchannels(), file.getsampwidth()) != (1, 2):
            raise ValueError("a reference is mono and has 16 bits")
        samples = np.frombuffer(file.readframes(rate_hz), "<i2").astype(np.float64)
    if not samples.any():
        raise ValueError("the reference is silent")
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    frequencies = np.fft.rfftfreq(len(samples), 1 / rate_hz)
    spectrum[(frequencies < _LOWEST_HZ) | (frequencies > _HIGHEST_HZ)] = 0
    return float(round(frequencies[int(np.argmax(spectrum))])) or REMOVED_HZ


def pitch_for(description: str) -> float:
    """A frequency that stands for a description: the same words are the same voice."""
    return 200.0 + zlib.crc32(description.encode("utf-8", "surrogatepass")) % 400


class Notes:
    """A loaded voice: one table of samples for each note of its scale.

    A frequency in whole hertz repeats after exactly one second, so a chunk anywhere in a segment
    is one slice of its note's table; the table is a chunk longer than a second to need no wrap.
    """

    def __init__(self, base_hz: float, chunk_samples: int) -> None:
        at = np.arange(SAMPLE_RATE_HZ + chunk_samples, dtype=np.int64) % SAMPLE_RATE_HZ
        turn = np.rint(
            _AMPLITUDE * np.sin(np.arange(SAMPLE_RATE_HZ) * (2 * np.pi / SAMPLE_RATE_HZ))
        )
        self._tables: list[npt.NDArray[np.int16]] = [
            turn[at * round(base_hz * 2 ** (semitones / 12)) % SAMPLE_RATE_HZ].astype("<i2")
            for semitones in _SCALE_SEMITONES
        ]

    def table(self, text: str, seed: int | None) -> npt.NDArray[np.int16]:
        """The note that a text is sung on: stable across processes and platforms."""
        # surrogatepass: a lone surrogate in the text is the client's business, not a crash.
        digest = zlib.crc32(f"{seed or 0}:{text}".encode("utf-8", "surrogatepass"))
        return self._tables[digest % len(self._tables)]


def render(
    table: npt.NDArray[np.int16], start_samples: int, stop_samples: int, length_samples: int
) -> bytes:
    """Samples `[start, stop)` of a segment of that length, s16le, faded at the segment's ends."""
    phase = start_samples % SAMPLE_RATE_HZ
    pcm = table[phase : phase + stop_samples - start_samples]
    fade = min(_FADE_SAMPLES, length_samples // 2)
    if start_samples < fade or stop_samples > length_samples - fade:
        at = np.arange(start_samples, stop_samples)
        gain = np.minimum(np.minimum(at + 1, length_samples - at) / (fade + 1), 1.0)
        pcm = np.rint(pcm * gain).astype("<i2")
    return pcm.tobytes()


class VoiceCache:
    """Loaded voices, least recently used first. Owner: the core."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._notes: OrderedDict[str, Notes] = OrderedDict()
        self._pinned: set[str] = set()

    def get(self, voice: str, *, pin: bool = False) -> Notes | None:
        """The loaded voice, now the most recently used one, or None on a miss."""
        notes = self._notes.get(voice)
        if notes is not None:
            self._notes.move_to_end(voice)
            if pin:
                self._pinned.add(voice)
        return notes

    def make_room(self) -> tuple[bool, list[str]]:
        """Evict until one more voice fits: whether it does, and what was evicted for it."""
        evicted: list[str] = []
        while len(self._notes) >= self._capacity:
            voice = next((name for name in self._notes if name not in self._pinned), None)
            if voice is None:
                return False, evicted
            del self._notes[voice]
            evicted.append(voice)
        return True, evicted

    def remove(self, voice: str) -> None:
        """Hold a voice no more."""
        self._notes.pop(voice, None)
        self._pinned.discard(voice)

    def insert(self, voice: str, notes: Notes, *, pin: bool) -> None:
        """Add a voice that `make_room` made room for."""
        self._notes[voice] = notes
        if pin:
            self._pinned.add(voice)
