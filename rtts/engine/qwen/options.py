"""What can be set about the Qwen engine. `settings` composes it; nothing here imports torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from rtts.errors import ConfigError

FRAME_RATE_HZ = 12.5
FRAME_S = 1.0 / FRAME_RATE_HZ

_DEVICE = re.compile(r"cpu|cuda(:\d+)?")


class LateText(StrEnum):
    """What a talker that has used up its text does while more may come."""

    HOLD = "hold"  # waits, however long: what is heard depends on the text alone
    CLOSE = "close"  # waits while playback has audio, then speaks to the end of what it has


class LayoutPolicy(StrEnum):
    """Which prompt layout an utterance gets."""

    AUTO = "auto"  # complete when all text is there before it starts, else streaming
    STREAMING = "streaming"  # always


@dataclass(frozen=True, slots=True)
class TextOptions:
    """How text becomes takes: stretches that the talker speaks without starting anew.

    Attributes:
        late: What a voice does that has spoken all its text while more may come: `hold` waits,
            however long, so that what is heard depends on the text alone; `close` waits while
            playback has audio, then ends the sentence with what it has.
        close_lead_s: With `close`: how much unplayed audio is left when waiting ends. Less
            than a frame's production and delivery is heard as a gap.
        layout: `auto` puts the text before the audio when all of it is there before the utterance
            starts, else beside it as it arrives; `streaming` always does the latter.
        anchor_frames: Past this many expected frames a take ends at the next segment end and the
            talker starts anew from the voice's head: its rate drifts within one take (reported
            upstream: +17 % in long streaming takes). 750 is a minute.
    """

    late: LateText = LateText.CLOSE
    close_lead_s: float = 0.3
    layout: LayoutPolicy = LayoutPolicy.AUTO
    anchor_frames: int = 750


@dataclass(frozen=True, slots=True)
class EndingOptions:
    """When a take that does not end by itself is ended.

    Attributes:
        budget_base_frames: Frames any text may take.
        budget_factor: Frames a text may take beyond that, as a multiple of what it should take.
        silence_frames: Near-silent frames in a row, all text being consumed, that end a take.
        silence_rms: What near-silent is, of 1.0 full scale.
        repeat_frames: Length of an exactly periodic run of group-0 codes that ends a take.
    """

    budget_base_frames: int = 75
    budget_factor: float = 2.5
    silence_frames: int = 30
    silence_rms: float = 0.002
    repeat_frames: int = 48


@dataclass(frozen=True, slots=True)
class QwenOptions:
    """Qwen3-TTS, with the extra `qwen`. Experimental.

    Attributes:
        model: A folder with a checkpoint, or a repository of the model hub ("Qwen/..."), which is
            fetched once. There is none by default: weights are not part of rtts.
        device: "cpu", "cuda" or "cuda:N"; several, separated by commas, get an engine process each. A
            CPU speaks the released sizes slower than real time.
        dtype: "float32", "bfloat16" or "float16"; "auto" is bfloat16 on a GPU, float32 on a CPU.
        threads: torch threads on a CPU; 0 is one less than there are cores. torch's own default, all
            of them, stands still as soon as anything else wants one.
        slots: Utterances spoken at the same time; "auto" is as many as the device's free memory holds.
        waiting: Utterances that may wait for a slot.
        wait_limit_s: How long one may wait before it is refused as overloaded.
        positions: Talker positions of a slot: head, text and frames of one take.
        prefill_rows: Most prompt rows prefilled in one step, so that running streams keep their pace.
        prefix_bytes: Size of the cache of voice heads.
        prewarm_languages: Languages for which a voice's head is built when the voice is loaded.
        voices_dir: Folder of registered voices, one safetensors file each; a Base checkpoint has
            no others.
        greedy: Take the best code everywhere instead of drawing.
    """

    model: str = ""
    device: str = "cpu"
    dtype: str = "auto"
    threads: int = 0
    slots: int | Literal["auto"] = 8
    waiting: int = 64
    wait_limit_s: float = 2.0
    positions: int = 2048
    prefill_rows: int = 512
    prefix_bytes: int = 256 * 2**20
    prewarm_languages: tuple[str, ...] = ("auto",)
    voices_dir: str = ""
    greedy: bool = False
    text: TextOptions = TextOptions()
    endings: EndingOptions = EndingOptions()

    def __post_init__(self) -> None:
        if self.dtype not in ("auto", "float32", "bfloat16", "float16"):
            raise ConfigError(
                f"qwen.dtype: {self.dtype!r} is not auto, float32, bfloat16 or float16"
            )
        if not all(_DEVICE.fullmatch(each) for each in self.devices):
            raise ConfigError(f"qwen.device: {self.device!r} is not cpu, cuda or cuda:N")
        if len(set(self.devices)) < len(self.devices):
            raise ConfigError(
                "qwen.device: a device is named twice; engine.workers puts more on each"
            )
        if self.slots != "auto" and self.slots < 1:
            raise ConfigError('qwen.slots must be at least 1, or "auto"')
        if self.prefill_rows < 1:
            raise ConfigError("qwen.prefill_rows must be at least 1")
        for name in ("waiting", "threads"):
            if getattr(self, name) < 0:
                raise ConfigError(f"qwen.{name} must be at least 0")
        if self.positions < MIN_POSITIONS:
            raise ConfigError(f"qwen.positions must be at least {MIN_POSITIONS}")

    @property
    def devices(self) -> tuple[str, ...]:
        """Each device, for an engine process of its own."""
        return tuple(each.strip() for each in self.device.split(","))

    @property
    def slot_count(self) -> int:
        """The slots, once it is known how many fit."""
        if self.slots == "auto":
            raise ValueError("qwen.slots is auto and was not resolved")
        return self.slots


MIN_POSITIONS = 128
"""A head (10 rows), a short instruction, a short text and a second of audio fit."""
