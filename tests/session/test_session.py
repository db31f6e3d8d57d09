"""One conversation, driven by hand: what is said, in which order, and when."""

from __future__ import annotations

import pytest

from rtts.engine.interface import (
    AppendText,
    AudioProduced,
    CancelUtterance,
    EngineDown,
    FinishText,
    GrantAudio,
    StartUtterance,
    UtteranceFailed,
    WordsTimed,
)
from rtts.engine.tone import ToneOptions
from rtts.errors import MalformedJsonError, ResumeFailedError
from rtts.metrics import ENGINE_PARTS
from rtts.protocol.audio_message import split_packets
from rtts.protocol.events import (
    Audio,
    AudioFlags,
    Cancel,
    Chunking,
    Close,
    Done,
    End,
    Error,
    FirstAudio,
    Flush,
    Flushed,
    Format,
    GoAway,
    Marks,
    Ping,
    Playback,
    Pong,
    Ready,
    Resumed,
    SegmentStarted,
    Start,
    Started,
    Stats,
    StatsRequest,
    Text,
    Warned,
)
from rtts.session import SessionOptions, UtteranceRecord
from tests.session.world import World

SENTENCE = "Sure, I can help you with that today. "


def kinds(world, ctx="a"):
    return [type(m).__name__ for m in world.messages if getattr(m, "ctx", None) == ctx]


def test_ready_says_what_can_be_asked_for():
    """The first message names voices, languages, formats, limits and how to resume."""
    world = World()
    world.session.greet("rtts.v1", world.now)
    world.pump()
    (ready,) = world.messages
    assert isinstance(ready, Ready)
    assert ready.voices == ["tone", "tone-low", "tone-high"]
    assert ready.languages[0] == "auto"
    assert ready.limits.max_contexts == 8
    assert ready.resume.token == "r_1"
    assert ready.time_ms == 1_796_000_000_000 + 1_000_000
    assert any(offer.codec == "opus" and offer.container == "raw" for offer in ready.formats)


def test_one_message_is_enough_to_be_heard():
    """`text` with `end` opens a context, speaks it and ends it: started ... audio ... done."""
    world = World()
    world.say("Hello there, how are you today?")
    world.advance(10)
    order = kinds(world)
    assert order[0] == "Started"
    assert order[1] == "SegmentStarted"
    assert order[2] == "Audio"
    assert order[3] == "FirstAudio"
    assert order[-1] == "Done"
    done = world.done()
    assert done.reason == "completed"
    assert done.last_seq == len(world.of(Audio)) - 1
    assert done.text_chars == len("Hello there, how are you today?")
    assert done.metrics.within_budget is True


def test_audio_is_numbered_contiguous_and_flagged():
    """seq counts from 0, pts is the sum of durations, first and last of everything are flagged."""
    world = World()
    world.say(SENTENCE + "The second sentence is a little longer than the first one was. ")
    world.advance(20)
    audio = world.of(Audio)
    assert [m.seq for m in audio] == list(range(len(audio)))
    pts = 0
    for message in audio:
        assert message.pts == pts
        packets = split_packets(message.data, message.npackets)
        assert 1 <= len(packets) <= 4
        pts += 480 * len(packets)
    done = world.done()
    assert pts - 156 >= done.samples > pts - 156 - 960
    assert audio[0].flags & AudioFlags.FIRST_OF_CONTEXT
    assert audio[-1].flags & AudioFlags.LAST_OF_CONTEXT
    firsts = [m.segment for m in audio if m.flags & AudioFlags.FIRST_OF_SEGMENT]
    lasts = [m.segment for m in audio if m.flags & AudioFlags.LAST_OF_SEGMENT]
    assert firsts == lasts == [s.segment for s in world.of(SegmentStarted)]


