"""The layout of a prompt, as ids: which text id and which codec vector each position adds.

A prompt is a head (instruction, role, tags, speaker: the same for every request of a voice, so its
keys and values are cached), a body, and a last row. The last row is not prefilled: it is the
first step's input, so that admission in the streaming layout is a copy and one row of the next
step. This module knows ids and order, not tensors, slots or time.

Source: `Qwen3TTSForConditionalGeneration.generate` and `generate_icl_prompt` of qwen-tts 0.1.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rtts.engine.qwen.config import ModelConfig, ModelType
from rtts.engine.qwen.tokenizer import StableText, TextTokenizer
from rtts.errors import (
    BadRequestError,
    ConfigError,
    UnknownVoiceError,
    UnsupportedLanguageError,
)


class Layout(StrEnum):
    """How target text meets the codec frames."""

    STREAMING = "streaming"  # one text id beside each frame, for text that is still arriving
    COMPLETE = "complete"  # all text first, for text that is known


CHINESE_OR_AUTO = ("chinese", "auto")
"""Languages a dialect speaker's own dialect replaces (reference `generate`)."""


@dataclass(frozen=True, slots=True)
class Row:
    """One position: text id or None, plus what the codec side adds.

    Attributes:
        text: Text id, or None where the text side adds nothing.
        codec: Id of the talker's codec embedding, None where the codec side adds nothing.
        x_vector: The codec side is the voice's x-vector.
        frame: The codec side is the sum of that reference frame's sixteen embeddings.
    """

    text: int | None = None
    codec: int | None = None
    x_vector: bool = False
    frame: int | None = None


@dataclass(frozen=True, slots=True)
class Conditioning:
    """Who speaks and how: everything a head depends on, and its key in the prefix cache.

    Attributes:
        speaker: Preset speaker, lower case, or "".
        clone: Content hash of a registered reference, or "".
        language: Lower-case language name as the checkpoint knows it, or "auto".
        instruct: Instruction text, or "".
    """

    speaker: str = ""
    clone: str = ""
    language: str = "auto"
    instruct: str = ""


@dataclass(frozen=True, slots=True)
class Reference:
    """What in-context cloning adds to a prompt: the reference's text and codec frames.

    Attributes:
        text: The transcript's ids.
        frames: How many codec frames the reference has.
    """

    text: tuple[int, ...]
    frames: int


@dataclass(frozen=True, slots=True)
class Prompt:
    """Where a take begins, after its head.

    Attributes:
        body: Rows to prefill after the head.
        last: The row that the first step takes in; its text id is None where the first id of the
            arriving text goes.
        trailing: Text ids for the steps after the first; after them `tts_pad`, if `ended`.
        ended: Whether `trailing` holds the end of the text already.
    """

    body: tuple[Row, ...]
    last: Row
    trailing: tuple[int, ...]
    ended: bool


