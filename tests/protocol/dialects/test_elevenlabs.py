"""ElevenLabs' API: what clients send in whatever order, and what they can rely on."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.wav import read_wav
from rtts.engine.tone import ToneOptions
from rtts.errors import BadRequestError, ProtocolError, RttsError
from rtts.protocol import elevenlabs, elevenlabs_lists, reading
from rtts.protocol import elevenlabs_sockets as sockets
from rtts.protocol.dialect import Request
from rtts.protocol.events import Auth, Done, Error, Marks, Started
from rtts.voices.aliases import AliasOptions
from tests.protocol.dialects.world import SocketWorld, SpeechWorld, house
from tests.protocol.strategies import JSON

TEXT = "Hello there, this is a test. It goes on for a while."
SLOW = ToneOptions(real_time_factor=0.5)
PCM = {"output_format": "pcm_24000", "model_id": "eleven_flash_v2_5"}


def asking(query: dict[str, str] | None = None) -> Request:
    return Request(params={"voice": "21m00Tcm4TlvDq8ikWAM"}, query=PCM | (query or {}))


def multi(*messages, query: dict[str, str] | None = None, **rest) -> SocketWorld:
    world = SocketWorld(sockets.MultiStream, asking(query), **rest)
    world.tell(*messages)
    return world


def single(*messages, query: dict[str, str] | None = None, **rest) -> SocketWorld:
    world = SocketWorld(sockets.SingleStream, asking(query), **rest)
    world.tell(*messages)
    return world


def say(text: str, ctx: str = "a", **fields) -> dict:
    return {"text": text, "context_id": ctx, **fields}


def flush(ctx: str = "a") -> dict:
    return {"context_id": ctx, "flush": True}


def close(ctx: str = "a") -> dict:
    return {"context_id": ctx, "close_context": True}


def audio(world: SocketWorld, ctx: str | None = "a") -> bytes:
    frames = [f for f in world.frames if f.get("audio") and f.get("contextId") == ctx]
    return b"".join(base64.b64decode(frame["audio"]) for frame in frames)


def finals(world: SocketWorld) -> list[str | None]:
    return [f.get("contextId") for f in world.frames if f.get("isFinal")]


def told(world: SocketWorld, ctx: str | None = "a") -> list[tuple[float, dict]]:
    """Each alignment, with the place where its message's audio begins, in ms."""
    at_ms, found = 0.0, []
    for frame in world.frames:
        if frame.get("contextId") == ctx and "audio" in frame:
            if frame["alignment"]:
                found.append((at_ms, frame["alignment"]))
            at_ms += len(base64.b64decode(frame["audio"] or "")) / 48
    return found


# --- contexts ------------------------------------------------------------------------------------


def test_a_turn():
    """Opened by a space, spoken as it comes, flushed and closed: all audio, and one `isFinal`."""
    world = multi(say(" ", voice_settings={"stability": 0.5}), say("Hello there, this is "))
    world.tell(say("a test. It goes on for a while. "), flush(), close())
    world.advance(60.0)
    assert len(audio(world)) == 2 * world.done().samples > 20_000
    assert finals(world) == ["a"] and world.frames[-1]["isFinal"] and world.hangup is None
    assert {f["context_id"] for f in world.frames} == {f["contextId"] for f in world.frames}


@pytest.mark.parametrize("bare", [flush(), say("", flush=True), say(" ", flush=True)])
def test_close_behind_a_flush_waits_for_the_audio(bare):
    """A flush by itself ends the text: closing speaks the rest, however much later it comes."""
    world = multi(say(TEXT), bare, tone=SLOW)
    world.advance(0.3)
    world.tell(close())
    world.advance(60.0)
    assert world.done().reason == "completed" and world.done().text_chars >= len(TEXT)
    assert finals(world) == ["a"]


@pytest.mark.parametrize("fields", [{}, {"flush": True}])
def test_close_after_text_is_an_interruption(fields):
    """Text behind the last flush, and then a close: the engine stops at once."""
    world = multi(say(TEXT * 3), flush(), say(TEXT * 3, **fields), tone=SLOW)
    world.advance(1.1)
    heard = len(audio(world))
    world.tell(close())
    assert finals(world) == ["a"] and world.done().reason == "cancelled"
    world.advance(10.0)
    assert 0 < len(audio(world)) == heard and world.service.live_utterances == 0


