"""What an operator can set about a conversation. Every default has its source beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from rtts.errors import ConfigError

# What a conversation can work with at all; what is sensible is the operator's business.
_RANGES: dict[str, tuple[float, float]] = {
    "max_contexts": (1, 1024),
    "max_text_chars": (1, 10_000_000),
    "max_message_bytes": (256, 16_777_216),
    "max_messages_per_s": (1, 1_000_000),
    "idle_timeout_s": (0.001, math.inf),
    "max_session_s": (0.001, math.inf),
    "max_lead_s": (0.02, 3600.0),  # a packet at least
    "resume_window_s": (0.0, 3600.0),
    "budget_s": (0.001, 60.0),
    "opus_bitrate": (6_000, 256_000),  # as `rtts.audio.formats`
    "opus_complexity": (0, 10),
    "unsent_high_bytes": (1, 1_073_741_824),
    "slow_consumer_s": (0.001, math.inf),
    "packets_per_message": (1, 50),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOptions:
    """Limits and defaults of one conversation.

    Attributes:
        max_contexts: Contexts open at once on one socket. Hosted services allow 5 to 20.
        max_text_chars: Characters a context may have received and not yet spoken.
        max_message_bytes: Largest message accepted from a client.
        max_messages_per_s: Sustained message rate; twice as many may come in one burst.
        idle_timeout_s: A socket without contexts, or a context without text or audio, ends after.
        max_session_s: A conversation is asked to go away after this.
        max_lead_s: Most audio sent ahead of the playback clock; a context may ask for less.
        resume_window_s: How long a lost socket's session waits to be resumed.
        budget_s: First-packet budget. 500 ms is the usual bound for live conversation.
        voice: Default voice; None is the engine's.
        language: Default language, "auto" lets the text decide.
        opus_bitrate: Default bits per second.
        opus_complexity: libopus effort 0 to 10, lowered to 1 while more listen than a core can
            encode for. PESQ on the embedded voice: 4.39 at 5, 4.47 at 10 for a third more time.
        unsent_high_bytes: With more than this in the transport's buffer nothing more is granted.
        slow_consumer_s: A client that confirms nothing for this long is disconnected.
        packets_per_message: Most Opus packets in one message (4 of 20 ms: one 80 ms codec frame).
        delivery_markers: Confirm delivery by WebSocket pings. Off where pongs may not come.
    """

    max_contexts: int = 8
    max_text_chars: int = 4000
    max_message_bytes: int = 65_536
    max_messages_per_s: int = 200
    idle_timeout_s: float = 300.0
    max_session_s: float = 7200.0
    max_lead_s: float = 5.0
    resume_window_s: float = 15.0
    budget_s: float = 0.5
    voice: str | None = None
    language: str = "auto"
    opus_bitrate: int = 32_000
    opus_complexity: int = 5
    unsent_high_bytes: int = 262_144
    slow_consumer_s: float = 30.0
    packets_per_message: int = 4
    delivery_markers: bool = True

    def __post_init__(self) -> None:
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not low <= value <= high:
                raise ConfigError(f"session.{name}: {value} is outside {low:g} to {high:g}")
