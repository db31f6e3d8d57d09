"""What is written down about a finished context: one frozen record, no text."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class UtteranceRecord:
    """Everything measured about one context; the canonical log line and every metric come from it.

    Attributes:
        stream: Number of the context in its session.
        reason: As in `done`.
        code: Error code when `reason` is "error", else "".
        first_packet_s: Receipt of the message that completed the first segment until the first
            audio message was handed to the socket. None without audio.
        from_first_text_s: The same end, counted from the context's first text.
        stages: Seconds by stage (`rtts.metrics.STAGES`), adding up to `first_packet_s`; empty without audio.
        parts: Seconds of the stage "engine" by part (`rtts.metrics.ENGINE_PARTS`), where known.
        guilty_stage: The longest stage, or part of the engine's, of a context that missed its
            budget, else "".
        busy_s: Engine seconds spent on it.
        rtf: `busy_s` divided by `audio_s`.
        widest_gap_s: Longest time between two of its audio messages.
        cancelled_by: "client" or "disconnect"; "" unless cancelled.
        cancel_s: From the cancel until the last message was handed to the socket; None if nobody
            was there to hear it.
        traceparent: The client's trace, or "".
        received_at: Monotonic seconds; where `stages` begin.
        started_at: Monotonic seconds.
        surface: The protocol its client speaks.
    """

    session: str
    ctx: str
    stream: int
    engine: str
    voice: str
    voice_kind: str
    language: str
    codec: str
    container: str
    chars: int
    segments: int
    audio_s: float
    reason: str
    code: str
    first_packet_s: float | None
    from_first_text_s: float | None
    stages: dict[str, float]
    parts: dict[str, float]
    budget_s: float
    within_budget: bool | None
    guilty_stage: str
    busy_s: float
    rtf: float | None
    stalls: int
    stalled_s: float
    max_lead_s: float
    widest_gap_s: float
    cancelled_by: str
    cancel_s: float | None
    voice_cached: bool
    client_first_packet_s: float | None
    client_first_sound_s: float | None
    client_underruns: int | None
    client_stalled_s: float | None
    traceparent: str
    received_at: float
    started_at: float
    ended_at: float
    surface: str = "rtts.v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReport:
    """What a client measured itself. Untrusted: ranges are checked, nothing is scheduled by it.

    After its context's end: what was not known before; `underruns` and `stalled_s` are what came
    to those known.
    """

    session: str
    ctx: str
    first_packet_s: float | None
    first_sound_s: float | None
    underruns: int | None
    stalled_s: float | None
    output_latency_s: float | None

    @property
    def has_figures(self) -> bool:
        """Whether there is anything in it."""
        figures = (self.first_packet_s, self.first_sound_s, self.underruns, self.stalled_s)
        return any(figure is not None for figure in figures)
