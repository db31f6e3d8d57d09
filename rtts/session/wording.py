"""What a session and its contexts say about themselves, in the words of the wire.

Pure translation of numbers they hold into messages and records; decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, cast

from rtts import __version__
from rtts.audio.formats import supported_formats
from rtts.engine.interface import WordsTimed
from rtts.errors import RttsError
from rtts.protocol.events import (
    Done,
    DoneMetrics,
    Error,
    FirstAudio,
    FormatOffer,
    Limits,
    Marks,
    Playback,
    Quantiles,
    Ready,
    ResumeOffer,
    Stats,
)
from rtts.session.heard import HeardWord
from rtts.session.options import SessionOptions
from rtts.session.record import ClientReport, UtteranceRecord
from rtts.session.service import Service
from rtts.text import Segment

if TYPE_CHECKING:
    from rtts.session.context import Context

# Of one context, however long it is; more is no player's.
MOST_UNDERRUNS = 10_000

_Reason = Literal["completed", "cancelled", "error", "expired", "shutdown"]


def ms(seconds: float) -> float:
    """Milliseconds for the wire; a microsecond is finer than anything measured."""
    return round(1000 * seconds, 3)


def whole_ms(seconds: float | None) -> int | None:
    """Whole milliseconds, or None for None."""
    return None if seconds is None else round(1000 * seconds)


def marks(ctx: str, segment: Segment, timed: WordsTimed, words: Sequence[HeardWord]) -> Marks:
    """Word times of one segment, in the client's own words."""
    return Marks(
        ctx=ctx,
        segment=timed.segment,
        unit="word",
        quality="exact" if timed.exact else "estimated",
        items=[
            (
                segment.text[word.start - segment.start : word.end - segment.start],
                round(1000 * word.start_s),
                round(1000 * word.end_s),
            )
            for word in words
        ],
        chars=[(word.start, word.end) for word in words],
    )


def first_audio(context: Context) -> FirstAudio:
    """First-packet latency of a context whose first audio was just sent."""
    latency = context.latency
    stages = latency.stages()
    return FirstAudio(
        ctx=context.options.name,
        ttfa_ms=ms(latency.total_s),
        split_ms=ms(stages["split"]),
        queue_ms=ms(stages["queue"]),
        model_ms=ms(stages["engine"]),
        encode_ms=ms(stages["encode"]),
        send_ms=ms(stages["send"]),
        from_first_text_ms=ms(latency.from_first_text_s),
        budget_ms=ms(context.options.budget_s),
        within_budget=latency.total_s <= context.options.budget_s,
    )


def done(
    context: Context,
    *,
    n_samples: int,
    last_seq: int | None = None,
    played_s: float | None = None,
    n_heard_chars: int | None = None,
) -> Done:
    """The terminal message.

    Args:
        n_samples: Real samples sent, at the format's rate.
        last_seq: By default the last one made.
        n_heard_chars: Where the heard part of the text ends; None says nothing of it.
    """
    text = context.intake.text
    return Done(
        ctx=context.options.name,
        reason=cast(_Reason, context.reason),
        segments=sum(spoken.at_s is not None for spoken in context.voicing.segments),
        last_seq=context.speech.seq - 1 if last_seq is None else last_seq,
        audio_ms=ms(n_samples / context.speech.rate_hz),
        samples=n_samples,
        text_chars=len(text),
        metrics=_metrics(context),
        played_ms=None if played_s is None else ms(played_s),
        spoken=None if n_heard_chars is None else text[:n_heard_chars],
        remaining=None if n_heard_chars is None else text[n_heard_chars:],
        code=context.code or None,
    )


def _metrics(context: Context) -> DoneMetrics | None:
    latency = context.latency
    if not latency.is_measured:
        return None
    rtf = _rtf(context)
    return DoneMetrics(
        ttfa_ms=ms(latency.total_s),
        from_first_text_ms=ms(latency.from_first_text_s),
        rtf=None if rtf is None else round(rtf, 5),
        stalls=context.pacer.stalls,
        budget_ms=ms(context.options.budget_s),
        within_budget=latency.total_s <= context.options.budget_s,
        max_lead_ms=ms(context.pacer.peak_lead_s),
    )


def _rtf(context: Context) -> float | None:
    stats = context.stats
    return stats.busy_s / stats.audio_s if stats.audio_s else None


def _cancel_s(context: Context) -> float | None:
    if not context.cancelled_by or not context.silent_at:
        return None
    return context.silent_at - context.stopped_at


