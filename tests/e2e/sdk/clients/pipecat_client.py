"""Pipecat's own services in its own test harness: a turn, an interruption, another turn.

pipecat_client.py SERVICE
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import aiohttp
from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.worker import PipelineParams
from pipecat.tests.utils import SleepFrame, run_test

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
KEY, URL, WS_URL = (os.environ[name] for name in ("SDK_KEY", "SDK_URL", "SDK_WS_URL"))
SERVICE = sys.argv[1]
logger.remove()


def make():
    if SERVICE == "cartesia":
        from pipecat.services.cartesia.tts import CartesiaTTSService as Service

        return Service(
            api_key=KEY, url=WS_URL + "/tts/websocket", settings=Service.Settings(voice="v")
        )
    if SERVICE == "elevenlabs":
        from pipecat.services.elevenlabs.tts import ElevenLabsTTSService as Service

        return Service(api_key=KEY, url=WS_URL, settings=Service.Settings(voice="v", speed=1.0))
    if SERVICE == "deepgram":
        from pipecat.services.deepgram.tts import DeepgramTTSService as Service

        return Service(api_key=KEY, base_url=WS_URL)
    if SERVICE == "deepgram-flux":
        from pipecat.services.deepgram.flux.tts import DeepgramFluxTTSService as Service

        return Service(api_key=KEY, url=WS_URL + "/v2/speak")
    from pipecat.services.openai.tts import OpenAITTSService as Service

    return Service(api_key=KEY, base_url=URL + "/v1", settings=Service.Settings(voice="alloy"))


def reply(text, seconds):
    """A language model's reply, and time to hear it."""
    words = [LLMTextFrame(word + " ") for word in text.split()]
    return [
        LLMFullResponseStartFrame(), *words, LLMFullResponseEndFrame(), SleepFrame(sleep=seconds)
    ]  # fmt: skip


async def heard(frames, service=None):
    down, up = await run_test(
        service or make(),
        frames_to_send=frames,
        pipeline_params=PipelineParams(audio_out_sample_rate=24000),
    )
    audio = b"".join(frame.audio for frame in down if isinstance(frame, TTSAudioRawFrame))
    words = [frame.text for frame in down if isinstance(frame, TTSTextFrame)]
    errors = [str(frame) for frame in (*down, *up) if isinstance(frame, ErrorFrame)]
    return audio, words, errors


async def main():
    audio, words, errors = await heard(reply(TEXT, 1.5))
    (OUT / "turn.pcm").write_bytes(audio)
    said = {"words": " ".join(words).split(), "errors": errors}
    frames = [*reply(" ".join([LONG] * 3), 0.3), InterruptionFrame(), *reply(TEXT, 1.5)]
    audio, words, errors = await heard(frames)
    said |= {"barged_s": len(audio) / 48_000, "barged_words": " ".join(words).split()}
    said["errors"] += errors
    if SERVICE == "elevenlabs":
        said |= await elevenlabs()
    if SERVICE == "deepgram":
        said |= await deepgram()
    print(json.dumps(said))


async def elevenlabs():
    """Interrupted while text still comes; a socket that is lost; their service over HTTP."""
    from pipecat.services.elevenlabs.tts import ElevenLabsHttpTTSService as Http

    talking = [LLMFullResponseStartFrame(), *(LLMTextFrame(word + " ") for word in LONG.split())]
    frames = [*talking, SleepFrame(sleep=0.6), InterruptionFrame(), *reply(TEXT, 0.1)]
    audio, _, errors = await heard(frames)
    said = {"talking_s": len(audio) / 48_000, "talking_errors": errors}

    service = make()

    async def lose():
        await asyncio.sleep(1.6)
        await service._websocket.close()

    losing = asyncio.create_task(lose())
    audio, _, _ = await heard([*reply(TEXT, 2.0), *reply(TEXT, 0.1)], service)
    await losing
    said["lost_s"] = len(audio) / 48_000

    async with aiohttp.ClientSession() as session:
        service = Http(
            api_key=KEY, base_url=URL, aiohttp_session=session, settings=Http.Settings(voice="v")
        )
        audio, words, errors = await heard(reply(TEXT, 0.1), service)
    return said | {"http_s": len(audio) / 48_000, "http_words": words, "http_errors": errors}


async def deepgram():
    """Their service over HTTP."""
    from pipecat.services.deepgram.tts import DeepgramHttpTTSService as Http

    async with aiohttp.ClientSession() as session:
        service = Http(api_key=KEY, base_url=URL, aiohttp_session=session)
        audio, _, errors = await heard(reply(TEXT, 0.5), service)
    return {"http_s": len(audio) / 48_000, "http_errors": errors}


asyncio.run(main())
