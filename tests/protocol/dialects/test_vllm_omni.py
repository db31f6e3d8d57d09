"""vLLM-Omni's speech stream: utterances in a row, whole or sentence by sentence."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rtts.audio.ogg import read_ogg_opus
from rtts.audio.wav import read_wav
from rtts.engine.tone import ToneOptions
from rtts.protocol import vllm_omni
from rtts.protocol.dialect import Request
from rtts.protocol.events import Audio, Done, Start
from tests.protocol.dialects.world import SocketWorld, house
from tests.protocol.strategies import JSON

ONE, TWO, THREE = "Hello there, this is a test. ", "It goes on for a while. ", "And then it ends."
TEXT = ONE + TWO + THREE
PCM = {"response_format": "pcm", "stream_audio": True}
SENTENCES = PCM | {"split_granularity": "sentence"}


def config(**fields) -> dict:
    return {"type": "session.config", "voice": "Vivian", "language": "English"} | fields


def text(words: str) -> dict:
    return {"type": "input.text", "text": words}


DONE = {"type": "input.done"}


def talk(*messages, seconds: float = 60.0, **rest) -> SocketWorld:
    world = SocketWorld(vllm_omni.Stream, **rest)
    world.tell(*messages)
    world.advance(seconds)
    return world


def kinds(world: SocketWorld) -> list[str]:
    """Types of frames in order, runs of audio as one."""
    found: list[str] = []
    for frame in world.frames:
        kind = "audio" if isinstance(frame, bytes) else frame["type"]
        if not found or kind != "audio" or found[-1] != "audio":
            found.append(kind)
    return found


def audio(world: SocketWorld) -> bytes:
    return b"".join(frame for frame in world.frames if isinstance(frame, bytes))


def test_an_utterance_is_one_piece_unless_split():
    """By default nothing is spoken before `input.done`, and then all of it as one sentence."""
    world = SocketWorld(vllm_omni.Stream)
    world.tell(config(**PCM), text(ONE), text(TWO))
    world.advance(5.0)
    assert world.frames == []
    world.tell(text(THREE), DONE)
    world.advance(60.0)
    assert kinds(world) == ["audio.start", "audio", "audio.done", "session.done"]
    [start], [done] = world.of_type("audio.start"), world.of_type("audio.done")
    assert start["sentence_text"] == TEXT and start["sample_rate"] == 24_000
    assert done["total_bytes"] == len(audio(world)) == 2 * world.of(Done)[0].samples
    assert done["error"] is False
    assert world.of_type("session.done")[0]["total_sentences"] == 1


def test_without_streaming_audio_is_one_frame_and_a_whole_file():
    """A WAV that says its length, in one binary frame."""
    world = talk(config(), text(TEXT), DONE)
    [frame] = [frame for frame in world.frames if isinstance(frame, bytes)]
    assert int.from_bytes(frame[40:44], "little") == len(frame) - 44
    assert len(read_wav(frame).pcm) == 2 * world.of(Done)[0].samples
    assert world.of_type("audio.done")[0]["total_bytes"] == len(frame)


def test_what_its_own_client_sends_by_default():
    """Its example's configuration, spelled as it spells it; any seed of 64 bits."""
    for language in ("Auto", "auto", "English", "en"):
        given = {"voice": "Vivian", "task_type": "CustomVoice", "speed": 1.0, "seed": -5}
        world = talk(config(**given | {"language": language}), text(ONE), DONE)
        assert kinds(world)[-1] == "session.done" and not world.of_type("error")


def test_frames_are_not_too_big():
    """A long piece comes in several frames, which in a row are the file."""
    world = talk(config(), text(TEXT * 10), DONE, seconds=200.0)
    frames = [frame for frame in world.frames if isinstance(frame, bytes)]
    assert len(frames) > 3 and max(map(len, frames)) <= 524_288
    assert len(read_wav(audio(world)).pcm) == 2 * world.of(Done)[0].samples


def test_opus_is_a_file():
    """Compressed formats are whole files."""
    world = talk(config(response_format="opus"), text(TEXT), DONE)
    assert len(read_ogg_opus(audio(world)).packets) > 50


