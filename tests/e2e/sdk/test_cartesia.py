"""The cartesia packages of Python and node."""

from __future__ import annotations

import pytest

from tests.e2e.sdk.conftest import TEXT

MAX_ERRORS = 0.1  # of 15 words, one


def test_python(client, server, ears):
    """Contexts, times, flushes, formats and errors as the SDK reads them; a cancel stops the engine."""
    before = server.cancelled()
    said = client("cartesia", "cartesia_client.py", server)
    samples = client.pcm("async.pcm")
    length_s = len(samples) / 24_000
    assert 3.0 < length_s < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert said["words"] == TEXT.split() and said["starts"] == sorted(said["starts"])
    assert 0 < said["starts"][-1] < length_s and said["last"] == "done"
    assert said["flushes"] == [1, 2]
    assert said["wrong"] == [400, "unsupported_format", True]
    assert said["heard"] == 5
    assert len(set(said["together"])) == 1 and said["together"][0] > 100_000
    for name in ("sync.pcm", "sse.pcm", "bytes.raw"):
        assert len(client.pcm(name)) / 24_000 == pytest.approx(length_s, rel=0.2), name
    floats = client.pcm("floats.pcm", "<f4")
    assert len(floats) / 24_000 == pytest.approx(length_s, rel=0.2)
    assert ears.word_errors(floats, 24_000) <= MAX_ERRORS
    for name in ("bytes.wav", "bytes.mp3"):
        assert ears.word_errors_in(client.tmp / name) <= MAX_ERRORS, name
    assert said["sse"] == ["chunk", "done", "timestamps"]
    assert "heart" in said["voices"]
    assert said["wrong_key"] == ["AuthenticationError", 401]
    assert server.is_quiet() and server.cancelled() == before + 1


def test_node(client, tls_server, ears):
    """The same in JavaScript over TLS; what was pushed and cancelled is not spoken to the end."""
    before = tls_server.cancelled()
    said = client("node", "cartesia.cjs", tls_server)
    samples = client.pcm("one.pcm")
    assert 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert said["kinds"][-1] == "done" and "timestamps" in said["kinds"] and said["heard"] == 5
    assert len(client.pcm("bytes.pcm")) / 24_000 == pytest.approx(len(samples) / 24_000, rel=0.2)
    assert tls_server.is_quiet() and tls_server.cancelled() == before + 1
