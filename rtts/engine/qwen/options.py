"""What can be set about the Qwen engine. `settings` composes it; nothing here imports torch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rtts.errors import ConfigError

FRAME_RATE_HZ = 12.5
FRAME_S = 1.0 / FRAME_RATE_HZ


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
    """How text becomes takes.

    Attributes:
        late: See `LateText`.
        close_lead_s: With `close`: how much unplayed audio is left when waiting ends. Less
            than a frame's production and delivery is heard as a gap.
        layout: See `LayoutPolicy`.
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
    """The engine as a whole.

    Attributes:
        model: A folder with a released checkpoint, or a hub repository ("Qwen/...").
        device: "cpu", "cuda" or "cuda:N".
        dtype: "float32", "bfloat16" or "float16"; "auto" is bfloat16 on a GPU, float32 on a CPU.
        slots: Utterances spoken at the same time.
        waiting: Utterances that may wait for a slot.
        wait_limit_s: How long one may wait before it is refused as overloaded.
        positions: Talker positions of a slot: head, text and frames of one take.
        prefill_rows: Most prompt rows prefilled in one step, so that running streams keep their pace.
        prefix_bytes: Size of the cache of voice heads.
        prewarm_languages: Languages whose head `LoadVoice` builds.
        voices_dir: Folder of registered voices (Base checkpoints), or "".
        greedy: Take the best code everywhere instead of drawing.
    """

    model: str
    device: str = "cpu"
    dtype: str = "auto"
    slots: int = 8
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
                f"engine.qwen.dtype: {self.dtype!r} is not auto, float32, bfloat16 or float16"
            )
        for name in ("slots", "prefill_rows"):
            if getattr(self, name) < 1:
                raise ConfigError(f"engine.qwen.{name} must be at least 1")
        if self.positions < MIN_POSITIONS:
            raise ConfigError(f"engine.qwen.positions must be at least {MIN_POSITIONS}")


MIN_POSITIONS = 128
"""A head (10 rows), a short instruction, a short text and a second of audio fit."""
