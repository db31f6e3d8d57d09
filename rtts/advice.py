"""What is wrong, in words: which stage, since when, and what to do about it.

Rules over the figures of a stretch of time (`Window`) and the state of a server (`Condition`). The
live feed asks them each second, a report asks them once for each stretch of a recording, which has
no `Condition`. Pure: knows no server, no file and no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

Severity = Literal["problem", "note"]

# Fewer misses than this say nothing about a cause, and less than this share is an accident.
MIN_MISSES = 3
MIN_MISS_SHARE = 0.02
# A stage is worth advice when it caused this share of the misses.
MIN_STAGE_SHARE = 0.2
# The loop's lateness adds to every packet; a player's buffer starts at 20 to 40 ms and no longer
# hides this much.
SLOW_LOOP_S = 0.05
# Past this share of its slots an engine refuses whoever comes in a burst.
FULL_SHARE = 0.95
FULL_GPU_SHARE = 0.95
# Advice stays this long after its cause was last seen, so that it does not flicker.
HOLD_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """Figures of a stretch of time; what was not measured is left at its default.

    Attributes:
        contexts: That ended.
        measured: Those that had audio.
        misses: First packets over budget, by guilty stage; "client" counts those that left in time
            and arrived late. "" where the stage is not known.
        cold: Contexts whose voice was not warm.
        slow_texts: Contexts whose first segment took longer than the budget to arrive whole.
        stalled: Contexts whose listener the server kept waiting in mid-speech.
        client_reports: Contexts of which the client reported figures.
        client_underruns: Of those, the ones whose player ran dry.
        rtf: Engine seconds divided by audio seconds; None without audio.
        errors: By code.
    """

    contexts: int = 0
    measured: int = 0
    misses: Mapping[str, int] = field(default_factory=dict)
    cold: int = 0
    slow_texts: int = 0
    stalled: int = 0
    client_reports: int = 0
    client_underruns: int = 0
    rtf: float | None = None
    errors: Mapping[str, int] = field(default_factory=dict)

    @property
    def missed(self) -> int:
        """First packets over budget, for any reason."""
        return sum(self.misses.values())

    def guilty(self, *stages: str) -> int:
        """Misses of these stages; 0 where they are too few to speak of."""
        count = sum(self.misses.get(stage, 0) for stage in stages)
        is_common = self.missed >= max(MIN_MISSES, MIN_MISS_SHARE * self.measured)
        return count if is_common and count >= MIN_STAGE_SHARE * self.missed else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """How a server is at this moment.

    Attributes:
        reasons: Why it is not ready, in the words of `/readyz`.
        troubles: What went wrong, in sentences.
        degraded: One sentence for each thing that works less well here than it could.
        utterances: Alive in the engine.
        slots: Utterances the engine takes at once; 0 while that is not known.
        backlog_s: Predicted wait until a new utterance would be begun.
        opus_effort: The lowered complexity of the encoders, None while it is the usual one.
        loop_lag_s: 99 of 100 timers of the event loop were less late.
        gpu_memory_share: Of the fullest GPU; None without one.
    """

    reasons: tuple[str, ...] = ()
    troubles: tuple[str, ...] = ()
    degraded: tuple[str, ...] = ()
    utterances: int = 0
    slots: int = 0
    backlog_s: float = 0.0
    budget_s: float = 0.5
    opus_effort: int | None = None
    loop_lag_s: float = 0.0
    gpu_memory_share: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong.

    Attributes:
        code: A stable word; one finding each at a time.
        stage: The stage it delays (`rtts.metrics.STAGES`, a part of the engine's, or "client"), or
            "" for all of them.
        text: What is wrong, in a sentence or two.
        remedy: What to do.
    """

    code: str
    stage: str
    text: str
    remedy: str
    severity: Severity = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """A finding, and the time at which it began."""

    finding: Finding
    since_s: float


Rule = Callable[[Window, Condition], Finding | None]


