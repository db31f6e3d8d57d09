"""Any order of client messages, engine events, timers, faults and disconnects keeps the promises.

The promises, checked after every step against what the client received:

* `started` comes first in a context, `done` last, each exactly once per stream; nothing follows;
* audio is numbered without gaps (replays aside) and follows its segment's announcement;
* flush acknowledgements come in the order asked, each at most once (replays aside);
* never more audio ahead of the client than its lead and one engine chunk;
* when everything is over, no utterance is live in the service or the engine.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rtts.engine.interface import AudioProduced, CancelUtterance, StartUtterance, UtteranceFailed
from rtts.engine.tone import ToneOptions
from rtts.errors import MalformedJsonError
from rtts.protocol.events import (
    Audio,
    AudioFlags,
    Cancel,
    Chunking,
    Close,
    Done,
    End,
    Error,
    Flush,
    Flushed,
    Format,
    Marks,
    Ping,
    Playback,
    Resumed,
    SegmentStarted,
    Start,
    Started,
    StatsRequest,
    Text,
)
from rtts.session import SessionOptions
from tests.session.world import World

NAMES = st.sampled_from(["a", "b", "c"])
TEXTS = st.sampled_from(
    [
        "Hello there, my friend. ",
        "wor",
        "d ",
        "One. Two! Three? ",
        "你好。我是小明。",
        "🎉",
        " ",
        "",
        '<break time="300ms"/>',
        "and on and on and on " * 8,
        "**bold** `code` ",
        "\n\n",
    ]
)
FORMATS = st.sampled_from(
    [
        None,
        Format(codec="pcm_s16le"),
        Format(codec="mulaw"),
        Format(codec="opus", container="ogg"),
        Format(codec="mulaw", sample_rate=44_100),
    ]
)
LEAD_S = 2.0
CHUNK_S = 0.08


class Conversation(RuleBasedStateMachine):
    """One client that does anything, one engine that does anything."""

    @initialize(
        rtf=st.sampled_from([0.0, 0.2, 1.5]),
        fail_at=st.sampled_from([None, None, 1]),
        markers=st.booleans(),
    )
    def begin(self, rtf, fail_at, markers):
        self.world = World(
            SessionOptions(
                max_lead_s=LEAD_S,
                max_contexts=2,
                max_text_chars=400,
                idle_timeout_s=20.0,
                resume_window_s=5.0,
                delivery_markers=markers,
            ),
            ToneOptions(
                real_time_factor=rtf,
                fail_at_segment=fail_at,
                unspeakable=("Three",),
                chunk_s=CHUNK_S,
            ),
        )
        self.n_flushes = 0
        self.seen = 0
        self.streams: dict[int, dict] = {}
        self.stream_of: dict[str, int] = {}

    @property
    def is_open(self):
        return self.world.session.closing is None

    # --- the client --------------------------------------------------------------------------

    @rule(
        ctx=NAMES,
        fmt=FORMATS,
        mode=st.sampled_from(["auto", "client", "flush"]),
        voice=st.sampled_from([None, "tone-low", "nobody"]),
    )
    def start(self, ctx, fmt, mode, voice):
        self.world.send(Start(ctx=ctx, format=fmt, chunking=Chunking(mode=mode), voice=voice))

    @rule(ctx=NAMES, text=TEXTS, flush=st.booleans(), end=st.booleans())
    def text(self, ctx, text, flush, end):
        self.world.send(Text(ctx=ctx, text=text, flush=flush, end=end))

    @rule(ctx=NAMES)
    def flush(self, ctx):
        self.n_flushes += 1
        self.world.send(Flush(ctx=ctx, id=f"{self.n_flushes:04d}"))

    @rule(ctx=NAMES)
    def end(self, ctx):
        self.world.send(End(ctx=ctx))

    @rule(ctx=NAMES, played_ms=st.none() | st.floats(0, 5000))
    def cancel(self, ctx, played_ms):
        self.world.send(Cancel(ctx=ctx, played_ms=played_ms))

    @rule()
    def cancel_all(self):
        self.world.send(Cancel(all=True))

    @rule(ctx=NAMES, share=st.floats(0, 1.5))
    def playback(self, ctx, share):
        self.world.send(Playback(ctx=ctx, played_ms=1000 * share * self.world.audio_s(ctx)))

    @rule()
    def ping(self):
        self.world.send(Ping(t=1))

    @rule(interval=st.sampled_from([None, 0, 500]))
    def stats(self, interval):
        self.world.send(StatsRequest(interval_ms=interval))

    @rule()
    def nonsense(self):
        self.world.session.reject(MalformedJsonError("not JSON"), self.world.now)
        self.world.pump()

    @precondition(lambda self: self.world.now > 1010)
    @rule()
    def close(self):
        self.world.send(Close())

    # --- the world ---------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.01, 0.2, 0.7, 3.0, 11.0]))
    def wait(self, seconds):
        self.world.advance(seconds)

    @rule(writable=st.booleans(), reads=st.booleans())
    def network(self, writable, reads):
        self.world.writable, self.world.reads = writable, reads
        self.world.session.unsent(0 if writable else 300_000, self.world.now)
        self.world.pump()

    @rule(runs=st.booleans())
    def engine_stalls(self, runs):
        self.world.engine_runs = runs
        self.world.pump()

    @rule(data=st.data())
    def engine_fails_one(self, data):
        live = [c.utterance_id for c in self.world.commands if isinstance(c, StartUtterance)]
        if live:
            uid = data.draw(st.sampled_from(live))
            self.world.core.apply(CancelUtterance(uid))
            self.world.deliver(UtteranceFailed(uid, "utterance_failed", "planned"))
            self.world.pump()

    @precondition(lambda self: self.world.session.is_attached and self.is_open)
    @rule(gap=st.sampled_from([0.0, 1.0, 4.0]), ack_all=st.booleans())
    def lose_and_resume(self, gap, ack_all):
        world = self.world
        world.session.detach(world.now)
        world.advance(gap)
        self.check_messages()
        acks = {name: self.last_seq(name) if ack_all else -1 for name in "abc"}
        world.writable = world.reads = True
        world.session.attach(world.now)
        world.session.resumed(acks, world.now)
        for stream in self.streams.values():
            stream["replaying"] = True
        world.pump()

    @rule()
    def drain(self):
        if self.world.now > 1020:
            self.world.session.drain(3.0, self.world.now)
            self.world.pump()

    def last_seq(self, name):
        stream = self.stream_of.get(name)
        return self.streams[stream]["seq"] if stream in self.streams else -1

    # --- the promises ------------------------------------------------------------------------

    @invariant()
    def check_messages(self):
        if not hasattr(self, "world"):
            return
        messages = self.world.messages
        for message in messages[self.seen :]:
            self.check(message)
        self.seen = len(messages)

    def check(self, message):
        if isinstance(message, Resumed):
            return
        name = getattr(message, "ctx", None)
        if name is None or isinstance(message, Error):
            return
        if isinstance(message, Started):
            known = self.streams.get(message.stream)
            assert known is None or known["replaying"], "started twice"
            if known is None:
                self.streams[message.stream] = {
                    "seq": -1,
                    "segments": set(),
                    "done": False,
                    "flush": "",
                    "replaying": False,
                    "pts": 0,
                }
            self.stream_of[name] = message.stream
            return
        is_error = isinstance(message, Done) and message.reason == "error"
        if is_error and (name not in self.stream_of or self.streams[self.stream_of[name]]["done"]):
            return  # a refused start
        state = self.streams[self.stream_of[name]]
        assert not state["done"] or state["replaying"], f"{message} after done"
        if isinstance(message, Audio):
            self.check_audio(message, state)
        elif isinstance(message, SegmentStarted):
            assert message.segment not in state["segments"] or state["replaying"]
            state["segments"].add(message.segment)
        elif isinstance(message, Flushed):
            if message.id is not None and not state["replaying"]:
                assert message.id > state["flush"]
                state["flush"] = message.id
        elif isinstance(message, Marks):
            assert message.segment in state["segments"]
        elif isinstance(message, Done):
            assert not state["done"] or state["replaying"]
            state["done"] = True
            if message.spoken is not None:
                assert len(message.spoken) + len(message.remaining) == message.text_chars

    def check_audio(self, message, state):
        assert message.stream == self.stream_of[message.ctx]
        if message.flags & AudioFlags.REPLAY:
            assert message.seq <= state["seq"] + 1 or state["replaying"]
        else:
            assert message.seq == state["seq"] + 1, (message.seq, state["seq"])
        state["seq"] = max(state["seq"], message.seq)
        if not message.flags & AudioFlags.SILENCE:
            assert message.segment in state["segments"]

    @invariant()
    def credit_is_kept(self):
        if not hasattr(self, "world"):
            return
        made: dict[int, float] = {}
        for event in self.world.events:
            if isinstance(event, AudioProduced):
                made[event.utterance_id] = made.get(event.utterance_id, 0) + len(event.pcm) / 48000
        for context in self.world.session._roster.running.values():
            if context.utterance_id:
                heard = context.pacer.position_s(self.world.now)
                ahead = made.get(context.utterance_id, 0.0) - heard
                assert ahead <= LEAD_S + CHUNK_S + 1e-6

    def teardown(self):
        if not hasattr(self, "world"):
            return
        world = self.world
        world.writable = world.reads = world.engine_runs = True
        world.session.unsent(0, world.now)
        world.session.shutdown(world.now)
        world.pump()
        self.check_messages()
        for name, stream in self.stream_of.items():
            assert self.streams[stream]["done"] or not world.session.is_attached, name
        assert world.session.active_contexts == 0
        assert world.service.live_utterances == 0
        world.session.detach(world.now)
        world.session.take_records()
        world.pump()
        assert world.session.is_over
        world.advance(1)
        assert not world.core.has_work()


TestConversation = Conversation.TestCase
TestConversation.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