def test_sentences_are_spoken_before_the_end():
    """With a granularity each sentence has its start, its audio and its end, from the first one on."""
    world = SocketWorld(vllm_omni.Stream)
    world.tell(config(**SENTENCES), text(ONE + "It goes"))
    world.advance(3.0)
    assert world.of_type("audio.start")[0]["sentence_text"].strip().startswith("Hello")
    world.tell(text(TWO.removeprefix("It goes")), text(THREE), DONE)
    world.advance(60.0)
    starts, ends = world.of_type("audio.start"), world.of_type("audio.done")
    spoken = "".join(start["sentence_text"] for start in starts)
    assert spoken.replace(" ", "") == TEXT.replace(" ", "")
    assert [s["sentence_index"] for s in starts] == [e["sentence_index"] for e in ends]
    assert [e["sentence_index"] for e in ends] == list(range(len(ends))) and len(ends) >= 2
    assert sum(end["total_bytes"] for end in ends) == len(audio(world))
    assert world.of_type("session.done")[0]["total_sentences"] == len(ends)


def test_sentences_can_be_files():
    """A WAV for each sentence, each whole."""
    world = talk(config(split_granularity="sentence"), text(TEXT), DONE)
    files = [frame for frame in world.frames if isinstance(frame, bytes)]
    assert len(files) == len(world.of_type("audio.done")) >= 2
    assert sum(len(read_wav(file).pcm) for file in files) == 2 * world.of(Done)[0].samples


def test_words_are_timed_on_the_sentence_s_clock():
    """Audio comes in JSON, and an empty chunk at the end of each sentence has its words."""
    world = talk(config(**SENTENCES, word_timestamps=True), text(TEXT), DONE)
    chunks = world.of_type("audio.chunk")
    assert not audio(world) and all(chunk["channels"] == 1 for chunk in chunks)
    timed = [chunk for chunk in chunks if chunk["timestamps"] is not None]
    assert [w["word"] for chunk in timed for w in chunk["timestamps"]] == TEXT.split()
    for chunk in timed:
        assert chunk["audio_b64"] == "" and 0 <= chunk["timestamps"][0]["start_ms"] < 500
        assert chunk["timestamps"][-1]["end_ms"] <= chunk["chunk_end_ms"] + 100
    n_bytes = sum(len(base64.b64decode(chunk["audio_b64"])) for chunk in chunks)
    assert n_bytes == 2 * world.of(Done)[0].samples


def test_utterances_follow_one_another():
    """What is sent while one is spoken waits, and is spoken after it, whole and in order."""
    world = SocketWorld(vllm_omni.Stream, tone=ToneOptions(real_time_factor=0.2))
    world.tell(config(**PCM), text(ONE), DONE, text(TWO), DONE, DONE, text(THREE), DONE)
    world.advance(60.0)
    assert [s["sentence_text"] for s in world.of_type("audio.start")] == [ONE, TWO, THREE]
    ends = world.of_type("session.done")
    assert [(e["utterance_index"], e["total_sentences"]) for e in ends] == [
        (0, 1),
        (1, 1),
        (2, 0),
        (3, 1),
    ]
    assert kinds(world)[:5] == ["audio.start", "audio", "audio.done", "session.done", "audio.start"]


def test_a_configuration_holds_until_the_next():
    """Another may come between utterances, also while the last is spoken; not inside one."""
    world = SocketWorld(vllm_omni.Stream, tone=ToneOptions(real_time_factor=0.2))
    world.tell(config(**PCM), text(ONE), config(), DONE, config(), text(TWO), DONE)
    assert [f["type"] for f in world.frames if isinstance(f, dict)].count("error") == 1
    world.advance(60.0)
    assert [s["format"] for s in world.of_type("audio.start")] == ["pcm", "wav"]


def test_close_is_heard_after_what_came_before():
    """The socket ends with 1000 when everything sent before was spoken."""
    world = talk(config(**PCM), text(ONE), DONE, {"type": "session.close"})
    assert kinds(world)[-1] == "session.done" and world.hangup.code == 1000


@pytest.mark.parametrize(
    "first",
    [
        text("Hi."),
        {"type": "nonsense"},
        "nonsense",
        config(voice="nobody"),
        config(response_format="flac"),
        config(response_format="exe"),
        config(ref_audio="file:///etc/passwd"),
        config(word_timestamps=True),
        config(split_granularity="sentence", response_format="opus"),
    ],
)
def test_a_wrong_first_message_ends_it(first):
    """Without a configuration there is nothing to go on with; after one there is."""
    world = talk(first)
    assert kinds(world) == ["error"] and world.hangup.code == 1008
    world = talk(config(**PCM), first if first != text("Hi.") else {"type": "?"}, text(ONE), DONE)
    assert kinds(world)[0] == "error" and kinds(world)[-1] == "session.done"
    assert world.hangup is None


def test_nothing_to_speak_is_a_little_silence():
    """A sentence of an emoji has audio, and everybody's counts add up."""
    world = talk(config(**PCM), text("\N{GRINNING FACE}"), DONE)
    assert kinds(world) == ["audio.start", "audio", "audio.done", "session.done"]
    assert not any(audio(world))


