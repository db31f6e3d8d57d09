"""The dashscope package of Python."""

from __future__ import annotations

import pytest

from tests.e2e.sdk.conftest import TEXT

MAX_ERRORS = 0.1  # of 15 words, one
RESPONSE = [
    *("response.created", "response.output_item.added", "response.content_part.added"),
    *("response.audio.delta", "response.audio.done", "response.content_part.done"),
    *("response.output_item.done", "response.done"),
]


def test_python(client, server, ears):
    """Both modes, formats, and what clear and cancel stop; a wrong key is no session."""
    before = server.cancelled()
    said = client("deepgram", "dashscope_client.py", server)
    samples = client.pcm("server.pcm")
    length_s = len(samples) / 24_000
    assert 3.0 < length_s < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert said["server"] == ["session.created", "session.updated", *RESPONSE, "session.finished"]
    assert said["closed"] == 1000 and said["session"] is True
    assert said["characters"] == len(TEXT) + 1 and said["delay_ms"] > 0
    for name in ("commit2.wav", "commit3.opus"):
        assert ears.word_errors_in(client.tmp / name) <= MAX_ERRORS, name
    size = (client.tmp / "commit1.wav").stat().st_size
    assert size / 32_000 == pytest.approx(length_s, rel=0.2)
    cleared, status = said["cleared"]
    assert cleared == [*RESPONSE, "input_text_buffer.cleared"] and status == "cancelled"
    assert said["cancelled"] == [RESPONSE, "cancelled"]
    assert said["error"] == ["invalid_request_error", "invalid_value"]
    assert said["wrong_key"] == 401
    assert server.is_quiet() and server.cancelled() == before + 2