def _engine_down(window: Window, condition: Condition) -> Finding | None:
    del window
    if "engine_down" not in condition.reasons:
        return None
    return Finding(
        code="engine_restarting",
        stage="engine",
        text="The engine died and is being started again; nobody is spoken to until it is back.",
        remedy="The log says why it died. Often it is memory: lower qwen.slots or cpu.voice_cache.",
    )


def _not_ready(window: Window, condition: Condition) -> Finding | None:
    del window
    waits = [reason for reason in condition.reasons if reason in ("loading", "prewarming")]
    if not waits:
        return None
    trouble = f" {condition.troubles[0]}" if condition.troubles else ""
    return Finding(
        code="not_ready",
        stage="",
        text=f"The server is {waits[0]} and takes no sessions yet.{trouble}",
        remedy="Wait. If it lasts, /readyz and the log say what it waits for.",
        severity="problem" if condition.troubles else "note",
    )


def _draining(window: Window, condition: Condition) -> Finding | None:
    del window
    if "draining" not in condition.reasons:
        return None
    return Finding(
        code="draining",
        stage="",
        text="The server is stopping: what runs may finish, nothing new is taken.",
        remedy="Connect to another server, or wait for this one to come back.",
        severity="note",
    )


def _batch_full(window: Window, condition: Condition) -> Finding | None:
    refused = window.errors.get("overloaded", 0)
    is_full = condition.slots > 0 and condition.utterances >= FULL_SHARE * condition.slots
    is_waiting = condition.backlog_s > condition.budget_s
    if not (refused or is_full or is_waiting):
        return None
    parts = []
    if is_full:
        parts.append(f"{condition.utterances} of {condition.slots} places in the engine are taken")
    if is_waiting:
        parts.append(f"a new reply would wait {condition.backlog_s:.1f} s to be begun")
    if refused:
        parts.append(f"{refused} contexts were refused as overloaded")
    return Finding(
        code="batch_full",
        stage="queue",
        text=_sentence(", ".join(parts)),
        remedy="Send part of the traffic to another server, or raise engine.workers (cpu) or "
        "qwen.slots if the machine has room.",
    )


def _cold_voices(window: Window, condition: Condition) -> Finding | None:
    del condition
    if window.cold < MIN_MISSES or window.cold < 0.05 * window.contexts:
        return None
    return Finding(
        code="cold_voices",
        stage="queue",
        text=f"{window.cold} of {window.contexts} contexts began with a voice that had to be loaded "
        "first.",
        remedy="Name the voices in server.prewarm_voices. If more are in use than fit, raise "
        "cpu.voice_cache and cpu.voice_cache_mb, or qwen.prefix_bytes.",
    )


def _slow_text(window: Window, condition: Condition) -> Finding | None:
    del condition
    count = window.slow_texts
    if count < MIN_MISSES or count < 0.1 * window.measured:
        return None
    return Finding(
        code="slow_text",
        stage="split",
        text=f"Text arrives slowly: in {count} of {window.measured} contexts the first sentence took "
        "longer than the budget to be complete. Listeners wait for that too.",
        remedy="Send words as they are written, with their punctuation; ask the language model to "
        "begin with a short sentence; flush where a pause follows, and end the last text.",
    )


def _long_queue(window: Window, condition: Condition) -> Finding | None:
    count = window.guilty("queue")
    # Where places or voices are the reason, that is the advice.
    if not count or _batch_full(window, condition) or _cold_voices(window, condition):
        return None
    return Finding(
        code="long_queue",
        stage="queue",
        text=f"{_misses(window, count)} waiting for the engine to begin.",
        remedy="Replies come in bursts: more engine.workers help (cpu), or a second server.",
    )


_ENGINE = ("engine", "prefill", "first_frame", "codec")
_ENGINE_WORDS = {
    "engine": "the engine's first audio",
    "prefill": "reading the prompt (prefill)",
    "first_frame": "the first frame of speech",
    "codec": "the codec, which makes sound of codes",
}