class PromptBuilder:
    """Builds heads and prompts for one checkpoint.

    Attributes:
        end_id: Text id that follows the last of a text.
        pad_id: Text id of every step after that.

    Raises:
        ConfigError: The tokenizer is of another checkpoint.
    """

    def __init__(self, config: ModelConfig, tokenizer: TextTokenizer) -> None:
        if tokenizer.largest_id >= config.talker.text_vocab:
            raise ConfigError(
                f"tokenizer: the id {tokenizer.largest_id} is outside the talker's vocabulary "
                f"of {config.talker.text_vocab}: vocab.json is of another checkpoint"
            )
        self._config = config
        self._tokenizer = tokenizer
        ids = config.text_ids
        self._newline = tokenizer.word("\n")
        self.end_id, self.pad_id = ids.tts_eos, ids.tts_pad
        self._role = (ids.im_start, tokenizer.word("assistant"), self._newline)

    def conditioning(
        self, *, speaker: str = "", clone: str = "", language: str = "auto", instruct: str = ""
    ) -> Conditioning:
        """Check what a request names against what the checkpoint has.

        Raises:
            UnknownVoiceError: No such speaker.
            UnsupportedLanguageError: No such language.
        """
        talker = self._config.talker
        speaker, language = speaker.lower(), (language or "auto").lower()
        if self._config.model_type is ModelType.CUSTOM_VOICE and speaker not in talker.speakers:
            known = ", ".join(sorted(talker.speakers))
            raise UnknownVoiceError(f"voice {speaker!r} is not one of {known}")
        if language != "auto" and (language not in talker.languages or "dialect" in language):
            known = ", ".join(sorted(name for name in talker.languages if "dialect" not in name))
            raise UnsupportedLanguageError(f"language {language!r} is not one of auto, {known}")
        if not self._config.takes_instructions:
            instruct = ""
        return Conditioning(speaker, clone, language, instruct)

    def head(self, conditioning: Conditioning) -> tuple[Row, ...]:
        """The rows every request with this conditioning begins with."""
        talker, ids = self._config.talker, self._config.text_ids
        rows = [Row(text=id_) for id_ in self._instruct_ids(conditioning.instruct)]
        rows += [Row(text=id_) for id_ in self._role]
        language = self._language_id(conditioning)
        if language is None:
            tags = [talker.nothink_id, talker.think_bos_id, talker.think_eos_id]
        else:
            tags = [talker.think_id, talker.think_bos_id, language, talker.think_eos_id]
        rows += [Row(text=ids.tts_pad, codec=tag) for tag in tags]
        if conditioning.clone:
            rows.append(Row(text=ids.tts_pad, x_vector=True))
        elif conditioning.speaker:
            speaker = talker.speakers[conditioning.speaker]
            rows.append(Row(text=ids.tts_pad, codec=speaker))
        rows.append(Row(text=ids.tts_bos, codec=talker.pad_id))
        return tuple(rows)

    def complete(self, text: Sequence[int], reference: Reference | None = None) -> Prompt:
        """The layout for text that is known whole.

        Raises:
            BadRequestError: There is no text.
        """
        self._need_text(text)
        talker, ids = self._config.talker, self._config.text_ids
        before = reference.text if reference else ()
        rows = [Row(text=id_, codec=talker.pad_id) for id_ in (*before, *text, ids.tts_eos)]
        rows.append(Row(text=ids.tts_pad, codec=talker.bos_id))
        if reference:
            rows += [Row(text=ids.tts_pad, frame=j) for j in range(reference.frames)]
        return Prompt(tuple(rows[:-1]), rows[-1], (), ended=True)

    def streaming(
        self, text: Sequence[int], *, ended: bool, reference: Reference | None = None
    ) -> Prompt:
        """The layout for text that arrives.

        Args:
            text: The ids known so far.
            ended: Whether that is all of them.
            reference: With one, the prompt itself consumes text: one id for each reference frame
                its transcript does not cover, so that much text must be known.

        Raises:
            BadRequestError: There is no text, or too little beside the reference.
        """
        self._need_text(text)
        talker, ids = self._config.talker, self._config.text_ids
        texts = [*(reference.text if reference else ()), *text]
        if ended:
            texts.append(ids.tts_eos)
        codecs = [Row(codec=talker.bos_id)]
        if reference:
            codecs += [Row(frame=j) for j in range(reference.frames)]
        if not ended and len(texts) < len(codecs):
            raise BadRequestError("streaming text with a reference needs as much text as it covers")
        texts += [ids.tts_pad] * (len(codecs) - len(texts))
        rows = [
            Row(text=id_, codec=row.codec, frame=row.frame)
            for id_, row in zip(texts, codecs, strict=False)
        ]
        return Prompt(tuple(rows[:-1]), rows[-1], tuple(texts[len(codecs) :]), ended)

    def text_needed(self, reference: Reference | None) -> int:
        """Ids of target text the streaming prompt itself consumes."""
        return 1 if reference is None else max(1, 1 + reference.frames - len(reference.text))

    def text_ids(self, text: str) -> list[int]:
        """Ids of a target or reference text.

        Leading newlines go: byte pairs would merge them with the role's own.
        """
        return self._tokenizer.encode(text.lstrip("\r\n"))

    def stable_text(self) -> StableText:
        """For text that arrives: its ids as they become certain."""
        return StableText(self._tokenizer)

    def _instruct_ids(self, instruct: str) -> list[int]:
        if not instruct:
            return []
        ids = self._config.text_ids
        opening = [ids.im_start, self._tokenizer.word("user"), self._newline]
        return [*opening, *self.text_ids(instruct), ids.im_end, self._newline]

    def _language_id(self, conditioning: Conditioning) -> int | None:
        talker = self._config.talker
        dialect = talker.dialects.get(conditioning.speaker)
        if dialect is not None and conditioning.language in CHINESE_OR_AUTO:
            return talker.languages[dialect]
        if conditioning.language == "auto":
            return None
        return talker.languages[conditioning.language]

    def _need_text(self, text: Sequence[int]) -> None:
        if not text:
            raise BadRequestError("there is no text to speak")
