"""Ready means: voices loaded, and one utterance spoken through a session and an encoder."""

from __future__ import annotations

import asyncio

import pytest

from rtts.engine.interface import EngineDown, LoadVoice, StartUtterance
from rtts.engine.tone import ToneOptions
from rtts.errors import ConfigError
from rtts.server import prewarm
from rtts.session import SessionOptions
from tests.server.raw import eventually
from tests.server.rig import InlineEngine, ready, started


def value(server, name, **labels):
    return server.metrics.registry.get_sample_value(name, labels)


async def test_the_default_voice_is_loaded_and_speaks():
    """Without configured voices the default one is pinned, and one utterance is spoken."""
    engine = InlineEngine()
    async with ready(engine) as server:
        assert engine.commands[0] == LoadVoice("tone", pinned=True)
        spoken = [command for command in engine.commands if isinstance(command, StartUtterance)]
        assert [command.voice for command in spoken] == ["tone"]
        assert server.service.is_ready and server._hub.sessions == 0
        assert server.service.live_utterances == 0 and not server._hub._routes


async def test_the_rehearsal_is_nobodys_figure():
    """What the server says to itself is in no latency, count or record."""
    async with ready() as server:
        assert server.service.first_packet.count(server.clock()) == 0
        assert value(server, "rtts_streams_total", outcome="ok") == 0
        assert value(server, "rtts_encode_seconds_count") == 0
        assert value(server, "rtts_cache_requests_total", result="miss") == 1
        assert server._book.budget.share(server.clock()) is None


async def test_configured_voices_are_loaded_before_ready():
    """Every voice of the settings, each once, the session's default among them."""
    engine = InlineEngine(ToneOptions(voice_load_s=0.05))
    options = SessionOptions(voice="tone-high")
    async with ready(engine, session=options, prewarm_voices=("tone-low", "tone-high")) as server:
        loads = [command.voice for command in engine.commands if isinstance(command, LoadVoice)]
        assert loads == ["tone-high", "tone-low"]
        spoken = [command for command in engine.commands if isinstance(command, StartUtterance)]
        assert spoken[0].voice == "tone-high"
        assert value(server, "rtts_cache_requests_total", result="miss") == 2
        assert value(server, "rtts_voice_load_seconds_count") == 2


@pytest.mark.parametrize(
    ("options", "session"),
    [({"prewarm_voices": ("nobody",)}, None), ({}, SessionOptions(voice="nobody"))],
)
async def test_a_voice_that_does_not_exist_is_a_setting_that_is_wrong(options, session):
    """The server never becomes ready and says which setting and which voices there are."""
    async with started(session=session, **options) as server:
        with pytest.raises(ConfigError, match=r"'nobody'.*tone-low"):
            await server.ready()
        assert not server.is_ready and server.failed.done()


async def test_a_language_nobody_speaks_is_a_setting_that_is_wrong():
    """The server does not try for ever: it fails and names the setting."""
    async with started(session=SessionOptions(language="tlh")) as server:
        with pytest.raises(ConfigError, match=r"session\.language.*tlh"):
            await server.ready()


async def test_another_voice_that_cannot_be_loaded_does_not_stop_readiness():
    """It is said; who asks for it gets an error."""
    engine = InlineEngine()
    engine.failing_voices = {"tone-low"}
    async with ready(engine, prewarm_voices=("tone-low",)) as server:
        assert server._prewarmer.failed_voices == {"tone-low": "its file is broken"}
        assert value(server, "rtts_voice_failures_total") == 1
        assert value(server, "rtts_degraded", what="voices") == 1


async def test_a_default_voice_that_cannot_be_loaded_is_tried_again(monkeypatch):
    """Not ready, with the reason, until it works."""
    monkeypatch.setattr(prewarm, "RETRY_S", (0.05,))
    engine = InlineEngine()
    engine.failing_voices = {"tone"}
    async with started(engine) as server:
        await eventually(lambda: server._prewarmer.trouble)
        assert "its file is broken" in server._prewarmer.trouble
        assert server._readiness.reasons == ["prewarming"]
        engine.failing_voices.clear()
        async with asyncio.timeout(3):
            await server.ready()
        assert server._troubles() == []


@pytest.mark.parametrize(
    "options",
    [
        ToneOptions(fail_at_segment=0),
        ToneOptions(never_finish=True),
        ToneOptions(unspeakable=("test", "over")),
    ],
)
async def test_an_engine_that_cannot_speak_is_not_ready(monkeypatch, options):
    """An utterance that fails, never ends or has no audio is no rehearsal, and leaves nothing."""
    monkeypatch.setattr(prewarm, "RETRY_S", (10.0,))
    monkeypatch.setattr(prewarm, "SPEECH_TIMEOUT_S", 0.3)
    engine = InlineEngine(options)
    async with started(engine) as server:
        await eventually(lambda: server._prewarmer.trouble)
        assert not server.is_ready
        await eventually(lambda: server._hub.sessions == 0)
        await eventually(lambda: server.service.live_utterances == 0)


async def test_a_wrong_setting_of_the_engine_ends_the_server():
    """The engine's last word before it was ever ready is the server's."""
    engine = InlineEngine(starts=False)
    async with started(engine) as server:
        engine.say([EngineDown("qwen.model: damaged", 0.0, is_final=True)])
        with pytest.raises(ConfigError, match=r"qwen\.model: damaged"):
            await server.ready()
        assert value(server, "rtts_engine_restarts_total") == 0


async def test_a_slow_engine_gets_there(monkeypatch):
    """A sentence may take many times the limit, as long as some audio comes within it."""
    monkeypatch.setattr(prewarm, "RETRY_S", (10.0,))
    monkeypatch.setattr(prewarm, "SPEECH_TIMEOUT_S", 0.3)
    async with started(InlineEngine(ToneOptions(real_time_factor=0.6))) as server:
        async with asyncio.timeout(5):
            began = server.clock()
            await server.ready()
        assert server.clock() - began > 0.9


async def test_after_a_restart_it_speaks_again_before_it_is_ready():
    """EngineDown: not ready at once. EngineReady: prewarmed anew."""
    engine = InlineEngine()
    async with ready(engine) as server:
        engine.die()
        assert not server.is_ready and server._readiness.reasons == ["engine_down"]
        before = len(engine.commands)
        engine.come_up()
        async with asyncio.timeout(3):
            await server.ready()
        again = engine.commands[before:]
        assert any(isinstance(command, LoadVoice) for command in again)
        assert any(isinstance(command, StartUtterance) for command in again)
        assert value(server, "rtts_engine_restarts_total") == 1


async def test_an_engine_that_dies_while_prewarming():
    """The first attempt is given up, the next one counts."""
    engine = InlineEngine(ToneOptions(voice_load_s=0.2))
    async with started(engine) as server:
        await eventually(lambda: server._readiness.reasons == ["prewarming"])
        engine.die()
        assert server._readiness.reasons == ["engine_down"]
        engine.come_up()
        async with asyncio.timeout(3):
            await server.ready()
        assert server._hub.sessions == 0


async def test_stopping_while_prewarming():
    """A server can be stopped before it was ever ready."""
    engine = InlineEngine(ToneOptions(voice_load_s=30.0))
    async with asyncio.timeout(3):
        async with started(engine) as server:
            await eventually(lambda: server._readiness.reasons == ["prewarming"])
    assert engine.is_closed and not server.service.is_ready