def test_close_right_behind_flushed_text_is_its_end():
    """What was set to flush goes on: clients that put the flush into their last text lose nothing."""
    world = multi(say(" "), say(TEXT, flush=True), close())
    world.advance(60.0)
    assert world.done().reason == "completed" and len(audio(world)) > 20_000
    assert finals(world) == ["a"]


def test_close_once_flushed_text_is_heard_is_an_interruption():
    """A listener has heard the beginning of the last text, and interrupts."""
    world = multi(say(TEXT * 3, flush=True), tone=SLOW)
    world.advance(0.2)
    assert audio(world)
    world.tell(close())
    assert finals(world) == ["a"] and world.done().reason == "cancelled"


@pytest.mark.parametrize(("wait_s", "reason"), [(0.0, "completed"), (0.2, "cancelled")])
def test_close_behind_sentences_of_auto_mode(wait_s, reason):
    """Sentences are on their way as they come: a close right behind them is the end, a later one not."""
    world = multi(say(TEXT * 3), say("And this."), query={"auto_mode": "true"}, tone=SLOW)
    world.advance(wait_s)
    world.tell(close())
    world.advance(60.0)
    assert world.done().reason == reason and finals(world) == ["a"]


def test_a_second_close_is_an_interruption():
    """A client that had closed its context closes it again to say that nobody listens."""
    world = multi(say(TEXT * 5), flush(), close(), tone=SLOW)
    world.advance(0.5)
    assert not finals(world)
    world.tell(close())
    assert finals(world) == ["a"] and world.service.live_utterances == 0
    world.tell(close())
    world.advance(10.0)
    assert finals(world) == ["a"] and not world.of_type("error", "error")


def test_a_closed_name_is_free():
    """The same id right after its close is another context, and is heard behind the first."""
    world = multi(say("One two three."), flush(), close(), tone=SLOW)
    world.tell(say("Four five."), flush(), close(), say("Six."), flush(), close())
    world.advance(60.0)
    first, second, third = world.of(Done)
    texts = ("One two three.", "Four five.", "Six.")
    assert [done.text_chars for done in (first, second, third)] == [len(text) for text in texts]
    ends = [at for at, frame in enumerate(world.frames) if frame.get("isFinal")]
    spoken = ["".join(f["alignment"]["chars"]) for f in world.frames if f.get("alignment")]
    assert "".join(spoken).split() == " ".join(texts).split()
    assert len(ends) == 3 and ends[-1] == len(world.frames) - 1
    assert len(audio(world)) == 2 * sum(done.samples for done in (first, second, third))


@pytest.mark.parametrize("closes", [1, 2])
def test_an_interruption_is_of_all_that_waits_under_a_name(closes):
    """A close that interrupts stops what is spoken under the name and what waits behind it."""
    world = multi(say("One two three."), flush(), close(), tone=SLOW)
    world.tell(say("Four five."), flush(), close(), say("Six."), *[close()] * closes)
    assert sorted(finals(world)) == ["a", "a", "a"] and world.service.live_utterances == 0
    world.tell(say("Seven."), flush(), close())
    world.advance(60.0)
    assert world.of(Done)[-1].reason == "completed" and len(finals(world)) == 4
    assert not world.of_type("error", "error")


def test_text_that_waits_for_its_name_is_limited():
    """What is held for another context is bounded, as what a session holds is."""
    world = multi(say("One two three."), flush(), close(), tone=SLOW)
    world.tell(*[say("word " * 2000)] * 5)
    assert [e["contextId"] for e in world.of_type("text_buffer_full", "error")] == ["a"]


@pytest.mark.parametrize("sign", [{"text": ""}, say(""), say(" ")])
def test_signs_of_life_are_no_text(sign):
    """Empty texts, with and without a context, end nothing, and the socket stays open."""
    world = multi(sign, say(" "), tone=SLOW)
    for _ in range(60):
        world.advance(10.0)
        world.tell(sign)
    assert world.hangup is None and not world.frames
    world.tell(say("Hello."), flush(), close())
    world.advance(5.0)
    assert finals(world) == ["a"] and audio(world)


