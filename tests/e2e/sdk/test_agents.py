"""The services that Pipecat and LiveKit bring themselves, pointed at rtts."""

from __future__ import annotations

import pytest

from tests.e2e.sdk.conftest import TEXT

MAX_ERRORS = 0.1  # of 15 words, one
# A listener interrupts after a moment. A socket is sent no more than the lead until then; over HTTP
# a sentence at a time is fetched as fast as it is made, which may be most of the reply.
MAX_BARGED_S = dict.fromkeys(("cartesia", "deepgram", "deepgram-flux", "elevenlabs"), 12.0)
MAX_BARGED_S["openai"] = 120.0
WORDLESS = ("deepgram", "openai")  # APIs without times of words


@pytest.mark.parametrize(
    "service",
    [
        *("cartesia", "deepgram", "deepgram-flux"),
        *("elevenlabs-pcm_24000", "openai", "openai-opus"),
    ],
)
def test_livekit(client, server, ears, service):
    """Turns are whole and understood, before and after an interruption; that stops the engine."""
    before = server.cancelled()
    said = client("livekit", "livekit_client.py", server, service)
    samples = client.pcm("first.pcm")
    assert said["rate"] == 24_000 and 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    for name in ("again.pcm", "after.pcm"):
        assert len(client.pcm(name)) / 24_000 == pytest.approx(len(samples) / 24_000, rel=0.2), name
    assert said["emoji"] > 0
    if not service.startswith(WORDLESS):
        assert said["words"].split() == TEXT.split()
    more = 0
    if service.startswith("elevenlabs"):
        more = 1  # of its own: interrupted while text came, on a socket that stays open
        assert said["stopped"] == 1 and "heart" in said["voices"]
        names = ("reconnected", "mp3_22050_32", "opus_48000_64", "chunked")
        lengths = [said[name] for name in names]
        assert lengths == pytest.approx([lengths[0]] * 4, rel=0.2) and lengths[0] > 1.5
    if service.startswith("deepgram"):
        assert said["chunked"] == pytest.approx(len(samples) / 24_000, rel=0.2)
    assert server.is_quiet() and server.cancelled() == before + 1 + more


@pytest.mark.parametrize("service", list(MAX_BARGED_S))
def test_pipecat(client, server, ears, service):
    """A turn is understood and its words come; an interruption stops, and the next turn speaks."""
    before = server.cancelled()
    said = client("pipecat", "pipecat_client.py", server, service)
    samples = client.pcm("turn.pcm")
    assert 3.0 < len(samples) / 24_000 < 8.0
    assert ears.word_errors(samples, 24_000) <= MAX_ERRORS
    assert said["words"] == TEXT.split() and said["errors"] == []
    assert said["barged_words"][-len(TEXT.split()) :] == TEXT.split()
    length_s = len(samples) / 24_000
    # On a busy machine the interruption may come before the first sound of the long reply.
    assert length_s <= said["barged_s"] < MAX_BARGED_S[service]
    if service == "deepgram":
        assert said["http_s"] == pytest.approx(length_s, rel=0.2) and said["http_errors"] == []
    if service == "elevenlabs":
        assert said["talking_errors"] == [] and length_s < said["talking_s"] < 12.0
        assert said["lost_s"] == pytest.approx(2 * length_s, rel=0.2)
        assert said["http_s"] == pytest.approx(length_s, rel=0.2)
        assert said["http_words"] == TEXT.split() and said["http_errors"] == []
    assert server.is_quiet() and server.cancelled() >= before + 1
