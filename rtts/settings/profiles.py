"""Named sets of settings: what a server is for, in one word.

A profile is one more source of values, between the built-in ones and the settings file, so whatever
is set by file, environment or flag wins over it. `balanced` is the built-in values themselves.
This module knows nothing about what any setting does beyond the reasons written beside its values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rtts.settings import values
from rtts.settings.schema import Setting
from rtts.settings.sources import Given

KEY = "engine.profile"


@dataclass(frozen=True, slots=True)
class Profile:
    """A named set of settings.

    Attributes:
        purpose: What it is for, and what it costs.
        values: By key, as in a settings file.
    """

    purpose: str
    values: Mapping[str, object]


PROFILES: Mapping[str, Profile] = {
    "balanced": Profile("The built-in values: live conversation, many at once.", {}),
    "realtime": Profile(
        "The earliest sound and the steadiest pace. Refuses at once rather than letting anybody "
        "wait, and carries fewer at a time.",
        {
            "session.budget_s": 0.3,
            # Two seconds bridge what a network does; what is interrupted wastes less.
            "session.max_lead_s": 2.0,
            "engine.max_backlog_s": 0.3,
            "cpu.first_chunk_s": 0.08,
            "cpu.chunk_s": 0.16,
            "qwen.waiting": 8,
            "qwen.wait_limit_s": 0.3,
            # A prefill holds every running stream up for its length.
            "qwen.prefill_rows": 256,
            # Text that is all there would be prefilled before the first frame; beside the audio it is not.
            "qwen.text.layout": "streaming",
            "qwen.text.close_lead_s": 0.2,
        },
    ),
    "quality": Profile(
        "The best sound, whatever it takes: waits for text rather than ending a sentence early, "
        "begins the talker anew sooner, encodes at twice the bit rate and full effort.",
        {
            "session.opus_bitrate": 64_000,
            "session.opus_complexity": 10,
            "session.budget_s": 1.0,
            "engine.max_backlog_s": 4.0,
            "qwen.text.late": "hold",
            # The talker's rate drifts within a take; half a minute instead of a whole one.
            "qwen.text.anchor_frames": 375,
            # A slow voice is not cut: twice the frames a text should take, and more.
            "qwen.endings.budget_factor": 4.0,
            "qwen.endings.silence_frames": 50,
            "qwen.wait_limit_s": 4.0,
        },
    ),
    "throughput": Profile(
        "The most speech an hour, for files and not for listeners: as many slots as fit, whoever "
        "finds none waits, nobody is refused for it. The default of `rtts batch`.",
        {
            "session.max_lead_s": 3600.0,
            "session.idle_timeout_s": 3600.0,
            "session.budget_s": 60.0,
            "session.max_messages_per_s": 10_000,
            "engine.max_backlog_s": 3600.0,
            # Larger pieces are fewer events; nobody hears where they meet.
            "cpu.first_chunk_s": 0.5,
            "cpu.chunk_s": 1.0,
            "tone.chunk_s": 1.0,
            "qwen.slots": "auto",
            "qwen.waiting": 1024,
            "qwen.wait_limit_s": 3600.0,
            "qwen.text.late": "hold",
        },
    ),
}


def given_by(name: str, settings: Mapping[str, Setting]) -> dict[str, Given]:
    """What a profile sets, ready to be overridden.

    Args:
        name: One of `PROFILES`.
        settings: Every setting, by key.
    """
    origin = f"profile {name}"
    return {
        key: Given(values.from_toml(settings[key], value), origin)
        for key, value in PROFILES[name].values.items()
    }


def table() -> str:
    """Markdown: what each profile is for, and what it sets beside the built-in values."""
    rows = ["| profile | is for |", "|---|---|"]
    rows += [f"| `{name}` | {profile.purpose} |" for name, profile in PROFILES.items()]
    names = [name for name, profile in PROFILES.items() if profile.values]
    rows += ["", f"| setting | {' | '.join(f'`{name}`' for name in names)} |"]
    rows += ["|---" * (len(names) + 1) + "|"]
    keys = sorted({key for name in names for key in PROFILES[name].values})
    for key in keys:
        sets = [PROFILES[name].values for name in names]
        cells = [f"`{each[key]}`" if key in each else "" for each in sets]
        rows.append(f"| `{key}` | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"
