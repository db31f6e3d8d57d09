"""From outcomes to figures: quantiles and counts."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.loadgen.reply import Outcome

QUANTILES = (0.5, 0.9, 0.95, 0.99)


def quantiles_ms(values_s: Iterable[float | None]) -> dict[str, float | int] | None:
    """Quantiles in milliseconds, nearest rank (each is a value that was measured)."""
    values = sorted(value for value in values_s if value is not None)
    if not values:
        return None
    found: dict[str, float | int] = {
        f"p{100 * q:g}": round(1000 * values[max(0, math.ceil(q * len(values)) - 1)], 3)
        for q in QUANTILES
    }
    found |= {"min": round(1000 * values[0], 3), "max": round(1000 * values[-1], 3)}
    found["mean"] = round(1000 * sum(values) / len(values), 3)
    return found | {"n": len(values)}


def summarise(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The figures of a run. Latencies count replies that got that far, whatever became of them."""
    endings = Counter(outcome.ending for outcome in outcomes)
    faults: Counter[str] = Counter()
    for outcome in outcomes:
        faults.update(outcome.faults)
    stalls = [stall for outcome in outcomes for stall in outcome.stalls_s]
    rtfs = [outcome.rtf for outcome in outcomes if outcome.rtf is not None]
    budgets = [o.server_within_budget for o in outcomes if o.server_within_budget is not None]
    return {
        "replies": len(outcomes),
        "endings": dict(endings.most_common()),
        "faults": dict(faults.most_common()),
        "first_packet_ms": quantiles_ms(o.first_packet_s for o in outcomes),
        "from_first_text_ms": quantiles_ms(o.from_first_text_s for o in outcomes),
        "onset_in_audio_ms": quantiles_ms(o.onset_s for o in outcomes),
        "first_sound_ms": quantiles_ms(o.first_sound_s for o in outcomes),
        "server_ttfa_ms": quantiles_ms(o.server_ttfa_s for o in outcomes),
        "beside_server_ttfa_ms": quantiles_ms(
            o.first_packet_s - o.server_ttfa_s
            for o in outcomes
            if o.first_packet_s is not None and o.server_ttfa_s is not None
        ),
        "within_budget": sum(budgets) / len(budgets) if budgets else None,
        "real_time_factor": {"mean": sum(rtfs) / len(rtfs), "max": max(rtfs)} if rtfs else None,
        "underruns": len(stalls),
        "underruns_over_20_ms": sum(stall > 0.02 for stall in stalls),
        "replies_with_underrun": sum(bool(outcome.stalls_s) for outcome in outcomes),
        "stalled_s": round(sum(stalls), 6),
        "stall_ms": quantiles_ms(stalls),
        "starved_s": round(sum(outcome.starved_s for outcome in outcomes), 6),
        "audio_s": round(sum(outcome.audio_s for outcome in outcomes), 3),
        "audio_messages": sum(outcome.n_messages for outcome in outcomes),
        "audio_bytes": sum(outcome.n_bytes for outcome in outcomes),
        "chars": sum(outcome.chars for outcome in outcomes),
    }