def test_what_was_never_opened():
    """Closing or flushing a context that is not there is nothing; one without text ends at once."""
    world = multi(close("x"), flush("y"), say("", "z", flush=True))
    assert not world.frames
    world.tell(say(" "), flush(), close())
    assert finals(world) == ["a"] and not world.of(Started)


def test_contexts_interleave_and_may_be_nameless():
    """Each gets its own audio, whole; a message without an id belongs to one of its own."""
    world = multi(say(TEXT, "a"), say(TEXT, "b"), {"text": TEXT})
    for each in ("a", "b"):
        world.tell(flush(each), close(each))
    world.tell({"flush": True}, {"close_context": True})
    world.advance(60.0)
    assert audio(world, "a") == audio(world, "b") == audio(world, "default") != b""
    assert sorted(finals(world)) == ["a", "b", "default"]


def test_both_spellings_of_the_context():
    """`contextId` is read as `context_id`."""
    world = multi({"text": TEXT, "contextId": "q"}, {"contextId": "q", "flush": True}, close("q"))
    world.advance(60.0)
    assert finals(world) == ["q"] and audio(world, "q")


@pytest.mark.parametrize("name", ["x" * 5000, "a\nb\0c", "\N{GRINNING FACE}", "ü \\ \" '"])
def test_any_name(name):
    """Names of contexts are the client's, whatever is in them."""
    world = multi(say("Hello.", name), flush(name), close(name))
    world.advance(10.0)
    assert finals(world) == [name] and audio(world, name)


def test_closing_the_socket():
    """Everything is spoken and ended first, then 1000; with nothing open at once."""
    world = multi({"close_socket": True})
    assert world.hangup.code == 1000
    world = multi(say(TEXT, "a"), say(" ", "b"), say(TEXT, "c"), flush("c"), close("c"))
    world.tell({"close_socket": True}, say("More.", "d"))
    world.advance(60.0)
    assert world.hangup.code == 1000 and sorted(finals(world)) == ["a", "b", "c"]
    assert {done.reason for done in world.of(Done)} == {"completed"}


def test_a_forgotten_context_is_closed():
    """Nobody speaks of it for the timeout: what it has is spoken, and it ends; the socket stays."""
    world = multi(say("Hello there"), query={"inactivity_timeout": "30"})
    world.advance(29.0)
    world.tell({"text": ""})
    world.advance(29.0)
    assert not finals(world)
    world.advance(3.0)
    assert finals(world) == ["a"] and audio(world) and world.hangup is None
    assert world.dialect.deadline is None


def test_an_emoji_is_a_little_silence():
    """A context whose text has nothing to speak still has audio: without it clients try again."""
    world = multi(say("\N{GRINNING FACE} "), flush(), close())
    world.advance(5.0)
    assert len(audio(world)) == 4800 and finals(world) == ["a"]


def test_sentences_without_a_space():
    """With auto_mode a message is a sentence: spoken at once, and apart from the next one."""
    world = multi(say("Hello there."), query={"auto_mode": "true"})
    world.advance(0.01)
    assert audio(world)
    world.tell(say("How are you?"), say(" Well."), say("好。"), say("好。"), flush(), close())
    world.advance(60.0)
    assert world.done().text_chars == len("Hello there. How are you? Well. 好。好。")
    world = multi(say("Hel"), say("lo."), flush(), close())
    world.advance(60.0)
    assert world.done().text_chars == len("Hello.")


def test_settings_are_the_first_message_s():
    """Speed is brought into range; a context without settings has those of the socket's first one."""

    def started(world: SocketWorld, ctx: str) -> float:
        return world.session._roster.running[ctx].options.speed

    fast = {"voice_settings": {"speed": 1.2, "stability": 0.3, "style": None}}
    world = multi(say(" ", **fast), say("Hello."), say("Hi.", "b"), tone=SLOW)
    slowest, fastest = house(SLOW).capabilities.speed_range
    assert started(world, "a") == started(world, "b") == min(1.2, fastest)
    world.tell(say("Hi.", "c", voice_settings={"speed": 0.01}))
    assert started(world, "c") == max(0.01, slowest)


