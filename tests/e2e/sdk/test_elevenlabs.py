"""The elevenlabs packages of Python and node."""

from __future__ import annotations

import pytest

from tests.e2e.sdk.conftest import TEXT

MAX_ERRORS = 0.1  # of 15 words, one
BYTES_PER_S = {
    "pcm_24000": 48_000,
    "wav_16000": 32_000,
    "ulaw_8000": 8000,
    "alaw_8000": 8000,
    "mp3_22050_32": 4000,
}


def test_python(client, tls_server, ears):
    """Sockets, bodies, times, lists and errors as the SDK reads them; what is left unheard stops."""
    before = tls_server.cancelled()
    said = client("elevenlabs", "elevenlabs_client.py", tls_server)
    samples = client.pcm("realtime.pcm")
    length_s = len(samples) / 24_000
    assert 3.0 < length_s < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    seconds = [said["sizes"][name] / rate for name, rate in BYTES_PER_S.items()]
    assert seconds == pytest.approx([seconds[0]] * len(seconds), rel=0.2) and seconds[0] > 1.5
    for name in ("realtime.mp3", "convert.mp3", "convert.opus"):
        assert ears.word_errors_in(client.tmp / name) <= MAX_ERRORS, name
    assert (client.tmp / "convert.mp3").stat().st_size / 16_000 == pytest.approx(length_s, rel=0.2)
    assert said["timed"] == TEXT and said["timed_bytes"] == said["lines_bytes"]
    assert said["timed_end"] == pytest.approx(said["timed_bytes"] / 48_000, abs=0.5)
    assert said["lines_text"].split() == TEXT.split() and said["lines"] > 10
    assert ["heart", "heart", "premade"] in said["voices"] and said["found"] == [1, True]
    assert said["voice"] == said["voices"][0][0]
    assert "eleven_flash_v2_5" in said["models"] and said["tier"] and said["limit"]
    assert said["emoji_bytes"] == 2 * 2400
    assert said["empty"] == [400, "bad_request"]
    assert said["format"] == [400, "output_format_not_allowed"]
    assert said["no_voice"] == [400, "voice_not_found"]
    assert said["clone"] == [400, "unsupported"] and said["delete"] == [400, "voice_not_found"]
    for wrong in ("wrong_key", "wrong_list", "no_key"):
        assert said[wrong] == [401, "invalid_api_key"], wrong
    assert len(set(said["together"])) == 1 and said["together"][0] > 50_000
    # The socket and the stream that were left after their first bytes.
    assert tls_server.is_quiet() and tls_server.cancelled() == before + 2


def test_node(client, server, ears):
    """The same in JavaScript; a stream that is cancelled stops the engine."""
    before = server.cancelled()
    said = client("node", "elevenlabs.mjs", server)
    samples = client.pcm("convert.pcm")
    assert 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert ears.word_errors_in(client.tmp / "stream.mp3") <= MAX_ERRORS
    assert said["timed"] == TEXT and said["lines"].split() == TEXT.split()
    assert said["bytes"] == 2 * len(samples) and said["first"] > 0
    assert "heart" in said["voices"] and said["found"] == 1
    assert "eleven_flash_v2_5" in said["models"] and said["tier"]
    assert said["limit"] > 0 and said["voice"] == said["voices"][0] and said["settings"] == 1
    assert said["wrong"] == [400, "voice_not_found"]
    assert server.is_quiet() and server.cancelled() == before + 1
