"""The openai packages of Python and node."""

from __future__ import annotations

import pytest

from rtts.audio.ogg import read_ogg_opus
from rtts.audio.wav import read_wav
from tests.e2e.sdk.conftest import TEXT

MAX_ERRORS = 0.1  # of 15 words, one


def test_python(client, server, ears):
    """Every format is whole and understood; streams begin at once; errors are the SDK's own."""
    before = server.cancelled()
    said = client("openai", "openai_client.py", server)
    samples = client.pcm("speech.pcm")
    length_s = len(samples) / 24_000
    assert 3.0 < length_s < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert (
        read_wav((client.tmp / "speech.wav").read_bytes()).pcm
        == (client.tmp / "speech.pcm").read_bytes()
    )
    ogg = read_ogg_opus((client.tmp / "speech.opus").read_bytes())
    assert 0.02 * len(ogg.packets) == pytest.approx(length_s, abs=0.1)
    for form in ("opus", "mp3"):
        assert ears.word_errors_in(client.tmp / f"speech.{form}") <= MAX_ERRORS, form
    mp3_bytes = (client.tmp / "speech.mp3").stat().st_size
    assert mp3_bytes / 8000 == pytest.approx(length_s, rel=0.1)
    types = {form: said[form] for form in ("pcm", "wav", "opus", "mp3", "default", "sse")}
    assert types == {
        "pcm": "audio/pcm",
        "wav": "audio/wav",
        "opus": "audio/ogg; codecs=opus",
        "mp3": "audio/mpeg",
        "default": "audio/mpeg",
        "sse": "text/event-stream",
    }
    assert said["events"][-1] == "speech.audio.done" and len(said["events"]) > 10
    assert said["usage"]["input_tokens"] == len(TEXT)
    assert "tts-1" in said["models"] and said["model"] == "tts-1"
    assert said["wrong_voice"] == ["BadRequestError", 400, "unknown_voice", "voice"]
    assert said["wrong_format"] == ["BadRequestError", 400, "unsupported_format", "response_format"]
    assert said["empty"][:2] == ["BadRequestError", 400] and said["empty"][3] == "input"
    assert said["wrong_key"][:3] == ["AuthenticationError", 401, "unauthorized"]
    assert said["emoji_bytes"] == 2 * 2400
    assert len(set(said["together"])) == 1 and said["together"][0] > 100_000
    # The stream that was left after its first bytes.
    assert server.is_quiet() and server.cancelled() == before + 1


def test_node(client, server, ears):
    """The same in JavaScript, and an abort stops the engine."""
    before = server.cancelled()
    said = client("node", "openai.mjs", server)
    samples = client.pcm("speech.pcm")
    assert 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert said["mp3"] == "audio/mpeg" and (client.tmp / "speech.mp3").stat().st_size > 20_000
    assert said["wrong"] == ["BadRequestError", 400, "unknown_voice", "voice"]
    assert "tts-1" in said["models"] and said["first"] > 0
    assert server.is_quiet() and server.cancelled() == before + 1