@pytest.mark.parametrize(
    "fmt",
    [
        Format(codec="pcm_s16le"),
        Format(codec="pcm_s16le", sample_rate=8000),
        Format(codec="pcm_s16le", sample_rate=48000),
        Format(codec="mulaw"),
        Format(codec="alaw"),
        Format(codec="opus", container="ogg"),
        Format(codec="pcm_s16le", container="wav"),
        Format(codec="opus", frame_ms=60),
    ],
)
def test_every_format_has_exact_length(fmt):
    """`done.samples` is the engine's samples at the format's rate, whatever the format."""
    world = World()
    world.send(Start(ctx="a", format=fmt))
    world.say(SENTENCE)
    world.advance(20)
    made = sum(len(e.pcm) // 2 for e in world.events if isinstance(e, AudioProduced))
    rate = world.of(Started)[0].format.sample_rate
    assert world.done().samples == round(made * rate / 24000)


def test_pcm_is_the_engine_audio_byte_for_byte():
    """The client's PCM is exactly what the engine made, over all segments."""
    world = World()
    world.send(Start(ctx="a", format=Format(codec="pcm_s16le")))
    for word in (SENTENCE + "And one more sentence comes here. ").split(" "):
        world.send(Text(ctx="a", text=word + " "))
    world.send(End(ctx="a"))
    world.advance(20)
    made = b"".join(e.pcm for e in world.events if isinstance(e, AudioProduced))
    assert b"".join(m.data for m in world.of(Audio)) == made


def test_segments_quote_the_text_verbatim():
    """Segment texts are slices of what the client sent, at the places they name."""
    text = "First things first, my friend. **Second**, there is a link: https://example.com/a?b. "
    world = World()
    world.say(text)
    world.advance(30)
    for segment in world.of(SegmentStarted):
        start, end = segment.chars
        assert text[start:end] == segment.text


def test_marks_name_words_of_the_clients_own_text():
    """Every mark's word is the client's text at `chars`, in order and inside the audio."""
    text = "This is **very** important, you see. "
    world = World()
    world.say(text)
    world.advance(20)
    marks = world.of(Marks)
    assert marks
    last = 0
    for mark in marks:
        assert mark.quality == "exact"
        for (word, start_ms, end_ms), (start, end) in zip(mark.items, mark.chars, strict=True):
            assert text[start:end] == word
            assert last <= start_ms <= end_ms
            last = start_ms
    assert last <= world.done().audio_ms
    assert "very" in [word for mark in marks for word, _, _ in mark.items]


def test_timings_are_estimated_and_say_so_where_the_engine_has_none():
    """Without engine timings every word still gets one, marked as an estimate."""
    world = World()
    world.filter = lambda event: not isinstance(event, WordsTimed)
    world.say(SENTENCE)
    world.advance(20)
    (mark,) = world.of(Marks)
    assert mark.quality == "estimated"
    assert [word for word, _, _ in mark.items] == SENTENCE.split()
    assert mark.items[-1][2] <= world.done().audio_ms + 1


def test_no_marks_when_not_wanted():
    """`timestamps: none` sends none; `spoken` still works."""
    world = World()
    world.send(Start(ctx="a", timestamps="none"), Text(ctx="a", text=SENTENCE))
    world.advance(1)
    world.send(Cancel(ctx="a", played_ms=900))
    assert not world.of(Marks)
    assert world.done().spoken


# --- cancel ----------------------------------------------------------------------------------


def test_cancel_says_what_was_heard_and_what_was_not():
    """spoken + remaining is all text received, cut behind a word, near the position."""
    world = World()
    world.send(Text(ctx="a", text=SENTENCE + "And there is more of this text to come"))
    world.advance(1.0)
    n_audio = len(world.of(Audio))
    world.send(Cancel(ctx="a", played_ms=1000))
    done = world.done()
    assert done.reason == "cancelled"
    assert done.played_ms == 1000
    assert done.spoken + done.remaining == SENTENCE + "And there is more of this text to come"
    assert done.spoken and SENTENCE.startswith(done.spoken)
    assert done.remaining.startswith(" ")
    assert len(world.of(Audio)) == n_audio
    assert any(isinstance(c, CancelUtterance) for c in world.commands)
    world.advance(5)
    assert kinds(world)[-1] == "Done"
    assert world.service.live_utterances == 0


def test_cancel_drops_what_waits_but_not_that_the_context_existed():
    """A context cancelled before anything was sent still is `started`, then `done`."""
    world = World()
    world.writable = False
    world.send(Text(ctx="a", text=SENTENCE), Cancel(ctx="a"))
    world.writable = True
    world.pump()
    assert kinds(world) == ["Started", "Done"]
    assert world.done().last_seq == -1


def test_stray_text_after_a_cancel_is_not_spoken():
    """Tokens that cross a barge-in are refused; `start` opens the name again."""
    world = World()
    world.send(Text(ctx="a", text=SENTENCE), Cancel(ctx="a"), Text(ctx="a", text="stray words. "))
    assert world.of(Error)[-1].code == "unknown_ctx"
    assert len(world.of(Started)) == 1
    world.send(Start(ctx="a"), Text(ctx="a", text=SENTENCE, end=True))
    world.advance(10)
    assert [d.reason for d in world.of(Done)] == ["cancelled", "completed"]


def test_a_completed_name_may_be_used_again_at_once():
    """After `completed` a text opens the name again, as a new stream."""
    world = World()
    world.say(SENTENCE)
    world.advance(10)
    world.say("Another reply, the same name. ")
    world.advance(10)
    assert [s.stream for s in world.of(Started)] == [1, 2]
    assert [d.reason for d in world.of(Done)] == ["completed", "completed"]


def test_cancel_all():
    """One message stops every context, each with its own `done`."""
    world = World()
    for ctx in "abc":
        world.send(Text(ctx=ctx, text=SENTENCE))
    world.send(Cancel(all=True))
    assert sorted(d.ctx for d in world.of(Done)) == ["a", "b", "c"]
    assert world.session.active_contexts == 0


def test_fifty_rapid_interruptions_leave_nothing():
    """Start and cancel fifty times: fifty terminal messages, no utterance left anywhere."""
    world = World()
    for i in range(50):
        world.send(Start(ctx=f"c{i}"), Text(ctx=f"c{i}", text=SENTENCE))
        world.advance(0.02)
        world.send(Cancel(ctx=f"c{i}"))
    world.advance(1)
    assert len(world.of(Done)) == 50
    assert world.service.live_utterances == 0
    assert not world.core.has_work()


# --- flush, end, chunking --------------------------------------------------------------------


def test_flushes_are_acknowledged_in_order_behind_their_audio():
    """Each flush is answered once, after the audio of what came before it."""
    world = World()
    world.engine_runs = False
    world.send(
        Text(ctx="a", text="The first piece of it"),
        Flush(ctx="a", id="f1"),
        Text(ctx="a", text="and here is the second piece"),
        Flush(ctx="a", id="f2"),
        Flush(ctx="a", id="f3"),
    )
    assert not world.of(Flushed)
    world.engine_runs = True
    world.advance(10)
    assert [f.id for f in world.of(Flushed)] == ["f1", "f2", "f3"]
    ends = [f.at_ms for f in world.of(Flushed)]
    assert 0 < ends[0] < ends[1] == ends[2]
    at = world.messages.index(world.of(Flushed)[0])
    segments_before = {m.segment for m in world.messages[:at] if isinstance(m, Audio)}
    assert segments_before == {0}


def test_end_twice_and_late_messages_do_nothing():
    """`end` again, and cancel, flush, playback of a finished context, are no errors."""
    world = World()
    world.say(SENTENCE)
    world.send(End(ctx="a"))
    world.advance(10)
    world.send(End(ctx="a"), Cancel(ctx="a"), Flush(ctx="a"), Playback(ctx="a", played_ms=5))
    assert not world.of(Error)
    assert len(world.of(Done)) == 1


def test_text_after_end_is_refused_and_loses_nothing():
    """Text after `end` is a typed error; the context goes on to its end."""
    world = World(tone=ToneOptions(real_time_factor=0.5))
    world.say(SENTENCE)
    world.send(Text(ctx="a", text="too late. ", id="t9"))
    assert world.of(Error)[0].code == "bad_request"
    assert world.of(Error)[0].ref == "t9"
    world.advance(20)
    assert world.done().reason == "completed"


def test_flush_mode_waits_and_client_mode_does_not():
    """`flush` mode speaks only on flush; `client` mode speaks each message."""
    world = World()
    world.send(Start(ctx="f", chunking=Chunking(mode="flush")))
    world.send(Text(ctx="f", text="One sentence. And another sentence. "))
    world.advance(5)
    assert not world.of(SegmentStarted, "f")
    world.send(Flush(ctx="f"))
    world.advance(5)
    assert world.of(SegmentStarted, "f")
    world.send(Start(ctx="c", chunking=Chunking(mode="client")))
    world.send(Text(ctx="c", text="no mark here but it is a piece"))
    world.advance(1)
    assert len(world.of(SegmentStarted, "c")) == 1


def test_a_quiet_writer_is_not_waited_for():
    """Unfinished words are spoken once the writer has been quiet; no half word is."""
    world = World()
    world.send(Text(ctx="a", text="I was just about to say someth"))
    world.advance(3)
    assert world.of(SegmentStarted)
    assert not world.of(SegmentStarted)[0].text.rstrip().endswith("someth")


def test_a_context_with_nothing_to_speak_warns_and_completes():
    """Emoji only: a typed warning and `done`, never silence without a word."""
    world = World()
    world.say("🎉🎉 ... ")
    world.advance(1)
    assert world.of(Warned)[0].code == "no_speakable_text"
    assert world.done().reason == "completed"
    assert not world.of(Audio)


def test_what_cannot_be_spoken_is_warned_of_and_has_no_marks():
    """A skipped segment: a typed warning that names it, no word times, and the rest is spoken."""
    world = World(tone=ToneOptions(unspeakable=("Klingon",)))
    world.say("This part is spoken. Klingon words come here now. And this is spoken too. ")
    world.advance(20)
    (warning,) = world.of(Warned)
    assert (warning.code, warning.segment) == ("unspeakable_text", 1)
    assert [mark.segment for mark in world.of(Marks)] == [0, 2]
    assert world.done().reason == "completed"


def test_what_was_skipped_counts_as_passed_once_the_text_behind_it_is_heard():
    """`spoken` runs to the last word heard; a skipped segment before it is not cut out."""
    text = "This part is spoken. Klingon words come here now. And this is spoken too. "
    world = World(tone=ToneOptions(unspeakable=("Klingon",)))
    world.send(Text(ctx="a", text=text, flush=True))
    world.advance(0.5)
    world.send(Cancel(ctx="a", played_ms=3000))
    done = world.done()
    assert done.spoken.startswith("This part is spoken. Klingon words come here now. And")
    assert done.spoken + done.remaining == text


def test_break_is_silence_of_its_length():
    """`<break>` between sentences inserts exactly that much silence, flagged."""
    world = World()
    world.send(Start(ctx="a", format=Format(codec="pcm_s16le")))
    world.say('Wait for it, please. <break time="700ms"/> Now it is here. ')
    world.advance(20)
    silent = [m for m in world.of(Audio) if m.flags & AudioFlags.SILENCE]
    assert sum(len(m.data) for m in silent) == 2 * 24000 * 7 // 10
    assert not any(b for m in silent for b in m.data)
    first, second = world.of(SegmentStarted)
    made = sum(
        len(e.pcm) // 2 for e in world.events if isinstance(e, AudioProduced) and e.segment == 0
    )
    assert second.at_ms == pytest.approx(1000 * made / 24000 + 700, abs=0.01)
    assert first.at_ms == 0


def test_long_breaks_are_paced_like_speech():
    """Ten seconds of break do not run ahead of the lead."""
    world = World(SessionOptions(max_lead_s=2.0))
    world.say('Wait for it, please. <break time="10s"/> Now it is here. ')
    world.pump()
    assert world.audio_s() <= 2.1
    world.advance(30)
    assert world.done().reason == "completed"
    assert world.done().audio_ms > 10_000


# --- credit ----------------------------------------------------------------------------------

LONG = SENTENCE * 40


def test_lead_is_bounded_and_playback_never_starves():
    """A long reply runs at most the lead ahead and never stalls an honest player."""
    world = World()
    world.send(Text(ctx="a", text=LONG, end=True))
    while not world.of(Done):
        world.advance(0.25)
        played_s = world.now - world.sent_at[0]
        assert world.audio_s() - played_s <= 5.0 + 0.1
    assert world.done().metrics.stalls == 0
    assert world.done().audio_ms > 60_000
    assert world.done().metrics.max_lead_ms <= 5100


def test_a_client_that_never_reads_costs_at_most_the_lead():
    """Without answers to delivery markers, production stops at the lead and the client is cut."""
    world = World()
    world.reads = False
    world.send(Text(ctx="a", text=LONG, end=True))
    world.advance(29)
    produced = sum(len(e.pcm) // 2 for e in world.events if isinstance(e, AudioProduced)) / 24000
    assert produced <= 5.0 + 0.1
    world.advance(3)
    assert world.of(Error)[-1].code == "slow_consumer"
    assert world.of(Error)[-1].fatal
    assert world.session.closing.code == "slow_consumer"


def test_a_client_that_stops_reporting_costs_at_most_the_lead():
    """Once positions are reported they replace the clock: no report, no more speech."""
    world = World()
    world.send(Text(ctx="a", text=LONG, end=True))
    world.advance(1)
    world.send(Playback(ctx="a", played_ms=900))
    world.advance(20)
    assert world.audio_s() <= 0.9 + 5.0 + 0.1
    world.send(Playback(ctx="a", played_ms=5000))
    world.pump()
    assert 9.0 <= world.audio_s() <= 10.1


def test_figures_alone_are_no_position():
    """A report of figures without a position leaves the clock in charge."""
    world = World()
    world.send(Text(ctx="a", text=LONG, end=True))
    world.send(Playback(ctx="a", first_packet_ms=20.0, first_sound_ms=50.0, underruns=1))
    world.advance(90)
    assert world.done().reason == "completed"
    (record,) = world.session.take_records()
    assert record.client_first_packet_s == pytest.approx(0.02)
    assert record.client_underruns == 1


def test_a_figure_counts_once():
    """However often a client repeats its figures after the end, what comes of them is the last ones."""
    world = World()
    world.send(Text(ctx="a", text=LONG, end=True))
    world.send(Playback(ctx="a", first_packet_ms=20.0, underruns=1))
    world.advance(90)
    (record,) = world.session.take_records()
    for _ in range(3):
        world.send(Playback(ctx="a", first_packet_ms=20.0, first_sound_ms=50.0, underruns=4))
    world.send(Playback(ctx="a", underruns=3, stalled_ms=0.0))
    late = world.session.take_records()
    assert record.client_underruns + sum(each.underruns or 0 for each in late) == 4
    assert [each.first_sound_s for each in late if each.first_sound_s is not None] == [0.05]
    assert all(each.first_packet_s is None for each in late)


def test_what_no_player_counts_is_not_believed():
    """One client's nonsense does not end what a counter of all clients can count."""
    world = World()
    world.send(Text(ctx="a", text=LONG, end=True), Playback(ctx="a", underruns=2**53 - 1))
    world.advance(90)
    (record,) = world.session.take_records()
    assert record.client_underruns == 10_000


def test_who_was_refused_has_no_figures():
    """A context that never was reports nothing."""
    world = World()
    world.send(Start(ctx="a", voice="nobody"), Playback(ctx="a", first_sound_ms=50.0))
    assert world.session.take_records() == []


def test_a_full_transport_stops_production():
    """With the transport's buffer over the mark nothing more is granted until it drains."""
    world = World(SessionOptions(delivery_markers=False))
    world.send(Text(ctx="a", text=LONG))
    world.session.unsent(300_000, world.now)
    world.advance(20)
    assert world.audio_s() <= 5.1
    world.session.unsent(0, world.now)
    world.advance(1)
    assert world.audio_s() > 6


def test_unlimited_lead_is_for_files():
    """`max_lead_ms: 0` runs as fast as the engine, while the socket confirms."""
    world = World()
    world.send(Start(ctx="a", max_lead_ms=0))
    world.send(Text(ctx="a", text=LONG, end=True))
    world.pump()
    assert world.done().audio_ms > 60_000


def test_contexts_share_the_socket_fairly():
    """With several contexts waiting, messages alternate between them."""
    world = World()
    world.writable = False
    for ctx in "abc":
        world.send(Start(ctx=ctx), Text(ctx=ctx, text=SENTENCE, flush=True))
    world.writable = True
    world.pump()
    order = [m.ctx for m in world.of(Audio)]
    assert order[:9] == ["a", "b", "c"] * 3


# --- limits ----------------------------------------------------------------------------------


def test_refused_start_ends_once_and_its_text_is_ignored():
    """An unknown voice: error, one `done`, and the text already on its way is not spoken."""
    world = World()
    world.send(Start(ctx="a", voice="tine", id="s1"))
    error, done = world.messages
    assert (error.code, error.ctx, error.ref, error.fatal) == ("unknown_voice", "a", "s1", False)
    assert "tone" in error.message
    assert (done.reason, done.code) == ("error", "unknown_voice")
    world.send(Text(ctx="a", text=SENTENCE), Flush(ctx="a"), End(ctx="a"))
    assert len(world.messages) == 2
    world.send(Start(ctx="a", voice="tone"), Text(ctx="a", text=SENTENCE, end=True))
    world.advance(10)
    assert world.of(Done)[-1].reason == "completed"


@pytest.mark.parametrize(
    ("start", "code"),
    [
        (Start(ctx="a", language="klingon"), "unsupported_language"),
        (Start(ctx="a", format=Format(codec="mulaw", sample_rate=16000)), "unsupported_format"),
        (Start(ctx="a", speed=9.0), "bad_request"),
    ],
)
def test_what_cannot_be_made_is_refused_by_name(start, code):
    """Bad languages, formats and speeds are typed errors of that context only."""
    world = World()
    world.send(start)
    assert world.of(Error)[0].code == code
    assert world.session.closing is None


def test_limits_are_answered_and_nothing_else_is_lost():
    """Too many contexts, too long a text, a full buffer: typed, non-fatal, the rest goes on."""
    world = World(SessionOptions(max_contexts=2, max_text_chars=200))
    world.send(Start(ctx="a"), Start(ctx="b"), Start(ctx="c"))
    assert world.of(Error)[-1].code == "too_many_contexts"
    assert world.of(Error)[-1].retry_after_ms
    world.send(Text(ctx="a", text="x" * 201, id="long"))
    assert world.of(Error)[-1].code == "text_too_long"
    world.engine_runs = False
    world.send(Text(ctx="a", text="y " * 90), Text(ctx="a", text="z " * 20, id="full"))
    assert (world.of(Error)[-1].code, world.of(Error)[-1].ref) == ("text_buffer_full", "full")
    assert world.of(Error)[-1].retry_after_ms
    world.engine_runs = True
    world.send(End(ctx="a"), Text(ctx="b", text=SENTENCE, end=True))
    world.advance(60)
    assert world.done("a").reason == world.done("b").reason == "completed"


def test_message_rate_is_a_warning_first_and_an_end_later():
    """Over the rate: `rate_limited` with retry_after; going on with it ends the socket."""
    world = World(SessionOptions(max_messages_per_s=10))
    for _ in range(21):
        world.send(Ping())
    assert len(world.of(Pong)) == 20
    (error,) = world.of(Error)
    assert (error.code, error.fatal) == ("rate_limited", False)
    assert error.retry_after_ms >= 1
    for _ in range(20):
        world.send(Ping())
    assert world.of(Error)[-1].fatal
    assert world.session.closing.code == "rate_limited"


def test_ten_mistakes_end_the_socket_and_old_ones_are_forgiven():
    """Ten bad messages inside a minute close it; ten over an hour do not."""
    world = World()
    for _ in range(9):
        world.session.reject(MalformedJsonError("x"), world.now)
    world.advance(61)
    for _ in range(9):
        world.session.reject(MalformedJsonError("x"), world.now)
    assert world.session.closing is None
    world.session.reject(MalformedJsonError("x"), world.now)
    assert world.session.closing.code == "bad_json"


def test_overload_is_refused_with_when_to_come_back():
    """A predicted wait over the limit refuses the context, typed."""
    world = World(tone=ToneOptions(first_chunk_delay_s=1.0))
    for i in range(8):
        world.send(Start(ctx=f"c{i}"), Text(ctx=f"c{i}", text=SENTENCE))
        world.advance(0.06)
    codes = [e.code for e in world.of(Error)]
    assert "overloaded" in codes
    assert all(e.retry_after_ms for e in world.of(Error))


def test_an_engine_that_dies_fails_its_contexts_typed_and_the_socket_lives():
    """engine_dead: error and done for each context, new contexts refused until it is back."""
    world = World(tone=ToneOptions(real_time_factor=0.5))
    world.send(Text(ctx="a", text=SENTENCE, flush=True))
    world.advance(0.1)
    uid = next(c.utterance_id for c in world.commands if isinstance(c, StartUtterance))
    world.service.on_engine_event(EngineDown("killed", 0.5), world.now)
    world.deliver(UtteranceFailed(uid, "engine_dead", "the engine died", True, 0.5))
    world.pump()
    assert world.of(Error)[-1].code == "engine_dead"
    assert (world.done().reason, world.done().code) == ("error", "engine_dead")
    world.send(Start(ctx="b"))
    assert world.of(Error)[-1].code == "engine_dead"
    assert world.of(Error)[-1].retry_after_ms >= 250
    assert world.session.closing is None
    assert world.service.live_utterances == 0


# --- time ------------------------------------------------------------------------------------


def test_first_packet_is_split_by_stage_and_adds_up():
    """split + queue + model + encode + send == ttfa, and the budget's verdict is right."""
    world = World(SessionOptions(budget_s=0.1), ToneOptions(first_chunk_delay_s=0.2))
    world.send(Text(ctx="a", text="Sure, I can help "))
    world.advance(0.05)
    world.send(Text(ctx="a", text="you with that today. And "))
    world.advance(10)
    (first,) = world.of(FirstAudio)
    parts = first.split_ms + first.queue_ms + first.model_ms + first.encode_ms + first.send_ms
    assert first.ttfa_ms == pytest.approx(parts, abs=0.01)
    assert first.ttfa_ms == pytest.approx(200, abs=1)
    assert first.from_first_text_ms == pytest.approx(250, abs=1)
    assert first.within_budget is False
    world.send(End(ctx="a"))
    world.advance(10)
    (record,) = world.session.take_records()
    assert isinstance(record, UtteranceRecord)
    # The engine tells its parts, so it is one of them that is guilty; they are parts of its stage.
    assert record.guilty_stage == "prefill"
    assert set(record.parts) == set(ENGINE_PARTS)
    assert sum(record.parts.values()) == pytest.approx(record.stages["engine"], abs=0.01)
    assert record.within_budget is False
    assert world.service.budget_hit_rate == 0.0


def test_idle_sockets_and_idle_contexts_end():
    """Nothing for the idle timeout: the context expires, then the socket closes typed."""
    world = World(SessionOptions(idle_timeout_s=10))
    world.send(Text(ctx="a", text="and so"))
    world.advance(15)
    world.send(Ping())
    world.advance(9)
    assert world.done().reason == "expired" or world.of(SegmentStarted)
    world.advance(30)
    assert world.session.closing.code == "idle_timeout"


def test_a_new_session_is_not_born_idle():
    """On a host that has been up for long the first deadline still lies ahead."""
    world = World()
    assert world.session.next_deadline() >= world.now + 290


def test_a_session_that_lasted_its_time_is_asked_to_go():
    """goaway, running speech finishes, then a normal end."""
    world = World(SessionOptions(max_session_s=100, idle_timeout_s=1000))
    world.advance(99)
    world.send(Text(ctx="a", text=SENTENCE * 3, end=True))
    world.advance(2)
    assert world.of(GoAway)
    world.send(Start(ctx="b"))
    assert world.of(Error)[-1].code == "shutting_down"
    world.advance(20)
    assert world.done().reason == "completed"
    assert world.session.closing.code == "shutting_down"


def test_drain_lets_running_contexts_finish():
    """goaway with its deadline; what runs finishes; then the socket closes."""
    world = World()
    world.send(Text(ctx="a", text=SENTENCE, end=True))
    world.session.drain(20, world.now)
    world.pump()
    assert world.of(GoAway)[0].deadline_ms == 20_000
    world.advance(10)
    assert world.done().reason == "completed"
    assert world.session.closing.code == "shutting_down"


def test_drain_deadline_ends_the_rest():
    """What still runs at the deadline ends with `shutdown`."""
    world = World()
    world.send(Text(ctx="a", text=LONG, end=True))
    world.session.drain(3, world.now)
    world.advance(4)
    assert world.done().reason == "shutdown"
    assert world.done().spoken


def test_close_cancels_everything():
    """`close` ends all contexts and the socket, and cannot be resumed."""
    world = World()
    world.send(Text(ctx="a", text=LONG), Close())
    assert world.done().reason == "cancelled"
    assert world.session.closing.code == ""
    world.session.detach(world.now)
    assert world.session.is_over


def test_a_record_says_who_cancelled_and_how_long_silence_took():
    """`by` is the client's word or the socket's loss; the time ends when the last message is out."""
    world = World()
    world.send(Text(ctx="a", text=LONG), Text(ctx="b", text=LONG))
    world.advance(1.0)
    assert world.session.waiting_contexts == 0
    world.writable = False
    world.send(Cancel(ctx="a"))
    world.advance(0.25)
    world.writable = True
    world.pump()
    world.session.detach(world.now, resumable=False)
    first, second = world.session.take_records()
    assert (first.ctx, first.cancelled_by) == ("a", "client")
    assert first.cancel_s == pytest.approx(0.25, abs=0.01)
    assert (second.ctx, second.cancelled_by, second.cancel_s) == ("b", "disconnect", None)


def test_contexts_wait_until_their_audio_begins():
    """A context waits from its first segment until the engine's first sound."""
    world = World()
    world.engine_runs = False
    world.send(Text(ctx="a", text=SENTENCE, end=True), Text(ctx="b", text="not yet"))
    assert world.session.waiting_contexts == 1
    world.engine_runs = True
    world.advance(1.0)
    assert world.session.waiting_contexts == 0


def test_the_widest_gap_between_audio_messages_is_kept():
    """A pause of the transport shows as the gap it made."""
    world = World()
    world.send(Text(ctx="a", text=LONG))
    world.advance(1.0)
    world.writable = False
    world.advance(2.0)
    world.writable = True
    world.advance(60.0)
    world.send(Cancel(ctx="a"))
    (record,) = world.session.take_records()
    assert 2.0 <= record.widest_gap_s < 5.0


def test_stats_once_and_every_interval():
    """`stats` answers once, or pushes until told to stop."""
    world = World()
    world.send(Text(ctx="a", text=LONG), StatsRequest())
    assert world.of(Stats)[0].active_contexts == 1
    assert world.of(Stats)[0].buffered_ms["a"] > 0
    world.send(StatsRequest(interval_ms=500))
    world.advance(2)
    assert 5 <= len(world.of(Stats)) <= 6
    world.send(StatsRequest(interval_ms=0))
    n = len(world.of(Stats))
    world.advance(2)
    assert len(world.of(Stats)) == n


# --- resume ----------------------------------------------------------------------------------


def lose_and_resume(world, gap_s=1.0, ack=None):
    received = world.of(Audio)
    last = received[-1].seq if ack is None and received else (-1 if ack is None else ack)
    world.session.detach(world.now)
    world.advance(gap_s)
    before = len(world.messages)
    world.session.attach(world.now)
    world.session.resumed({"a": last}, world.now)
    world.pump()
    return world.messages[before:]


def test_resume_replays_what_was_missed_and_goes_on():
    """Audio after the acknowledged one comes again, flagged, and then the rest: no gap, no repeat."""
    world = World()
    world.send(Start(ctx="a", format=Format(codec="pcm_s16le")))
    world.send(Text(ctx="a", text=LONG, end=True, n=0))
    world.advance(4)
    kept = [m for m in world.of(Audio) if m.seq <= 40]
    after = lose_and_resume(world, 2.0, ack=40)
    assert isinstance(after[0], Resumed)
    assert after[0].contexts["a"].next_n == 1
    assert after[0].contexts["a"].text_ended
    again = [m for m in after if isinstance(m, Audio) and m.flags & AudioFlags.REPLAY]
    assert again[0].seq == 41
    assert again[-1].seq == after[0].contexts["a"].next_seq - 1
    mark = len(world.messages) - len(after)
    world.advance(120)
    later = [m for m in world.messages[mark:] if isinstance(m, Audio)]
    assert [m.seq for m in kept + later] == list(range(len(kept) + len(later)))
    made = b"".join(e.pcm for e in world.events if isinstance(e, AudioProduced))
    assert b"".join(m.data for m in kept + later) == made
    assert len(world.of(Done)) == 1


def test_resuming_two_contexts_keeps_markers_in_order():
    """A marker behind one context's replay is not confirmed by another context's later one."""
    world = World()
    world.send(Text(ctx="a", text=LONG), Text(ctx="b", text=LONG))
    world.advance(2)
    world.session.detach(world.now)
    world.advance(1)
    world.session.attach(world.now)
    world.session.resumed({"a": 3, "b": 30}, world.now)
    world.pump()
    world.advance(30)
    assert world.audio_s("a") > 30 and world.audio_s("b") > 30


def test_done_during_the_gap_is_told_after_it():
    """A context that finished while nobody listened is replayed with its `done`."""
    world = World()
    world.say(SENTENCE)
    world.session.detach(world.now)
    world.advance(5)
    world.session.attach(world.now)
    world.session.resumed({"a": -1}, world.now)
    world.pump()
    assert kinds(world).count("Done") == 2  # once into the void, once for real
    assert isinstance(world.messages[-1], Done)


def test_nobody_comes_back():
    """After the window everything ends and is written down."""
    world = World()
    world.send(Text(ctx="a", text=LONG))
    world.session.detach(world.now)
    world.advance(14)
    assert not world.session.is_over
    world.advance(2)
    assert world.session.is_over
    (record,) = world.session.take_records()
    assert record.reason == "expired"
    assert world.service.live_utterances == 0


def test_synthesis_in_the_gap_is_bounded_by_the_lead():
    """While nobody listens, no more than the lead is produced."""
    world = World()
    world.send(Text(ctx="a", text=LONG))
    world.advance(1)
    world.session.detach(world.now)
    world.advance(14)
    produced = sum(len(e.pcm) // 2 for e in world.events if isinstance(e, AudioProduced)) / 24000
    assert produced <= 1.0 + 5.0 + 0.2


def test_a_clean_close_is_a_silent_barge_in():
    """A client that hangs up on purpose costs nothing more."""
    world = World()
    world.send(Text(ctx="a", text=LONG))
    world.session.detach(world.now, resumable=False)
    assert world.session.is_over
    assert any(isinstance(c, CancelUtterance) for c in world.session.take_commands(world.now))


def test_numbered_text_is_idempotent():
    """Text below `next_n` is ignored, a gap is refused."""
    world = World()
    world.send(Text(ctx="a", text="Hello there. ", n=0), Text(ctx="a", text="Hello there. ", n=0))
    world.send(Text(ctx="a", text="More text comes. ", n=2))
    assert world.of(Error)[0].code == "bad_request"
    world.send(Text(ctx="a", text="More text comes. ", n=1, end=True))
    world.advance(10)
    assert world.done().text_chars == len("Hello there. More text comes. ")


def test_resume_failure_is_not_fatal():
    """A wrong token is an error on the new session, which goes on."""
    world = World()
    world.session.reject(ResumeFailedError("no such session"), world.now)
    world.say(SENTENCE)
    world.advance(10)
    assert world.of(Error)[0].fatal is False
    assert world.done().reason == "completed"


def test_commands_come_in_the_order_engines_need():
    """Start, then text, then finish; grants only raise."""
    world = World()
    world.send(Text(ctx="a", text=LONG, end=True))
    world.advance(120)
    names = [type(c).__name__ for c in world.commands]
    assert names[0] == "StartUtterance"
    assert names[1] == "AppendText"
    assert sum(isinstance(c, FinishText) for c in world.commands) == 1
    segments = [c.segment for c in world.commands if isinstance(c, AppendText)]
    assert segments == list(range(len(segments)))
    grants = [c.until_s for c in world.commands if isinstance(c, GrantAudio)]
    assert grants == sorted(grants)
    assert len(grants) < world.done().audio_ms / 1000