@pytest.mark.parametrize("granularity", ["none", "sentence"])
def test_a_failure_is_told_and_the_next_utterance_speaks(granularity):
    """`error`, ends with `error: true` where it had begun, and the socket goes on."""
    world = SocketWorld(vllm_omni.Stream, tone=ToneOptions(fail_at_segment=1))
    world.tell(config(**PCM, split_granularity=granularity), text(TEXT * 3))
    world.advance(10.0)
    world.tell(text(TEXT), DONE)
    world.advance(60.0)
    [error] = world.of_type("error")
    assert error.get("partial_audio") is True and error["action"] == "discard"
    assert world.of_type("audio.done")[-1]["error"] is True
    assert len(world.of_type("session.done")) == 1
    world.tell(text("Hi."), DONE)
    world.advance(10.0)
    assert len(world.of_type("session.done")) == 2
    assert world.of_type("audio.done")[-1]["error"] is False


def test_waiting_is_bounded():
    """A client that sends and sends is told that it is too much."""
    world = SocketWorld(vllm_omni.Stream, tone=ToneOptions(real_time_factor=0.5))
    world.tell(config(**PCM), text(ONE), DONE)
    world.tell(text("x " * 15_000), text("x " * 15_000))
    assert len(world.of_type("error")) == 1


MESSAGES = st.one_of(
    st.sampled_from([ONE, "Hello th", "", "\N{GRINNING FACE} ", TWO + THREE]).map(text),
    st.just(DONE),
    st.builds(
        lambda granularity, form, stream: config(
            split_granularity=granularity, response_format=form, stream_audio=stream
        ),
        st.sampled_from(["none", "sentence", "clause"]),
        st.sampled_from(["pcm", "wav"]),
        st.booleans(),
    ),
    st.sampled_from([0.1, 2.0]),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(MESSAGES, max_size=14))
def test_any_order_of_messages(messages):
    """Starts and ends are paired, indices count up, every `input.done` has its `session.done`."""
    world = SocketWorld(vllm_omni.Stream, tone=ToneOptions(real_time_factor=0.2))
    world.tell(config(**PCM))
    for message in messages:
        if isinstance(message, float):
            world.advance(message)
        else:
            world.tell(message)
    world.tell(DONE)
    world.advance(300.0)
    n_done = messages.count(DONE) + 1
    ends = world.of_type("session.done")
    assert [end["utterance_index"] for end in ends] == list(range(n_done))
    depth = 0
    for kind in kinds(world):
        depth += {"audio.start": 1, "audio.done": -1}.get(kind, 0)
        assert depth in (0, 1) and (kind != "audio" or depth == 1)
        assert kind != "session.done" or depth == 0
    assert sum(end["total_sentences"] for end in ends) == len(world.of_type("audio.done"))
    assert sum(d["total_bytes"] for d in world.of_type("audio.done")) == len(audio(world))
    assert world.session.active_contexts == 0 and world.service.live_utterances == 0
    assert not world.dialect._waiting and world.dialect._waiting_chars == 0


@settings(max_examples=60, deadline=None)
@given(JSON)
def test_any_json_is_answered(value):
    """Whatever a client sends: steps or an error, never another exception."""
    names = ("voice", "speed", "response_format", "language", "seed", "split_granularity")
    for body in (value, {"type": value}, *(config(**{name: value}) for name in names)):
        world = SocketWorld(vllm_omni.Stream)
        world.tell(json.dumps(body), config(**PCM), {"type": "input.text", "text": value}, DONE)
        world.advance(1.0)
        assert world.session.closing is None or world.session.closing.code != "internal"


def test_a_server_that_stops_is_an_error():
    """Speech that the server cut off is not told as if it were whole."""
    dialect = vllm_omni.Stream(Request(), house())
    sent = [
        step
        for message in (config(**PCM), text(TEXT), DONE)
        for step in dialect.receive(json.dumps(message).encode(), 0.0)
    ]
    ctx = next(step.ctx for step in sent if isinstance(step, Start))
    sound = {"stream": 1, "seq": 0, "segment": 0, "pts": 0, "flags": 0, "npackets": 0}
    list(dialect.send(Audio(ctx=ctx, duration_ms=80, data=bytes(3840), **sound)))
    cut = Done(
        ctx=ctx, reason="shutdown", segments=1, last_seq=0, audio_ms=80, samples=1920, text_chars=9
    )
    error, done, _ = [json.loads(frame) for frame in dialect.send(cut)]
    assert error["type"] == "error" and error["action"] == "discard"
    assert done["type"] == "audio.done" and done["error"] is True
