"""Speech of one segment from the hibari network, made a window at a time.

A segment is spoken piece by piece, a piece window by window: prosody once, then spectra and samples
of some frames. Silence at both ends of a piece is trimmed by what the spectra contain. Windows have
fixed lengths, so that the samples are a function of text, speed and seed alone.

Knows nothing about credit, chunks or utterances; a clock that is handed in measures parts of the
work.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from rtts.engine.cpu.hibari_net import (
    BINS,
    FRAME_HZ,
    FRAMES_PER_UNIT,
    LAG_FRAMES,
    DecoderState,
    HibariNet,
    Prosody,
)
from rtts.engine.cpu.pieces import Piece, cut
from rtts.engine.cpu.reading import NO_WORD, SILENT_PHONEMES, Reading
from rtts.engine.cpu.voice import SAMPLE_RATE_HZ, SILENCE, FloatArray, Speech, Trim
from rtts.engine.cpu.waveform import HOP_SAMPLES, VOICED_HZ, Waveform
from rtts.engine.interface import Word

# Phonemes of a piece, see `pieces.cut`. A first piece of 60 takes 10 ms to its first sound, one of
# 220 takes 25 ms (one shared core of an EPYC); cutting inside sentences costs melody, so that only
# who waits for a first sound gets it.
_LONGEST, _LONGEST_FIRST = 160, 60
# The decoder starts this long before the end of the leading pause, at speed 1. Sound starts up to 7
# frames before that end, and 8 frames of silence before it make it as exact as all of them do
# (440 sentences). At lower speeds it starts earlier: up to 17 frames at 0.7.
_LEAD_FRAMES: Final = 15
# The first window reaches this far past that end, so that ten frames or more of sound are at hand.
_HEAD_FRAMES: Final = 8
# The decoder stops this long after the start of the last phoneme, at speed 1: in 98 % of 440
# sentences sound has ended 8 frames before. In the others it goes on to the true end.
_TAIL_FRAMES: Final = 20
_MARGIN_FRAMES: Final = 8
# Later windows, in frames of 12.5 ms. A window costs 0.5 ms, for reading 5 MB of weights, and 0.03 ms
# a frame, so that large ones save work: with these a sentence costs 3 to 9 % more than in one go,
# with (32, 64, 80) 13 %. Small ones first, for the listener has little in hand; none so large that
# neighbours wait long.
_WINDOWS: Final = (48, 96, 128)
_SHORTEST_WINDOW: Final = 16  # a shorter rest joins the window before it
# exp(-1.5) in a spectrum is about -60 dBFS in the samples (median over 1,300 frames of 17 texts;
# silence lies below -75).
_AUDIBLE_LOG_MAGNITUDE: Final = -1.5
# The network's durations lag behind what is heard: at 219 pauses inside sentences sound starts a
# median of 3 frames before the nominal boundary, 3 to 5 at other speeds.
_DURATION_LAG_FRAMES: Final = 4
# Before a pause the last phoneme is stretched into the silence; of its length no more than this is
# heard (99 % of 440 sentence ends).
_FINAL_PHONEME_FRAMES: Final = 14


@dataclass(frozen=True, slots=True)
class WordFrames:
    """When a word of a piece is heard, in frames of the piece, silence included.

    Attributes:
        word: Index into the reading's spans.
    """

    word: int
    start: float
    end: float


class PieceSpeech:
    """Speech of one piece, window by window. Owner: a `HibariSpeech`.

    Frames are counted from the start of what the network makes of the piece.

    Args:
        net: Shared.
        prosody: Of the piece.
        sound: First and last frame, exclusive, that the decoder need see.
        lead: Frames to keep before the first sound.
        pause: Frames to keep after the last sound.
        words_end: Frame that is kept in any case, for the last word is said to last until then.
        seed: Of the noise.
        clock: Monotonic seconds; measures parts of the work.

    Attributes:
        rendered_s: What it took to make samples of spectra, in the last `advance`.
        onset: The frame at which the first sound is; -1 if there is none.
        first_hop: The frame at which the first sample lies.
        is_done: All samples were given.
    """

    def __init__(
        self,
        net: HibariNet,
        prosody: Prosody,
        *,
        sound: tuple[int, int],
        lead: int,
        pause: int,
        words_end: float,
        seed: tuple[int, ...],
        clock: Callable[[], float],
    ) -> None:
        self._net = net
        self._prosody = prosody
        self._clock = clock
        self.rendered_s = 0.0
        self._pause = pause
        self._words_end = math.ceil(words_end)
        self._state = DecoderState()
        begin, self._end = sound  # where the decoder starts and stops
        self._fed = self._known = begin  # frames before which all went in, and all came out
        self._windows = 0
        self.onset = self._last_audible = -1
        spectra = [self._decode()]
        while self.onset < 0 and self._fed < self._end:
            spectra.append(self._decode())
        self.is_done = self.onset < 0
        self.first_hop = max(begin + 1, self.onset - lead)
        self._waveform = Waveform(prosody.pitch, self.first_hop, seed)
        # The first call of advance renders what was decoded in search of the onset.
        self._decoded: FloatArray | None = np.concatenate(spectra)[self.first_hop - 1 - begin :]
        self._withheld = SILENCE  # rendered, and given only if sound follows
        self._given = self.first_hop  # hops before this one were given, or trimmed

    def advance(self) -> FloatArray:
        """Make the next window; perhaps no samples, while a silence may be the last."""
        decoded = self._decode() if self._decoded is None else self._decoded
        self._decoded = None
        began = self._clock()
        made = [self._withheld, self._waveform.render(decoded)]
        if self._fed == self._end:
            made.append(self._waveform.flush())
        self.rendered_s = self._clock() - began
        end = self._last_audible + 1 + self._pause
        if self._fed == self._end:
            end = max(end, self._words_end)
            missing = end - (self._end + 1)  # hops; what follows is silent
            made.append(np.zeros(max(0, missing) * HOP_SAMPLES, np.float32))
            self.is_done = True
        samples = np.concatenate(made)
        keep = max(0, min(len(samples), (end - self._given) * HOP_SAMPLES))
        self._given += keep // HOP_SAMPLES
        self._withheld = samples[keep:]
        return samples[:keep]

    def _decode(self) -> FloatArray:
        """Spectra of the next window."""
        begin, history = self._fed, list(self._state.history)
        end = begin + self._window_frames()
        if self._end - end < _SHORTEST_WINDOW:
            end = self._end
        features = np.ascontiguousarray(self._prosody.features[:, :, begin:end])
        spectra = self._net.decode(features, self._state, last=end == self._end)
        audible = np.flatnonzero(self._is_audible(spectra))
        sound_end = self._known + int(audible[-1]) if len(audible) else self._last_audible
        is_cut_short = end == self._end and sound_end > self._end - _MARGIN_FRAMES
        if is_cut_short and self._end < len(self._prosody.pitch):
            # The last sound is longer than it usually is: once more, to the true end.
            self._end = len(self._prosody.pitch)
            self._state.history = history
            return self._decode()
        if self.onset < 0 and len(audible):
            self.onset = self._known + int(audible[0])
        self._last_audible = sound_end
        self._fed = end
        self._known += len(spectra)
        self._windows += 1
        return spectra

    def _window_frames(self) -> int:
        if not self._windows:
            leading = int(self._prosody.durations[0]) * FRAMES_PER_UNIT
            return max(leading - self._fed, 0) + _HEAD_FRAMES + LAG_FRAMES
        return _WINDOWS[min(self._windows, len(_WINDOWS)) - 1]

    def _is_audible(self, spectra: FloatArray) -> npt.NDArray[np.bool_]:
        harmonic, noise, residue = (spectra[:, i * BINS : (i + 1) * BINS] for i in (0, 2, 3))
        voiced = self._prosody.pitch[self._known : self._known + len(spectra)] > VOICED_HZ
        loud: npt.NDArray[np.bool_] = (
            (noise.max(axis=1) > _AUDIBLE_LOG_MAGNITUDE)
            | (residue.max(axis=1) > _AUDIBLE_LOG_MAGNITUDE)
            | (voiced & (harmonic.max(axis=1) > _AUDIBLE_LOG_MAGNITUDE))
        )
        return loud


class HibariSpeech:
    """A `SegmentSpeech` of the hibari network. Owner: one thread at a time.

    Args:
        net: Shared.
        reading: Of the segment.
        ids: Id of every phoneme the network knows.
        speed: 1.0 is the voice's own pace.
        seed: Of the segment; every piece adds its number.
        trim: Silence to keep.
        clock: Monotonic seconds; measures parts of the work.
        is_first: Somebody waits for the first sound.
    """

    def __init__(
        self,
        net: HibariNet,
        reading: Reading,
        ids: Mapping[str, int],
        *,
        speed: float,
        seed: tuple[int, ...],
        trim: Trim,
        clock: Callable[[], float],
        is_first: bool,
    ) -> None:
        self._net = net
        self._reading = reading
        self._ids = ids
        self._speed = speed
        self._seed = seed
        self._trim = trim
        self._clock = clock
        first = _LONGEST_FIRST if is_first else _LONGEST
        self._pieces = deque(enumerate(cut(reading.chunks, first=first, later=_LONGEST)))
        self._piece: PieceSpeech | None = None
        self._given_samples = 0
        self._words: list[Word] = []  # told when all are known
        self._open_word_s: float | None = None  # start of a word that goes on in the next piece
        self._words_end_s = 0.0

    @property
    def unknown(self) -> Mapping[str, int]:
        """Number of letters left out, by script, most frequent first."""
        return dict(self._reading.unknown.most_common())

    @property
    def is_done(self) -> bool:
        """Nothing is left to make."""
        return self._piece is None and not self._pieces

    def advance(self) -> Speech:
        """Begin the next piece, or make the next window of the present one."""
        planned_s = self._begin_piece() if self._piece is None else 0.0
        samples, rendered_s = SILENCE, 0.0
        if self._piece is not None:
            samples, rendered_s = self._piece.advance(), self._piece.rendered_s
            self._given_samples += len(samples)
            if self._piece.is_done:
                self._piece = None
        words: tuple[Word, ...] = ()
        if not self._pieces:
            words, self._words = tuple(self._words), []
        return Speech(samples, words, planned_s, rendered_s)

    def _begin_piece(self) -> float:
        """Returns what it took to plan it, seconds."""
        number, piece = self._pieces.popleft()
        ids = [0, *(self._ids[phoneme] for phoneme in piece.phonemes), 0]
        began = self._clock()
        prosody = self._net.prosody(np.asarray(ids, np.int64), self._speed)
        planned_s = self._clock() - began
        timed = word_frames(piece, prosody.durations)
        speech = PieceSpeech(
            self._net,
            prosody,
            sound=sounding_frames(piece, prosody.durations, self._speed),
            lead=round(self._trim.leading_s * FRAME_HZ),
            pause=round(self._trim.pause_s(piece.mark) * FRAME_HZ),
            words_end=timed[-1].end if timed else 0.0,
            seed=(*self._seed, number),
            clock=self._clock,
        )
        if not speech.is_done:  # else there is not a sound in it, and no words to time
            self._piece = speech
            self._time_words(timed, speech.first_hop, speech.onset)
        return planned_s

    def _time_words(self, timed: Sequence[WordFrames], first_hop: int, onset: int) -> None:
        """Note word times from the start of the segment, in order and not overlapping."""
        begun_s = self._given_samples / SAMPLE_RATE_HZ
        continues = self._pieces[0][1].chunks[0].word if self._pieces else NO_WORD
        for each in timed:
            start = min(each.start, onset) if each is timed[0] else each.start
            start_s = max(self._words_end_s, begun_s + (start - first_hop) / FRAME_HZ)
            end_s = max(start_s, begun_s + (each.end - first_hop) / FRAME_HZ)
            if self._open_word_s is not None:
                start_s, self._open_word_s = self._open_word_s, None
            self._words_end_s = end_s
            if each.word == continues and each is timed[-1]:
                self._open_word_s = start_s
            else:
                self._words.append(Word(*self._reading.spans[each.word], start_s, end_s))


def sounding_frames(piece: Piece, durations: FloatArray, speed: float) -> tuple[int, int]:
    """The frames of a piece outside which it is silent, but for rare cases at the end.

    Args:
        piece: As it was read.
        durations: `[L]` units of each of its phonemes, with the two pads.
        speed: At which.
    """
    starts = np.concatenate(([0.0], np.cumsum(durations))) * FRAMES_PER_UNIT
    begin = int(starts[1]) - round(_LEAD_FRAMES * max(1.0, speed**-2))
    sounds = [at for at, p in enumerate(piece.phonemes, 1) if p not in SILENT_PHONEMES]
    end = length = int(starts[-1])
    if sounds:
        end = int(starts[sounds[-1]]) + round(_TAIL_FRAMES * max(1.0, 1 / speed))
    return max(0, begin), min(end, length)


def word_frames(piece: Piece, durations: FloatArray) -> list[WordFrames]:
    """When each word of a piece is heard.

    Args:
        piece: As it was read.
        durations: `[L]` units of each of its phonemes, with the two pads.
    """
    starts = np.concatenate(([0.0], np.cumsum(durations))) * FRAMES_PER_UNIT
    starts -= _DURATION_LAG_FRAMES
    timed: list[WordFrames] = []
    at = 1  # the first id is a pad
    for index, chunk in enumerate(piece.chunks):
        sounds = [at + i for i, p in enumerate(chunk.phonemes) if p not in SILENT_PHONEMES]
        end_of_chunk = at + len(chunk.phonemes)
        at = end_of_chunk + 1  # and a space
        if chunk.word == NO_WORD or not sounds:
            continue
        start, end = float(starts[sounds[0]]), float(starts[sounds[-1] + 1])
        following = piece.chunks[index + 1].word if index + 1 < len(piece.chunks) else NO_WORD
        if sounds[-1] + 1 < end_of_chunk or following == NO_WORD:
            end = min(end, float(starts[sounds[-1]]) + _FINAL_PHONEME_FRAMES)
        if timed and timed[-1].word == chunk.word:
            start = timed.pop().start
        timed.append(WordFrames(chunk.word, start, end))
    return timed
