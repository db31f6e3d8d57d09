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
    if SERVICE.startswith("elevenlabs"):
        from livekit.plugins import elevenlabs

        form = {"encoding": SERVICE.partition("-")[2]} if "-" in SERVICE else {}
        return elevenlabs.TTS(api_key=KEY, base_url=URL + "/v1", http_session=session, **form)
    if SERVICE.startswith("deepgram"):
        from livekit.plugins import deepgram

        if SERVICE == "deepgram-flux":
            return deepgram.TTSv2(api_key=KEY, base_url=URL + "/v2/speak", http_session=session)
        return deepgram.TTS(api_key=KEY, base_url=URL + "/v1/speak", http_session=session)
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
        if SERVICE.startswith("elevenlabs"):
            await elevenlabs(tts, session)
        if SERVICE.startswith("deepgram"):
            chunked = [bytes(event.frame.data) async for event in tts.synthesize(TEXT)]
            said["chunked"] = len(b"".join(chunked)) / 48_000
        await tts.aclose()


async def elevenlabs(tts, session):
    """Interrupted while text still comes; sockets that change or are lost; other formats; lists."""
    from livekit.plugins import elevenlabs

    async def speaking():
        async with session.get(URL + "/metrics", headers={"xi-api-key": KEY}) as response:
            lines = (await response.text()).splitlines()
        return [float(line.split()[1]) for line in lines if line.startswith("rtts_engine_utt")][0]

    tts.update_options(voice_id="another")  # which is another socket
    stream = tts.stream()
    stream.push_text(LONG)
    async for _ in stream:
        break
    await asyncio.sleep(0.2)
    before = await speaking()  # the reply before may still be, which was left without a word
    await stream.aclose()
    await asyncio.sleep(0.5)
    said["stopped"] = before - await speaking()
    await tts._TTS__current_connection._ws.close()
    await asyncio.sleep(0.1)
    short = TEXT.split(".")[0] + "."
    again, _, _ = await turn(tts, short)
    said["reconnected"] = len(again) / 48_000
    for encoding in ("mp3_22050_32", "opus_48000_64"):
        other = elevenlabs.TTS(
            api_key=KEY, base_url=URL + "/v1", http_session=session, encoding=encoding
        )
        audio, _, rate = await turn(other, short)
        said[encoding] = len(audio) / 2 / rate
        await other.aclose()
    audio = b"".join([bytes(event.frame.data) async for event in tts.synthesize(short)])
    said["chunked"] = len(audio) / 48_000
    said["voices"] = [voice.id for voice in await tts.list_voices()]


asyncio.run(main())
print(json.dumps(said))