def _slow_engine(window: Window, condition: Condition) -> Finding | None:
    del condition
    if not window.guilty(*_ENGINE):
        return None
    stage = max(_ENGINE, key=lambda name: window.misses.get(name, 0))
    remedies = {
        "prefill": "Long instructions, long voice references and, with the embedded voice, long first "
        "sentences cost prefill; shorten them.",
        "codec": "See that no other program uses the GPU or the cores.",
    }
    remedy = remedies.get(stage, "See that no other program uses the GPU or the cores.")
    return Finding(
        code="slow_engine",
        stage=stage,
        text=f"{_misses(window, window.guilty(*_ENGINE))} in {_ENGINE_WORDS[stage]}.",
        remedy=f"{remedy} A smaller checkpoint or a faster device is the other way.",
    )


def _cannot_keep_up(window: Window, condition: Condition) -> Finding | None:
    del condition
    if window.rtf is None or window.rtf < 1.0:
        return None
    return Finding(
        code="slower_than_speech",
        stage="engine",
        text=f"The engine needs {window.rtf:.2f} s for a second of speech: listeners run dry.",
        remedy="Use a faster device or a smaller voice; fewer at once will not help a real-time "
        "factor over 1.",
    )


def _unfused(window: Window, condition: Condition) -> Finding | None:
    del window
    sentence = next((each for each in condition.degraded if _is_about_attention(each)), None)
    if sentence is None:
        return None
    return Finding(
        code="no_flash_attention",
        stage="engine",
        text=_sentence(sentence),
        remedy="Remove it, or install one that fits this PyTorch and GPU. Nothing that was measured is "
        "slower without it.",
        severity="note",
    )


def _degraded(window: Window, condition: Condition) -> Finding | None:
    del window
    sentences = [each for each in condition.degraded if not _is_about_attention(each)]
    if not sentences:
        return None
    return Finding(
        code="degraded",
        stage="",
        text=_sentence("; ".join(sentences)),
        remedy="`rtts doctor` says what is missing and how to get it.",
        severity="note",
    )


def _busy_loop(window: Window, condition: Condition) -> Finding | None:
    count = window.guilty("split", "encode")
    is_late = condition.loop_lag_s > SLOW_LOOP_S
    if not count and not is_late:
        return None
    parts = [f"the event loop is up to {1000 * condition.loop_lag_s:.0f} ms late"] * is_late
    if count:
        parts.append(f"{count} first packets were late in cutting text or encoding audio")
    return Finding(
        code="busy_loop",
        stage="encode",
        text=_sentence("; ".join(parts)),
        remedy="One core carries all sockets and conversations: give it a core of its own, let "
        "server.encoder_threads encode beside it, or run a second server.",
    )


def _saving_effort(window: Window, condition: Condition) -> Finding | None:
    del window
    if condition.opus_effort is None:
        return None
    return Finding(
        code="opus_effort",
        stage="encode",
        text=f"So many listen that Opus encodes with complexity {condition.opus_effort}: speech "
        "sounds a little worse.",
        remedy="It rises again by itself. If this lasts, run a second server.",
        severity="note",
    )


def _slow_client(window: Window, condition: Condition) -> Finding | None:
    del condition
    late, cut_off = window.guilty("send", "client"), window.errors.get("slow_consumer", 0)
    if not late and not cut_off:
        return None
    parts = [f"{late} first packets came late to clients that were sent them in time"] * bool(late)
    if cut_off:
        parts.append(f"{cut_off} clients took no data and were disconnected")
    return Finding(
        code="slow_client",
        stage="client" if window.misses.get("client", 0) or not late else "send",
        text=_sentence("; ".join(parts)),
        remedy="Look at their network and their reader: a proxy that buffers, a handler that blocks. "
        "rtts_ws_rtt_seconds shows the round trip.",
    )