def test_the_schedule_is_the_least_of_the_first_piece():
    """`chunk_length_schedule` is taken from the first message, and anything in it is legal."""
    for schedule in ([50], [500.5, 10], [], None, [0], [10**9]):
        world = multi(say(" ", generation_config={"chunk_length_schedule": schedule}), say("Hi."))
        world.tell(flush(), close())
        world.advance(5.0)
        assert finals(world) == ["a"], schedule


# --- times of characters -------------------------------------------------------------------------


def test_alignments_are_the_text_at_its_time():
    """Each message's times count from its own audio: put there, words are where they are heard."""
    world = multi(say(TEXT), flush(), close())
    world.advance(60.0)
    chars, starts = [], []
    for at_ms, alignment in told(world):
        lengths = {len(values) for values in alignment.values()}
        assert len(lengths) == 1 and min(alignment["charDurationsMs"]) >= 0
        chars += alignment["chars"]
        starts += [at_ms + each for each in alignment["charStartTimesMs"]]
    assert "".join(chars) == TEXT + " "
    for marks in world.of(Marks):
        for (begin, _), (_, start_ms, _) in zip(marks.chars, marks.items, strict=True):
            # The first word of a segment is told with its second message.
            assert starts[begin] == pytest.approx(start_ms, abs=81)


@pytest.mark.parametrize("is_exact", [True, False])
def test_clients_that_add_up_spans_keep_time(is_exact, monkeypatch):
    """How long a segment's characters last is how long its audio does: clocks do not drift."""
    monkeypatch.setattr(sockets, "knows_words", lambda house: is_exact)
    world = multi(say(" ".join([TEXT] * 4)), flush(), close())
    world.advance(120.0)
    clock_ms, words = 0.0, {}
    for _, alignment in told(world):
        for char, start in zip(alignment["chars"], alignment["charStartTimesMs"], strict=True):
            words.setdefault(len(words), (char, clock_ms + start))
        clock_ms += alignment["charStartTimesMs"][-1] + alignment["charDurationsMs"][-1]
    # An estimate that was too long is made up for by later segments only.
    assert clock_ms == pytest.approx(world.done().audio_ms, abs=100 if is_exact else 400)
    assert "".join(char for char, _ in words.values()).split() == (" ".join([TEXT] * 4)).split()


def test_words_are_told_soon():
    """Times come with the audio they belong to, and not at the end."""
    world = multi(say(TEXT), flush(), close(), tone=ToneOptions(real_time_factor=0.9))
    world.advance(0.5)
    assert told(world) and not finals(world)


# --- errors and refusals -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        {"output_format": "pcm_12345"},
        {"output_format": "aac_44100"},
        {"output_format": "mp3_44100_33"},
        {"output_format": "mp3_44100"},
        {"output_format": "ulaw_16000"},
        {"output_format": "opus_24000_32"},
        {"output_format": "opus_48000_999"},
        {"output_format": "wav_24000"},
        {"output_format": "pcm_24000_1_1"},
        {"output_format": "pcm_²"},
        {"language_code": "tlh"},
        {"seed": "minus one"},
        {"inactivity_timeout": "soon"},
    ],
)
@pytest.mark.parametrize("surface", [sockets.MultiStream, sockets.SingleStream])
def test_what_cannot_be_done_is_refused_at_the_handshake(query, surface):
    """In their shape: a `detail` with a status and a message."""
    with pytest.raises(RttsError) as refused:
        surface(asking(query), house())
    said = Error(code=refused.value.code, message=refused.value.message, fatal=True)
    reply = surface.refusal(said)
    assert reply.status == 400 and json.loads(reply.body)["detail"]["message"]


def test_a_model_the_operator_does_not_have():
    """The alias table can make model ids strict."""
    aliases = AliasOptions(models={"eleven_flash_v2_5": "another"})
    with pytest.raises(BadRequestError):
        sockets.MultiStream(asking(), house(aliases=aliases))


