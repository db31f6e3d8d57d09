"""The cartesia package, synchronous and asynchronous: contexts, times, cancel, bytes, events."""

import asyncio
import json
import os
from pathlib import Path

import cartesia

OUT, TEXT, LONG = Path(os.environ["SDK_OUT"]), os.environ["SDK_TEXT"], os.environ["SDK_LONG"]
ACCOUNT = {
    "api_key": os.environ["SDK_KEY"],
    "base_url": os.environ["SDK_URL"],
    "websocket_base_url": os.environ["SDK_WS_URL"],
    "max_retries": 0,
}
RAW = {"container": "raw", "encoding": "pcm_s16le", "sample_rate": 24000}
HOW = {
    "model_id": "sonic-3",
    "voice": {"mode": "id", "id": "a0e99841-438c-4a64-b679-ae501e7d6091"},
    "output_format": RAW,
}
said = {}


async def talk():
    async with cartesia.AsyncCartesia(**ACCOUNT) as client, client.tts.websocket_connect() as ws:
        context = ws.context(**HOW, add_timestamps=True)
        for word in TEXT.split():
            await context.push(word + " ")
        await context.no_more_inputs()
        kinds, audio, words, starts = [], b"", [], []
        async for event in context.receive():
            kinds.append(event.type)
            if event.type == "chunk":
                audio += event.audio
            elif event.type == "timestamps":
                words += event.word_timestamps.words
                starts += event.word_timestamps.start
        (OUT / "async.pcm").write_bytes(audio)
        said["words"], said["starts"], said["last"] = words, starts, kinds[-1]

        flushed = ws.context(**HOW)
        await flushed.push("Hello there", flush=True)
        await flushed.push("and good bye", flush=True)
        await flushed.no_more_inputs()
        said["flushes"] = [e.flush_id async for e in flushed.receive() if e.type == "flush_done"]

        floats = ws.context(**(HOW | {"output_format": RAW | {"encoding": "pcm_f32le"}}))
        await floats.push(TEXT)
        await floats.no_more_inputs()
        audio = b"".join([e.audio async for e in floats.receive() if e.type == "chunk"])
        (OUT / "floats.pcm").write_bytes(audio)

        wrong = ws.context(**(HOW | {"output_format": RAW | {"sample_rate": 12345}}))
        await wrong.push("Hi.")
        await wrong.no_more_inputs()
        errors = [e async for e in wrong.receive() if e.type == "error"]
        said["wrong"] = [errors[0].status_code, errors[0].error_code, bool(errors[0].title)]

        barged = ws.context(**HOW)
        await barged.push(LONG)
        heard = 0
        async for event in barged.receive():
            heard += event.type == "chunk"
            if heard == 5:
                await barged.cancel()
                break
        said["heard"] = heard

        many = [ws.context(**HOW) for _ in range(3)]
        for each in many:
            await each.push(TEXT)
            await each.no_more_inputs()

        async def length(context):
            return sum([len(e.audio) async for e in context.receive() if e.type == "chunk"])

        said["together"] = await asyncio.gather(*(length(each) for each in many))


asyncio.run(talk())

client = cartesia.Cartesia(**ACCOUNT)
with client.tts.websocket_connect() as ws:
    context = ws.context(**HOW)
    context.push(TEXT)
    context.no_more_inputs()
    audio = b"".join(event.audio for event in context.receive() if event.type == "chunk")
    (OUT / "sync.pcm").write_bytes(audio)

for name, form in {
    "raw": RAW,
    "wav": {"container": "wav", "encoding": "pcm_f32le", "sample_rate": 44100},
    "mp3": {"container": "mp3", "sample_rate": 44100, "bit_rate": 128000},
}.items():
    response = client.tts.generate(**(HOW | {"output_format": form}), transcript=TEXT)
    response.write_to_file(OUT / f"bytes.{name}")
kinds, audio = [], b""
for event in client.tts.generate_sse(**HOW, transcript=TEXT, add_timestamps=True):
    kinds.append(event.type)
    if event.type == "chunk":
        audio += event.audio
(OUT / "sse.pcm").write_bytes(audio)
said["sse"] = sorted(set(kinds))
said["voices"] = [voice.id for voice in client.voices.list()]
client.close()

client = cartesia.Cartesia(**(ACCOUNT | {"api_key": "wrong"}))
try:
    client.tts.generate(**HOW, transcript="Hi.")
except cartesia.APIStatusError as error:
    said["wrong_key"] = [type(error).__name__, error.status_code]
client.close()
print(json.dumps(said))
