"""From text to phonemes for Kokoro's voices: English by hibari's G2P, Chinese by misaki's.

Chinese text is read run by run: stretches of Latin letters go to the English G2P, everything else,
numbers included, to the Chinese one. Knows nothing about models or audio.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from functools import cache
from typing import Final

from rtts.engine.cpu.reading import Chunk, Reading, english_g2p, read
from rtts.engine.cpu.speakable import unknown_letters

_LATIN_RUN: Final = re.compile(r"[A-Za-zÀ-ɏ][A-Za-zÀ-ɏ'’.-]*(?:\s+[A-Za-zÀ-ɏ][A-Za-zÀ-ɏ'’.-]*)*")
_CHINESE: Final = "CJK"

Read = Callable[[str], Reading]


def english_reader(vocabulary: frozenset[str], *, is_british: bool) -> Read:
    """Reads English text; `vocabulary` are the phonemes the model knows."""
    g2p = english_g2p(is_british=is_british)
    return lambda text: read(text, g2p, vocabulary)


def chinese_reader(vocabulary: frozenset[str]) -> Read:
    """Reads Chinese text with English words in it."""
    read_english = english_reader(vocabulary, is_british=False)
    to_phonemes = _chinese_g2p()

    def read_chinese(text: str) -> Reading:
        chunks: list[Chunk] = []
        done = 0
        for match in _LATIN_RUN.finditer(text):
            chunks += _chinese_chunks(to_phonemes, text[done : match.start()], vocabulary)
            chunks += [Chunk(chunk.phonemes, 0) for chunk in read_english(match.group()).chunks]
            done = match.end()
        chunks += _chinese_chunks(to_phonemes, text[done:], vocabulary)
        is_word = any(chunk.word >= 0 for chunk in chunks)
        unknown = unknown_letters(text, known=(_CHINESE,))
        return Reading(tuple(chunks) if is_word else (), ((0, len(text)),), unknown)

    return read_chinese


@cache
def _chinese_g2p() -> Callable[[str], str]:
    import jieba
    from misaki.zh import ZHG2P

    # It announces the loading of its dictionary on stderr, at the level its import sets.
    jieba.setLogLevel(logging.WARNING)

    g2p = ZHG2P()
    return lambda text: str(g2p(text)[0])


def _chinese_chunks(
    to_phonemes: Callable[[str], str], text: str, vocabulary: frozenset[str]
) -> list[Chunk]:
    """Chunks of text without Latin letters; marks alone join what is before them."""
    if not any(char.isalnum() for char in text):
        return []
    known = "".join(char for char in to_phonemes(text) if char in vocabulary)
    return [Chunk(part, 0) for part in known.split()]