def test_an_utterance_that_fails_is_an_error_and_an_end():
    """One error with the context's id, and `isFinal`, for which some clients wait."""
    world = multi(say(TEXT), flush(), close(), tone=ToneOptions(fail_at_segment=0))
    world.advance(10.0)
    error, final = world.frames
    assert error["error"] and error["message"] and error["code"] == 1011
    assert error["contextId"] == final["contextId"] == "a" and final["isFinal"]
    world.tell(say("Hi.", "b"))
    assert world.hangup is None


@pytest.mark.parametrize("surface", [sockets.MultiStream, sockets.SingleStream])
def test_a_server_that_stops_says_so(surface):
    """Speech that the server cut off is no normal end."""
    dialect = surface(asking(), house())
    start, *_ = dialect.receive(json.dumps({"text": TEXT, "context_id": "a"}).encode(), 0.0)
    cut = Done(
        ctx=start.ctx,
        reason="shutdown",
        segments=1,
        last_seq=3,
        audio_ms=1.0,
        samples=24,
        text_chars=9,
    )
    said = list(dialect.send(cut))
    assert json.loads(said[0])["error"] == "shutting_down"
    if surface is sockets.MultiStream:
        assert json.loads(said[1])["isFinal"] and len(said) == 2
    else:
        assert said[1].code >= 1008 and len(said) == 2


def test_too_many_contexts_are_errors_of_their_own():
    """One context too many fails, and the socket and the others go on."""
    world = multi(*(say("Hello there.", f"c{n}") for n in range(25)), tone=SLOW)
    world.advance(1.0)
    errors = [f for f in world.frames if f.get("error")]
    assert {f["error"] for f in errors} == {"max_active_conversations"} and len(errors) == 5
    assert sorted(finals(world)) == sorted(f["contextId"] for f in errors)
    assert world.hangup is None and audio(world, "c0")


def test_contexts_that_say_nothing_are_limited_too():
    """Opening them without end is refused, context by context."""
    world = multi(*(say(" ", f"c{n}") for n in range(100)))
    errors = [f for f in world.frames if f.get("error")]
    assert len(errors) == len(finals(world)) == 100 - sockets.MAX_CONTEXTS
    assert len(world.dialect._contexts) == sockets.MAX_CONTEXTS and world.hangup is None


def test_nonsense_is_an_error():
    """What is no JSON, or wrong in a field, is answered, and the contexts go on."""
    world = multi(say(TEXT), tone=SLOW)
    world.tell("{", '{"text": 3}', '{"voice_settings": {"speed": "fast"}}')
    errors = [f for f in world.frames if f.get("error")]
    assert len(errors) == 3 and all(f["message"] and f["code"] == 1008 for f in errors)
    world.tell(flush(), close())
    world.advance(20.0)
    assert finals(world) == ["a"]


def test_a_key_in_the_first_message():
    """A client that could set no header shows its key there, in any of three fields."""
    for shown in ({"xi-api-key": "k"}, {"xi_api_key": "k"}, {"authorization": "Bearer k"}):
        for surface in (sockets.MultiStream, sockets.SingleStream):
            dialect = surface(asking(), house())
            first, *_ = dialect.receive(json.dumps({"text": " ", **shown}).encode(), 0.0)
            assert first == Auth(token="k")
            later = dialect.receive(json.dumps({"text": "Hi. ", **shown}).encode(), 0.0)
            assert not any(isinstance(step, Auth) for step in later)
    headed = Request(headers={"xi-api-key": "k"}, query=PCM)
    dialect = sockets.MultiStream(headed, house())
    assert Auth(token="k") not in list(dialect.receive(b'{"text":" ","xi-api-key":"k"}', 0.0))


def test_keys_in_the_query():
    """Browsers put single-use tokens there."""
    keys = elevenlabs.ElevenLabs.keys
    assert keys(Request(query={"single_use_token": "t", "x": "y"})) == ["t"]
    assert keys(Request(query={"authorization": "Bearer t"})) == ["t"]


# --- one utterance -------------------------------------------------------------------------------


