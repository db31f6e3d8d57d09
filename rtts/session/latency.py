"""First-packet latency of one context, split by the stage that spent it.

    receipt ─split─▶ to engine ─queue─▶ begun ─engine─▶ audio back ─encode─▶ built ─send─▶ socket

Receipt is when the message that completed the first segment arrived (or, where quiet completed it,
when the timer that cut it fired). Only numbers; the caller brings every time.
"""

from __future__ import annotations

from dataclasses import dataclass

from rtts.metrics import ENGINE_PARTS, STAGES


@dataclass(slots=True)
class FirstPacket:
    """Times at which a context's first audio passed each stage; 0 is "not yet".

    Owner: its context.
    """

    first_text_at: float = 0.0
    received_at: float = 0.0
    handed_at: float = 0.0
    begun_at: float = 0.0
    back_at: float = 0.0
    built_at: float = 0.0
    sent_at: float = 0.0
    parts_s: tuple[float, ...] = ()  # of the engine's stage, where it can tell

    @property
    def is_measured(self) -> bool:
        """Whether the first audio is out."""
        return self.sent_at > 0.0

    @property
    def total_s(self) -> float:
        """First-packet latency."""
        return self.sent_at - self.received_at

    @property
    def from_first_text_s(self) -> float:
        """From the context's first text to the same end."""
        return self.sent_at - self.first_text_at

    def stages(self) -> dict[str, float]:
        """Seconds by stage, in order; they add up to `total_s`."""
        # A stage the audio never passed (silence before the first word) took no time.
        handed_at = self.handed_at or self.received_at
        begun_at = min(max(self.begun_at, handed_at), self.back_at)
        times = (self.received_at, handed_at, begun_at, self.back_at, self.built_at, self.sent_at)
        pairs = zip(times, times[1:], strict=False)
        return {name: later - earlier for name, (earlier, later) in zip(STAGES, pairs, strict=True)}

    def parts(self) -> dict[str, float]:
        """Seconds of the engine's stage by part; empty where the engine does not tell."""
        return dict(zip(ENGINE_PARTS, self.parts_s, strict=bool(self.parts_s)))

    def guilty_stage(self) -> str:
        """The stage that took longest; of the engine's, the part that did, where that is known.

        "engine" also where most of its stage is in no part: the way to its process and back, and
        what it did for others meanwhile.
        """
        stages, parts = self.stages(), self.parts()
        guilty = max(stages, key=stages.__getitem__)
        if guilty != "engine":
            return guilty
        parts["engine"] = stages["engine"] - sum(parts.values())
        return max(parts, key=parts.__getitem__)
