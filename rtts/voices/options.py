"""What can be set about voices that users bring."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rtts.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class VoiceOptions:
    """Voices that users bring, over HTTP, to an engine that can clone or design them.

    Attributes:
        dir: Folder they are kept in; empty is `~/.local/share/rtts/voices` (`$XDG_DATA_HOME`).
        max_voices: Most of them.
        max_upload_mb: Largest upload, in MB.
        shortest_s: Shortest reference recording. Models want 3 s and more.
        longest_s: Longest. More makes every prompt longer and no clone better.
    """

    dir: Path | None = None
    max_voices: int = 1000
    max_upload_mb: float = 10.0
    shortest_s: float = 1.0
    longest_s: float = 30.0

    def __post_init__(self) -> None:
        if self.max_voices < 0:
            raise ConfigError("voices.max_voices must be 0 or more")
        if not 0 < self.max_upload_mb <= 1000:
            raise ConfigError("voices.max_upload_mb must be more than 0 and at most 1000")
        if not 0 < self.shortest_s <= self.longest_s:
            raise ConfigError("voices.shortest_s must be more than 0 and at most voices.longest_s")
