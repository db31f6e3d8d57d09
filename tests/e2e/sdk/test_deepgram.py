"""The Deepgram packages of Python and node."""

from __future__ import annotations

import pytest

from tests.e2e.sdk.conftest import LONG, TEXT

MAX_ERRORS = 0.1  # of 15 words, one


def test_python(client, server, ears):
    """Both versions as the SDK reads them; Clear and Interrupt stop the engine; files; errors."""
    before = server.cancelled()
    said = client("deepgram", "deepgram_client.py", server)
    samples = client.pcm("v1.pcm")
    length_s = len(samples) / 24_000
    assert 3.0 < length_s < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert said["metadata"] == ["Metadata", "aura-2-thalia-en"]
    assert len(said["request_id"][0]) == 36 and len(set(said["request_id"])) == 1
    assert said["kinds"] == ["audio", "Flushed"]
    after = client.pcm("after.pcm")
    assert len(after) / 24_000 == pytest.approx(length_s, rel=0.2)
    assert said["after"] == ["audio", "Flushed"] and said["sequence"] == 2 and said["rest"] == []
    assert said["mulaw"] / 8000 == pytest.approx(length_s, rel=0.2)

    turn = client.pcm("v2.pcm")
    assert ears.word_errors(turn, 24_000) <= MAX_ERRORS
    assert said["connected"] == ["Connected", "flux-alexis-en"]
    assert said["turn"] == ["SpeechStarted", "SpeechMetadata", round(len(turn) / 24)]
    assert said["characters"] == len(TEXT) + 1
    spoken, length = said["interrupted"]
    assert LONG.startswith(spoken) and 5 < len(spoken) < 40 and length == len(LONG)
    assert said["closing"] == ["SessionMetadata"]

    for name in ("speech.wav", "speech.opus"):
        assert ears.word_errors_in(client.tmp / name) <= MAX_ERRORS, name
    assert len(client.pcm("v2-file.pcm")) / 16_000 == pytest.approx(length_s, rel=0.2)
    assert said["headers"] == ["audio/mpeg", "aura-2-thalia-en", str(len(TEXT))]
    assert said["wrong_key"] == [401, "INVALID_AUTH", 36, 401, True]
    assert said["wrong_model"] == [400, "INVALID_QUERY_PARAMETER", 36, 400, True]
    assert server.is_quiet() and server.cancelled() >= before + 2


def test_node(client, server, ears):
    """The same in JavaScript, and a key among the subprotocols."""
    before = server.cancelled()
    said = client("node", "deepgram.mjs", server)
    samples = client.pcm("v1.pcm")
    assert 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert said["kinds"] == ["Metadata", "audio", "Flushed"] and said["cleared"] == "Cleared"
    assert len(client.pcm("v2.pcm")) / 24_000 == pytest.approx(len(samples) / 24_000, rel=0.2)
    assert said["turn"][0] == "Connected" and said["turn"][-1] == "SpeechMetadata"
    assert ears.word_errors_in(client.tmp / "speech.mp3") <= MAX_ERRORS
    assert said["wrong"] == [400, "INVALID_QUERY_PARAMETER"]
    assert said["protocol"] == "token"
    assert server.is_quiet() and server.cancelled() >= before + 1