def test_a_stream():
    """Words as they come, an empty text, all audio, `isFinal`, and a normal close."""
    init = {"text": " ", "try_trigger_generation": True, "voice_settings": None}
    world = single(init | {"generation_config": {"chunk_length_schedule": [50]}})
    for word in TEXT.split():
        world.tell({"text": word + " ", "try_trigger_generation": True})
    world.advance(0.1)
    assert audio(world, None)
    world.tell({"text": ""}, {"text": "more"}, {"text": ""})
    world.advance(60.0)
    assert len(audio(world, None)) == 2 * world.done("speech").samples > 20_000
    assert world.frames[-1]["isFinal"] and world.frames[-1]["audio"] is None
    assert finals(world) == [None] and world.hangup.code == 1000
    assert "".join(c for _, a in told(world, None) for c in a["chars"]).split() == TEXT.split()


@pytest.mark.parametrize("messages", [[{"text": ""}], [{"text": " "}, {"text": ""}]])
def test_a_stream_of_nothing_ends(messages):
    """The end of a text that never came: `isFinal` and a normal close."""
    world = single(*messages)
    assert finals(world) == [None] and world.hangup.code == 1000


def test_a_flush_keeps_the_stream_open():
    """Flushed text is spoken without punctuation; a space is a sign of life."""
    world = single({"text": " "}, {"text": "Hello there ", "flush": True})
    world.advance(0.01)
    assert audio(world, None)
    for _ in range(5):
        world.advance(15.0)
        world.tell({"text": " "})
    assert world.hangup is None
    world.tell({"text": "Bye. "}, {"text": ""})
    world.advance(10.0)
    assert world.hangup.code == 1000 and world.done("speech").reason == "completed"


@pytest.mark.parametrize("messages", [[], [{"text": " "}], [{"text": "Hello there, "}]])
def test_a_stream_that_is_forgotten(messages):
    """After the timeout what came is spoken; the client is told why, and closed with 1008."""
    world = single(*messages)
    world.advance(19.0)
    assert world.hangup is None
    world.advance(5.0)
    assert world.frames[-1]["error"] == "input_timeout_exceeded" and world.hangup.code == 1008
    assert world.frames[-1]["code"] == 1008 and not finals(world)
    assert bool(audio(world, None)) == bool(messages and messages[-1]["text"].strip())


def test_a_stream_that_fails():
    """The error is told, and no normal close follows."""
    world = single({"text": TEXT}, {"text": ""}, tone=ToneOptions(fail_at_segment=0))
    world.advance(10.0)
    [error] = world.frames
    assert error["error"] and error["message"] and world.hangup.code == 1011


# --- anything ------------------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", None])
TEXTS = st.sampled_from(
    ["", " ", "Hello.", "Hello th", "\N{GRINNING FACE}", "so on, and on. ", None]
)
MESSAGES = st.one_of(
    st.builds(
        lambda text, ctx, fields: {"text": text, "context_id": ctx, **fields},
        TEXTS,
        NAMES,
        st.sampled_from([{}, {"flush": True}, {"voice_settings": {"speed": 1.1}}]),
    ),
    st.builds(lambda ctx: {"context_id": ctx, "flush": True}, NAMES),
    st.builds(lambda ctx: {"context_id": ctx, "close_context": True}, NAMES),
    st.sampled_from([0.03, 1.0, 21.0]),
)


@settings(max_examples=80, deadline=None)
@given(st.lists(MESSAGES, max_size=14), st.sampled_from(["true", "false"]), st.integers(0, 14))
def test_any_order_of_messages(messages, auto, close_at):
    """Each context ends once, after its audio; nothing is left behind; the socket ends normally."""
    world = multi(query={"auto_mode": auto}, tone=ToneOptions(real_time_factor=0.3))
    for index, message in enumerate(messages):
        if index == close_at:
            world.tell({"close_socket": True})
        if isinstance(message, float):
            world.advance(message)
        else:
            world.tell(message)
    world.advance(200.0)  # an idle socket is closed at 300
    world.tell({"close_socket": True})
    world.advance(1.0)
    assert world.hangup is not None and world.hangup.code == 1000
    assert not [f for f in world.frames if f.get("error")]
    assert len(finals(world)) >= len(world.of(Started)) == len(world.of(Done))
    assert not world.dialect._contexts and not world.dialect._open_ones
    assert world.service.live_utterances == 0 and world.session.active_contexts == 0
    for name in ("a", "b", "default"):
        own = [f for f in world.frames if f.get("contextId") == name]
        assert not own or own[-1].get("isFinal")


