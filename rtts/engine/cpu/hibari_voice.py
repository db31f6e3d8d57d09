"""The embedded English voice: hibari's network and G2P, loaded from the files of its package.

hibari-tts 0.2.1 (Apache-2.0, code and weights) ships one voice, "heart", distilled from Kokoro-82M.
This module loads it once; everything after that is shared between threads. It knows nothing about
utterances.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from rtts.engine.cpu.hibari_net import HibariNet
from rtts.engine.cpu.hibari_speech import HibariSpeech
from rtts.engine.cpu.reading import ASSETS, english_g2p, read
from rtts.engine.cpu.voice import Trim


class HibariVoice:
    """The loaded voice. Holds no state of what it speaks: shared freely between threads.

    Args:
        trim: Silence to keep around speech.
        clock: Monotonic seconds; measures parts of the work.
        threads: onnxruntime threads within one operation.

    Raises:
        OSError: The package's files are missing.
        GraphError: The package holds another model than the one this was written for.
    """

    def __init__(self, trim: Trim, clock: Callable[[], float], *, threads: int = 1) -> None:
        self._trim = trim
        self._clock = clock
        self._ids: dict[str, int] = json.loads((ASSETS / "vocab.json").read_text("utf-8"))
        self._vocabulary = frozenset(self._ids)
        self._net = HibariNet((ASSETS / "hibari.onnx").read_bytes(), threads=threads)
        self._g2p = english_g2p()

    def begin(
        self, text: str, *, speed: float, seed: tuple[int, ...], is_first: bool
    ) -> HibariSpeech:
        """Read a segment's text; see `CpuVoice.begin`."""
        reading = read(text, self._g2p, self._vocabulary)
        return HibariSpeech(
            self._net,
            reading,
            self._ids,
            speed=speed,
            seed=seed,
            trim=self._trim,
            clock=self._clock,
            is_first=is_first,
        )
