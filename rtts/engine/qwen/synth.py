"""One text to a file's worth of speech: what `rtts synth --engine qwen` does.

Ends as the reference package does (the end id, or the frame limit), draws as it does when asked for
its random numbers, and gives the codes: the regression record of an utterance.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from rtts.engine.qwen.config import ModelType
from rtts.engine.qwen.extra import torch
from rtts.engine.qwen.frame import Conditions, Model
from rtts.engine.qwen.languages import language_name
from rtts.engine.qwen.offline import Offline, Request, Spoken
from rtts.engine.qwen.prompt import Layout, PromptBuilder, Reference
from rtts.engine.qwen.references import RegisteredVoice
from rtts.engine.qwen.sampling import Noise, Sampler
from rtts.engine.qwen.sampling import Reference as ReferenceNoise
from rtts.engine.qwen.tokenizer import load_tokenizer
from rtts.errors import BadRequestError, ConfigError


class Rng(StrEnum):
    """Where draws come from."""

    SEEDED = "seeded"  # a hash of (seed, frame, code group): the live engine's
    REFERENCE = "reference"  # torch's generator, in the reference package's order of draws


@dataclass(frozen=True, slots=True)
class SynthRequest:
    """What to speak, and how.

    Attributes:
        voice: Preset speaker; nothing for voice design and clones.
        language: BCP 47 tag, or the checkpoint's own name, or "auto".
        clone: A registered reference (Base checkpoints).
        max_frames: Most codec frames; None: the checkpoint's own limit.
    """

    text: str
    voice: str = ""
    language: str = "auto"
    instruct: str = ""
    clone: RegisteredVoice | None = None
    layout: Layout = Layout.COMPLETE
    seed: int = 0
    greedy: bool = False
    rng: Rng = Rng.SEEDED
    max_frames: int | None = None


class Synthesizer:
    """A loaded checkpoint that speaks texts one after the other.

    Raises:
        ConfigError: The folder is not a checkpoint.
    """

    def __init__(self, folder: Path, device: str = "cpu", dtype: str = "float32") -> None:
        dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
        if dtype not in dtypes:
            raise ConfigError(f"dtype {dtype!r} is not one of {', '.join(dtypes)}")
        self.model = Model(folder, dtypes[dtype], device)
        self._builder = PromptBuilder(self.model.config, load_tokenizer(folder))

    def synthesize(self, request: SynthRequest) -> Spoken:
        """Speak one request.

        Raises:
            BadRequestError: The request does not fit the checkpoint's type, or has no text.
            UnknownVoiceError: No such speaker.
            UnsupportedLanguageError: No such language.
        """
        config = self.model.config
        sampling = config.sampling
        if request.greedy:
            sampling = replace(sampling, do_sample=False, subtalker_dosample=False)
        sampler = Sampler(sampling, config.talker, self.model.device)
        noise: Noise | None = None
        if request.rng is Rng.REFERENCE:
            generator = torch.Generator(self.model.device).manual_seed(request.seed)
            draws = (sampling.do_sample, sampling.subtalker_dosample)
            noise = ReferenceNoise([(0, 1, generator)], draws)
        limit = sampling.max_new_tokens - 1 if request.max_frames is None else request.max_frames
        offline = Offline(self.model, self._builder, sampler)
        greedy = (not sampling.do_sample, not sampling.subtalker_dosample)
        prepared = replace(self._prepare(request), seed=request.seed, greedy=greedy)
        return offline.speak([prepared], limit, noise)[0]

    def _prepare(self, request: SynthRequest) -> Request:
        if (self.model.config.model_type is ModelType.BASE) != (request.clone is not None):
            raise BadRequestError("a reference is needed by Base checkpoints, and only by them")
        clone, conditions, reference = request.clone, None, None
        if clone is not None:
            conditions = clone.conditions
            reference = self._reference(clone, conditions)
        conditioning = self._builder.conditioning(
            speaker=request.voice,
            clone=clone.key if clone else "",
            language=language_name(request.language),
            instruct=request.instruct,
        )
        ids = self._builder.text_ids(request.text)
        if request.layout is Layout.COMPLETE:
            prompt = self._builder.complete(ids, reference)
        else:
            prompt = self._builder.streaming(ids, ended=True, reference=reference)
        return Request(conditioning, prompt, conditions, reference)

    def _reference(self, clone: RegisteredVoice, conditions: Conditions) -> Reference | None:
        frames = int(conditions.codes.shape[0])
        if not frames:
            return None
        return Reference(tuple(self._builder.text_ids(clone.transcript)), frames)


def write_codes(path: Path, spoken: Spoken) -> None:
    """Write the regression record: `{"codes": [[16 ints] a frame]}`."""
    path.write_text(json.dumps({"codes": [list(frame) for frame in spoken.codes]}) + "\n")