def record(
    context: Context,
    *,
    session_id: str,
    engine: str,
    now: float,
) -> UtteranceRecord:
    """Everything measured about a finished context."""
    latency, options, pacer = context.latency, context.options, context.pacer
    is_measured = latency.is_measured
    within = latency.total_s <= options.budget_s if is_measured else None
    figures = context.client_figures
    underruns = figures.get("underruns")
    return UtteranceRecord(
        session=session_id,
        ctx=options.name,
        stream=options.stream,
        engine=engine,
        voice=options.voice.id,
        voice_kind=options.voice.kind,
        language=options.language,
        codec=options.audio_format.codec,
        container=options.audio_format.container,
        chars=context.intake.n_chars,
        segments=len(context.voicing.segments),
        audio_s=pacer.sent_s,
        reason=context.reason,
        code=context.code,
        first_packet_s=latency.total_s if is_measured else None,
        from_first_text_s=latency.from_first_text_s if is_measured else None,
        stages=latency.stages() if is_measured else {},
        parts=latency.parts() if is_measured else {},
        budget_s=options.budget_s,
        within_budget=within,
        guilty_stage=latency.guilty_stage() if within is False else "",
        busy_s=context.stats.busy_s,
        rtf=_rtf(context),
        stalls=pacer.stalls,
        stalled_s=pacer.stalled_s,
        max_lead_s=pacer.peak_lead_s,
        widest_gap_s=pacer.widest_gap_s,
        cancelled_by=context.cancelled_by,
        cancel_s=_cancel_s(context),
        voice_cached=context.stats.voice_cached,
        client_first_packet_s=figures.get("first_packet_s"),
        client_first_sound_s=figures.get("first_sound_s"),
        client_underruns=None if underruns is None else int(underruns),
        client_stalled_s=figures.get("stalled_s"),
        traceparent=options.traceparent,
        received_at=latency.received_at,
        started_at=context.started_at,
        ended_at=now,
    )


def ready(
    protocol: str,
    *,
    session_id: str,
    resume_token: str | None,
    options: SessionOptions,
    service: Service,
    now: float,
) -> Ready:
    """The first message on a socket."""
    capabilities = service.capabilities
    assert capabilities is not None, "sockets are accepted once the engine is ready"
    window_ms = round(1000 * options.resume_window_s)
    return Ready(
        protocol=protocol,
        session=session_id,
        server=f"rtts/{__version__}",
        model=capabilities.model,
        voices=[voice.id for voice in capabilities.voices],
        languages=["auto", *capabilities.languages],
        formats=[
            FormatOffer(offer.codec, list(offer.sample_rate), offer.container)
            for offer in supported_formats()
        ],
        limits=Limits(
            max_contexts=options.max_contexts,
            max_text_chars=options.max_text_chars,
            max_message_bytes=options.max_message_bytes,
            max_messages_per_s=options.max_messages_per_s,
            idle_timeout_ms=round(1000 * options.idle_timeout_s),
            max_session_ms=round(1000 * options.max_session_s),
            max_lead_ms=round(1000 * options.max_lead_s),
        ),
        time_ms=service.time_ms(now),
        default_voice=options.voice or capabilities.default_voice,
        budget_ms=ms(options.budget_s),
        resume=None if resume_token is None else ResumeOffer(resume_token, window_ms),
    )


def stats(contexts: Iterable[Context], service: Service, now: float) -> Stats:
    """How this connection and the server are doing."""
    quantiles = service.first_packet.quantiles(now) or (None, None, None)
    buffered = {context.options.name: ms(context.buffered_s(now)) for context in contexts}
    return Stats(
        active_contexts=len(buffered),
        queue=service.started_since_load,
        ttfa_ms=Quantiles(*(None if q is None else ms(q) for q in quantiles)),
        rtf=None if service.rtf is None else round(service.rtf, 5),
        buffered_ms=buffered,
        budget_hit_rate=service.budget_hit_rate,
    )


def error(problem: RttsError, *, ctx: str | None, ref: str | None, is_last: bool) -> Error:
    """An error as the client is told it."""
    return Error(
        code=problem.code,
        message=problem.message,
        fatal=is_last,
        ctx=ctx,
        ref=ref,
        retry_after_ms=whole_ms(problem.retry_after_s),
    )


def client_report(session_id: str, message: Playback) -> ClientReport:
    """A client's own figures in seconds."""

    def seconds(value_ms: float | None) -> float | None:
        return None if value_ms is None else value_ms / 1000

    return ClientReport(
        session=session_id,
        ctx=message.ctx,
        first_packet_s=seconds(message.first_packet_ms),
        first_sound_s=seconds(message.first_sound_ms),
        underruns=None if message.underruns is None else min(message.underruns, MOST_UNDERRUNS),
        stalled_s=seconds(message.stalled_ms),
        output_latency_s=seconds(message.output_latency_ms),
    )