@settings(max_examples=60, deadline=None)
@given(st.lists(MESSAGES, max_size=8))
def test_any_order_in_a_stream(messages):
    """One `isFinal` or one error, and the close that goes with it."""
    world = single(tone=ToneOptions(real_time_factor=0.3))
    for message in messages:
        if isinstance(message, float):
            world.advance(message)
        else:
            world.tell(message)
    world.advance(200.0)
    errors = [f for f in world.frames if f.get("error")]
    assert len(finals(world)) + len(errors) == 1
    assert world.hangup.code == (1008 if errors else 1000)
    assert world.service.live_utterances == 0


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_json_is_answered(value):
    """Whatever a client sends: steps or a typed error, never another exception."""
    fields = ("text", "context_id", "flush", "close_context", "voice_settings", "generation_config")
    for body in (value, *(say("Hi.") | {name: value} for name in fields)):
        for world in (multi(json.dumps(body)), single(json.dumps(body))):
            assert all(isinstance(frame, dict) for frame in world.frames)


# --- HTTP ----------------------------------------------------------------------------------------


def spoken(surface=elevenlabs.Speech, body: dict | None = None, **query) -> SpeechWorld:
    asked = {"text": TEXT, "model_id": "eleven_flash_v2_5"} | (body or {})
    world = SpeechWorld(surface, asked, params={"voice": "any"}, query=PCM | query)
    world.advance(60.0)
    return world


@pytest.mark.parametrize(
    ("name", "bytes_per_s", "content_type"),
    [
        *((f"pcm_{r}", 2 * r, "audio/pcm") for r in (8000, 16_000, 22_050, 24_000, 32_000)),
        *((f"pcm_{r}", 2 * r, "audio/pcm") for r in (44_100, 48_000)),
        ("ulaw_8000", 8000, "audio/basic"),
        ("alaw_8000", 8000, "audio/x-alaw-basic"),
        ("mp3_22050_32", 4000, "audio/mpeg"),
        ("mp3_24000_48", 6000, "audio/mpeg"),
        *((f"mp3_44100_{kbps}", 125 * kbps, "audio/mpeg") for kbps in (32, 64, 96, 128, 192)),
        *(
            (f"opus_48000_{kbps}", None, "audio/ogg; codecs=opus")
            for kbps in (32, 64, 96, 128, 192)
        ),
        *((f"wav_{r}", 2 * r, "audio/wav") for r in (8000, 24_000, 48_000)),
    ],
)
def test_every_format(name, bytes_per_s, content_type):
    """Each documented name is made, as long as the speech is, and says what it is."""
    world = spoken(output_format=name)
    seconds = world.of(Done)[0].audio_ms / 1000
    assert world.hangup.code == 1000 and world.dialect.head(None).content_type == content_type
    if bytes_per_s:
        assert len(world.body) == pytest.approx(bytes_per_s * seconds, rel=0.1)
    else:
        assert world.body.startswith(b"OggS")
    if name.startswith("wav"):
        assert read_wav(world.body).pcm


def test_the_default_is_mp3():
    """Without a word about it: 44.1 kHz, 128 kbit/s."""
    world = SpeechWorld(elevenlabs.Speech, {"text": TEXT})
    world.advance(60.0)
    assert len(world.body) == pytest.approx(16 * world.of(Done)[0].audio_ms, rel=0.1)


def test_lines_with_times():
    """`stream/with-timestamps`: audio and times from the beginning, a line each."""
    world = spoken(elevenlabs.TimedStream)
    lines = [json.loads(line) for line in world.body.decode().splitlines()]
    data = b"".join(base64.b64decode(line["audio_base64"]) for line in lines)
    assert len(data) == 2 * world.of(Done)[0].samples
    told = [line["alignment"] for line in lines if line["alignment"]]
    assert "".join(c for each in told for c in each["characters"]) == TEXT + " "
    starts = [s for each in told for s in each["character_start_times_seconds"]]
    ends = [s for each in told for s in each["character_end_times_seconds"]]
    assert starts == sorted(starts) and ends[-1] == pytest.approx(len(data) / 48_000, abs=0.01)
    assert all(a <= b for a, b in zip(starts, ends, strict=True))


