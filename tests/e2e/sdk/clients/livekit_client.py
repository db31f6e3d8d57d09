"""LiveKit's own plugins: a turn, another on the same pool, an emoji, an interruption.

livekit_client.py SERVICE
"""

import asyncio
import json
import os
import sys
from pathlib import Path

import aiohttp

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
KEY, URL = os.environ["SDK_KEY"], os.environ["SDK_URL"]
SERVICE = sys.argv[1]
said = {}


def make(session):
    if SERVICE == "cartesia":
        from livekit.plugins import cartesia

        return cartesia.TTS(api_key=KEY, base_url=URL, http_session=session)
    from livekit.plugins import openai

    form = {} if SERVICE == "openai" else {"response_format": SERVICE.removeprefix("openai-")}
    return openai.TTS(api_key=KEY, base_url=URL + "/v1", **form)


async def turn(tts, text, interrupt=False):
    """What was heard: samples, words, rate."""
    if tts.capabilities.streaming:
        stream = tts.stream()
        for word in text.split():
            stream.push_text(word + " ")
        stream.end_input()
    else:
        stream = tts.synthesize(text)
    audio, words, rate = b"", [], 0
    async for event in stream:
        audio += bytes(event.frame.data)
        rate = event.frame.sample_rate
        words += event.frame.userdata.get("lk.timed_transcripts") or []
        if interrupt:
            break
    await stream.aclose()
    return audio, "".join(str(word) for word in words), rate


async def main():
    async with aiohttp.ClientSession() as session:
        tts = make(session)
        audio, said["words"], said["rate"] = await turn(tts, TEXT)
        (OUT / "first.pcm").write_bytes(audio)
        again, _, _ = await turn(tts, TEXT)
        (OUT / "again.pcm").write_bytes(again)
        emoji, _, _ = await turn(tts, "\N{GRINNING FACE}")
        said["emoji"] = len(emoji)
        await turn(tts, LONG, interrupt=True)
        after, _, _ = await turn(tts, TEXT)
        (OUT / "after.pcm").write_bytes(after)
        await tts.aclose()


asyncio.run(main())
print(json.dumps(said))