def _dry_players(window: Window, condition: Condition) -> Finding | None:
    del condition
    count = window.client_underruns
    if count < MIN_MISSES or count < 0.05 * window.client_reports or window.stalled:
        return None
    return Finding(
        code="dry_players",
        stage="client",
        text=f"The players of {count} of {window.client_reports} clients ran dry though the server "
        "sent in time.",
        remedy="Their network jitters more than their buffer holds: start playback later, by 40 ms "
        "or more.",
    )


def _stalls(window: Window, condition: Condition) -> Finding | None:
    del condition
    if window.stalled < MIN_MISSES and not (window.stalled and window.contexts < 20):
        return None
    return Finding(
        code="underruns",
        stage="engine",
        text=f"{window.stalled} of {window.contexts} contexts had a gap in mid-speech: the next audio "
        "or the next text came too late.",
        remedy="If the real-time factor is near 1 the engine is too slow or has too many at once; if "
        "it is not, the text comes slower than it is spoken.",
    )


def _full_gpu(window: Window, condition: Condition) -> Finding | None:
    del window
    share = condition.gpu_memory_share
    if share is None or share < FULL_GPU_SHARE:
        return None
    return Finding(
        code="gpu_memory",
        stage="engine",
        text=f"{share:.0%} of the GPU's memory is in use; past its limit new replies are refused.",
        remedy="Lower qwen.slots, or stop what else uses the GPU.",
    )


def _our_bugs(window: Window, condition: Condition) -> Finding | None:
    del condition
    count = window.errors.get("internal", 0)
    if not count:
        return None
    return Finding(
        code="internal_errors",
        stage="",
        text=f"{count} errors were rtts's own fault.",
        remedy="The log has a traceback for each: please report it.",
    )


def _lost_speech(window: Window, condition: Condition) -> Finding | None:
    del condition
    count = window.errors.get("utterance_failed", 0) + window.errors.get("engine_dead", 0)
    if not count:
        return None
    return Finding(
        code="lost_speech",
        stage="engine",
        text=f"{count} replies failed in the engine.",
        remedy="The log names each. If it is always the same text or voice, report it.",
    )


# The most urgent first; a page shows them in this order.
RULES: tuple[Rule, ...] = (
    *(_engine_down, _our_bugs, _lost_speech, _batch_full, _cannot_keep_up, _stalls),
    *(_slow_engine, _cold_voices, _long_queue, _busy_loop, _slow_text, _slow_client, _dry_players),
    *(_full_gpu, _not_ready, _draining, _saving_effort, _unfused, _degraded),
)


def advise(window: Window, condition: Condition | None = None) -> list[Finding]:
    """What is wrong, problems before notes."""
    state = condition or Condition()
    found = [finding for rule in RULES if (finding := rule(window, state)) is not None]
    return sorted(found, key=lambda finding: finding.severity != "problem")


class Adviser:
    """Remembers since when each finding has been there.

    Owner: whoever asks it.
    """

    def __init__(self) -> None:
        self._advice: dict[str, tuple[Advice, float]] = {}  # by code; when it was last seen

    def update(self, findings: Iterable[Finding], now: float) -> list[Advice]:
        """Take what was found at `now`; returns all that stands, the most urgent first."""
        found: dict[str, tuple[Advice, float]] = {}
        for finding in findings:
            former = self._advice.get(finding.code)
            since_s = now if former is None else former[0].since_s
            found[finding.code] = (Advice(finding=finding, since_s=since_s), now)
        for code, (advice, seen_s) in self._advice.items():
            if code not in found and now - seen_s < HOLD_S:
                found[code] = (advice, seen_s)
        self._advice = found
        return sorted(
            (advice for advice, _ in found.values()),
            key=lambda advice: advice.finding.severity != "problem",
        )


def _misses(window: Window, count: int) -> str:
    return f"{count} of {window.missed} late first packets lost most of their time"


def _is_about_attention(sentence: str) -> bool:
    lowered = sentence.lower()
    return any(word in lowered for word in ("attention", "flash-attn", "sdpa"))


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")