@pytest.mark.parametrize("name", ["pcm_24000", "mp3_22050_32", "alaw_8000"])
def test_one_object_with_times(name):
    """`with-timestamps`: the characters are the text, and the audio is what is sent without times."""
    world = spoken(elevenlabs.Timed, output_format=name)
    said = json.loads(world.body)
    assert "".join(said["alignment"]["characters"]) == TEXT
    assert said["alignment"] == said["normalized_alignment"]
    assert base64.b64decode(said["audio_base64"], validate=True) == spoken(output_format=name).body
    assert len(world.pieces) > 5


def test_one_object_of_silence():
    """A text with nothing to speak is a little silence and no times that would not fit it."""
    world = spoken(elevenlabs.Timed, {"text": "\N{GRINNING FACE}"})
    said = json.loads(world.body)
    assert len(base64.b64decode(said["audio_base64"])) == 4800
    assert len(said["alignment"]["characters"]) <= 1


@pytest.mark.parametrize(
    "body",
    [
        {"text": ""},
        {"text": None},
        {"text": TEXT, "seed": "x"},
        {"text": TEXT, "language_code": "x"},
    ],
)
def test_requests_that_are_refused(body):
    """Wrong fields are named in the complaint."""
    asked = Request(body=json.dumps(body).encode(), query=PCM)
    with pytest.raises(ProtocolError) as refused:
        elevenlabs.Speech(asked, house())
    assert any(name in refused.value.message for name in ("text", "seed", "language_code"))


@pytest.mark.parametrize(
    ("code", "status", "word"),
    [
        ("unauthorized", 401, "invalid_api_key"),
        ("overloaded", 503, "system_busy"),
        ("rate_limited", 429, "too_many_concurrent_requests"),
        ("unknown_voice", 400, "voice_not_found"),
        ("bad_request", 400, "bad_request"),
        ("unsupported", 400, "unsupported"),
    ],
)
def test_refusals_have_their_words(code, status, word):
    """`detail.status` is theirs, where they have one."""
    reply = elevenlabs.Speech.refusal(Error(code=code, message="m", fatal=False))
    assert reply.status == status
    assert json.loads(reply.body) == {"detail": {"status": word, "message": "m"}}


# --- lists ---------------------------------------------------------------------------------------


def test_voices_have_both_kinds_of_fields():
    """Clients of rtts and of ElevenLabs find theirs in the same object."""
    listed = json.loads(elevenlabs_lists.voices(Request(), house()).body)
    assert [each["voice_id"] for each in listed["voices"]] == [v["id"] for v in listed["voices"]]
    assert listed["default_voice"] and all(each["category"] for each in listed["voices"])
    one = elevenlabs_lists.voice(Request(params={"voice": listed["default_voice"]}), house())
    assert json.loads(one.body) in listed["voices"]


def test_pages_of_voices_end():
    """Following `next_page_token` shows each voice once; a search narrows it."""
    seen, query = [], {"page_size": "1"}
    for _ in range(20):
        page = json.loads(elevenlabs_lists.searched_voices(Request(query=query), house()).body)
        seen += [each["voice_id"] for each in page["voices"]]
        if not page["has_more"]:
            break
        query["next_page_token"] = page["next_page_token"]
    assert seen == [voice.id for voice in house().capabilities.voices]
    none = elevenlabs_lists.searched_voices(Request(query={"search": "no such"}), house())
    assert json.loads(none.body)["total_count"] == 0


def test_the_models_are_their_names():
    """An array, as their clients read it, of the loaded model under each name."""
    listed = json.loads(elevenlabs_lists.models(Request(), house()).body)
    assert {"eleven_flash_v2_5", house().capabilities.model} <= {m["model_id"] for m in listed}
    assert reading.load_object(elevenlabs_lists.user(Request(), house()).body)["subscription"]
